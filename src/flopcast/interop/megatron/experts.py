"""Megatron-LM's flags of mixtures of experts.

Answers: how many experts are there, how wide are they, and how are they chosen?
Elsewhere: the layers with experts (layer_kinds.py), the ranks over which they are spread (plan.py), the
other parts of a block (model.py), notes on flags that cost time and are not modelled (flags.py). Defaults
are those of Megatron-LM, core v0.12.
"""

from flopcast.interop.megatron.arguments import Arguments
from flopcast.interop.megatron.flags import MEANS_NONE
from flopcast.interop.megatron.forks import SHARED as NUMBER_SHARED
from flopcast.interop.megatron.forks import WIDTH, capacity_factor, deepspeed_fields, is_deepspeed_moe
from flopcast.spec.expert_software import ExpertSoftware

NUMBER = "--num-experts"
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
BACKEND = "--moe-flex-dispatcher-backend"
FUSED_ROUTER = "--moe-router-fusion"
BESIDE = "--overlap-moe-expert-parallel-comm"
LINES = {  # field of experts → the flag that its errors name; else the number of experts
    **{field: flag for flag, (field, _) in COUNTS.items()},
    "num_experts": NUMBER,
    "expert_hidden": "--moe-ffn-hidden-size",
    "shared_hidden": SHARED,
    "capacity_factor": CAPACITY,
    "pads_to_capacity": PADDED,
}


def asks_for_experts(args: Arguments) -> bool:
    """Return whether the model has experts: `--num-experts 1` is a dense model."""
    return any(word.text not in MEANS_NONE for word in args.words(NUMBER))


def read_experts(args: Arguments, dense: dict[str, object]) -> dict[str, object]:
    """Return experts that replace the feed-forward layer of a dense block.

    An expert is as wide as the dense feed-forward layer, unless a flag sets its width; the width of
    shared experts is given for all of them together.
    """
    mlp = dense.get("feed_forward")
    width = mlp.get("ffn_hidden", 1) if isinstance(mlp, dict) else 1
    activation = mlp.get("activation") if isinstance(mlp, dict) else "gelu"
    _note_assumptions(args)
    fields = deepspeed_fields if is_deepspeed_moe(args) else _fields
    experts = fields(args, int(width)) | {"num_experts": args.count(NUMBER), "activation": activation}
    return experts | ({} if args.has("--disable-bias-linear") else {"expert_bias": True})


def _fields(args: Arguments, width: int) -> dict[str, object]:
    """Return the fields of the experts and their router from the flags."""
    fields: dict[str, object] = {"kind": "experts"}
    fields |= {field: args.count(flag, usual) for flag, (field, usual) in COUNTS.items()}
    own = args.count(args.first("--moe-ffn-hidden-size", WIDTH), width)
    fields["expert_hidden"] = own
    together = args.count(SHARED) if args.has(SHARED) else own * args.count(NUMBER_SHARED, 0, least=0)
    if together:
        fields |= {"shared_experts": 1, "shared_hidden": together, "shared_gate": args.has(GATE)}
    fields["router"] = args.choice("--moe-router-score-function", "softmax")
    fields["router_dtype"] = args.choice("--moe-router-dtype", "model")
    fields["selection_bias"] = args.has("--moe-router-enable-expert-bias")
    fields["auxiliary_loss"] = _has_loss(args)
    if args.has(CAPACITY):
        fields |= {"capacity_factor": capacity_factor(args, CAPACITY), "pads_to_capacity": args.has(PADDED)}
    return fields


def _has_loss(args: Arguments) -> bool:
    """Return whether a loss balances the loads: the flag names a loss, and its weight is not 0."""
    kinds = {word.text for word in args.words(BALANCING)} or {"aux_loss"}
    weights = {word.text.strip("0.") for word in args.words("--moe-aux-loss-coeff")}
    return any("loss" in kind for kind in kinds) and bool(weights - {""})


def expert_software(args: Arguments, usual: ExpertSoftware) -> dict[str, object]:
    """Return the stack's settings for experts that the flags change.

    "flex" means a library: DeepEP, unless the arguments name another. Without a flag Megatron-LM gathers
    the tokens of all ranks; that is counted as an all-to-all, with a note.

    References
    ----------
    megatron/core/transformer/moe/token_dispatcher.py; TransformerConfig.moe_flex_dispatcher_backend.
    """
    if not asks_for_experts(args):
        return {}
    if is_deepspeed_moe(args):
        return {} if usual.dispatcher == "all_to_all" else {"dispatcher": "all_to_all"}
    kind = args.choice(DISPATCHER, "allgather")
    if kind == "allgather":
        text = "flopcast assumes that tokens are sent by an all-to-all, not by all-gathers"
        args.assume(text, DISPATCHER)
    library: str = args.choice(BACKEND, "deepep") if kind == "flex" else usual.dispatcher
    library = "all_to_all" if kind == "alltoall" else library
    changes: dict[str, object] = {} if library == usual.dispatcher else {"dispatcher": library}
    if args.has(BESIDE) and usual.exchange_overlap == "none":
        changes["exchange_overlap"] = "other_micro_batch"
    kernels = "fused" if args.has(FUSED_ROUTER) else "eager"
    if usual.router_kernels not in ("stated", kernels):
        changes["router_kernels"] = kernels
    return changes


def _note_assumptions(args: Arguments) -> None:
    """Note settings whose prediction differs from the request.

    Forced balance needs no note: its router draws logits at random, so that loads are even except for
    chance (RandomSTE of megatron/core/transformer/moe/moe_utils.py).
    """
    if not args.has("--moe-grouped-gemm"):
        args.assume("flopcast assumes grouped GEMMs for experts, as with --moe-grouped-gemm", NUMBER)
    if not args.has("--moe-router-force-load-balancing", PADDED):
        args.assume("flopcast assumes that tokens choose experts at random", NUMBER)
