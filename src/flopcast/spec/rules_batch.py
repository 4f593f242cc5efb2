"""The rules about packed sequences, and about unequal micro-batches and ranks.

Answers: which lengths are possible, which stacks, plans and layers separate documents, and which lists of
micro-batches form a step?
Elsewhere: the cost of a packed sequence (layers/base.py, `Split.documents`), the simulation of several
kinds of micro-batches (timeline/step.py).
"""

import numpy as np

from flopcast.layers.attention import Attention
from flopcast.layers.latent_attention import LatentAttention
from flopcast.spec.batch import Batch, RankBatch
from flopcast.spec.checks import Case, Rule, Ways, first
from flopcast.spec.rules_context import parts
from flopcast.units import counted


def _windowed(case: Case) -> list[int]:
    """Return blocks whose attention has a window, or does not separate documents, by place in the model."""
    return [
        place
        for place, block in enumerate(case.model.blocks)
        if not isinstance(block.mixer, (Attention, LatentAttention))
        or getattr(block.mixer, "window", None) is not None
    ]


def _number(ranks: RankBatch) -> int:
    return sum(each.count for each in ranks.micro_batches)


def _listed(case: Case) -> int:
    """Return the micro-batches that all data-parallel ranks list together."""
    return sum(ranks.count * _number(ranks) for ranks in case.batch.ranks)


def _complete(case: Case) -> np.ndarray:
    """Return plans for whose steps the lists have as many micro-batches as there are, (plans, 1)."""
    if case.batch.ranks:
        unlisted = case.plans.data_parallel != sum(ranks.count for ranks in case.batch.ranks)
        return np.asarray(unlisted | (case.plans.global_batch == _listed(case) * case.plans.micro_batch))
    numbers = np.array([_number(ranks) for ranks in case.batch.lists])
    return np.asarray((case.plans.num_micro_batches == numbers).all(axis=1, keepdims=True))


def _completed(case: Case) -> Ways:
    """Return the fix that sets the global batch to the sum over the lists of micro-batches."""
    if case.batch.ranks:
        return {"global_batch": _listed(case) * first(case.plans.micro_batch)}
    each = first(case.plans.data_parallel * case.plans.micro_batch)
    return {"global_batch": _number(case.batch.lists[0]) * each}


def _longest(case: Case) -> int:
    """Return tokens of the longest sequence of a step."""
    return max(kind.sequence_length for kind in case.batch.kinds)


def _document_parts(case: Case) -> np.ndarray:
    """Return the tokens that are left over if documents are cut into the parts of ranks, (plans, 1)."""
    cut = parts(case)
    left = [length % cut for length in sorted(set(case.batch.documents))]
    alone = case.plans.context_parallel * case.batch.shared_by == 1
    return np.where(alone, 0.0, sum(left, np.zeros_like(cut)))


def _meets_early(case: Case) -> np.ndarray:
    """Return plans whose data-parallel ranks wait for each other before gradients are done, (plans, 1)."""
    structure = case.structure
    early = structure.zero >= 2 or structure.order_rule.skews_steps
    return np.asarray((case.plans.expert_parallel > 1) | early)


def _documents_that_fill(batch: Batch) -> str:
    """Return the fix of documents that are shorter than the sequence, or longer."""
    left = batch.sequence_length - sum(batch.lengths)
    if left > 0:
        return f"change documents to [{', '.join(map(str, (*batch.documents, left)))}]"
    return f"set sequence_length to {sum(batch.lengths)}, or remove documents"


RULES: tuple[Rule, ...] = (
    Rule(
        field="batch.packed",
        about_lists=True,
        holds=lambda c: not c.batch.packed or bool(c.batch.documents) or c.batch.listed,
        value=lambda _: True,
        allowed="false, or true together with documents",
        because="the cost of attention depends on the lengths of the packed documents",
        fix=({"packed": False}, "add documents"),
    ),
    Rule(
        field="batch.documents",
        holds=lambda c: sum(c.batch.lengths) == c.batch.sequence_length,
        value=lambda c: list(c.batch.documents),
        allowed=lambda c: (
            f"lengths that add up to sequence_length = {c.batch.sequence_length} (their sum is "
            f"{sum(c.batch.lengths)})"
        ),
        because="the documents must fill the whole sequence; write padding as a document",
        fix=lambda c: _documents_that_fill(c.batch),
    ),
    Rule(
        field="batch.documents",
        holds=lambda c: len(c.batch.documents) <= 1 or c.stack.fuses_attention,
        value=lambda c: f"{len(c.batch.documents)} documents",
        allowed="at most one document, because the stack materialises the attention scores",
        because="materialised attention also computes scores between tokens of different documents",
        fix="choose a stack with attention_kernel: flash",
    ),
    Rule(
        field="batch.documents",
        holds=lambda c: (len(c.batch.documents) <= 1) | (_document_parts(c) == 0),
        value=lambda c: f"documents of {', '.join(map(str, sorted(set(c.batch.documents))[:4]))} tokens",
        allowed=lambda c: (
            f"lengths that are multiples of {first(parts(c))} tokens, because ranks divide each sequence"
        ),
        because="every rank holds the same number of tokens of each document",
        fix="change documents to such lengths, or set context_parallel to 1",
    ),
    Rule(
        field="batch.distribution",
        about_lists=True,
        holds=lambda c: c.batch.distribution is None,
        value=lambda c: c.batch.distribution.sharing if c.batch.distribution else "",
        allowed="no distribution, because the plan is not complete",
        because="flopcast needs the whole plan to distribute sequences over micro-batches",
        fix="describe a whole plan, or remove distribution",
    ),
    Rule(
        field="batch.shared_by",
        holds=lambda c: (
            (c.batch.shared_by == 1)
            | (
                (c.plans.data_parallel % c.batch.shared_by == 0)
                & (c.plans.context_parallel == 1)
                & (c.structure.rank_order.index("cp") + 3 == c.structure.rank_order.index("dp"))
            )
        ),
        allowed=lambda c: (
            f"1 or, if context_parallel is 1, a divisor of data_parallel ({first(c.plans.data_parallel)})"
        ),
        because="shared_by divides sequences over data-parallel ranks instead of context-parallel ranks",
        fix="set context_parallel to 1, and change shared_by to a divisor of data_parallel",
    ),
    Rule(
        field=lambda c: f"model.blocks[{_windowed(c)[0]}].mixer",
        holds=lambda c: len(c.batch.documents) <= 1 or not _windowed(c),
        value=lambda c: c.model.blocks[_windowed(c)[0]].mixer.kind,
        allowed="blocks without attention windows, because sequences are packed",
        because="attention windows and traced blocks are not supported yet in packed sequences",
        fix="remove the field documents",
    ),
    Rule(
        field="batch.documents",
        about_lists=True,
        holds=lambda c: not (c.batch.listed and c.batch.documents),
        value=lambda c: counted(len(c.batch.documents), "document"),
        allowed="no value, because micro_batches or ranks is given",
        because="each listed micro-batch has its own documents field",
        fix="remove the field documents, and write it in each listed micro-batch instead",
    ),
    Rule(
        field="batch.ranks",
        about_lists=True,
        holds=lambda c: not (c.batch.micro_batches and c.batch.ranks),
        value=lambda c: counted(len(c.batch.ranks), "kind") + " of ranks",
        allowed="no value, because micro_batches is given",
        because=(
            "micro_batches holds one list for all ranks, and ranks holds separate lists, so only one "
            "of the two can be given"
        ),
        fix="remove one of the two",
    ),
    Rule(
        field=lambda c: "batch.ranks" if c.batch.ranks else "batch.micro_batches",
        about_lists=True,
        holds=_complete,
        value=lambda c: f"{_listed(c) if c.batch.ranks else _number(c.batch.lists[0])} micro-batches",
        allowed=lambda c: (
            (
                f"a total of {first(c.plans.global_batch / c.plans.micro_batch)} micro-batches over all "
                "ranks (global_batch / micro_batch)"
            )
            if c.batch.ranks
            else (
                f"{first(c.plans.num_micro_batches)} micro-batches (global_batch / "
                "(data_parallel · micro_batch))"
            )
        ),
        because="the lists must contain every micro-batch of a step",
        fix=_completed,
    ),
    Rule(
        field="batch.ranks",
        about_lists=True,
        holds=lambda c: (
            not c.batch.ranks or c.plans.data_parallel == sum(ranks.count for ranks in c.batch.ranks)
        ),
        value=lambda c: f"{sum(ranks.count for ranks in c.batch.ranks)} ranks",
        allowed=lambda c: f"counts that add up to data_parallel = {first(c.plans.data_parallel)}",
        because="every data-parallel rank belongs to exactly one entry of ranks",
        fix=lambda c: f"change counts until their sum is {first(c.plans.data_parallel)}",
    ),
    Rule(
        field="batch.sequence_length",
        about_lists=True,
        holds=lambda c: _longest(c) <= c.batch.sequence_length,
        allowed=lambda c: f"at least {_longest(c)} (the length of the longest listed sequence)",
        because="sequence_length is the length of the longest sequence of a step",
        fix=lambda c: {"sequence_length": _longest(c)},
    ),
    Rule(
        field="batch.ranks",
        about_lists=True,
        holds=lambda c: (len(set(c.batch.rows)) <= 1) | ~_meets_early(c),
        value=lambda c: counted(len(c.batch.ranks), "kind") + " of ranks",
        allowed=(
            "the same micro-batches on all ranks if the plan has ZeRO-2, ZeRO-3, expert parallelism or a "
            "schedule like zb_h2 or zb_v"
        ),
        because="different micro-batches on ranks that synchronise within a step are not supported yet",
        fix="remove ranks, and write one list of micro_batches for all ranks",
    ),
)
