"""Flags of experts and layers in forks of Megatron-LM that differ from Megatron-LM's own.

Answers: how many experts does each layer of a script for DeepSpeed-MoE or MindSpeed-LLM have, and which
layers do nothing?
Elsewhere: Megatron-LM's own flags of experts (experts.py), blocks made from kinds of layers
(layer_kinds.py).

References
----------
microsoft/Megatron-DeepSpeed: arguments.py (`--num-experts` is a list, `--topk` 1, `--expert-interval` 2,
`--moe-expert-parallel-size` 1, `--mlp-type standard`, `--moe-train-capacity-factor` 1.0,
`--moe-loss-coeff` 0.1) and megatron/model/transformer.py (`ParallelTransformer`: layer i, counted from 1,
has experts if the interval divides i; a list has an entry for each of these layers, and a single number
applies to all). deepspeed/moe/sharded_moe.py: the gate is in fp32, and every expert gets as many rows as
its capacity. PR-MoE: arXiv:2201.05596, section 4.

Ascend/MindSpeed-LLM: mindspeed_llm/features_manager/moe (`--n-shared-experts` times the width of an expert
is `--moe-shared-expert-intermediate-size`; the first `--first-k-dense-replace` layers are dense) and
features_manager/pipeline_parallel/noop_layers.py (`--noop-layers`: numbers of layers, from 0, that do
nothing).
"""

from flopcast.interop.megatron.arguments import Arguments

NUMBER = "--num-experts"
INTERVAL, TOPK, EP, RESIDUAL = "--expert-interval", "--topk", "--moe-expert-parallel-size", "--mlp-type"
ROOM, KEEPS = "--moe-train-capacity-factor", "--disable-moe-token-dropping"
CUT = "--enable-expert-tensor-parallelism"
LOSS = "--moe-loss-coeff"
OF_CORE = (
    "--moe-router-topk", "--moe-layer-freq", "--moe-grouped-gemm", "--moe-token-dispatcher-type",
    "--moe-router-load-balancing-type", "--moe-ffn-hidden-size", "--expert-model-parallel-size",
)  # fmt: skip
OF_DEEPSPEED = (INTERVAL, TOPK, EP, RESIDUAL, ROOM, KEEPS, CUT, LOSS, "--moe-min-capacity")
DENSE, SHARED, NOOP = "--first-k-dense-replace", "--n-shared-experts", "--noop-layers"
WIDTH = "--moe-intermediate-size"


def is_deepspeed_moe(args: Arguments) -> bool:
    """Return whether experts are DeepSpeed's: by its flags, or by its engine without Core's flags."""
    return args.has(*OF_DEEPSPEED) or (args.has("--deepspeed") and not args.has(*OF_CORE))


def expert_numbers(args: Arguments, layers: int) -> list[int]:
    """Return the number of experts of each layer of a script for DeepSpeed-MoE, 1 for dense layers.

    Parameters
    ----------
    args : Arguments
        `--num-experts` has one number, or one for each layer with experts (PR-MoE).
    layers : int
    """
    interval = args.count(INTERVAL, 2)
    listed = _numbers(args, NUMBER)
    sparse = layers // interval
    if len(listed) == 1:
        listed *= sparse
    if len(listed) != sparse or not sparse:
        allowed = (
            f"one number, or {sparse} numbers, one for each MoE layer (one in {interval} of the {layers} "
            "layers)"
        )
        because = "in DeepSpeed-MoE, each layer can have its own number of experts"
        text = " ".join(word.text for word in args.words(NUMBER))
        args.fault(NUMBER, text, allowed, because, f"write one number, or {sparse} numbers")
        return [1] * layers
    return [1 if layer % interval else listed[layer // interval - 1] for layer in range(1, layers + 1)]


def deepspeed_fields(args: Arguments, width: int) -> dict[str, object]:
    """Return the fields of experts and their gate from DeepSpeed-MoE's flags, without the number of
    experts.

    With residual experts (PR-MoE), every token also passes through a dense MLP, and both results are added
    with two weights. flopcast counts these two weights as one weight of a gate.
    """
    fields: dict[str, object] = {"kind": "experts", "top_k": args.count(TOPK, 1), "expert_hidden": width}
    fields |= {"router": "softmax", "router_dtype": "fp32"}
    fields["auxiliary_loss"] = args.text(LOSS).strip("0.") != "" if args.has(LOSS) else True
    if not args.has(KEEPS):
        factor = capacity_factor(args, ROOM) if args.text(ROOM) else 1.0
        fields |= {"capacity_factor": factor, "pads_to_capacity": True}
    if args.choice(RESIDUAL, ""):
        fields |= {"shared_experts": 1, "shared_hidden": width, "shared_gate": True}
    return fields


def noop_layers(args: Arguments, layers: int) -> tuple[int, ...]:
    """Return the numbers, from 0, of layers that do nothing."""
    numbers = tuple(dict.fromkeys(_numbers(args, NOOP, least=0))) if args.has(NOOP) else ()
    if any(number >= layers for number in numbers) or len(numbers) >= layers:
        allowed = f"indices of layers from 0 to {layers - 1}, but not of all layers"
        because = "the setting lists the layers that do nothing"
        args.fault(NOOP, args.text(NOOP), allowed, because, f"remove {NOOP}")
        return ()
    return numbers


def _numbers(args: Arguments, flag: str, least: int = 1) -> list[int]:
    """Return the whole numbers of a flag, separated by blanks or commas."""
    parts = [part for word in args.words(flag) for part in word.text.strip("'\"").split(",") if part]
    if parts and all(part.isdecimal() and int(part) >= least for part in parts):
        return [int(part) for part in parts]
    text = " ".join(word.text for word in args.words(flag))
    allowed, because = f"whole numbers, {least} or more", "these settings are whole numbers"
    args.fault(flag, text, allowed, because, f"write {flag} {least}")
    return [max(least, 1)]


def capacity_factor(args: Arguments, flag: str) -> float:
    """Return the capacity of an expert relative to its mean load; below 0, no tokens are dropped."""
    try:
        return max(float(args.text(flag)), 0.0)
    except ValueError:
        because = "this setting is the capacity of an expert divided by its mean load"
        args.fault(flag, args.text(flag), "a number", because, f"write {flag} 1.0")
        return 1.0
