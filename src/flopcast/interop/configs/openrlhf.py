"""Commands of OpenRLHF's trainers as jobs: supervised tuning, DPO, and reward models.

Answers: which model, plan and stack does `openrlhf.cli.train_sft` (or train_dpo, train_rm) use?
Elsewhere: the arguments of a command (trainer_commands.py), keys that change no step
(tables/openrlhf.yaml), reinforcement learning, which is a separate kind of job (docs/howto/rl.md).

References
----------
OpenRLHF/OpenRLHF: openrlhf/cli/train_sft.py, train_dpo.py, train_rm.py (names, defaults; newer releases
have sections), utils/deepspeed (the DeepSpeed configuration that they create: bf16, gradients summed in
the type `grad_accum_dtype`, `overlap_comm` off, and Adam on the host with `adam_offload`).
"""

from flopcast.interop.configs import deepspeed
from flopcast.interop.configs.job_reader import PAIR, SHARDED_STATES, JobReader
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.trainers import read_adapters, refuse_frozen

COMMAND, RANKS = "launcher.command", "launcher.ranks"
MODEL = ("pretrain", "model.model_name_or_path", "actor.model_name_or_path")
LENGTH, PACKED = ("max_len", "data.max_len"), ("packing_samples", "data.packing_samples")
BATCH = ("train_batch_size", "train.batch_size")
MICRO = ("micro_train_batch_size", "train.micro_batch_size")
STAGE, ON_HOST = ("zero_stage", "ds.zero_stage"), ("adam_offload", "ds.adam_offload")
OVERLAPS, RING = ("overlap_comm", "ds.overlap_comm"), ("ring_attn_size", "ds.ring_attn_size")
TENSOR = ("ds_tensor_parallel_size", "ds.tensor_parallel_size")
CHECKPOINTING = (
    "gradient_checkpointing",
    "model.gradient_checkpointing_enable",
    "actor.gradient_checkpointing_enable",
)
ATTENTION = ("attn_implementation", "ds.attn_implementation")
TYPE = ("param_dtype", "ds.param_dtype")
ADAPTER_RANK, TARGETS = ("lora_rank", "lora.rank"), ("target_modules", "lora.target_modules")
FOUR_BITS = ("load_in_4bit", "ds.load_in_4bit")
OPTIMIZER, EPOCHS = "optimizer", ("max_epochs", "train.max_epochs")


def read(reader: JobReader) -> None:
    """Read the job of a command.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> flags = {"pretrain": "meta-llama/Meta-Llama-3-8B", "max_len": 2048, "micro_train_batch_size": 2,
    ...     "zero_stage": 3, "launcher": {"command": "openrlhf.cli.train_sft", "ranks": 8}}
    >>> job = read_kind(Document("sft.sh", flags, {}), "openrlhf", ImportOptions())
    >>> job.data["plan"]["global_batch"], job.data["plan"]["zero"], job.data["batch"]
    (128, 3, {'sequence_length': 2048})
    """
    kind = {"dpo": "reference", "rm": "reward"}.get(reader.text(COMMAND).rpartition("_")[2], "")
    reader.read_model(reader.first(*MODEL))
    key = reader.first(*LENGTH)
    reader.put(("batch", "sequence_length"), reader.count(key, 2048), key)
    packed = reader.flag(reader.first(*PACKED))
    reader.note_lengths(reader.first(*PACKED) if packed else key, packed)
    _batch(reader, PAIR if kind else 1)
    put_states(reader)
    put_adapters(reader)
    reader.put_epochs(*EPOCHS)
    reader.put_preference(kind, COMMAND)
    reader.put_checkpointing(reader.first(*CHECKPOINTING))
    usual = "flash" if reader.flag("flash_attn", True) else "eager"
    if reader.choice(reader.first(*ATTENTION), reader.words("attention"), usual) == "eager":
        reader.write_scores(reader.first(*ATTENTION), "flash_attn")


def _batch(reader: JobReader, sequences: int) -> None:
    """Put degrees and the batch into the plan; the batch in the command counts all replicas."""
    replicas = put_degrees(reader, reader.count(RANKS) if reader.has(RANKS) else None, RANKS)
    micro, whole = (reader.first(*MICRO), 8), (reader.first(*BATCH), 128)
    reader.put_whole_batch(micro, whole, replicas, "samples", sequences)


def put_degrees(reader: JobReader, stated: int | None, *keys: str) -> int:
    """Put degrees into the plan; return the number of replicas.

    `stated` is the number of devices according to `keys`.
    """
    ring = reader.first(*RING)
    degrees = {"context_parallel": ring, "tensor_parallel": reader.first(*TENSOR)}
    replicas = reader.put_degrees(degrees, stated, *keys)
    if reader.degree("context_parallel") > 1:
        reader.put(("plan", "context_order"), "zigzag", ring)
    return replicas


def put_states(reader: JobReader) -> None:
    """Put sharding, precision, optimizer and the stack into the job."""
    precision = reader.choice(reader.first(*TYPE), {name: name for name in ("bf16", "fp16")}, "bf16")
    reader.put(("plan", "precision"), precision, *TYPE)
    key = reader.first(*STAGE)
    stage = deepspeed.put_stage(reader, min(reader.count(key, 2, least=0), 3), precision, key)
    if reader.count(key, 2, least=0) > 3:
        reader.fault(key, "0, 1, 2 or 3", "DeepSpeed has no other stage", "write 3")
    reader.put(("plan", "zero"), stage, key)
    optimizers = {"adam": "adamw", **keys_of("trainers").words["optimizers"]}
    reader.put_named_optimizer(reader.text(OPTIMIZER).lower(), optimizers, OPTIMIZER)
    gradients = {"dtype": precision, "overlap": reader.flag(reader.first(*OVERLAPS))}
    stack: dict[str, object] = {"base": "deepspeed-zero", "gradients": gradients}
    if reader.flag(reader.first(*ON_HOST)):
        reader.place(SHARDED_STATES[:1], *ON_HOST)
        stack["offload"] = {"gradient_copies": "pinned"}
    reader.put(("stack",), stack, *STAGE)


def put_adapters(reader: JobReader) -> None:
    """Put adapters into the model if their rank is above 0."""
    rank, four = reader.first(*ADAPTER_RANK), reader.first(*FOUR_BITS)
    quantised = reader.flag(four)
    if not reader.count(rank, 0, least=0):
        if quantised:
            refuse_frozen(reader, four, "false, unless lora_rank is above 0", "add --lora_rank 16", rank)
        return
    targets = reader.first(*TARGETS)
    every = reader.names_all_linears(targets)
    read_adapters(reader, rank, targets, every, four if quantised else "")
