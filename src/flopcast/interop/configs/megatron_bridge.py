"""Dumps of Megatron-Bridge's ConfigContainer, and overrides of one, as jobs.

Answers: which model and plan does a dump describe?
Elsewhere: fields that Megatron-Core's flags also fill (megatron_settings.py), the reduction of gradients
and the transfer of activations (bridge_stack.py), keys that cost nothing (tables/megatron-bridge.yaml). A
dump is complete: null values mean the defaults of Megatron-Core.

References
----------
NVIDIA-NeMo/Megatron-Bridge: training/config.py (`to_yaml`: classes as `_target_`, no tags),
utils/activation_map.py (names of activations), training/mixed_precision.py (recipes;
`update_config_with_precision_overrides` applies a recipe to the model, the optimizer and DDP and
overrides their values), peft/lora.py.
"""

from flopcast.interop.configs.bridge_stack import BASE, stack_of
from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.megatron_settings import TranslatedFlags
from flopcast.interop.configs.unsupported_programs import BY_HAND
from flopcast.interop.megatron.offload import FRACTION, UNPINNED
from flopcast.interop.megatron.programs import other_class

GELU = ("gelu", "fast_gelu", "gelu_pytorch_tanh", "openai_gelu")  # one kernel, whatever its series
GATED = {"silu": "--swiglu", "swish": "--swiglu", "quick_gelu": "--quick-geglu"}
PLAIN = {"squared_relu": "--squared-relu", "relu2": "--squared-relu"} | dict.fromkeys(GELU, "")
ACTIVATION = "model.activation_func"  # a name in overrides, a function in dumps
MIXED = "mixed_precision"
USUAL = {"fp8": "tensorwise", "fp4": "nvfp4"}  # recipes of MixedPrecisionConfig's fields
RECIPES = keys_of("megatron-bridge").words["recipes"]  # name → flags of Megatron-LM
TARGETS = {"linear_qkv": "qkv", "linear_proj": "out", "linear_fc1": "gate_up", "linear_fc2": "down"}
BACKENDS = {1: "flash", 2: "fused", 3: "unfused", 4: "local", 5: "auto"}  # AttnBackend


def read(reader: JobReader) -> None:
    """Read the job of a dump.

    Sections become flags of Megatron-LM, and the reader of launch scripts reads them, so that both give
    equal jobs. This module reads the settings that only a dump has (precision recipes, adapters,
    activations as functions).
    """
    if trained := other_class(reader.text("model._target_")):
        reader.refuse("model._target_", trained, BY_HAND)
    flags = TranslatedFlags(reader)
    flags.section("model", skipped=("tp_comm_overlap",))
    for section in ("train", "ddp", "optimizer", "dist"):
        flags.section(section)
    flags.offloading()
    _optimizer_on_host(reader, flags)
    if reader.has("model.num_query_groups"):
        flags.add("--group-query-attention", "model.num_query_groups")
        flags.add("--num-query-groups", "model.num_query_groups", reader.raw("model.num_query_groups"))
    _backend(reader, flags)
    dumped = reader.below(ACTIVATION)
    activate(reader, flags, f"{ACTIVATION}._target_" if dumped else ACTIVATION)
    _precision(reader, flags)
    _peft(reader)
    devices = reader.options.devices or reader.options.whole
    if devices is None:
        reader.ranks()  # its error: the number of devices must come from the command line
    changes = flags.read(devices, BASE)
    reader.put(("stack",), stack_of(reader, changes))


def _optimizer_on_host(reader: JobReader, flags: TranslatedFlags) -> None:
    """Read the placement of optimizer states on the host; without a fraction, none are placed there."""
    on, fraction, pinned = (
        f"optimizer.{name}"
        for name in ("optimizer_cpu_offload", "optimizer_offload_fraction", "pin_cpu_grads")
    )
    if reader.flag(on) and not reader.has(fraction):
        flags.add(FRACTION, on, 0.0)
        reader.assume(f"{fraction} 0.0, the default of Megatron-Core: no optimizer state is offloaded", on)
    if not reader.flag(pinned, True):
        flags.add(UNPINNED, pinned)


def _backend(reader: JobReader, flags: TranslatedFlags) -> None:
    """Read the attention kernel: a name or, in dumps, a number of Megatron-Core's enumeration."""
    key = "model.attention_backend"
    numbered = f"{key}._args_"
    if reader.has(numbered):
        (number, *_) = listed if isinstance(listed := reader.raw(numbered), list) and listed else (0,)
        key, name = numbered, BACKENDS.get(number, str(number))
    else:
        name = reader.text(key)
    if name:
        flags.add("--attention-backend", key, name)


def activate(reader: JobReader, flags: TranslatedFlags, key: str) -> None:
    """Read the activation, which is a function's name, and whether it is gated.

    Parameters
    ----------
    reader : JobReader
    flags : TranslatedFlags
        Receives the flag of Megatron-LM.
    key : str
        Key of the function.
    """
    name = reader.text(key).rpartition(".")[2]
    gated = reader.flag("model.gated_linear_unit")
    known = GATED if gated else PLAIN
    if gated and name in GELU:
        flags.add("--glu-activation", key, "geglu")
    elif name in known:
        if known[name]:
            flags.add(known[name], key)
    elif name:
        allowed = ", ".join(dict.fromkeys([*known, *GELU]))
        because = f"flopcast does not support other {'gated ' if gated else ''}activations yet"
        reader.fault(key, allowed, because, "choose the most similar one")


def _precision(reader: JobReader, flags: TranslatedFlags) -> None:
    """Read bf16, fp16 or 8 bits: from the name of a recipe, its fields, or the model's own fields.

    A recipe's name may be written with hyphens.
    """
    if isinstance(reader.raw(MIXED), str):
        words = {spelt: name for name in RECIPES for spelt in (name, name.replace("_", "-"))}
        for word in RECIPES[reader.choice(MIXED, words, "bf16_mixed")].split():
            if word.startswith("--"):
                flags.add(word, MIXED)
            else:
                flags.add_value(word, MIXED)
        return
    section = MIXED if reader.below(MIXED) else "model"
    flags.section(section, MIXED)
    for name in ("fp8", "fp4"):
        key = f"{section}.{name}"
        if reader.has(key):
            flags.add(f"--{name}-format", key, reader.raw(key))
            recipe = reader.raw(f"{key}_recipe") or (USUAL[name] if section == MIXED else None)
            if recipe is not None:
                flags.add(f"--{name}-recipe", f"{key}_recipe", recipe)


def _peft(reader: JobReader) -> None:
    """Read low-rank adapters; the class in the file names the method."""
    if not reader.below("peft"):
        return
    method = reader.text("peft._target_").rpartition(".")[2]
    if method not in ("", "LoRA"):
        reader.refuse("peft._target_", f"{method or 'fine-tuning of only some layers'}", "use LoRA")
        return
    names = reader.texts("peft.target_modules") or tuple(TARGETS)
    known = [TARGETS[name] for name in names if name in TARGETS]
    if len(known) < len(names):
        allowed = ", ".join(TARGETS)
        because = "adapters of other linear layers are not supported yet"
        reader.fault("peft.target_modules", allowed, because, "name these")
    reader.put_adapters(known, "peft.target_modules", ("peft.dim", 32), ("peft.dropout", 0.0))
