"""Programs whose configurations are recognised, but which have no reader.

Answers: which program does this file belong to, and what can the user do instead?
Elsewhere: formats with a reader (formats.py). To add one, write its reader and move its entry there.

The files of different trainers share many keys, so the reader of another trainer would give a wrong job
without a warning. These programs are recognised by keys that no supported format has.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from flopcast.errors import Problem
from flopcast.files.yaml_text import Document

FEWEST_SIGNS = 2
BY_HAND = "describe the job: --model NAME --stack STACK --plan 'dp=8 mbs=1 gbs=64', or in YAML"


@dataclass(frozen=True, kw_only=True, slots=True)
class UnsupportedProgram:
    """A program: dotted keys of its files, its commands, why it has no reader, and what to do instead."""

    signs: str
    commands: tuple[str, ...] = ()
    because: str = "no reader of it is built, and another's would be wrong"
    way: str = BY_HAND


UNREAD: Mapping[str, UnsupportedProgram] = {
    "LitGPT": UnsupportedProgram(
        signs="""train.lr_warmup_steps train.global_batch_size logger_name checkpoint_dir data.class_path
        lora_projection lora_mlp initial_checkpoint_dir""",
        commands=("litgpt",),
    ),
    "OLMo": UnsupportedProgram(
        signs="""model.mlp_ratio model.mlp_hidden_size model.block_type model.layer_norm_type
        model.embedding_size fsdp.wrapping_strategy distributed_strategy"""
    ),
    "veRL": UnsupportedProgram(
        signs="""actor_rollout_ref.model.path actor_rollout_ref.actor.strategy algorithm.adv_estimator
        trainer.n_gpus_per_node trainer.nnodes trainer.total_epochs trainer.default_local_dir
        data.train_files data.max_prompt_length model.partial_pretrain data.micro_batch_size_per_gpu
        trainer.test_freq""",
        commands=("verl.trainer",),
    ),
    "ms-swift": UnsupportedProgram(
        signs="""train_type tuner_type rlhf_type freeze_vit freeze_aligner split_dataset_ratio model_author
        load_from_cache_file swift_version sft_type""",
        commands=("swift sft", "swift pt", "swift rlhf", "megatron sft", "megatron pt"),
    ),
    "OpenRLHF": UnsupportedProgram(
        signs="ds.zero_stage ds.adam_offload actor.model_name_or_path vllm.num_engines",
        commands=("openrlhf.cli",),
    ),
    "Primus": UnsupportedProgram(
        signs="""work_group exp_name workspace modules.pre_trainer.framework modules.pre_trainer.config
        modules.pre_trainer.model modules.post_trainer.framework modules.post_trainer.model""",
        way="give the script or configuration that Primus makes for Megatron-LM or torchtitan",
    ),
    "accelerate": UnsupportedProgram(
        signs="""distributed_type compute_environment num_processes num_machines machine_rank
        mixed_precision""",
        because="it only states how ranks are started, and another file what they train",
        way="give the Trainer's file first and this one behind it: flopcast predict sft.yaml FILE",
    ),
}


def unread_program(data: object) -> str | None:
    """Return the program without a reader to which a file belongs, or None.

    >>> unread_program({"work_group": "amd", "exp_name": "a", "modules": {}})
    'Primus'
    >>> unread_program({"model": "llama-2-7b", "plan": "dp=8"}) is None
    True
    """
    counts = {name: sum(has(data, sign) for sign in one.signs.split()) for name, one in UNREAD.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] >= FEWEST_SIGNS else None


def program_of_command(text: str) -> str | None:
    """Return the program without a reader that a command starts, or None.

    >>> program_of_command("deepspeed --module openrlhf.cli.train_sft --max_len 2048")
    'OpenRLHF'
    """
    words = f" {text} "
    for name, one in UNREAD.items():
        if any(f" {start}" in words or f"/{start}" in words for start in one.commands):
            return name
    return None


def refusal(document: Document, program: str) -> Problem:
    """Return the error for a file of a program without a reader."""
    return Problem(
        where=document.where(()),
        field="format",
        value=program,
        fault=f"is of {program}, which is not read by itself",
        allowed="a format of `flopcast import`, or a job of flopcast",
        because=UNREAD[program].because,
        fix=UNREAD[program].way,
    )


def has(data: object, key: str) -> bool:
    """Return whether a dotted key is in plain data."""
    for part in key.split("."):
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True
