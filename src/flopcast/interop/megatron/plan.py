"""Megatron-LM's flags as a plan: degrees, batch, precision, sharding, recompute.

Answers: how is the step divided over ranks, and what does it keep or recompute?
Elsewhere: the model (model.py), chunks of layers (stages.py), number formats (precision.py), states outside
the devices (offload.py), fusions and overlap (stack.py), the check of the plan (spec/rules.py).
"""

from math import prod

from flopcast.errors import MISSING
from flopcast.interop.configs.deepspeed import BF16_REASON
from flopcast.interop.megatron.experts import asks_for_experts
from flopcast.interop.megatron.flags import WORDS
from flopcast.interop.megatron.forks import CUT, EP, is_deepspeed_moe
from flopcast.interop.megatron.job_builder import JobBuilder
from flopcast.interop.megatron.offload import read_placements
from flopcast.interop.megatron.optimizer import plan_optimizer
from flopcast.interop.megatron.precision import read_precision
from flopcast.interop.megatron.stages import PIPELINE, read_stages
from flopcast.spec.divisors import undivided
from flopcast.spec.plan_fields import OF_REPLICA

STRATEGY = "--data-parallel-sharding-strategy"  # of Megatron-FSDP
ULYSSES = "--ds-sequence-parallel-size"
EXCHANGE = "--cp-comm-type"
ALGORITHM = "--context-parallel-algo"  # of MindSpeed
MODULES_FLAG = "--recompute-modules"
OLD_METHODS = ("--recompute-method", "--activations-checkpoint-method", "--checkpoint-method")
OLD_COUNTS = ("--recompute-num-layers", "--activations-checkpoint-num-layers", "--checkpoint-num-layers")


def read_plan(args: JobBuilder, ranks: int | None) -> None:
    """Read degrees, batch and modes.

    Parameters
    ----------
    args : JobBuilder
        The builder knows the layers of the model. The function adds the plan and the replicas to it.
    ranks : int or None
        The world size. If it is None, one replica is assumed, and the caller reports the error.
    """
    context = args.first("--context-parallel-size", ULYSSES)
    degrees = {
        "tensor_parallel": "--tensor-model-parallel-size",
        "pipeline_parallel": PIPELINE,
        "context_parallel": context,
        "expert_parallel": args.first("--expert-model-parallel-size", EP),
        "expert_tensor_parallel": "--expert-tensor-parallel-size",
    }
    sizes = {name: args.count(flag) for name, flag in degrees.items()}
    for name, flag in degrees.items():
        if args.has(flag):
            args.put(("plan", name), sizes[name], flag)
    if is_deepspeed_moe(args) and asks_for_experts(args) and not args.has(CUT):
        args.put(("plan", "expert_tensor_parallel"), 1, EP)  # DeepSpeed's experts stand whole on a rank
    _exchange(args, context)
    args.choice("--stage", "sft")
    share = prod(sizes[name] for name in OF_REPLICA)
    if ranks is not None and ranks % share:
        flag, *reasons = undivided(ranks, {degrees[name]: sizes[name] for name in OF_REPLICA})
        args.fault(flag, args.count(flag), *reasons)
    args.replicas = max((ranks or 1) // share, 1)
    args.put(("plan", "data_parallel"), args.replicas)
    _batch(args)
    read_stages(args, sizes["pipeline_parallel"])
    _modes(args, sizes["tensor_parallel"])
    _recompute(args)
    read_placements(args)


def _exchange(args: JobBuilder, context: str) -> None:
    """Read how ranks that share a sequence exchange keys and values; `context` is the flag for the number
    of these ranks.

    DeepSpeed's sequence parallelism (Ulysses) uses an all-to-all, and Megatron-LM uses a ring unless a
    flag selects another exchange. MindSpeed states an algorithm
    (mindspeed/features_manager/context_parallel). `--cp-comm-type` takes one value, or one for each
    layer. In the latter case, the first value is used, and a note reports the others.

    References
    ----------
    arXiv:2309.14509, section 3: DeepSpeed-Ulysses.
    """
    exchange = args.choice(EXCHANGE, "ring")
    if args.has(ALGORITHM):
        exchange = args.choice(ALGORITHM, "ring")
        args.put(("plan", "context_exchange"), exchange, ALGORITHM)
        return
    if context == ULYSSES:
        args.put(("plan", "context_exchange"), "all_to_all", ULYSSES)
        return
    if args.has(EXCHANGE, ULYSSES):
        args.put(("plan", "context_exchange"), exchange, EXCHANGE, ULYSSES)
    kinds = list(dict.fromkeys(word.text.lower() for word in args.words(EXCHANGE)))
    if len(kinds) > 1:
        text = (
            f"context parallelism uses {kinds[0]} in every layer, including layers for which the "
            f"script states {', '.join(kinds[1:])}"
        )
        args.assume(text, EXCHANGE)


def _batch(args: JobBuilder) -> None:
    """Read sequences per micro-batch and per step.

    Without a global batch, a step is one micro-batch of every replica, so there is nothing to pipeline. A
    ramp-up reaches the global batch after its samples; most of a long run uses this size.
    """
    micro = args.required("--micro-batch-size")
    args.put(("plan", "micro_batch"), micro, "--micro-batch-size")
    if not args.has("--global-batch-size"):
        args.assume(
            f"--global-batch-size {micro * args.replicas}, because Megatron-LM's default is one "
            "micro-batch for each replica"
        )
    total = args.count("--global-batch-size", micro * args.replicas)
    args.put(("plan", "global_batch"), total, "--global-batch-size")
    if args.has("--rampup-batch-size"):
        args.assume(
            f"the global batch size of {total}, which is reached after the ramp-up", "--rampup-batch-size"
        )


def _modes(args: JobBuilder, tensor: int) -> None:
    """Read precision, sharding, sequence parallelism and the order of ranks.

    Megatron-LM switches sequence parallelism off if one rank holds the whole layer.
    """
    read_precision(args)
    if args.has("--sequence-parallel") and tensor > 1:  # Megatron-LM switches it off for one rank
        args.put(("plan", "sequence_parallel"), True, "--sequence-parallel")
    _zero(args)
    if args.has("--use-tp-pp-dp-mapping"):
        args.put(("plan", "rank_order"), "tp-cp-pp-dp", "--use-tp-pp-dp-mapping")
    if args.has("--optimizer"):
        args.put(("plan", "optimizer"), plan_optimizer(args), "--optimizer")


def _zero(args: JobBuilder) -> None:
    """Read what replicas shard.

    DeepSpeed reads its stage from a separate file; scripts repeat the stage as `--zero-stage`.
    """
    sharded = ("--use-torch-fsdp2", "--use-megatron-fsdp", "--use-custom-fsdp")
    distributed = "--use-distributed-optimizer"
    args.clash(
        distributed,
        "--use-torch-fsdp2",
        "only one of these flags can determine how optimizer states are sharded",
    )
    zero = 1 if args.has(distributed) else 0
    strategy = int(args.choice(STRATEGY, "0"))
    gather = "--overlap-param-gather"
    if args.has(gather) and not args.has(distributed, *sharded):
        because = "without sharding, no parameters are gathered"
        allowed = f"no such flag, unless {distributed}"
        args.fault(gather, True, f"{allowed} is given", because, f"add {distributed}")
    if args.has("--use-torch-fsdp2"):
        zero = 3
    elif args.has(*sharded):
        zero = max(zero, strategy)
        if not args.has(STRATEGY):
            args.assume(f"{STRATEGY} no_shard (no sharding), which is Megatron-Core's default")
    if args.has("--deepspeed"):
        if not args.has("--zero-stage"):
            text = "ZeRO stage 1, because flopcast does not read the DeepSpeed configuration"
            args.assume(text, "--deepspeed")
        zero = args.count("--zero-stage", 1, least=0)
        if zero == 0 and args.has("--bf16") and args.replicas > 1:
            zero = 1
            args.assume(BF16_REASON, "--zero-stage")
    elif args.has("--zero-stage"):
        args.assume("--zero-stage has no effect without --deepspeed", "--zero-stage")
    if zero:
        args.put(("plan", "zero"), zero, "--zero-stage", distributed, *sharded)


def _recompute(args: JobBuilder) -> None:
    """Read which parts the backward pass recomputes: none, modules of every layer, or whole layers.

    The flags were renamed twice: `--checkpoint-activations` and `--activations-checkpoint-method` (2021),
    `--checkpoint-granularity` (early 2022), `--recompute-granularity` (since then). "block" recomputes
    only the first layers of a chunk, and "uniform" keeps the input of every n-th layer; the default of n
    is 1, as in the Megatron-LM releases with a default.

    References
    ----------
    arXiv:2205.05198, section 5: the operators that selective recompute runs again; `--recompute-modules`:
    TransformerConfig.
    """
    granularity = args.first("--recompute-granularity", "--checkpoint-granularity")
    whole = ("--checkpoint-activations", "--activations-checkpoint-method")
    mode = "selective" if args.has("--recompute-activations") else "full" if args.has(*whole) else "none"
    mode = args.choice(granularity, mode)
    if mode == "none":
        return
    args.put(("plan", "recompute"), mode, granularity, "--recompute-activations", *whole)
    saved = ("--distribute-saved-activations", "--distribute-checkpointed-activations")
    if mode == "full" and args.has(*saved, "--partition-activations"):
        args.put(("plan", "partition_activations"), True, *saved, "--partition-activations")
    method, number = args.first(*OLD_METHODS), args.first(*OLD_COUNTS)
    chosen, layers = args.choice(method, "uniform"), args.count(number)
    if mode == "full" and args.has(granularity) and not args.has(method):
        because = "Megatron-LM does not start with full recompute if no method is given"
        rest = f" {number} 1" * (not args.has(number))
        args.fault(method, None, ", ".join(WORDS[method]), because, f"add {method} uniform{rest}", MISSING)
    if mode == "full" and (chosen, layers) != ("uniform", 1):
        args.put(("plan", "recompute_method"), chosen, method)
        args.put(("plan", "recompute_layers"), layers, number)
    if mode == "selective":
        _modules(args)


def _modules(args: JobBuilder) -> None:
    """Read the modules of selective recompute, if the flags name others than the core of attention."""
    known, named = WORDS[MODULES_FLAG], [word.text for word in args.words(MODULES_FLAG)]
    for name in (name for name in named if name not in known):
        because = "flopcast supports selective recompute only for these modules of a layer"
        args.fault(MODULES_FLAG, name, ", ".join(known), because, f"remove {name}")
    modules = [known[name] for name in named if name in known]
    if modules and modules != ["core_attention"]:
        args.put(("plan", "recompute_modules"), modules, MODULES_FLAG)
