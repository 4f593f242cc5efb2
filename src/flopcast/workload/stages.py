"""Which layers stand on which pipeline stage and chunk.

Answers: how does a stack divide a model's layers over stages and virtual stages; which chunks are
equal, so that one program serves them all?
Elsewhere: in which order chunks run (schedules/).

Rules, one function each in DIVISIONS:
- "even" (Megatron-LM): every chunk holds blocks / (stages · virtual stages) blocks; the embedding
  joins the first chunk, final norm and head the last. Chunk c of stage s is number c · stages + s.
- "deepspeed_uniform" (DeepSpeed `partition_uniform`): the modules of the pipeline, embedding, head and
  the stack's uncounted modules included, are dealt out evenly, the first stages getting the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from flopcast.dtypes import Counts, Integers
from flopcast.errors import InternalError


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Division:
    """One way to divide, for one number of stages and virtual stages.

    A chunk class is a set of chunks with equal layers, a stage class one of stages with equal chunks.
    """

    chunk_class: Integers  # (stages, virtual stages)
    chunk_counts: Counts  # (chunk classes, parts): how many of each layer
    stage_class: Integers  # (stages,)
    stage_counts: Counts  # (stage classes, parts)
    stage_chunk_counts: Counts  # (stage classes, virtual stages, parts)
    earliest_stage: Integers  # (stage classes,)
    multiplicity: Integers  # (stage classes,): how many stages


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Stages:
    """The divisions of a batch of plans, padded with empty classes to a common width."""

    divisions: tuple[Division, ...]
    code: Integers  # (plans,): which division a plan uses
    chunk_counts: Counts  # (plans, chunk classes, parts)
    stage_counts: Counts  # (plans, stage classes, parts)
    stage_chunk_counts: Counts  # (plans, stage classes, virtual stages, parts)
    multiplicity: Counts  # (plans, stage classes); 0 where padded
    earliest_stage: Counts  # (plans, stage classes)

    def of(self, plan: int) -> Division:
        """The division of one plan of the batch."""
        return self.divisions[int(self.code[plan])]


def _even(counts: tuple[int, ...], stages: int, virtual: int, before: int, after: int) -> Counts:
    blocks = sum(counts[1:-2])
    per_chunk, rest = divmod(blocks, stages * virtual)
    if rest:
        raise InternalError(f"{blocks} blocks do not divide over {stages} × {virtual} chunks")
    edges = np.concatenate([[0], np.cumsum(counts[1:-2])])
    held = np.zeros((stages * virtual, len(counts)))
    for chunk in range(stages * virtual):
        low, high = chunk * per_chunk, (chunk + 1) * per_chunk
        held[chunk, 1:-2] = np.clip(edges[1:], low, high) - np.clip(edges[:-1], low, high)
    held[0, 0] = 1
    held[-1, -2:] = 1
    return held.reshape(virtual, stages, len(counts)).swapaxes(0, 1)


def _deepspeed_uniform(
    counts: tuple[int, ...], stages: int, virtual: int, before: int, after: int
) -> Counts:
    kinds = [0] + [-1] * before
    for part, count in enumerate(counts[1:-2], start=1):
        kinds += [part] * count
    kinds += [-1] * after + [len(counts) - 2, len(counts) - 1]
    size, rest = divmod(len(kinds), stages)
    bounds = np.cumsum([0] + [size + (stage < rest) for stage in range(stages)])
    held = np.zeros((stages, 1, len(counts)))
    for stage in range(stages):
        for kind in kinds[bounds[stage] : bounds[stage + 1]]:
            if kind >= 0:
                held[stage, 0, kind] += 1
    return held


DIVISIONS: dict[str, Callable[[tuple[int, ...], int, int, int, int], Counts]] = {
    "even": _even,
    "deepspeed_uniform": _deepspeed_uniform,
}


@lru_cache(maxsize=4096)
def divide(
    counts: tuple[int, ...], stages: int, virtual: int, rule: str, before: int = 0, after: int = 0
) -> Division:
    """Divide `counts` layers (embedding, runs of blocks, final norm, head) by a rule of DIVISIONS."""
    held = DIVISIONS[rule](counts, stages, virtual, before, after)
    chunk_counts, inverse = np.unique(held.reshape(stages * virtual, -1), axis=0, return_inverse=True)
    chunk_class = inverse.reshape(stages, virtual)
    stage_chunks, earliest, stage_class, multiplicity = np.unique(
        chunk_class, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return Division(
        chunk_class=chunk_class,
        chunk_counts=chunk_counts,
        stage_class=stage_class.reshape(stages),
        stage_counts=chunk_counts[stage_chunks].sum(axis=1),
        stage_chunk_counts=chunk_counts[stage_chunks],
        earliest_stage=earliest,
        multiplicity=multiplicity,
    )


def divide_all(
    counts: tuple[int, ...], stages: Counts, virtual: Counts, rule: str, before: int, after: int
) -> Stages:
    """The divisions of a batch: `stages` and `virtual` have shape (plans, 1)."""
    pairs = np.concatenate([stages, virtual], axis=1).astype(int)
    distinct, code = np.unique(pairs, axis=0, return_inverse=True)
    divisions = tuple(divide(counts, int(p), int(v), rule, before, after) for p, v in distinct)
    code = code.reshape(-1)
    chunks = max(len(d.chunk_counts) for d in divisions)
    classes = max(len(d.stage_counts) for d in divisions)
    deepest = max(d.chunk_class.shape[1] for d in divisions)
    padded = {
        "chunk_counts": [_pad(d.chunk_counts, (chunks,)) for d in divisions],
        "stage_counts": [_pad(d.stage_counts, (classes,)) for d in divisions],
        "stage_chunk_counts": [_pad(d.stage_chunk_counts, (classes, deepest)) for d in divisions],
        "multiplicity": [_pad(d.multiplicity, (classes,)) for d in divisions],
        "earliest_stage": [_pad(d.earliest_stage, (classes,)) for d in divisions],
    }
    gathered = {name: np.stack(rows)[code] for name, rows in padded.items()}
    return Stages(divisions=divisions, code=code, **gathered)


def _pad(rows: Counts | Integers, lengths: tuple[int, ...]) -> Counts:
    """Zeros behind the leading axes, up to `lengths`."""
    wanted = (*lengths, *rows.shape[len(lengths) :])
    padded: Counts = np.pad(
        rows.astype(np.float64), [(0, to - have) for to, have in zip(wanted, rows.shape, strict=True)]
    )
    return padded
