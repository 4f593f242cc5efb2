"""torchtune's YAML as a job: full tuning, LoRA and QLoRA of decoders; DPO and distillation.

Answers: which model, plan and stack does the configuration of a recipe describe?
Elsewhere: adapters of other trainers (trainers.py), keys without effect on a step (tables/torchtune.yaml).

The file does not name the recipe that runs it. On several devices, flopcast assumes a distributed recipe,
which shards parameters, gradients and optimizer states with FSDP2; on one device, nothing is sharded. With
`dtype: bf16`, weights, gradients and optimizer states are all in bf16, and there are no fp32 copies; with
`dtype: fp32`, all are in fp32.

References
----------
pytorch/torchtune: recipes/full_finetune_distributed.py, lora_finetune_distributed.py (`dtype`,
`shard_model`), torchtune/models (names of builders, modules of adapters).
"""

import re

from flopcast.interop.configs.job_reader import ACTIVATIONS, PAIR, SHARDED_STATES, JobReader
from flopcast.interop.configs.narrow_states import narrowed
from flopcast.interop.configs.trainers import put_optimizer, refuse_lone_offload
from flopcast.spec.switches import TUNING_CODE

MLP = ("gate", "up", "down")
PREFERENCES = ("loss.beta", "base_model_path")


WRITTEN = {"code_llama2_": "codellama-", "llama3.3_": "llama-3.3-", "phi4_14b": "phi-4"}  # names on the hub


def read(reader: JobReader) -> None:
    """Read the job of a configuration.

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.formats import ImportOptions, read_kind
    >>> job = read_kind(Document("a.yaml",
    ...     {"model": {"_component_": "torchtune.models.llama3_1.llama3_1_8b"},
    ...     "tokenizer": {"max_seq_len": 4096}, "batch_size": 2, "dtype": "bf16"}, {}),
    ...     "torchtune", ImportOptions(devices=8))
    >>> job.data["model"], job.data["plan"]["global_batch"], job.data["plan"]["zero"]
    ({'base': 'llama-3.1-8b'}, 16, 3)
    """
    builder = reader.text("builder").rpartition(".")[2].lower()
    reader.read_model("builder", model_name(builder))
    _lengths(reader)
    reader.put_epochs("epochs")
    replicas = _degrees(reader)
    micro, steps = reader.count("batch_size"), reader.count("gradient_accumulation_steps")
    micro *= PAIR if _prefers(reader) else 1
    reader.put(("plan", "micro_batch"), micro, "batch_size")
    total = micro * steps * replicas
    reader.put(("plan", "global_batch"), total, "gradient_accumulation_steps", "batch_size")
    dtype = reader.choice("dtype", reader.words("dtypes"), "bf16")
    reader.put(("plan", "precision"), dtype, "dtype")
    optimizer = reader.text("component").rpartition(".")[2].lower() or "adamw"
    put_optimizer(reader, optimizer, reader.words("optimizers"), "component")
    _recompute(reader)
    adapted = builder.startswith(("lora_", "qlora_"))
    if adapted:
        _adapters(reader, builder)
    if _prefers(reader):
        reader.put_preference("reference", *PREFERENCES)
    if reader.has("teacher"):
        reader.put_teacher("teacher", model_name(reader.text("teacher").rpartition(".")[2].lower()))
    reader.put(("stack",), _stack(reader, replicas))


def _prefers(reader: JobReader) -> bool:
    """Return whether the file is one of a DPO recipe, whose batch counts pairs."""
    checkpointers = ("reference_checkpointer", "ref_checkpointer")
    return reader.has(*PREFERENCES) or any(map(reader.below, checkpointers))


def model_name(builder: str) -> str:
    """Return the name in the catalogue of the model that a torchtune function builds, if it is known.

    >>> model_name("lora_llama3_1_70b"), model_name("qwen2_5_0_5b"), model_name("qlora_phi3_mini")
    ('llama3.1-70b', 'qwen2.5-0.5b', 'phi3-mini')
    >>> model_name("lora_code_llama2_7b"), model_name("llama3_3_70b"), model_name("phi4_14b")
    ('codellama-7b', 'llama-3.3-70b', 'phi-4')
    """
    plain = re.sub(r"^q?lora_|_(base|instruct)$", "", builder)
    plain = re.sub(r"_(0|1)_(5b)$", r"_\1.\2", plain)
    plain = re.sub(r"^([a-z_]+[0-9])_([0-9])_", r"\1.\2_", plain)
    for start, written in WRITTEN.items():
        plain = plain.replace(start, written)
    return plain.replace("_", "-")


def _lengths(reader: JobReader) -> None:
    """Put the sequence length into the batch; sequences of datasets that are not packed may be shorter."""
    key = "tokenizer.max_seq_len"
    if reader.has(key):
        reader.put(("batch", "sequence_length"), reader.count(key), key)
    else:
        reader.assume(
            "tokenizer.max_seq_len is not given, so sequences have the context length of the model, unless "
            "--seq states their length"
        )
    packed = "dataset.packed"
    reader.note_lengths(packed if reader.has(packed) else key, reader.flag(packed))


def _degrees(reader: JobReader) -> int:
    """Put the degrees into the plan and return the data-parallel one. One device shards nothing."""
    replicas = reader.put_degrees({"tensor_parallel": "tensor", "context_parallel": "context"}, None)
    offload = reader.first("fsdp_cpu_offload", "fsdp.cpu_offload")
    sharded = replicas > 1 or reader.flag(offload)  # only the recipes that shard have it
    reader.put(("plan", "zero"), 3 if sharded else 0, "builder")
    sets, group = reader.count("replicas"), reader.count("shard", -1, least=-1)
    group = replicas // sets if group < 1 else group
    key, fix = "replicas" if sets > 1 else "shard", "write data_parallel_shard_dim: -1"
    if reader.fills_replicas(sets, group, replicas, key, fix) and sets > 1:
        reader.put(("plan", "data_shard"), group, "replicas", "shard")
    reader.place_if(offload, SHARDED_STATES)
    return replicas


def _recompute(reader: JobReader) -> None:
    """Put the recomputation of whole blocks into the plan if activation checkpointing is on.

    Its checkpoints may be on the host.
    """
    reader.put_checkpointing("checkpointing")
    if reader.flag("offloading"):
        reader.place(ACTIVATIONS, "offloading")
        if not reader.flag("checkpointing"):
            refuse_lone_offload(reader, "offloading", "checkpointing")


def _adapters(reader: JobReader, builder: str) -> None:
    """Put adapters on the named linears into the model; frozen weights have 16 or 4 bits."""
    key = "model.lora_attn_modules"
    named = {name: reader.words("modules").get(name, "") for name in reader.texts(key)}
    named |= {name: name for name in MLP if reader.flag("model.apply_lora_to_mlp")}
    if reader.flag("model.apply_lora_to_output"):
        reader.refuse("model.apply_lora_to_output", "an adapter of the head", "write false")
    targets = reader.linears(key, named, reader.words("modules"))
    reader.put_adapters(targets, key, ("model.lora_rank", 8), ("model.lora_dropout", 0.0))
    if builder.startswith("qlora_") or reader.flag("model.quantize_base"):
        reader.put(("model", "adapters", "base_dtype"), "nf4", "model.quantize_base", "builder")


def _stack(reader: JobReader, replicas: int) -> dict[str, object]:
    """Return the stack: FSDP2, eager or compiled, entirely in bf16."""
    compiled = reader.flag("compile.model") if reader.has("compile.model") else reader.flag("compile")
    base = "torch-fsdp2-compiled" if compiled else "torch-fsdp2"
    stack: dict[str, object] = {"base": base, **TUNING_CODE}
    if replicas > 1 and not reader.flag("fsdp_reshard_after_forward", True):
        stack["sharding"] = {"gathers": "every_micro_batch"}
    return narrowed(stack, "bf16")
