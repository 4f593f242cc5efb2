"""Configurations of NeMo 1.x for GPT-like models as jobs.

Answers: which model, plan and stack do the sections `trainer` and `model` describe?
Elsewhere: fields that Megatron-Core's flags also fill (megatron_settings.py), keys that cost nothing
(tables/nemo.yaml). A missing key has the default of NeMo's own code, not of its sample files.

References
----------
NVIDIA/NeMo 1.x: examples/nlp/language_modeling/conf/megatron_gpt_config.yaml, megatron_llama_config.yaml;
nemo/core/optim/optimizers.py (names); in nemo/collections/nlp/models/language_modeling,
megatron_base_model.py (`build_transformer_config`: fields of Megatron-Core that have the same name) and
megatron_gpt_model.py (`model_provider_func`: override_vocab_size is the padded size of the table).
NVIDIA/NeMo-Framework-Launcher: launcher_scripts/conf/training.
"""

import re

from flopcast.errors import spec_error
from flopcast.files.yaml_text import Document
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.megatron_settings import VALUES, TranslatedFlags
from flopcast.interop.configs.nemo_stack import stack_of
from flopcast.interop.configs.unsupported_programs import BY_HAND
from flopcast.interop.megatron.programs import other_class, other_model
from flopcast.records import replace

PRODUCT = re.compile(r"\$\{multiply:\s*([0-9]{1,6})\s*,\s*\$\{\.([a-z_]+)\}\s*\}")
SUM = re.compile(r"\$\{sum:\s*\$\{\.([a-z_]+)\}\s*,\s*(-?[0-9]{1,6})\s*\}")
WHOLE = "adam"
NEEDED = ("global_batch_size", "ffn_hidden_size")  # beside those that Megatron-LM needs too


def read(reader: JobReader) -> None:
    """Read the job of a configuration.

    Keys become flags of Megatron-LM, as for Megatron-Bridge. A missing key has the default of NeMo's code,
    not of Megatron-LM.

    """
    flags = TranslatedFlags(reader)
    for key in NEEDED:
        if not reader.has(f"model.{key}"):
            reader.required(f"model.{key}")
    flags.section("model", skipped=tuple(reader.words("filled_otherwise")))
    flags.section("model", "train")
    flags.section("model", "dist", skipped=("use_torch_fsdp2",))
    flags.offloading()
    for name in reader.words("missed"):
        flags.name_key({**VALUES["model"], **VALUES["train"]}[name], f"model.{name}")
    flags.name_key("--vocab-size", "model.override_vocab_size")
    for key, flag in reader.words("renamed").items():
        flags.name_key(flag, f"model.{key}")
        if reader.has(f"model.{key}"):
            flags.add(flag, f"model.{key}", reader.raw(f"model.{key}"))
    groups = "model.num_query_groups"
    if reader.has(groups):
        flags.add("--group-query-attention", groups)
        flags.add("--num-query-groups", groups, reader.raw(groups))
    if reader.has("model.normalization"):
        norm = reader.choice("model.normalization", reader.words("norms"), "LayerNorm")
        flags.add("--normalization", "model.normalization", norm)
    for key, flag in reader.words("unset").items():
        if reader.has(f"model.{key}") and not reader.flag(f"model.{key}", True):
            flags.add(flag, f"model.{key}")
    _activation(reader, flags)
    _tokenizer(reader, flags)
    _recompute(reader, flags)
    _precision(reader, flags)
    optimizer = reader.choice("model.optim.name", reader.words("optimizers"), WHOLE)
    if optimizer != WHOLE:
        flags.add("--use-distributed-optimizer", "model.optim.name")
    changes = flags.read(_devices(reader), "nemo")
    reader.put(("stack",), stack_of(reader, optimizer, changes))


def _refuse_other_models(document: Document) -> None:
    """Check that the name, class and keys of a configuration describe a GPT-like model.

    Raises
    ------
    SpecError
        The model is of another kind, and its layers would be read as those of a GPT.
    """
    data = document.data if isinstance(document.data, dict) else {}
    section = data.get("model")
    model: dict[str, object] = section if isinstance(section, dict) else {}
    name, target = str(data.get("name", "")), str(model.get("target", ""))
    signs: list[tuple[tuple[str, ...], str]] = [
        (("model", key), what)
        for key, what in keys_of("nemo").words["other_models"].items()
        if model.get(key) not in (None, False, 0)
    ]
    if name.startswith(("megatron_", "nemo_")) and (trained := other_model(name)):
        signs.append((("name",), trained))
    if trained := other_class(target):
        signs.append((("model", "target"), trained))
    if signs:
        path, what = signs[0]
        because = f"the file describes {what}, but flopcast reads only GPT-like models from files of NeMo"
        value = data.get("name") if path == ("name",) else model.get(path[-1])
        allowed, fix = ("a configuration of a GPT-like model", BY_HAND)
        where, key = document.where(path), ".".join(path)
        shown = value if isinstance(value, (str, int)) else "a section"
        raise spec_error(key, shown, allowed, because, fix, where=where)


def prepared(document: Document, _options: ImportOptions) -> Document:
    """Return the document with NeMo's `${multiply:4, ${.hidden_size}}` computed if both are numbers.

    `${sum:${.num_layers},-1}` is the usual number of layers whose activations are offloaded.

    Raises
    ------
    SpecError
        The model is not a GPT-like decoder.
    """
    _refuse_other_models(document)
    data = document.data
    model = data.get("model") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(model, dict):
        return document
    done = dict(model)
    for key, value in model.items():
        match = PRODUCT.fullmatch(value.strip()) if isinstance(value, str) else None
        factor = model.get(match[2]) if match else None
        if match and type(factor) is int:
            done[key] = int(match[1]) * factor
        added = SUM.fullmatch(value.strip()) if isinstance(value, str) else None
        if added and type(term := model.get(added[1])) is int:
            done[key] = term + int(added[2])
    return replace(document, data=data | {"model": done})


def _devices(reader: JobReader) -> int | None:
    """Return devices per node times nodes; None if they are not stated, which is reported as a fault."""
    stated = None
    if reader.has("trainer.devices"):
        stated = reader.count("trainer.devices") * reader.count("trainer.num_nodes")
    devices = reader.ranks(stated)
    return None if reader.faulty("world size", "trainer.devices", "trainer.num_nodes") else devices


def _activation(reader: JobReader, flags: TranslatedFlags) -> None:
    """Read the activation, which is gated if its name ends in "glu"; "fast" ones use fused kernels."""
    key = "model.activation"
    known = {name: name for name in reader.words("activations")}
    name = reader.choice(key, known, "gelu")
    flag = reader.words("activations")[name]
    if flag:
        flags.add(flag, key, name.removeprefix("fast-") if flag == "--glu-activation" else None)


def _tokenizer(reader: JobReader, flags: TranslatedFlags) -> None:
    """Read the tokenizer's vocabulary from its Megatron type, or from the name of its file or repository.

    The path of a file may contain a reference, `${data_dir}/…`; only the file's name matters.
    """
    flags.name_key("--tokenizer-type", "model.tokenizer")
    section = reader.section("model.tokenizer")
    if str(section.get("library")) == "megatron" and section.get("type"):
        flags.add("--tokenizer-type", "model.tokenizer.type", str(section["type"]))
        return
    for key in ("model", "type"):
        if section.get(key):
            flags.add("--tokenizer-model", f"model.tokenizer.{key}", str(section[key]))
            return


def _recompute(reader: JobReader, flags: TranslatedFlags) -> None:
    """Read the recomputed parts; method and number apply only to whole layers.

    "block" with 0 layers recomputes nothing.
    """
    key = "model.activations_checkpoint_granularity"
    mode = reader.choice(key, {"selective": "selective", "full": "full"}, "")
    layers, method = "model.activations_checkpoint_num_layers", "model.activations_checkpoint_method"
    kind = reader.choice(method, {"uniform": "uniform", "block": "block"}, "uniform")
    number = reader.count(layers, 1, least=0)
    if mode == "full" and kind == "block" and number == 0:
        return
    if mode:
        flags.add("--recompute-granularity", key, mode)
    if mode == "full":
        flags.add("--recompute-method", method, kind)
        flags.add("--recompute-num-layers", layers, number)


def _precision(reader: JobReader, flags: TranslatedFlags) -> None:
    """Read 16 bits from the trainer's precision; 8-bit products use Transformer Engine with delayed
    scaling.

    Without O2, weights are kept in fp32 and cast for each product; a note states this, but the casts are
    not counted.
    """
    key = "trainer.precision"
    if not reader.has(key):
        allowed = ", ".join(reader.words("precisions"))
        because = "without this key, NeMo trains in fp32, which flopcast does not yet support"
        reader.fault(key, allowed, because, "write bf16")
    flags.add(reader.choice(key, reader.words("precisions"), "--bf16"), key)
    if not reader.flag("model.megatron_amp_O2"):
        text = "flopcast assumes weights in 16 bits in addition to fp32, as with megatron_amp_O2"
        reader.assume(text, "model.megatron_amp_O2")
    engine = reader.flag("model.transformer_engine") or reader.flag("model.mcore_gpt")
    if not engine:
        text = "flopcast predicts kernels of Transformer Engine, although the file does not enable it"
        reader.assume(text, "model.transformer_engine")
    if not reader.flag("model.fp8"):
        return
    if not engine:
        reader.assume("model.fp8 has no effect without transformer_engine", "model.fp8")
        return
    formats = [name for name in ("e4m3", "hybrid") if reader.flag(f"model.fp8_{name}")]
    if not formats:
        because = "fp8 training needs a number format"
        allowed = "false, unless fp8_hybrid or fp8_e4m3 is true"
        reader.fault("model.fp8", allowed, because, "add fp8_hybrid: true")
        return
    flags.add("--fp8-format", "model.fp8", formats[0])
    flags.add("--fp8-recipe", "model.fp8", "delayed")
