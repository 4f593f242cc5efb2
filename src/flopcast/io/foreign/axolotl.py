"""Axolotl's YAML as a job: fine-tuning with adapters or without.

Answers: which model, plan and stack does a file of Axolotl ask for?
Elsewhere: what it has in common with other trainers (tuning.py).

References
----------
axolotl-ai-cloud/axolotl: docs/config-reference.qmd, src/axolotl/utils/schemas (names and defaults).
"""

from flopcast.io.foreign.keys import keys_of
from flopcast.io.foreign.names import read_model
from flopcast.io.foreign.sheet import Asked, Sheet
from flopcast.io.foreign.tuning import Names, read_adapters, read_training, tell_lengths, write_scores
from flopcast.io.yaml_text import Document

NAMES = Names(
    micro="micro_batch_size",
    steps="gradient_accumulation_steps",
    optimizer="optimizer",
    tensor=("tensor_parallel_size",),
    context=("context_parallel_size", "sequence_parallel_degree"),
)
ADAPTERS = {"lora": "lora", "qlora": "qlora", "": ""}
CHECKPOINTS = {
    "true": "full",
    "false": "",
    "unsloth": "full",
    "offload": "offload",
    "offload_disk": "offload",
}


def read(document: Document, asked: Asked) -> Document:
    """Return the job of a file of Axolotl.

    Examples
    --------
    >>> job = read(Document("lora.yml", {"base_model": "Qwen/Qwen3-8B", "sequence_len": 2048, "bf16": True,
    ...     "micro_batch_size": 2, "adapter": "lora", "lora_r": 16, "lora_target_linear": True}, {}),
    ...     Asked(devices=4))
    >>> job.data["plan"]["global_batch"], job.data["model"]["adapters"]["rank"], job.data["stack"]
    (8, 16, 'pytorch-ddp')
    """
    sheet = Sheet(document, keys_of("axolotl"), asked)
    read_model(sheet, "base_model")
    sheet.put(("batch", "sequence_length"), sheet.count("sequence_len", 512), "sequence_len")
    tell_lengths(
        sheet,
        "sample_packing" if sheet.has("sample_packing") else "sequence_len",
        sheet.flag("sample_packing"),
    )
    read_training(sheet, NAMES)
    _adapter(sheet)
    _recompute(sheet)
    eager = sheet.flag("eager_attention") or sheet.text("attn_implementation") == "eager"
    if eager:
        write_scores(sheet, "eager_attention", "attn_implementation")
    return sheet.made()


def _adapter(sheet: Sheet) -> None:
    """Read adapters, over weights of 16 or 4 bits; without adapters, all weights are trained."""
    kind = sheet.choice("adapter", ADAPTERS, "")
    four, eight = sheet.flag("load_in_4bit"), sheet.flag("load_in_8bit")
    if eight:
        sheet.refuse("load_in_8bit", "frozen weights in 8 bits", "write load_in_8bit: false")
    if kind == "":
        if four:
            because = "weights in 4 bits are frozen, and nothing else is trained"
            sheet.fault("load_in_4bit", "only with an adapter", because, "add adapter: qlora")
        return
    if kind == "qlora" and not four and sheet.has("load_in_4bit"):
        sheet.fault("load_in_4bit", "true with adapter: qlora", "its weights are in 4 bits", "write true")
    quantised = "load_in_4bit" if four else "adapter" if kind == "qlora" else ""
    every = sheet.flag("lora_target_linear") or sheet.raw("lora_target_modules") == "all-linear"
    if not sheet.has("lora_r"):
        sheet.fault("lora_r", "a whole number", "an adapter has a width", "add lora_r: 16", "is missing")
    read_adapters(sheet, "lora_r", "lora_target_modules", every, quantised)


def _recompute(sheet: Sheet) -> None:
    """Read recompute of whole blocks, if checkpointing is on, the trainer's or FSDP's."""
    key = "gradient_checkpointing"
    mode = sheet.choice(key, CHECKPOINTS, "")
    inner = sheet.first("fsdp_config.fsdp_activation_checkpointing", "fsdp_config.activation_checkpointing")
    if mode == "offload" or sheet.flag("activation_offloading"):
        sheet.refuse(
            "activation_offloading" if mode != "offload" else key, "offload of activations", "write true"
        )
    if mode == "full" or sheet.flag(inner):
        sheet.put(("plan", "recompute"), "full", key, inner)
