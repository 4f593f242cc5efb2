"""Dumps of Megatron-Bridge's ConfigContainer, and overrides of one, as jobs.

Answers: which model, plan and stack does a dump describe?
Elsewhere: fields that Megatron-Core's flags fill too (megatron_words.py), keys that cost nothing
(tables/megatron-bridge.yaml). A dump is whole: what it leaves null has the default of Megatron-Core.

References
----------
NVIDIA-NeMo/Megatron-Bridge: training/config.py (`to_yaml`: classes as `_target_`, no tags),
training/mixed_precision.py (recipes), peft/lora.py.
"""

from flopcast.io.foreign.keys import keys_of
from flopcast.io.foreign.megatron_words import Translation, gradients_of
from flopcast.io.foreign.sheet import Asked, Sheet
from flopcast.io.yaml_text import Document

BASE = "megatron-bridge"
GATED = {"silu": "--swiglu", "swish": "--swiglu", "quick_gelu": "--quick-geglu"}
PLAIN = {"squared_relu": "--squared-relu", "gelu": "", "fast_gelu": "", "openai_gelu": ""}
ACTIVATION = "model.activation_func"  # a name in overrides, a function in dumps
RECIPES = {  # a name of mixed_precision.py → whether products are in 8 bits, and by which recipe
    "bf16_mixed": None, "bf16_with_fp8_delayed_scaling_mixed": "delayed", "bf16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_fp8_current_scaling_mixed": "tensorwise",
    "bf16_with_fp8_subchannel_scaling_mixed": "blockwise",
    "nemotron_h_bf16_with_fp8_current_scaling_mixed": "tensorwise",
}  # fmt: skip
TARGETS = {"linear_qkv": "qkv", "linear_proj": "out", "linear_fc1": "gate_up", "linear_fc2": "down"}


def read(document: Document, asked: Asked) -> Document:
    """The job of a dump."""
    sheet = Sheet(document, keys_of("megatron-bridge"), asked)
    said = Translation(sheet)
    mixed = "mixed_precision"
    types = ("bf16", "fp16", "fp8_param_gather", "first_last_layers_bf16")
    said.section("model", skipped=types if sheet.below(mixed) or sheet.has(mixed) else ())
    said.section("train")
    for section in ("ddp", "optimizer", "dist"):
        said.section(section, skipped=("bf16", "fp16", "use_megatron_fsdp") if section != "ddp" else ())
    if sheet.has("model.num_query_groups"):
        said.say("--group-query-attention", "model.num_query_groups")
        said.say("--num-query-groups", "model.num_query_groups", sheet.raw("model.num_query_groups"))
    if sheet.has("model.recompute_modules"):
        said.say("--recompute-modules", "model.recompute_modules", sheet.raw("model.recompute_modules"))
    dumped = sheet.below(ACTIVATION)
    activate(sheet, said, f"{ACTIVATION}._target_" if dumped else ACTIVATION, "model.gated_linear_unit")
    _precision(sheet, said)
    _peft(sheet)
    said.read(sheet.asked.devices or sheet.asked.whole or _nobody(sheet))
    gradients = gradients_of(sheet, "ddp")
    if sheet.has("mixed_precision.grad_reduce_in_fp32"):
        gradients["dtype"] = "fp32" if sheet.flag("mixed_precision.grad_reduce_in_fp32") else "bf16"
    changes: dict[str, object] = {"gradients": gradients} if gradients else {}
    if sheet.flag("comm_overlap.tp_comm_overlap") or sheet.flag("model.tp_comm_overlap"):
        changes["tensor_overlap"] = "chunks"
    sheet.put(("stack",), {"base": BASE} | changes if changes else BASE)
    return sheet.made()


def activate(sheet: Sheet, said: Translation, key: str, gate: str) -> None:
    """The activation, a function's name, and whether it gates."""
    name = sheet.text(key).rpartition(".")[2]
    gated = sheet.flag(gate)
    known = GATED if gated else PLAIN
    if gated and name == "gelu":
        said.say("--glu-activation", key, "geglu")
    elif name in known:
        if known[name]:
            said.say(known[name], key)
    elif name:
        allowed = ", ".join([*known, *(["gelu"] if gated else [])])
        sheet.fault(
            key, allowed, f"no other {'gated ' if gated else ''}activation is built", "choose the nearest"
        )


def _nobody(sheet: Sheet) -> int | None:
    """No number of devices, which is a fault of the command line's."""
    sheet.ranks()
    return None


def _precision(sheet: Sheet, said: Translation) -> None:
    """bf16, fp16 or 8 bits: by the name of a recipe, or by the recipe's fields."""
    key = "mixed_precision"
    if isinstance(sheet.raw(key), str):
        words = {name: recipe or "none" for name, recipe in RECIPES.items()} | {
            "16-mixed": "half",
            "fp16_mixed": "half",
        }
        recipe = sheet.choice(key, words, "none")
        said.say("--fp16" if recipe == "half" else "--bf16", key)
        if recipe not in ("none", "half"):
            said.say("--fp8-format", key, "hybrid")
            said.say("--fp8-recipe", key, recipe)
        return
    if not sheet.below(key):
        return
    said.section(key)
    for name in ("fp8", "fp4"):
        if sheet.has(f"{key}.{name}"):
            said.say(f"--{name}-format", f"{key}.{name}", sheet.raw(f"{key}.{name}"))
            said.say(f"--{name}-recipe", f"{key}.{name}_recipe", sheet.raw(f"{key}.{name}_recipe"))


def _peft(sheet: Sheet) -> None:
    """Low-rank adapters; the file's own class names the method."""
    if not sheet.below("peft"):
        return
    method = sheet.text("peft._target_").rpartition(".")[2]
    if method not in ("", "LoRA"):
        sheet.refuse("peft._target_", f"{method or 'tuning of a part'}", "use LoRA")
        return
    names = sheet.texts("peft.target_modules") or tuple(TARGETS)
    known = [TARGETS[name] for name in names if name in TARGETS]
    if len(known) < len(names):
        sheet.fault(
            "peft.target_modules", ", ".join(TARGETS), "no adapter beside others is built", "name these"
        )
    sheet.put(("model", "adapters", "rank"), sheet.count("peft.dim", 32), "peft.dim")
    sheet.put(("model", "adapters", "targets"), known, "peft.target_modules")
    dropout = sheet.fraction("peft.dropout", 0.0)
    if dropout:
        sheet.put(("model", "adapters", "dropout"), dropout, "peft.dropout")
