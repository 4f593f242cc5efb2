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
from flopcast.spec.switches import TUNING_CODE

START, DAPO = "verl.trainer.main_ppo", "recipe.dapo.main_dapo"
ACTOR, ROLLOUT, MODEL = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model")
MEGATRON, FSDP = f"{ACTOR}.megatron", f"{ACTOR}.fsdp_config"
DEGREES = {  # of the plan → their keys; the first three divide a replica
    "tensor_parallel": f"{MEGATRON}.tensor_model_parallel_size",
    "pipeline_parallel": f"{MEGATRON}.pipeline_model_parallel_size",
    "context_parallel": f"{MEGATRON}.context_parallel_size",
    "expert_parallel": f"{MEGATRON}.expert_model_parallel_size",
    "expert_tensor_parallel": f"{MEGATRON}.expert_tensor_parallel_size",
    "virtual_stages": f"{MEGATRON}.virtual_pipeline_model_parallel_size",
}
RECOMPUTE = f"{MEGATRON}.override_transformer_config.recompute"
CONFIG, STRATEGY = "--config-name", f"{ACTOR}.strategy"
PROMPTS, SAMPLES = "data.train_batch_size", f"{ROLLOUT}.n"
PROMPT, ANSWER = "data.max_prompt_length", "data.max_response_length"
MINI, EPOCHS = f"{ACTOR}.ppo_mini_batch_size", f"{ACTOR}.ppo_epochs"
MICRO = (f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ACTOR}.ppo_micro_batch_size")
DYNAMIC, MOST_TOKENS = f"{ACTOR}.use_dynamic_bsz", f"{ACTOR}.ppo_max_token_len_per_gpu"
NODES, DEVICES = "trainer.nnodes", "trainer.n_gpus_per_node"
RANK, TARGETS = f"{MODEL}.lora_rank", f"{MODEL}.target_modules"
CHECKPOINTING, PACKED = f"{MODEL}.enable_gradient_checkpointing", f"{MODEL}.use_remove_padding"
CONTEXT = f"{ACTOR}.ulysses_sequence_parallel_size"
LIMITS = {"max_sequences": ("max_num_seqs", 1024), "max_tokens": ("max_num_batched_tokens", 8192)}
ADVANTAGE, KL_LOSS = "algorithm.adv_estimator", f"{ACTOR}.use_kl_loss"
KL_REWARD = "algorithm.use_kl_in_reward"
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
    usual = "megatron" if "megatron" in reader.text(CONFIG) or reader.below(MEGATRON) else "fsdp"
    strategy = reader.choice(STRATEGY, {"fsdp": "fsdp", "fsdp2": "fsdp", "megatron": "megatron"}, usual)
    replicas = _megatron(reader) if strategy == "megatron" else _sharded(reader)
    _batch(reader, replicas)
    if reader.count(RANK, 0, least=0):
        read_adapters(reader, RANK, TARGETS, reader.names_all_linears(TARGETS), "")
        reader.put(("step", "handoff"), "adapter", RANK)
    _rollout(reader)
    _step(reader)
    return reader


def _replicas(reader: JobReader, degrees: Mapping[str, int]) -> int:
    """Return the number of replicas on the devices, which both jobs use."""
    stated = reader.count(NODES, 1) * reader.count(DEVICES, 8)
    for part in (("gpus",), ("rollout", "gpus")):
        reader.put(part, reader.options.devices or stated, DEVICES, NODES)
    return reader.replicas(degrees, stated)


def _sharded(reader: JobReader) -> int:
    """Read the sharding of the training job by FSDP; return the number of replicas."""
    context = reader.count(CONTEXT, 1)
    replicas = _replicas(reader, {CONTEXT: context})
    reader.put(("plan", "data_parallel"), replicas, DEVICES)
    reader.put_degree("context_parallel", context, CONTEXT)
    if context > 1:
        reader.put(("plan", "context_exchange"), "all_to_all", CONTEXT)
    reader.put(("plan", "zero"), 3)
    reader.put_shards(reader.count(f"{FSDP}.fsdp_size", -1, least=-1), replicas, f"{FSDP}.fsdp_size")
    if reader.flag(f"{FSDP}.offload_policy"):
        reader.place(SHARDED_STATES, f"{FSDP}.offload_policy")
    reader.put_checkpointing(CHECKPOINTING, True)
    _note_resident(reader, FSDP)
    reader.put(("stack",), {"base": "torch-fsdp2", **TUNING_CODE}, STRATEGY)
    return replicas


def _megatron(reader: JobReader) -> int:
    """Read the plan of Megatron-Core for the training job; return the number of replicas."""
    sizes = {field: reader.count(key) for field, key in DEGREES.items()}
    replicas = _replicas(reader, {DEGREES[field]: sizes[field] for field in (*DEGREES,)[:3]})
    reader.put(("plan", "data_parallel"), replicas, DEVICES)
    for field, size in sizes.items():
        reader.put_degree(field, size, DEGREES[field])
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
    reader.put(("stack",), "megatron-core-2025", STRATEGY)
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
    longest = reader.count(PROMPT, 512) + reader.count(ANSWER, 512)
    reader.put(("batch", "sequence_length"), longest, ANSWER, PROMPT)
    reader.note_longest(longest, ANSWER)
    if not reader.flag(PACKED):
        text = f"{PACKED} is off, so the training computes {longest} tokens for every answer"
        reader.assume(text, PACKED)
    whole, context = reader.count(MINI, 256) * reader.count(SAMPLES, 1), reader.degree("context_parallel")
    tokens, key = (MOST_TOKENS, reader.count(MOST_TOKENS, 16384)), reader.first(*MICRO)
    if reader.flag(DYNAMIC):
        each = reader.filled_micro_batch(tokens, longest, max(whole // replicas, 1), context)
    else:
        each = reader.required(*MICRO)
    if key == MICRO[1] and not reader.flag(DYNAMIC):  # `//=` in verl/workers/fsdp_workers.py
        if each % replicas:
            because = f"veRL divides this number by {replicas} data-parallel ranks"
            reader.fault(key, f"a multiple of {replicas}", because, f"write {MICRO[0]} instead")
        each = max(each // replicas, 1)
    if whole % (each * replicas):
        allowed = f"a number of prompts with which the number of answers is a multiple of {each * replicas}"
        because = f"{replicas} replicas run whole micro-batches of {each} sequences"
        reader.fault(MINI, allowed, because, f"write {each * replicas}")
    reader.put(("plan", "micro_batch"), each, key, MOST_TOKENS)
    reader.put(("plan", "global_batch"), whole, MINI, SAMPLES)
    reader.put(("plan", "precision"), "bf16")


def _rollout(reader: StepReader) -> None:
    """Put the engine, its deployment and the lengths into the rollout."""
    base = reader.choice(f"{ROLLOUT}.name", reader.words("engines"), "vllm")
    memory, tensor = f"{ROLLOUT}.gpu_memory_utilization", f"{ROLLOUT}.tensor_model_parallel_size"
    reader.put_engine(base, (memory, 0.5), (tensor, 2), f"{ROLLOUT}.name")
    for field, (name, default) in LIMITS.items():
        key = f"{ROLLOUT}.{name}"
        reader.put(("rollout", "plan", field), reader.count(key, default), key)
    lengths = {"prompt": reader.count(PROMPT, 512), "output": reader.count(ANSWER, 512)}
    reader.put(("rollout", "traffic"), lengths, ANSWER)


def _step(reader: StepReader) -> None:
    """Put the prompts and the models that process each answer into the step."""
    reader.put_samples((PROMPTS, 1024), SAMPLES, EPOCHS)
    reference = reader.flag(KL_LOSS) or reader.flag(KL_REWARD)
    reader.put_scorers(KL_LOSS, reference=reference, rewards=reader.flag("reward_model.enable"))
    if (reader.text(ADVANTAGE) or CRITIC) == CRITIC:
        reader.put_critic(ADVANTAGE, "critic.model.path", f"{MODEL}.path")
