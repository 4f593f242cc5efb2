"""The layers of each pipeline stage and chunk.

Answers: how does a stack divide a model's layers over stages and virtual stages; which chunks are
equal, so that one program serves them all?
Elsewhere: in which order chunks run (schedules/).

Rules, one function each in DIVISIONS; a vision tower is always with the embedding:
- "even" (Megatron-LM): every chunk holds blocks / (stages · virtual stages) blocks. The embedding is in the
  first chunk; multi-token prediction, final norm and head are in the last. Chunk c of stage s has the
  number c · stages + s. In a folded order, every second round of chunks runs from the last stage to the
  first.
- "deepspeed_uniform" (DeepSpeed `partition_uniform`): the modules of the pipeline, including embedding,
  head and the stack's uncounted modules, are distributed evenly, and the first stages get the remainder.
- "listed": the plan lists the blocks of every chunk (`stage_layers`), whatever the stack's rule.

Uncounted modules take almost no time, but count in this division. GPT-NeoX has two functions that transpose
activations, so that its first and last stages hold fewer blocks than other stages.

Rules divide runs of layers. A chunk is then described by its number of layers of each kind, without their
order, so that chunks that differ only in the order of blocks are one class. A model of 62 alternating
blocks thus has two kinds of blocks to price instead of 21 runs.

References: Megatron-LM, arXiv:2104.04473, section 2.2, and `get_transformer_layer_offset`; DeepSpeed,
`runtime/utils.py`, `partition_uniform`.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from flopcast.dtypes import Counts, Integers
from flopcast.errors import InternalError
from flopcast.records import Record, replace
from flopcast.schedules.base import along_the_model
from flopcast.spec.divisors import dealt
from flopcast.spec.orders import stage_layers
from flopcast.spec.plan import Plans
from flopcast.spec.rows import equal_rows
from flopcast.spec.stack import Pipeline
from flopcast.workload.checkpoints import Checkpoints


class Division(Record, eq=False):
    """One division of the layers, for one number of stages and virtual stages.

    A chunk class is a set of chunks with equal layers, and a stage class is a set of stages with equal
    chunks. Only classes are lowered, priced and stored; each stage and chunk refers to its class.
    """

    chunk_class: Integers  # (stages, virtual stages)
    chunk_counts: Counts  # (chunk classes, parts): how many of each layer
    stage_class: Integers  # (stages,)
    stage_counts: Counts  # (stage classes, parts)
    stage_chunks: Integers  # (stage classes, virtual stages): chunk classes of a stage
    chunks_of_class: Counts  # (stage classes, chunk classes): how many of each a stage holds
    earliest_stage: Integers  # (stage classes,)
    multiplicity: Integers  # (stage classes,): how many stages


class Stages(Record, eq=False):
    """The divisions of a batch of plans, padded with empty classes to a common width.

    A padded class has multiplicity 0 and holds no layer, so that it adds nothing to sums over stages.
    """

    divisions: tuple[Division, ...]
    code: Integers  # (plans,): which division a plan uses
    chunk_counts: Counts  # (plans, chunk classes, parts)
    stage_counts: Counts  # (plans, stage classes, parts)
    chunks_of_class: Counts  # (plans, stage classes, chunk classes): how many of each a stage holds
    multiplicity: Counts  # (plans, stage classes); 0 where padded
    earliest_stage: Counts  # (plans, stage classes)
    first_chunk: (
        Integers  # (plans, stage classes): the chunk class of a stage's first chunk; any where padded
    )

    def of(self, plan: int) -> Division:
        """Return the division of one plan of the batch."""
        return self.divisions[int(self.code[plan])]


class Pile(Record):
    """The layers that a rule divides.

    They are `counts` of layers (embedding, runs of blocks, final norm, head) and, for rules that distribute
    modules, the uncounted modules before and after the blocks.

    The first `at_start` items (the embedding and a vision tower) come before the blocks, and the last
    `at_end` items (multi-token prediction, final norm and head) come after the blocks. `virtual` is the
    number of chunks of one stage; `checkpoints` divides runs of blocks into kinds after the division. The
    object is hashable, because divisions are cached.
    """

    counts: tuple[int, ...]
    stages: int
    virtual: int
    before: int = 0
    after: int = 0
    listed: tuple[int, ...] = ()  # blocks of every chunk, in the order of the model
    parts: tuple[int, ...] = ()  # which layer a run is made of, by number; (): each of one of its own
    at_end: int = 2
    at_start: int = 1
    checkpoints: Checkpoints | None = None
    folded: bool = False


def _even(pile: Pile) -> Counts:
    """Return layers of every chunk, (stages, virtual stages, parts): equal numbers of blocks."""
    chunks = pile.stages * pile.virtual
    blocks = sum(pile.counts[1 : -pile.at_end])
    per_chunk, rest = divmod(blocks, chunks)
    if rest:
        raise InternalError(f"{blocks} blocks do not divide over {pile.stages} × {pile.virtual} chunks")
    return _between(pile, np.arange(chunks + 1) * per_chunk)


def _listed_layers(pile: Pile) -> Counts:
    """Return layers of every chunk, (stages, virtual stages, parts): the plan's numbers of blocks."""
    chunks, blocks = pile.stages * pile.virtual, sum(pile.counts[1 : -pile.at_end])
    if len(pile.listed) != chunks or sum(pile.listed) != blocks:
        raise InternalError(f"{pile.listed} do not divide {blocks} blocks over {chunks} chunks")
    return _between(pile, np.concatenate([[0], np.cumsum(pile.listed)]))


def _between(pile: Pile, bounds: Integers) -> Counts:
    """Return layers of every chunk, (stages, virtual stages, parts): blocks between consecutive bounds.

    Runs of blocks may end inside a chunk: each run is cut where the chunks are.
    """
    counts, runs = pile.counts, slice(1, -pile.at_end)
    held = np.zeros((pile.stages * pile.virtual, len(counts)))
    held[:, runs] = _shared(bounds, np.array(counts[runs]))
    held[0, 0] = 1
    held[-1, -pile.at_end :] = 1
    placed: Counts = held[along_the_model(pile.stages, pile.virtual, pile.folded)]
    return placed


def _deepspeed_uniform(pile: Pile) -> Counts:
    """Return layers of every stage, (stages, 1, parts): consecutive slices of one list of modules.

    A slice may hold uncounted modules alone: the rules refuse such plans (workload/checks.py).
    """
    counts, stages = pile.counts, pile.stages
    if pile.virtual > 1:
        raise InternalError(f"this rule supports no virtual stages, not {pile.virtual} of them")
    modules = np.array([counts[0], pile.before, *counts[1:-2], pile.after, *counts[-2:]])
    bounds = np.concatenate([[0], np.cumsum(dealt(int(modules.sum()), stages))])
    counted = np.delete(_shared(bounds, modules), [1, len(modules) - 3], axis=1)
    return counted[:, None]


def _shared(bounds: Integers, lengths: Integers) -> Counts:
    """Return how much of each run, laid end to end, is between consecutive bounds: (bounds - 1, runs)."""
    edges = np.concatenate([[0], np.cumsum(lengths)])
    low, high = bounds[:-1, None], bounds[1:, None]
    held: Counts = (np.clip(edges[1:], low, high) - np.clip(edges[:-1], low, high)).astype(np.float64)
    return held


DIVISIONS: dict[str, Callable[[Pile], Counts]] = {
    "even": _even,
    "deepspeed_uniform": _deepspeed_uniform,
    "listed": _listed_layers,
}


@lru_cache(maxsize=4096)
def divide(pile: Pile, rule: str) -> Division:
    """Divide a pile of layers by a rule of DIVISIONS.

    Raises
    ------
    InternalError
        The chunks do not divide the blocks, or the rule supports no chunks: spec/rules.py refuses both.

    Examples
    --------
    GPT-NeoX-20B on four stages, as the logs of arXiv:2509.22832 print it:

    >>> pile = Pile(counts=(1, 44, 1, 1), stages=4, virtual=1, before=1, after=1)
    >>> division = divide(pile, "deepspeed_uniform")
    >>> division.stage_counts[division.stage_class][:, 1].tolist()
    [11.0, 12.0, 12.0, 9.0]

    Eight blocks over two stages of two chunks; equal chunks are one class:

    >>> division = divide(Pile(counts=(1, 8, 1, 1), stages=2, virtual=2), "even")
    >>> division.chunk_counts[division.chunk_class].tolist()[0]
    [[1.0, 2.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]
    """
    ends = pile.counts[0], *pile.counts[pile.at_start :]
    held = DIVISIONS[rule](replace(pile, counts=ends, at_start=1))
    held = with_tower(held, pile.counts[1 : pile.at_start])
    return in_classes(in_kinds(held, pile.parts, pile.checkpoints))


def with_tower(held: Counts, tower: tuple[int, ...]) -> Counts:
    """Return the layers of every chunk, (…, parts), with a vision tower in the chunk of the embedding.

    >>> with_tower(np.array([[1.0, 4.0], [0.0, 4.0]]), (1, 32)).tolist()
    [[1.0, 1.0, 32.0, 4.0], [0.0, 0.0, 0.0, 4.0]]
    """
    start = held[..., :1]
    return np.concatenate([start, start * np.array(tower, dtype=np.float64), held[..., 1:]], axis=-1)


def in_kinds(held: Counts, parts: tuple[int, ...], checkpoints: Checkpoints | None) -> Counts:
    """Return the number of layers of each kind, (…, parts), given the number of each run, (…, runs)."""
    return checkpoints.cut(held, parts) if checkpoints else _by_part(held, parts)


def in_classes(held: Counts) -> Division:
    """Return stages and chunks grouped by equal content.

    Parameters
    ----------
    held : array of shape (stages, virtual stages, parts)
        How many layers of each part (run of equal layers) a chunk holds.

    Returns
    -------
    Division
        Chunks with equal counts form a chunk class; stages whose chunks have equal classes in equal order
        form a stage class. `multiplicity` counts the stages of a class, and `earliest_stage` is the first
        of them, which keeps the most micro-batches in flight.
    """
    each = held.reshape(-1, held.shape[-1])
    chunks = equal_rows(list(each.T))
    chunk_counts, chunk_class = each[chunks.first], chunks.group.reshape(held.shape[:2])
    stages = equal_rows(list(chunk_class.T))
    stage_chunks = chunk_class[stages.first]
    return Division(
        chunk_class=chunk_class,
        chunk_counts=chunk_counts,
        stage_class=stages.group,
        stage_counts=chunk_counts[stage_chunks].sum(axis=1),
        stage_chunks=stage_chunks,
        chunks_of_class=np.eye(len(chunk_counts))[stage_chunks].sum(axis=1),
        earliest_stage=stages.first,
        multiplicity=np.bincount(stages.group),
    )


def leaves_no_stage_empty(counts: tuple[int, ...], stages: int, rule: Pipeline) -> bool:
    """Return whether every stage holds a layer, for one chunk per stage.

    Parameters
    ----------
    counts
        Number of layers of each part: embedding, runs of blocks, final norm, head.
    rule
        A rule that can divide these blocks.

    Examples
    --------
    Two blocks on five stages of GPT-NeoX: the third stage gets only the function after the blocks.

    >>> neox = Pipeline(partition="deepspeed_uniform", entries_before=1, entries_after=1)
    >>> [leaves_no_stage_empty((1, 2, 1, 1), stages, neox) for stages in (4, 5)]
    [True, False]
    """
    if stages > sum(counts):
        return False
    pile = Pile(
        counts=counts, stages=stages, virtual=1, before=rule.entries_before, after=rule.entries_after
    )
    return bool((divide(pile, rule.partition).stage_counts.sum(axis=1) > 0).all())


def _by_part(held: Counts, parts: tuple[int, ...]) -> Counts:
    """Return layers of every chunk by kind, (stages, virtual stages, parts): equal layers are summed."""
    if not parts:
        return held
    added: Counts = held @ (np.array(parts)[:, None] == np.arange(max(parts) + 1)).astype(np.float64)
    return added


def divide_all(
    counts: tuple[int, ...],
    plans: Plans,
    rule: Pipeline,
    parts: tuple[int, ...] = (),
    at_end: int = 2,
    checkpoints: Checkpoints | None = None,
    at_start: int = 1,
) -> Stages:
    """Return the divisions of a batch of plans by a stack's rule.

    Parameters
    ----------
    counts
        How many of each part: embedding, runs of blocks, final norm, head.
    plans
        Their pipeline stages and virtual stages; equal pairs share one division.
    rule
        The stack's rule and its uncounted modules.
    parts
        The layer of which each run consists, if several runs consist of the same layer.
    at_end, at_start
        The number of parts after the blocks, and before them.
    checkpoints
        The division of runs of blocks into kinds, if there is one. Parts are then kinds of runs.
    """
    equal = equal_rows([plans.pipeline_parallel[:, 0], plans.virtual_stages[:, 0]])
    both = np.concatenate([plans.pipeline_parallel, plans.virtual_stages], axis=1)[equal.first]
    piles = [
        Pile(
            counts=counts,
            stages=p,
            virtual=v,
            before=rule.entries_before,
            after=rule.entries_after,
            listed=stage_layers(plans, row),
            parts=parts,
            at_end=at_end,
            at_start=at_start,
            checkpoints=checkpoints,
            folded=plans.structure.order_rule.folds_chunks,
        )
        for row, (p, v) in zip(equal.first.tolist(), both.astype(int).tolist(), strict=True)
    ]
    divisions = tuple(divide(pile, "listed" if pile.listed else rule.partition) for pile in piles)
    return _of_one_plan(*divisions) if len(equal.group) == 1 else _gathered(divisions, equal.group)


@lru_cache(maxsize=256)
def _of_one_plan(division: Division) -> Stages:
    return _gathered((division,), np.zeros(1, dtype=np.intp))


def _gathered(divisions: tuple[Division, ...], code: Integers) -> Stages:
    """Return the divisions of a batch of plans; `code` is the division of each plan."""
    chunks = max(len(d.chunk_counts) for d in divisions)
    classes = max(len(d.stage_counts) for d in divisions)
    lengths = {"chunk_counts": (chunks,), "chunks_of_class": (classes, chunks)}
    lengths |= dict.fromkeys(("stage_counts", "multiplicity", "earliest_stage"), (classes,))
    padded = {name: [_pad(getattr(d, name), each) for d in divisions] for name, each in lengths.items()}
    first_chunk = np.stack([_pad(d.stage_chunks[:, 0], (classes,)) for d in divisions]).astype(np.intp)
    rows = {name: np.moveaxis(np.stack(each), -1, 0)[:, code] for name, each in padded.items()}
    gathered = {name: np.moveaxis(each, 0, -1) for name, each in rows.items()}  # of a layer: contiguous
    return Stages(divisions=divisions, code=code, first_chunk=first_chunk[code], **gathered)


def _pad(rows: Counts | Integers, lengths: tuple[int, ...]) -> Counts:
    """Return an array padded with zeros along the leading axes, up to `lengths`."""
    padded: Counts = np.zeros((*lengths, *rows.shape[len(lengths) :]))
    padded[tuple(slice(have) for have in rows.shape)] = rows
    return padded
