"""LLaMA-Factory's YAML as a job: tuning, on preferences too, pre-training and reward models.

Answers: which model, plan and stack does a file of LLaMA-Factory ask for?
Elsewhere: what it has in common with other trainers (trainers.py).

References
----------
hiyouga/LLaMA-Factory: src/llamafactory/hparams (names, defaults), examples/ (files);
gradient checkpointing is on unless switched off (model/model_utils/checkpointing.py).
"""

from flopcast.files.yaml_text import Document
from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.model_names import read_model
from flopcast.interop.configs.placements import ACTIVATIONS, place
from flopcast.interop.configs.trainers import (
    TRANSFORMERS,
    note_lengths,
    read_adapters,
    read_training,
    write_scores,
)
from flopcast.interop.configs.trl import check_launch, launched, ranks_of_launch
from flopcast.interop.configs.tuning import KTO_PASSES, PAIR, note_pairs, put_reference, put_score
from flopcast.library import catalog

CHECKPOINTING = "fsdp_config.fsdp_activation_checkpointing"
ON_HOST = "use_unsloth_gc"  # Unsloth keeps checkpoints on the host
STAGES = {name: name for name in ("sft", "pt", "dpo", "kto", "rm")}
LOSSES = dict.fromkeys(("sigmoid", "hinge", "ipo", "kto_pair"), "reference") | dict.fromkeys(
    ("orpo", "simpo"), "alone"
)
KINDS = {"lora": "lora", "full": "full"}
ATTENTION = {"auto": "flash", "fa2": "flash", "fa3": "flash", "sdpa": "flash", "disabled": "materialised"}


def read(document: Document, options: ImportOptions) -> Document:
    """Return the job of a file of LLaMA-Factory.

    Examples
    --------
    >>> job = read(Document("sft.yaml", {"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct", "stage": "sft",
    ...     "finetuning_type": "full", "bf16": True, "per_device_train_batch_size": 1,
    ...     "deepspeed": "examples/deepspeed/ds_z3_config.json"}, {}), ImportOptions(devices=8))
    >>> job.data["plan"]["zero"], job.data["plan"]["recompute"], job.data["batch"]["sequence_length"]
    (3, 'full', 2048)
    """
    reader = ConfigReader(launched(document), keys_of("llama-factory"), options)
    stage = _stage(reader)
    read_model(reader, "model_name_or_path")
    reader.put(("batch", "sequence_length"), reader.count("cutoff_len", 2048), "cutoff_len")
    packed = reader.flag("packing", reader.text("stage") == "pt") or reader.flag("neat_packing")
    note_lengths(reader, "packing" if reader.has("packing") else "cutoff_len", packed)
    check_launch(reader)
    read_training(reader, TRANSFORMERS, ranks_of_launch(reader), PAIR if stage in ("dpo", "rm") else 1)
    if reader.flag("use_muon"):
        reader.put_optimizer("muon", "use_muon")
    _method(reader)
    _tuning(reader, stage)
    _vision(reader)
    if not reader.flag("disable_gradient_checkpointing") or reader.flag(CHECKPOINTING):
        reader.assume("recompute full, LLaMA-Factory's default", "disable_gradient_checkpointing")
        reader.put(("plan", "recompute"), "full", "disable_gradient_checkpointing")
        if reader.flag(ON_HOST):
            place(reader, ACTIVATIONS, ON_HOST)
    if reader.choice("flash_attn", ATTENTION, "flash") == "materialised":
        write_scores(reader, "flash_attn")
    return reader.made()


def _stage(reader: ConfigReader) -> str:
    """Return the stage: all but reinforcement learning; a file that predicts trains nothing."""
    stage = "sft"
    if reader.raw("stage") == "ppo":
        reader.refuse("stage", "reinforcement learning in LLaMA-Factory", "write stage: sft")
    else:
        stage = reader.choice("stage", STAGES, "sft")
    trains = reader.flag("do_train", default=not reader.flag("do_predict"))
    if not trains:
        because = "flopcast predicts training"
        reader.fault(
            "do_train" if reader.has("do_train") else "do_predict",
            "do_train: true",
            because,
            "set do_train to true",
        )
    return stage


def _tuning(reader: ConfigReader, stage: str) -> None:
    """Put the reference or the head of a stage into the model.

    References
    ----------
    hiyouga/LLaMA-Factory: src/llamafactory/train/trainer_utils.py (`create_ref_model`: none of its own with
    adapters), train/kto/trainer.py (`get_batch_loss_metrics`).
    """
    if stage == "rm":
        put_score(reader, "stage")
    if stage == "dpo":
        note_pairs(reader, "stage")
    loss = reader.choice("pref_loss", LOSSES, "reference") if stage == "dpo" else "reference"
    if stage == "kto" or (stage == "dpo" and loss == "reference"):
        passes = KTO_PASSES if stage == "kto" else 1
        put_reference(reader, "stage", passes=passes, own=reader.has("ref_model"))


def _vision(reader: ConfigReader) -> None:
    """Read what of a vision tower is trained, and the areas to which images are scaled, in pixels.

    The keys matter if the catalogue's entry of the model has a tower. Images of towers that work on squares
    have the size of these.

    References
    ----------
    hiyouga/LLaMA-Factory: src/llamafactory/hparams/finetuning_args.py and model_args.py (names, defaults),
    model/adapter.py (adapters of a tower that is not frozen).
    """
    tower = reader.flag("freeze_vision_tower", True)
    projector = reader.flag("freeze_multi_modal_projector", True)
    if reader.flag("freeze_language_model"):
        reader.refuse("freeze_language_model", "training with a frozen language model", "write false")
    most = reader.count("image_max_pixels", 768 * 768)
    least = reader.count("image_min_pixels", 32 * 32)
    entry = catalog.known("models", str(reader.part("model").get("base", "")))
    vision = catalog.model(entry).vision if entry else None
    if vision is None:
        return
    if not (tower and projector) and "adapters" in reader.part("model"):
        key = "freeze_multi_modal_projector" if tower else "freeze_vision_tower"
        reader.refuse(key, "adapters of a vision tower", "write true")
        return
    trained = "all" if not tower else "none" if projector else "projector"
    keys = ("freeze_vision_tower", "freeze_multi_modal_projector")
    reader.put(("model", "vision", "trained"), trained, *keys)
    if vision.side is None:
        reader.put(("model", "vision", "most_pixels"), most, "image_max_pixels")
        reader.put(("model", "vision", "least_pixels"), least, "image_min_pixels")


def _method(reader: ConfigReader) -> None:
    """Read the method: adapters, over weights of 16 or 4 bits; or all weights."""
    key = "finetuning_type"
    if str(reader.raw(key)) in ("freeze", "oft"):
        reader.refuse(key, f"finetuning_type {reader.raw(key)}", "write lora or full")
        return
    kind = reader.choice(key, KINDS, "lora")
    bits = reader.count("quantization_bit", 0) if reader.has("quantization_bit") else 0
    if bits and bits != 4:
        reader.refuse("quantization_bit", f"frozen weights in {bits} bits", "write 4")
    if bits and reader.raw("quantization_method") not in (None, "bnb", "bitsandbytes"):
        reader.refuse("quantization_method", "quantised weights in formats other than nf4", "write bnb")
    if kind == "full":
        if bits:
            because = "4-bit weights are frozen, so a run without an adapter would train nothing"
            allowed = "no value, unless finetuning_type is lora"
            reader.fault("quantization_bit", allowed, because, "remove it")
        return
    every = reader.raw("lora_target") in (None, "all")
    read_adapters(reader, "lora_rank", "lora_target", every, "quantization_bit" if bits else "")
