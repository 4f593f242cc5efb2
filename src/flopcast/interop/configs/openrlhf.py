"""Commands of OpenRLHF's trainers as jobs: supervised tuning, DPO, and reward models.

Answers: which model, plan and stack does `openrlhf.cli.train_sft` (or train_dpo, train_rm) ask for?
Elsewhere: the words of a command (trainer_commands.py), keys that change no step (tables/openrlhf.yaml),
reinforcement learning, which has a job of its own (docs/howto/rl.md).

References
----------
OpenRLHF/OpenRLHF: openrlhf/cli/train_sft.py, train_dpo.py, train_rm.py (names, defaults; newer releases
have sections), utils/deepspeed (the configuration of DeepSpeed that they make: bf16, gradients summed in
the type `grad_accum_dtype`, `overlap_comm` off, and Adam on the host under `adam_offload`).
"""

from flopcast.files.yaml_text import Document
from flopcast.interop.configs import deepspeed
from flopcast.interop.configs.batches import put_whole_batch
from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.model_names import read_model
from flopcast.interop.configs.placements import SHARDED_STATES, place
from flopcast.interop.configs.trainers import (
    OPTIMIZERS,
    names_all_linears,
    note_lengths,
    read_adapters,
    write_scores,
)
from flopcast.interop.configs.tuning import PAIR, note_pairs, put_reference, put_score

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
KERNELS = {"flash_attention_2": "flash", "flash_attention_3": "flash", "sdpa": "flash", "eager": "eager"}
TYPES, TYPE = {"bf16": "bf16", "fp16": "fp16"}, ("param_dtype", "ds.param_dtype")
ADAPTER_RANK, TARGETS = ("lora_rank", "lora.rank"), ("target_modules", "lora.target_modules")
FOUR_BITS = ("load_in_4bit", "ds.load_in_4bit")
OPTIMIZER = "optimizer"


def read(document: Document, options: ImportOptions) -> Document:
    """Return the job of a command.

    Examples
    --------
    >>> flags = {"pretrain": "meta-llama/Meta-Llama-3-8B", "max_len": 2048, "micro_train_batch_size": 2,
    ...     "zero_stage": 3, "launcher": {"command": "openrlhf.cli.train_sft", "ranks": 8}}
    >>> job = read(Document("sft.sh", flags, {}), ImportOptions())
    >>> job.data["plan"]["global_batch"], job.data["plan"]["zero"], job.data["batch"]
    (128, 3, {'sequence_length': 2048})
    """
    reader = ConfigReader(document, keys_of("openrlhf"), options)
    trained = reader.text(COMMAND).rpartition("_")[2]
    read_model(reader, reader.first(*MODEL))
    key = reader.first(*LENGTH)
    reader.put(("batch", "sequence_length"), reader.count(key, 2048), key)
    packed = reader.flag(reader.first(*PACKED))
    note_lengths(reader, reader.first(*PACKED) if packed else key, packed)
    _batch(reader, PAIR if trained in ("dpo", "rm") else 1)
    put_states(reader)
    put_adapters(reader)
    if trained == "dpo":
        note_pairs(reader, COMMAND)
        put_reference(reader, COMMAND)
    if trained == "rm":
        put_score(reader, COMMAND)
    key = reader.first(*CHECKPOINTING)
    if reader.flag(key):
        reader.put(("plan", "recompute"), "full", key)
    usual = "flash" if reader.flag("flash_attn", True) else "eager"
    if reader.choice(reader.first(*ATTENTION), KERNELS, usual) == "eager":
        write_scores(reader, reader.first(*ATTENTION), "flash_attn")
    return reader.made()


def _batch(reader: ConfigReader, sequences: int) -> None:
    """Put degrees and batch into the plan; the batch of the command is that of all replicas."""
    replicas = put_degrees(reader, reader.count(RANKS) if reader.has(RANKS) else None, RANKS)
    micro, whole = (reader.first(*MICRO), 8), (reader.first(*BATCH), 128)
    put_whole_batch(reader, micro, whole, replicas, "samples", sequences)


def put_degrees(reader: ConfigReader, stated: int | None, *keys: str) -> int:
    """Put degrees into the plan; return the number of replicas.

    `stated` is the number of devices that `keys` state.
    """
    ring_key, tensor_key = reader.first(*RING), reader.first(*TENSOR)
    ring, tensor = reader.count(ring_key, 1), reader.count(tensor_key, 1)
    ranks = reader.ranks(stated, share=ring * tensor, shared=ring_key if ring > 1 else tensor_key)
    replicas = max(ranks // (ring * tensor), 1)
    reader.put(("plan", "data_parallel"), replicas, *keys)
    reader.put_degree("tensor_parallel", tensor, tensor_key)
    reader.put_degree("context_parallel", ring, ring_key)
    if ring > 1:
        reader.put(("plan", "context_order"), "zigzag", ring_key)
    return replicas


def put_states(reader: ConfigReader) -> None:
    """Put sharding, precision, optimizer and the stack into the job."""
    precision = reader.choice(reader.first(*TYPE), TYPES, "bf16")
    reader.put(("plan", "precision"), precision, *TYPE)
    key = reader.first(*STAGE)
    stage = deepspeed.put_stage(reader, min(reader.count(key, 2, least=0), 3), precision, key)
    if reader.count(key, 2, least=0) > 3:
        reader.fault(key, "0, 1, 2 or 3", "DeepSpeed has no other stage", "write 3")
    reader.put(("plan", "zero"), stage, key)
    name = reader.text(OPTIMIZER).lower()
    kind = next((kind for kind, names in OPTIMIZERS.items() if name in names), None)
    if name and kind is None:
        reader.assume(f"the optimizer step is predicted as that of AdamW instead of {name}", OPTIMIZER)
    reader.put_optimizer(kind or "adamw", OPTIMIZER)
    gradients = {"dtype": precision, "overlap": reader.flag(reader.first(*OVERLAPS))}
    stack: dict[str, object] = {"base": "deepspeed-zero", "gradients": gradients}
    if reader.flag(reader.first(*ON_HOST)):
        place(reader, SHARDED_STATES[:1], *ON_HOST)
        stack["offload"] = {"gradient_copies": "pinned"}
    reader.put(("stack",), stack, *STAGE)


def put_adapters(reader: ConfigReader) -> None:
    """Put adapters into the model if their rank is above 0."""
    rank, four = reader.first(*ADAPTER_RANK), reader.first(*FOUR_BITS)
    quantised = reader.flag(four)
    if not reader.count(rank, 0, least=0):
        if quantised:
            because = "4-bit weights are frozen, so a run without an adapter would train nothing"
            reader.fault(four, "false, unless lora_rank is above 0", because, "add --lora_rank 16")
        return
    targets = reader.first(*TARGETS)
    every = names_all_linears(reader, targets)
    read_adapters(reader, rank, targets, every, four if quantised else "")
