"""MLPerf Training v5.1: steps of Flux.1, RetinaNet, DLRM-DCNv2 and R-GAT.

Source: data/graphs/mlperf_training_v5.1.csv; on GitHub mlcommons/training_results_v5.1. One row is one
submitted system; `med_train_step_time` is in seconds, and `med_throughput` is in samples per second of the
whole system. Sizes are those of the reference implementations (mlcommons/training): Flux.1 trains on images
of 256 x 256 pixels, which give 256 image tokens in addition to 256 text tokens; RetinaNet has a ResNeXt-50
backbone, images of 800 x 800 pixels and 264 classes; DLRM-DCNv2 has 26 tables with 214 lookups per sample,
and a cross network of rank 512; R-GAT is the model of the catalogue. All of them run in 16 bits with fused
kernels. The backward pass hides all messages except exchanges of embeddings; sampling and the gather of
features for the next batches hide behind the step of R-GAT. No number was fitted to these rows: the
efficiencies of kernels come from benchmarks of single kernels.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from flopcast.cost.graph_kernels.kernel_rows import KernelRows, joined
from flopcast.cost.graph_kernels.operator_rows import is_described, rows_of_items
from flopcast.files.package_table import read_table
from flopcast.lab.graph_runs.diffusion import Blocks, add_blocks
from flopcast.lab.graph_runs.facts import timm_facts
from flopcast.lab.graph_runs.gradients import with_gradients
from flopcast.lab.graph_runs.kernels import Software, graph_kernels
from flopcast.lab.graph_runs.measured import GraphRun, MeasuredGraph, Setup
from flopcast.lab.graph_runs.sketch import Sketch
from flopcast.lab.run_tables import RunTable
from flopcast.prediction import programs_of
from flopcast.records import replace
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.units import Number

DEVICES: Mapping[str, Mapping[str, Any]] = read_table(__package__, "names.yaml")["mlperf"]
LINK_FRACTION = 0.7
SOFTWARE = Software(precision="half", compiled=True, trains=True)
FLUX = (
    Blocks(count=19, hidden=3072, heads=24, ffn_hidden=12288, joined=True, fused=True),
    Blocks(count=38, hidden=3072, heads=24, ffn_hidden=12288, shared=True, fused=True),
)
FLUX_TOKENS, FLUX_TEXT, FLUX_PARAMETERS = 256, 256, 11.9e9
STATE_BYTES = 28.0  # that AdamW moves for a parameter in fp32: gradient, three states read, three written
SIDE, BACKBONE_SIDE = 800, 224
LEVELS = (100.0, 50.0, 25.0, 13.0, 7.0)  # sides of the feature maps that RetinaNet's heads run on
HEAD_CHANNELS, ANCHORS, CLASSES = 256, 9, 264
LOOKUPS, EMBEDDING = 214.0, 128.0
SHARDED_TABLES = 5.0  # of 26: HugeCTR's planner keeps the other 21 on every device (same source)
EVALUATION_SAMPLES, EVALUATION_INTERVAL_SAMPLES = 89_137_319.0, 4_195_197_692.0 / 20
"""A model is evaluated 20 times an epoch (mlcommons/training_policies, training_rules.adoc, DLRM-DCNv2)."""
EVALUATION_BATCH = 1_048_576.0
PER_NODE, NETWORK_BYTES_PER_S = 8, 50e9  # one card of 400 Gbit/s for each device
CONSTANT_S = 1.05e-3
"""Time of a step of HugeCTR that does not depend on its batch: the launch of a CUDA graph, and all-reduces
of dense gradients. It was measured on 8 B200 outside of this table: 1.05 ms + 23.6 ns for each sample, from
55,296 to 442,368 samples (chriscai-amd/training_results_v5.1, hugectr/README-b200-1x8.md, section 7.5).
"""
MLPS = ((13, 512), (512, 256), (256, 128), (3456, 1024), (1024, 1024), (1024, 512), (512, 256), (256, 1))
CROSS_LAYERS, CROSS_RANK, CROSS_WIDTH = 3, 512, 3456
NETWORK = "rgat-igbh-full.sampled.yaml"
VALIDATION_SEEDS, TRAINING_SEEDS = 788_380.0, 4_730_280.0  # of one evaluation, and between two evaluations
VALIDATION_BATCH = 2048  # of a device, in all configurations of R-GAT
BENCHMARKS = ("flux1", "retinanet", "dlrm_dcnv2", "rgat")


def is_table_of_graphs(rows: Sequence[Mapping[str, str]]) -> bool:
    """Return whether all rows of an MLPerf Training table belong to these benchmarks."""
    return bool(rows) and all(row["benchmark"] in BENCHMARKS for row in rows)


def runs_of(row: Mapping[str, str]) -> Iterator[GraphRun]:
    """Yield the run of one row."""
    name = row["benchmark"]
    known = next((found for word, found in DEVICES.items() if word in row["accelerator"]), None)
    samples, devices = float(row["global_batch_size"]), int(row["devices"])
    reason = "" if known else f"{row['accelerator']} is not known"
    rows, fixed_s = None, 0.0
    device = known["device"] if known else ""
    if known and not reason:
        rows, fixed_s = STEPS[name](samples / devices, devices, known["link_bytes_per_s"])
    yield GraphRun(
        id="/".join((row["org"], row["system"], name)),
        source="MLPerf Training",
        setup=Setup(device=device, software=SOFTWARE, efficiencies=""),
        rows=rows,
        fixed_s=fixed_s,
        batch=samples,
        measured=_measured(row, samples),
        groups={"device": device, "table": "mlperf_training_v5.1", "family": name},
        reason=reason,
    )


def _measured(row: Mapping[str, str], samples: Number) -> tuple[MeasuredGraph, ...]:
    if step_s := float(row.get("med_train_step_time") or 0.0):
        return (MeasuredGraph(quantity="med_train_step_time", unit="s", value=step_s),)
    per_s = float(row["med_throughput"])
    return (MeasuredGraph(quantity="med_throughput", unit="samples/s", value=per_s, samples=samples),)


def _flux(samples: Number, devices: int, _link_bytes_per_s: Number) -> tuple[KernelRows, Number]:
    sketch = Sketch(element_bytes=2.0)
    for blocks in FLUX:
        text = FLUX_TEXT if blocks.shared else 0
        add_blocks(sketch, blocks, (samples, FLUX_TOKENS + text, FLUX_TEXT), 1, blocks.count)
    update = Sketch(element_bytes=1.0)
    update.one_pass("optimizer", FLUX_PARAMETERS / devices, tensors=STATE_BYTES)
    return joined([*with_gradients(sketch.rows()), update.rows()]), 0.0


def _retinanet(samples: Number, _devices: int, _link_bytes_per_s: Number) -> tuple[KernelRows, Number]:
    scaled = samples * (SIDE / BACKBONE_SIDE) ** 2
    backbone = graph_kernels(timm_facts(), [f"resnext50_32x4d@{BACKBONE_SIDE}"], [scaled], SOFTWARE)
    sketch = Sketch(element_bytes=2.0)
    for side, depth in zip(LEVELS, (512, 1024, 2048, 2048, 256), strict=True):
        pixels, channels = side**2, HEAD_CHANNELS
        sketch.convolution(images=samples, channels=(depth, channels), pixels=pixels, window=1)
        for out, calls in ((channels, 9), (ANCHORS * CLASSES, 1), (ANCHORS * 4, 1)):
            sketch.convolution(
                images=samples, channels=(channels, out), pixels=pixels, window=9, calls=calls
            )
        sketch.one_pass("fused_elementwise", samples * pixels * channels, calls=8)
        sketch.one_pass("fused_elementwise", samples * pixels * ANCHORS * CLASSES, calls=2)
    return joined([backbone, *with_gradients(sketch.rows())]), 0.0


def _dlrm(samples: Number, devices: int, link_bytes_per_s: Number) -> tuple[KernelRows, Number]:
    """Return a step of DLRM-DCNv2 with its share of an evaluation, and the seconds that no kernel
    accounts for.

    MLPerf states the throughput of a whole run, which includes evaluations.
    """
    forward = _dlrm_rows(samples)
    tested = EVALUATION_SAMPLES / EVALUATION_INTERVAL_SAMPLES * samples
    evaluated = _dlrm_rows(EVALUATION_BATCH / devices)
    calls = evaluated.calls * tested * devices / EVALUATION_BATCH
    sent_bytes = 2.0 * (samples + 0.5 * tested) * SHARDED_TABLES * EMBEDDING * 2.0
    near = min(devices, PER_NODE)
    near_s = sent_bytes * (near - 1) / devices / (link_bytes_per_s * LINK_FRACTION)
    far_s = sent_bytes * (devices - near) / devices / (NETWORK_BYTES_PER_S * LINK_FRACTION)
    rows = joined([*with_gradients(forward), replace(evaluated, calls=calls)])
    return rows, near_s + far_s + CONSTANT_S


def _dlrm_rows(samples: Number) -> KernelRows:
    """Return the forward pass on a number of samples."""
    sketch = Sketch(element_bytes=2.0)
    for depth, columns in MLPS:
        sketch.product(rows=samples, columns=columns, depth=depth)
        sketch.one_pass("elementwise", samples * columns)
    for depth, columns in ((CROSS_WIDTH, CROSS_RANK), (CROSS_RANK, CROSS_WIDTH)):
        sketch.product(rows=samples, columns=columns, depth=depth, calls=CROSS_LAYERS)
    sketch.one_pass("elementwise", samples * CROSS_WIDTH, tensors=4.0, calls=CROSS_LAYERS)
    tables = Sketch(element_bytes=4.0)  # rows are read, and in the backward pass read and written again
    tables.one_pass("gather", samples * LOOKUPS * EMBEDDING, tensors=1.0)
    return joined([sketch.rows(), tables.rows()])


def _rgat(samples: Number, devices: int, link_bytes_per_s: Number) -> tuple[KernelRows, Number]:
    """Return a step of R-GAT with its share of an evaluation, and the seconds of the all-reduce.

    MLPerf states the throughput of a whole run, which includes evaluations.
    """
    trained, parameters = _network_rows(round(samples), inference=False)
    evaluated, _ = _network_rows(VALIDATION_BATCH, inference=True)
    share = VALIDATION_SEEDS / TRAINING_SEEDS * samples / VALIDATION_BATCH
    update = Sketch(element_bytes=1.0)
    update.one_pass("optimizer", parameters, tensors=STATE_BYTES)
    near = min(devices, PER_NODE)
    sent_bytes = 2.0 * 2.0 * parameters
    near_s = sent_bytes * (near - 1) / near / (link_bytes_per_s * LINK_FRACTION)
    far_s = sent_bytes * (1.0 - near / devices) / (PER_NODE * NETWORK_BYTES_PER_S * LINK_FRACTION)
    rows = joined([trained, replace(evaluated, calls=evaluated.calls * share), update.rows()])
    return rows, near_s + far_s


@lru_cache(maxsize=8)
def _network_rows(seeds: int, *, inference: bool) -> tuple[KernelRows, float]:
    """Return the kernels of R-GAT for the seeds of one device, and its number of parameters."""
    request = JobRequest(
        model=NETWORK,
        size=(f"batch={seeds}",),
        plan=f"dp=1 mbs={seeds} gbs={seeds} precision=fp16",
        cluster="dgx-h200",
        gpus=1,
        inference=inference,
    )
    job = resolve(request)
    items = [item for item in programs_of(job).items() if is_described(item)]
    return rows_of_items(items)[0], float(job.model.parameters())


STEPS = {"rgat": _rgat, "flux1": _flux, "retinanet": _retinanet, "dlrm_dcnv2": _dlrm}


TABLE = RunTable(
    header=("org", "system", "benchmark", "med_throughput", "med_train_step_time"),
    runs_of=lambda _path, rows, _options: (run for row in rows for run in runs_of(row)),
    fits=is_table_of_graphs,
)
