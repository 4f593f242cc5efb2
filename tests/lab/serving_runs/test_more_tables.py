"""Tables of measured serving beside aiconfigurator's: rows become jobs, or say why they do not."""

import csv
import gzip
import io
import json

import numpy as np
import pytest
from command_line import flopcast

from flopcast.lab.measured_tables import SERVING
from flopcast.lab.serving_runs.quantities import rank_correlation

ML_ENERGY = {
    "task": "lm-arena-chat",
    "model_id": "Qwen/Qwen3-8B",
    "weight_precision": "bfloat16",
    "gpu_model": "H100",
    "num_gpus": "1",
    "tensor_parallel": "1",
    "expert_parallel": "1",
    "data_parallel": "1",
    "max_num_seqs": "8",
    "avg_output_len": "700.4",
    "output_throughput_tokens_per_sec": "962.0",
    "median_itl_ms": "8.2",
}
ML_PERF = {
    "id": "5.1-1",
    "model": "llama2-70b-99",
    "scenario": "Offline",
    "nodes": "1",
    "accelerator": "NVIDIA H200-SXM-141GB",
    "accelerators": "8",
    "software": "TensorRT 10.11, CUDA 12.9",
    "weights": "fp8",
    "result": "35000",
    "units": "Tokens/s",
    "target_qps": "118",
} | {f"{metric}_{name}_ms": "" for metric in ("ttft", "tpot") for name in ("mean", "p50", "p99")}
APEX = {
    "engine": "vllm",
    "trace": "short",
    "rate_per_s": "0.5",
    "plan": "2DP4TP_fp8_1",
    "file": "one.txt",
    "trace_output_tokens": "200",
    "served_output_tokens": "100",
    "mean_ttft_s": "0.09",
    "mean_tpot_s": "0.02",
    "sum_latency_s": "50",
}
REQUESTS = [  # of a run: name, arrival, prompt, output, queued, first token, last token
    ("a", "0.0", "500", "20", "0.0", "0.06", "0.5"),
    ("b", "0.1", "3000", "20", "0.1", "0.40", "0.9"),
    ("c", "2.0", "100", "1", "2.0", "2.02", "2.02"),
]


def written(path, rows):
    """Write rows as a table, packed if its name says so."""
    text = io.StringIO()
    table = csv.DictWriter(text, rows[0])
    table.writeheader()
    table.writerows(rows)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def replay(folder, name="vllm_requests_RTXPRO6000_Llama-3.1-8B.csv"):
    names = ("request", "arrival_s", "prompt_tokens", "output_tokens", "queued_s", "first_token_s")
    rows = [dict(zip((*names, "last_token_s"), row, strict=True)) for row in REQUESTS]
    return written(folder / name, rows)


def test_a_task_is_a_batch_that_stays_full(tmp_path):
    path = written(tmp_path / "ml.csv.gz", [ML_ENERGY, ML_ENERGY | {"task": "video-chat"}])
    run, refused = SERVING.read(path)

    assert (run.job.cluster.name, run.job.plan.max_sequences, run.job.traffic.concurrency) == (
        "dgx-h100",
        8,
        8,
    )
    assert run.job.traffic.num_requests * run.leave_out_share == 8  # those that fill the batch and drain it
    assert [each.quantity for each in run.measured] == ["median_itl_ms", "output_throughput_tokens_per_sec"]
    assert refused.job is None
    assert "video" in refused.reason


def test_requests_of_chats_about_images_have_one_each(tmp_path):
    row = ML_ENERGY | {"task": "image-chat"}
    seeing = row | {"model_id": "Qwen/Qwen3-VL-8B-Instruct"}
    run, refused = SERVING.read(written(tmp_path / "ml.csv.gz", [seeing, row]))

    assert run.job.image_tokens == 1024  # squares of 32 pixels of an image of 1024 x 1024
    assert "no layers that read images" in refused.reason


def test_experts_are_spread_over_the_ranks_that_divide_attention(tmp_path):
    row = ML_ENERGY | {"model_id": "Qwen/Qwen3-30B-A3B-Instruct-2507", "num_gpus": "2"}
    (run,) = SERVING.read(written(tmp_path / "ml.csv", [row | {"expert_parallel": "2"}]))

    assert (run.job.plan.tensor_parallel, run.job.plan.expert_parallel) == (2, 2)


def test_a_plan_that_is_not_stated_is_the_one_that_flopcast_chooses(tmp_path):
    rows = [ML_PERF, ML_PERF | {"scenario": "Server", "ttft_p99_ms": "900"}, ML_PERF | {"software": "Own"}]
    offline, server, refused = SERVING.read(written(tmp_path / "mlperf.csv", rows))

    assert offline.job.replicas * offline.job.plan.devices == 8
    assert offline.job.traffic.concurrency > 8
    assert offline.job.traffic.prompt_tokens.most_tokens == 1024  # OpenOrca's prompts are cut
    assert server.job.traffic.rate_per_s == 118
    assert offline.job.engine.stream_interval > 100  # LoadGen takes only the first token and the answer
    assert [(each.quantity, each.unit) for each in server.measured] == [
        ("result", "tokens/s"),
        ("ttft_p99_ms", "ms"),
    ]
    assert "Own" in refused.reason


def test_all_requests_of_the_offline_scenario_are_sent_at_once(tmp_path):
    """Their number is that of the measured tokens, divided by 292 tokens for each output."""
    row = ML_PERF | {"result": "29200", "latency_p99_s": "600"}
    (run,) = SERVING.read(written(tmp_path / "mlperf.csv", [row]))

    assert (run.job.traffic.concurrency, run.job.traffic.requests) == (60_000, 60_000)


def test_deepseek_in_mlperf_has_the_plan_of_the_guide_of_tensorrt_llm(tmp_path):
    """--tp 8 --ep 8 --max_batch_size 384 with enable_attention_dp, on each eight of the 72 devices."""
    rack = {"model": "deepseek-r1", "accelerator": "NVIDIA GB200", "accelerators": "4", "nodes": "18"}
    rows = [ML_PERF | rack | {"weights": "fp4", "software": "TensorRT 10.11, CUDA 12.9"}]
    (run,) = SERVING.read(written(tmp_path / "mlperf.csv", rows))
    plan = run.job.plan

    assert (plan.data_parallel, plan.expert_parallel, plan.replicas) == (8, 8, 9)
    assert plan.max_sequences == 384


def test_a_card_may_hold_two_devices_and_a_product_may_contain_an_engine(tmp_path):
    cards = {"accelerator": "[MAXSUN] MS-Intel Arc Pro B60 Dual 48G Turbo", "accelerators": "4"}
    cards |= {"software": "vLLM 0.9.0", "weights": "UINT4"}
    product = {"software": "Mango LLMBoost AI Enterprise Platform, ROCm 6.12.12"}
    others = [{"accelerator": "MI325X (x16), MI300X (x8)"}, {"accelerator": ""}]
    rows = [ML_PERF | changes for changes in (cards, product, *others)]
    dual, boosted, mixed, host = SERVING.read(written(tmp_path / "mlperf.csv", rows))

    assert dual.job.replicas * dual.job.plan.devices == 8
    assert boosted.job.engine.name == "vllm-0.8"  # LLMBoost 2025-08 runs vLLM 0.9.0
    assert "different devices" in mixed.reason
    assert "the host computes" in host.reason


def test_a_replica_serves_its_share_of_a_trace(tmp_path):
    requests = [
        {"trace": "short_05", "arrival_s": str(second), "prompt_tokens": "100", "output_tokens": "50"}
        for second in range(4)
    ]
    path = written(tmp_path / "apex.csv", [APEX])
    without = SERVING.read(path)[0]
    written(tmp_path / "apex_traces_mistral.csv.gz", requests)
    (run,) = SERVING.read(path)

    assert "short_05" in without.reason
    assert run.trace.arrival_s.tolist() == [1.0, 3.0]
    assert run.trace.output_tokens.tolist() == [25, 25]
    assert (run.job.plan.tensor_parallel, run.job.plan.weights) == (4, "fp8")


def test_each_request_of_a_run_is_a_row_and_all_of_them_are_one(tmp_path):
    found = json.loads(flopcast("validate", "--runs", replay(tmp_path), "--json").out)["published"]
    rows = {(row["id"], row["quantity"]): row for row in found["rows"]}

    assert found["left_out"] == []
    mean = rows["vllm_requests_RTXPRO6000_Llama-3.1-8B", "mean_ttft_s"]
    arrivals_s = {"a": 0.0, "b": 0.1, "c": 2.0}
    each = [rows[name, "first_token_s"]["predicted"] - arrival for name, arrival in arrivals_s.items()]
    assert mean["predicted"] == pytest.approx(np.mean(each))
    assert mean["measured"] == pytest.approx((0.06 + 0.30 + 0.02) / 3)
    assert rows["vllm_requests_RTXPRO6000_Llama-3.1-8B", "mean_tpot_s"]["measured"] == pytest.approx(
        (0.44 / 19 + 0.5 / 19) / 2
    )
    assert rows["vllm_requests_RTXPRO6000_Llama-3.1-8B", "ttft_rank_correlation"]["predicted"] == 1.0
    assert rows["b", "last_token_s"]["low"] <= rows["b", "last_token_s"]["predicted"]


def test_two_devices_of_a_replay_exchange_messages_over_the_stated_link(tmp_path):
    two, *_ = SERVING.read(replay(tmp_path, "vllm_requests_RTXPRO6000_Qwen3-32B.csv"))
    one, *_ = SERVING.read(replay(tmp_path))

    link, others = two.job.cluster.tiers[0], one.job.cluster.tiers[0]
    assert (link.bytes_per_s * link.reached_fraction, link.latency_s, link.fabric) == (16e9, 20e-6, "")
    assert others.fabric == "rtx-pro-6000-pcie"


def test_an_engine_in_the_client_has_no_front_end(tmp_path):
    run, *_ = SERVING.read(replay(tmp_path))
    cost = run.job.engine.iteration

    assert (cost.request_s, cost.prompt_token_s, cost.streamed_s) == (0.0, 0.0, 0.0)


def test_a_run_whose_file_does_not_name_its_machine_is_left_out(tmp_path):
    runs = SERVING.read(replay(tmp_path, "own.csv"))

    assert {run.reason for run in runs} == {"the file's name is not vllm_requests_DEVICE_MODEL.csv"}


def test_only_tables_of_serving_are_recognised(tmp_path):
    assert SERVING.holds(written(tmp_path / "ml.csv", [ML_ENERGY]))
    assert not SERVING.holds(written(tmp_path / "own.csv", [{"model": "gpt3-175b"}]))
    assert not SERVING.holds(tmp_path / "missing.csv")


def test_constants_are_not_fitted_where_nothing_teaches_them(tmp_path):
    path = written(tmp_path / "ml.csv", [ML_ENERGY])
    judged = [
        flopcast("validate", "--runs", path, *words, "--json").out
        for words in ([], ["--leave-one-model-out"])
    ]

    assert judged[0] == judged[1]


def test_rank_correlation_is_that_of_ranks():
    values = np.array([3.0, 1.0, 2.0, 10.0])

    assert rank_correlation(values, np.exp(values)) == 1.0
    assert rank_correlation(values, -values) == -1.0
