"""YAML of TRL and of alignment-handbook as a job: tuning with the Trainer of transformers.

The tuning may be supervised, on preferences (DPO, KTO), of reward models, or with a teacher.

Answers: which model, plan and stack does such a file describe, with or without a file of accelerate or
DeepSpeed?
Elsewhere: settings that trainers share (trainers.py), DeepSpeed's settings (nested_deepspeed.py), keys that
change neither time nor memory (tables/trl.yaml).

The file of `accelerate launch --config_file`, or of DeepSpeed, states how parameters are sharded. The
user passes it as a second file, and its settings replace the Trainer's own keys.

References
----------
huggingface/trl: trl/trainer/sft_config.py, base_config.py, model_config.py (names, defaults: bf16 and
gradient checkpointing are on). huggingface/accelerate: utils/dataclasses.py (`DeepSpeedPlugin`,
`FullyShardedDataParallelPlugin`). huggingface/peft: utils/constants.py (default modules of adapters).
"""

import re
from collections.abc import Mapping, Sequence

from flopcast.errors import spec_error
from flopcast.files.yaml_text import Document, Path
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import ACTIVATIONS, KTO_PASSES, PAIR, JobReader
from flopcast.interop.configs.keys import flattened
from flopcast.interop.configs.narrow_states import narrowed
from flopcast.interop.configs.trainer_programs import COMMAND, RANKS, REWARD, check_program, with_defaults
from flopcast.interop.configs.trainers import Adapter, read_adapters, read_training, refuse_frozen
from flopcast.records import replace

TEACHER = "teacher_model_name_or_path"
PREFERENCES = ("beta", "max_prompt_length", "precompute_ref_log_probs", "reference_free")
KTO = ("desirable_weight", "undesirable_weight")
OF_TOKENS = ("nll", "dft", "chunked_nll")
USUAL = Adapter(16, 0.05, ("q_proj", "v_proj"))
LENGTH = 1024  # max_length of SFTConfig
LENGTHS = ("max_length", "max_seq_length", "max_seq_len", "model_max_length", "block_size")
ALONE = re.compile(r"(?<![a-z])(orpo|cpo|simpo)(?![a-z])")
LAUNCHES = ("no", "multi_gpu", "fsdp", "deepspeed")
DEFAULT_STAGE = 2  # ZeRO stage of accelerate's DeepSpeedPlugin if its file states none
CHECKPOINTING, OFFLOADING = "gradient_checkpointing", "activation_offloading"


def read(reader: JobReader) -> None:
    """Read the job of a file of TRL, or of the document that `merged` returns.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> job = read_kind(Document("sft.yaml", {"model_name_or_path": "Qwen/Qwen2.5-7B", "bf16": True,
    ...     "per_device_train_batch_size": 2, "max_length": 4096, "dataset_name": "own/data"}, {}),
    ...     "trl", ImportOptions(devices=8))
    >>> job.data["plan"]["global_batch"], job.data["plan"]["recompute"], job.data["stack"]
    (16, 'full', 'pytorch-ddp')
    """
    reader.read_model("model_name_or_path")
    length = reader.first(*LENGTHS)
    if reader.has(length) or not reader.has(COMMAND):
        reader.put(("batch", "sequence_length"), reader.count(length, LENGTH), length)
    if not reader.has(length, COMMAND):
        reader.assume(f"max_length={LENGTH}, which is TRL's default")
    packed = reader.flag("packing", length == LENGTHS[-1] and reader.has(length))
    reader.note_lengths("packing" if reader.has("packing") else length, packed)
    check_launch(reader)
    check_program(reader)
    pairs = reader.has(REWARD) or (_prefers(reader) and not reader.has(*KTO))
    read_training(reader, ranks_of_launch(reader), PAIR if pairs else 1)
    put_adapters(reader)
    put_loaded_states(reader)
    _tuning(reader)
    put_recompute(reader)
    if reader.choice("attn_implementation", reader.words("attention"), "flash") == "materialised":
        reader.write_scores("attn_implementation")


def _prefers(reader: JobReader) -> bool:
    """Return whether the run learns from preferences; the file does not name the trainer that reads it."""
    loss = str(reader.raw("loss_type")).lower()
    return reader.has(*PREFERENCES, *KTO) or (reader.has("loss_type") and loss not in OF_TOKENS)


def _tuning(reader: JobReader) -> None:
    """Put the reference, teacher or head into the model, unless the run is supervised tuning.

    References
    ----------
    huggingface/trl: trl/trainer/dpo_config.py, kto_config.py, reward_config.py, gkd_config.py.
    """
    if reader.has(REWARD):
        reader.put_score(REWARD)
    elif _prefers(reader):
        keys = ("loss_type", *PREFERENCES, *KTO)
        loss = reader.choice("loss_type", reader.words("losses"), "reference")
        reader.fraction("beta", 0.1)
        if not reader.has(*KTO):
            reader.note_pairs(*keys)
        if reader.flag("precompute_ref_log_probs") or reader.flag("reference_free") or loss == "alone":
            return
        named = " ".join(str(reader.raw(key)) for key in ("output_dir", "hub_model_id", "run_name"))
        if found := ALONE.search(named.lower()):
            reader.assume(f"no reference model, because the names in the file contain {found[1]}")
            return
        text = "flopcast assumes a reference model; ORPO, CPO and SimPO do not need one"
        reader.assume(text, next((key for key in keys if reader.has(key)), ""))
        reader.put_reference(*keys, passes=KTO_PASSES if reader.has(*KTO) else 1)
    if reader.has(TEACHER):
        if reader.raw("lmbda") not in (0, 0.0):
            what = "generation during distillation"
            reader.refuse("lmbda" if reader.has("lmbda") else TEACHER, what, "write lmbda: 0")
            return
        reader.put_teacher(TEACHER, reader.text(TEACHER))


def merged(documents: Sequence[Document]) -> Document:
    """Merge the Trainer's file with files of accelerate and DeepSpeed, given in any order.

    Raises
    ------
    SpecError
        None of the files is the Trainer's, or several are.
    """
    others = [one for one in documents if _has(one, "distributed_type") or _has(one, "zero_optimization")]
    trainers = [one for one in documents if one not in others]
    if len(trainers) != 1 or len(others) > 1 + any(_has(one, "zero_optimization") for one in others):
        names = ", ".join(one.name for one in documents)
        allowed = "one file of the Trainer, and at most one file of accelerate and one of DeepSpeed"
        because = (
            "the settings of a job are in a file of the Trainer, and optionally in a file of accelerate "
            "or DeepSpeed"
        )
        raise spec_error("files", names, allowed, because, "give at most one file of each program")
    whole = trainers[0]
    for other in others:
        if _has(other, "zero_optimization"):
            moved: dict[Path, Path] = {path: ("deepspeed", *path) for path, _ in flattened(other.data)}
            whole = _placed(whole, other, moved)
        else:
            whole = _launched(whole, other)
    return whole


def _has(document: Document, key: str) -> bool:
    return isinstance(document.data, dict) and key in document.data


def _launched(whole: Document, launch: Document) -> Document:
    """Return the document with accelerate's settings under the Trainer's equivalent keys.

    Sections for launch types that are not used have no effect, and are left out.
    """
    data = launch.data if isinstance(launch.data, dict) else {}
    kind = str(data.get("distributed_type", "")).lower()
    engine = data.get("deepspeed_config")
    file = engine.get("deepspeed_config_file") if isinstance(engine, dict) else None
    if kind == "deepspeed" and not file and (engine is None or isinstance(engine, dict)):
        data = {**data, "deepspeed_config": {"zero_stage": DEFAULT_STAGE} | (engine or {})}
        launch = replace(launch, data=data)
    moved: dict[Path, Path] = {}
    for path, value in flattened(data):
        target: Path | None = ("accelerate", *path)
        if path[0] == "fsdp_config":
            target = path if kind == "fsdp" else None
        elif path[0] == "deepspeed_config" and len(path) > 1:
            inside = ENGINE.get(str(path[1]))
            target = ("deepspeed", *inside) if inside and kind == "deepspeed" and not file else target
            target = ("deepspeed",) if path[1] == "deepspeed_config_file" and file else target
            target = target if kind == "deepspeed" else None
        if target is not None and value is not None:
            moved[path] = target
    return _placed(whole, launch, moved)


ENGINE: Mapping[str, Path] = {  # accelerate's name → DeepSpeed's
    "zero_stage": ("zero_optimization", "stage"),
    "offload_optimizer_device": ("zero_optimization", "offload_optimizer", "device"),
    "offload_optimizer_nvme_path": ("zero_optimization", "offload_optimizer", "nvme_path"),
    "offload_param_device": ("zero_optimization", "offload_param", "device"),
    "offload_param_nvme_path": ("zero_optimization", "offload_param", "nvme_path"),
}


def _placed(whole: Document, other: Document, moved: Mapping[Path, Path]) -> Document:
    """Return the document with the values of another one at new paths; existing values stay."""
    data = dict(whole.data) if isinstance(whole.data, dict) else {}
    places = dict(whole.places)
    values = dict(flattened(other.data))
    for path, target in moved.items():
        holder: dict[str, object] = data
        for part in target[:-1]:
            inner = holder.get(str(part))
            holder[str(part)] = dict(inner) if isinstance(inner, dict) else {}
            holder = holder[str(part)]  # type: ignore[assignment]
        holder.setdefault(str(target[-1]), values[path])
        places[target] = other.where(path)
    return replace(whole, data=data, places=places)


def with_precision(document: Document) -> Document:
    """Return the document with accelerate's or TRL's precision, if the Trainer's keys give none."""
    data = document.data if isinstance(document.data, dict) else {}
    launch = data.get("accelerate")
    mixed = str(launch.get("mixed_precision", "")) if isinstance(launch, dict) else ""
    if data.get("bf16") is not None or data.get("fp16"):
        return document
    return replace(document, data=data | ({"fp16": True} if mixed == "fp16" else {"bf16": True}))


def prepared(document: Document, _options: ImportOptions) -> Document:
    """Return the document with the defaults of the programs that read it."""
    return with_precision(with_defaults(document))


def ranks_of_launch(reader: JobReader) -> int | None:
    """Return the ranks that accelerate or the launcher of a command starts; None if neither is given."""
    if reader.has("launch"):
        return reader.count("accelerate.num_processes")
    return reader.count(RANKS) if reader.has(RANKS) else None


def check_launch(reader: JobReader) -> None:
    """Check that accelerate's launch type is supported; without its file DDP is assumed, with a note."""
    kind = reader.text("launch").lower()
    if kind and kind not in LAUNCHES:
        reader.refuse("launch", f"distributed_type {kind.upper()}", "write FSDP, DEEPSPEED or MULTI_GPU")
    reader.choice("launch_precision", reader.words("launched_precisions"), "")
    if not kind and not _shards(reader):
        reader.assume(
            "flopcast assumes DDP, because no accelerate configuration is given; add it as a second "
            "file if it shards parameters"
        )


def _shards(reader: JobReader) -> bool:
    """Return whether FSDP or DeepSpeed shards the model."""
    return reader.has("fsdp", "deepspeed") or reader.below("fsdp_config") or reader.below("deepspeed")


def put_adapters(reader: JobReader) -> None:
    """Put adapters into the model if there are any; frozen weights have 16 or 4 bits."""
    four = reader.flag("load_in_4bit")
    if reader.flag("load_in_8bit"):
        reader.refuse("load_in_8bit", "training with frozen weights in 8 bits", "write load_in_8bit: false")
    if not reader.flag("use_peft"):
        if four:
            allowed = "false, unless use_peft is true"
            refuse_frozen(reader, "load_in_4bit", allowed, "add use_peft: true", "use_peft")
        return
    key = "lora_target_modules"
    every = reader.raw(key) in ("all-linear", ["all-linear"])
    if not reader.has(key):
        reader.assume("only q_proj and v_proj have adapters, which is PEFT's default")
    read_adapters(reader, "lora_r", key, every, "load_in_4bit" if four else "", USUAL)


def put_loaded_states(reader: JobReader) -> None:
    """Keep weights and states in the type in which the model is loaded, unless fp32 copies are made.

    References
    ----------
    PyTorch's AdamW creates states in the type of their parameter, and autocast casts no parameters.
    DeepSpeed keeps fp32 copies, and accelerate casts parameters to fp32 before FSDP shards them.
    """
    key = "loaded"
    copied = _shards(reader) or "adapters" in reader.part("model")
    if str(reader.raw(key)).lower() in ("bfloat16", "bf16") and not copied:
        reader.put(("stack",), narrowed(reader.data.get("stack"), "bf16"), key)
        reader.assume("weights, gradients and states are in bf16, because the model is loaded in bf16", key)


def put_recompute(reader: JobReader) -> None:
    """Put recompute of whole blocks into the plan, unless TRL or FSDP has switched checkpointing off.

    The checkpoints may be on the host.
    """
    inner = "fsdp_checkpointing"
    if not reader.has(CHECKPOINTING):
        reader.assume("full recompute, because TRL checkpoints activations by default")
    if reader.flag(CHECKPOINTING, True) or reader.flag(inner):
        reader.put(("plan", "recompute"), "full", CHECKPOINTING, inner)
    reader.place_if(OFFLOADING, ACTIVATIONS)
