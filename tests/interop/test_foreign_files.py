"""Files of other programs as they lie about: each is known by its keys, and planned or refused by name."""

import pytest
from all_cases import all_cases
from foreign_cases import FOREIGN, faults_in, files, job_in

from flopcast.api import predict
from flopcast.files.yaml_text import read_yaml
from flopcast.library.job_yaml import job_text
from flopcast.requests.job_files import job_of
from flopcast.requests.job_request import JobRequest
from flopcast.requests.sources import read_source

SAID = {  # what the command line says beside the files of a format
    "deepspeed": {"model": "llama-2-7b"}
}
PLANS = {
    "deepspeed/total_only.json": "dp=8 mbs=64 gbs=512 zero=1",
    "deepspeed/ulysses_mics.json": "dp=2 cp=4 mbs=1 gbs=8 dp_shard=2 context_exchange=all_to_all zero=3",
    "deepspeed/zero1_fp16_tabs.json": "dp=8 mbs=2 gbs=256 zero=1 precision=fp16",
    "deepspeed/zero2_auto.json": "dp=8 mbs=8 gbs=64 zero=2",
    "deepspeed/zero3_bf16.json": "dp=8 mbs=4 gbs=128 zero=3",
    "deepspeed/zero3_offload.json": "dp=8 mbs=1 gbs=64 zero=3 offload=optimizer:host,parameters:nvme",
    "gpt-neox/gpt_125m.yml": "dp=8 mbs=4 gbs=32 zero=1 recompute=full precision=fp16",
    "gpt-neox/gpt_1_3b.yml": "dp=8 mbs=4 gbs=32 zero=1 recompute=full precision=fp16",
    "gpt-neox/gpt_6_7b.yml": "dp=8 mbs=1 gbs=16 zero=1 recompute=full precision=fp16",
    "gpt-neox/gpt_13b.yml": "dp=2 tp=2 pp=4 mbs=4 gbs=64 zero=1 recompute=full:uniform:2"
    " partition_activations",
    "gpt-neox/llama2_70b.yml": "dp=2 tp=4 pp=8 mbs=1 gbs=32 zero=1 recompute=full",
    "gpt-neox/neox_20b.yml": "dp=12 tp=2 pp=4 mbs=4 gbs=1536 zero=1 recompute=full precision=fp16",
    "gpt-neox/pythia_6_9b.yml": "dp=64 tp=2 mbs=8 gbs=1024 zero=1 recompute=full partition_activations"
    " precision=fp16",
    "maxtext/custom_pipeline.yml": "dp=2 tp=8 pp=4 mbs=8 gbs=256 sp recompute=full",
    "maxtext/gpu_smoke.yml": "dp=8 mbs=2 gbs=16 zero=3 recompute=full",
    "maxtext/llama2_7b_gpu.yml": "dp=16 dp_shard=8 mbs=4 gbs=64 zero=3 recompute=selective:layernorm",
    "maxtext/llama31_70b_fp8.yml": "dp=32 mbs=1 gbs=64 zero=3 recompute=full precision=fp8_current",
    "maxtext/mixtral_named.yml": "dp=8 mbs=2 gbs=16 zero=3 recompute=full",
    "megatron-bridge/llama31_8b_lora.yaml": "dp=8 mbs=1 gbs=32",
    "megatron-bridge/llama31_8b_pretrain.yaml": "dp=4 cp=2 mbs=1 gbs=512 zero=1",
    "megatron-bridge/llama3_70b_fp8.yaml": "dp=2 tp=4 pp=4 vpp=5 mbs=1 gbs=128 sp zero=1 recompute=full"
    " precision=fp8_current",
    "megatron-bridge/mixtral_ep8.yaml": "dp=8 ep=8 mbs=1 gbs=256 zero=1",
    "nanotron/llama_8b_afab.yaml": "dp=4 tp=4 pp=4 mbs=1 gbs=64 sp zero=1 schedule=gpipe"
    " stage_layers=9,9,8,6",
    "nanotron/qwen2_windows.yaml": "dp=4 tp=2 mbs=3 gbs=12 recompute=full",
    "nanotron/smollm_1b7_zero1.yaml": "dp=16 mbs=8 gbs=256 zero=1",
    "nanotron/tiny_llama.yaml": "dp=2 tp=2 pp=2 mbs=2 gbs=16 sp schedule=1f1b stage_layers=9,7",
    "nemo/gpt3_126m_samples.yaml": "dp=8 mbs=4 gbs=256 precision=fp16",
    "nemo/gpt3_175b.yaml": "dp=4 tp=4 pp=8 vpp=12 mbs=1 gbs=2048 sp zero=1 recompute=selective",
    "nemo/llama2_70b.yaml": "dp=2 tp=4 pp=4 vpp=20 mbs=1 gbs=128 sp zero=1 recompute=full:block:1"
    " precision=fp8",
    "nemo/nemotron_8b.yaml": "dp=4 tp=2 cp=2 mbs=2 gbs=64 sp zero=1 recompute=full",
    "internevo/internlm2_7b_isp.py": "dp=4 cp=2 mbs=2 gbs=32 context_exchange=all_to_all zero=3"
    " shards=parameters:2,gradients:2",
    "internevo/internlm2_7b_msp.py": "dp=4 tp=2 mbs=2 gbs=32 sp zero=1",
    "internevo/internlm_20b_pp.py": "dp=2 tp=2 pp=2 vpp=2 mbs=1 gbs=16 recompute=full:block:7",
    "internevo/llama2_7b_group.py": "dp=8 dp_shard=4 mbs=2 gbs=64 zero=1 recompute=full",
    "internevo/older_numbers.py": "dp=2 tp=4 mbs=2 gbs=16 sp zero=1 precision=fp16",
    "ms-swift/dpo.sh": "dp=8 mbs=2 gbs=128 zero=3 recompute=full offload=optimizer:host,parameters:host",
    "ms-swift/full_zero3.yaml": "dp=8 mbs=2 gbs=16 zero=3 recompute=full",
    "ms-swift/lora_zero2.sh": "dp=8 mbs=2 gbs=64 zero=2 recompute=full",
    "ms-swift/qlora.yaml": "dp=8 mbs=4 gbs=64",
    "ms-swift/ulysses.sh": "dp=4 cp=4 mbs=1 gbs=8 zero=3 recompute=full context_exchange=all_to_all",
    "openrlhf/dpo_here.sh": "dp=8 mbs=2 gbs=256 zero=3 recompute=full offload=optimizer:host",
    "openrlhf/rm_lora.sh": "dp=8 mbs=8 gbs=128 zero=2",
    "openrlhf/sft_llama3.sh": "dp=8 mbs=2 gbs=256 zero=2 recompute=full",
    "openrlhf/sft_ring.sh": "dp=4 cp=4 mbs=1 gbs=32 zero=3 recompute=full",
    "openrlhf/sft_sections.sh": "dp=8 mbs=2 gbs=64 zero=3 recompute=full offload=optimizer:host",
    "nemo-rl/dpo_core.yaml": "dp=2 tp=4 mbs=2 gbs=128 sp zero=1",
    "nemo-rl/reward.yaml": "dp=8 mbs=8 gbs=256 zero=3",
    "nemo-rl/sft_core.yaml": "dp=4 tp=2 cp=2 ep=8 etp=1 pp=2 mbs=2 gbs=128 sp zero=1 stage_layers=24,24"
    " recompute=full",
    "nemo-rl/sft_llama.yaml": "dp=4 tp=2 mbs=2 gbs=64 sp zero=3 recompute=full",
    "nemo-rl/sft_lora.yaml": "dp=8 mbs=4 gbs=32 zero=3",
    "verl/engine_fsdp.sh": "dp=8 mbs=4 gbs=64 zero=3",
    "verl/engine_fsdp2.yaml": "dp=4 cp=2 dp_shard=2 mbs=6 gbs=96 context_exchange=all_to_all zero=3"
    " recompute=full offload=optimizer:host,parameters:host",
    "verl/engine_megatron.sh": "dp=2 tp=2 ep=4 etp=1 pp=2 mbs=2 gbs=96 sp zero=1 recompute=full:block:3",
    "verl/gemma_hosted.yaml": "dp=8 mbs=2 gbs=128 zero=3 recompute=full"
    " offload=optimizer:host,parameters:host",
    "verl/llama_lora_ulysses.yaml": "dp=4 cp=2 mbs=4 gbs=64 zero=3 context_exchange=all_to_all",
    "verl/mistral_peft.yaml": "dp=8 mbs=3 gbs=96 zero=3 recompute=full",
    "verl/qwen_full.yaml": "dp=16 mbs=2 gbs=128 zero=3 recompute=full",
    "torchtitan/llama2_7b_ddp.toml": "tp=8 mbs=1 gbs=1 sp recompute=full:every:2",
    "torchtitan/llama3_405b_2024.toml": "dp=16 tp=8 mbs=2 gbs=32 sp zero=3 recompute=full"
    " precision=fp8_current",
    "torchtitan/llama3_70b_float8_tp.toml": "dp=4 tp=8 mbs=8 gbs=256 sp zero=3 recompute=full"
    " precision=fp8_current",
    "torchtitan/llama3_70b_interleaved.toml": "dp=2 tp=8 pp=4 vpp=2 mbs=1 gbs=64 sp zero=3 recompute=full"
    " stage_layers=10,11,10x5,9 schedule=interleaved_1f1b",
    "torchtitan/llama3_8b_fsdp.toml": "dp=8 mbs=1 gbs=8 zero=3 recompute=selective:operators",
    "torchtitan/llama3_8b_hsdp_cp.toml": "dp=8 cp=8 dp_shard=4 mbs=1 gbs=8 zero=3 recompute=full",
    "torchtitan/llama3_8b_registry.json": "dp=8 mbs=2 gbs=16 zero=3 recompute=full precision=fp8_current",
    "axolotl/llama31_8b_full_fsdp.yaml": "dp=8 mbs=2 gbs=64 zero=3 recompute=full",
    "axolotl/llama3_70b_zero3_inline.yaml": "dp=32 mbs=1 gbs=256 zero=3 recompute=full",
    "axolotl/mistral_lora_zero2.yml": "dp=8 mbs=1 gbs=16 zero=2 optimizer=adamw_8bit",
    "axolotl/qwen25_7b_qlora.yml": "dp=8 mbs=2 gbs=64 recompute=full optimizer=adamw_8bit",
    "axolotl/qwen3_8b_tp_cp.yaml": "dp=8 cp=4 dp_shard=4 mbs=1 gbs=8 zero=3 recompute=full",
    "axolotl/llama3_70b_qlora_offload.yaml": (
        "dp=8 mbs=1 gbs=32 zero=3 recompute=full offload=optimizer:host,parameters:host"
    ),
    "torchtune/qwen2_7b_qlora.yaml": "dp=8 mbs=4 gbs=64 zero=3 optimizer=adamw_8bit",
    "torchtune/llama3_8b_full.yaml": "dp=8 mbs=2 gbs=16 zero=3 recompute=full",
    "torchtune/llama31_70b_lora.yaml": "dp=8 mbs=2 gbs=64 zero=3 recompute=full",
    "torchtune/llama2_13b_hsdp.yaml": "dp=8 dp_shard=4 tp=2 mbs=1 gbs=16 zero=3 recompute=full",
    "llm-foundry/mpt_7b.yaml": "dp=8 mbs=8 gbs=1024 zero=3 recompute=full",
    "llm-foundry/mpt_125m.yaml": "dp=8 mbs=16 gbs=256",
    "llm-foundry/dolly_sft.yaml": "dp=8 mbs=2 gbs=48 zero=3 recompute=full",
    "llm-foundry/llama2_13b_hybrid.yaml": "dp=16 dp_shard=8 mbs=2 gbs=64 zero=3",
    "trl/llama2_13b_fsdp.yaml": "dp=8 mbs=1 gbs=32 zero=3 recompute=full",
    "trl/llama3_8b_qlora.yaml": "dp=8 mbs=4 gbs=64 recompute=full",
    "trl/qwen25_7b_lora.yaml": "dp=8 mbs=2 gbs=128",
    "trl/zephyr_7b_full.yaml": "dp=8 mbs=16 gbs=128 recompute=full",
    "llama-factory/gemma2_fsdp.yaml": "dp=8 mbs=1 gbs=8 zero=3 recompute=full optimizer=adamw_8bit",
    "llama-factory/llama3_dpo_offload.yaml": "dp=8 mbs=2 gbs=128 zero=3 recompute=full"
    " offload=optimizer:host,parameters:host",
    "llama-factory/llama3_lora_sft.yaml": "dp=8 mbs=1 gbs=64 recompute=full",
    "llama-factory/llama3_qlora_bnb.yaml": "dp=8 mbs=4 gbs=32 optimizer=adamw_8bit",
    "llama-factory/mistral_pretrain_ds2.yaml": "dp=8 mbs=1 gbs=32 zero=2 recompute=full precision=fp16",
    "llama-factory/qwen25_full_ds3.yaml": "dp=8 mbs=2 gbs=32 zero=3 recompute=full",
    "llama-factory/qwen25_vl_full.yaml": "dp=8 mbs=1 gbs=16 zero=3 recompute=full",
}
OWN = {
    "verl/qwen_full.yaml": {"cluster": "dgx-h100:2"},
    "nemo-rl/sft_core.yaml": {"cluster": "dgx-h100:4"},
    "ms-swift/ulysses.sh": {"cluster": "dgx-h100:2"},
    "openrlhf/sft_ring.sh": {"cluster": "dgx-h100:2"},
    "torchtune/llama2_13b_hsdp.yaml": {"cluster": "dgx-h100:2"},
    "llm-foundry/llama2_13b_hybrid.yaml": {"cluster": "dgx-h100:2"},
    "gpt-neox/gpt_13b.yml": {"cluster": "dgx-h100:2"},
    "gpt-neox/llama2_70b.yml": {"cluster": "dgx-h100:8"},
    "gpt-neox/neox_20b.yml": {"cluster": "dgx-h100:12"},
    "gpt-neox/pythia_6_9b.yml": {"cluster": "dgx-h100:16"},
    "nemo/gpt3_175b.yaml": {"cluster": "dgx-h100:16"},
    "nemo/llama2_70b.yaml": {"cluster": "dgx-h100:4"},
    "nemo/nemotron_8b.yaml": {"cluster": "dgx-h100:2"},
    "megatron-bridge/llama3_70b_fp8.yaml": {"cluster": "dgx-h100:4"},
    "maxtext/custom_pipeline.yml": {"cluster": "dgx-h100:8"},
    "maxtext/llama2_7b_gpu.yml": {"cluster": "dgx-h100:2"},
    "maxtext/llama31_70b_fp8.yml": {"cluster": "dgx-h100:4"},
    "nanotron/llama_8b_afab.yaml": {"cluster": "dgx-h100"},
    "nanotron/smollm_1b7_zero1.yaml": {"cluster": "dgx-h100"},
    "axolotl/llama3_70b_zero3_inline.yaml": {"cluster": "dgx-h100:4"},
    "axolotl/qwen3_8b_tp_cp.yaml": {"cluster": "dgx-h100:4"},
    "torchtitan/llama3_405b_2024.toml": {"cluster": "dgx-h100:16"},
    "torchtitan/llama3_70b_float8_tp.toml": {"cluster": "dgx-h100:4"},
    "torchtitan/llama3_70b_interleaved.toml": {"cluster": "dgx-h100:8"},
    "torchtitan/llama3_8b_hsdp_cp.toml": {"cluster": "dgx-h100:8"},
    "torchtitan/deepseek_dualpipe.toml": {"cluster": "dgx-h100:16"},
}  # what is said beside one file alone
REFUSED = {
    "nemo/gpt3_70b_fsdp.yaml": [
        (5, "trainer.accumulate_grad_batches"),
        (15, "model.num_micro_batches_with_partial_activation_checkpoints"),
        (17, "model.fsdp"),
        (20, "model.peft.peft_scheme"),
    ],
    "megatron-bridge/windows_hybrid.yaml": [(61, "model.is_hybrid_model")],
    "maxtext/tpu_offload.yml": [
        (5, "per_device_batch_size"),
        (7, "remat_policy"),
        (9, "ici_sequence_parallelism"),
        (10, "use_grpo"),
    ],
    "nanotron/qwen_moe.yaml": [
        (3, "model.dtype"),
        (9, "model.model_config.moe_config"),
        (17, "optimizer.zero_stage"),
    ],
    "deepspeed/zeropp_curriculum.json": [
        (10, "zero_optimization.zero_quantized_nontrainable_weights"),
        (13, "curriculum_learning.enabled"),
    ],
    "axolotl/dpo_unknown_model.yml": [(1, "base_model"), (5, "rl"), (8, "load_in_8bit"), (15, "deepspeed")],
    "torchtune/llama32_kd_vision.yaml": [(11, "enable_activation_offloading")],
    "llm-foundry/dbrx_like.yaml": [
        (8, "model.ffn_config.ffn_type"),
        (9, "model.attn_config.kv_n_heads"),
        (9, "model.attn_config.rope"),
        (16, "device_train_microbatch_size"),
        (17, "precision"),
    ],
    "trl/zephyr_dpo.yaml": [(1, "model_name_or_path")],
    "llama-factory/llama3_predict_freeze.yaml": [
        (3, "do_train"),
        (5, "finetuning_type"),
        (6, "freeze_trainable_layers"),
    ],
    "internevo/isp_experts.py": [(42, "parallel.sequence_2D.enable")],
    "verl/dynamic_engine.yaml": [(4, "data.use_dynamic_bsz"), (10, "model.strategy")],
    "torchtitan/deepseek_dualpipe.toml": [(19, "fault_tolerance.enable")],
}


def said(file):
    """What the command line says beside a file."""
    return SAID.get(file.split("/")[0], {}) | OWN.get(file, {})


def test_every_file_is_either_planned_or_refused():
    assert sorted(PLANS | REFUSED) == files()


@all_cases("file", PLANS)
def test_a_file_is_the_plan_that_its_numbers_say(file):
    plan = job_in(FOREIGN / file, **said(file)).plan

    words = set(PLANS[file].split())
    precision = {} if "precision=" in PLANS[file] else {"precision=bf16"}
    assert set(plan.short().split()) == words.union(precision)


@all_cases("file", PLANS)
def test_a_planned_file_is_predicted(file):
    report = predict(job_in(FOREIGN / file, **said(file)))

    assert report.step_time_s > 0
    assert report.memory.device_used_bytes > 0


@all_cases("file", REFUSED)
def test_what_is_not_built_is_refused_by_name_and_line(file):
    assert faults_in(FOREIGN / file, **said(file)) == REFUSED[file]


@pytest.mark.parametrize("file", PLANS)
def test_a_written_job_is_the_job_of_the_file(file, tmp_path):
    job = job_in(FOREIGN / file, **said(file))
    beside = {"gpus": job.cluster.num_devices, "model": said(file).get("model")}
    data = read_source(JobRequest(files=(str(FOREIGN / file),), **beside)).document.data
    cluster = {"base": "dgx-h100", "nodes": -(-job.cluster.num_devices // 8)}
    length = {"sequence_length": job.batch.sequence_length}

    again = job_of(read_yaml(job_text(data | {"cluster": cluster, "batch": length}).encode(), "job.yaml"))

    assert (again.model, again.plan, again.stack) == (job.model, job.plan, job.stack)
