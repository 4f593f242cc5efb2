"""The rules about precision recipes: which engines and sizes a recipe needs.

Answers: which conditions must a plan's precision satisfy, why, and which edit fixes a violation?
Elsewhere: the recipes (precision.py), the rules about all other parts (rules.py), what a rule is
(checks.py).
"""

from collections.abc import Iterator

import numpy as np

from flopcast.dtypes import Counts
from flopcast.operators.formats import FORMATS
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.spec.checks import Case, Rule
from flopcast.spec.precision import RECIPES, SIXTEEN_BITS, WIDE

BLOCK_SCALED_ENGINE = "fp4"  # engines that multiply 4 bits apply the scales of blocks by themselves
PER_TENSOR_MULTIPLE = (
    16  # elements: cuBLASLt's alignment of 8-bit operands, which each pass reads along another side
)


def precisions(case: Case) -> list[str]:
    """Return the precisions in which the device can compute."""
    return [name for name in (*SIXTEEN_BITS, WIDE, *RECIPES) if _has_engine(case, name)]


def _has_engine(case: Case, precision: str) -> bool:
    """Return whether the device multiplies operands of a precision, and applies the scales of its blocks.

    Blocks of 128 are scaled by the kernel, between partial sums; those of 16 and 32 by the engine.
    """
    peaks = case.cluster.node.device.peak_flop_per_s
    recipe = RECIPES.get(precision)
    if recipe is None:
        return precision in peaks
    return FORMATS[recipe.format].engine in peaks and (
        not FORMATS[recipe.format].engine_scales or BLOCK_SCALED_ENGINE in peaks
    )


def _multiple(case: Case) -> int:
    """Return what every side of an 8-bit product must be a multiple of: a block, or its alignment.

    Blocks of 128 that the kernel scales may be cut short: DeepSeek-V3, whose projection down to latents has
    576 columns, has four and a half of them there (its checkpoint holds five scales).
    """
    recipe = RECIPES.get(case.structure.precision) if _narrow(case) else None
    if recipe is None:
        return 1
    block = FORMATS[recipe.format].block if FORMATS[recipe.format].engine_scales else 1
    return max(block, PER_TENSOR_MULTIPLE)


def _sides(case: Case) -> Iterator[tuple[str, Counts]]:
    """Yield name and width of every side of a block's 8-bit products, (plans, 1)."""
    split = case.plans.split(case.batch)
    for block in case.model.blocks:
        for item in block.forward(case.model.hidden, split):
            if isinstance(item.work, Matmul | GroupedMatmul) and not item.wide:
                yield item.name, item.work.n
                yield item.name, item.work.k


def _uneven(case: Case) -> list[tuple[str, Counts]]:
    """Return sides that are not a multiple, of any plan."""
    multiple = _multiple(case)
    return (
        [(name, side) for name, side in _sides(case) if (side % multiple != 0).any()]
        if multiple > 1
        else []
    )


def _even(case: Case) -> np.ndarray:
    """Return whether every side of a plan's 8-bit products is a whole number of blocks, (plans, 1)."""
    kept = np.ones(case.plans.tensor_parallel.shape, dtype=bool)
    for _, side in _uneven(case):
        kept = kept & (side % _multiple(case) == 0)
    return kept


def _tokens(case: Case) -> Counts:
    """Return rows of a dense product, along which a weight gradient sums."""
    return case.plans.split(case.batch).tokens


def _narrow(case: Case) -> bool:
    """Return whether the plan has a recipe that its device can run; otherwise another rule reports it."""
    precision = case.structure.precision
    return precision in RECIPES and _has_engine(case, precision)


def _nearest_precision(case: Case) -> str:
    """Return the 8-bit format that the device has in place of a narrow one, else bf16, else its first."""
    known = sorted(precisions(case), key="bf16".__ne__)
    return next(
        (each for each in known if case.structure.precision in RECIPES and each in RECIPES),
        "".join(known[:1]),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.precision",
        holds=lambda c: _has_engine(c, c.structure.precision),
        allowed=lambda c: ", ".join(precisions(c)) or "nothing",
        because="the device has no tensor cores for this format",
        fix=lambda c: {"precision": _nearest_precision(c) or "bf16, on another device"},
    ),
    Rule(
        field="plan.precision",
        holds=_even,
        allowed=lambda c: (
            f"bf16, because the width of {_uneven(c)[0][0]} on each rank is "
            f"{_uneven(c)[0][1][0, 0]:g}, which is not a multiple of {_multiple(c)}"
        ),
        because="low-precision recipes divide each dimension of a GEMM into blocks that share a scale",
        fix={"precision": "bf16"},
    ),
    Rule(
        field="plan.precision",
        holds=lambda c: not _narrow(c) or _tokens(c) % _multiple(c) == 0,
        allowed=lambda c: (
            f"bf16, because the {_tokens(c)[0, 0]:g} tokens of a micro-batch are not a multiple of "
            f"{_multiple(c)}"
        ),
        because=(
            "in the GEMMs of weight gradients, a block of tokens shares one scale, so a micro-batch "
            "must consist of whole blocks"
        ),
        fix={"precision": "bf16"},
    ),
    Rule(
        field="plan.precision",
        holds=lambda c: (
            not _narrow(c) or c.model.adapters is None or c.model.adapters.base_dtype == "model"
        ),
        allowed="bf16 or fp16, because the frozen weights of the model are stored in 4 bits",
        because="QLoRA dequantises weights to 16 bits before each GEMM",
        fix={"precision": "bf16"},
    ),
    Rule(
        field="stack.narrow.wide_first_blocks",
        holds=lambda c: (
            c.stack.narrow.wide_first_blocks + c.stack.narrow.wide_last_blocks <= c.model.num_blocks
        ),
        allowed=lambda c: (
            f"values of wide_first_blocks and wide_last_blocks whose sum is at most {c.model.num_blocks} "
            "(the number of blocks of the model)"
        ),
        because="the first and the last blocks must not overlap",
        fix={"wide_first_blocks": 0, "stack.narrow.wide_last_blocks": 0},
    ),
)
