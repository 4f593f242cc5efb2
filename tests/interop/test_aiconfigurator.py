"""Experiments of AIConfigurator, in the words of its own example (src/aiconfigurator/cli/example.yaml)."""

import pytest
from all_cases import all_cases
from command_line import flopcast

from flopcast.errors import SpecError
from flopcast.files.yaml_text import read_yaml
from flopcast.interop.serving.sources import serving_document
from flopcast.requests.job_request import JobRequest
from flopcast.requests.serving_request import resolve_serving
from flopcast.requests.sources import source_of

FIRST = """\
exps: [second, first]
first: {mode: patch, serving_mode: agg, model_path: Qwen/Qwen3-32B, total_gpus: 8, system_name: b200_sxm}
second:
  mode: patch
  serving_mode: agg
  model_name: DEEPSEEK_V3
  total_gpus: 16
  system_name: h200_sxm
  backend_name: sglang
  backend_version: 0.5.0
  isl: 1024
  osl: 100
  ttft: 1000.0
  tpot: 40.0
  config:
    nextn: 2
    nextn_accept_rates: [0.8, 0.5, 0, 0, 0]
    worker_config:
      gemm_quant_mode: fp8_block
      moe_quant_mode: fp8_block
      kvcache_quant_mode: fp8
      tp_list: [8]
      dp_list: [1, 2]
      moe_ep_list: [8]
    advanced_tuning_config: {decode_max_batch_size: 128}
"""
POOLS = """\
exp:
  serving_mode: disagg
  model_path: Qwen/Qwen3-32B
  total_gpus: 4
  system_name: h200_sxm
  profiles: [fp8_static]
  config:
    prefill_worker_config: {tp_list: [1]}
    decode_worker_config: {tp_list: [2], pp_list: [1]}
"""


def job_of(text, **request):
    asked = JobRequest(**request)
    return resolve_serving(JobRequest(source=source_of(text.encode(), "exp.yaml", asked), **request))


def test_the_first_listed_experiment_becomes_a_job():
    job = job_of(FIRST)

    assert (job.model.name, job.cluster.name, job.cluster.num_devices) == ("deepseek-v3", "dgx-h200", 16)
    assert job.engine.name == "sglang"
    assert (job.plan.tensor_parallel, job.plan.expert_parallel, job.plan.data_parallel) == (8, 8, 1)
    assert (job.plan.weights, job.plan.expert_weights, job.plan.cache) == ("fp8_block", "fp8_block", "fp8")
    assert (job.plan.drafting.drafted, job.plan.drafting.accepted) == (2, pytest.approx(1 + 0.8 + 0.4))
    assert (job.traffic.prompt_tokens.mean, job.traffic.output_tokens.mean) == (1024, 100)
    assert (job.slo.ttft_s, job.slo.tpot_s, job.slo.ttft_percentile) == (1.0, 0.04, 50)
    notes = "\n".join(job.assumptions)
    for note in ("and not first", 'search FILE --plan "dp=1,2"', "advanced_tuning_config is not used"):
        assert note in notes
    assert "backend_version is not used" in notes


def test_pools_with_one_degree_each_are_those_of_the_plan():
    job = job_of(POOLS)

    assert [pool.tensor_parallel for pool in job.plan.pools] == [1, 2]
    assert job.plan.weights == "fp8"
    assert job.cluster.num_devices == 4
    assert job.engine.name == "tensorrt-llm"
    assert job.traffic.prompt_tokens.mean == 4000


def test_keys_of_the_flat_layout_are_those_of_the_sections():
    text = """\
one:
  serving_mode: agg
  model_path: deepseek-ai/DeepSeek-V3
  system_name: h200_sxm
  total_gpus: 8
  nextn: 2
  nextn_accepted: 0.85
  kvcache_quant_mode: fp8
  agg_tp_candidates: [1]
  agg_dp_candidates: [8]
  agg_moe_ep_candidates: [8]
"""
    plan = job_of(text).plan
    assert (plan.data_parallel, plan.expert_parallel, plan.cache) == (8, 8, "fp8")
    assert (plan.drafting.drafted, plan.drafting.accepted) == (2, pytest.approx(1.85))


def test_pools_of_the_flat_layout_have_one_machine():
    text = """\
one:
  serving_mode: disagg
  total_gpus: 8
  prefill_model_path: Qwen/Qwen3-32B-FP8
  decode_model_path: Qwen/Qwen3-32B-FP8
  prefill_system_name: h200_sxm
  decode_system_name: h200_sxm
  prefill_tp_candidates: [1]
  decode_tp_candidates: [2]
"""
    job = job_of(text)
    assert [pool.tensor_parallel for pool in job.plan.pools] == [1, 2]
    assert (job.plan.weights, job.cluster.name) == ("fp8_block", "dgx-h200")
    with pytest.raises(SpecError) as caught:
        job_of(text.replace("prefill_system_name: h200_sxm", "prefill_system_name: b200_sxm"))
    assert [problem.field for problem in caught.value.problems] == ["one.prefill_system_name"]


def test_pools_with_lists_of_degrees_are_left_to_a_search():
    job = job_of(POOLS.replace("tp_list: [2]", "tp_list: [2, 4]"))

    assert not job.plan.pools
    assert any("pools=yes" in note for note in job.assumptions)


def test_a_model_on_the_command_line_replaces_that_of_the_file():
    assert job_of(FIRST, model="llama-3.1-8b").model.name == "llama-3.1-8b"


@all_cases(
    "old, new, said",
    (
        ("system_name: h200_sxm", "system_name: h300_sxm", "second.system_name = 'h300_sxm'"),
        ("backend_name: sglang", "backend_name: tgi", "one of trtllm, sglang, vllm"),
        ("isl: 1024", "isl: -4", "second.isl = -4"),
        ("total_gpus: 16", "total_gpus: 12", "a multiple of 8"),
        (
            "gemm_quant_mode: fp8_block",
            "gemm_quant_mode: fp7",
            "second.config.worker_config.gemm_quant_mode",
        ),
        ("serving_mode: agg\n  model_name", "serving_mode: both\n  model_name", "one of agg, disagg"),
        ("model_name: DEEPSEEK_V3", "nothing: 1", "second.model_path is missing"),
        ("model_name: DEEPSEEK_V3", "model_name: NOVEL_9", "NOVEL_9"),
    ),
)
def test_faults_name_the_experiment_and_the_line(old, new, said):
    assert old in FIRST
    with pytest.raises(SpecError) as raised:
        job_of(FIRST.replace(old, new))

    assert said in str(raised.value)


def test_a_file_without_experiments_is_no_file_of_aiconfigurator():
    document = read_yaml(b"a: {b: 1}", "exp.yaml")

    assert serving_document(document, lambda *_: b"") is None
    with pytest.raises(SpecError, match="serving_mode and system_name"):
        serving_document(document, lambda *_: b"", "aiconfigurator")


def test_commands_read_experiments(tmp_path):
    path = tmp_path / "exp.yaml"
    path.write_text(POOLS, encoding="utf-8")

    predicted, imported = flopcast("predict", str(path)), flopcast("import", "aiconfigurator", str(path))

    assert (predicted.code, imported.code) == (0, 0)
    assert "qwen3-32b on dgx-h200: 3 of 4 × h200" in predicted.out
    assert "prefill" in imported.out
