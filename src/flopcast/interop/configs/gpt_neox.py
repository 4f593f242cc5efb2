"""GPT-NeoX's YAML as a job: one file, or several that are merged in order.

Answers: which plan and which stack does a configuration of GPT-NeoX describe?
Elsewhere: the model (gpt_neox_model.py), keys that DeepSpeed shares with NeoX (deepspeed.py), the list of
keys (tables/gpt-neox.yaml).

Keys may be written with hyphens or underscores. NeoX derives the data-parallel degree as devices /
(pipeline · model parallel), and runs 0 stages or 1 without DeepSpeed's pipeline engine.

References
----------
EleutherAI/gpt-neox: megatron/neox_arguments/arguments.py (`from_ymls`, `calculate_derived`: merging,
batch, precision, default of ZeRO), neox_args.py and deepspeed_args.py (names, defaults). Switches select
the kernels in megatron/model/transformer.py; the runs of arXiv:2509.22832 print them.
"""

from collections.abc import Sequence

from flopcast.errors import Problem, SpecError
from flopcast.files.yaml_text import Document, Path
from flopcast.interop.configs import deepspeed
from flopcast.interop.configs.deepspeed_offload import STAGE, offload_changes
from flopcast.interop.configs.gpt_neox_model import GATED, attention_kind, read_model
from flopcast.interop.configs.job_reader import ACTIVATIONS, JobReader
from flopcast.library import catalog
from flopcast.records import replace
from flopcast.spec.precision import scales_loss

OPTIMIZERS = {
    "adam": "adamw", "adamw": "adamw", "sgd": "sgd_momentum", "cpu_adam": "adamw",
    "cpu_torch_adam": "adamw", "lion": "lion",
}  # fmt: skip
IN_8_BITS = {"adamw": "adamw_8bit", "lion": "lion_8bit"}  # by bitsandbytes
OTHERS = ("sm3", "madgrad_wd")  # optimizers whose update is counted as AdamW's
BUCKET = 500_000_000  # reduce_bucket_size of DeepSpeed


def read(reader: JobReader) -> None:
    """Read the job of a configuration.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> data = {"pipe-parallel-size": 2, "model_parallel_size": 2, "num-layers": 24, "hidden-size": 1024,
    ...         "num-attention-heads": 16, "seq-length": 2048, "max-position-embeddings": 2048,
    ...         "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
    ...         "fp16": {"enabled": True}}
    >>> job = read_kind(Document("a.yml", data, {}), "gpt-neox", ImportOptions(devices=16))
    >>> job.data["plan"]["global_batch"]
    128
    """
    stages, tensor = reader.count("stages", 0, least=0), reader.count("tensor", least=0) or 1
    replicas = reader.replicas({"tensor": tensor, "stages": max(stages, 1)}, _stated(reader))
    reader.put(("plan", "data_parallel"), replicas)
    reader.put_degree("tensor_parallel", tensor, "tensor")
    if tensor > 1 and reader.flag("sequence_parallel"):
        reader.put(("plan", "sequence_parallel"), True, "sequence_parallel")
    reader.put_degree("pipeline_parallel", stages, "stages")
    deepspeed.read_batch(reader, replicas)
    precision = _precision(reader)
    stage = deepspeed.read_sharding(reader, precision)
    if stage > 1 and stages > 1:
        because = "with pipeline stages, DeepSpeed can shard only optimizer states"
        reader.fault(STAGE, "0 or 1, because the model has pipeline stages", because, "write 1")
    reader.put(("plan", "precision"), precision, "precision", "fp16.enabled", "bf16.enabled")
    _recompute(reader, tensor)
    _optimizer(reader)
    kind = attention_kind(reader)
    read_model(reader, kind)
    reader.put(("stack",), _stack(reader, kind, stage, stages, precision))


def renamed(document: Document) -> Document:
    """Return the document with underscores in its keys, as NeoX reads them.

    Raises
    ------
    SpecError
        A key is written in both ways.
    """
    data = document.data
    if not isinstance(data, dict):
        return document
    by_name: dict[str, object] = {}
    for key, value in data.items():
        name = key.replace("-", "_")
        if name in by_name:
            raise SpecError([_twice(document, key, name)])
        by_name[name] = value
    lines = {_renamed(path): line for path, line in document.lines.items()}
    places = {_renamed(path): place for path, place in document.places.items()}
    return replace(document, data=by_name, lines=lines, places=places)


def _renamed(path: Path) -> Path:
    return (str(path[0]).replace("-", "_"), *path[1:]) if path else path


def merged(documents: Sequence[Document]) -> Document:
    """Merge several files into one document, in their order, as deepy.py does.

    A later file may not repeat a key that it writes with underscores. If keys are written with hyphens,
    NeoX takes the last value.

    Raises
    ------
    SpecError
        Two files have the same key.
    """
    whole = renamed(documents[0])
    data = dict(whole.data) if isinstance(whole.data, dict) else {}
    places, problems = dict(whole.places), []
    for document in documents[1:]:
        given = document.data if isinstance(document.data, dict) else {}
        problems += [_twice(document, key, key) for key in given if key in data]
        other = renamed(document)
        data |= other.data if isinstance(other.data, dict) else {}
        places |= {path: f"{document.name}:{line}" for path, line in other.lines.items() if path}
    if problems:
        raise SpecError(problems)
    return replace(whole, data=data, places=places)


def _twice(document: Document, key: str, name: str) -> Problem:
    allowed = f"one value of {name}, in one file"
    because = "GPT-NeoX merges its files and treats hyphens in names as underscores"
    fix = f"keep one {name}"
    return Problem(key, None, allowed, because, fix, where=document.where((key,)), fault="is given twice")


def _stated(reader: JobReader) -> int | None:
    """Return the number of devices in a dump of NeoX's arguments or of its launcher, or None."""
    for key in ("global_num_gpus", "world_size"):
        if reader.has(key):
            return reader.count(key)
    nodes = reader.count("num_nodes", -1, least=-1)
    if reader.has("num_gpus") and nodes > 0:
        return reader.count("num_gpus") * nodes
    return None


def _precision(reader: JobReader) -> str:
    """Return the precision, fp16 or bf16; training in fp32 is refused."""
    named = reader.choice("precision", reader.words("precisions"), "")
    half = reader.flag("fp16.enabled")
    if half and reader.text("fp16.type") == "bfloat16":
        named, half = named or "bf16", False
    brain = reader.flag("bf16.enabled")
    wanted = set(filter(None, ("fp16" if half else "", "bf16" if brain else "", named)))
    if len(wanted) > 1:
        key = "precision" if named else "fp16.enabled"
        because = f"the file states {' and '.join(sorted(wanted))}, but all weights have the same data type"
        reader.fault(key, "one of fp16 and bf16", because, "remove all but one of these settings")
        return "bf16"
    precision = next(iter(wanted), "")
    if precision in ("", "fp32"):
        key = reader.first("precision", "fp16.enabled", "bf16.enabled")
        reader.refuse(key, "training in fp32 with DeepSpeed", 'add "bf16": {"enabled": true}')
        return "bf16"
    return precision


def _recompute(reader: JobReader, tensor: int) -> None:
    """Put the recomputation of whole layers into the plan if activation checkpointing is on.

    Its checkpoints may be on the host.
    """
    on_host = "checkpoint_in_cpu"
    if not reader.flag("checkpointing"):
        if reader.flag(on_host):
            reader.assume(f"{on_host} has no effect without {reader.first('checkpointing')}", on_host)
        return
    if reader.flag(on_host):
        reader.place(ACTIVATIONS, on_host)
    layers = reader.count("checkpoint_num_layers")
    word = "full" if layers == 1 else f"full:uniform:{layers}"
    reader.put(("plan", "recompute"), word, "checkpointing")
    if reader.flag("partition_activations") and tensor > 1:
        reader.put(("plan", "partition_activations"), True, "partition_activations")


def _optimizer(reader: JobReader) -> None:
    """Put the optimizer into the plan; an unsupported one is counted as AdamW, with a note."""
    key = "optimizer.type"
    name = reader.text(key).lower() or "adam"
    if name.startswith("onebit"):
        reader.refuse(key, "an optimizer that compresses its communication", "write Adam")
    elif name in OTHERS:
        reader.assume(f"flopcast predicts the optimizer step of AdamW instead of {name}", key)
    elif name not in OPTIMIZERS:
        reader.choice(key, OPTIMIZERS | dict.fromkeys(OTHERS, ""), "adamw")
    if name.startswith("cpu"):
        reader.place(("optimizer:host",), key)
    kind = OPTIMIZERS.get(name, "adamw")
    kind = IN_8_BITS.get(kind, kind) if reader.flag("use_bnb_optimizer") else kind
    reader.put_optimizer(kind, "use_bnb_optimizer", key)


def _stack(reader: JobReader, kind: str, stage: int, stages: int, precision: str) -> dict[str, object]:
    """Return the changes that the file makes to the stack `gpt-neox-deepspeed`.

    DeepSpeed overlaps reductions with the backward pass only without its pipeline engine, with ZeRO and
    with `overlap_comm`. Gradients that it accumulates in fp32 are reduced in fp32 after the backward pass.
    """
    whole = deepspeed.accumulates_in_fp32(reader, stage, precision)
    usual = "fp32" if whole or reader.flag("fp32_allreduce") else precision
    alone = stage > 0 and stages < 2 and not whole
    overlap = alone and reader.flag("zero_optimization.overlap_comm", stage == 3)
    dtype = reader.choice("communication_data_type", deepspeed.DTYPES, usual)
    gradients: dict[str, object] = {
        "dtype": "fp32" if whole else dtype,
        "bucket_elements": reader.count("zero_optimization.reduce_bucket_size", BUCKET),
        "overlap": overlap,
        "overflow_checks": int(scales_loss(precision)),
    }
    changes: dict[str, object] = {
        "base": "gpt-neox-deepspeed",
        "attention_kernel": "flash" if kind == "flash" else "materialised",
        "rewrites": _rewrites(reader, kind),
        "gradients": gradients,
    }
    if reader.flag("synchronize_each_layer") and reader.flag("checkpointing"):
        changes["synchronise_each_layer"] = True
    if stage > 1:
        sharding = catalog.stack("deepspeed-zero").sharding.model_dump(mode="json")
        sharding["gradient_dtype"] = precision
        if reader.count("zero_optimization.stage3_prefetch_bucket_size", 1, least=0) == 0:
            sharding["prefetch_units"] = 0
        changes["sharding"] = sharding
    offload = offload_changes(reader, stage)
    return changes | ({"offload": offload} if offload else {})


def _rewrites(reader: JobReader, kind: str) -> list[str]:
    """Return the names of rewrites, in the order in which the stack of NeoX applies them."""
    fused = ("scaled_upper_triang_masked_softmax_fusion", "scaled_masked_softmax_fusion")
    norm, activation = reader.text("norm") or "layernorm", reader.text("activation") or "gelu"
    gated = activation in GATED or reader.text("mlp_type") == "llama"
    switches = {
        "layout_copies": kind == "flash",
        "fused_softmax": kind != "flash" and bool(sum(reader.flag(key) for key in fused)),
        "epilogue_bias": True,
        "unfused_rope": reader.text("pos_emb") == "rotary" and not reader.flag("rope_fusion"),
        "unfused_rmsnorm": norm == "rmsnorm" and not reader.flag("rmsnorm_fusion"),
        "fused_layernorm": norm == "te_layernorm" or reader.flag("layernorm_fusion"),
        "bias_gelu": activation == "gelu" and reader.flag("bias_gelu_fusion"),
        "bias_dropout_add": reader.flag("bias_dropout_fusion"),
        "unfused_gate": gated and not reader.flag("use_flashattn_swiglu"),
    }
    return [name for name, wanted in switches.items() if wanted]
