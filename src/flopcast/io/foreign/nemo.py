"""Configurations of NeMo 1.x for GPT-like models as jobs.

Answers: which model, plan and stack do the sections `trainer` and `model` describe?
Elsewhere: fields that Megatron-Core's flags fill too (megatron_words.py), keys that cost nothing
(tables/nemo.yaml). A key that is not given has the default of NeMo's own code, not of its sample files.

References
----------
NVIDIA/NeMo 1.x: examples/nlp/language_modeling/conf/megatron_gpt_config.yaml, megatron_llama_config.yaml;
nemo/collections/nlp/models/language_modeling/megatron_base_model.py, megatron_gpt_model.py;
docs, optimizer table of distributed Adam. NVIDIA/NeMo-Framework-Launcher: launcher_scripts/conf/training.
"""

import re
from dataclasses import replace

from flopcast.io.foreign.keys import keys_of
from flopcast.io.foreign.megatron_words import VALUES, Translation
from flopcast.io.foreign.sheet import Asked, Sheet
from flopcast.io.yaml_text import Document

PRODUCT = re.compile(r"\$\{multiply:\s*([0-9]{1,6})\s*,\s*\$\{\.([a-z_]+)\}\s*\}")
NORMS = {
    "layernorm": "LayerNorm", "layernorm1p": "LayerNorm", "low_precision_layernorm": "LayerNorm",
    "rmsnorm": "RMSNorm",
}  # fmt: skip
ACTIVATIONS = {
    "gelu": "", "approx-gelu": "", "openai-gelu": "", "squared-relu": "--squared-relu",
    "swiglu": "--glu-activation", "fast-swiglu": "--glu-activation", "geglu": "--glu-activation",
    "fast-geglu": "--glu-activation",
}  # fmt: skip
PRECISIONS = {
    "16": "--fp16", "16-mixed": "--fp16", "bf16": "--bf16", "bf16-mixed": "--bf16", "bf16-true": "--bf16",
}  # fmt: skip
SHARDED, WHOLE = "sharded", "whole"
OPTIMIZERS = {
    "distributed_fused_adam": SHARDED, "mcore_distributed_optim": SHARDED, "megatron_fused_adam": WHOLE,
    "fused_adam": WHOLE, "adam": WHOLE, "adamw": WHOLE,
}  # fmt: skip
RENAMED = {  # a key of `model` → the flag that it fills under another name
    "encoder_seq_length": "--seq-length",
    "rotary_percentage": "--rotary-percent",
    "override_vocab_size": "--padded-vocab-size",
    "rampup_batch_size": "--rampup-batch-size",
}
NEEDED = ("global_batch_size", "ffn_hidden_size")  # beside those that Megatron-LM needs too
MISSED = (  # keys that faults and assumptions name where they are not given
    "num_layers", "hidden_size", "num_attention_heads", "micro_batch_size", "global_batch_size",
    "hidden_dropout", "attention_dropout",
)  # fmt: skip
BUCKET_MIB = 100  # bucket_cap_mb of Apex's DistributedFusedAdam
MIB = 1024 * 1024


def read(document: Document, asked: Asked) -> Document:
    """The job of a configuration."""
    sheet = Sheet(_multiplied(document), keys_of("nemo"), asked)
    said = Translation(sheet)
    for key in NEEDED:
        if not sheet.has(f"model.{key}"):
            sheet.required(f"model.{key}")
    said.section("model", skipped=("normalization",))
    for name in MISSED:
        said.name(VALUES[name], f"model.{name}")
    said.name("--vocab-size", "model.override_vocab_size")
    for key, flag in RENAMED.items():
        said.name(flag, f"model.{key}")
        if sheet.has(f"model.{key}"):
            said.say(flag, f"model.{key}", sheet.raw(f"model.{key}"))
    groups = "model.num_query_groups"
    if sheet.has(groups):
        said.say("--group-query-attention", groups)
        said.say("--num-query-groups", groups, sheet.raw(groups))
    if sheet.has("model.normalization"):
        norm = sheet.choice("model.normalization", NORMS, "LayerNorm")
        said.say("--normalization", "model.normalization", norm)
    if sheet.has("model.bias") and not sheet.flag("model.bias", True):
        said.say("--disable-bias-linear", "model.bias")
    _activation(sheet, said)
    _tokenizer(sheet, said)
    _recompute(sheet, said)
    _precision(sheet, said)
    sharded = _optimizer(sheet, said)
    said.read(_devices(sheet))
    sheet.put(("stack",), {"base": "nemo"} | _stack(sheet, sharded))
    return sheet.made()


def _multiplied(document: Document) -> Document:
    """The document with NeMo's `${multiply:4, ${.hidden_size}}` worked out where both are numbers."""
    data = document.data
    model = data.get("model") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(model, dict):
        return document
    done = dict(model)
    for key, value in model.items():
        found = PRODUCT.fullmatch(value.strip()) if isinstance(value, str) else None
        factor = model.get(found[2]) if found else None
        if found and type(factor) is int:
            done[key] = int(found[1]) * factor
    return replace(document, data=data | {"model": done})


def _devices(sheet: Sheet) -> int | None:
    """Devices of a node times nodes; None where nobody says them, which is told."""
    stated = None
    if sheet.has("trainer.devices"):
        stated = sheet.count("trainer.devices") * sheet.count("trainer.num_nodes")
    devices = sheet.ranks(stated)
    return None if sheet.faulty("world size", "trainer.devices", "trainer.num_nodes") else devices


def _activation(sheet: Sheet, said: Translation) -> None:
    """The activation, gated where its name ends in "glu"; "fast" ones are the same in fused kernels."""
    key = "model.activation"
    known = {name: name for name in ACTIVATIONS}
    name = sheet.choice(key, known, "gelu")
    flag = ACTIVATIONS[name]
    if flag:
        said.say(flag, key, name.removeprefix("fast-") if flag == "--glu-activation" else None)


def _tokenizer(sheet: Sheet, said: Translation) -> None:
    """Whose vocabulary it is: the type of a tokenizer of Megatron, else the name of its file or repository.

    The path of a file may stand for one elsewhere, `${data_dir}/…`: only its name is looked at.
    """
    said.name("--tokenizer-type", "model.tokenizer")
    section = sheet.section("model.tokenizer")
    if str(section.get("library")) == "megatron" and section.get("type"):
        said.say("--tokenizer-type", "model.tokenizer.type", str(section["type"]))
        return
    for key in ("model", "type"):
        if section.get(key):
            said.say("--tokenizer-model", f"model.tokenizer.{key}", str(section[key]))
            return


def _recompute(sheet: Sheet, said: Translation) -> None:
    """What is computed again; method and number mean something for whole layers only.

    "block" of 0 layers recomputes none.
    """
    key = "model.activations_checkpoint_granularity"
    mode = sheet.choice(key, {"selective": "selective", "full": "full"}, "")
    layers, method = "model.activations_checkpoint_num_layers", "model.activations_checkpoint_method"
    kind = sheet.choice(method, {"uniform": "uniform", "block": "block"}, "uniform")
    number = sheet.count(layers, 1, least=0)
    if mode == "full" and kind == "block" and number == 0:
        return
    if mode:
        said.say("--recompute-granularity", key, mode)
    if mode == "full":
        said.say("--recompute-method", method, kind)
        said.say("--recompute-num-layers", layers, number)


def _precision(sheet: Sheet, said: Translation) -> None:
    """16 bits by the trainer's precision; products in 8 bits by Transformer Engine, delayed scaling.

    Without O2, weights are kept in fp32 and cast for each product: that is told and not counted.
    """
    key = "trainer.precision"
    if not sheet.has(key):
        sheet.fault(key, ", ".join(PRECISIONS), "training in fp32 is not modelled yet", "write bf16")
    said.say(sheet.choice(key, PRECISIONS, "--bf16"), key)
    if not sheet.flag("model.megatron_amp_O2"):
        sheet.assume(
            "weights are counted in 16 bits beside fp32 ones, as with megatron_amp_O2",
            "model.megatron_amp_O2",
        )
    engine = sheet.flag("model.transformer_engine") or sheet.flag("model.mcore_gpt")
    if not engine:
        sheet.assume(
            "kernels are counted as Transformer Engine's, which is not asked for",
            "model.transformer_engine",
        )
    if not sheet.flag("model.fp8"):
        return
    if not engine:
        sheet.assume("model.fp8 is without effect, as transformer_engine is not asked for", "model.fp8")
        return
    formats = [name for name in ("e4m3", "hybrid") if sheet.flag(f"model.fp8_{name}")]
    if not formats:
        because = "products in 8 bits need the format of their numbers"
        sheet.fault("model.fp8", "true with fp8_hybrid or fp8_e4m3", because, "add fp8_hybrid: true")
        return
    said.say("--fp8-format", "model.fp8", formats[0])
    said.say("--fp8-recipe", "model.fp8", "delayed")


def _optimizer(sheet: Sheet, said: Translation) -> bool:
    """Whether replicas share the optimizer's states."""
    key = "model.optim.name"
    sharded = sheet.choice(key, OPTIMIZERS, WHOLE) == SHARDED
    if sharded:
        said.say("--use-distributed-optimizer", key)
    return sharded


def _stack(sheet: Sheet, sharded: bool) -> dict[str, object]:
    """What the file changes of NeMo's stack; only interleaved stages do not wait for a transfer."""
    changes: dict[str, object] = {"gradients": _gradients(sheet, sharded)}
    if sheet.flag("model.ub_tp_comm_overlap"):
        changes["tensor_overlap"] = "chunks"
    interleaved = sheet.count("model.virtual_pipeline_model_parallel_size") > 1
    waits = not (interleaved and sheet.flag("model.overlap_p2p_comm"))
    if waits and sheet.count("model.pipeline_model_parallel_size") > 1:
        changes["pipeline"] = {"transfers": "batched"}
    if sheet.flag("model.fp8_params"):
        changes["narrow"] = {"narrow_parameters": True}
    return changes


def _gradients(sheet: Sheet, sharded: bool) -> dict[str, object]:
    """How gradients are reduced; what is not given is Apex's default for its distributed Adam.

    Other optimizers reduce fp32 gradients behind the backward pass, or beside it with O2 where there is
    neither a pipeline nor sequence parallelism.
    """
    added = 0 if sheet.flag("model.gradient_accumulation_fusion") else 1
    types = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    types |= {"32": "fp32", "torch.bfloat16": "bf16"}
    dtype = sheet.choice("model.optim.grad_sync_dtype", types, "fp32")
    overlap = sheet.flag("model.optim.overlap_grad_sync", True)
    gather = sheet.flag("model.optim.overlap_param_sync")
    size_mib = sheet.count("model.optim.bucket_cap_mb", BUCKET_MIB)
    if not sharded:
        dtype, gather, size_mib = "fp32", False, sheet.count("model.grad_allreduce_chunk_size_mb", 125)
        alone = sheet.count("model.pipeline_model_parallel_size") == 1
        overlap = (
            alone and sheet.flag("model.megatron_amp_O2") and not sheet.flag("model.sequence_parallel")
        )
    return {
        "dtype": dtype,
        "collective": "reduce_scatter" if sharded else "all_reduce",
        "overlap": overlap,
        "overlap_gather": gather,
        "bucket_elements": size_mib * MIB // (4 if dtype == "fp32" else 2),
        "accumulate_passes": added,
    }
