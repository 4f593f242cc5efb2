"""Measured serving: rows become jobs, constants are found again, and `validate --runs` prints each row."""

import json

import numpy as np
import pytest
from command_line import flopcast

from flopcast import predict_serving
from flopcast.lab.serving_runs.aiconfigurator import ROWS
from flopcast.lab.serving_runs.fit import OF_ITERATIONS, OF_REQUESTS, Observed, fit
from flopcast.spec.iteration_cost import IterationCost

ROW = {
    "id": "one",
    "silicon_data_source": "silicon_concurrency=8",
    "backend": "vllm",
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "h200_sxm",
    "mode": "agg",
    "isl": "1024",
    "osl": "1024",
    "gemm_quant_mode": "fp8",
    "moe_quant_mode": "fp8",
    "batch_size": "8.0",
    "tp_size": "8.0",
    "pp_size": "1.0",
    "attention_dp_size": "1.0",
    "moe_tp_size": "8.0",
    "moe_ep_size": "1.0",
    "silicon_ttft_ms": "86.3338",
    "silicon_tpot_ms": "8.51922",
}


def test_a_row_is_a_deployment_with_the_traffic_of_its_benchmark():
    run = ROWS.run_of(ROW)

    assert run.reason == ""
    assert (run.job.plan.tensor_parallel, run.job.plan.weights, run.job.engine.name) == (8, "fp8", "vllm")
    assert (
        run.job.traffic.text()
        == "concurrency=8 prompt=uniform(819,1024) output=uniform(819,1024) requests=80"
    )
    assert [(each.quantity, each.unit, each.value) for each in run.measured] == [
        ("silicon_ttft_ms", "ms", 86.3338),
        ("silicon_tpot_ms", "ms", 8.51922),
    ]


def test_releases_of_vllm_that_run_deep_gemm_pad_experts():
    """With eight requests, experts compute 128 rows each, and take at least twice as long."""
    facts = {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "tp_size": "4.0", "moe_tp_size": "4.0"}
    old, new = (
        ROWS.run_of(ROW | facts | {"backend_version": release}).job for release in ("0.12.0", "0.19.0")
    )

    assert (old.engine.padded_experts, new.engine.padded_experts) == (("fp8_block",), ())
    slow, fast = (predict_serving(each).experts_s for each in (old, new))
    assert 2.0 < slow / fast < 5.0


POOLS = {"mode": "disagg", "batch_size": "", "silicon_data_source": "", "decode_batch_size": "16.0"} | {
    f"{pool}_{name}": value
    for pool, ranks, number in (("prefill", "2.0", "3.0"), ("decode", "8.0", "2.0"))
    for name, value in {
        "num_workers": number,
        "tp_size": ranks,
        "pp_size": "1.0",
        "attention_dp_size": "1.0",
        "moe_tp_size": ranks,
        "moe_ep_size": "1.0",
    }.items()
}


def test_a_row_of_two_pools_has_the_instances_of_both():
    job = ROWS.run_of(ROW | POOLS).job

    assert [(pool.tensor_parallel, pool.replicas) for pool in job.plan.pools] == [(2, 3), (8, 2)]
    assert job.devices == 3 * 2 + 2 * 8
    assert job.cluster.num_devices == 24
    assert job.traffic.concurrency == 16 * 2
    spread = {f"prefill_{name}": "4.0" for name in ("attention_dp_size", "moe_ep_size")}
    experts = {"prefill_tp_size": "1.0", "prefill_moe_tp_size": "1.0", "model_path": "openai/gpt-oss-120b"}
    groups = ROWS.run_of(ROW | POOLS | spread | experts).job.plan.prefill
    assert (groups.tensor_parallel, groups.data_parallel, groups.expert_parallel) == (1, 4, 4)


def test_formats_are_those_in_which_a_model_is_published_and_run():
    experts = {"tp_size": "8.0", "moe_tp_size": "1.0", "moe_ep_size": "8.0"}
    blocks = ROWS.run_of(ROW | experts | {"model_path": "deepseek-ai/DeepSeek-V3"}).job.plan
    gpt_oss = ROW | experts | {"model_path": "openai/gpt-oss-120b"}

    assert (blocks.weights, blocks.expert_weights) == ("fp8_block", "fp8_block")
    assert ROWS.run_of(gpt_oss).job.plan.expert_weights == "mxfp4"
    assert ROWS.run_of(gpt_oss | {"system": "b200_sxm"}).job.plan.expert_weights == "mxfp4_mxfp8"


DEGREES = {  # tp, attention dp, moe tp, moe ep of a row → ranks, groups, ranks of experts
    ("8.0", "1.0", "8.0", "1.0"): (8, 1, 1),
    ("8.0", "1.0", "1.0", "8.0"): (8, 1, 8),
    ("64.0", "1.0", "8.0", "8.0"): (8, 1, 8),
    ("1.0", "64.0", "8.0", "8.0"): (1, 8, 8),
    ("1.0", "8.0", "1.0", "8.0"): (1, 8, 8),
    ("4.0", "4.0", "1.0", "16.0"): (1, 4, 4),
}


def test_degrees_that_are_multiplied_twice_are_read_once():
    names = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    for written, read in DEGREES.items():
        row = ROW | {"model_path": "deepseek-ai/DeepSeek-V3", "system": "b200_sxm", "batch_size": "8"}
        run = ROWS.run_of(
            row
            | dict(zip(names, written, strict=True))
            | {"moe_quant_mode": "nvfp4", "gemm_quant_mode": "nvfp4"}
        )
        plan = run.job.plan

        assert (plan.tensor_parallel, plan.data_parallel, plan.expert_parallel) == read, written


def test_degrees_are_those_of_the_id_and_groups_those_that_experts_show():
    gpt_oss = ROW | {"model_path": "openai/gpt-oss-120b", "id": "a_tp4_epnone_1", "tp_size": "4.0"}
    groups = {"tp_size": "1.0", "attention_dp_size": "", "moe_tp_size": "4.0", "id": "a_tp1_epnone_1"}

    plan = ROWS.run_of(gpt_oss | {"moe_tp_size": "2.0", "moe_ep_size": "2.0"}).job.plan
    assert (plan.tensor_parallel, plan.expert_parallel) == (4, 2)
    plan = ROWS.run_of(gpt_oss | groups).job.plan
    assert (plan.tensor_parallel, plan.data_parallel, plan.expert_parallel) == (1, 4, 1)


def test_what_is_not_supported_is_left_out_with_a_reason():
    for change, words in (
        (POOLS | {"decode_num_workers": ""}, "decode_num_workers"),
        ({"model_path": "own/unknown"}, "no model own/unknown"),
        ({"system": "tpu"}, "system = tpu"),
        ({"tp_size": "1.0", "gemm_quant_mode": "", "moe_quant_mode": ""}, "weights (131 GiB)"),
    ):
        run = ROWS.run_of(ROW | change)

        assert run.job is None
        assert words in run.reason


def test_constants_are_found_again_from_times_that_they_made():
    random = np.random.default_rng(0)
    kernels_s, experts_s = random.uniform(5e-4, 8e-3, 2000), random.uniform(5e-4, 8e-3, 2000)
    kernels = random.integers(200, 2000, 2000)
    sequences, prompts_s = random.integers(1, 256, 2000), random.uniform(0, 5e-3, 2000)
    host_s = 0.8e-3
    known_s = kernels_s + prompts_s
    measured_s = known_s - 0.2e-6 * kernels + 0.8 * experts_s + host_s + 5e-6 * sequences
    measured_s[::40] *= 2.0  # a few odd rows
    tokens, engine_s = random.uniform(100, 8000, 2000), random.uniform(20e-3, 500e-3, 2000)
    moves = random.choice([0.0, 1.0], 2000)
    layers, recurrent = random.choice([0, 36, 60], 2000), random.choice([0, 45], 2000)
    waited_s = engine_s + 10e-3 + 6e-6 * tokens + 0.2 * moves + 0.6e-3 * layers + 2e-3 * recurrent

    found = fit(
        [
            *(
                Observed(names=OF_ITERATIONS, parts=np.array([-k, e, 1.0, n]), known_s=p, measured_s=m)
                for k, e, n, p, m in zip(kernels, experts_s, sequences, known_s, measured_s, strict=True)
            ),
            *(
                Observed(names=OF_REQUESTS, parts=np.array([1.0, *parts]), known_s=e, measured_s=m)
                for *parts, e, m in zip(tokens, moves, layers, recurrent, engine_s, waited_s, strict=True)
            ),
        ]
    )

    assert isinstance(found, IterationCost)
    assert found.overlap_s == pytest.approx(0.2e-6, rel=0.3)
    assert found.expert_ratio == pytest.approx(0.8, rel=0.05)
    assert found.host_s == pytest.approx(host_s, rel=0.3)
    assert found.request_s == pytest.approx(10e-3, rel=0.3)
    assert found.prompt_token_s == pytest.approx(6e-6, rel=0.1)
    assert found.handover_s == pytest.approx(0.2, rel=0.1)
    assert found.prompt_experts_s == pytest.approx(0.6e-3, rel=0.1)
    assert found.prompt_states_s == pytest.approx(2e-3, rel=0.1)
    assert fit([]) is None


def test_every_measured_number_is_printed_beside_its_prediction(tmp_path):
    table = tmp_path / "points.csv"
    whole = dict.fromkeys(POOLS, "") | ROW
    rows = [whole, whole | POOLS | {"id": "two", "prefill_num_workers": ""}]
    lines = [",".join(whole), *(",".join(row.values()) for row in rows)]
    table.write_text("\n".join(lines), encoding="utf-8")

    found = json.loads(flopcast("validate", "--runs", table, "--json").out)["published"]
    text = flopcast("validate", "--runs", table, "--no-constants").out

    keys = {"id", "source", "quantity", "unit", "measured", "predicted", "low", "high"}
    assert [set(row) for row in found["rows"]] == [keys, keys]
    assert [row["quantity"] for row in found["rows"]] == ["silicon_ttft_ms", "silicon_tpot_ms"]
    assert found["rows"][1]["predicted"] == pytest.approx(8.51922, rel=0.3)
    assert [each["id"] for each in found["left_out"]] == ["two"]
    assert "Never fitted" in text
    assert "left out: 1 rows" in text
