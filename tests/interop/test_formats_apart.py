"""Every kept file is known by its keys, and files of other programs are refused by name or at all."""

import pytest
from conftest import REPOSITORY
from foreign_cases import FOREIGN, files
from hf_cases import CONFIGS

from flopcast.errors import SpecError
from flopcast.interop.configs.formats import KINDS, kind_of, parsed
from flopcast.interop.configs.unsupported_programs import UNREAD, program_of_command
from flopcast.interop.serving.sources import DESCRIPTIONS
from flopcast.requests.job_files import job_of
from flopcast.requests.job_request import JobRequest
from flopcast.requests.sources import SCRIPT, source_of

UNREAD_FILES = {
    "MaxText's post-training": """
base_config: base.yml
use_tunix_gradient_accumulation: true
train_data_columns: [messages]
per_device_batch_size: 2
""",
    "LitGPT": """
checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf
out_dir: out/lora
precision: bf16-true
quantize:
devices: 4
lora_r: 32
lora_query: true
lora_mlp: false
data:
  class_path: litgpt.data.Alpaca2k
train:
  global_batch_size: 8
  micro_batch_size: 2
  lr_warmup_steps: 10
  max_seq_length: 512
logger_name: csv
""",
    "OLMo": """
run_name: OLMo2-7B
model: {d_model: 4096, n_heads: 32, n_layers: 32, mlp_hidden_size: 22016, block_type: sequential}
max_duration: 1ep
global_train_batch_size: 1024
device_train_microbatch_size: 2
precision: amp_bf16
fsdp: {wrapping_strategy: by_block_and_size, precision: mixed}
""",
    "veRL": """
data: {path: test.parquet, n_samples: 5, output_path: out.parquet, batch_size: 128}
model: {path: Qwen/Qwen2.5-7B}
rollout: {name: vllm, temperature: 1.0, prompt_length: 1536, response_length: 512}
""",
    "Megatron-SWIFT": """
model: Qwen/Qwen2.5-7B-Instruct
dataset: [swift/self-cognition]
micro_batch_size: 1
global_batch_size: 16
no_save_optim: true
no_save_rng: true
finetune: true
max_length: 2048
""",
    "OpenRLHF": """
actor: {model_name_or_path: meta-llama/Meta-Llama-3-8B}
critic: {model_name_or_path: meta-llama/Meta-Llama-3-8B}
vllm: {num_engines: 2}
ds: {zero_stage: 3, adam_offload: false}
train: {max_epochs: 1}
""",
    "Primus": """
work_group: amd
user_name: root
exp_name: llama2_7B-pretrain
workspace: ./output
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama2_7B.yaml
    overrides: {micro_batch_size: 2, global_batch_size: 16, tensor_model_parallel_size: 1}
""",
    "AReaL": """
experiment_name: gsm8k-grpo
trial_name: trial0
cluster: {n_nodes: 1, n_gpus_per_node: 8}
allocation_mode: sglang:d4p1t1+d4p1t1
actor: {path: Qwen/Qwen2.5-1.5B-Instruct, mb_spec: {max_tokens_per_mb: 10240}}
total_train_epochs: 10
""",
    "accelerate": """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD}
mixed_precision: bf16
num_machines: 1
num_processes: 8
""",
}  # sizes and names of the programs' own examples
COMMANDS = {
    "OpenRLHF": "python -m openrlhf.cli.train_kd --max_len 2048 --train_batch_size 256",
    "Megatron-SWIFT": "megatron sft --model Qwen/Qwen2.5-7B --micro_batch_size 1",
    "veRL": "python3 -m verl.trainer.main_generation data.n_samples=5",
    "LitGPT": "litgpt finetune_lora meta-llama/Llama-2-7b-hf --train.micro_batch_size 2",
    "Colossal-AI": "colossalai run --nproc_per_node 4 run_clm.py --model_name_or_path facebook/opt-1.3b "
    "--per_device_train_batch_size 8",
    "slime": "ray job submit -- python3 train.py --num-layers 36 --hidden-size 2560 "
    "--num-attention-heads 32 "
    "--seq-length 4096 --rollout-batch-size 128 --n-samples-per-prompt 8",
    "RL2": "torchrun --nproc_per_node 4 -m RL2.trainer.sft actor.model_name=Qwen/Qwen2.5-7B",
}
RECIPES = {
    "Unsloth": "import torch\nfrom unsloth import FastLanguageModel\n",
    "NeMo 2": "import nemo_run as run\nrecipe = llm.llama3_70b.pretrain_recipe(num_nodes=1)\n",
    "OLMo-core": "from olmo_core.config import DType\n",
    "Megatron-Bridge's recipes": "from megatron.bridge.recipes.llama import pretrain_config\n",
    "Ray Serve's Python programs": "from ray.serve.llm import LLMConfig, build_openai_app\n",
}  # programs in Python, which are known by what they import
UNRELATED = {
    "compose.yaml": "services: {web: {image: nginx, ports: ['80:80']}}\nvolumes: {data: {}}\n",
    "workflow.yml": "name: CI\non: [push]\njobs: {test: {runs-on: ubuntu, steps: [{run: make}]}}\n",
    "package.json": '{"name": "app", "version": "1.0.0", "dependencies": {"react": "18"}}',
    "pyproject.toml": "[project]\nname = 'app'\nversion = '1'\n[tool.ruff]\nline-length = 100\n",
    "Cargo.toml": "[package]\nname = 'app'\nedition = '2021'\n[dependencies]\nserde = '1'\n",
    "k8s.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: b}]}\n",
    "openapi.json": '{"openapi": "3.0.0", "info": {"title": "x"}, "paths": {"/a": {"get": {}}}}',
    "vision.yaml": "model: {name: resnet50, num_classes: 10}\noptimizer: {name: sgd, lr: 1}\nepochs: 9\n",
    "detector.yaml": "nc: 80\ndepth_multiple: 0.33\nbackbone: [[-1, 1, Conv, [64, 6]]]\nbatch_size: 16\n",
    "speech.yaml": "sample_rate: 16000\nmodel: {encoder: {d_model: 512, n_layers: 17}}\nbatch: 16\n",
    "diffusion.yaml": "unet: {channels: 320}\nscheduler: {steps: 9}\ntrain_batch_size: 4\nbf16: true\n",
    "images.yaml": "train_batch_size: 32\ngradient_accumulation_steps: 2\nimage_size: 224\n"
    "augment: {flip: true, crop: 0.8}\nnum_classes: 10\nweight_path: a\nmixup: 0.2\nema: 0.999\n",
    "tokenizer.json": '{"version": "1.0", "truncation": null, "model": {"type": "BPE"}}',
    "list.json": "[1, 2, 3]",
    "text.yaml": "just some words",
    "empty.yaml": "",
}


def refusal_of(text, name):
    """The problems of a text that no reader may take, as a person would give it."""
    with pytest.raises(SpecError) as error:
        job_of(source_of(text.encode(), name, JobRequest(gpus=8)).document)
    return error.value.problems


def test_every_kept_file_is_of_its_own_format_and_of_no_other():
    confused = {}
    for file in files():
        document = parsed((FOREIGN / file).read_bytes(), file)
        if kind_of(document) != file.split("/")[0]:
            confused[file] = kind_of(document)
    assert confused == {}
    assert {file.split("/")[0] for file in files()} == set(KINDS)


def test_configs_of_models_and_our_own_jobs_are_no_configuration_of_a_trainer():
    ours = sorted((REPOSITORY / "src" / "flopcast" / "catalog").glob("[jms]*/*.yaml"))
    taken = [
        path.name
        for path in [*CONFIGS.glob("*.json"), *ours]
        if kind_of(parsed(path.read_bytes(), path.name)) is not None
    ]
    assert len(ours) > 50
    assert taken == []


def test_files_that_are_not_read_are_refused_by_the_name_of_their_program():
    assert UNREAD_FILES.keys() == {program for program, one in UNREAD.items() if one.signs}
    for program, text in UNREAD_FILES.items():
        (problem,) = refusal_of(text, "file.yaml")
        assert (problem.field, problem.value) == ("format", program)
        assert problem.fix == UNREAD[program].way.format("file.yaml")


def test_commands_that_are_not_read_are_refused_by_the_name_of_their_program():
    for program, command in COMMANDS.items():
        (problem,) = refusal_of(f"#!/bin/bash\nset -e\n{command}\n", "run.sh")
        assert (problem.where, problem.value) == ("run.sh:3", program)
    for program, text in RECIPES.items():
        (problem,) = refusal_of(text, "recipe.py")
        assert (problem.value, problem.fix) == (program, UNREAD[program].way)
    assert UNREAD.keys() == {*UNREAD_FILES, *COMMANDS, *RECIPES}
    assert program_of_command("torchrun pretrain_gpt.py --num-layers 24") is None


def test_unrelated_files_are_refused():
    for name, text in UNRELATED.items():
        assert refusal_of(text, name), name


def test_keys_that_a_format_does_not_have_speak_against_it():
    """Two signs of DeepSpeed among keys of another program do not make its file."""
    signs = "train_batch_size: 64\ngradient_accumulation_steps: 2\n"
    strangers = "".join(f"stranger_{number}: {number}\n" for number in range(6))

    assert kind_of(parsed(signs.encode(), "a.yaml")) == "deepspeed"
    assert kind_of(parsed((signs + strangers).encode(), "a.yaml")) is None


def test_a_job_of_flopcast_is_no_file_of_another_program():
    """Whichever format is asked for, the error says to run `flopcast predict`."""
    for kind in (SCRIPT, *KINDS, *DESCRIPTIONS):
        for further in ("plan: dp=8 mbs=1 gbs=64", "traffic: rate=2/s prompt=1000 output=200"):
            text = f"model: llama-3-8b\ncluster: dgx-h100\n{further}\n"
            with pytest.raises(SpecError) as told:
                source_of(text.encode(), "job.yaml", JobRequest(kind=kind))
            (problem,) = told.value.problems
            assert "is a job file of flopcast" in problem.because, kind
            assert problem.fix == "run flopcast predict job.yaml"


def test_a_script_in_a_file_with_the_suffix_of_yaml_is_read_as_a_script():
    """A manifest of several documents and a shell script are no YAML that flopcast reads."""
    for text in ("kind: Secret\n---\nkind: Pod\n", "export A=1\nsrun hostname # {\n"):
        with pytest.raises(SpecError) as told:
            source_of(text.encode(), "run.yaml", JobRequest(kind=SCRIPT))
        (problem,) = told.value.problems
        assert problem.field == "training command"
