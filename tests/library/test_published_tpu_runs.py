"""MaxText on TPU v5e, as its repository prints it, against predictions that nothing of these runs entered.

The table prints MFU for each model and number of slices (src/maxtext/configs/tpu/v5e/README.md, in
validation/published_runs.csv); the sizes follow from the scripts beside it: `global_parameter_scale` of 16,
32 and 64 scales heads, MLP, width and layers of base.yml. All devices of a slice share the states; slices
are replicas.
"""

import csv

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.files.yaml_text import Document
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.library.curves import load_book
from flopcast.prediction import predict

SIZES = {  # width, heads of 128, layers; parameters as the table names them
    "MaxText default 16B": (4096, 64, 32, 16e9),
    "MaxText default 32B": (8192, 64, 32, 32e9),
    "MaxText default 64B": (8192, 64, 64, 64e9),
}
LARGEST = 1024  # chips; larger rows say the same of more slices


def model_of(name):
    hidden, heads, layers, _ = SIZES[name]
    config = {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": 128,
        "num_hidden_layers": layers,
        "intermediate_size": 28672,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    return model_from_config(Document("config.json", config, {}))[0]


def job_of_run(name, devices, sequences):
    """Fully sharded in a slice of 256 chips, replicated between slices, every layer recomputed."""
    shard = "dp_shard=256" if devices > 256 else ""
    batch = int(sequences * devices)
    return make_job(
        model=model_of(name),
        cluster=f"gcp-v5e:{devices // 8}",
        stack="maxtext",
        batch={"sequence_length": 2048},
        plan=f"dp={devices} {shard} zero=3 mbs={int(sequences)} gbs={batch} recompute=full precision=bf16",
    )


@pytest.fixture(scope="module")
def rows(shared):
    """Name, chips, sequences a chip and MFU of every row of these models."""
    with (shared / "validation" / "published_runs.csv").open(encoding="utf-8") as file:
        runs = [run for run in csv.DictReader(file) if run["model_name"] in SIZES]
    found = [
        (run["model_name"], int(float(run["num_gpus"])), float(run["micro_batch"]), float(run["mfu_pct"]))
        for run in runs
    ]
    assert {name for name, *_ in found} == set(SIZES)
    return [row for row in found if row[1] <= LARGEST]


@all_cases("name", SIZES)
def test_the_sizes_of_a_script_have_as_many_parameters_as_the_table_names(name):
    model = make_job(
        model=model_of(name), cluster="gcp-v5e:1", plan="dp=8 mbs=1 gbs=8 precision=bf16"
    ).model

    assert model.parameters() == pytest.approx(SIZES[name][-1], rel=0.05)


def test_published_runs_of_tpu_v5e_lie_inside_their_intervals(rows):
    """Their products are as fast as two in the documentation of JAX; the software is that of GPUs."""
    ratios = {}
    for name, devices, sequences, mfu_percent in rows:
        job = job_of_run(name, devices, sequences)
        report = predict(job, load_book(job.cluster))
        ratio = report.metrics.mfu_ratio * 100 / mfu_percent
        low, high = (s / report.step_time_s for s in (report.step_time_low_s, report.step_time_high_s))
        ratios[name, devices] = low < ratio < high, ratio

    assert len(ratios) == 9
    assert all(inside for inside, _ in ratios.values())
    assert all(0.9 < ratio < 1.16 for _, ratio in ratios.values())
