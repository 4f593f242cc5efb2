"""What published launches say of rows: instances of pools, drafted tokens, looks for new requests."""

import csv

import pytest
from all_cases import all_cases

from flopcast import predict_serving, serving_job
from flopcast.lab.measured_tables import SERVING
from flopcast.lab.serving_runs.aiconfigurator import ROWS
from flopcast.lab.serving_runs.inferencex import (
    batch_wait,
    deployments,
    drafted_tokens,
    published,
    receive_interval,
)

COLUMNS = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size", "pp_size", "decode_num_workers")
SWEEP = {
    "id": "one",
    "silicon_data_source": "source_file=2026-03-25.csv; silicon_concurrency=256; image=nvcr.io/a:0.8.1",
    "backend": "trtllm",
    "model_path": "deepseek-ai/DeepSeek-R1",
    "system": "b200_sxm",
    "precision": "fp8",
    "mode": "disagg",
    "isl": "8192",
    "osl": "1024",
    "gemm_quant_mode": "fp8_block",
    "moe_quant_mode": "fp8_block",
    "batch_size": "",
    "prefill_num_workers": "",
    "prefill_tp_size": "8.0",
    "prefill_moe_ep_size": "8.0",
    "decode_num_workers": "",
    "decode_tp_size": "8.0",
    "decode_batch_size": "",
    "silicon_ttft_ms": "1963.47",
    "silicon_tpot_ms": "31.2411",
}


@all_cases(
    "sweeps", [published().sweeps, published().sweeps_of_2025, *published().sweeps_of_models.values()]
)
def test_every_deployment_of_every_sweep_is_read(sweeps):
    for name, text in sweeps.items():
        found = deployments(text)
        assert len(found) == text.count(":"), name
        for each in found:
            for pool in (each.prefill, each.decode):
                fields = pool.fields()
                assert fields["tensor_parallel"] * fields["data_parallel"] == pool.devices, name
            assert list(each.concurrencies) == [int(number) for number in map(str, each.concurrencies)]


def test_a_row_without_numbers_of_instances_has_those_of_the_published_deployment():
    # nvidia-master.yaml: ctx1_gen1_dep8_batch256_eplb0_mtp0_256, one pool of eight each, no draft
    run = ROWS.run_of(SWEEP)
    pools = [(pool.replicas, pool.tensor_parallel, pool.data_parallel) for pool in run.job.plan.pools]

    assert pools == [(1, 1, 8), (1, 1, 8)]
    assert (run.job.traffic.concurrency, run.job.plan.drafting) == (256, None)
    assert [each.teaches for each in run.measured] == ["requests", "iterations"]


def test_a_deployment_that_drafts_is_predicted_with_its_draft():
    # ctx4_gen1_dep8_batch128_eplb0_mtp2_1088
    source = SWEEP["silicon_data_source"].replace("256", "1088")
    plan = ROWS.run_of(SWEEP | {"silicon_data_source": source}).job.plan

    assert (plan.drafting.drafter, plan.drafting.drafted, plan.prefill.replicas) == ("mtp", 2, 4)


def test_a_row_that_may_have_drafted_teaches_no_constants():
    # gb200 fp8 1k8k at 4: four instances that decode, in the sweep with a draft and in that without
    lengths = {"system": "gb200", "isl": "1024", "osl": "8192"}
    source = SWEEP["silicon_data_source"].replace("256", "4")
    run = ROWS.run_of(SWEEP | lengths | {"silicon_data_source": source})

    assert run.job.plan.decode.replicas == 4
    assert [each.teaches for each in run.measured] == ["", ""]


def test_of_two_equal_rows_the_faster_one_drafted(tmp_path):
    """GB200 fp8 with outputs of 8192 tokens at 4: with three drafted tokens, and without."""
    lengths = {"system": "gb200", "isl": "1024", "osl": "8192"}
    lengths["silicon_data_source"] = SWEEP["silicon_data_source"].replace("256", "4")
    times = {"slow": "7.5", "again": "7.6", "fast": "4.1"}
    columns = dict.fromkeys(COLUMNS, "") | SWEEP | lengths
    rows = [columns | {"id": name, "silicon_tpot_ms": time} for name, time in times.items()]
    path = tmp_path / "points.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)

    drafts = {run.id: run.job.plan.drafting for run in SERVING.read(path)}
    assert drafts["slow"] is drafts["again"] is None
    assert drafts["fast"].drafted == 3
    assert all(not each.teaches for run in SERVING.read(path) for each in run.measured)


GB200_OF_2025 = SWEEP | {
    "id": "gb200_disagg",
    "silicon_data_source": "source_file=2026-04-06.csv; silicon_concurrency=144; measured=2025-12-05",
    "system": "gb200",
    "precision": "fp4",
    "isl": "1024",
    "gemm_quant_mode": "nvfp4",
    "moe_quant_mode": "nvfp4",
    "prefill_tp_size": "36.0",
    "prefill_moe_ep_size": "1.0",
    "decode_tp_size": "36.0",
}
SUM = {"mode": "agg", "tp_size": "36.0", "attention_dp_size": "1.0", "batch_size": "144.0"}
SUM |= {"moe_tp_size": "36.0", "moe_ep_size": "1.0", "prefill_tp_size": "", "decode_tp_size": ""}


def test_a_row_with_the_sum_of_all_devices_has_the_deployment_of_so_many():
    # dsr1-fp4-gb200-dynamo-trt of December 2025: 36 open requests of each of four instances of eight
    for row in (GB200_OF_2025, GB200_OF_2025 | SUM):
        plan = ROWS.run_of(row).job.plan

        assert [(pool.replicas, pool.tensor_parallel) for pool in plan.pools] == [(1, 4), (4, 8)]
        assert (plan.devices, plan.decode.expert_parallel, plan.drafting.drafted) == (36, 8, 3)


def test_a_row_without_devices_has_the_deployment_with_the_nearest_concurrency():
    # dsr1-fp8-gb200-dynamo-sglang of December 2025: 512 and more with five instances for prompts
    source = GB200_OF_2025["silicon_data_source"].replace("144", "448")
    lengths = {"isl": "8192", "backend": "sglang", "precision": "fp8", "silicon_data_source": source}
    unstated = {"prefill_tp_size": "1.0", "decode_tp_size": "1.0"} | dict.fromkeys(
        ("gemm_quant_mode", "moe_quant_mode"), "fp8_block"
    )
    job = ROWS.run_of(GB200_OF_2025 | lengths | unstated).job

    assert [(pool.replicas, pool.data_parallel) for pool in job.plan.pools] == [(5, 8), (1, 32)]
    assert (job.plan.decode.redundant_experts, job.plan.cache, job.traffic.concurrency) == (32, "fp8", 448)


def test_what_no_sweep_has_is_left_out_with_the_reason():
    run = ROWS.run_of(SWEEP | {"prefill_tp_size": "72.0"})

    assert run.job is None
    assert "prefill_num_workers, the number of instances, is missing" in run.reason


IMAGE = "source_file=2026-03-25.csv; silicon_concurrency=16; image=nvcr.io#nvidia/a/release:1.2.0rc6"


@all_cases(
    ("change", "ranks", "concurrency", "drafted"),
    [
        ({"silicon_data_source": f"{IMAGE}.post3"}, (8, 1, 1), 16, 3),
        ({"silicon_data_source": f"{IMAGE}.post3"}, (1, 8, 8), 256, 1),
        ({"silicon_data_source": f"{IMAGE}.post2"}, (8, 1, 1), 16, 0),
        ({"backend": "sglang", "isl": "1024"}, (8, 1, 1), 128, 2),
        ({"backend": "sglang", "isl": "1024"}, (8, 1, 1), 64, 0),
        ({"backend": "sglang", "silicon_data_source": "db-dump/2026-04-27; x"}, (8, 1, 1), 128, 0),
        ({"backend": "sglang", "model_path": "Qwen/Qwen3.5-397B-A17B"}, (4, 1, 1), 16, 3),
        ({"backend": "sglang", "model_path": "Qwen/Qwen3.5-397B-A17B"}, (4, 1, 4), 16, 0),
    ],
)
def test_drafted_tokens_follow_from_the_image_or_from_who_was_launched(change, ranks, concurrency, drafted):
    assert drafted_tokens(SWEEP | change, ranks, concurrency) == drafted


@all_cases(
    ("change", "groups", "concurrency", "passes"),
    [
        ({"backend": "sglang"}, 1, 8, 10),
        ({"backend": "sglang"}, 1, 16, 30),
        ({"backend": "sglang", "system": "h200_sxm"}, 1, 64, 1),
        ({}, 8, 64, 60),
        ({}, 1, 64, 1),
        ({"isl": "1024"}, 1, 64, 1),
        ({"backend": "vllm"}, 8, 64, 1),
    ],
)
def test_looks_for_new_requests_are_those_of_the_flags(change, groups, concurrency, passes):
    assert receive_interval(SWEEP | change, groups, concurrency) == passes


LLAMA = {"model_path": "meta-llama/Llama-3.1-70B", "isl": "1024"}


@all_cases(
    ("change", "ranks", "concurrency", "passes"),
    [
        ({"isl": "1024"}, 8, 64, 40),
        ({"isl": "1024"}, 8, 32, 0),
        ({}, 8, 64, 0),
        (LLAMA, 4, 8, 20),
        (LLAMA, 8, 8, 0),
        (LLAMA | {"backend": "vllm"}, 4, 8, 0),
    ],
)
def test_waits_for_other_prompts_are_those_of_the_flags(change, ranks, concurrency, passes):
    wait = batch_wait(SWEEP | change, ranks, 1, concurrency)

    assert (0 if wait is None else wait.passes) == passes


def test_a_server_that_looks_seldom_answers_later_and_decodes_as_fast():
    def mean(interval, metric):
        traffic = "concurrency=4 prompt=256 output=uniform(200,300) requests=80"
        job = serving_job("llama-3.1-8b", cluster="dgx-h100", gpus=1, traffic=traffic)
        engine = job.engine.model_copy(update={"receive_interval": interval})
        report = predict_serving(job.model_copy(update={"engine": engine}))
        return report.latencies[metric]["mean"].value

    waited_s = mean(20, "ttft") - mean(1, "ttft")
    assert 5 * mean(20, "tpot") < waited_s < 20 * mean(20, "tpot")
    assert mean(20, "tpot") == pytest.approx(mean(1, "tpot"), rel=0.15)
