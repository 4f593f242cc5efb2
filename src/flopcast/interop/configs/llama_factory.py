"""LLaMA-Factory's YAML as a job: supervised and preference tuning, pre-training and reward models.

Answers: which model, plan and stack does a LLaMA-Factory file describe?
Elsewhere: settings that it shares with other trainers (trainers.py).

References
----------
hiyouga/LLaMA-Factory: src/llamafactory/hparams (names, defaults), examples/ (files);
gradient checkpointing is on unless switched off (model/model_utils/checkpointing.py).
"""

from flopcast.files.yaml_text import Document
from flopcast.fixes import set_to
from flopcast.interop.configs import trl
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import ACTIVATIONS, PAIR, JobReader
from flopcast.interop.configs.trainers import read_adapters, read_training, refuse_frozen
from flopcast.library import catalog

CHECKPOINTING = "fsdp_config.fsdp_activation_checkpointing"
ON_HOST = "use_unsloth_gc"  # Unsloth keeps checkpoints on the host
STAGES = {name: name for name in ("sft", "pt", "dpo", "kto", "rm")}
merged = trl.merged  # a file of accelerate may stand beside both


def prepared(document: Document, _options: ImportOptions) -> Document:
    """Return the document with accelerate's precision, if a file of accelerate is given with it."""
    data = document.data
    return trl.with_precision(document) if isinstance(data, dict) and "accelerate" in data else document


def read(reader: JobReader) -> None:
    """Read the job in a LLaMA-Factory file.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> job = read_kind(Document("sft.yaml",
    ...     {"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct", "stage": "sft",
    ...     "finetuning_type": "full", "bf16": True, "per_device_train_batch_size": 1,
    ...     "deepspeed": "examples/deepspeed/ds_z3_config.json"}, {}),
    ...     "llama-factory", ImportOptions(devices=8))
    >>> job.data["plan"]["zero"], job.data["plan"]["recompute"], job.data["batch"]["sequence_length"]
    (3, 'full', 2048)
    """
    stage = _stage(reader)
    reader.read_model("model_name_or_path")
    reader.put(("batch", "sequence_length"), reader.count("cutoff_len", 2048), "cutoff_len")
    packed = reader.flag("packing", reader.text("stage") == "pt") or reader.flag("neat_packing")
    reader.note_lengths("packing" if reader.has("packing") else "cutoff_len", packed)
    trl.check_launch(reader)
    read_training(reader, trl.ranks_of_launch(reader), PAIR if stage in ("dpo", "rm") else 1)
    if reader.flag("use_muon"):
        reader.put_optimizer("muon", "use_muon")
    _method(reader)
    _tuning(reader, stage)
    _vision(reader)
    if not reader.flag("disable_gradient_checkpointing") or reader.flag(CHECKPOINTING):
        reader.assume("recompute=full, which is LLaMA-Factory's default", "disable_gradient_checkpointing")
        reader.put(("plan", "recompute"), "full", "disable_gradient_checkpointing")
        reader.place_if(ON_HOST, ACTIVATIONS)
    if reader.choice("flash_attn", reader.words("attention"), "flash") == "materialised":
        reader.write_scores("flash_attn")


def _stage(reader: JobReader) -> str:
    """Return the stage, which may be any except reinforcement learning and prediction."""
    stage = "sft"
    if reader.raw("stage") == "ppo":
        reader.refuse("stage", "reinforcement learning in LLaMA-Factory", "write stage: sft")
    else:
        stage = reader.choice("stage", STAGES, "sft")
    trains = reader.flag("do_train", default=not reader.flag("do_predict"))
    if not trains:
        because = "flopcast predicts training"
        allowed = "do_train: true"
        fix = set_to({"do_train": True})
        reader.fault("do_train" if reader.has("do_train") else "do_predict", allowed, because, fix)
    elif reader.has("export_dir") and not reader.has("do_train"):
        because = "the file exports a model, and flopcast predicts training"
        way = "give the file with which the adapters were trained"
        reader.fault("export_dir", "a file that trains, with do_train: true", because, way)
    return stage


def _tuning(reader: JobReader, stage: str) -> None:
    """Put the reference or the head of a stage into the model.

    References
    ----------
    hiyouga/LLaMA-Factory: src/llamafactory/train/trainer_utils.py (`create_ref_model`: no separate model
    with adapters), train/kto/trainer.py (`get_batch_loss_metrics`).
    """
    kind = {"rm": "reward", "kto": "kto"}.get(stage, "")
    if stage == "dpo":
        kind = reader.choice("pref_loss", reader.words("losses"), "reference")
    reader.put_preference(kind, "stage", own=reader.has("ref_model"))


def _vision(reader: JobReader) -> None:
    """Read the trained parts of a vision tower, and the areas, in pixels, to which images are scaled.

    The keys matter if the catalogue's entry of the model has a tower. If a tower works on squares, images
    have the size of these squares.

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


def _method(reader: JobReader) -> None:
    """Read the method: adapters, over weights of 16 or 4 bits; or training of all weights."""
    key = "finetuning_type"
    if str(reader.raw(key)) in ("freeze", "oft"):
        reader.refuse(key, f"finetuning_type {reader.raw(key)}", "write lora or full")
        return
    kind = reader.choice(key, reader.words("tuning"), "lora")
    bits = reader.count("quantization_bit", 0) if reader.has("quantization_bit") else 0
    if bits and bits != 4:
        reader.refuse("quantization_bit", f"frozen weights in {bits} bits", "write 4")
    if bits and reader.raw("quantization_method") not in (None, "bnb", "bitsandbytes"):
        reader.refuse("quantization_method", "quantised weights in formats other than nf4", "write bnb")
    if kind == "full":
        if bits:
            allowed = "no value, unless finetuning_type is lora"
            refuse_frozen(reader, "quantization_bit", allowed, "remove it", key)
        return
    every = reader.raw("lora_target") in (None, "all")
    read_adapters(reader, "lora_rank", "lora_target", every, "quantization_bit" if bits else "")
