"""ms-swift's YAML and commands as jobs: `swift sft`, `swift pt`, and `swift rlhf` on preferences.

Answers: which model, plan and stack does ms-swift use with these settings?
Elsewhere: the arguments of a command (trainer_commands.py), settings that it shares with other trainers
(trainers.py), keys that change no step (tables/ms-swift.yaml).

References
----------
modelscope/ms-swift: swift/llm/argument (names; defaults: one sequence per device, gradient checkpointing,
adapters of rank 8 on all linear layers; by default, as many accumulation steps as give 16 sequences),
swift/trainers/sequence_parallel (ranks divide sequences by heads).
"""

from math import ceil

from flopcast.interop.configs.job_reader import PAIR, PAIRED, JobReader
from flopcast.interop.configs.trainers import Adapter, read_adapters, read_training, refuse_frozen

METHODS = {"lora": "lora", "full": "full"}
SEQUENCES = 16
KINDS = {
    "dpo": "reference",
    "kto": "kto",
    "rm": "reward",
    **dict.fromkeys(("orpo", "simpo", "cpo"), "alone"),
}
GENERATING = ("grpo", "ppo", "gkd")
USUAL = Adapter(8, 0.05, ())


def read(reader: JobReader) -> None:
    """Read the job of a file, or of a command.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> job = read_kind(Document("sft.yaml", {"model": "Qwen/Qwen2.5-7B-Instruct", "train_type": "full",
    ...     "torch_dtype": "bfloat16", "max_length": 4096, "deepspeed": "zero3"}, {}),
    ...     "ms-swift", ImportOptions(devices=8))
    >>> job.data["plan"]["zero"], job.data["plan"]["global_batch"], job.data["plan"]["recompute"]
    (3, 16, 'full')
    """
    if str(reader.raw("torch_dtype")) == "bfloat16":
        reader.fill("bf16", True)
    stated = reader.count("ranks") if reader.has("ranks") else None
    if not reader.has("steps"):
        ranks = reader.options.devices or stated or reader.options.whole or 1
        steps = max(1, ceil(SEQUENCES / reader.count("micro") / ranks))
        reader.fill("steps", steps)
        reader.assume(f"{reader.first('steps')} is {steps}, which is ms-swift's default")
    reader.read_model("model")
    if reader.has("length"):
        reader.put(("batch", "sequence_length"), reader.count("length"), "length")
        reader.note_lengths("packing" if reader.has("packing") else "length", reader.flag("packing"))
    if reader.text("kind") in GENERATING:
        reader.refuse("kind", "training that generates answers in ms-swift")
    kind = "" if reader.faulty("kind") else reader.choice("kind", KINDS, "")
    _dtype(reader)
    read_training(reader, stated, PAIR if kind in PAIRED else 1, usual_micro=1)
    if reader.degree("context_parallel") > 1:
        reader.put(("plan", "context_exchange"), "all_to_all", "context")
    _adapters(reader)
    reader.put_preference(kind, "kind")
    if reader.flag("checkpointing", True):
        if not reader.has("checkpointing"):
            reader.assume("recompute=full, which is ms-swift's default")
        reader.put(("plan", "recompute"), "full", "checkpointing")
    if reader.choice("attn_impl", reader.words("attention"), "flash") == "materialised":
        reader.write_scores("attn_impl")


def _dtype(reader: JobReader) -> None:
    """Check that the type of weights equals that of the GEMMs; weights in fp32 are not supported."""
    dtype = reader.choice("torch_dtype", reader.words("dtypes"), "")
    if dtype == "fp16" and not reader.flag("fp16"):
        because = "the keys fp16 and bf16 state the data type of GEMMs, and fp16 is not true"
        reader.fault("torch_dtype", "bfloat16, unless fp16 is true", because, "add fp16: true")


def _adapters(reader: JobReader) -> None:
    """Put adapters into the model, over weights of 16 or 4 bits, unless all weights are trained."""
    bits = reader.count("bits", 0) if reader.has("bits") else 0
    if bits and bits != 4:
        reader.refuse("bits", f"frozen weights in {bits} bits", "write 4")
    if reader.choice("method", METHODS, "lora") == "full":
        if bits:
            refuse_frozen(reader, "bits", "no value, unless train_type is lora", "remove it", "method")
        return
    if not reader.has("method"):
        reader.assume("adapters have rank 8, as in ms-swift if train_type is not given")
    every = reader.names_all_linears("targets", "ALL", "DEFAULT")
    read_adapters(reader, "lora_rank", "targets", every, "bits" if bits else "", USUAL)
