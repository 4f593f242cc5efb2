"""Programs on top of the Trainer of transformers: the facts in their commands besides the Trainer's own
flags.

Answers: what does a program train, and how does it shard its parameters?
Elsewhere: the arguments of a command (trainer_commands.py), the settings (trl.py).

References
----------
huggingface/transformers: training_args.py (`bf16` and `gradient_checkpointing` are off, unlike in TRL).
microsoft/DeepSpeedExamples: applications/DeepSpeed-Chat (`--zero_stage`).
"""

import re
from collections.abc import Mapping

from flopcast.files.yaml_text import Document, Path
from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.configs.nested_deepspeed import stage_in_name
from flopcast.interop.configs.unsupported_programs import BY_HAND
from flopcast.records import replace

COMMAND, RANKS, FILE = "launcher.command", "launcher.ranks", "launcher.config_file"
PROGRAM = "launcher.program"
REWARD = "center_rewards_coefficient"
STAGE, DEEPSPEED_FILES = "zero_stage", ("deepspeed_config", "ds_config", "deepspeed_file")
SHARDING = ("accelerate", "deepspeed", "fsdp")  # sections and keys of which one is enough
UNSHARDED = re.compile(r"multi_?gpu|single|ddp")
PROGRAMS: Mapping[str, dict[str, object]] = {  # a part of a program's name → settings that it implies
    "dpo": {"beta": 0.1}, "kto": {"desirable_weight": 1.0}, "reward": {REWARD: 0.01}, "rm": {REWARD: 0.01},
    "orpo": {"loss_type": "simpo"}, "cpo": {"loss_type": "simpo"}, "simpo": {"loss_type": "simpo"},
}  # fmt: skip
OTHER_TRAINING = (
    "ppo", "grpo", "rloo", "gkd", "distill", "distillation", "mlm", "glue", "squad", "qa", "ner",
    "summarization", "translation", "classification", "asr", "whisper", "seq2seq", "embedding",
)  # fmt: skip
SAME = {  # keys of other programs → those of TRL
    "use_lora": "use_peft", "lora_rank": "lora_r", "target_modules": "lora_target_modules",
    "lora_target": "lora_target_modules", "use_int8_training": "load_in_8bit",
}  # fmt: skip
OF_ADAPTERS, ADAPTERS = {"lora", "qlora", "unsloth", "peft"}, ("lora_r", "use_peft")


def with_defaults(document: Document) -> Document:
    """Return the settings of a command with the Trainer's defaults; the settings of a file do not change.

    Programs have other names for the adapters of PEFT and for DeepSpeed's file, or state only a ZeRO stage.
    The name of a program, such as run_dpo.py, shows what it trains, and the name of accelerate's file often
    shows the sharding.

    Examples
    --------
    >>> command = {"launcher": {"program": "run_dpo.py", "config_file": "zero3.yaml"}}
    >>> data = with_defaults(Document("run.sh", command, {})).data
    >>> data["beta"], data["deepspeed"], data["gradient_checkpointing"]
    (0.1, 'zero3.yaml', False)
    """
    data = document.data if isinstance(document.data, dict) else {}
    launcher = data.get("launcher")
    if not isinstance(launcher, dict):
        return document
    names: dict[str, str] = {key: SAME.get(key, key) for key in map(str, data)}
    names = {key: key if name != key and name in data else name for key, name in names.items()}
    lines: dict[Path, int] = {
        (str(names.get(str(path[0]), path[0])), *path[1:]) if path else path: line
        for path, line in document.lines.items()
    }
    document, data = replace(document, lines=lines), {names[key]: value for key, value in data.items()}
    stated: dict[str, object] = {"bf16": False, "gradient_checkpointing": False, **data}
    if named := [data[key] for key in DEEPSPEED_FILES if key in data]:
        stated["deepspeed"] = named[0]
    if STAGE in data:
        stated["deepspeed"] = {"zero_optimization": {"stage": data[STAGE]}}
    for part in _parts(launcher.get("program")):
        stated = PROGRAMS.get(part, {}) | stated
    name = str(launcher.get("config_file", "")).rpartition("/")[2]
    if stage_in_name(name) and not stated.keys() & set(SHARDING):
        stated["deepspeed"] = name
    return replace(document, data=stated)


def _parts(program: object) -> list[str]:
    return re.split(r"[^a-z0-9]+", str(program or "").lower())


def check_program(reader: JobReader) -> None:
    """Report a program for another kind of training, and a missing file of accelerate.

    The file is needed unless its name shows enough.
    """
    if other := [part for part in _parts(reader.raw(PROGRAM)) if part in OTHER_TRAINING]:
        reader.refuse(PROGRAM, f"programs for {other[0]}", BY_HAND)
    if OF_ADAPTERS & set(_parts(reader.raw(PROGRAM))) and not reader.has(*ADAPTERS):
        what = "programs that set adapters themselves, because their command states no lora_r"
        reader.refuse(PROGRAM, what, BY_HAND)
    if reader.has("lora_r") and not reader.has("use_peft"):
        because = (
            "the command states the rank of adapters, but only the program knows whether it trains them"
        )
        reader.fault("use_peft", "true or false", because, "add --use_peft true", "is missing")
    name = reader.text(FILE)
    known = reader.has(*SHARDING) or any(reader.below(key) for key in SHARDING)
    if not name or known or UNSHARDED.search(name.lower()):
        return
    because = (
        "this file states how parameters are sharded, and flopcast opens only the files that you name "
        "in the command"
    )
    fix = f"run flopcast predict {reader.document.name} {name}"
    reader.fault(FILE, "a file that is given after the script", because, fix)
