"""The memory of one device that serves: weights, activations of the largest pass, and the KV cache.

Answers: how many tokens fit into the cache of an engine, and what fills the rest of the memory?
Elsewhere: how sequences take blocks of the cache (kv_blocks.py).
"""

from collections.abc import Sequence

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Floats, Integers, constant
from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.latent_attention import LatentAttention
from flopcast.layers.mixer import AbstractRecurrentMixer
from flopcast.operators.formats import CACHED_FORMATS, SERVED_FORMATS, WIDEST
from flopcast.operators.gated_delta import STATE_BYTES
from flopcast.records import Record
from flopcast.serving.adapters import adapter_bytes
from flopcast.serving.drafts import draft_of, job_of_draft, joined_inputs, layers_side_by_side
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.latents import cached_latents_of
from flopcast.serving.lower import ServedLayer, lower_passes
from flopcast.serving.stages import layers_of_stages
from flopcast.serving.tier_memory import UNLIMITED, TierMemory, tier_memories
from flopcast.serving.windows import STATE_SHARE, share_of_windows, tokens_in_window, window_of
from flopcast.spec.deployment import Deployment, served_format
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.streaming import fractions_of
from flopcast.units import Number

WIDE_WEIGHTS = ("final_norm.", "experts.router", "norm")  # stay in 16 bits
TABLES = ("embedding.", "head.")  # stay in 16 bits in most engines


class ServingMemory(Record):
    """Bytes on one device, and the number of tokens that the rest of its memory caches.

    With several pipeline stages it is a device of the stage whose cache holds the fewest tokens.
    """

    capacity_bytes: float
    usable_bytes: float  # of the engine
    weight_bytes: float
    activation_bytes: float  # of the largest pass
    reserved_bytes: float
    adapter_bytes: float  # of all slots
    window_bytes: float  # what a sequence caches in layers with a window
    token_bytes: float  # what one more token of a sequence caches, in layers without a window
    state_bytes: float = 0.0  # what a sequence keeps in layers of linear attention, whatever its length
    sequences: int = 1  # that the engine would run at once, if states and windows did not limit them
    sequence_share: float = STATE_SHARE  # of the room, for states and windows of sequences at most
    stage: int = 0
    tiers: tuple[TierMemory, ...] = ()  # the host's memory and drives, if anything is kept there

    def parts(self) -> dict[str, float]:
        """Return the bytes in the device memory by name, whose sum is the capacity."""
        states = {"states of linear attention": self.all_states_bytes} if self.state_bytes else {}
        adapters = {"slots of adapters": self.adapter_bytes} if self.adapter_bytes else {}
        return {
            "weights": self.weight_bytes,
            **adapters,
            "activations of the largest iteration": self.activation_bytes,
            "CUDA graphs, communication, runtime": self.reserved_bytes,
            **states,
            "KV cache": self.cache_bytes - self.all_states_bytes,
            "left free by the engine": self.capacity_bytes - self.usable_bytes,
        }

    @property
    def sequence_bytes(self) -> float:
        """Return the bytes of the states and windows that a sequence keeps, without other tokens."""
        return self.state_bytes + self.window_bytes

    @property
    def most_sequences(self) -> int:
        """Return the largest number of concurrent sequences, which the engine or the memory limits."""
        if not self.sequence_bytes:
            return self.sequences
        room_bytes = max(self.cache_bytes, 0.0) * self.sequence_share
        return min(self.sequences, int(room_bytes / self.sequence_bytes))

    @property
    def all_states_bytes(self) -> float:
        """Return the bytes of the states of all sequences that run at once."""
        return self.state_bytes * self.most_sequences

    @property
    def cache_bytes(self) -> float:
        """Return the bytes of the KV cache and of states; below 0 if the weights do not fit."""
        taken = self.weight_bytes + self.activation_bytes + self.reserved_bytes + self.adapter_bytes
        return self.usable_bytes - taken

    @property
    def cache_tokens(self) -> int:
        """Return the number of tokens of all sequences that fit into the cache."""
        elsewhere = min((tier.cache_tokens for tier in self.tiers), default=UNLIMITED)
        return min(self.device_tokens, elsewhere)

    @property
    def device_tokens(self) -> int:
        """Return the number of tokens for which the device has room, without tokens in other memories."""
        fixed_bytes = self.sequence_bytes * self.most_sequences
        if not self.token_bytes:  # a stage of layers with windows or states alone
            return 0 if self.cache_bytes < fixed_bytes else UNLIMITED
        return max(int((self.cache_bytes - fixed_bytes) / self.token_bytes), 0)

    @property
    def overfilled(self) -> TierMemory | None:
        """Return the first memory outside the device that is too small for the weights."""
        return next((tier for tier in self.tiers if tier.room_bytes < 0), None)

    def whole_requests(self, tokens: int) -> int:
        """Return how many requests with this number of tokens (prompt and output) fit at once."""
        if not self.sequence_bytes:
            return self.cache_tokens // tokens
        return int(max(self.cache_bytes, 0.0) / (tokens * self.token_bytes + self.sequence_bytes))


def serving_memory(job: ServingJob) -> ServingMemory:
    """Return the memory of one device of a job, on the stage that limits its cache.

    Activations are those of the largest pass: the residual stream, its norm and the widest tensors of one
    layer, six widths together, and the logits of all its sequences in fp32.
    """
    model, deployment, engine = job.model, job.plan, job.engine
    tokens, sequences = float(deployment.max_tokens or engine.max_tokens), float(job.most_sequences)
    new = constant(tokens)
    largest = EnginePass(new_tokens=new, sequences=constant(sequences), cached_tokens=new, pairs=new)
    layers = lower_passes(model, deployment, engine, largest)
    counts = layers_of_stages(model, deployment.pipeline_parallel)
    by_layer = [_layer_bytes(layer, job) for layer in layers]
    drafted = _draft_memory(job, largest)
    slots_bytes = job.adapter_slots * adapter_bytes(job)
    capacity_bytes = job.cluster.node.device.memory_bytes
    windows = [window_of(block) for block in model.blocks]
    every = all(windows)  # then a token counts in the window as well
    cached_bytes, state_bytes = _cached_by_block(job), _state_bytes(job)
    first, last = model.first_block, len(counts) - 1
    on_device = _cache_fraction_on_device(job)
    tiers = tier_memories(job, block_bytes(job), token_bytes(job), cache_fraction_away(job))

    def memory(stage: int) -> ServingMemory:
        row = counts[stage].tolist()
        of_blocks = row[first : first + len(cached_bytes)]
        held = zip(of_blocks, cached_bytes, windows, strict=True)
        cached = [(count * each, window) for count, each, window in held]
        states = float(sum(count * each for count, each in zip(of_blocks, state_bytes, strict=True)))
        weight_bytes = drafted.weight_bytes - _away_bytes(job, row, by_layer)
        weight_bytes += sum(count * each for count, each in zip(row, by_layer, strict=True))
        logits = sequences * model.vocabulary * ELEMENT_BYTES["fp32"] if stage == last else 0.0
        work_bytes = _activation_bytes(job, tokens) + logits
        other_bytes = work_bytes + engine.reserved_bytes
        kept_bytes = sum(each * tokens_in_window(job, window) for each, window in cached)
        window_bytes = 0.0 if every else on_device * kept_bytes
        each_bytes = on_device * sum(each for each, window in cached if every or not window)
        each_bytes += drafted.token_bytes
        return ServingMemory(
            capacity_bytes=capacity_bytes,
            usable_bytes=engine.usable_bytes(capacity_bytes, weight_bytes + slots_bytes, other_bytes),
            weight_bytes=weight_bytes,
            activation_bytes=work_bytes,
            reserved_bytes=engine.reserved_bytes,
            adapter_bytes=slots_bytes,
            window_bytes=window_bytes,
            token_bytes=each_bytes,
            state_bytes=states,
            sequences=int(sequences),
            sequence_share=STATE_SHARE if states else share_of_windows(job, window_bytes, each_bytes),
            stage=stage,
            tiers=tiers,
        )

    return min((memory(stage) for stage in range(last + 1)), key=_room)


def _activation_bytes(job: ServingJob, tokens: Number) -> float:
    """Return the bytes of the residual stream, its norm and the widest tensors of one layer on a device.

    An engine that computes a pass in parts has the widest tensors of one part only, and hidden states that
    are kept elsewhere leave room for those of one part.
    """
    streaming, element = job.engine.streaming, job.model.hidden * ELEMENT_BYTES["bf16"]
    part = tokens if streaming is None else min(tokens, streaming.kernel_tokens or tokens)
    kept = 1.0 - sum(fractions_of(job.plan.activations_on).values())
    return (6.0 * part + kept * (tokens - part)) * element


def _cache_fraction_on_device(job: ServingJob) -> float:
    """Return the fraction of keys and values on the device, with the room for those of layers in use.

    An engine that computes a pass in parts needs room for those of one part.
    """
    streaming, away = job.engine.streaming, cache_fraction_away(job)
    if streaming is None or job.host_computes != "nothing":
        return 1.0 - away
    tokens = job.plan.max_tokens or job.engine.max_tokens
    part = min((streaming.kernel_tokens or tokens) / tokens, 1.0)
    return 1.0 - away + away * part * min(streaming.window_layers / job.model.num_blocks, 1.0)


def _away_bytes(job: ServingJob, counts: Sequence[float], by_layer: Sequence[float]) -> float:
    """Return the bytes of blocks on a stage that are kept elsewhere, less the room for those in use."""
    blocks = slice(1, 1 + len(job.model.blocks))
    held = sum(count * each for count, each in zip(counts[blocks], by_layer[blocks], strict=True))
    streaming, share = job.engine.streaming, sum(fractions_of(job.plan.weights_on).values())
    if not share or streaming is None:
        return job.plan.peer_weight_fraction * max(held - max(by_layer[blocks]), 0.0)
    window = streaming.window_layers * max(by_layer[blocks])
    copied = streaming.file_copy_fraction * max(by_layer)
    if streaming.whole_layers:
        return max(share * held - window, 0.0) - copied
    return share * max(held - window, 0.0) - copied


def fetched_bytes(job: ServingJob) -> float:
    """Return the bytes that one device fetches from a peer in each pass of an instance of one stage."""
    return job.plan.peer_weight_fraction * block_bytes(job)


def block_bytes(job: ServingJob) -> float:
    """Return the bytes of the weights of all blocks on one device of an instance of one stage."""
    one = constant(1.0)
    least = EnginePass(new_tokens=one, sequences=one, cached_tokens=one, pairs=one)
    first, layers = job.model.first_block, lower_passes(job.model, job.plan, job.engine, least)
    layers = layers[first : first + len(job.model.blocks)]
    return sum(layer.count * _layer_bytes(layer, job) for layer in layers)


def token_bytes(job: ServingJob) -> float:
    """Return the bytes that a token caches in all blocks, on one device of an instance of one stage."""
    each = _cached_by_block(job)
    return sum(block.count * size for block, size in zip(job.model.blocks, each, strict=True))


def cache_fraction_away(job: ServingJob) -> float:
    """Return the fraction of keys and values outside the devices, with those of layers on the host."""
    placed = sum(fractions_of(job.plan.kv_on).values())
    layers = sum(fractions_of(job.plan.weights_on).values()) if job.host_computes == "layers" else 0.0
    return max(placed, layers)


class _DraftMemory(Record):
    """Bytes on one device of what drafts tokens, and of each token in its cache."""

    weight_bytes: float = 0.0
    token_bytes: float = 0.0


def _draft_memory(job: ServingJob, largest: EnginePass) -> _DraftMemory:
    draft = draft_of(job)
    if draft is None:
        return _DraftMemory()
    own = job_of_draft(job, draft)
    at_once = job.plan.drafting.layers_at_once if job.plan.drafting else 1
    if at_once > 1:
        alone = own.model_copy(update={"plan": own.plan.model_copy(update={"tensor_parallel": 1})})
        counts = [-(-block.count // at_once) for block in own.model.blocks]
        return _DraftMemory(
            weight_bytes=sum(
                layer.count * _layer_bytes(layer, own)
                for layer in layers_side_by_side(own, largest, at_once)
            ),
            token_bytes=sum(
                count * each for count, each in zip(counts, _cached_by_block(alone), strict=True)
            ),
        )
    layers = lower_passes(own.model, own.plan, own.engine, largest)
    kept = [
        served for served, (layer, _) in zip(layers, own.model.sequence(), strict=True) if draft.owns(layer)
    ]
    kept += joined_inputs(draft, own.plan, largest)
    return _DraftMemory(
        weight_bytes=sum(layer.count * _layer_bytes(layer, own) for layer in kept),
        token_bytes=sum(
            block.count * each for block, each in zip(own.model.blocks, _cached_by_block(own), strict=True)
        ),
    )


def bytes_of_prompts(job: ServingJob, prompt_tokens: Integers) -> Floats:
    """Return the bytes that prompts keep in the cache of one device of each stage, (stages, prompts).

    They include the states of linear attention, whose size does not depend on the length of the prompt.
    """
    counts = layers_of_stages(job.model, job.plan.pipeline_parallel)[:, 1 : 1 + len(job.model.blocks)]
    windows = np.array([window_of(block) or np.inf for block in job.model.blocks])
    kept = np.minimum(np.asarray(prompt_tokens, dtype=np.float64), windows[:, None])
    states = np.array(_state_bytes(job))[:, None]
    kept_bytes: Floats = counts @ (np.array(_cached_by_block(job))[:, None] * kept + states)
    return kept_bytes


def _cached_by_block(job: ServingJob) -> list[float]:
    """Return the bytes that one token caches in one block of each kind, on one device."""
    plan, hidden = job.plan, job.model.hidden
    size = CACHED_FORMATS[served_format(plan.cache)].bytes_of_element("bf16")
    return [size * _cached_elements(b, hidden, plan) + b.mixer.index_bytes for b in job.model.blocks]


def _state_bytes(job: ServingJob) -> list[float]:
    """Return the bytes that a sequence keeps in one block of each kind, on one device, however long it is.

    They are the states in fp32, and the last tokens of the convolution in 16 bits (vLLM and SGLang).
    Drafted tokens have a state each, until they are accepted.
    """
    ranks = job.plan.tensor_parallel

    def of(block: Block) -> float:
        mixer = block.mixer
        if not isinstance(mixer, AbstractRecurrentMixer):
            return 0.0
        last = mixer.channels * mixer.last_tokens * ELEMENT_BYTES["bf16"]
        return (mixer.state_elements * STATE_BYTES * job.computed_tokens + last) / ranks

    return [of(block) for block in job.model.blocks]


def _room(memory: ServingMemory) -> tuple[int, float]:
    return memory.cache_tokens, memory.cache_bytes


def _layer_bytes(layer: ServedLayer, job: ServingJob) -> float:
    """Return the bytes of the weights of one layer; a tied table is stored again on another stage."""
    return sum(
        float((weight.elements * _weight_bytes(weight.name, weight.expert, job)).sum())
        for weight in layer.weights
        if not weight.tied or job.plan.pipeline_parallel > 1
    )


def _weight_bytes(name: str, expert: bool, job: ServingJob) -> float:
    """Return the bytes of one element of a weight, with its share of scales."""
    wide = WIDE_WEIGHTS if job.engine.narrow_tables else (*WIDE_WEIGHTS, *TABLES)
    kept: str = job.plan.format_of_experts if expert else job.plan.weights
    if not expert and (name.startswith(wide) or name.endswith("norm")):
        kept = WIDEST if kept == WIDEST else "bf16"
    return SERVED_FORMATS[served_format(kept)].bytes_of_weight("bf16")


def _cached_elements(block: Block, hidden: int, plan: Deployment) -> float:
    """Return the elements that one token keeps in the cache of one layer, on one rank."""
    mixer, ranks = block.mixer, plan.tensor_parallel
    if isinstance(mixer, Attention):
        return 2.0 * max(mixer.groups / ranks, 1.0) * mixer.size(hidden)
    if isinstance(mixer, LatentAttention):
        return float(cached_latents_of(mixer, plan).elements)
    return 0.0
