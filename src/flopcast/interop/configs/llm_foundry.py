"""LLM Foundry's YAML as a job: MPT and models of transformers under Composer and FSDP.

Answers: which model, plan and stack does a file of LLM Foundry describe?
Elsewhere: sizes of MPT under their names in transformers (interop/hugging_face/config.py), keys that change
neither time nor memory (tables/llm-foundry.yaml).

References
----------
mosaicml/llm-foundry: scripts/train/yamls, llmfoundry/models/mpt/configuration_mpt.py (defaults: biases,
tied embeddings, learned positions). mosaicml/composer: composer/utils/parallelism.py (`FSDPConfig`),
composer/distributed/mosaic_parallelism.py (`get_mixed_precision`: PURE reduces in 16 bits, DEFAULT in
fp32).
"""

from pathlib import PurePath

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.configs.config_reader import AUTO
from flopcast.interop.configs.job_reader import ACTIVATIONS, SHARDED_STATES, JobReader
from flopcast.interop.configs.trainers import COMPILED, OF_NODES
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.spec.precision import scales_loss

SIZES = ("d_model", "n_heads", "n_layers", "vocab_size")
MPT: dict[str, object] = {
    "expansion_ratio": 4,
    "no_bias": False,
    "learned_pos_emb": True,
    "resid_pdrop": 0.0,
    "emb_pdrop": 0.0,
}
SHARDINGS = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "_hybrid_shard_zero2")
KEEPING = ("shard_grad_op", "_hybrid_shard_zero2")
SAMPLES = "train_loader.dataset.max_seq_len"  # the length of a sample, whatever the model could take


def read(reader: JobReader) -> None:
    """Read the job in an LLM Foundry file.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> job = read_kind(Document("a.yaml", {"max_seq_len": 2048, "global_train_batch_size": 256,
    ...     "device_train_microbatch_size": 4, "precision": "amp_bf16", "model": {"name": "hf_causal_lm",
    ...     "pretrained_model_name_or_path": "meta-llama/Llama-2-7b-hf"},
    ...     "fsdp_config": {"activation_checkpointing": True}}, {}),
    ...     "llm-foundry", ImportOptions(devices=8))
    >>> job.data["plan"]["zero"], job.data["plan"]["recompute"], job.data["stack"]["base"]
    (3, 'full', 'composer-llm-foundry')
    """
    length, key = reader.required("max_seq_len"), reader.first(SAMPLES, "max_seq_len")
    reader.put(("batch", "sequence_length"), reader.count(key) if key == SAMPLES else length, key)
    if key == SAMPLES and reader.count(key) != length:
        text = f"flopcast predicts samples of {reader.count(key)} tokens instead of max_seq_len {length}"
        reader.assume(text, key)
    kind = reader.choice("model.name", reader.words("models"), "named")
    if kind == "named":
        reader.read_model("named")
    elif not reader.options.model:
        _mpt(reader)
    stated = reader.count("n_gpus") if reader.has("n_gpus") else None
    replicas = reader.ranks(stated)
    reader.put(("plan", "data_parallel"), replicas)
    _batch(reader)
    precision = _precision(reader)
    reader.put_named_optimizer(reader.text("optimizer.name"), reader.words("optimizers"), "optimizer.name")
    reader.put(("stack",), _stack(reader, replicas, precision, kind))


def _mpt(reader: JobReader) -> None:
    """Put an MPT model into the job; its keys are those of transformers, with other defaults."""
    for name in SIZES:
        reader.required(f"model.{name}")
    if any(reader.faulty(f"model.{name}") for name in SIZES):
        return
    config: dict[str, object] = {name: reader.count(f"model.{name}") for name in SIZES}
    for name, usual in MPT.items():
        config[name] = reader.raw(f"model.{name}") if reader.has(f"model.{name}") else usual
    length = reader.first("model.max_seq_len", "max_seq_len")
    attention = {"alibi": reader.flag("model.attn_config.alibi")}
    dropout = reader.fraction("model.attn_config.attn_pdrop", 0.0)
    config |= {"model_type": "mpt", "max_seq_len": reader.count(length)}
    config["attn_config"] = attention | {"attn_pdrop": dropout}
    where = {path[1:]: line for path, line in reader.document.lines.items() if path[:1] == ("model",)}
    try:
        mapping, _ = model_from_config(Document(reader.document.name, config, where))
    except SpecError as error:
        reader.problems += error.problems
        return
    mapping["name"] = PurePath(reader.document.name).stem
    mapping["tied_embeddings"] = reader.flag("model.tie_word_embeddings", True)
    reader.put(("model",), mapping | {"vocabulary_multiple": 1}, "model.name")


def _batch(reader: JobReader) -> None:
    """Put the global batch and the micro-batch into the plan; a micro-batch of "auto" is an error."""
    total = reader.required("batch")
    if reader.raw("micro") in (None, AUTO):
        because = "Composer finds this size by running the model, and flopcast does not run anything"
        fault = "" if reader.has("micro") else "is missing"
        reader.fault("micro", "a whole number", because, "write the number that the run chose", fault)
        return
    reader.put(("plan", "micro_batch"), reader.count("micro"), "micro")
    reader.put(("plan", "global_batch"), total, "batch")


def _precision(reader: JobReader) -> str:
    """Return the precision of GEMMs; training in fp32 is refused."""
    if reader.text("precision") == "fp32":
        reader.refuse("precision", "training in fp32 with Composer", "write amp_bf16")
        return "bf16"
    precision = reader.choice("precision", reader.words("precisions"), "bf16")
    reader.put(("plan", "precision"), precision, "precision")
    return precision


def _stack(reader: JobReader, replicas: int, precision: str, kind: str) -> dict[str, object]:
    """Return Composer's stack with the changes of the file, and put the sharding into the plan.

    Without fsdp_config, replicas use DDP.
    """
    changes: dict[str, object] = {"base": "composer-llm-foundry"}
    strategy = reader.choice("strategy", {name: name for name in SHARDINGS}, "full_shard")
    zero = 3 if strategy != "no_shard" and reader.below("fsdp_config") and replicas > 1 else 0
    reader.put(("plan", "zero"), zero, "strategy")
    if zero:
        _groups(reader, replicas, strategy)
    reader.place_if("fsdp_config.cpu_offload", SHARDED_STATES)
    reader.place_if("fsdp_config.activation_cpu_offload", ACTIVATIONS)
    reader.put_checkpointing("fsdp_config.activation_checkpointing")
    reduced = reader.choice("mixed", reader.words("reductions"), "fp32")
    if reduced == "refused":
        reader.refuse("mixed", "all-gathers of parameters in fp32", "write PURE or DEFAULT")
    narrow = "fp16" if scales_loss(precision) else "bf16"
    wide = reduced == "fp32" or not reader.below("fsdp_config")
    copies = {"copies": ["cast_to_fp32", "scale_gradient"]} if wide and zero else {}
    changes["gradients"] = {"dtype": "fp32" if wide else narrow, **copies}
    if strategy in KEEPING:
        changes["sharding"] = {"gathers": "every_micro_batch"}
    if kind == "mpt":
        kernel = reader.choice("model.attn_config.attn_impl", reader.words("attention"), "flash")
        if kernel == "materialised":
            changes |= {"attention_kernel": kernel, "attention_generation": "newest"}
        elif reader.text("model.attn_config.attn_impl") != "triton":
            changes["attention_generation"] = "flash-2"
    if reader.has("compile_config"):
        reader.assume(COMPILED, "compile_config")
    return changes


def _groups(reader: JobReader, replicas: int, strategy: str) -> None:
    """Put the number of ranks that share one set of shards into the plan, unless all ranks do."""
    sets, group = reader.count("replicas"), reader.count("shard", -1, least=-1)
    if strategy.endswith(("hybrid_shard", "zero2")) and not reader.has("replicas", "shard"):
        group = 8
        reader.assume(OF_NODES.format(strategy, group), "strategy")
        sets = max(replicas // group, 1)
        group = min(group, replicas)
    group = replicas // sets if group < 1 else group
    sets = replicas // group if not reader.has("replicas") and group else sets
    key = "shard" if reader.has("shard") else "replicas"
    if reader.fills_replicas(sets, group, replicas, key, "write -1") and sets > 1:
        reader.put(("plan", "data_shard"), group, "shard", "replicas", "strategy")
