"""Megatron-LM's flags of mixtures of experts.

Answers: how many experts are there, how wide, how are they chosen, and in which layers?
Elsewhere: the ranks that they are spread over (plan.py), the other parts of a block (model.py). Defaults
are those of Megatron-LM, core v0.12. What costs time and is not modelled is told (flags.py).
"""

import re

from flopcast.io.hugging_face.windows import runs
from flopcast.io.megatron.arguments import Arguments
from flopcast.io.megatron.draft import Draft
from flopcast.io.megatron.flags import MEANS_NONE

NUMBER = "--num-experts"
FREQUENCY = "--moe-layer-freq"
CAPACITY = "--moe-expert-capacity-factor"
PADDED = "--moe-pad-expert-input-to-capacity"
BALANCING = "--moe-router-load-balancing-type"
DISPATCHER = "--moe-token-dispatcher-type"
SHARED = "--moe-shared-expert-intermediate-size"
GATE = "--moe-shared-expert-gate"
COUNTS = {  # flag → field of experts
    "--moe-router-topk": ("top_k", 2),
    "--moe-router-num-groups": ("expert_groups", 1),
    "--moe-router-group-topk": ("top_groups", 1),
}
SCORES = {"softmax": "softmax", "sigmoid": "sigmoid"}
DTYPES = {"fp32": "fp32", "fp64": "fp32"}
DISPATCHERS = {"allgather": "allgather", "alltoall": "alltoall", "flex": "flex"}
PART = re.compile(r"\[([01](?:,[01])*)\](?:\*([0-9]{1,4}))?")  # of a pattern of layers: [0]*3


def read_experts(draft: Draft) -> None:
    """Experts in the place of feed-forwards: in all layers, every so many-th, or those of a pattern.

    An expert is as wide as the dense feed-forward, unless told otherwise; shared ones are given by the
    width of all together. `--num-experts 1` is a dense model.

    Parameters
    ----------
    draft : Draft
        With the model's one run of dense blocks, which becomes two kinds where both occur.
    """
    args = draft.arguments
    if not args.has(NUMBER) or args.text(NUMBER) in MEANS_NONE:
        return
    (dense,) = _blocks(draft)
    mlp = dense.get("feed_forward")
    width = mlp.get("ffn_hidden", 1) if isinstance(mlp, dict) else 1
    activation = mlp.get("activation") if isinstance(mlp, dict) else "gelu"
    experts = _fields(args, int(width)) | {"activation": activation}
    if not args.has("--disable-bias-linear"):
        experts["expert_bias"] = True
    kinds, pattern = runs(_layers(args, draft.layers))
    blocks = [
        dense | {"count": count} | ({"feed_forward": experts} if sparse else {}) for sparse, count in kinds
    ]
    draft.put(("model", "blocks"), blocks, NUMBER)
    if pattern:
        draft.put(("model", "pattern"), pattern, FREQUENCY)
    _place(draft, [sparse for sparse, _ in kinds], experts)
    _tell(args)


def _blocks(draft: Draft) -> list[dict[str, object]]:
    """The blocks that are read so far."""
    model = draft.data["model"]
    blocks = model["blocks"] if isinstance(model, dict) else []
    return list(blocks)


def _fields(args: Arguments, width: int) -> dict[str, object]:
    """What the flags say of experts and of their router."""
    fields: dict[str, object] = {"kind": "experts", "num_experts": args.count(NUMBER)}
    fields |= {field: args.count(flag, usual) for flag, (field, usual) in COUNTS.items()}
    fields["expert_hidden"] = args.count("--moe-ffn-hidden-size", width)
    if args.has(SHARED):
        fields |= {"shared_experts": 1, "shared_hidden": args.count(SHARED), "shared_gate": args.has(GATE)}
    fields["router"] = args.choice("--moe-router-score-function", SCORES, "softmax")
    fields["router_dtype"] = args.choice("--moe-router-dtype", DTYPES, "model")
    fields["selection_bias"] = args.has("--moe-router-enable-expert-bias")
    fields["auxiliary_loss"] = _has_loss(args)
    if args.has(CAPACITY):
        fields |= {"capacity_factor": _factor(args), "pads_to_capacity": args.has(PADDED)}
    if args.has("--moe-router-force-load-balancing"):
        fields["load_imbalance_ratio"] = 1.0
    return fields


def _has_loss(args: Arguments) -> bool:
    """Whether loads are kept even by a loss: its kind is one, and its weight is not 0, the default."""
    kinds = {word.text for word in args.words(BALANCING)} or {"aux_loss"}
    weights = {word.text.strip("0.") for word in args.words("--moe-aux-loss-coeff")}
    return any("loss" in kind for kind in kinds) and bool(weights - {""})


def _factor(args: Arguments) -> float:
    """The room of an expert over its mean load; below 0, Megatron-LM drops nothing."""
    try:
        return max(float(args.text(CAPACITY)), 0.0)
    except ValueError:
        because = "it is the room of an expert over its mean load"
        args.fault(CAPACITY, args.text(CAPACITY), "a number", because, f"write {CAPACITY} 1.0")
        return 0.0


def _layers(args: Arguments, layers: int) -> list[bool]:
    """Which layers have experts: every n-th from the first on, or by a pattern such as ([0]*3+[1]*58)."""
    text = args.text(FREQUENCY).strip("'\"").replace(" ", "")
    if text.isdecimal() or not text:
        step = args.count(FREQUENCY)
        return [layer % step == 0 for layer in range(layers)]
    parts = [PART.fullmatch(part) for part in text.strip("()").split("+")]
    order = [digit == "1" for part in parts if part for digit in part[1].split(",") * int(part[2] or 1)]
    if not all(parts) or len(order) != layers or not any(order):
        allowed = f"a number, or a pattern of {layers} layers such as ([0]*1+[1]*{layers - 1})"
        args.fault(FREQUENCY, text, allowed, "it says which layers have experts", f"write {FREQUENCY} 1")
        return [True] * layers
    return order


def _place(draft: Draft, sparse: list[bool], experts: dict[str, object]) -> None:
    """Lines of the values of all runs: what is wrong with one is told where the script gives it."""
    flags = {field: flag for flag, (field, _) in COUNTS.items()}
    flags |= {"num_experts": NUMBER, "expert_hidden": "--moe-ffn-hidden-size", "shared_hidden": SHARED}
    flags |= {"capacity_factor": CAPACITY, "pads_to_capacity": PADDED}
    lines = {
        field: draft.arguments.line(draft.arguments.first(flags.get(field, NUMBER), NUMBER))
        for field in experts
    }
    inside = {path[3:]: line for path, line in draft.lines.items() if path[:3] == ("model", "blocks", 0)}
    for index, has_experts in enumerate(sparse):
        own = {("feed_forward", field): line for field, line in lines.items()} if has_experts else {}
        draft.lines |= {("model", "blocks", index, *path): line for path, line in (inside | own).items()}


def _tell(args: Arguments) -> None:
    """What is counted in another way than the flags ask for."""
    kind = args.choice(DISPATCHER, DISPATCHERS, "allgather")
    if kind != "flex" and not args.has(PADDED):
        args.assume(f"a token is sent once to each rank of its experts, not as by {kind}", DISPATCHER)
    if not args.has("--moe-grouped-gemm"):
        args.assume("products of experts are counted in one kernel, as with --moe-grouped-gemm", NUMBER)
    if not args.has("--moe-router-force-load-balancing", PADDED):
        args.assume("loads of experts are as even as chance makes them", NUMBER)
