"""InternEvo's configurations as jobs; their Python text is read as data.

Answers: which model, plan and stack does a configuration of InternEvo describe?
Elsewhere: the text (python_text.py), keys that change no step (tables/internevo.yaml), the software
(catalog/stacks/internevo.yaml).

References
----------
InternLM/InternEvo: configs/ (files, and the meaning of their keys), internlm/model (blocks; the inner
width of an MLP is a multiple of 256), internlm/core/parallel (modes of tensor parallelism: mtp, and msp
and fsp with sequence parallelism).
"""

from math import ceil
from pathlib import PurePath

from flopcast.interop.configs.job_reader import JobReader

INNER_MULTIPLE = 256
OF_WEIGHTS: dict[str, object] = {  # sharding of the stack under weight parallelism
    "zero_stages": [0, 1, 3],
    "levels": ["parameters", "gradients"],
    "keeps_low_precision": True,
    "gradient_dtype": "bf16",
}


def read(reader: JobReader) -> None:
    """Read the job of a configuration.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> model = {"hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32, "vocab_size": 32000}
    >>> job = read_kind(Document("7b.py", {"model_type": "LLAMA2", "model": model,
    ...     "data": {"seq_len": 4096, "micro_bsz": 1, "micro_num": 8},
    ...     "parallel": {"zero1": {"size": -1}, "tensor": {"size": 2, "mode": "msp"}}}, {}),
    ...     "internevo", ImportOptions(devices=8))
    >>> job.data["plan"]["global_batch"], job.data["plan"]["sequence_parallel"], job.data["stack"]["base"]
    (32, True, 'internevo')
    """
    reader.put(("batch", "sequence_length"), reader.required("length"), "length")
    replicas = _degrees(reader)
    micro = reader.required("micro")
    reader.put(("plan", "micro_batch"), micro, "micro")
    reader.put(("plan", "global_batch"), micro * reader.count("steps") * replicas, "steps", "micro")
    dtype = reader.choice("model.dtype", reader.words("dtypes"), "bf16")
    reader.put(("plan", "precision"), dtype, "model.dtype")
    layers = reader.required("model.num_layers")
    _recompute(reader, layers)
    if not reader.options.model:
        _model(reader, layers)
    elements = reader.count("bucket", 512 * 2**20) // 2
    changes = {"bucket_elements": elements, "overlap": reader.flag("overlap")}
    stack: dict[str, object] = {"base": "internevo", "gradients": changes}
    if reader.part("plan").get("zero") == 3:
        stack["sharding"] = OF_WEIGHTS | {"prefetch_units": int(reader.flag("ahead"))}
    reader.put(("stack",), stack, "bucket", "overlap")
    if not reader.flag("model.use_flash_attn", True):
        reader.write_scores("model.use_flash_attn")


def _size(reader: JobReader, name: str, least: int = 1) -> tuple[int, str]:
    """Return a degree, which is a number or a section with `size`, and its key."""
    key = reader.first(f"parallel.{name}.size", f"parallel.{name}")
    return reader.count(key, 1, least=least), key


def _degrees(reader: JobReader) -> int:
    """Put degrees and the sharding of optimizer states into the plan; return the number of replicas."""
    (tensor, tensor_key), (pipeline, pipeline_key) = _size(reader, "tensor"), _size(reader, "pipeline")
    weight, weight_key = _size(reader, "weight")
    mode = reader.choice("mode", reader.words("tensor_modes"), "")
    if weight > 1 and mode != "isp":
        reader.refuse(weight_key, "weight parallelism without the mode isp", "write weight=dict(size=1)")
    replicas = reader.replicas({tensor_key: tensor, pipeline_key: pipeline})
    reader.put(("plan", "data_parallel"), replicas)
    reader.put_degree("context_parallel" if mode == "isp" else "tensor_parallel", tensor, tensor_key)
    if mode == "isp" and tensor > 1:
        reader.put(("plan", "context_exchange"), "all_to_all", "mode")
    reader.put_degree("pipeline_parallel", pipeline, pipeline_key)
    older = "parallel.sequence_parallel"
    if tensor > 1 and (mode == "sp" or reader.flag(older)):
        reader.put(("plan", "sequence_parallel"), True, "mode", older)
    chunks = reader.count("chunks", 1)
    if pipeline > 1:
        reader.put_degree("virtual_stages", chunks, "chunks")
    sharded, key = _size(reader, "zero1", least=-1)
    group = replicas if sharded < 1 else min(sharded, replicas)
    reader.put(("plan", "zero"), 0 if sharded == 1 else 1, key)
    if group > 1:
        reader.put_shards(group, replicas, key)
    if weight > 1 and mode == "isp":
        _weights(reader, weight, tensor, replicas)
    return replicas


def _weights(reader: JobReader, weight: int, sequence: int, replicas: int) -> None:
    """Put the sharding of weights and gradients over `weight` ranks into the plan; optimizer states have
    a separate group.

    The ranks of a group share a sequence or belong to neighbouring replicas.

    References
    ----------
    arXiv:2401.09149, section 3 (InternEvo: weights and gradients are sharded by groups, optimizer states by
    larger ones; weights are gathered in each pass).
    """
    _, key = _size(reader, "weight")
    group, rest = divmod(weight, sequence)
    if rest or not group or replicas % group:
        allowed = (
            f"a multiple of {sequence} (the number of ranks that share a sequence) that also divides "
            f"{sequence * replicas}"
        )
        because = (
            "a group of ranks that shards weights holds whole sequences, and every rank is in exactly "
            "one group"
        )
        reader.fault(key, allowed, because, f"write {sequence * replicas}")
        return
    reader.put(("plan", "zero"), 3, key)
    if group < int(str(reader.part("plan").get("data_shard", replicas))):
        reader.put(("plan", "shards"), f"parameters:{group},gradients:{group}", key)


def _recompute(reader: JobReader, layers: int) -> None:
    """Put recomputation into the plan: of all blocks, or of a share of those of every stage."""
    value = reader.raw("checkpointing")
    fraction = float(value) if isinstance(value, bool) else reader.fraction("checkpointing", 0.0)
    stage = layers // (reader.degree("pipeline_parallel") * reader.degree("virtual_stages"))
    number = int(stage * fraction)
    if number:
        reader.put(("plan", "recompute"), "full", "checkpointing")
    if 0 < number < stage:
        reader.put(("plan", "recompute_method"), "block", "checkpointing")
        reader.put(("plan", "recompute_layers"), number, "checkpointing")


def _model(reader: JobReader, layers: int) -> None:
    """Put the model into the job, from its sizes."""
    name = reader.text("model_type").lower()
    kind = reader.words("families").get(name)
    if name and kind is None:
        fix = "add --model config.json, or --model NAME"
        reader.refuse("model_type", f"models of the type {name}", fix)
    hidden, heads = reader.required("model.hidden_size"), reader.required("model.num_attention_heads")
    vocabulary = reader.required("model.vocab_size")
    biased = kind != "plain" and not reader.flag("model.no_bias")
    mixer: dict[str, object] = {"heads": heads, "qkv_bias": biased, "out_bias": biased}
    kept = reader.count("kv_heads", heads)
    if kept != heads:
        mixer["kv_heads"] = kept
    ratio = reader.raw("model.mlp_ratio")
    if ratio is not None and (isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or ratio <= 0):
        because = "the width of an MLP is mlp_ratio · hidden_size"
        reader.fault("model.mlp_ratio", "a number above 0", because, "write 4")
        ratio = None
    inner = ceil(int(hidden * float(str(4 if ratio is None else ratio))) / INNER_MULTIPLE) * INNER_MULTIPLE
    block = {
        "count": layers,
        "norm": reader.choice("model.norm_type", reader.words("norms"), "rmsnorm"),
        "mixer": mixer,
        "feed_forward": {"ffn_hidden": inner, "activation": "swiglu"},
    }
    mapping = {"name": PurePath(reader.document.name).stem, "hidden": hidden, "vocabulary": vocabulary}
    reader.put(("model",), mapping | {"blocks": [block]}, "model.hidden_size")
