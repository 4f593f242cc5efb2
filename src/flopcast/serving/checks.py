"""Rules of serving jobs: which jobs cannot be predicted, why, and which edits fix them.

Answers: are a model, a cluster, an engine, a deployment and a traffic compatible?
Elsewhere: whether each of them is valid (spec/).
"""

from collections.abc import Callable, Iterator

from flopcast.errors import Problem
from flopcast.fixes import set_to, write
from flopcast.layers.attention import Attention
from flopcast.layers.block import MIXERS_BY_FIELD, Block
from flopcast.layers.experts import Experts
from flopcast.layers.gated_delta_net import GatedDeltaNet
from flopcast.layers.latent_attention import LatentAttention
from flopcast.layers.mixer import AbstractRecurrentMixer
from flopcast.layers.mlp import Mlp
from flopcast.layers.traced import NoFeedForward
from flopcast.operators.formats import engines_of
from flopcast.records import replace
from flopcast.serving.checks_parts import of_parts
from flopcast.serving.checks_requests import of_held_context, of_images, of_lengths, of_requests, of_tower
from flopcast.serving.checks_tiers import of_overfilled, of_peers, of_streaming
from flopcast.serving.drafts import draft_of
from flopcast.serving.fitting_changes import common_fix, fitting_change, whole_degree
from flopcast.serving.memory import ServingMemory, serving_memory
from flopcast.serving.tier_memory import NAMES
from flopcast.spec.deployment import WITHOUT_POOLS, Pool
from flopcast.spec.serving_job import ServingJob
from flopcast.units import show_memory

DEGREES = ("data_parallel", "tensor_parallel", "pipeline_parallel")
NO_KERNELS = "flopcast has no kernel times of this layer, so serving it is not supported yet"


def serving_problems(job: ServingJob, longest: int, longest_prompt: int = 0) -> list[Problem]:
    """Return every rule that a job breaks; empty if it can be predicted.

    Parameters
    ----------
    longest : tokens of the longest request, prompt and output together
    longest_prompt : tokens of the longest prompt; 0 if it is not known
    """
    broken = broken_rules(job)
    of_memory = () if broken else _of_kinds(job, lambda kind: _of_memory(kind, longest))
    return [*broken, *of_memory, *of_lengths(job, longest, longest_prompt)]


def broken_rules(job: ServingJob) -> list[Problem]:
    """Return every broken rule except that about memory; a fix satisfies all rules about its field."""
    problems = _broken(job)
    for field in {each.field for each in problems if each.field.count(".") == 1}:
        same = [each for each in problems if each.field == field]
        if len(same) > 1 and (fix := common_fix(job, same, _broken)):
            problems = [replace(each, fix=fix) if each in same else each for each in problems]
    return problems


def _broken(job: ServingJob) -> list[Problem]:
    of_job = (_of_model, _of_devices, of_requests, _of_formats, of_parts, of_peers, of_streaming)
    problems = [problem for rule in of_job for problem in rule(job)]
    return [*problems, *_of_kinds(job, _of_plan)]


def _of_kinds(job: ServingJob, rule: Callable[[ServingJob], Iterator[Problem]]) -> Iterator[Problem]:
    """Yield errors of each kind of instance. Names of fields begin with the name of their pool."""
    names = ("prefill", "decode") if job.plan.pools else ("",)
    for name, kind in zip(names, job.kinds, strict=True):
        for problem in rule(kind):
            yield _in_pool(problem, name) if name else problem


def _in_pool(problem: Problem, pool: str) -> Problem:
    """Return a problem whose fields are those of a pool."""

    def named(text: str) -> str:
        for field in Pool.model_fields:
            text = text.replace(f"plan.{field}", f"plan.{pool}.{field}")
        return text

    return replace(problem, field=named(problem.field), fix=named(problem.fix))


def _of_model(job: ServingJob) -> Iterator[Problem]:
    """Yield layers that serving does not know yet."""
    for place, block in enumerate(job.model.blocks):
        for field, layer, known in _unknown_layers(block):
            allowed, fix = f"one of {', '.join(known)}", "choose a model whose layers are all supported"
            yield Problem(f"model.blocks.{place}.{field}", layer, allowed, NO_KERNELS, fix)
    for field, usual in (("reference", "none"), ("teacher", None), ("head", "tokens")):
        if getattr(job.model, field) != usual:
            because = "serving supports no reference model, teacher or score head"
            fix = f"remove model.{field}"
            yield Problem(f"model.{field}", "given", "no value", because, fix, fault="is given")
    if job.model.has_encoder:
        because, fix = "serving of encoder-decoder models is not supported yet", "choose a decoder"
        yield Problem("model.blocks", "an encoder", "a decoder-only model", because, fix)
    if job.model.adapters is not None:
        because, fix = "serving a model with adapters is not supported yet", "remove model.adapters"
        yield Problem("model.adapters", "given", "no value", because, fix, fault="is given")
    yield from of_images(job)


def _unknown_layers(block: Block) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    if not isinstance(block.mixer, (Attention, LatentAttention, AbstractRecurrentMixer)):
        yield "mixer", block.mixer.kind, ("attention", *MIXERS_BY_FIELD.values())
    elif isinstance(block.mixer, GatedDeltaNet) and block.mixer.rule == "gated":
        yield "mixer.rule", "gated", ("delta", "channel", "additive")
    alone = isinstance(block.feed_forward, NoFeedForward) and not block.mixer.is_whole_block
    if not alone and not isinstance(block.feed_forward, (Mlp, Experts)):
        yield "feed_forward", block.feed_forward.kind, ("mlp", "experts")


def _of_devices(job: ServingJob) -> Iterator[Problem]:
    """Yield errors in the number of instances."""
    plan, devices, node = job.plan, job.cluster.num_devices, job.cluster.node.devices
    if plan.pools and not job.engine.separate_pools:
        because = f"with {job.engine.name}, {WITHOUT_POOLS}"
        fix = "remove plan.prefill and plan.decode"
        yield Problem("plan.prefill", "given", "no value", because, fix, fault="is given")
    if plan.pools and plan.devices > devices:
        shares = " + ".join(f"{max(pool.replicas, 1)} x {pool.devices}" for pool in plan.pools)
        because = f"the prefill and decode pools need {shares} devices"
        fix = "reduce plan.prefill.replicas or plan.decode.replicas, or choose a larger cluster"
        allowed, stated = f"at most {devices} devices in total", max(plan.pools[-1].replicas, 1)
        yield Problem("plan.decode.replicas", stated, allowed, because, fix)
    elif job.replicas * plan.devices > devices and plan.pipeline_parallel <= job.model.num_blocks:
        most, needed = devices // plan.devices, job.replicas * plan.devices
        field, value, allowed = "replicas", job.replicas, f"at most {most} on {devices} devices"
        because = f"{job.replicas} replicas of {plan.devices} devices need {needed} devices"
        whole = -(-needed // node) * node if needed > node else needed
        fix = set_to({"plan.replicas": most}, f"use --gpus {whole}")
        if not most:
            field = next((name for name in DEGREES if getattr(plan, name, 1) > 1), DEGREES[0])
            allowed = f"degrees with a product of at most {devices} (the number of devices of the cluster)"
            because, value = f"a replica needs {plan.devices} devices", getattr(plan, field)
            fix = f"use --gpus {whole}, or choose smaller degrees"
        yield Problem(f"plan.{field}", value, allowed, because, fix)


def _of_plan(job: ServingJob) -> Iterator[Problem]:
    plan = job.plan
    yield from of_tower(job)
    ranks, blocks = plan.tensor_parallel, job.model.num_blocks
    if plan.pipeline_parallel > blocks:
        because, room = "each pipeline stage needs at least one block", job.cluster.num_devices
        most = min(blocks, room * plan.pipeline_parallel // plan.devices) or 1
        fix, allowed = set_to({"plan.pipeline_parallel": most}), f"at most {blocks} (the number of blocks)"
        yield Problem("plan.pipeline_parallel", plan.pipeline_parallel, allowed, because, fix)
    if plan.drafting is not None and plan.pipeline_parallel > 1:
        because = "speculative decoding with pipeline stages is not supported yet"
        allowed, fix = "1, because plan.draft is given", set_to({"plan.pipeline_parallel": 1})
        yield Problem("plan.pipeline_parallel", plan.pipeline_parallel, allowed, because, fix)
    yield from _of_draft(job)
    heads = [block.mixer.heads for block in job.model.blocks]
    if any(count % ranks for count in heads):
        allowed = f"a divisor of the {min(heads)} heads"
        because = "each tensor-parallel rank holds whole attention heads"
        whole = whole_degree(job, heads, _has_room)
        fix = set_to({"plan.tensor_parallel": whole})
        yield Problem("plan.tensor_parallel", ranks, allowed, because, fix)
    yield from _of_latents(job)
    yield from _of_residual(job)
    if plan.expert_messages == "hidden" and plan.data_parallel == 1:
        because = (
            "without data-parallel groups, no tokens are sent to experts on other ranks, so no "
            "messages can be hidden"
        )
        fix = set_to({"plan.expert_messages": "exposed"})
        yield Problem(
            "plan.expert_messages", "hidden", "exposed, unless plan.data_parallel is above 1", because, fix
        )
    yield from _of_experts(job)


def _of_latents(job: ServingJob) -> Iterator[Problem]:
    """Yield what keeps tensor-parallel ranks from splitting the latents of a model."""
    plan = job.plan
    if plan.latents == "replicated":
        return
    mixers = [block.mixer for block in job.model.blocks]
    latents = [mixer for mixer in mixers if isinstance(mixer, LatentAttention)]
    because = ""
    if not latents:
        because = f"{job.model.name} has no latent attention"
    elif plan.tensor_parallel == 1:
        because = "an instance with a single rank holds whole latents"
    elif any(mixer.latent_groups > 1 for mixer in latents):
        because = (
            "each group of heads already has its own latent, and these groups are divided over the ranks"
        )
    elif any(mixer.kv_lora_rank % plan.tensor_parallel for mixer in latents):
        because = f"{plan.tensor_parallel} does not divide the {latents[0].kv_lora_rank} latent elements"
    if because:
        yield Problem(
            "plan.latents", plan.latents, "replicated", because, set_to({"plan.latents": "replicated"})
        )


def _of_residual(job: ServingJob) -> Iterator[Problem]:
    """Yield what keeps messages from running beside the next half of a block."""
    plan, blocks, because = job.plan, job.model.blocks, ""
    if plan.residual == "sequential":
        return
    if plan.tensor_parallel == 1:
        because = "a single rank has no communication that could overlap with kernels"
    elif any(block.residual != "sequential" for block in blocks):
        because = (
            f"in blocks of {job.model.name}, attention and MLP have the same input and share one all-reduce"
        )
    elif job.engine.overlap is not None:
        because = f"{job.engine.name} already overlaps communication with GEMMs"
    if because:
        fix = set_to({"plan.residual": "sequential"})
        yield Problem("plan.residual", plan.residual, "sequential", because, fix)


def _of_draft(job: ServingJob) -> Iterator[Problem]:
    draft, ranks, drafting = draft_of(job), job.plan.tensor_parallel, job.plan.drafting
    if drafting is not None and drafting.drafter == "mtp" and not job.model.mtp:
        because = f"{job.model.name} was published without multi-token prediction modules"
        allowed, fix = "eagle, ngram or a smaller model", write("eagle", "draft")
        yield Problem("plan.draft", drafting.drafter, allowed, because, fix)
    if draft is None:
        return
    for _, layer, known in (each for block in draft.model.blocks for each in _unknown_layers(block)):
        yield Problem("plan.draft", layer, ", ".join(known), NO_KERNELS, "choose another draft")
    heads = [block.mixer.heads for block in draft.model.blocks]
    if not draft.inputs and any(count % ranks for count in heads):
        allowed = f"a model whose number of heads (here {min(heads)}) is a multiple of plan.tensor_parallel"
        because = "the draft model has the same tensor-parallel degree, and each rank holds whole heads"
        yield Problem("plan.draft", draft.model.name, allowed, because, "choose another draft")
    if drafting is not None and drafting.layers_at_once > ranks:
        because = f"each of these draft layers needs its own rank, and an instance has {ranks} ranks"
        allowed, fix = f"at most {ranks}", write(ranks, "draft_layers")
        yield Problem("plan.draft_layers", drafting.layers_at_once, allowed, because, fix)
    sizes = draft.model.vocabulary, job.model.vocabulary
    if not draft.inputs and sizes[0] < 0.9 * sizes[1]:
        because = (
            f"the vocabulary of the draft model has {sizes[0]} tokens, but that of the served model "
            f"{sizes[1]}"
        )
        allowed, change = "a draft model with the same vocabulary", "choose a smaller model of the family"
        yield Problem("plan.draft", draft.model.name, allowed, because, change)


def _of_experts(job: ServingJob) -> Iterator[Problem]:
    degree, copies = job.plan.expert_parallel, job.plan.redundant_experts
    if degree == 1:
        return
    layers = [block.feed_forward for block in job.model.blocks if isinstance(block.feed_forward, Experts)]
    fix = set_to({"plan.expert_parallel": 1})
    if not layers:
        yield Problem("plan.expert_parallel", degree, "1", "the model has no experts", fix)
    ranks = job.plan.stage_devices
    if ranks % degree:
        allowed = f"a divisor of the {ranks} ranks of a pipeline stage"
        because = "the experts of a layer are distributed over the ranks of one pipeline stage"
        yield Problem("plan.expert_parallel", degree, allowed, because, fix)
    uneven = [layer.num_experts for layer in layers if (layer.num_experts + copies) % degree]
    if uneven:
        allowed = f"a divisor of the {uneven[0] + copies} experts of a layer"
        fix = set_to({"plan.redundant_experts": -uneven[0] % degree}, {"plan.expert_parallel": 1})
        yield Problem("plan.expert_parallel", degree, allowed, "each rank holds whole experts", fix)


def _of_formats(job: ServingJob) -> Iterator[Problem]:
    engine, plan, device = job.engine, job.plan, job.cluster.node.device
    for field, value, known in (
        ("weights", plan.weights, engine.weights),
        ("expert_weights", plan.format_of_experts, engine.weights),
        ("cache", plan.cache, engine.caches),
    ):
        if value not in known and not (field == "expert_weights" and plan.expert_weights is None):
            because = f"{engine.name} does not support other formats"
            yield Problem(
                f"plan.{field}",
                value,
                f"one of {', '.join(known)}",
                because,
                set_to({f"plan.{field}": known[0]}),
            )
    for field, kept in (("weights", plan.weights), ("expert_weights", plan.expert_weights or "bf16")):
        for unit in [each for each in engines_of(kept) if each not in device.peak_flop_per_s][:1]:
            because = f"{device.name} has no {unit} tensor cores"
            allowed = "bf16, int4 or mxfp4, because their GEMMs run in 16 bits"
            yield Problem(f"plan.{field}", kept, allowed, because, set_to({f"plan.{field}": "bf16"}))


def _of_memory(job: ServingJob, longest: int) -> Iterator[Problem]:
    memory = serving_memory(job)
    tokens = memory.cache_tokens // job.passes_in_flight
    if memory.overfilled is not None:
        yield from of_overfilled(job)
    elif memory.cache_bytes <= 0:
        taken = memory.usable_bytes - memory.cache_bytes
        because = (
            f"weights ({show_memory(memory.weight_bytes)}), activations and the runtime need "
            f"{show_memory(taken)}, but the engine uses only {show_memory(memory.usable_bytes)} per device"
        )
        fix, allowed = _fix_of_memory(job, longest), "a deployment whose weights fit into device memory"
        fault = f"= {job.plan.tensor_parallel} leaves too little memory for the weights"
        yield Problem("plan.tensor_parallel", job.plan.tensor_parallel, allowed, because, fix, fault=fault)
    elif tokens < longest:
        share = ""
        if tokens < memory.cache_tokens:
            share = f", and {job.passes_in_flight} passes run at the same time with {tokens:,} tokens each"
        because = (
            f"the KV cache of one instance holds {memory.cache_tokens:,} tokens,"
            f" {_each_token(memory)}{share}"
        )
        fix = _fix_of_memory(job, longest)
        yield Problem("traffic", longest, f"requests of at most {tokens} tokens", because, fix)
    else:
        yield from of_held_context(job, tokens)


def _each_token(memory: ServingMemory) -> str:
    """Return the bytes of a token in the memory that limits the cache."""
    full = next((tier for tier in memory.tiers if tier.cache_tokens == memory.cache_tokens), None)
    if full is None or memory.device_tokens == memory.cache_tokens:
        return f"{show_memory(memory.token_bytes)} each on a device"
    return f"{show_memory(full.token_bytes)} each in the {NAMES[full.name]} of a node"


def _has_room(job: ServingJob) -> bool:
    """Return whether the weights fit on the devices of the cluster."""
    return job.plan.devices <= job.cluster.num_devices and serving_memory(job).cache_bytes > 0


def _fix_of_memory(job: ServingJob, longest: int) -> str:
    """Return an edit with which the weights and the longest request fit."""

    def has_room(changed: ServingJob) -> bool:
        memory = serving_memory(changed)
        room = memory.cache_bytes > 0 and memory.overfilled is None
        return room and memory.cache_tokens // changed.passes_in_flight >= longest

    def fits(changed: ServingJob) -> bool:
        broken = (*_of_devices(changed), *_of_plan(changed), *_of_formats(changed), *of_streaming(changed))
        return not broken and has_room(changed)

    return fitting_change(job, fits, has_room)
