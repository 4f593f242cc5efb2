"""Drafting of tokens by a small model that runs before each pass, or without any time.

Answers: which model drafts, how long does drafting take, and which memory does it need?
Elsewhere: how many tokens are drafted and accepted (spec/drafting.py), the pass that verifies them
(lower.py).

A draft model is lowered and priced like any other model. Before a pass, it computes the tokens of the
previous pass and of prompts, which fills its cache, and then drafts one token after the other.
"""

from collections.abc import Callable

from flopcast.dtypes import constant
from flopcast.layers.base import AbstractLayer, Weight
from flopcast.layers.block import Block
from flopcast.layers.embedding import Embedding
from flopcast.layers.experts import Experts
from flopcast.layers.head import Head
from flopcast.layers.mlp import Mlp
from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item, kernel
from flopcast.operators.served_matmul import ServedMatmul
from flopcast.records import Record, replace
from flopcast.serving.decode_times import Amount
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.lower import ServedLayer, lower_passes
from flopcast.serving.pass_times import PassTimes
from flopcast.serving.stages import StagedTimes
from flopcast.spec.deployment import Deployment
from flopcast.spec.drafting import Drafting
from flopcast.spec.model import Model
from flopcast.spec.serving_job import ServingJob
from flopcast.units import Number

ATTENTION = "attention."  # names of items and weights of a mixer, its norm included


class Draft(Record):
    """A model that drafts tokens for another model.

    `inputs` is the number of vectors of the hidden width that it reads from the other model and that a GEMM
    combines. It then also shares the embedding and the head of the other model. `inputs` is 0 for an
    independent model.
    """

    model: Model
    inputs: int = 0

    def owns(self, layer: AbstractLayer) -> bool:
        """Return whether a layer has separate weights."""
        return not (self.inputs and isinstance(layer, (Embedding, Head)))


def _mtp(model: Model, _: Drafting) -> Draft:
    """Return a module of multi-token prediction: a block of the last kind, hidden state and embedding."""
    return Draft(model=_of_block(model, model.blocks[-1]), inputs=2)


def _eagle(model: Model, _: Drafting) -> Draft:
    """Return a head of one dense block, which reads states of three layers (EAGLE-3, arXiv:2503.01840).

    In a model of experts, its feed-forward layer is as wide as all experts that a token uses.
    """
    block = next(
        (each for each in model.blocks if not isinstance(each.feed_forward, Experts)), model.blocks[-1]
    )
    experts = block.feed_forward
    if isinstance(experts, Experts):
        width = experts.top_k * experts.expert_hidden + experts.shared_width
        dense = Mlp(ffn_hidden=width, activation=experts.activation)
        block = block.model_copy(update={"feed_forward": dense})
    return Draft(model=_of_block(model, block), inputs=3)


def _ngram(_: Model, __: Drafting) -> None:
    """Return nothing: a search of the host through the prompt."""


def _own(_: Model, drafting: Drafting) -> Draft | None:
    model = drafting.model
    return None if model is None else Draft(model=model.model_copy(update={"mtp": 0}))


DRAFTS: dict[str, Callable[[Model, Drafting], Draft | None]] = {
    "mtp": _mtp,
    "eagle": _eagle,
    "ngram": _ngram,
    "model": _own,
}


def draft_of(job: ServingJob) -> Draft | None:
    """Return the draft model of a job; None if there is none, or if drafting needs no device."""
    drafting = job.plan.drafting
    return None if drafting is None else DRAFTS[drafting.drafter](job.model, drafting)


def job_of_draft(job: ServingJob, draft: Draft) -> ServingJob:
    """Return a job with only the draft model, on the same ranks and in the same formats."""
    plan = job.plan.model_copy(update={"drafting": None, "adapter_rank": None})
    return job.model_copy(update={"model": draft.model, "plan": plan})


def layers_side_by_side(job: ServingJob, run: EnginePass, at_once: int) -> tuple[ServedLayer, ...]:
    """Return the layers of a draft model in which `at_once` attention layers run at the same time.

    Each of these attention layers is whole on one rank, so a rank has one of every `at_once` layers. One
    message then adds the results of all ranks. All other layers are divided over all ranks and run in turn,
    as usual.
    """
    alone = job.plan.model_copy(update={"tensor_parallel": 1})
    cut, whole = (lower_passes(job.model, plan, job.engine, run) for plan in (job.plan, alone))
    found = []
    for ours, one in zip(cut, whole, strict=True):
        steps = -(-ours.count // at_once)
        attention = tuple(item for item in one.items if _is_attention(item) and not _is_message(item))
        messages = tuple(item for item in ours.items if _is_attention(item) and _is_message(item))
        others = tuple(item for item in ours.items if not _is_attention(item))
        held = tuple(weight for weight in one.weights if weight.name.startswith(ATTENTION))
        rest = tuple(weight for weight in ours.weights if not weight.name.startswith(ATTENTION))
        found.append(replace(ours, items=others, weights=rest))
        if attention:
            found.append(replace(ours, count=steps, items=(*attention, *messages), weights=held))
    return tuple(found)


def _is_attention(item: Item) -> bool:
    return item.name.startswith(ATTENTION)


def _is_message(item: Item) -> bool:
    return isinstance(item.work, AbstractMessage)


def joined_inputs(draft: Draft, deployment: Deployment, run: EnginePass) -> tuple[ServedLayer, ...]:
    """Return the GEMM that combines the vectors that a draft model reads from the other model.

    Multi-token prediction concatenates two vectors of the hidden width for each token and EAGLE-3 three.
    The product projects them to one vector; its columns are divided over tensor-parallel ranks. The result
    is empty for an independent draft model, which reads only tokens.
    """
    if not draft.inputs:
        return ()
    hidden, ranks = draft.model.hidden, deployment.tensor_parallel
    width = constant(hidden / ranks)
    length = constant(float(draft.inputs * hidden))
    work = ServedMatmul(m=run.new_tokens, n=width, k=length, dtype="bf16")
    item = kernel("draft.join", work, ("x",), "y", component="draft")
    weight = Weight(name="draft.join", elements=width * length, total=hidden * draft.inputs * hidden)
    return (ServedLayer(kind="draft", count=1, items=(item,), weights=(weight,)),)


def _of_block(model: Model, block: Block) -> Model:
    return model.model_copy(
        update={"blocks": (block.model_copy(update={"count": 1}),), "pattern": (), "mtp": 0}
    )


class DraftedTimes(Record, eq=False):
    """Seconds of a pass and of the drafts before it.

    Like `PassTimes`, it is a function for the scheduler.
    """

    verify: PassTimes | StagedTimes
    first: PassTimes  # of the draft's pass over all new tokens
    further: PassTimes  # of its passes over one token of each sequence
    drafted: int

    def stretched(self, ratio: Number) -> "DraftedTimes":
        """Return the times of passes and drafts, multiplied by a ratio."""
        parts = {name: getattr(self, name).stretched(ratio) for name in ("verify", "first", "further")}
        return replace(self, **parts)

    def __call__(self, new: Amount, sequences: Amount, cached: Amount, pairs: Amount) -> Amount:
        """Return the seconds of passes; the arguments are floats, or arrays of one shape."""
        verify_s = self.verify(new, sequences, cached, pairs)
        if not self.drafted:
            return verify_s
        first_s = self.first(new, sequences, cached, pairs)
        return verify_s + first_s + (self.drafted - 1) * self.further(sequences, sequences, cached, cached)
