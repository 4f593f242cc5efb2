"""Published systems whose models are graphs: stitched networks, neural operators and DLRM."""

from functools import cache
from pathlib import Path

import pytest
from conftest import make_job
from graph_builder import Builder
from graph_counts import packed_graph
from oracle_models import LOOK_UPS, TABLES

from flopcast import predict
from flopcast.graph.autocast import under_autocast
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.jobs import job

HERE = Path(__file__).with_name("exported")
ANCHORS = {  # width, and milliseconds of 1,024 images by timm's table (RTX 3090, PyTorch 2.4, AMP)
    "timm.vit_tiny_patch16_224": (192, 100.1),
    "vit_small_patch16_224": (384, 223.3),
    "timm.vit_base_patch16_224": (768, 651.9),
}
PATCHES, LAYERS = 197, 12


@cache
def anchor(name):
    """An exported vision transformer as plain data: patches, twelve equal blocks, the classifier."""
    graph = packed_graph((HERE / f"{name}.json.gz").read_bytes(), name)
    return model_of_graph(under_autocast(graph))[0]


def stitched(first, second, place):
    """A network that begins as one anchor and, after `place` blocks, goes on as a wider one."""
    (narrow, _), (wide, _) = ANCHORS[first], ANCHORS[second]
    product = {"name": "stitch", "inputs": ["x"], "output": "y", "kind": "matmul"}
    product |= {"m": {"sequences": PATCHES}, "n": wide, "k": narrow}
    mixer = anchor(first)["blocks"][1]["mixer"] | {
        "weights_of_block": [{"name": "w0", "elements": narrow * wide}],
        "operators": [product],
    }
    start, body, _ = anchor(first)["blocks"]
    _, other, end = anchor(second)["blocks"]
    stitch = {"count": 1, "mixer": mixer, "feed_forward": {"kind": "none"}}
    middle = [body | {"count": place}, stitch, other | {"count": LAYERS - place}]
    return anchor(first) | {"name": "stitched", "blocks": [start, *middle, end]}


def report_of(model):
    return predict(job(model=model, cluster="rtx-3090-8", gpus=1, plan="mbs=1024 gbs=1024", inference=True))


def test_stitches_interpolate_the_latency_of_their_anchors():
    """SN-Net (arXiv:2302.06586): a curve of latencies between pretrained anchors, by the place of a stitch.

    A network with its stitch after k of 12 blocks takes k/12 of one anchor and the rest of the other, and
    the product that joins them.
    """
    for first, second in zip(list(ANCHORS)[:2], list(ANCHORS)[1:], strict=True):
        fast, slow = (report_of(anchor(name)) for name in (first, second))
        reports = {place: report_of(stitched(first, second, place)) for place in (1, 3, 6, 9, 11)}
        steps = [reports[place].step_time_s for place in reports]

        assert steps == sorted(steps, reverse=True)
        assert fast.step_time_s < steps[-1]
        assert steps[0] < slow.step_time_s
        for place, report in reports.items():
            share = place / LAYERS
            mixed_s = share * fast.step_time_s + (1 - share) * slow.step_time_s
            assert report.step_time_s == pytest.approx(mixed_s, rel=0.04)
            mixed_flop = share * fast.metrics.model_flop + (1 - share) * slow.metrics.model_flop
            assert report.metrics.model_flop == pytest.approx(mixed_flop, rel=0.03)


def test_the_anchors_of_stitched_networks_have_the_measured_latencies():
    """The rows are part of the fit."""
    for name, (_, measured_ms) in ANCHORS.items():
        assert report_of(anchor(name)).step_time_s * 1e3 == pytest.approx(measured_ms, rel=0.12), name


CHANNELS, MODES, GRID, SPECTRAL_LAYERS = 64, 64 * 33, 512 * 512, 4


def neural_operator(parts=1, compression=1):
    """Layers of a Fourier neural operator on a part of a grid of 512 · 512, with factorised weights.

    Each layer transforms its input, multiplies each kept mode with a complex matrix, and transforms back.
    """
    places = GRID // parts
    elements = CHANNELS * places

    def a_pass(name, operator, inputs, output, passes):
        moved = {"sequences": 2.0 * passes * elements}
        return {
            **{"name": name, "inputs": inputs, "output": output, "kind": "graph_pass", "moved": moved},
            **{"family": "transform" if operator == "fourier" else "elementwise", "operator": operator},
            **{"read": [{"sequences": 2.0 * elements}] * len(inputs), "moved_backward": moved},
            "written": {"sequences": 2.0 * elements},
        }

    def a_product(name, source, output, rows):
        return {
            **{"name": name, "inputs": [source], "output": output, "kind": "matmul"},
            **{"m": {"sequences": rows}, "n": CHANNELS, "k": CHANNELS},
        }

    operators = [
        a_pass("transform", "fourier", ["x"], "t0", 2),
        a_product("modes", "t0", "t1", 2 * MODES),
        a_pass("inverse", "fourier", ["t1"], "t2", 2),
        a_product("skip", "x", "t3", places),
        a_pass("add", "add", ["t2", "t3"], "y", 3),
    ]
    spectral = 2 * CHANNELS**2 * MODES // compression
    weights = [{"name": "spectral", "elements": spectral}, {"name": "skip", "elements": CHANNELS**2}]
    mixer = {"kind": "traced", "batch_of": "samples", "units": 1}
    mixer |= {"weights_of_block": weights, "operators": operators}
    block = {"count": SPECTRAL_LAYERS, "mixer": mixer, "feed_forward": {"kind": "none"}}
    return {"name": "neural-operator", "hidden": elements, "vocabulary": 0, "blocks": [block]}


def test_factorised_weights_and_a_divided_domain_need_the_memory_of_their_sizes():
    """MG-TFNO (arXiv:2310.00120): 150 times fewer parameters, and a domain that is 7 times smaller.

    Gradients and states of the optimizer shrink with the parameters. Each layer keeps its input, which
    shrinks with the domain, and the modes, which do not. We chose layers, channels, modes and grid.
    """

    def memory_of(**sizes):
        return predict(
            job(model=neural_operator(**sizes), cluster="dgx-a100", gpus=1, plan="mbs=1 gbs=2 zero=0")
        ).memory

    dense, factorised = memory_of(), memory_of(compression=150)
    divided, both = memory_of(parts=7), memory_of(parts=7, compression=150)
    states = ("parameters", "gradients", "optimizer_states")
    spectral, skip = 2 * CHANNELS**2 * MODES, CHANNELS**2

    for name in states:
        ratio = dense.by_category[name] / factorised.by_category[name]
        assert ratio == pytest.approx((spectral + skip) / (spectral // 150 + skip), rel=1e-6), name
        assert dense.by_category[name] == divided.by_category[name], name
    assert dense.by_category["activations"] == factorised.by_category["activations"]
    kept = {parts: GRID // parts + 2 * MODES for parts in (1, 7)}
    ratio = dense.by_category["activations"] / divided.by_category["activations"]
    assert ratio == pytest.approx(kept[1] / kept[7], rel=1e-3)
    saved = dense.allocated_bytes / both.allocated_bytes
    assert saved > dense.allocated_bytes / min(factorised.allocated_bytes, divided.allocated_bytes)


SAMPLES, WIDTH, CROSS_RANK = 2, 128, 512  # of DLRM-DCNv2, as MLPerf Training trains it
MOST_WHOLE = int(0.008 * 2**30 / 4)  # elements in fp32: DP_SHARDING_THRESHOLD of MLPerf's configurations


def dlrm():
    """The model of MLPerf under autocast: look-ups in 26 tables, three cross layers and two MLPs."""
    build = Builder()
    vectors = [build.layers(build.input("dense", SAMPLES, 13), SAMPLES, 13, 512, 256, WIDTH)]
    for number, (rows, times) in enumerate(zip(TABLES, LOOK_UPS, strict=True)):
        names = (
            f"{build.weight(rows, WIDTH)} {build.input(f'indices{number}', SAMPLES, times, dtype='int64')}"
        )
        vectors.append(build.run("embedding_bag", names, SAMPLES, WIDTH))
    width = len(vectors) * WIDTH
    first = crossed = build.run("concatenate", " ".join(vectors), SAMPLES, width)
    for _ in range(3):
        down = build.run("matmul", f"{crossed} {build.weight(width, CROSS_RANK)}", SAMPLES, CROSS_RANK)
        names = f"{down} {build.weight(width, CROSS_RANK)} {build.weight(width)}"
        product = build.run(
            "multiply", f"{first} {build.run('linear', names, SAMPLES, width)}", SAMPLES, width
        )
        crossed = build.run("add", f"{product} {crossed}", SAMPLES, width)
    top = build.layers(build.layers(crossed, SAMPLES, width, 1024, 1024, 512, 256), SAMPLES, 256, 1)
    return model_of_graph(under_autocast(build.graph(top, SAMPLES)))[0]


def test_small_tables_on_every_device_explain_the_step_of_hugectr():
    """Two submissions to MLPerf Training 5.1 on eight H200 measured 3.8 and 4.1 ms: a development score."""
    host = {"host": {"graphs": "iteration"}, "optimizer": {"step_host_s": "0 s"}}
    model, steps = dlrm(), []
    for whole in (0, MOST_WHOLE):
        plan = f"dp=8 ep=8 tables=balanced mbs=6912 gbs=55296 precision=bf16 whole_tables={whole}"
        found = make_job(
            model=model,
            plan=plan,
            batch={"sequence_length": 1},
            stack={"base": "torch-fsdp2-compiled"} | host,
            cluster="dgx-h200:1",
        )
        steps.append(1e3 * predict(found).clean_step_time_s)

    assert steps == [pytest.approx(4.78, rel=0.01), pytest.approx(4.05, rel=0.01)]
    assert all(abs(steps[1] / measured - 1) < 0.12 for measured in (3.8, 4.1))
