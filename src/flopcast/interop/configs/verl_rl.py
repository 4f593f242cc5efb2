"""veRL's settings for GRPO, PPO and similar algorithms as a step of reinforcement learning.

Answers: which rollout and which training does `verl.trainer.main_ppo`, or veRL's recipe for DAPO, run?
Elsewhere: the arguments of a command (trainer_commands.py), keys that change no step (tables/verl-rl.yaml),
supervised tuning (verl.py).

References
----------
volcengine/verl: verl/trainer/config/ppo_trainer.yaml, ppo_megatron_trainer.yaml and rollout/rollout.yaml
(names, defaults), verl/trainer/ppo/ray_trainer.py (the order of a step: rollout, log-probabilities of the
actor and the reference, values of the critic, updates), verl/workers/fsdp_workers.py (mini-batches count
prompts; offloaded states return to the devices while they are needed).
"""

from collections.abc import Mapping

from flopcast.files.yaml_text import Document
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import SHARDED_STATES, JobReader
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.step_reader import StepReader
from flopcast.interop.configs.trainers import read_adapters
from flopcast.spec.plan_fields import OF_REPLICA
from flopcast.spec.switches import TUNING_CODE

START, DAPO = "verl.trainer.main_ppo", "recipe.dapo.main_dapo"
ACTOR, ROLLOUT, MODEL = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model")
MEGATRON, FSDP = f"{ACTOR}.megatron", f"{ACTOR}.fsdp_config"
DEGREES = (*OF_REPLICA, "expert_parallel", "expert_tensor_parallel", "virtual_stages")  # also settings
RECOMPUTE = f"{MEGATRON}.override_transformer_config.recompute"
MICRO = (f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ACTOR}.ppo_micro_batch_size")
LIMITS = {"max_sequences": ("max_num_seqs", 1024), "max_tokens": ("max_num_batched_tokens", 8192)}
CRITIC = "gae"  # the estimator that needs a value model
RESIDENT = ("param_offload", "optimizer_offload", "grad_offload")


def read(document: Document, options: ImportOptions) -> StepReader:
    """Return the reader after it read both jobs.

    Examples
    --------
    >>> from flopcast.interop.configs.rl_formats import step_document
    >>> reader = read(Document("grpo.yaml", {
    ...     "data": {"train_batch_size": 64, "max_prompt_length": 512, "max_response_length": 1024},
    ...     "algorithm": {"adv_estimator": "grpo"},
    ...     "actor_rollout_ref": {
    ...         "model": {"path": "Qwen/Qwen2.5-7B"},
    ...         "actor": {"ppo_mini_batch_size": 32, "ppo_micro_batch_size_per_gpu": 4},
    ...         "rollout": {"name": "vllm", "n": 8, "tensor_model_parallel_size": 2}}}, {}),
    ...     ImportOptions(devices=8))
    >>> step = step_document(reader).data
    >>> step["prompts"], step["samples"], step["training"]["plan"]["global_batch"]
    (64, 8, 256)
    >>> step["rollout"]["plan"]
    {'tensor_parallel': 2, 'max_sequences': 1024, 'max_tokens': 8192}
    """
    reader = StepReader(document, keys_of("verl-rl"), options)
    reader.read_model(f"{MODEL}.path")
    usual = "megatron" if "megatron" in reader.text("config") or reader.below(MEGATRON) else "fsdp"
    strategy = reader.choice("strategy", {"fsdp": "fsdp", "fsdp2": "fsdp", "megatron": "megatron"}, usual)
    replicas = _megatron(reader) if strategy == "megatron" else _sharded(reader)
    _batch(reader, replicas)
    if reader.count("adapter_rank", 0, least=0):
        read_adapters(reader, "adapter_rank", "targets", reader.names_all_linears("targets"), "")
        reader.put(("step", "handoff"), "adapter", "adapter_rank")
    _rollout(reader)
    _step(reader)
    return reader


def _replicas(reader: JobReader, degrees: Mapping[str, int]) -> int:
    """Return the number of replicas on the devices, which both jobs use."""
    stated = reader.count("nodes", 1) * reader.count("devices", 8)
    for part in (("gpus",), ("rollout", "gpus")):
        reader.put(part, reader.options.devices or stated, "devices", "nodes")
    return reader.replicas(degrees, stated)


def _sharded(reader: JobReader) -> int:
    """Read the sharding of the training job by FSDP; return the number of replicas."""
    context = reader.count("context", 1)
    replicas = _replicas(reader, {"context": context})
    reader.put(("plan", "data_parallel"), replicas, "devices")
    reader.put_degree("context_parallel", context, "context")
    if context > 1:
        reader.put(("plan", "context_exchange"), "all_to_all", "context")
    reader.put(("plan", "zero"), 3)
    reader.put_shards(reader.count(f"{FSDP}.fsdp_size", -1, least=-1), replicas, f"{FSDP}.fsdp_size")
    if reader.flag(f"{FSDP}.offload_policy"):
        reader.place(SHARDED_STATES, f"{FSDP}.offload_policy")
    reader.put_checkpointing("checkpointing", True)
    _note_resident(reader, FSDP)
    reader.put(("stack",), {"base": "torch-fsdp2", **TUNING_CODE}, "strategy")
    return replicas


def _megatron(reader: JobReader) -> int:
    """Read the plan of Megatron-Core for the training job; return the number of replicas."""
    sizes = {field: reader.count(field) for field in DEGREES}
    replicas = _replicas(reader, {field: sizes[field] for field in OF_REPLICA})
    reader.put(("plan", "data_parallel"), replicas, "devices")
    for field, size in sizes.items():
        reader.put_degree(field, size, field)
    if sizes["tensor_parallel"] > 1 and reader.flag(f"{MEGATRON}.sequence_parallel", True):
        reader.put(("plan", "sequence_parallel"), True, f"{MEGATRON}.sequence_parallel")
    reader.put(("plan", "zero"), int(reader.flag(f"{MEGATRON}.use_distributed_optimizer", True)))
    mode = reader.choice(f"{RECOMPUTE}_granularity", {"full": "full", "selective": "selective"}, "none")
    method = reader.choice(f"{RECOMPUTE}_method", {"uniform": "uniform", "block": "block"}, "uniform")
    blocks = reader.count(f"{RECOMPUTE}_num_layers")
    if mode == "full" and (method, blocks) != ("uniform", 1):
        mode = f"full:{method}:{blocks}"
    if mode != "none":
        reader.put(("plan", "recompute"), mode, f"{RECOMPUTE}_granularity")
    _note_resident(reader, MEGATRON)
    reader.put(("stack",), "megatron-core-2025", "strategy")
    return replicas


def _note_resident(reader: JobReader, section: str) -> None:
    """Note that states are in the host's memory while they are not needed."""
    for name in RESIDENT:
        if reader.flag(f"{section}.{name}"):
            copies = "the time of these copies is not predicted"
            text = f"{name}: the states return to the devices for the update; {copies}"
            reader.assume(text, f"{section}.{name}")


def _batch(reader: StepReader, replicas: int) -> None:
    """Read the lengths, the micro-batch and the mini-batch of the training job.

    A mini-batch of veRL is a number of prompts, each with all its answers.
    """
    longest = reader.count("prompt", 512) + reader.count("answer", 512)
    reader.put(("batch", "sequence_length"), longest, "answer", "prompt")
    reader.note_longest(longest, "answer")
    if not reader.flag(packed := reader.first("packed")):
        reader.assume(
            f"{packed} is off, so the training computes {longest} tokens for every answer", packed
        )
    whole = reader.count("mini_batch", 256) * reader.count("samples", 1)
    context = reader.degree("context_parallel")
    tokens, key = ("most_tokens", reader.count("most_tokens", 16384)), reader.first(*MICRO)
    if reader.flag("dynamic"):
        each = reader.filled_micro_batch(tokens, longest, max(whole // replicas, 1), context)
    else:
        each = reader.required(*MICRO)
    if key == MICRO[1] and not reader.flag("dynamic"):  # `//=` in verl/workers/fsdp_workers.py
        if each % replicas:
            because = f"veRL divides this number by {replicas} data-parallel ranks"
            reader.fault(key, f"a multiple of {replicas}", because, f"write {MICRO[0]} instead")
        each = max(each // replicas, 1)
    if whole % (each * replicas):
        allowed = f"a number of prompts for which the number of answers is a multiple of {each * replicas}"
        because = f"{replicas} replicas run whole micro-batches of {each} sequences"
        reader.fault("mini_batch", allowed, because, f"write {each * replicas}")
    reader.put(("plan", "micro_batch"), each, key, "most_tokens")
    reader.put(("plan", "global_batch"), whole, "mini_batch", "samples")
    reader.put(("plan", "precision"), "bf16")


def _rollout(reader: StepReader) -> None:
    """Put the engine, its deployment and the lengths into the rollout."""
    base = reader.choice(f"{ROLLOUT}.name", reader.words("engines"), "vllm")
    memory, tensor = f"{ROLLOUT}.gpu_memory_utilization", f"{ROLLOUT}.tensor_model_parallel_size"
    reader.put_engine(base, (memory, 0.5), (tensor, 2), f"{ROLLOUT}.name")
    for field, (name, default) in LIMITS.items():
        key = f"{ROLLOUT}.{name}"
        reader.put(("rollout", "plan", field), reader.count(key, default), key)
    lengths = {"prompt": reader.count("prompt", 512), "output": reader.count("answer", 512)}
    reader.put(("rollout", "traffic"), lengths, "answer")


def _step(reader: StepReader) -> None:
    """Put the prompts and the models that process each answer into the step."""
    reader.put_samples()
    reference = reader.flag("kl_loss") or reader.flag("kl_reward")
    reader.put_scorers("kl_loss", reference=reference, rewards=reader.flag("reward_model.enable"))
    if (reader.text("advantage") or CRITIC) == CRITIC:
        reader.put_critic("advantage", "critic.model.path", f"{MODEL}.path")
