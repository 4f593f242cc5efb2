"""SSDTrain (arXiv:2408.10013, section IV): activations on drives, at no cost in time.

Two A100 PCIe at their base clock of 765 MHz with tensor parallelism, fp16, SGD, FlashAttention; arrays of
three and four Intel P5800X (7.2 GB/s read, 6.2 GB/s written each), of which each device has one: the less
fast counts. The sequences of a micro-batch are not stated: eight here, and sixteen.

`window_layers`, the layers whose activations are on the device together, is 2 unless a stack states another
number. Here it is fitted to the published peaks of the other two shapes.
"""

from functools import cache

from all_cases import all_cases
from conftest import make_job

from flopcast.library.curves import load_book
from flopcast.prediction import predict

SHAPES = ((8192, 4), (12288, 3), (16384, 2))
DRIVES = 3
ACTIVATIONS = ("activations", "returned_activations", "layer_at_work", "logits")
LOWER_PEAKS = {(8192, 4): 0.47, (12288, 3): 0.40, (16384, 2): 0.28}  # the strongest case, and both ends
WINDOWS = (1.0, 1.1, 1.2, 1.3, 1.35, 1.4, 1.5, 1.75, 2.0)


@cache
def report(hidden, layers, offload, sequences, window=2.0):
    node = {
        "device": "a100-pcie-40gb",
        "devices": 2,
        "host": "epyc-7763",
        "memory": {"capacity_bytes": "1 TB", "bytes_per_s": "200 GB/s"},
        "nvme": {
            "capacity_bytes": "10 TB",
            "read_bytes_per_s": f"{2 * DRIVES * 7.2} GB/s",
            "write_bytes_per_s": f"{2 * DRIVES * 6.2} GB/s",
        },
    }
    links = [{"name": "nvlink", "devices": 0, "bytes_per_s": "300 GB/s", "latency_s": "5 us"}]
    mixer = {"heads": hidden // 128, "qkv_bias": True, "out_bias": True, "rotary_fraction": 0.0}
    block = {"count": layers, "mixer": mixer, "feed_forward": {"ffn_hidden": 4 * hidden, "bias": True}}
    job = make_job(
        model={"hidden": hidden, "vocabulary": 50257, "tied_embeddings": True, "blocks": [block]},
        cluster={"groups": [{"count": 1, "node": node}], "tiers": links},
        stack={
            "base": "megatron-2022",
            "attention_kernel": "flash",
            "offload": {"places": ["activations:nvme"], "window_layers": window},
        },
        site={"name": "base clock", "clock_hz": "765 MHz"},
        plan=f"tp=2 mbs={sequences} gbs={sequences} precision=fp16 optimizer=sgd offload={offload}",
    )
    return predict(job, load_book(job.cluster))


def peak(hidden, layers, offload, sequences, window):
    sizes = report(hidden, layers, offload, sequences, window).memory.by_category
    return sum(sizes.get(name, 0.0) for name in ACTIVATIONS)


def lower_peak(shape, sequences, window):
    """How much lower the peak of activations is, as a share."""
    kept, placed = (
        sum(
            report(*shape, place, sequences, window).memory.by_category.get(name, 0.0)
            for name in ACTIVATIONS
        )
        for place in ("none", "activations:nvme")
    )
    return 1.0 - placed / kept


def misses(shapes, window):
    return [abs(lower_peak(shape, n, window) - LOWER_PEAKS[shape]) for shape in shapes for n in (8, 16)]


@all_cases(("hidden", "layers"), SHAPES)
def test_a_step_takes_as_long_as_with_activations_on_the_device(hidden, layers):
    for sequences in (8, 16):
        with_drives, without = (
            report(hidden, layers, offload, sequences).step_time_s
            for offload in ("activations:nvme", "none")
        )

        assert 1.0 <= with_drives / without < 1.03


def test_the_peak_of_activations_falls_as_published_with_a_window_of_the_other_shapes():
    """Within 6 points with one window for all three; within 5, 4 and 10 with that of the other two."""
    fitted = min(WINDOWS, key=lambda window: max(misses(SHAPES, window)))

    assert max(misses(SHAPES, fitted)) < 0.06
    for shape in SHAPES:
        others = [other for other in SHAPES if other != shape]
        window = min(WINDOWS, key=lambda each: max(misses(others, each)))
        assert max(misses([shape], window)) < 0.10, (shape, window)


def test_two_whole_layers_on_the_device_lower_the_peak_by_less_than_published():
    """Never fitted: the reductions are at most as large as the published ones."""
    for shape in SHAPES:
        for sequences in (8, 16):
            assert 0.0 <= lower_peak(shape, sequences, 2.0) < LOWER_PEAKS[shape], shape
