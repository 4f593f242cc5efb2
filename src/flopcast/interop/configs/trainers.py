"""Settings that all trainers on top of transformers share: batch, sharding, adapters, precision.

Answers: what do these keys ask for, whichever trainer's they are?
Elsewhere: how each trainer calls them (axolotl.py, llama_factory.py), DeepSpeed's settings inside their
files (nested_deepspeed.py).

Lengths of sequences are not known from such a file: each is counted as long as the longest is.
"""

from collections.abc import Sequence

from flopcast.interop.configs.config_reader import AUTO, ConfigReader
from flopcast.interop.configs.narrow_states import narrowed
from flopcast.interop.configs.nested_deepspeed import TrainerBatch, read_inside
from flopcast.interop.configs.placements import PAGEABLE, SHARDED_STATES, has_place, place
from flopcast.layers.adapted_linears import separate_linears
from flopcast.library import catalog
from flopcast.records import dataclass

TARGETS = {  # a module's name in transformers → which linear it is
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out", "out_proj": "out", "gate_proj": "gate",
    "up_proj": "up", "down_proj": "down", "qkv_proj": "qkv", "gate_up_proj": "gate_up", "w_pack": "qkv",
    "query_key_value": "qkv", "fc1": "up", "fc2": "down",
}  # fmt: skip
LLAMA = ("q", "k", "v", "out", "gate", "up", "down")  # where the model comes from elsewhere
OPTIMIZERS: dict[str, tuple[str, ...]] = {
    "adamw_8bit": ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "adamw_torch_8bit", "ademamix_8bit"),
    "adamw_4bit": ("adamw_torch_4bit", "ao_adamw_4bit"),
    "adamw_fp8": ("ao_adamw_fp8",),
    "adafactor": ("adafactor",),
    "lion": ("lion", "lion_32bit", "paged_lion_32bit"),
    "lion_8bit": ("lion_8bit", "paged_lion_8bit"),
    "muon": ("muon",),
    "sgd": ("sgd",),
    "adamw": (
        "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw_anyprecision", "adamw",
        "paged_adamw_32bit", "paged_adamw", "adamw_torch_npu_fused", "adamw_torch_xla",
    ),
}  # fmt: skip
STRATEGIES = {name: name for name in ("full_shard", "shard_grad_op", "no_shard")}
STRATEGIES |= {name: name for name in ("hybrid_shard", "hybrid_shard_zero2")}
PINNED = "fsdp_config.cpu_offload_pin_memory"
KEEPING = ("shard_grad_op", "hybrid_shard_zero2")  # parameters are whole until the backward pass used them


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The key names of a trainer, and its defaults.

    Attributes
    ----------
    micro, steps : str
        Sequences of a device, and accumulation steps.
    optimizer : str
    default_micro : int
        Sequences of a device if the file says nothing.
    tensor, context : tuple of str
        Keys of these degrees; empty if the trainer has none.
    """

    micro: str
    steps: str
    optimizer: str
    default_micro: int = 1
    tensor: tuple[str, ...] = ()
    context: tuple[str, ...] = ()


TRANSFORMERS = Names(  # of the Trainer of transformers, which several programs extend
    micro="per_device_train_batch_size",
    steps="gradient_accumulation_steps",
    optimizer="optim",
    default_micro=8,
)


@dataclass(frozen=True, slots=True)
class Adapter:
    """A program's defaults for adapters: rank, dropout, modules."""

    rank: int = 8
    dropout_fraction: float = 0.0
    targets: tuple[str, ...] = ()


USUAL = Adapter()


def read_training(
    reader: ConfigReader, names: Names, stated: int | None = None, sequences: int = 1
) -> None:
    """Put degrees, batch, precision, sharding and optimizer into the plan and the stack.

    `stated` is the number of devices that the file gives, `sequences` those of each sample.
    """
    tensor_key, context_key = (
        reader.first(*keys) if keys else "" for keys in (names.tensor, names.context)
    )
    tensor = reader.count(tensor_key, 1) if tensor_key else 1
    context = reader.count(context_key, 1) if context_key else 1
    ranks = reader.ranks(stated, share=tensor * context, shared=tensor_key if tensor > 1 else context_key)
    replicas = max(ranks // (tensor * context), 1)
    reader.put(("plan", "data_parallel"), replicas)
    reader.put_degree("tensor_parallel", tensor, tensor_key)
    reader.put_degree("context_parallel", context, context_key)
    if context > 1:
        reader.put(("plan", "context_order"), "zigzag", context_key)
    micro, steps = reader.count(names.micro, names.default_micro), reader.count(names.steps, 1)
    reader.put(("plan", "micro_batch"), sequences * micro, names.micro)
    whole = sequences * micro * steps * replicas
    reader.put(("plan", "global_batch"), whole, names.steps, names.micro)
    precision = _precision(reader)
    reader.put(("plan", "precision"), precision, "fp8", "fp16", "bf16")
    _optimizer(reader, names.optimizer)
    stack = _sharding(reader, replicas, TrainerBatch(micro, steps, replicas), precision)
    pure = next((key for key in ("bf16", "bfloat16") if reader.raw(key) == "full"), "pure_bf16")
    if pure != "pure_bf16" or reader.flag(pure):
        if reader.has("deepspeed") or reader.below("deepspeed"):
            reader.assume("flopcast assumes fp32 weights and states in addition to bf16 weights", pure)
        else:
            stack = narrowed(stack, "bf16")
    reader.put(("stack",), stack)


def read_adapters(
    reader: ConfigReader,
    rank_key: str,
    targets_key: str,
    every: bool,
    quantised: str,
    usual: Adapter = USUAL,
) -> None:
    """Put low-rank adapters on the named linears, or on all linears of a block, into the model.

    Parameters
    ----------
    rank_key, targets_key : keys of the rank and of the modules' names
    every : whether all linears have an adapter
    quantised : the key that stores frozen weights in 4 bits; "" if they stay in 16 bits
    usual : the program's defaults
    """
    targets = _all_linears(reader) if every else ()
    named = reader.texts(targets_key) if reader.has(targets_key) else usual.targets
    for name in () if every else named:
        last = name.rpartition(".")[2].lower()
        if last in TARGETS:
            targets = (*targets, TARGETS[last])
        else:
            reader.fault(
                targets_key,
                ", ".join(TARGETS),
                f"adapters of {name} are not supported yet",
                f"remove {name}",
            )
    if not targets and not reader.faulty(targets_key):
        because = "adapters are added only to the linear layers that are listed"
        reader.fault(
            targets_key, ", ".join(TARGETS), because, f"add {targets_key}", "names no linear layer"
        )
    reader.put(("model", "adapters", "rank"), reader.count(rank_key, usual.rank), rank_key)
    reader.put(("model", "adapters", "targets"), list(dict.fromkeys(targets)), targets_key)
    dropout = reader.fraction("lora_dropout", usual.dropout_fraction)
    if dropout:
        reader.put(("model", "adapters", "dropout"), dropout, "lora_dropout")
    if quantised:
        reader.put(("model", "adapters", "base_dtype"), "nf4", quantised)


def _all_linears(reader: ConfigReader) -> tuple[str, ...]:
    """Return every linear of the model's blocks; those of a Llama if the model comes from elsewhere."""
    base = reader.part("model").get("base")
    if base is None:
        return LLAMA
    known = catalog.model(str(base))
    return separate_linears(known.blocks, known.hidden)


def note_lengths(reader: ConfigReader, key: str, packed: bool) -> None:
    """Note how sequences are counted, since the file does not state their lengths."""
    if packed:
        reader.assume("each packed sequence is predicted as one document", key)
    else:
        reader.assume(
            "all sequences are predicted with the length of the longest one, as if they were padded", key
        )


def names_all_linears(reader: ConfigReader, key: str, *words: object) -> bool:
    """Return whether adapters go to all linear layers, as they do without the key, or under these words."""
    return reader.raw(key) in (None, "all-linear", ["all-linear"], *words)


def write_scores(reader: ConfigReader, *keys: str) -> None:
    """Make attention write its scores to memory, for any stack."""
    stack = reader.data["stack"]
    named = stack if isinstance(stack, dict) else {"base": stack}
    kernel = {"attention_kernel": "materialised", "attention_generation": "newest"}
    reader.put(("stack",), named | kernel, *keys)


def _precision(reader: ConfigReader) -> str:
    """Return 8 bits or either 16-bit type; training in fp32 is not supported."""
    words = {"true": "on", "false": "", AUTO: "on", "full": "full"}
    brain_key, half_key = reader.first("bf16", "bfloat16", "pure_bf16"), reader.first("fp16", "float16")
    brain, half = reader.choice(brain_key, words, ""), reader.choice(half_key, words, "")
    if reader.raw(brain_key) == AUTO:
        reader.assume("precision bf16, because bf16 is auto and the devices support it", brain_key)
    if brain and half:
        reader.fault(
            half_key,
            "one of bf16 and fp16",
            "all weights must have the same data type",
            f"remove {half_key}",
        )
    if reader.flag("fp8"):
        reader.assume("fp8 with one scale per tensor, as in torchao", "fp8")
        return "fp8_current"
    if not brain and not half:
        reader.assume(
            "bf16, because neither bf16 nor fp16 is set, and flopcast does not support training in fp32"
        )
    return "fp16" if half else "bf16"


def _optimizer(reader: ConfigReader, key: str) -> None:
    """Read the optimizer; an unsupported one counts as AdamW, with a note."""
    name = reader.text(key).lower()
    optimizer = next((kind for kind, names in OPTIMIZERS.items() if name in names), None)
    if name and optimizer is None:
        reader.assume(f"the optimizer step is predicted as that of AdamW instead of {name}", key)
    if name.startswith("paged"):
        reader.assume("paged optimizer states are assumed to be in device memory", key)
    reader.put_optimizer(optimizer or "adamw", key)


def _sharding(reader: ConfigReader, replicas: int, batch: TrainerBatch, precision: str) -> object:
    """Return the plan's sharding, and the stack: DeepSpeed, FSDP, or neither."""
    fsdp = [word for text in reader.texts("fsdp") for word in text.lower().split()]
    has_fsdp = bool(fsdp) or reader.below("fsdp_config") or reader.has("dp_shard_size")
    has_deepspeed = reader.has("deepspeed") or reader.below("deepspeed")
    if has_fsdp and has_deepspeed:
        reader.fault(
            "deepspeed",
            "DeepSpeed or FSDP",
            "only one of these settings can determine how states are sharded",
            "remove one",
            "conflicts with fsdp",
        )
    if has_deepspeed:
        _note_compiled(reader)
        return read_inside(reader, batch, precision)
    if not has_fsdp:
        reader.put(("plan", "zero"), 0)
        _note_compiled(reader)
        return "pytorch-ddp"
    keeps = _fsdp(reader, fsdp, replicas)
    base = "torch-fsdp2-compiled" if reader.raw("torch_compile") is True else "torch-fsdp2"
    changes: dict[str, object] = {"sharding": {"gathers": "every_micro_batch"}} if keeps else {}
    if has_place(reader, "optimizer") and not reader.flag(PINNED, True):
        changes["offload"] = PAGEABLE
    return {"base": base} | changes if changes else base


def _note_compiled(reader: ConfigReader) -> None:
    """Note compiled kernels if the stack only has eager ones."""
    if reader.raw("torch_compile") is True:
        reader.assume(
            "kernels are predicted as eager PyTorch, although the model is compiled", "torch_compile"
        )


def _fsdp(reader: ConfigReader, words: Sequence[str], replicas: int) -> bool:
    """Return what FSDP shards, over which ranks, and whether it offloads.

    Returns
    -------
    bool
        Whether parameters that were gathered for the forward stay for the backward pass.

    References
    ----------
    PyTorch: `ShardingStrategy` of FSDP, `reshard_after_forward` of fully_shard.
    """
    offload = reader.first("fsdp_config.fsdp_offload_params", "fsdp_config.offload_params")
    strategy = reader.first("fsdp_config.fsdp_sharding_strategy", "fsdp_config.sharding_strategy")
    named = next((STRATEGIES[word] for word in words if word in STRATEGIES), "full_shard")
    kind = reader.choice(strategy, STRATEGIES, named)
    group = _shard_group(reader, replicas)
    if kind.startswith("hybrid"):
        group = group or 8
        reader.assume(
            f"{kind}: each shard group has {group} devices, the number of devices of a node", strategy
        )
    again = reader.first("fsdp_config.fsdp_reshard_after_forward", "fsdp_config.reshard_after_forward")
    reader.put(("plan", "zero"), 0 if kind == "no_shard" else 3, strategy, "fsdp")
    if group and group < replicas:
        reader.put(("plan", "data_shard"), group, "dp_shard_size", strategy, "fsdp")
    if reader.flag(offload) or "offload" in words:
        place(reader, SHARDED_STATES, offload, "fsdp")
    return kind in KEEPING or (kind != "no_shard" and reader.raw(again) is False)


def _shard_group(reader: ConfigReader, replicas: int) -> int:
    """Return ranks that share one set of shards, 0 if neither number is stated."""
    sets, stated = reader.count("dp_replicate_size", 1), reader.has("dp_shard_size")
    group = reader.count("dp_shard_size", 1) if stated else replicas // sets if sets > 1 else 0
    if sets > 1 and sets * group != replicas:
        because = "every data-parallel rank belongs to exactly one shard group"
        allowed = (
            f"values whose product (shard groups × ranks of a group) is {replicas}, the number of "
            "data-parallel ranks"
        )
        reader.fault("dp_replicate_size", allowed, because, f"write {max(replicas // (group or 1), 1)}")
    return group
