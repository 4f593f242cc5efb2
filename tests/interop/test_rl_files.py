"""Settings of veRL and OpenRLHF for reinforcement learning as a step: a rollout and a training."""

from copy import deepcopy

import pytest
import yaml
from command_line import flopcast
from hf_cases import CONFIGS
from key_cases import put

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.configs import nemo_rl, openrlhf_rl, trl_rl, verl_rl
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.keys import covered, keys_of
from flopcast.interop.configs.rl_formats import READERS, step_document, step_of
from flopcast.interop.configs.trainer_commands import trainer_document
from flopcast.requests.rl_request import rl_request

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
MEGATRON = f"{ACTOR}.megatron"
GRPO = f"""#!/bin/bash
MODEL=Qwen/Qwen2.5-7B-Instruct
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
    data.train_files="['a.parquet', 'b.parquet']" data.train_batch_size=1024 \\
    data.max_prompt_length=512 data.max_response_length=1024 actor_rollout_ref.model.path=$MODEL \\
    actor_rollout_ref.model.use_remove_padding=True {ACTOR}.optim.lr=1e-6 {ACTOR}.ppo_mini_batch_size=256 \\
    {ACTOR}.ppo_micro_batch_size_per_gpu=8 {ACTOR}.use_kl_loss=True {ROLLOUT}.name=vllm {ROLLOUT}.n=5 \\
    {ROLLOUT}.tensor_model_parallel_size=2 {ROLLOUT}.gpu_memory_utilization=0.6 \\
    trainer.logger=['console','wandb'] trainer.n_gpus_per_node=8 trainer.nnodes=2 $@
"""
PPO = """python3 -m openrlhf.cli.train_ppo_ray --pretrain meta-llama/Meta-Llama-3-8B-Instruct \\
   --actor_num_nodes 1 --actor_num_gpus_per_node 8 --vllm_num_engines 4 --vllm_tensor_parallel_size 2 \\
   --colocate_all_models --vllm_gpu_memory_utilization 0.5 --train_batch_size 128 \\
   --micro_train_batch_size 8 \\
   --rollout_batch_size 1024 --n_samples_per_prompt 1 --prompt_max_len 1024 --generate_max_len 1024 \\
   --zero_stage 3 --param_dtype bf16 --init_kl_coef 0.01 --gradient_checkpointing --packing_samples
"""
ALIGNED = {
    "model_name_or_path": "Qwen/Qwen2.5-7B-Instruct",
    "dataset_name": "own/prompts",
    "bf16": True,
    "use_vllm": True,
    "vllm_mode": "colocate",
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "gradient_checkpointing": True,
    "num_generations": 16,
    "max_prompt_length": 512,
    "max_completion_length": 2048,
    "reward_funcs": ["accuracy", "format"],
    "beta": 0.04,
    "accelerate": {"distributed_type": "DEEPSPEED", "num_processes": 8},
    "deepspeed": {"zero_optimization": {"stage": 3}},
}
NEMO = {
    "grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 16},
    "policy": {
        "model_name": "meta-llama/Llama-3.1-8B-Instruct",
        "train_global_batch_size": 256,
        "train_micro_batch_size": 2,
        "max_total_sequence_length": 2048,
        "dtensor_cfg": {"enabled": True, "tensor_parallel_size": 2},
        "generation": {"max_new_tokens": 1536, "vllm_cfg": {"tensor_parallel_size": 2}},
    },
    "cluster": {"gpus_per_node": 8, "num_nodes": 2},
}
SETTINGS = {
    "nemo-rl-grpo": NEMO,
    "trl-rl": ALIGNED,
    "verl-rl": trainer_document(GRPO.encode(), "grpo.sh").data,
    "openrlhf-rl": trainer_document(PPO.encode(), "ppo.sh").data,
}
MEGATRON_TOO = {f"{ACTOR}.strategy": "megatron", f"{MEGATRON}.tensor_model_parallel_size": 2}
GENERATION = "policy.generation"
APART = {
    f"{GENERATION}.colocated.enabled": False,
    f"{GENERATION}.colocated.resources.num_nodes": 1,
    "grpo.async_grpo.enabled": True,
}
ALONE = APART | {"cluster.num_nodes": 1, f"{GENERATION}.colocated.resources.gpus_per_node": 4}
STARTS = {
    "nemo-rl-grpo": nemo_rl.START,
    "trl-rl": trl_rl.START,
    "verl-rl": verl_rl.START,
    "openrlhf-rl": openrlhf_rl.START,
}
OTHER = {  # key → another value, and the settings beside it
    "nemo-rl-grpo": {
        "grpo.num_prompts_per_step": (64, {}),
        "grpo.num_generations_per_prompt": (8, {}),
        "grpo.async_grpo.enabled": (False, APART),
        "grpo.skip_reference_policy_logprobs_calculation": (True, {}),
        f"{GENERATION}.backend": ("megatron", {}),
        f"{GENERATION}.max_new_tokens": (1024, {}),
        f"{GENERATION}.colocated.enabled": (True, APART),
        f"{GENERATION}.colocated.resources.gpus_per_node": (2, ALONE),
        f"{GENERATION}.colocated.resources.num_nodes": (
            1,
            APART | {"cluster.num_nodes": 4} | {f"{GENERATION}.colocated.resources.num_nodes": 2},
        ),
        f"{GENERATION}.vllm_cfg.precision": ("fp8", {}),
        f"{GENERATION}.vllm_cfg.tensor_parallel_size": (4, {}),
        f"{GENERATION}.vllm_cfg.pipeline_parallel_size": (2, {}),
        f"{GENERATION}.vllm_cfg.expert_parallel_size": (2, {}),
        f"{GENERATION}.vllm_cfg.gpu_memory_utilization": (0.8, {}),
        f"{GENERATION}.vllm_kwargs.max_num_seqs": (64, {}),
        f"{GENERATION}.vllm_kwargs.max_num_batched_tokens": (4096, {}),
    },
    "trl-rl": {
        "model_name_or_path": ("Qwen/Qwen2.5-3B", {}),
        "per_device_train_batch_size": (8, {}),
        "gradient_accumulation_steps": (8, {}),
        "gradient_checkpointing": (False, {}),
        "accelerate.num_processes": (16, {}),
        "max_prompt_length": (1024, {}),
        "max_completion_length": (4096, {}),
        "num_generations": (8, {}),
        "steps_per_generation": (8, {}),
        "num_iterations": (2, {}),
        "use_vllm": (False, {}),
        "vllm_mode": ("server", {}),
        "vllm_tensor_parallel_size": (2, {}),
        "vllm_gpu_memory_utilization": (0.6, {}),
        "beta": (0.0, {}),
        "reward_model_path": ("own/reward", {}),
    },
    "verl-rl": {
        "--config-name": ("ppo_megatron_trainer", {}),
        "data.train_batch_size": (512, {}),
        "data.max_prompt_length": (1024, {}),
        "data.max_response_length": (2048, {}),
        "algorithm.adv_estimator": ("gae", {}),
        "algorithm.use_kl_in_reward": (True, {f"{ACTOR}.use_kl_loss": False}),
        "actor_rollout_ref.model.path": ("Qwen/Qwen2.5-3B", {}),
        "actor_rollout_ref.model.enable_gradient_checkpointing": (False, {}),
        "actor_rollout_ref.model.use_remove_padding": (False, {}),
        "actor_rollout_ref.model.lora_rank": (16, {}),
        "actor_rollout_ref.model.target_modules": (["q_proj"], {"actor_rollout_ref.model.lora_rank": 8}),
        f"{ACTOR}.strategy": ("megatron", {}),
        f"{ACTOR}.ppo_mini_batch_size": (512, {}),
        f"{ACTOR}.ppo_micro_batch_size": (4, {f"{ACTOR}.ppo_micro_batch_size_per_gpu": None}),
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": (4, {}),
        f"{ACTOR}.use_dynamic_bsz": (True, {}),
        f"{ACTOR}.ppo_max_token_len_per_gpu": (3072, {f"{ACTOR}.use_dynamic_bsz": True}),
        f"{ACTOR}.ppo_epochs": (2, {}),
        f"{ACTOR}.use_kl_loss": (False, {}),
        f"{ACTOR}.ulysses_sequence_parallel_size": (2, {}),
        f"{ACTOR}.fsdp_config.param_offload": (True, {}),
        f"{ACTOR}.fsdp_config.optimizer_offload": (True, {}),
        f"{ACTOR}.fsdp_config.grad_offload": (True, {}),
        f"{ACTOR}.fsdp_config.offload_policy": (True, {}),
        f"{ACTOR}.fsdp_config.fsdp_size": (8, {}),
        f"{MEGATRON}.tensor_model_parallel_size": (4, MEGATRON_TOO),
        f"{MEGATRON}.pipeline_model_parallel_size": (2, MEGATRON_TOO),
        f"{MEGATRON}.virtual_pipeline_model_parallel_size": (
            2,
            MEGATRON_TOO | {f"{MEGATRON}.pipeline_model_parallel_size": 2},
        ),
        f"{MEGATRON}.context_parallel_size": (2, MEGATRON_TOO),
        f"{MEGATRON}.expert_model_parallel_size": (2, MEGATRON_TOO),
        f"{MEGATRON}.expert_tensor_parallel_size": (2, MEGATRON_TOO),
        f"{MEGATRON}.sequence_parallel": (False, MEGATRON_TOO),
        f"{MEGATRON}.use_distributed_optimizer": (False, MEGATRON_TOO),
        f"{MEGATRON}.param_offload": (True, MEGATRON_TOO),
        f"{MEGATRON}.optimizer_offload": (True, MEGATRON_TOO),
        f"{MEGATRON}.grad_offload": (True, MEGATRON_TOO),
        f"{MEGATRON}.override_transformer_config.recompute_granularity": ("full", MEGATRON_TOO),
        f"{MEGATRON}.override_transformer_config.recompute_method": (
            "block",
            MEGATRON_TOO | {f"{MEGATRON}.override_transformer_config.recompute_granularity": "full"},
        ),
        f"{MEGATRON}.override_transformer_config.recompute_num_layers": (
            4,
            MEGATRON_TOO | {f"{MEGATRON}.override_transformer_config.recompute_granularity": "full"},
        ),
        f"{ROLLOUT}.name": ("sglang", {}),
        f"{ROLLOUT}.n": (8, {}),
        f"{ROLLOUT}.tensor_model_parallel_size": (4, {}),
        f"{ROLLOUT}.gpu_memory_utilization": (0.8, {}),
        f"{ROLLOUT}.max_num_seqs": (64, {}),
        f"{ROLLOUT}.max_num_batched_tokens": (4096, {}),
        "reward_model.enable": (True, {}),
        "critic.model.path": ("Qwen/Qwen2.5-3B", {"algorithm.adv_estimator": "gae"}),
        "trainer.nnodes": (1, {}),
        "trainer.n_gpus_per_node": (4, {}),
    },
    "openrlhf-rl": {
        "pretrain": ("Qwen/Qwen2.5-7B", {}),
        "actor_num_nodes": (2, {}),
        "actor_num_gpus_per_node": (4, {}),
        "vllm_num_engines": (2, {"colocate_all_models": False, "async_train": True}),
        "vllm_tensor_parallel_size": (4, {}),
        "vllm_gpu_memory_utilization": (0.8, {}),
        "colocate_all_models": (False, {}),
        "async_train": (True, {"colocate_all_models": False}),
        "prompt_max_len": (512, {}),
        "generate_max_len": (2048, {}),
        "max_len": (1536, {}),
        "rollout_batch_size": (512, {}),
        "n_samples_per_prompt": (8, {}),
        "max_epochs": (2, {}),
        "train_batch_size": (256, {}),
        "micro_train_batch_size": (4, {}),
        "use_dynamic_batch": (True, {"train_max_tokens_per_gpu": 2048}),
        "train_max_tokens_per_gpu": (4096, {"use_dynamic_batch": True}),
        "advantage_estimator": ("group_norm", {}),
        "init_kl_coef": (0.0, {}),
        "remote_rm_url": ("http://localhost:5000", {}),
        "critic_pretrain": ("Qwen/Qwen2.5-7B", {}),
        "ring_attn_size": (2, {}),
        "ds_tensor_parallel_size": (2, {}),
        "gradient_checkpointing": (False, {}),
        "zero_stage": (2, {}),
        "param_dtype": ("fp16", {}),
        "adam_offload": (True, {}),
        "overlap_comm": (True, {}),
        "optimizer": ("adamw_torch_4bit", {}),
        "lora_rank": (8, {}),
        "target_modules": (["q_proj"], {"lora_rank": 8}),
        "lora_dropout": (0.1, {"lora_rank": 8}),
        "load_in_4bit": (True, {"lora_rank": 8}),
    },
}


def outcome(kind, changes):
    """Return the step of the settings of a trainer with changes, or the faults."""
    data = deepcopy(SETTINGS[kind])
    for key, value in changes.items():
        put(data, key, value)
    try:
        return step_document(READERS[STARTS[kind]](Document("run.sh", data, {}), ImportOptions())).data
    except SpecError as error:
        return tuple(str(problem) for problem in error.problems)


def test_a_script_of_grpo_is_a_rollout_and_a_training():
    step = step_of(trainer_document(GRPO.encode(), "grpo.sh"), ImportOptions())
    rollout, training = step.data["rollout"], step.data["training"]
    assert (step.data["prompts"], step.data["samples"], step.data["scorers"]) == (1024, 5, 2)
    assert (rollout["gpus"], training["gpus"]) == (16, 16)
    assert rollout["model"] == training["model"] == {"base": "qwen2.5-7b"}
    assert rollout["engine"] == {"base": "vllm", "memory_fraction": 0.6}
    # verl/trainer/config/rollout/rollout.yaml: max_num_seqs and max_num_batched_tokens
    assert {"max_sequences": 1024, "max_tokens": 8192}.items() <= rollout["plan"].items()
    assert rollout["traffic"] == {"prompt": 512, "output": 1024}
    assert training["batch"] == {"sequence_length": 1536}
    # mini-batches count prompts: 256 of them with 5 answers each, over 16 replicas
    plan = {"data_parallel": 16, "micro_batch": 8, "global_batch": 1280, "zero": 3}
    assert plan.items() <= training["plan"].items()
    assert step.lines[("training", "plan", "global_batch")] == 6
    assert step.lines[("prompts",)] == 4


def test_a_micro_batch_of_all_ranks_is_divided_by_them():
    """As in fsdp_workers.py of veRL: ppo_micro_batch_size //= data-parallel ranks, which are 16."""
    each, whole = f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ACTOR}.ppo_micro_batch_size"

    assert outcome("verl-rl", {each: None, whole: 128}) == outcome("verl-rl", {})
    (fault,) = outcome("verl-rl", {each: None, whole: 8})
    assert "a multiple of 16" in fault


def test_settings_in_yaml_and_the_recipe_of_dapo_are_read_alike():
    settings = {name: each for name, each in SETTINGS["verl-rl"].items() if name != "launcher"}
    yaml_step = step_of(Document("grpo.yaml", settings, {}), ImportOptions()).data
    script = GRPO.replace("verl.trainer.main_ppo", "recipe.dapo.main_dapo")
    dapo = step_of(trainer_document(script.encode(), "dapo.sh"), ImportOptions()).data
    for part in ("prompts", "samples", "scorers"):
        assert yaml_step[part] == dapo[part] == outcome("verl-rl", {})[part]
    assert yaml_step["training"]["plan"] == dapo["training"]["plan"]


def test_a_command_of_ppo_has_a_reward_model_and_a_critic():
    step = outcome("openrlhf-rl", {})
    assert (step["scorers"], step["critics"], step["prompts"], step["samples"]) == (3, 1, 1024, 1)
    assert step["training"]["plan"]["global_batch"] == 128
    apart = outcome("openrlhf-rl", {"colocate_all_models": False, "async_train": True})
    assert (apart["apart"], apart["rollout"]["gpus"], apart["training"]["gpus"]) == (True, 8, 8)
    assert outcome("openrlhf-rl", {"remote_rm_url": "http://localhost:5000"})["scorers"] == 2


def test_a_file_of_trl_generates_the_batches_of_its_accumulation_at_once(tmp_path):
    step = outcome("trl-rl", {})
    # 4 completions of 8 devices in each of 4 accumulated batches, 16 for each prompt
    assert (step["prompts"], step["samples"], step["scorers"]) == (8, 16, 2)
    assert step["training"]["plan"]["global_batch"] == step["prompts"] * step["samples"]
    assert step["training"]["plan"]["zero"] == 3
    twice = outcome("trl-rl", {"steps_per_generation": 8})
    assert (twice["prompts"], twice["training"]["plan"]["global_batch"]) == (16, 128)
    settings, launch = tmp_path / "grpo.yaml", tmp_path / "zero3.yaml"
    own = {name: each for name, each in ALIGNED.items() if name not in ("accelerate", "deepspeed")}
    settings.write_text(yaml.safe_dump(own), encoding="utf-8")
    launch.write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 3}\n",
        encoding="utf-8",
    )
    together = flopcast("predict", str(settings), str(launch))
    assert together.code == 0, together.err
    assert "mbs=4 gbs=128 zero=3 recompute=full" in together.out


def test_a_recipe_of_nemo_rl_changes_the_file_that_it_names(tmp_path):
    base, recipe = tmp_path / "base.yaml", tmp_path / "recipe.yaml"
    base.write_text(yaml.safe_dump(NEMO), encoding="utf-8")
    changes = {"defaults": "../base.yaml", "policy": {"dtensor_cfg": {"tensor_parallel_size": 4}}}
    recipe.write_text(yaml.safe_dump(changes), encoding="utf-8")
    for order in ((base, recipe), (recipe, base)):
        given = flopcast("predict", *map(str, order))
        assert given.code == 0, given.err
        # 16 devices over tp=4; each engine has two devices
        assert "dp=4 tp=4 mbs=2 gbs=256 zero=3" in given.out
        assert "tp=2 replicas=8" in given.out
    alone = flopcast("predict", str(recipe))
    assert (alone.code, "recipe.yaml:1: defaults" in alone.err) == (1, True)
    step = outcome("nemo-rl-grpo", {})
    # two scoring passes: the trained model, and the reference; the longest answer leaves 512 tokens
    assert (step["prompts"], step["samples"], step["scorers"]) == (32, 16, 2)
    assert step["rollout"]["traffic"] == {"prompt": 512, "output": 1536}
    apart = outcome("nemo-rl-grpo", APART)
    assert (apart["apart"], apart["rollout"]["gpus"], apart["training"]["gpus"]) == (True, 8, 8)


def test_every_key_that_is_read_matters():
    for kind, changes in OTHER.items():
        read = keys_of(kind).read.split()
        alike = keys_of("trl").read.split() if kind == "trl-rl" else []  # tested for TRL's other trainers
        shared = {key for key in alike if key in read and key not in changes}
        assert sorted(read) == sorted([*changes, *shared])
        for key, (value, beside) in changes.items():
            assert covered(key, read)
            assert outcome(kind, beside | {key: value}) != outcome(kind, beside), key


FAULTS = {
    f"{ROLLOUT}.n=5": (f"{ROLLOUT}.n=0", f"{ROLLOUT}.n", 7),
    "ppo_mini_batch_size=256": ("ppo_mini_batch_size=250", f"{ACTOR}.ppo_mini_batch_size", 6),
    "use_kl_loss=True": ("pipeline_parallel=2", f"{ACTOR}.pipeline_parallel", 7),
    "MODEL=Qwen/Qwen2.5-7B-Instruct": ("MODEL=own/model", "actor_rollout_ref.model.path", 5),
}


def test_faults_name_their_line():
    for old, (new, field, line) in FAULTS.items():
        document = trainer_document(GRPO.replace(old, new).encode(), "grpo.sh")
        with pytest.raises(SpecError) as error:
            step_of(document, ImportOptions())
        assert (field, f"grpo.sh:{line}") in [(each.field, each.where) for each in error.value.problems]


def test_commands_predict_import_and_refuse_such_a_script(tmp_path):
    script, written = tmp_path / "grpo.sh", tmp_path / "rl.yaml"
    script.write_text(GRPO, encoding="utf-8")
    lengths = ("--traffic", "prompt=200 output=lognormal(300, 0.5)", "--seq", "512")
    given = flopcast("predict", str(script), "--cluster", "dgx-a100", *lengths)
    assert given.code == 0, given.err
    assert "16 × a100" in given.out
    assert "that can occur" not in given.out
    assert flopcast("import", str(script), "--cluster", "dgx-a100", *(), "-o", str(written)).code == 0
    step = yaml.safe_load(written.read_text(encoding="utf-8"))
    asked = rl_request(Document("rl.yaml", step, {}))
    assert (asked.plan.prompts, asked.training.plan.global_batch) == (1024, 1280)
    changes = ("rollout.traffic=prompt=200 output=lognormal(300, 0.5)", "training.batch.seq=512")
    again = flopcast("predict", str(written), *changes)
    assert again.out.splitlines()[3] == given.out.splitlines()[3]
    model = tmp_path / "config.json"
    model.write_text((CONFIGS / "llama-2-7b.json").read_text(encoding="utf-8"), encoding="utf-8")
    named = flopcast("predict", str(script), "--model", str(model), *lengths)
    assert named.code == 0, named.err
    assert named.out.splitlines()[1:3] == flopcast("predict", str(script), *lengths).out.splitlines()[1:3]
    settings = tmp_path / "grpo.yaml"
    settings.write_text(yaml.safe_dump(ALIGNED), encoding="utf-8")
    for file, option in ((script, ("--kind", "deepspeed")), (settings, ("--arg", "1=8"))):
        ignored = flopcast("predict", str(file), *option)
        assert (ignored.code, option[0] in ignored.err) == (1, True), ignored.out
    refused = flopcast("search", str(script))
    assert (refused.code, "run flopcast predict" in refused.err) == (1, True)
