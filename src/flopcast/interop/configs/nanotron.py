"""nanotron's YAML as a job.

Answers: which model, plan and stack does a nanotron file describe?
Elsewhere: its keys (tables/nanotron.yaml), the model, which has the key names of transformers and is read
like a config.json (interop/hugging_face/config.py).

References
----------
huggingface/nanotron: src/nanotron/config (names and defaults), models/llama.py (sequence parallelism if
tp_mode is REDUCE_SCATTER; costs of blocks and head), models/base.py (which blocks a pipeline stage has),
optim/gradient_accumulator.py.
"""

from collections.abc import Mapping
from math import prod
from pathlib import PurePath

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.layers.mlp import Mlp
from flopcast.spec.divisors import divided_by_cost
from flopcast.spec.model import Model
from flopcast.spec.plan_fields import OF_REPLICA

CONFIG = ("model", "model_config")
FAMILIES = {"is_llama_config": "llama", "is_qwen2_config": "qwen2", "is_starcoder_config": "starcoder2"}
DOCUMENTS = "_use_doc_masking"
REQUIRED = {f"{part}_parallel": f"parallelism.{part[0]}p" for part in ("data", "tensor", "pipeline")}
DEGREES = REQUIRED | {
    f"{part}_parallel": f"parallelism.{part}_parallel_size" for part in ("context", "expert")
}
TYPES = {"bfloat16": "bf16", "float16": "fp16", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
BUCKET_MB = 25  # ddp_bucket_cap_mb


def read(reader: JobReader) -> None:
    """Read the job in a nanotron file.

    The global batch is micro-batch · accumulation steps · data-parallel degree. The model has the names of
    a config.json and is read by the same code.
    """
    sizes = _degrees(reader)
    micro, steps = (reader.required("micro"), reader.count("steps"))
    length = reader.required("tokens.sequence_length")
    reader.put(("batch", "sequence_length"), length, "tokens.sequence_length")
    reader.put(("plan", "micro_batch"), micro, "micro")
    total = micro * steps * sizes["data_parallel"]
    reader.put(("plan", "global_batch"), total, "steps", "micro")
    _modes(reader, sizes)
    if not reader.options.model:
        _model(reader, sizes["pipeline_parallel"])
    reader.put(("stack",), _stack(reader))


def _degrees(reader: JobReader) -> dict[str, int]:
    """Return degrees; the data-parallel degree follows from the devices if their number is known."""
    sizes = {field: reader.required(key) for field, key in REQUIRED.items()}
    sizes |= {field: reader.count(key) for field, key in DEGREES.items() if field not in REQUIRED}
    degrees = {DEGREES[field]: sizes[field] for field in OF_REPLICA}
    sizes["data_parallel"] = reader.replicas(degrees, sizes["data_parallel"] * prod(degrees.values()))
    for field, key in DEGREES.items():
        if sizes[field] > 1 or field == "data_parallel":
            reader.put(("plan", field), sizes[field], key)
    return sizes


def _modes(reader: JobReader, sizes: Mapping[str, int]) -> None:
    """Read schedule, sequence parallelism, sharding, recompute, precision, optimizer."""
    modes = {"reduce_scatter": "sp", "all_reduce": ""}
    mode = reader.choice("parallelism.tp_mode", modes, "")
    if mode and sizes["tensor_parallel"] > 1:
        reader.put(("plan", "sequence_parallel"), True, "parallelism.tp_mode")
    engine = reader.choice("parallelism.pp_engine", reader.words("schedules"), "gpipe")
    if sizes["pipeline_parallel"] > 1:
        reader.put(("plan", "schedule"), engine, "parallelism.pp_engine")
    stage = reader.count("optimizer.zero_stage", 0, least=0)
    reader.put(("plan", "zero"), stage, "optimizer.zero_stage")
    if stage > 1:
        because = "nanotron supports only sharding of optimizer states"
        reader.fault("optimizer.zero_stage", "0 or 1", because, "write 1")
    older = "parallelism.recompute_granularity"
    granularity = reader.choice(older, {"full": "full", "selective": "selective"}, "")
    recompute = "full" if reader.flag("parallelism.recompute_layer") else granularity
    if recompute:
        reader.put(("plan", "recompute"), recompute, "parallelism.recompute_layer", older)
    reader.put(("plan", "precision"), reader.choice("model.dtype", TYPES, "bf16"), "model.dtype")
    key = "optimizer.optimizer_factory.name"
    reader.put_optimizer(reader.choice(key, reader.words("optimizers"), "adamw"), key)


def _model(reader: JobReader, stages: int) -> None:
    """Read the model and the blocks of its stages.

    The config of the model is that of transformers, except for the key of its family.
    """
    whole = reader.document.data
    part = whole.get("model") if isinstance(whole, dict) else None
    config = part.get("model_config") if isinstance(part, dict) else None
    key = ".".join(CONFIG)
    if not isinstance(config, dict):
        because = "flopcast needs a model for a prediction"
        reader.fault(key, "the sizes of a model", because, "add model_config:", "is missing")
        return
    family = next((name for flag, name in FAMILIES.items() if config.get(flag)), None)
    if family is None or config.get("moe_config"):
        experts = bool(config.get("moe_config"))
        what = "mixture-of-experts models in nanotron" if experts else "other model families of nanotron"
        reader.refuse(f"{key}.moe_config" if experts else key, what, "use a Llama or Qwen2 config")
        return
    known = {name: value for name, value in config.items() if name not in (*FAMILIES, *reader.words("own"))}
    if config.get(DOCUMENTS):
        reader.assume("each sequence is predicted as one document", f"{key}.{DOCUMENTS}")
    biased = bool(known.pop("attention_bias", False))
    window = config.get("sliding_window_size") if family == "qwen2" else None
    lines = {path[2:]: line for path, line in reader.document.lines.items() if path[:2] == CONFIG}

    try:
        described = Document(reader.document.name, known | {"model_type": family}, lines)
        mapping, notes = model_from_config(described)
    except SpecError as error:
        reader.problems += error.problems
        return
    for block in mapping["blocks"] if isinstance(mapping["blocks"], list) else ():
        block["mixer"] |= {"qkv_bias": biased} | ({"window": window} if window else {})
    mapping["name"] = PurePath(reader.document.name).stem
    multiple = reader.count("model.make_vocab_size_divisible_by", 1)
    reader.put(("model",), mapping | {"vocabulary_multiple": multiple}, key)
    if stages > 1 and family != "starcoder2":
        model = Model.model_validate(mapping)  # which has the defaults of the family
        inner = model.blocks[0].feed_forward
        widths = model.hidden, inner.ffn_hidden if isinstance(inner, Mlp) else 0, model.vocabulary
        layers = divided_by_cost(model.num_blocks, *widths, stages)
        reader.put(("plan", "stage_layers"), layers, DEGREES["pipeline_parallel"])
    reader.lines |= {("model", "vocabulary"): lines[("vocab_size",)]} if ("vocab_size",) in lines else {}
    reader.assumptions += notes


def _stack(reader: JobReader) -> object:
    """Return eager PyTorch with buckets of DDP; gradients accumulate in fp32 or in the weights' type."""
    bucket = reader.count("model.ddp_bucket_cap_mb", BUCKET_MB)
    wide = reader.flag("optimizer.accumulate_grad_in_fp32", True)
    elements = bucket * 2**20 // (4 if wide else 2)
    gradients = {"dtype": "fp32" if wide else "bf16", "bucket_elements": elements}
    stage = reader.raw("optimizer.zero_stage")
    collective = {"collective": "reduce_scatter"} if stage == 1 else {}
    reader.assume(
        "stack pytorch-ddp, because it is the stack of the catalogue that is most similar to nanotron: "
        "eager blocks with fused attention and norms"
    )
    changes: dict[str, object] = {
        "rewrites": ["fused_layernorm", "unfused_rope", "unfused_gate"],
        "gradients": gradients | collective,
        "sharding": {"zero_stages": [0, 1]},
    }
    return {"base": "pytorch-ddp"} | changes
