"""Settings that all trainers on top of transformers share: batch, sharding, adapters, precision.

Answers: what do these keys mean in any of these trainers?
Elsewhere: the names of the keys in each trainer (axolotl.py, llama_factory.py), DeepSpeed's settings inside
their files (nested_deepspeed.py).

Such a file does not state the lengths of sequences, so each sequence counts with the greatest length.
"""

from collections.abc import Mapping, Sequence

from flopcast.files.nearest_names import nearest
from flopcast.interop.configs.config_reader import AUTO
from flopcast.interop.configs.job_reader import PAGEABLE, SHARDED_STATES, JobReader
from flopcast.interop.configs.keys import keys_of
from flopcast.interop.configs.narrow_states import narrowed
from flopcast.interop.configs.nested_deepspeed import TrainerBatch, read_inside
from flopcast.layers.adapted_linears import OF_TRANSFORMERS, separate_linears
from flopcast.library import catalog
from flopcast.records import Record
from flopcast.spec.switches import TUNING_CODE

OF_GATED = {"out_proj": "o_proj", "fc1": "up_proj", "fc2": "down_proj"}  # OPT's name → Llama's
LLAMA = ("q", "k", "v", "out", "gate", "up", "down")  # where the model comes from elsewhere
STRATEGIES = {name: name for name in ("full_shard", "shard_grad_op", "no_shard")}
STRATEGIES |= {name: name for name in ("hybrid_shard", "hybrid_shard_zero2")}
FSDP_OPTIONS = (*STRATEGIES, "auto_wrap", "offload")
PINNED = "fsdp_config.cpu_offload_pin_memory"
EAGER_KERNELS = (  # of transformers: LlamaRMSNorm and its likes cast to fp32, square, average and cast back
    *("wide_rmsnorm", "unfused_rope", "unfused_gate", "separate_projections"),
    *("gathered_copies", "linear_bias"),
)
COMPILED = "flopcast predicts kernels of eager PyTorch, although the model is compiled"
OF_NODES = "{}: each shard group has {} devices, as many as a node has"
KEEPING = ("shard_grad_op", "hybrid_shard_zero2")  # parameters are whole until the backward pass used them


class Adapter(Record, kw_only=False):
    """A program's defaults for adapters: rank, dropout, modules."""

    rank: int = 8
    dropout_fraction: float = 0.0
    targets: tuple[str, ...] = ()


USUAL = Adapter()


def read_training(
    reader: JobReader, stated: int | None = None, sequences: int = 1, usual_micro: int = 8
) -> None:
    """Put degrees, batch, precision, sharding and optimizer into the plan and the stack.

    Parameters
    ----------
    stated : number of devices in the file
    sequences : number of sequences in each sample
    usual_micro : the program's samples per device if the file omits them
    """
    names = {"tensor_parallel": "tensor", "context_parallel": "context"}
    degrees = {field: name for field, name in names.items() if name in reader.keys.settings}
    replicas = reader.put_degrees(degrees, stated)
    if reader.degree("context_parallel") > 1:
        reader.put(("plan", "context_order"), "zigzag", "context")
    micro, steps = reader.count("micro", usual_micro), reader.count("steps", 1)
    reader.put(("plan", "micro_batch"), sequences * micro, "micro")
    whole = sequences * micro * steps * replicas
    reader.put(("plan", "global_batch"), whole, "steps", "micro")
    precision = _precision(reader)
    reader.put(("plan", "precision"), precision, "fp8", "fp16", "bf16")
    optimizer = reader.text("optimizer").lower()
    put_optimizer(reader, optimizer, keys_of("trainers").words["optimizers"], "optimizer")
    stack = _sharding(reader, replicas, TrainerBatch(micro, steps, replicas), precision)
    pure = next((key for key in ("bf16", "bfloat16") if reader.raw(key) == "full"), "pure_bf16")
    if pure != "pure_bf16" or reader.flag(pure):
        if reader.has("deepspeed") or reader.below("deepspeed"):
            reader.assume("flopcast assumes fp32 weights and states in addition to bf16 weights", pure)
        else:
            stack = narrowed(stack, "bf16")
    reader.put(("stack",), stack)
    if not (isinstance(limit := reader.raw("max_steps"), int) and limit > 0):  # it replaces the epochs
        reader.put_epochs("epochs")


def read_adapters(
    reader: JobReader, rank_key: str, targets_key: str, every: bool, quantised: str, usual: Adapter = USUAL
) -> None:
    """Put low-rank adapters on the named linears, or on all linears of a block, into the model.

    Parameters
    ----------
    rank_key, targets_key : keys of the rank and of the modules' names
    every : whether all linears have an adapter
    quantised : the key that stores frozen weights in 4 bits; "" if they stay in 16 bits
    usual : the defaults of the program
    """
    names = reader.texts(targets_key) if reader.has(targets_key) else usual.targets
    named = {name: OF_TRANSFORMERS.get(name.rpartition(".")[2].lower(), "") for name in names}
    if every:
        named = {linear: linear for linear in _all_linears(reader)}
    _refuse_other_names(reader, targets_key, () if every else names)
    targets = reader.linears(targets_key, named, OF_TRANSFORMERS)
    dropout = ("lora_dropout", usual.dropout_fraction)
    reader.put_adapters(targets, targets_key, (rank_key, usual.rank), dropout)
    if quantised:
        reader.put(("model", "adapters", "base_dtype"), "nf4", quantised)


def _refuse_other_names(reader: JobReader, key: str, names: Sequence[str]) -> None:
    """Report names of layers that decoders with a gated MLP, such as Llama and Qwen, do not have."""
    if reader.part("model").get("base") is None or not {"q", "gate"} <= {*_all_linears(reader)}:
        return
    wrong = [
        (name, OF_GATED[last]) for name in names if (last := name.rpartition(".")[2].lower()) in OF_GATED
    ]
    for name, right in wrong[:1]:
        rest = "".join(f", and {other} in place of {each}" for each, other in wrong[1:])
        because = f"the layers of this model have other names, and PEFT gives no adapter to {name}"
        reader.fault(
            key, "names of layers of the model", because, f"write {right} in place of {name}{rest}"
        )


def refuse_frozen(reader: JobReader, key: str, allowed: str, fix: str, method: str) -> None:
    """Report 4-bit weights of a model without adapters, unless the key of the `method` has a fault."""
    if not reader.faulty(method):
        because = "4-bit weights are frozen, so a run without an adapter would train nothing"
        reader.fault(key, allowed, because, fix)


def refuse_lone_offload(reader: JobReader, key: str, checkpointing: str) -> None:
    """Report offloaded activations without checkpoints, with which a program does not start."""
    program, name = reader.keys.program, reader.first(checkpointing)
    because = f"{program} offloads only checkpointed activations, and does not start without checkpointing"
    reader.fault(key, f"false, unless {name} is true", because, f"add {name}: true")


def _all_linears(reader: JobReader) -> tuple[str, ...]:
    """Return all linear layers of the model's blocks; those of a Llama if the file describes no model."""
    base = reader.part("model").get("base")
    if base is None:
        return LLAMA
    known = catalog.model(str(base))
    return separate_linears(known.blocks, known.hidden)


def _precision(reader: JobReader) -> str:
    """Return 8 bits or either 16-bit type, which is assumed if the file names none."""
    words = {"true": "on", "false": "", AUTO: "on", "full": "full"}
    brain_key, half_key = reader.first("brain"), reader.first("half")
    brain, half = reader.choice(brain_key, words, ""), reader.choice(half_key, words, "")
    if reader.raw(brain_key) == AUTO:
        reader.assume("precision bf16, because bf16 is auto and the devices support it", brain_key)
    if brain and half:
        because = "all weights must have the same data type"
        reader.fault(half_key, "one of bf16 and fp16", because, f"remove {half_key}")
    if reader.flag("fp8"):
        reader.assume("fp8 with one scale per tensor, as in torchao", "fp8")
        return "fp8_current"
    if not brain and not half:
        text = "bf16, because neither bf16 nor fp16 is set; if the weights are in fp32, set plan.precision"
        reader.assume(text)
    return "fp16" if half else "bf16"


def put_optimizer(reader: JobReader, name: str, kinds: Mapping[str, str], key: str) -> None:
    """Put the optimizer into the plan by its name in a program, which may put its states on the host."""
    reader.put_named_optimizer(name, kinds, key)
    if name.startswith("paged"):
        reader.assume("paged optimizer states are assumed to be in device memory", key)


def _sharding(reader: JobReader, replicas: int, batch: TrainerBatch, precision: str) -> object:
    """Return the plan's sharding, and the stack: DeepSpeed, FSDP, or neither."""
    texts = ("full_shard",) if reader.raw("fsdp") is True else reader.texts("fsdp")
    fsdp = [word for text in texts for word in text.lower().split()]
    if wrong := [word for word in fsdp if word not in FSDP_OPTIONS]:
        near = {word: (*nearest(word, FSDP_OPTIONS), "full_shard")[0] for word in wrong}
        fix = ", ".join(f"write {right} in place of {word}" for word, right in near.items())
        because, fault = "the Trainer has no such option of FSDP", f"contains {' and '.join(wrong)}"
        reader.fault("fsdp", ", ".join(FSDP_OPTIONS), because, fix, fault)
    has_fsdp = bool(fsdp) or reader.below("fsdp_config") or reader.has("dp_shard_size")
    has_deepspeed = reader.has("deepspeed") or reader.below("deepspeed")
    if has_fsdp and has_deepspeed:
        other = next((key for key in ("fsdp", "dp_shard_size") if reader.has(key)), "fsdp_config")
        because = "only one of these settings can determine how states are sharded"
        fix = f"keep one of deepspeed and {other}"
        reader.fault("deepspeed", "DeepSpeed or FSDP", because, fix, f"conflicts with {other}")
        _fsdp(reader, fsdp, replicas)  # reports the faults of its settings, too
    if has_deepspeed:
        _note_compiled(reader)
        return read_inside(reader, batch, precision)
    if not has_fsdp:
        reader.put(("plan", "zero"), 0)
        _note_compiled(reader)
        return "pytorch-ddp"
    keeps = _fsdp(reader, fsdp, replicas)
    compiles = reader.raw("torch_compile") is True
    base = "torch-fsdp2-compiled" if compiles else "torch-fsdp2"
    changes: dict[str, object] = {"sharding": {"gathers": "every_micro_batch"}} if keeps else {}
    if not compiles:
        changes["rewrites"] = list(EAGER_KERNELS)
    if reader.has_place("optimizer") and not reader.flag(PINNED, True):
        changes["offload"] = PAGEABLE
    return {"base": base, **TUNING_CODE} | changes


def _note_compiled(reader: JobReader) -> None:
    """Note compiled kernels if the stack only has eager ones."""
    if reader.raw("torch_compile") is True:
        reader.assume(COMPILED, "torch_compile")


def _fsdp(reader: JobReader, words: Sequence[str], replicas: int) -> bool:
    """Return what FSDP shards, over which ranks, and whether it offloads.

    Returns
    -------
    bool
        Whether parameters that were gathered for the forward pass stay for the backward pass.

    References
    ----------
    PyTorch: `ShardingStrategy` of FSDP, `reshard_after_forward` of fully_shard.
    """
    named = next((STRATEGIES[word] for word in words if word in STRATEGIES), "full_shard")
    kind = reader.choice("fsdp_strategy", STRATEGIES, named)
    group = _shard_group(reader, replicas)
    if kind.startswith("hybrid"):
        group = group or 8
        reader.assume(OF_NODES.format(kind, group), "fsdp_strategy")
    reader.put(("plan", "zero"), 0 if kind == "no_shard" else 3, "fsdp_strategy", "fsdp")
    if reader.has("dp_shard_size") and not reader.has("dp_replicate_size"):
        reader.put_shards(group, replicas, "dp_shard_size")
    elif group and group < replicas:
        reader.put(("plan", "data_shard"), group, "dp_shard_size", "fsdp_strategy", "fsdp")
    if reader.flag("fsdp_offload") or "offload" in words:
        reader.place(SHARDED_STATES, "fsdp_offload", "fsdp")
    return kind in KEEPING or (kind != "no_shard" and reader.raw("fsdp_reshard") is False)


def _shard_group(reader: JobReader, replicas: int) -> int:
    """Return the number of ranks that share one set of shards, 0 if it is not stated."""
    sets, stated = reader.count("dp_replicate_size", 1), reader.has("dp_shard_size")
    group = reader.count("dp_shard_size", 1) if stated else replicas // sets if sets > 1 else 0
    if sets > 1:
        fix = f"write {max(replicas // (group or 1), 1)}"
        reader.fills_replicas(sets, group, replicas, "dp_replicate_size", fix)
    return group
