"""The rules about plans that state the number of blocks of each stage.

Answers: which lists of blocks per chunk are possible, and which valid list is nearest?
Elsewhere: the rules of stacks that divide the blocks (rules.py, workload/checks.py), the meaning of a list
(workload/stages.py).
"""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.spec.checks import Case, Rule, Ways, first
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.plan_fields import written_list


def _given(case: Case) -> tuple[int, ...]:
    """Return blocks of each chunk as the plan lists them; () if the stack divides them."""
    return case.structure.stage_layers


def _chunks(case: Case) -> Counts:
    return case.plans.pipeline_parallel * case.plans.virtual_stages


def _mended(case: Case) -> str:
    """Return the most even list with the right number of chunks and blocks, none empty inside.

    Unequal numbers remain if there is one for each chunk. Missing blocks are added to the last chunks, and
    surplus blocks are taken from them.
    """
    chunks, blocks = first(_chunks(case)), case.model.num_blocks
    layers = list(_given(case))
    if len(layers) == chunks and len(set(layers)) > 1 and 0 not in layers[1:-1]:
        missing = blocks - sum(layers)
        for chunk in reversed(range(chunks)):
            least = 0 if chunk in (0, chunks - 1) and layers[chunk] == 0 else 1
            changed = max(layers[chunk] + missing, least)
            missing -= changed - layers[chunk]
            layers[chunk] = changed
    if len(layers) != chunks or sum(layers) != blocks or 0 in layers[1:-1]:
        layers = list(divided_over_chunks(blocks, chunks))
    return written_list(layers)


def _fix(case: Case) -> Ways:
    """Return the nearest valid list; if there are more chunks than blocks, there is none."""
    blocks = case.model.num_blocks
    if blocks < first(_chunks(case)):
        most = f"choose at most {blocks} chunks (pipeline_parallel · virtual_stages)"
        return f"{most}, and write the number of blocks of each chunk"
    return {"stage_layers": _mended(case)}


def _counted(numbers: int) -> str:
    """Return how many numbers a list must have, in words: ``a list of 4 numbers``."""
    return "one number" if numbers == 1 else f"a list of {numbers} numbers"


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.stage_layers",
        holds=lambda c: not _given(c) or _chunks(c) == len(_given(c)),
        value=lambda c: written_list(_given(c)),
        allowed=lambda c: f"{_counted(first(_chunks(c)))} (pipeline_parallel · virtual_stages)",
        because="each entry is the number of blocks of one chunk, in the order of the model",
        fix=_fix,
    ),
    Rule(
        field="plan.stage_layers",
        holds=lambda c: not _given(c) or sum(_given(c)) == c.model.num_blocks,
        value=lambda c: written_list(_given(c)),
        allowed=lambda c: (
            f"numbers whose sum is {c.model.num_blocks} (the number of blocks of the model) "
            f"instead of {sum(_given(c))}"
        ),
        because="every block belongs to exactly one chunk",
        fix=_fix,
    ),
    Rule(
        field="plan.stage_layers",
        holds=lambda c: bool(np.all(np.array(_given(c)[1:-1]) > 0)),
        value=lambda c: written_list(_given(c)),
        allowed="at least 1 in every chunk, except in the first and the last chunk, which may have 0",
        because="a chunk without blocks must hold at least the embedding or the head",
        fix=_fix,
    ),
)
