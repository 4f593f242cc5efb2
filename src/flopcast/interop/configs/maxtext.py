"""MaxText's YAML as a job: JAX programs on GPUs.

Answers: which model, plan and stack does a MaxText file describe?
Elsewhere: its keys (tables/maxtext.yaml). A file changes base.yml, whose values apply to missing keys.

`per_device_batch_size` counts the sequences per device and step. If devices share sequences, each device
counts only its part.

References
----------
AI-Hypercomputer/maxtext: configs/base.yml (names, defaults and logical_axis_rules), pyconfig.py
(batch), layers/decoders.py (remat policies).
"""

from math import prod
from pathlib import PurePath

from flopcast.interop.configs.job_reader import ACTIVATIONS, JobReader
from flopcast.interop.configs.narrow_states import NARROW, narrowed
from flopcast.library import catalog
from flopcast.units import counted

ICI, DCN = "ici_{}_parallelism", "dcn_{}_parallelism"
BALANCED = "context_parallel_load_balance"
OFFLOADED_POLICY = "minimal_offloaded"  # outputs of all linear layers move to the host
POLICIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "full": ("full", ()),
    "minimal": ("selective", ("core_attention", "layernorm")),
    "minimal_with_context": ("selective", ("layernorm",)),
    "save_dot_with_context_except_mlp": ("selective", ("mlp",)),
    "save_dot_except_mlp": ("selective", ("core_attention", "mlp")),
    "save_dot_except_mlpwi": ("selective", ("core_attention", "mlp")),
    "minimal_flash": ("selective", ("layernorm",)),
    OFFLOADED_POLICY: ("selective", ("core_attention",)),
}
UNREAD_POLICIES = ("qkv_proj_offloaded", "custom")
ATTENTION = {
    "autoselected": "flash",
    "flash": "flash",
    "cudnn_flash_te": "flash",
    "dot_product": "materialised",
    "cudnn_flash_jax": "flash",
}
QUANTISED = {"": "", "fp8": "fp8_current", "nanoo_fp8": "fp8_current", "te_fp8_delayedscaling": "fp8"}
QUANTISED |= {"te_fp8_currentscaling": "fp8_current", "te_mxfp8": "mxfp8", "fp8_full": "fp8_current"}
SPARSE, CAPACITY = "sparse_matmul", "capacity_factor"
OVERRIDE, LAYERS = "override_model_config", "base_num_decoder_layers"
# a size → its place in a model; "-" is the number of the last run of blocks
SIZES: dict[str, tuple[str, ...]] = {
    LAYERS: ("blocks", "-", "count"),
    "base_emb_dim": ("hidden",),
    "base_num_query_heads": ("blocks", "-", "mixer", "heads"),
    "base_num_kv_heads": ("blocks", "-", "mixer", "kv_heads"),
    "base_mlp_dim": ("blocks", "-", "feed_forward", "ffn_hidden"),
    "head_dim": ("blocks", "-", "mixer", "head_size"),
    "vocab_size": ("vocabulary",),
}


def read(reader: JobReader) -> None:
    """Read the job of a file of MaxText.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> job = read_kind(Document("gpu.yml", {"base_config": "base.yml",
    ...     "model_name": "llama2-7b",
    ...     "per_device_batch_size": 4, "ici_fsdp_parallelism": 8}, {}), "maxtext", ImportOptions())
    >>> job.data["model"], job.data["plan"]["zero"], job.data["plan"]["global_batch"]
    ({'base': 'llama-2-7b'}, 3, 32)
    """
    if reader.text("hardware").startswith(("tpu", "cpu")):
        text = "flopcast uses the devices of the cluster, although the file is for another kind of device"
        reader.assume(text, "hardware")
    if reader.has("base_config") and not reader.text("base_config").endswith("base.yml"):
        what = "changes in a file other than base.yml, such as the file for inference"
        reader.refuse("base_config", what, "give a configuration of pre-training")
    _model(reader)
    length = reader.count("max_target_length", 2048)
    reader.put(("batch", "sequence_length"), length, "max_target_length")
    ranks = _degrees(reader)
    _batch(reader, ranks)
    _modes(reader)
    kernel = reader.choice("attention", ATTENTION, "flash")
    stack: dict[str, object] = {"base": "xla"}
    stack |= {"attention_kernel": kernel} if kernel != "materialised" else {}
    stack |= {"experts": {"one_hot_masks": True}} if _limits_experts(reader) else {}
    if reader.choice("weight_dtype", NARROW, ""):  # optax's states have the type of their parameter
        stack = narrowed(stack)
    reader.put(("stack",), stack, "attention")


def _sizes(reader: JobReader, known: int | None) -> dict[str, int]:
    """Return the product of both meshes' degrees by axis; a degree of -1 takes the remaining devices."""
    sizes: dict[str, int] = {}
    left: list[str] = []
    for axis in reader.words("axes"):
        sizes[axis] = 1
        for pattern, usual in ((ICI, -1 if axis == "fsdp" else 1), (DCN, -1 if axis == "data" else 1)):
            key = pattern.format(axis)
            degree = reader.count(key, usual, least=-1)
            if degree == 0:
                allowed = "-1 (the remaining devices), or at least 1"
                reader.fault(key, allowed, "a parallelism degree is at least 1", "write 1")
            sizes[axis] *= max(degree, 1)
            left += [axis] if degree == -1 and reader.has(key) else []
    named = left or ["fsdp"]
    rest = (known or prod(sizes.values())) // prod(sizes.values())
    if rest > 1 and (left or not reader.has(ICI.format("fsdp"))):
        sizes[named[0]] *= rest
    elif rest > 1:
        sizes["data"] *= rest
    return sizes


def _degrees(reader: JobReader) -> int:
    """Return degrees of the plan, and the number of devices that they need."""
    known = reader.options.devices
    sizes = _sizes(reader, known)
    inside, across = ([pattern.format(axis) for axis in reader.words("axes")] for pattern in (ICI, DCN))
    is_open = any(reader.raw(key) == -1 for key in (*inside, *across)) or not reader.has(*inside)
    stated = None if is_open else prod(sizes.values())
    if known is None and stated is None and reader.options.whole:
        sizes = _sizes(reader, reader.options.whole)
    cutting = ("tensor", "tensor_sequence", "pipeline", "context")
    degrees = {reader.first(ICI.format(axis), DCN.format(axis)): sizes[axis] for axis in cutting}
    replicas = reader.replicas(degrees, stated, reader.first(ICI.format("fsdp"), DCN.format("data")))
    reader.put(("plan", "data_parallel"), replicas, ICI.format("fsdp"), DCN.format("data"))
    for axes in (("tensor", "tensor_sequence"), ("pipeline",), ("context",), ("expert",)):
        keys = [pattern.format(axis) for axis in axes for pattern in (ICI, DCN)]
        reader.put_degree(reader.words("axes")[axes[0]], prod(sizes[axis] for axis in axes), *keys)
    if sizes["context"] > 1 and not reader.flag(BALANCED, True):
        reader.put(("plan", "context_order"), "contiguous", BALANCED)
    cuts = [axis for axis in ("tensor_sequence", "tensor") if sizes[axis] > 1]
    if cuts:  # between blocks, tensor cuts the hidden size (activation_embed), the other one the sequence
        reader.put(("plan", "sequence_parallel"), True, ICI.format(cuts[0]))
    shards = sizes["fsdp"] * sizes["expert"]
    reader.put(("plan", "zero"), 3 if shards > 1 else 0, ICI.format("fsdp"))
    if shards == reader.raw(ICI.format("fsdp")):  # no other axis divides the states
        reader.put_shards(shards if shards > 1 else 0, replicas, ICI.format("fsdp"))
    elif 1 < shards < replicas:
        reader.put(("plan", "data_shard"), shards, ICI.format("fsdp"))
    return replicas * prod(degrees.values())


def _batch(reader: JobReader, ranks: int) -> None:
    """Read the sequences per step and per micro-batch from those per device."""
    key, steps_key = "per_device_batch_size", "gradient_accumulation_steps"
    value, steps = reader.raw(key), reader.count(steps_key, 1)
    replicas, stages = reader.degree("data_parallel"), reader.degree("pipeline_parallel")
    each = 12.0 if value is None else value  # base.yml
    if isinstance(each, bool) or not isinstance(each, (int, float)) or each <= 0:
        because = "this setting is the number of sequences per device"
        reader.fault(key, "a number above 0", because, "write 1")
        return
    total = each * ranks
    pieces_key = "num_pipeline_microbatches"
    pieces = reader.count(pieces_key, stages, least=-1) if stages > 1 else 1
    pieces = stages if pieces < 1 else pieces
    whole = replicas * pieces
    if total != int(total) or int(total) % whole:
        parts = f"{replicas} replicas with {counted(pieces, 'micro-batch')} each"
        because = (
            f"the {total:g} sequences of {ranks} devices ({each:g} on each device) cannot be divided "
            f"evenly among {parts}"
        )
        allowed = "a whole number" if whole == ranks else f"a multiple of {whole / ranks:g}"
        fewer = total == int(total) and whole % int(total) == 0 and stages == 1
        tensor = reader.degree("tensor_parallel") * whole // int(total) if fewer else 1
        other = f", or set {ICI.format('tensor')} to {tensor}" if fewer else ""
        near = max(1, round(total / whole)) * whole / ranks
        reader.fault(key, allowed, because, f"write {near:g}{other}")
        return
    reader.put(("plan", "micro_batch"), int(total) // whole, key)
    reader.put(("plan", "global_batch"), int(total) * steps, steps_key, key)


def _modes(reader: JobReader) -> None:
    if reader.raw("remat_policy") in UNREAD_POLICIES:
        what = "offload of only some activations of a layer"
        reader.refuse("remat_policy", what, "write minimal_offloaded")
    known = {name: name for name in (*POLICIES, *UNREAD_POLICIES)}
    policy = reader.choice("remat_policy", known, "full")
    mode, modules = POLICIES.get(policy, ("full", ()))
    reader.put(("plan", "recompute"), mode, "remat_policy")
    if modules:
        reader.put(("plan", "recompute_modules"), list(modules), "remat_policy")
    if policy == OFFLOADED_POLICY:
        reader.place(ACTIVATIONS, "remat_policy")
        text = "the inputs of layers are offloaded too, although MaxText keeps them on the device"
        reader.assume(f"flopcast assumes that {text}", "remat_policy")
    narrow = reader.choice("quantization", QUANTISED, "")
    dtype = reader.choice("dtype", reader.words("dtypes"), "bf16")
    reader.put(("plan", "precision"), narrow or dtype, "quantization" if narrow else "dtype")
    reader.put_optimizer(reader.choice("opt_type", reader.words("optimizers"), "adamw"), "opt_type")
    for part, placed in (("optimizer", "optimizer:host"), ("parameter", "parameters:host")):
        reader.place_if(f"{part}_memory_host_offload", (placed,))


def _override(reader: JobReader) -> None:
    """Apply sizes given in addition to the name of a model, which `override_model_config` allows.

    If the layers of the model form several runs (DeepSeek's dense layers before those with experts), a
    different number of layers changes the length of the last run.

    References
    ----------
    pyconfig.py, `update_model_vars`: sizes of model_name replace those of the file.
    """
    base = reader.part("model").get("base")
    given = [key for key in SIZES if reader.has(key)]
    if not given or not isinstance(base, str):
        return
    if not reader.flag(OVERRIDE):
        for key in given:
            because = f"MaxText ignores this value and takes the sizes of {base}"
            allowed = f"no value, because model_name is set and {OVERRIDE} is not true"
            reader.fault(key, allowed, because, f"remove {key}, or write {OVERRIDE}: true")
        return
    model = catalog.model(base)
    dense = len(model.blocks) == 1 and model.blocks[0].feed_forward.kind == "mlp"
    for key in given:
        path, last = SIZES[key], str(len(model.blocks) - 1)
        number = reader.count(key)
        if key == LAYERS and not model.pattern:
            number -= sum(block.count for block in model.blocks[:-1])
        elif not dense:
            what = f"other sizes of {base} (a model with several kinds of layers)"
            reader.refuse(key, what, f"remove {key}")
            continue
        if number < 1:
            least = sum(block.count for block in model.blocks[:-1]) + 1
            because = f"{base} has several kinds of layers, and needs at least one layer of each kind"
            reader.fault(key, f"{least} or more", because, f"write {least}")
            continue
        reader.put(("model", *(last if part == "-" else part for part in path)), number, key)


def _limits_experts(reader: JobReader) -> bool:
    """Read the capacity of experts, and return whether products with one-hot masks select their tokens.

    References
    ----------
    layers/moe.py: `sparse_matmul` sends all tokens to their experts; `dense_matmul` selects them with masks
    if there is a capacity, and otherwise lets every expert compute all tokens.
    """
    base = reader.part("model").get("base")
    runs = catalog.model(base).blocks if isinstance(base, str) and base in catalog.names("models") else ()
    sparse = [number for number, block in enumerate(runs) if block.feed_forward.kind == "experts"]
    if reader.flag(SPARSE, True) or not sparse:
        if reader.has(CAPACITY):
            reader.assume(f"MaxText uses this value only for experts with {SPARSE}: false", CAPACITY)
        return False
    factor = reader.raw(CAPACITY)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or factor <= 0:
        fix = f"write a {CAPACITY}, or {SPARSE}: true"
        reader.refuse(SPARSE, "experts that each compute all tokens", fix)
        return False
    for number in sparse:
        place = ("model", "blocks", str(number), "feed_forward")
        reader.put((*place, "capacity_factor"), float(factor), CAPACITY)
        reader.put((*place, "pads_to_capacity"), True, CAPACITY)
    return True


def _model(reader: JobReader) -> None:
    """Read the named model, or the model with the given sizes."""
    if reader.options.model:
        return
    name = reader.text("model_name")
    if name not in ("", "default"):
        known = catalog.known("models", name.replace("llama", "llama-")) or name
        named = reader.words("deepseek").get(name, known)
        reader.read_model("model_name", named)
        _override(reader)
        return
    if reader.count("num_experts", 1) > 1:
        what = "a mixture-of-experts model without model_name"
        reader.refuse("num_experts", what, "write model_name, or --model")
    scale = reader.count("global_parameter_scale", 1)
    if scale > 1:
        what = "one scale factor for all sizes of a model (global_parameter_scale)"
        reader.refuse("global_parameter_scale", what, "write the sizes themselves")
    heads, head = reader.count("base_num_query_heads", 16), reader.count("head_dim", 128)
    hidden = reader.count("base_emb_dim", 2048)
    words = [word.lower() for word in reader.texts("mlp_activations")] or ["silu", "linear"]
    gated = "linear" in words
    activation = reader.words("gated_activations" if gated else "activations").get(words[0], "")
    if not activation:
        allowed = "[silu, linear], [gelu, linear], [gelu] or [relu]"
        because = "flopcast does not support this value yet"
        reader.fault("mlp_activations", allowed, because, "choose one")
    block = ("model", "blocks", 0)
    reader.put(("model", "name"), PurePath(reader.document.name).stem)
    reader.put(("model", "hidden"), hidden, "base_emb_dim")
    reader.put(("model", "vocabulary"), reader.count("vocab_size", 32000), "vocab_size")
    reader.put(("model", "vocabulary_multiple"), 1)
    reader.put(("model", "tied_embeddings"), reader.flag("logits_via_embedding"), "logits_via_embedding")
    reader.put((*block, "count"), reader.count("base_num_decoder_layers", 16), "base_num_decoder_layers")
    reader.put((*block, "norm"), "rmsnorm")
    reader.put((*block, "mixer", "heads"), heads, "base_num_query_heads")
    reader.put((*block, "mixer", "kv_heads"), reader.count("base_num_kv_heads", 16), "base_num_kv_heads")
    reader.put((*block, "mixer", "head_size"), head, "head_dim")
    reader.put((*block, "feed_forward", "ffn_hidden"), reader.count("base_mlp_dim", 7168), "base_mlp_dim")
    reader.put((*block, "feed_forward", "activation"), activation or "swiglu", "mlp_activations")
    decoder = reader.text("decoder_block")
    if decoder not in ("", "llama2", "llama", "default", "mistral"):
        reader.refuse("decoder_block", f"decoder_block {decoder} without model_name", "write model_name")
