"""SSDTrain (arXiv:2408.10013, section IV): activations on drives, at no cost in time.

Two A100 PCIe at their base clock of 765 MHz with tensor parallelism, fp16, SGD, FlashAttention; arrays of
three and four Intel P5800X (7.2 GB/s read, 6.2 GB/s written each), of which each device has one: the less
fast counts. The sequences of a micro-batch are not stated: eight here, and sixteen.
"""

from functools import cache

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.library.curves import load_book
from flopcast.prediction import predict

SHAPES = ((8192, 4), (12288, 3), (16384, 2))
DRIVES = 3
ACTIVATIONS = ("activations", "returned_activations", "layer_at_work", "logits")


@cache
def report(hidden, layers, offload, sequences):
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
            "offload": {"places": ["activations:nvme"]},
        },
        site={"name": "base clock", "clock_hz": "765 MHz"},
        plan=f"tp=2 mbs={sequences} gbs={sequences} precision=fp16 optimizer=sgd offload={offload}",
    )
    return predict(job, load_book(job.cluster))


def peak(hidden, layers, offload, sequences):
    sizes = report(hidden, layers, offload, sequences).memory.by_category
    return sum(sizes.get(name, 0.0) for name in ACTIVATIONS)


@all_cases(("hidden", "layers"), SHAPES)
def test_a_step_takes_as_long_as_with_activations_on_the_device(hidden, layers):
    for sequences in (8, 16):
        with_drives, without = (
            report(hidden, layers, offload, sequences).step_time_s
            for offload in ("activations:nvme", "none")
        )

        assert 1.0 <= with_drives / without < 1.03


@all_cases(("hidden", "layers", "published"), [(8192, 4, 0.47), (12288, 3, 0.40), (16384, 2, 0.28)])
def test_the_peak_of_activations_falls_as_published(hidden, layers, published):
    """The strongest case, and both ends of the others; the window of layers was fitted to these."""
    for sequences in (8, 16):
        kept, placed = (peak(hidden, layers, each, sequences) for each in ("none", "activations:nvme"))

        assert 1.0 - placed / kept == pytest.approx(published, abs=0.06)
