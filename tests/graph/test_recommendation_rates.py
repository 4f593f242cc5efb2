"""Predictions for graphs of DLRM, compared with published training rates and device times."""

import csv
from functools import cache
from pathlib import Path
from statistics import median

import pytest
from graph_builder import Builder

from flopcast import job, predict
from flopcast.graph.model_of_graph import model_of_graph

SAMPLES = 2
NO_HOST = ["stack.optimizer.step_host_s=0s", "stack.host.graphs=iteration"]
TABLES = {  # rows of each, by the categories that are kept (NVIDIA/DeepLearningExamples, torchrec, oneflow)
    "small": "7912889 33823 17139 7339 20046 4 7105 1382 63 5554114 582469 245828 11 2209 10667 104 4 968 "
    "15 8165896 2675940 7156453 302516 12022 97 35",
    "large": "45833188 36746 17245 7413 20243 3 7114 1441 62 29275261 1572176 345138 10 2209 11267 128 4 "
    "974 14 48937457 11316796 40094537 452104 12606 104 35",
    "extra-large": "227605432 39060 17295 7424 20265 3 7122 1543 63 130229467 3067956 405282 10 2209 11938 "
    "155 4 976 14 292775614 40790948 187188510 590152 12973 108 36",
}
BOTTOM, TOP = (13, 512, 256, 128), (1024, 1024, 512, 256, 1)


@cache
def dlrm(tables, bottom=BOTTOM, top=TOP, look_ups=1, is_half=False):
    """DLRM with a dot interaction of the vectors, which have the precision of the other activations."""
    build, width = Builder("fp16" if is_half else "fp32"), bottom[-1]
    dense = build.layers(build.input("dense", SAMPLES, bottom[0]), SAMPLES, *bottom)
    vectors = [dense]
    for number, rows in enumerate(tables):
        indices = build.input(f"indices{number}", SAMPLES, look_ups, dtype="int64")
        names = f"{build.weight(rows, width)} {indices}"
        vectors.append(build.run("embedding_bag", names, SAMPLES, width))
    count = len(vectors)
    joined = build.run("concatenate", " ".join(vectors), SAMPLES, count, width)
    turned = build.run("view", joined, SAMPLES, width, count)
    products = build.run("matmul", f"{joined} {turned}", SAMPLES, count, count)
    pairs = count * (count - 1) // 2
    places = build.input("places", pairs, dtype="int64")
    picked = build.run("gather", f"{products} {places}", SAMPLES, pairs)
    features = build.run("concatenate", f"{dense} {picked}", SAMPLES, width + pairs)
    out = build.layers(features, SAMPLES, width + pairs, *top)
    return model_of_graph(build.graph(out, SAMPLES))[0]


def step_s(model, cluster, batch, devices=1, tables="table", precision="fp32", stack="torch-fsdp2", **more):
    """Seconds of a step whose tables are updated row by row."""
    plan = f"dp={devices} ep={devices} tables={tables} mbs={batch} gbs={batch * devices} optimizer=sgd"
    plan += f" precision={precision}"
    found = job(model=model, plan=plan, cluster=cluster, gpus=devices, stack=stack, **more)
    return predict(found).clean_step_time_s


def errors(source):
    """Predicted over published step times, minus 1; flopcast has no TF32."""
    text = Path(__file__).with_name("collected_dlrm.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for row in csv.DictReader(lines):
        if row["source"] != source or row["precision"] == "tf32":
            continue
        is_half, is_large = row["precision"] == "mixed", row["size"] == "extra-large"
        devices, batch = int(row["devices"]), int(row["batch_per_device"])
        half = "bf16" if row["cluster"] == "dgx-a100" else "fp16"
        found_s = step_s(
            dlrm(tuple(map(int, TABLES[row["size"]].split())), is_half=is_half),
            row["cluster"],
            batch,
            devices,
            "column" if is_large else "table",  # a table is larger than the memory of a device
            half if is_half else "fp32",
            "torch-fsdp2-compiled" if source == "tf2" else "torch-fsdp2",
            changes=NO_HOST if source == "tf2" else [],
        )
        yield found_s * float(row["samples_per_s"]) / (batch * devices) - 1


def test_rates_of_tensorflow_on_a100_and_v100():
    """NVIDIA's DLRM with XLA on 1 to 16 devices that each hold whole tables (strategy `memory_balanced`).

    With mixed precision, vectors are exchanged in 16 bits (Merlin Distributed Embeddings, `_call_base`).
    """
    found = list(errors("tf2"))

    assert len(found) == 13
    assert median(map(abs, found)) < 0.08
    assert max(map(abs, found)) < 0.26


def test_eager_mixed_precision_of_2020_takes_longer_than_predicted():
    single, mixed = errors("pytorch")

    assert single == pytest.approx(-0.2, abs=0.02)
    assert mixed == pytest.approx(-0.47, abs=0.02)


ACTIVE = {  # fraction of a step in which kernels run, for 512, 1024, 2048 and 4096 samples
    # owensgroup/ml_perf_model, analysis/notebooks/GPU_active_idle_split_all_models.ipynb (arXiv:2201.07821)
    "DLRM_default": (0.5383, 0.7027, 0.8234, 0.9107),
    "DLRM_DDP": (0.3326, 0.4272, 0.6063, 0.7457),
    "DLRM_MLPerf": (0.5388, 0.6577, 0.7997, 0.9073),
}
SHAPES = {  # benchmark/dlrm_benchmark.sh of the same repository
    "DLRM_default": {"bottom": (512, 512, 64), "top": (1024, 1024, 1024, 1), "look_ups": 100},
    "DLRM_DDP": {"bottom": (128, 128, 128, 128), "top": (512, 512, 512, 256, 1)},
    "DLRM_MLPerf": {},
}
ROWS = {
    "DLRM_default": (1_000_000,) * 8,
    "DLRM_DDP": (80_000,) * 8,
    "DLRM_MLPerf": tuple(min(int(rows), 40_000_000) for rows in TABLES["extra-large"].split()),
}
HOST_S = 0.8e-3  # fitted to these twelve fractions


def test_one_time_of_the_host_explains_how_long_a_v100_waits():
    for name, published in ACTIVE.items():
        model = dlrm(ROWS[name], **SHAPES[name])
        for batch, fraction in zip((512, 1024, 2048, 4096), published, strict=True):
            kernels_s = step_s(model, "dgx-1", batch, changes=NO_HOST)
            waiting_s = step_s(model, "dgx-1", batch, changes=[f"stack.optimizer.step_host_s={HOST_S}s"])
            assert kernels_s / waiting_s == pytest.approx(fraction, rel=0.15), (name, batch)
