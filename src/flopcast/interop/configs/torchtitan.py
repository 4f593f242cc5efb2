"""torchtitan's settings as a job: TOML files of older releases, and dumps of Python configs.

Answers: which model, plan and stack do these sections describe?
Elsewhere: the program that writes a dump (torchtitan_dump.py), stages (torchtitan_stages.py). Degrees moved
from [training] to [experimental] and then to [parallelism]; the newest given section counts.

References
----------
pytorch/torchtitan: torchtitan/config/job_config.py and config/configs.py (names and defaults),
torchtitan/models/llama3/parallelize.py (what is compiled, recomputed and sharded). Since release 0.3, the
class of `activation_checkpoint` states the recompute (distributed/activation_checkpoint.py), and converters
replace the linears of `model_spec` before the dump (components/quantization, components/lora.py).
"""

import re
from math import log, prod

from flopcast.files.yaml_text import Document
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import FLAVOURS, SHARDED_STATES, JobReader
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.narrow_states import NARROW, narrowed
from flopcast.interop.configs.torchtitan_stages import SECTIONS, key_of, read_stages
from flopcast.layers.modules import OPERATORS
from flopcast.library import catalog
from flopcast.records import replace
from flopcast.schedules import SCHEDULES
from flopcast.spec.divisors import nearest_multiples
from flopcast.units import counted

DEGREES = ("tensor_parallel", "context_parallel", "pipeline_parallel")
WIDTHS = {"bfloat16": "bf16", "float32": "fp32"}
REPLICATE, SHARD = "data_parallel_replicate_degree", "data_parallel_shard_degree"
OLD_SHARD, OLD_TYPE = "training.data_parallel_degree", "training.data_parallel_type"
EVERY_SECOND = "2"
ROTATIONS = {"allgather": "all_gather", "alltoall": "ring"}
RECIPES = keys_of("torchtitan").words["recipes"]
RECIPE_SECTIONS = ("", "quantize.linear.", "quantize.dense.")
CLASS = "activation_checkpoint._type_"
CLASSES = {
    "FullAC": ("full", ""),
    "SelectiveAC": ("selective", "op"),
    "MemoryBudgetAC": ("memory_budget", ""),
}


def read(reader: JobReader) -> None:
    """Read the job of a file of torchtitan.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> read_kind(Document("train.toml", {"model": {"name": "llama3", "flavor": "8B"},
    ...     "training": {"local_batch_size": 1, "seq_len": 8192}}, {}),
    ...     "torchtitan", ImportOptions(devices=8)).data["model"]
    {'base': 'llama-3.1-8b'}
    """
    name = reader.first("model.name", "model_spec.name")
    flavour = reader.first("model.flavor", "model_spec.flavor")
    pair = f"{reader.text(name) or 'llama3'}/{reader.text(flavour) or 'debugmodel'}"
    _check_flavour(reader, flavour, pair)
    reader.read_model(flavour, pair)
    _check_sizes(reader)
    reader.put(("batch", "sequence_length"), reader.count("training.seq_len", 2048), "training.seq_len")
    stages = _degrees(reader)
    _batch(reader, stages)
    read_stages(reader, key_of(reader, "pipeline_parallel_degree"), stages)
    _modes(reader)
    reader.put(("stack",), _stack(reader))


def _check_flavour(reader: JobReader, key: str, pair: str) -> None:
    """Report a flavour that the catalogue does not describe, unless --model names another model."""
    family, _, flavour = pair.lower().partition("/")
    known = [each.partition("/")[2] for each in FLAVOURS if each.startswith(f"{family}/")]
    if reader.options.model or not reader.has(key) or not known or flavour in known:
        return
    number = re.match(r"[\d.]+(?=b)", flavour)
    sizes = {each: float(size[0]) for each in known if (size := re.match(r"[\d.]+(?=b)", each))}
    near = known
    if number and sizes:
        near = [min(sizes, key=lambda each: abs(log(sizes[each] / float(number[0]))))]
    because = f"the catalogue describes only these flavors of {family}"
    fix = f"did you mean {near[0].upper()}? If not, add --model config.json, the config of this model"
    reader.fault(key, ", ".join(known).upper(), because, fix)


def prepared(document: Document, options: ImportOptions) -> Document:
    """Return a file without the registry's model if --model names another one."""
    data = document.data if options.model else None
    spec = data.get("model_spec") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(spec, dict):
        return document
    rest = {key: value for key, value in spec.items() if key != "model"}
    return replace(document, data=data | {"model_spec": rest})


def _check_sizes(reader: JobReader) -> None:
    """Report sizes that differ between the dumped model and the model of its flavour."""
    name = reader.part("model").get("base")
    if name is None:  # unknown, or --model names another
        return
    model = catalog.model(str(name))
    for key, size in (
        ("model_spec.model.n_layers", model.num_blocks),
        ("model_spec.model.dim", model.hidden),
    ):
        if reader.has(key) and reader.count(key, size) != size and not reader.faulty(key):
            because = f"the catalogue describes the model of this flavor as {name}, which has {size}"
            reader.fault(key, str(size), because, "add --model config.json, the config of this model")


def _degrees(reader: JobReader) -> int:
    """Return degrees, the sharding of data-parallel ranks, and the number of pipeline stages.

    -1 shards over all remaining ranks. Parameters are sharded if several ranks shard or share a sequence,
    and otherwise replicated (DDP).
    """
    keys = {field: key_of(reader, f"{field}_degree") for field in DEGREES}
    sizes = {field: reader.count(key) for field, key in keys.items()}
    for field, key in keys.items():
        reader.put_degree(field, sizes[field], key)
    shard_key = key_of(reader, SHARD) if reader.has(*(f"{s}.{SHARD}" for s in SECTIONS)) else OLD_SHARD
    replicate_key = key_of(reader, REPLICATE)
    replicas, shards = reader.count(replicate_key), reader.count(shard_key, -1, least=-1)
    if shards == 0:
        allowed = "-1 (the remaining devices), or at least 1"
        reader.fault(shard_key, allowed, "a parallelism degree is at least 1", "write -1")
        shards = 1
    degrees = {keys[field]: size for field, size in sizes.items()} | {replicate_key: replicas}
    filling = reader.replicas(degrees, prod(degrees.values()) * shards if shards > 0 else None, shard_key)
    shards = filling if shards < 0 or reader.options.devices else shards
    reader.put(("plan", "data_parallel"), replicas * shards, shard_key)
    whole = reader.choice(OLD_TYPE, {"fsdp": "", "ddp": "ddp"}, "")  # of releases before degrees of both
    sharded = not whole and (shards > 1 or sizes["context_parallel"] > 1)
    reader.put(("plan", "zero"), 3 if sharded else 0, shard_key)
    if sharded and replicas > 1:
        reader.put(("plan", "data_shard"), shards, replicate_key)
    for name, field in (("expert", "expert_parallel"), ("expert_tensor", "expert_tensor_parallel")):
        key = key_of(reader, f"{name}_parallel_degree")
        if reader.has(key):
            reader.put(("plan", field), reader.count(key), key)
    return sizes["pipeline_parallel"]


def _batch(reader: JobReader, stages: int) -> None:
    """Read sequences per micro-batch and step; a pipeline cuts the local batch into micro-batches."""
    local_key = reader.first("training.local_batch_size", "training.batch_size")
    local, total_key = reader.count(local_key, 8), "training.global_batch_size"
    replicas = reader.degree("data_parallel")
    total = reader.count(total_key, -1, least=-1)
    if total < 1:
        total = local * replicas
    elif total % (local * replicas):
        because = (
            f"each of the {replicas} data-parallel ranks processes {counted(local, 'sequence')} at a time"
        )
        fix = f"write {nearest_multiples(total, local * replicas)}"
        reader.fault(total_key, f"a multiple of {local * replicas}", because, fix)
    size_key, micro = key_of(reader, "pipeline_parallel_microbatch_size"), local
    if stages > 1:
        micro = reader.count(size_key)
        if local % micro:
            because = "pipeline stages divide the local batch into equal micro-batches"
            reader.fault(size_key, f"a divisor of {local}", because, "write 1")
        if total > local * replicas:
            drains = "torchtitan drains the pipeline after each local batch"
            text = f"flopcast predicts one pipeline pass with all micro-batches of a step; {drains}"
            reader.assume(text, total_key)
    reader.put(("plan", "micro_batch"), micro, size_key if stages > 1 else local_key, local_key)
    reader.put(("plan", "global_batch"), total, total_key, local_key)


def _modes(reader: JobReader) -> None:
    """Read sequence parallelism, exchange of keys and values, recompute, precision, optimizer, offload."""
    plan = reader.part("plan")
    if "tensor_parallel" in plan:
        shared = reader.flag("parallelism.enable_sequence_parallel", True)
        reader.put(("plan", "sequence_parallel"), shared, key_of(reader, "tensor_parallel_degree"))
    if "context_parallel" in plan:
        key = key_of(reader, "context_parallel_rotate_method")
        reader.put(("plan", "context_exchange"), reader.choice(key, ROTATIONS, "all_gather"), key)
        balancer = key_of(reader, "context_parallel_load_balancer")
        if reader.raw(balancer) in ("", "none"):
            reader.put(("plan", "context_order"), "contiguous", balancer)
    _recompute(reader)
    reader.put(("plan", "precision"), _precision(reader), "model.converters", "model_converters.converters")
    optimizer = reader.choice("optimizer.name", reader.words("optimizers"), "adamw")
    reader.put_optimizer(optimizer, "optimizer.name")
    reader.place_if("training.enable_cpu_offload", SHARDED_STATES)


def _recompute(reader: JobReader) -> None:
    """Read recompute of whole blocks, every n-th of them, or by operator (every second product)."""
    mode_key, option_key = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
    modes = {"none": "none", "full": "full", "selective": "selective"}
    if reader.has("_type_") and not reader.below("activation_checkpoint"):  # a dump, in which it is null
        return
    usual, option = CLASSES.get(reader.text(CLASS).split(".")[-2:][0], ("selective", EVERY_SECOND))
    if usual == "memory_budget" and not reader.has(mode_key):
        reader.refuse(CLASS, "recompute within a budget of memory (MemoryBudgetAC)")
        return
    mode = reader.choice(mode_key, modes, usual)
    if mode == "none":
        return
    option = str(reader.raw(option_key) or option)
    if (mode, option) == ("selective", "op"):
        reader.put(("plan", "recompute"), "selective", mode_key)
        reader.put(("plan", "recompute_modules"), [OPERATORS], option_key)
        return
    reader.put(("plan", "recompute"), "full", mode_key)
    if mode == "full":
        return
    if not option.isdecimal() or int(option) < 1:
        because = "flopcast does not support this value"
        reader.fault(option_key, '"op", or a number n for every n-th layer', because, 'write "op"')
        return
    if int(option) > 1:
        reader.put(("plan", "recompute_method"), "every", option_key)
        reader.put(("plan", "recompute_layers"), int(option), option_key)


def _precision(reader: JobReader) -> str:
    """Return bf16, or the recipe of the converter that replaces linears."""
    if reader.choice(wide := "training.mixed_precision_param", WIDTHS, "bf16") == "fp32":
        reader.refuse(wide, "training in fp32 with TorchTitan", 'write "bfloat16"')
    linears = reader.words("linears")
    replaced = re.findall(rf"\b({'|'.join(linears)})Linear\b", str(reader.section("model_spec.model")))
    for kind in dict.fromkeys(replaced):
        if not linears[kind]:
            reader.refuse("model_spec.model.layers", f"linear layers of the class {kind}Linear")
        return linears[kind] or "bf16"
    converters = "".join(
        str(reader.raw(f"{name}.converters") or "") for name in ("model", "model_converters")
    )
    old = ("training.enable_fp8_linear", "training.enable_float8_linear", "float8.enable_float8_linear")
    if "mx" in converters.lower():
        return reader.choice(_recipe_key(reader, "mx"), RECIPES, "mxfp8")
    if "float8" in converters.lower() or any(reader.flag(key) for key in old):
        key = _recipe_key(reader, "float8")
        if str(reader.raw(key)).startswith("rowwise"):
            reader.assume("rowwise scaling is predicted as one scale per tensor", key)
        return reader.choice(key, RECIPES, "fp8_current")
    return "bf16"


def _recipe_key(reader: JobReader, kind: str) -> str:
    """Return the key of a converter's recipe, whose section moved between releases."""
    return reader.first(*(f"{section}{kind}.recipe_name" for section in RECIPE_SECTIONS))


def _stack(reader: JobReader) -> object:
    """Return PyTorch's FSDP2, with or without compiled blocks, and the changes that switches make."""
    parts = reader.texts("compile.components") or ("model",)
    compiled = reader.flag("training.compile") or (reader.flag("compile.enable") and "model" in parts)
    base = "torch-fsdp2-compiled" if compiled else "torch-fsdp2"
    changes: dict[str, object] = {}
    key = key_of(reader, "pipeline_parallel_expert_parallel_overlap")
    paired = SCHEDULES[str(reader.part("plan").get("schedule", "1f1b"))].pairs_passes
    if reader.flag(key, default=True) and paired:
        changes["experts"] = {"exchange_overlap": "other_micro_batch"}
    chunked = "enable_async_tensor_parallel"
    key = reader.first(f"compile.{chunked}", key_of(reader, chunked))
    if reader.flag(key):
        if compiled:
            changes["tensor_overlap"] = "chunks"
        else:
            text = "enable_async_tensor_parallel has no effect, because the model is not compiled"
            reader.assume(text, key)
    policy = key_of(reader, "fsdp_reshard_after_forward")
    word = reader.choice(policy, {name: name for name in ("default", "always", "never")}, "default")
    if word == "never":
        changes["sharding"] = {"gathers": "every_micro_batch"}
    if word == "always":
        changes["sharding"] = {"holds_in_pipeline": False}
    if narrow := reader.choice("training.mixed_precision_reduce", NARROW, ""):
        changes["gradients"] = {"dtype": narrow}
    if reader.choice("training.dtype", NARROW, ""):
        return narrowed({"base": base} | changes)
    return {"base": base} | changes if changes else base
