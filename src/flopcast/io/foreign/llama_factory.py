"""LLaMA-Factory's YAML as a job: supervised tuning and pre-training, with adapters or without.

Answers: which model, plan and stack does a file of LLaMA-Factory ask for?
Elsewhere: what it has in common with other trainers (tuning.py).

References
----------
hiyouga/LLaMA-Factory: src/llamafactory/hparams (names, defaults), examples/ (files); gradient checkpointing
is on unless switched off (model/model_utils/checkpointing.py).
"""

from flopcast.io.foreign.keys import keys_of
from flopcast.io.foreign.names import read_model
from flopcast.io.foreign.sheet import Asked, Sheet
from flopcast.io.foreign.tuning import Names, read_adapters, read_training, tell_lengths, write_scores
from flopcast.io.yaml_text import Document

NAMES = Names(
    micro="per_device_train_batch_size",
    steps="gradient_accumulation_steps",
    optimizer="optim",
    default_micro=8,
)
STAGES = {"sft": "sft", "pt": "pt"}
OTHER_STAGES = ("rm", "ppo", "dpo", "kto", "orpo", "simpo", "bco")
KINDS = {"lora": "lora", "full": "full"}
ATTENTION = {"auto": "flash", "fa2": "flash", "fa3": "flash", "sdpa": "flash", "disabled": "materialised"}


def read(document: Document, asked: Asked) -> Document:
    """Return the job of a file of LLaMA-Factory.

    Examples
    --------
    >>> job = read(Document("sft.yaml", {"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct", "stage": "sft",
    ...     "finetuning_type": "full", "bf16": True, "per_device_train_batch_size": 1,
    ...     "deepspeed": "examples/deepspeed/ds_z3_config.json"}, {}), Asked(devices=8))
    >>> job.data["plan"]["zero"], job.data["plan"]["recompute"], job.data["batch"]["sequence_length"]
    (3, 'full', 2048)
    """
    sheet = Sheet(document, keys_of("llama-factory"), asked)
    _stage(sheet)
    read_model(sheet, "model_name_or_path")
    sheet.put(("batch", "sequence_length"), sheet.count("cutoff_len", 2048), "cutoff_len")
    packed = sheet.flag("packing", sheet.text("stage") == "pt") or sheet.flag("neat_packing")
    tell_lengths(sheet, "packing" if sheet.has("packing") else "cutoff_len", packed)
    read_training(sheet, NAMES)
    _method(sheet)
    if not sheet.flag("disable_gradient_checkpointing"):
        sheet.assume("recompute full, LLaMA-Factory's default", "disable_gradient_checkpointing")
        sheet.put(("plan", "recompute"), "full", "disable_gradient_checkpointing")
    if sheet.choice("flash_attn", ATTENTION, "flash") == "materialised":
        write_scores(sheet, "flash_attn")
    return sheet.made()


def _stage(sheet: Sheet) -> None:
    """Read the stage: only next-token training is supported; a file that predicts trains nothing."""
    if str(sheet.raw("stage")) in OTHER_STAGES:
        sheet.refuse("stage", "training on preferences or rewards", "write stage: sft")
    else:
        sheet.choice("stage", STAGES, "sft")
    trains = sheet.flag("do_train", default=not sheet.flag("do_predict"))
    if not trains:
        because = "flopcast predicts training"
        sheet.fault(
            "do_train" if sheet.has("do_train") else "do_predict",
            "do_train: true",
            because,
            "add do_train: true",
        )


def _method(sheet: Sheet) -> None:
    """Read the method: adapters, over weights of 16 or 4 bits; or all weights."""
    key = "finetuning_type"
    if str(sheet.raw(key)) in ("freeze", "oft"):
        sheet.refuse(key, f"finetuning_type {sheet.raw(key)}", "write lora or full")
        return
    kind = sheet.choice(key, KINDS, "lora")
    bits = sheet.count("quantization_bit", 0) if sheet.has("quantization_bit") else 0
    if bits and bits != 4:
        sheet.refuse("quantization_bit", f"frozen weights in {bits} bits", "write 4")
    if bits and sheet.raw("quantization_method") not in (None, "bnb", "bitsandbytes"):
        sheet.refuse(
            "quantization_method", "weights that are stored quantised otherwise than as nf4", "write bnb"
        )
    if kind == "full":
        if bits:
            because = "weights in 4 bits are frozen, and nothing else is trained"
            sheet.fault("quantization_bit", "only with finetuning_type: lora", because, "remove it")
        return
    every = sheet.raw("lora_target") in (None, "all")
    read_adapters(sheet, "lora_rank", "lora_target", every, "quantization_bit" if bits else "")
