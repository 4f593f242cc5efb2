"""veRL's supervised tuning as a job: YAML, and scripts with overrides.

Answers: which model, plan and stack does a run of veRL's SFT trainer use?
Elsewhere: its keys (tables/verl.yaml), settings that it shares with other trainers (trainers.py), flags of
Megatron-Core (megatron_settings.py).

References
----------
volcengine/verl: verl/trainer/config/sft_trainer.yaml (names, defaults), verl/trainer/fsdp_sft_trainer.py:
FSDP shards parameters over all ranks and multiplies in bf16; the batch counts all replicas; the ranks of
Ulysses divide sequences by heads. The newer trainer, verl/trainer/sft_trainer.py, has a section for its
engine, FSDP or Megatron-Core (verl/trainer/config/engine, model/hf_model.yaml, sft_trainer_engine.yaml).
It fills micro-batches up to a number of tokens. Both set enable_gradient_checkpointing to true (the older
one in its newer releases). With pad_mode=left_right, the length of a sequence is that of a prompt plus
that of a response (verl/utils/dataset/multiturn_sft_dataset.py).
"""

from collections.abc import Mapping
from math import prod

from flopcast.interop.configs.job_reader import ACTIVATIONS, SHARDED_STATES, JobReader
from flopcast.interop.configs.megatron_settings import DIVIDING, TranslatedFlags
from flopcast.interop.configs.narrow_states import NARROW, narrowed
from flopcast.interop.configs.trainers import read_adapters
from flopcast.spec.divisors import nearest_multiples
from flopcast.spec.switches import TUNING_CODE

MODEL = ("model.partial_pretrain", "model.path")
SIDES = ("data.max_prompt_length", "data.max_response_length")
PACKED = ("use_remove_padding", "model.use_remove_padding")
MICRO, OLDER_MICRO = "data.micro_batch_size_per_gpu", "data.micro_batch_size"
GROUP = "engine.group"  # `engine=megatron` of a script
MEGATRON = "engine.tensor_model_parallel_size"
CORE = "engine.override_transformer_config"
MOVES = ("param_offload", "grad_offload", "optimizer_offload")  # between steps


def read(reader: JobReader) -> None:
    """Read the job of a file or command for veRL's SFT trainer.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> job = read_kind(Document("sft.yaml", {
    ...     "data": {"train_batch_size": 64, "micro_batch_size_per_gpu": 4, "max_length": 2048},
    ...     "model": {"partial_pretrain": "Qwen/Qwen2.5-7B"}}, {}), "verl", ImportOptions(devices=8))
    >>> job.data["plan"]["global_batch"], job.data["plan"]["zero"], job.data["stack"]["base"]
    (64, 3, 'torch-fsdp2')
    """
    newer = reader.below("engine") or reader.has(MODEL[1])
    reader.read_model(MODEL[newer])
    both_sides = reader.text("data.pad_mode") == "left_right"
    length = sum(reader.count(key, 512) for key in SIDES) if both_sides else reader.count("length", 1024)
    reader.put(("batch", "sequence_length"), length, *(SIDES if both_sides else ("length",)))
    reader.note_lengths("length", packed=False)
    if newer and _engine(reader) == "megatron":
        _megatron(reader, length)
    else:
        _fsdp(reader, length, newer)
    if reader.count("adapter_rank", 0, least=0):
        read_adapters(reader, "adapter_rank", "targets", reader.names_all_linears("targets"), "")


def _engine(reader: JobReader) -> str:
    """Return the engine of the newer trainer; states that it moves between steps are refused."""
    for name in MOVES:
        if reader.flag(f"engine.{name}"):
            reader.refuse(f"engine.{name}", "states that move to the host and back in every step")
    if reader.has(MEGATRON):
        return "megatron"
    return reader.choice(reader.first(GROUP, "engine.strategy"), reader.words("engines"), "fsdp")


def _fsdp(reader: JobReader, length: int, newer: bool) -> None:
    """Put the plan and the stack of FSDP into the job."""
    context_key = "context"
    context = reader.count(context_key, 1)
    replicas = _replicas(reader, {context_key: context})
    reader.put(("plan", "data_parallel"), replicas, "nodes", "devices")
    reader.put_degree("context_parallel", context, context_key)
    packed = reader.first(*PACKED)
    unpadded = reader.flag(packed)
    if context > 1:
        reader.put(("plan", "context_exchange"), "all_to_all", context_key)
        if not unpadded:
            because = "ranks can share a sequence only if padding is removed"
            name = packed if reader.has(packed) else context_key
            reader.fault(name, "true", because, f"write {PACKED[newer]}: true")
    if newer and reader.flag("dynamic", True):
        reader.put(("plan", "micro_batch"), _filled(reader, length, replicas, context), "most_tokens")
        reader.put(("plan", "global_batch"), reader.count("batch", 256), "batch")
    else:
        if reader.has(OLDER_MICRO):
            because = (
                "old releases of veRL divide this number by the number of data-parallel ranks, and "
                "newer releases ignore it"
            )
            fix = f"write {MICRO}, the number of sequences of a device"
            fix = f"remove {OLDER_MICRO}" if reader.has(MICRO) else fix
            reader.fault(OLDER_MICRO, MICRO, because, fix)
        reader.put_whole_batch((MICRO, 4), ("batch", 256), replicas, "sequences")
    if not newer and reader.flag("dynamic"):
        reader.refuse("dynamic", "micro-batches whose number of sequences varies")
    reader.put(("plan", "zero"), 3)
    reader.put(("plan", "precision"), "bf16")
    if not newer:
        reader.choice("model.strategy", reader.words("older_engines"), "fsdp")
    group = reader.count("engine.fsdp_size", -1, least=-1) // context
    reader.put_shards(group, replicas, "engine.fsdp_size")
    older, policy = "model.fsdp_config.cpu_offload", "engine.offload_policy"
    if reader.flag(policy) or (reader.flag(older) and reader.flag("model.fsdp_config.offload_params")):
        reader.place(SHARDED_STATES, policy, older)
    if not reader.has("checkpointing"):
        reader.assume("recompute=full, which is veRL's default in newer releases")
    reader.put_checkpointing("checkpointing", True)
    reader.place_if("model.enable_activation_offload", ACTIVATIONS)
    stack: dict[str, object] = {"base": "torch-fsdp2", **TUNING_CODE}
    if not reader.flag("engine.reshard_after_forward", True):
        stack["sharding"] = {"gathers": "every_micro_batch"}
    dtype = reader.first("engine.model_dtype", "model.fsdp_config.model_dtype")
    narrow = reader.choice(dtype, NARROW, "")
    reader.put(("stack",), narrowed(stack) if narrow else stack, "engine.reshard_after_forward", dtype)


def _replicas(reader: JobReader, degrees: Mapping[str, int]) -> int:
    """Return the number of replicas; `degrees` maps keys to the degrees of parallelism in a replica."""
    stated = reader.count("ranks") if reader.has("ranks") else None
    if stated is None and reader.has("nodes", "devices"):
        stated = reader.count("nodes", 1) * reader.count("devices", 8)
    return reader.replicas(degrees, stated)


def _filled(reader: JobReader, length: int, replicas: int, context: int) -> int:
    """Return the number of sequences that fill each micro-batch up to its limit on tokens."""
    total = reader.count("batch", 256)
    if total % replicas:
        because = f"each of the {replicas} replicas runs the same number of sequences"
        fix = f"write {nearest_multiples(total, replicas)}"
        reader.fault("batch", f"a multiple of {replicas}", because, fix)
    share = max(total // replicas, 1)
    tokens = ("most_tokens", reader.count("most_tokens", 8192))
    return reader.filled_micro_batch(tokens, length, share, context)


def _megatron(reader: JobReader, length: int) -> None:
    """Put the plan and the stack of Megatron-Core into the job, from its flags."""
    flags = TranslatedFlags(reader)
    flags.section("engine", "model", skipped=("sequence_parallel",))  # it is on by default
    flags.section(CORE, "model")
    keys = [f"engine.{name}_parallel_size" for name in DIVIDING]
    degrees = {key: reader.count(key) for key in keys}
    replicas = _replicas(reader, degrees)
    for flag, key in (
        ("--sequence-parallel", "engine.sequence_parallel"),
        ("--use-distributed-optimizer", "engine.use_distributed_optimizer"),
    ):
        if reader.flag(key, True):
            flags.add(flag, key)
    flags.add("--fp16" if reader.text("engine.dtype") == "float16" else "--bf16", "engine.dtype")
    filled = reader.flag("dynamic", True)
    micro = _filled(reader, length, replicas, degrees[keys[2]]) if filled else reader.count(MICRO, 4)
    flags.add("--micro-batch-size", "most_tokens" if filled else MICRO, micro)
    flags.add("--global-batch-size", "batch", reader.count("batch", 256))
    flags.read_plan(prod(degrees.values()) * replicas)
    reader.put(("stack",), "megatron-core-2025", GROUP)
