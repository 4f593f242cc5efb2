"""A plan and a stack as flags of Megatron-LM.

Answers: which flags give these degrees, batches, modes, fusions and overlaps?
Elsewhere: the meaning of the flags (interop/megatron: plan.py, stages.py, offload.py, precision.py,
optimizer.py, stack.py, whose tables are inverted here), the check that they express the whole plan
(same_job.py).

A reader infers the release from the flags of a script, so the names are those of the release: Megatron-LM
of 2021 "checkpoints" activations, and later releases "recompute" them.
"""

from flopcast.errors import SpecError
from flopcast.files.exported import not_expressible
from flopcast.interop.exports.megatron_model import Flags, word_of
from flopcast.interop.megatron import offload
from flopcast.interop.megatron.flags import SWITCHED_OFF_BY, SWITCHED_ON_BY, WORDS
from flopcast.interop.megatron.optimizer import PRECISION_AWARE
from flopcast.interop.megatron.plan import EXCHANGE, MODULES_FLAG, STRATEGY
from flopcast.interop.megatron.precision import ATTENTION, ENDS, KEPT, OUTPUT, UNCACHED, WIDE_ENDS, WIDE_MTP
from flopcast.interop.megatron.stack import LOSS, LOSS_KERNEL, NEWEST
from flopcast.interop.megatron.stages import LAYOUT, NUMBER, PIPELINE
from flopcast.library import catalog
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.job import Job
from flopcast.spec.offload import fraction_in
from flopcast.spec.plan import Plan
from flopcast.spec.precision import RECIPES, SIXTEEN_BITS
from flopcast.spec.stack import Stack

TARGET = "Megatron-LM's flags"
UNDER_DEEPSPEED = ("gpt-neox-deepspeed", "megatron-deepspeed", "deepspeed-zero")
OLD = {"megatron-2021": "--DDP-impl local", "megatron-2022": "--use-legacy-models"}  # flags that date
Words = tuple[str, Flags, str]  # of recompute: its prefix, the flags of blocks, what cuts checkpoints
OLD_WORDS: dict[str, Words] = {
    "megatron-2021": ("--activations-checkpoint", [], "--distribute-checkpointed-activations")
}
NEW_WORDS: Words = ("--recompute", ["--recompute-granularity full"], "--distribute-saved-activations")
FAMILY = ("megatron-core", "megatron-core-2025", "megatron-core-2026", *OLD, *UNDER_DEEPSPEED)


def base_of(stack: Stack) -> str:
    """Return the entry that the reader infers from these flags: the era and engine of the software."""
    if stack.name in UNDER_DEEPSPEED:
        return UNDER_DEEPSPEED[0]
    return stack.name if stack.name in OLD else NEWEST


def plan_flags(job: Job, target: str = TARGET) -> Flags:
    """Return the flags of degrees, batch, stages, sharding, recompute, precision and optimizer.

    Degrees of 1 are written too, because defaults differ between releases. Settings of a plan without
    flags are found when the script is read again (same_job.py). `target` is the format in errors.
    """
    plan, base = job.plan, base_of(job.stack)
    return [
        f"--tensor-model-parallel-size {plan.tensor_parallel}",
        f"{PIPELINE} {plan.pipeline_parallel}",
        *_stages(job, base, target),
        *_context(plan),
        *_expert_degrees(job),
        *(["--sequence-parallel"] if plan.sequence_parallel and plan.tensor_parallel > 1 else []),
        *(["--use-tp-pp-dp-mapping"] if _stages_before_replicas(plan) else []),
        f"--micro-batch-size {plan.micro_batch}",
        f"--global-batch-size {plan.global_batch}",
        *_sharding(job, base),
        *_recompute(job, base),
        *_placements(job, base),
        *_precision(plan),
        *_optimizer(plan),
    ]


def _context(plan: Plan) -> Flags:
    """Return the flags of ranks that share a sequence, and of their exchange of keys and values."""
    if plan.context_parallel == 1:
        return []
    exchange = word_of(WORDS[EXCHANGE], plan.context_exchange)
    return [f"--context-parallel-size {plan.context_parallel}", f"{EXCHANGE} {exchange}"]


def _expert_degrees(job: Job) -> Flags:
    if not job.model.has_experts:
        return []
    plan = job.plan
    cut = f"--expert-tensor-parallel-size {plan.expert_tensor_parallel}"
    return [f"--expert-model-parallel-size {plan.expert_parallel}", cut]


def _stages_before_replicas(plan: Plan) -> bool:
    """Return whether ranks are ordered by stages before replicas, and this makes a difference."""
    order = plan.rank_order.split("-")
    both = plan.pipeline_parallel > 1 and plan.data_parallel * plan.context_parallel > 1
    return both and order.index("pp") < order.index("dp")


def _stages(job: Job, base: str, target: str) -> Flags:
    """Return the flags of chunks per stage; a layout if chunks are listed and differ.

    Raises
    ------
    SpecError
        The plan has unequal chunks but does not list them, and the program is not DeepSpeed, which can
        divide the blocks by itself.
    """
    plan, blocks = job.plan, job.model.num_blocks
    if len(set(plan.stage_layers)) > 1:
        text = "|".join(f"t*{count}" if count > 1 else "t" * count for count in plan.stage_layers)
        return [f'{LAYOUT} "E{text}{"m" * job.model.mtp}L"']
    number = plan.pipeline_parallel * plan.virtual_stages
    if blocks % number and not plan.stage_layers and base not in UNDER_DEEPSPEED:
        fix = f"add plan.stage_layers={','.join(map(str, divided_over_chunks(blocks, number)))}"
        equal = f"equal stages, but {blocks} blocks cannot be divided evenly over {number} chunks"
        raise SpecError([not_expressible("plan.stage_layers", "unequal", equal, target, fix)])
    return [f"{NUMBER} {plan.virtual_stages}"] if plan.virtual_stages > 1 else []


def _sharding(job: Job, base: str) -> Flags:
    """Return the flags of data-parallel sharding, by DeepSpeed, distributed optimizer or Megatron-FSDP.

    At ZeRO stage 0, DeepSpeed still shards the optimizer states of bf16 weights with fp32 gradients.
    """
    plan = job.plan
    if base in UNDER_DEEPSPEED:
        own = plan.zero == 1 and plan.precision != "fp16" and job.stack.gradients.dtype == "fp32"
        return ["--deepspeed", f"--zero-stage {0 if own else plan.zero}"]
    distributed = ["--use-distributed-optimizer"] if plan.zero else []
    if plan.zero < 2:
        return distributed
    strategy = word_of(WORDS[STRATEGY], str(plan.zero))
    fsdp = ["--use-megatron-fsdp", f"{STRATEGY} {strategy}"]
    return [*distributed, *fsdp, "--ckpt-format fsdp_dtensor"]


def _recompute(job: Job, base: str) -> Flags:
    """Return the flags of recomputed blocks, or of recomputed modules, in the terms of the release."""
    plan = job.plan
    if plan.recompute == "none":
        return []
    if plan.recompute == "selective":
        modules = plan.recompute_modules or job.stack.selective_groups
        known = WORDS[MODULES_FLAG]
        words = [word_of(known, name) for name in modules if name in known.values()]
        named = [f"{MODULES_FLAG} {' '.join(words)}"] if tuple(modules) != ("core_attention",) else []
        return ["--recompute-granularity selective", *named]
    prefix, blocks, cut = OLD_WORDS.get(base, NEW_WORDS)
    method = plan.recompute_method if plan.recompute_method in WORDS["--recompute-method"] else "uniform"
    return [
        *blocks,
        f"{prefix}-method {method}",
        f"{prefix}-num-layers {plan.recompute_layers}",
        *([cut] if plan.partition_activations else []),
    ]


def _placements(job: Job, base: str) -> Flags:
    """Return the flags of states on the host; a later check finds placements that no flag expresses."""
    plan, flags = job.plan, []
    host = {one.kind: one.fraction for one in plan.offload if one.tier == "host"}
    optimizer, kept = host.get("optimizer", 0.0), host.get("activations", 0.0)
    layers = round(kept * job.model.num_blocks)
    if base in UNDER_DEEPSPEED:
        flags += [offload.OLD_OPTIMIZER] if optimizer == 1 else []
        return [*flags, *([offload.CHECKPOINTS] if kept == 1 and plan.recompute == "full" else [])]
    if base != NEWEST:
        return []
    if optimizer:
        flags += [offload.OPTIMIZER, f"{offload.FRACTION} {optimizer:g}"]
        flags += [offload.UNPINNED] if job.stack.offload.gradient_copies == "pageable" else []
        flags += [offload.OVERLAP] if job.stack.offload.gradient_flush == "beside_update" else []
    if 0 < layers < job.model.num_blocks and plan.recompute == "none" and plan.pipeline_parallel == 1:
        flags.append(f"{offload.LAYERS} {layers}")
    return flags


def _precision(plan: Plan) -> Flags:
    if plan.precision in SIXTEEN_BITS:
        return [f"--{plan.precision}"]
    if plan.precision not in RECIPES:
        return ["--bf16"]  # no flag names fp32, so that the comparison with the job fails
    is_fp4 = plan.precision in WORDS["--fp4-recipe"].values()
    kind, variant = ("fp4", "e2m1") if is_fp4 else ("fp8", "hybrid")
    recipe = word_of(WORDS[f"--{kind}-recipe"], plan.precision)
    return ["--bf16", f"--{kind}-format {variant}", f"--{kind}-recipe {recipe}"]


def _optimizer(plan: Plan) -> Flags:
    if not plan.optimizer.startswith("sgd"):
        return []
    return ["--optimizer sgd", f"--sgd-momentum {0.9 if plan.optimizer == 'sgd_momentum' else 0.0}"]


def stack_flags(job: Job) -> Flags:
    """Return the flags of fusions, overlaps, and types of gradients and states that differ from the
    defaults.

    The defaults are those of the release that the stack's base describes, so that a script for an older
    release has the older flags.
    """
    stack, base = job.stack, catalog.stack(base_of(job.stack))
    core = base.name == NEWEST
    overlaps = stack.tensor_overlap == "chunks" and job.plan.tensor_parallel > 1
    return [
        *(["--transformer-impl transformer_engine"] if core else []),
        *([OLD[base.name]] if base.name in OLD else []),
        *_kernels(stack, base),
        *_gradients(job, base),
        *_transfers(job, base),
        *(["--tp-comm-overlap"] if overlaps else []),
        *([LOSS, f"{LOSS_KERNEL} te"] if stack.fused_loss != "none" and core else []),
        *(["--synchronize-each-layer"] if stack.synchronise_each_layer else []),
        *_states(job),
        *_narrow(job),
    ]


def _kernels(stack: Stack, base: Stack) -> Flags:
    """Return the flags of the attention kernel, and of fusions that are switched off."""
    lost, added = set(base.rewrites) - {*stack.rewrites}, set(stack.rewrites) - {*base.rewrites}
    off = [flag for name, flag in SWITCHED_OFF_BY.items() if name in lost]
    on = [flag for name, flag in SWITCHED_ON_BY.items() if name in added]
    written = base.fuses_attention and not stack.fuses_attention
    flash = stack.fuses_attention and not base.fuses_attention
    return [
        *(["--attention-backend unfused"] if written else []),
        *(["--use-flash-attn"] if flash else []),
        *off,
        *on,
    ]


def _gradients(job: Job, base: Stack) -> Flags:
    """Return the flags of the type, time and buckets of gradient reductions."""
    own, plan = job.stack.gradients, job.plan
    half = plan.precision == "fp16"
    fused = base.gradients.accumulate_passes == 0 and not (half and base.name != NEWEST)
    sharded = own.overlap_gather and plan.zero in (1, 2)
    bucket = own.smallest_bucket(plan.data_parallel)
    usual = base.gradients.smallest_bucket(plan.data_parallel)
    lasting = base.gradients.overflow_checks and not half and base.name == NEWEST
    wide = {"bf16": "--grad-reduce-in-bf16", "fp32": "--accumulate-allreduce-grads-in-fp32"}
    has_flag = base.name not in UNDER_DEEPSPEED and own.dtype in wide
    return [
        *([wide[own.dtype]] if has_flag and own.dtype != ("fp32" if not half else "fp16") else []),
        *(["--no-gradient-accumulation-fusion"] if own.accumulate_passes and fused else []),
        *(["--overlap-grad-reduce"] if own.overlaps(plan.zero) else []),
        *(["--overlap-param-gather"] if sharded else []),
        *([f"--ddp-bucket-size {bucket}"] if bucket != usual else []),
        *(["--ddp-average-in-collective"] if base.gradients.copies and not own.copies else []),
        *(["--no-check-for-nan-in-loss-and-grad"] if lasting and not own.overflow_checks else []),
    ]


def _transfers(job: Job, base: Stack) -> Flags:
    own, chunks = job.stack.pipeline, job.plan.virtual_stages > 1
    waits = base.name == NEWEST and chunks and own.transfers == "batched"
    whole = own.payload == "full" and base.pipeline.payload == "scattered"
    return [
        *(["--no-overlap-p2p-communication"] if waits else []),
        *(["--no-scatter-gather-tensors-in-pipeline"] if whole else []),
    ]


def _states(job: Job) -> Flags:
    """Return the flags of the types of optimizer states, for the precision-aware optimizer."""
    own = job.stack.optimizer
    moments = {"--exp-avg-dtype": own.exp_avg_dtype, "--exp-avg-sq-dtype": own.exp_avg_sq_dtype}
    narrow = own.main_parameter_bytes != 4 or set(moments.values()) != {"fp32"}
    if fraction_in(job.plan.offload, "optimizer") and base_of(job.stack) == NEWEST:
        return [PRECISION_AWARE, *([] if own.fp32_gradients else ["--main-grads-dtype bf16"])]
    if not narrow:
        return []
    main = ["--main-params-dtype fp16"] if job.plan.precision == "fp16" else []
    gradients = [] if own.fp32_gradients else ["--main-grads-dtype bf16"]
    named = [f"{flag} {dtype}" for flag, dtype in moments.items() if dtype != "fp32"]
    return [PRECISION_AWARE, *main, *gradients, *named]


def _narrow(job: Job) -> Flags:
    own = job.stack.narrow
    if (recipe := RECIPES.get(job.plan.precision)) is None:
        return []
    ends = own.wide_first_blocks or own.wide_last_blocks
    return [
        *([KEPT] if own.narrow_parameters else []),
        *([] if own.weight_caching else [UNCACHED]),
        *([ATTENTION] if own.attention else []),
        *([OUTPUT] if own.output_layer and recipe.for_output_layer else []),
        *([WIDE_MTP] if own.wide_mtp and job.model.mtp else []),
        *([WIDE_ENDS, *(f"{flag} {getattr(own, name)}" for name, flag in ENDS.items())] if ends else []),
    ]
