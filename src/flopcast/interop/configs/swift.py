"""ms-swift's YAML and commands as jobs: `swift sft`, `swift pt`, and `swift rlhf` on preferences.

Answers: which model, plan and stack does ms-swift run with these settings?
Elsewhere: the words of a command (trainer_commands.py), what it has in common with other trainers
(trainers.py), keys that change no step (tables/ms-swift.yaml).

References
----------
modelscope/ms-swift: swift/llm/argument (names; defaults: one sequence of a device, gradient checkpointing,
adapters of rank 8 on all linears; without accumulation steps, as many as make 16 sequences),
swift/trainers/sequence_parallel (ranks share sequences by heads).
"""

from math import ceil

from flopcast.files.yaml_text import Document
from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.model_names import read_model
from flopcast.interop.configs.trainers import (
    Adapter,
    Names,
    names_all_linears,
    note_lengths,
    read_adapters,
    read_training,
    write_scores,
)
from flopcast.interop.configs.tuning import KTO_PASSES, PAIR, note_pairs, put_reference, put_score
from flopcast.records import replace

RANKS, MODEL = "launcher.ranks", ("model", "model_id_or_path")
METHOD, METHODS = ("train_type", "tuner_type", "sft_type"), {"lora": "lora", "full": "full"}
LENGTH, CHECKPOINTING, KIND = "max_length", "gradient_checkpointing", "rlhf_type"
STEPS, MICRO, SEQUENCES = "gradient_accumulation_steps", "per_device_train_batch_size", 16
CONTEXT, TARGETS, BITS = "sequence_parallel_size", "target_modules", "quant_bits"
NAMES = Names(micro=MICRO, steps=STEPS, optimizer="optim", default_micro=1, context=(CONTEXT,))
KINDS = {name: name for name in ("dpo", "kto", "rm", "orpo", "simpo", "cpo")}
PAIRED = ("dpo", "rm", "orpo", "simpo", "cpo")
ATTENTION = dict.fromkeys(("flash_attn", "flash_attention_2", "flash_attention_3", "sdpa"), "flash")
ATTENTION |= {"eager": "materialised"}
TYPES = {"bfloat16": "bf16", "float16": "fp16"}
USUAL = Adapter(8, 0.05, ())


def read(document: Document, options: ImportOptions) -> Document:
    """Return the job of a file, or of a command.

    Examples
    --------
    >>> job = read(Document("sft.yaml", {"model": "Qwen/Qwen2.5-7B-Instruct", "train_type": "full",
    ...     "torch_dtype": "bfloat16", "max_length": 4096, "deepspeed": "zero3"}, {}),
    ...     ImportOptions(devices=8))
    >>> job.data["plan"]["zero"], job.data["plan"]["global_batch"], job.data["plan"]["recompute"]
    (3, 16, 'full')
    """
    keys = keys_of("ms-swift")
    data = dict(document.data) if isinstance(document.data, dict) else {}
    if str(data.get("torch_dtype")) == "bfloat16":
        data.setdefault("bf16", True)
    document = replace(document, data=data)
    reader = ConfigReader(document, keys, options)
    stated = reader.count(RANKS) if reader.has(RANKS) else None
    if not reader.has(STEPS):
        ranks = options.devices or stated or options.whole or 1
        steps = max(1, ceil(SEQUENCES / reader.count(MICRO) / ranks))
        reader = ConfigReader(replace(document, data=data | {STEPS: steps}), keys, options)
        reader.assume(f"{STEPS} {steps}, ms-swift's default")
    read_model(reader, reader.first(*MODEL))
    if reader.has(LENGTH):
        reader.put(("batch", "sequence_length"), reader.count(LENGTH), LENGTH)
        note_lengths(reader, "packing" if reader.has("packing") else LENGTH, reader.flag("packing"))
    kind = reader.choice(KIND, KINDS, "")
    _dtype(reader)
    read_training(reader, NAMES, stated, PAIR if kind in PAIRED else 1)
    if reader.degree("context_parallel") > 1:
        reader.put(("plan", "context_exchange"), "all_to_all", CONTEXT)
    _adapters(reader)
    _preferences(reader, kind)
    if reader.flag(CHECKPOINTING, True):
        if not reader.has(CHECKPOINTING):
            reader.assume("recompute full, ms-swift's default")
        reader.put(("plan", "recompute"), "full", CHECKPOINTING)
    if reader.choice("attn_impl", ATTENTION, "flash") == "materialised":
        write_scores(reader, "attn_impl")
    return reader.made()


def _dtype(reader: ConfigReader) -> None:
    """Check that the type of weights is that of the GEMMs; weights in fp32 are not supported."""
    dtype = reader.choice("torch_dtype", TYPES, "")
    if dtype == "fp16" and not reader.flag("fp16"):
        because = "the keys fp16 and bf16 state the data type of GEMMs, and fp16 is not true"
        reader.fault("torch_dtype", "bfloat16, unless fp16 is true", because, "add fp16: true")


def _preferences(reader: ConfigReader, kind: str) -> None:
    """Put the reference or the head of preference tuning into the model."""
    if kind in PAIRED and kind != "rm":
        note_pairs(reader, KIND)
    if kind in ("dpo", "kto"):
        put_reference(reader, KIND, passes=KTO_PASSES if kind == "kto" else 1)
    if kind == "rm":
        put_score(reader, KIND)


def _adapters(reader: ConfigReader) -> None:
    """Put adapters into the model, over weights of 16 or 4 bits, unless all weights are trained."""
    key = reader.first(*METHOD)
    bits = reader.count(BITS, 0) if reader.has(BITS) else 0
    if bits and bits != 4:
        reader.refuse(BITS, f"frozen weights in {bits} bits", "write 4")
    if reader.choice(key, METHODS, "lora") == "full":
        if bits:
            because = "4-bit weights are frozen, so a run without an adapter would train nothing"
            reader.fault(BITS, "no value, unless train_type is lora", because, "remove it")
        return
    if not reader.has(*METHOD):
        reader.assume("adapters of rank 8, ms-swift's default without train_type")
    every = names_all_linears(reader, TARGETS, "ALL", "DEFAULT")
    read_adapters(reader, "lora_rank", TARGETS, every, BITS if bits else "", USUAL)
