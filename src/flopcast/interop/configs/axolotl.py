"""Axolotl's YAML as a job: fine-tuning with adapters or without.

Answers: which model, plan and stack does an Axolotl file describe?
Elsewhere: settings that it shares with other trainers (trainers.py).

References
----------
axolotl-ai-cloud/axolotl: docs/config-reference.qmd, src/axolotl/utils/schemas (names and defaults),
src/axolotl/core/builders/rl.py (trainers of TRL; a separate reference model only without adapters, or with
`rl_adapter_ref_model`).
"""

from flopcast.interop.configs.job_reader import ACTIVATIONS, PAIR, PAIRED, JobReader
from flopcast.interop.configs.trainers import (
    read_adapters,
    read_training,
    refuse_frozen,
    refuse_lone_offload,
)

ADAPTERS = {"lora": "lora", "qlora": "qlora", "": ""}
OFFLOADING = "activation_offloading"
STEPS, WHOLE_BATCH = "gradient_accumulation_steps", "batch_size"
RL, REWARD, OWN_REFERENCE = "rl", "reward_model", "rl_adapter_ref_model"


def read(reader: JobReader) -> None:
    """Read the job in an Axolotl file.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> job = read_kind(Document("lora.yml",
    ...     {"base_model": "Qwen/Qwen3-8B", "sequence_len": 2048, "bf16": True,
    ...     "micro_batch_size": 2, "adapter": "lora", "lora_r": 16, "lora_target_linear": True}, {}),
    ...     "axolotl", ImportOptions(devices=4))
    >>> job.data["plan"]["global_batch"], job.data["model"]["adapters"]["rank"], job.data["stack"]
    (8, 16, 'pytorch-ddp')
    """
    reader.read_model("base_model")
    reader.put(("batch", "sequence_length"), reader.count("sequence_len", 512), "sequence_len")
    packing = "sample_packing"
    reader.note_lengths(packing if reader.has(packing) else "sequence_len", reader.flag(packing))
    kind = _learns_from(reader)
    if reader.has(WHOLE_BATCH):
        given = f"{STEPS}: {max(reader.count(WHOLE_BATCH, 1) // reader.count('micro_batch_size', 1), 1)}"
        written = f"{WHOLE_BATCH}: {reader.raw(WHOLE_BATCH)}"
        fix = f"remove {WHOLE_BATCH}" if reader.has(STEPS) else f"write {given} in place of {written}"
        because = f"Axolotl accepts only one of {STEPS} and {WHOLE_BATCH}, and recommends {STEPS}"
        reader.fault(WHOLE_BATCH, f"{STEPS}, without {WHOLE_BATCH}", because, fix)
    read_training(reader, sequences=PAIR if kind in PAIRED else 1, usual_micro=1)
    _adapter(reader)
    own = kind in ("reference", "kto") and reader.flag(OWN_REFERENCE)
    reader.put_preference(kind, REWARD if kind == "reward" else RL, own=own)
    _recompute(reader)
    eager = reader.flag("eager_attention") or reader.text("attn_implementation") == "eager"
    if eager:
        reader.write_scores("eager_attention", "attn_implementation")


def _learns_from(reader: JobReader) -> str:
    """Return the method of preference learning or reward modelling; "" in supervised tuning."""
    if str(reader.raw(RL)).lower() in ("grpo", "gdpo"):
        reader.refuse(RL, "reinforcement learning in Axolotl")
        return ""
    kind = reader.choice(RL, reader.words("losses"), "")
    return "reward" if reader.flag(REWARD) else kind


def _adapter(reader: JobReader) -> None:
    """Read adapters, over weights of 16 or 4 bits; without adapters, all weights are trained."""
    kind = reader.choice("adapter", ADAPTERS, "")
    four, eight = reader.flag("load_in_4bit"), reader.flag("load_in_8bit")
    because = "Axolotl trains QLoRA only over frozen weights in 4 bits"
    has_other_bits = kind == "qlora" and eight and not reader.has("load_in_4bit")
    if has_other_bits:
        fix = "write load_in_4bit: true in place of load_in_8bit: true"
        reader.fault("load_in_8bit", "false, because adapter is qlora", because, fix)
    elif eight:
        reader.refuse("load_in_8bit", "training with frozen weights in 8 bits", "write load_in_8bit: false")
    if kind == "":
        if four:
            allowed, fix = "false, because no adapter is given", "add adapter: qlora"
            refuse_frozen(reader, "load_in_4bit", allowed, fix, "adapter")
        return
    if kind == "qlora" and not four and not has_other_bits:
        is_given, allowed = reader.has("load_in_4bit"), "true, because adapter is qlora"
        fix = f"{'write' if is_given else 'add load_in_4bit:'} true, or write adapter: lora"
        reader.fault("load_in_4bit", allowed, because, fix, "" if is_given else "is missing")
    quantised = "load_in_4bit" if four else ""
    every = reader.flag("lora_target_linear") or reader.raw("lora_target_modules") == "all-linear"
    if not reader.has("lora_r"):
        reader.fault("lora_r", "a whole number", "an adapter needs a rank", "add lora_r: 16", "is missing")
    every = every or reader.faulty("lora_target_linear")
    read_adapters(reader, "lora_r", "lora_target_modules", every, quantised)


def _recompute(reader: JobReader) -> None:
    """Read recompute of whole blocks if checkpointing is on in the trainer or in FSDP.

    Checkpoints may be on the host. "unsloth" and "offload" are old names for this setting.
    """
    key = "gradient_checkpointing"
    mode = reader.choice(key, reader.words("checkpoints"), "")
    inner = "fsdp_checkpointing"
    moved = reader.choice(OFFLOADING, reader.words("offloads"), "")
    if moved and not mode and not reader.faulty(key):
        refuse_lone_offload(reader, OFFLOADING, key)
    if "disk" in (mode, moved):
        what = "offload of activation checkpoints to drives"
        reader.refuse(OFFLOADING if moved == "disk" else key, what, "write true")
    if mode or reader.flag(inner):
        reader.put(("plan", "recompute"), "full", key, inner)
    if "offload" in (mode, moved):
        reader.place(ACTIVATIONS, OFFLOADING, key)
