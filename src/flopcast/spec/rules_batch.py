"""The rules about packed sequences: which documents fill one, and what keeps their tokens apart.

Answers: which lengths are possible, which stacks, plans and mixers skip what lies between documents?
Elsewhere: what a packed sequence costs (layers/base.py, `Split.documents`).
"""

from flopcast.layers.attention import Attention
from flopcast.layers.latent_attention import LatentAttention
from flopcast.spec.checks import Case, Rule


def _windowed(case: Case) -> list[int]:
    """Kinds of blocks whose attention is a band, or is not told apart by documents: places in the model."""
    return [
        place
        for place, block in enumerate(case.model.blocks)
        if not isinstance(block.mixer, (Attention, LatentAttention))
        or getattr(block.mixer, "window", None) is not None
    ]


RULES: tuple[Rule, ...] = (
    Rule(
        field="batch.packed",
        holds=lambda c: not c.batch.packed or bool(c.batch.documents),
        value=lambda _: True,
        allowed=lambda _: "true only with documents, the tokens of each document of a sequence",
        because="attention costs the sum of their squares",
        fix=lambda _: "set packed to false, or add documents",
    ),
    Rule(
        field="batch.documents",
        holds=lambda c: sum(c.batch.lengths) == c.batch.sequence_length,
        value=lambda c: f"{sum(c.batch.documents)} tokens",
        allowed=lambda c: f"lengths that add up to sequence_length = {c.batch.sequence_length}",
        because="documents fill a sequence; padding is one of them",
        fix=lambda _: "change documents",
    ),
    Rule(
        field="batch.documents",
        holds=lambda c: len(c.batch.documents) <= 1 or c.stack.attention_kernel == "flash",
        value=lambda c: f"{len(c.batch.documents)} documents",
        allowed=lambda _: "one document on a stack that writes attention scores",
        because="a kernel that writes the scores computes those between documents too",
        fix=lambda _: "choose a stack with attention_kernel: flash",
    ),
    Rule(
        field="plan.context_parallel",
        holds=lambda c: (len(c.batch.documents) <= 1) | (c.plans.context_parallel == 1),
        value=lambda c: int(c.plans.context_parallel[0, 0]),
        allowed=lambda _: "1 with several documents a sequence",
        because="documents cut over context-parallel ranks are not built yet",
        fix=lambda _: "set context_parallel to 1",
    ),
    Rule(
        field=lambda c: f"model.blocks[{_windowed(c)[0]}].mixer",
        holds=lambda c: len(c.batch.documents) <= 1 or not _windowed(c),
        value=lambda c: c.model.blocks[_windowed(c)[0]].mixer.kind,
        allowed=lambda _: "attention without windows where sequences are packed",
        because="windows and traced blocks over several documents are not built yet",
        fix=lambda _: "remove documents",
    ),
)
