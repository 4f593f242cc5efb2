"""The rules about sharded embedding tables of exported graphs.

Answers: which models and plans may shard tables, and over how many ranks?
Elsewhere: what sharded tables run (layers/tables.py), what a rule is (checks.py).
"""

from flopcast.layers.traced import Traced
from flopcast.spec.checks import Rule, first
from flopcast.spec.model import Model

RANKS = "the embedding tables are sharded over the expert-parallel ranks, which are the data-parallel ranks"


def has_tables(model: Model) -> bool:
    """Return whether a block of the model is a part of a graph with an embedding table."""
    mixers = [block.mixer for block in model.blocks if isinstance(block.mixer, Traced)]
    return any(weight.row for mixer in mixers for weight in mixer.weights_of_block)


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.tables",
        holds=lambda c: not c.structure.tables or has_tables(c.model),
        allowed="the value none, because the model is not an exported graph with embedding tables",
        because="the model has no tables that could be sharded",
        fix="remove tables",
    ),
    Rule(
        field="plan.whole_tables",
        holds=lambda c: bool(c.structure.tables) or not c.structure.whole_tables,
        allowed="0, because tables is none",
        because="without tables, every rank holds all embedding tables whole",
        fix="remove whole_tables",
    ),
    Rule(
        field="plan.expert_parallel",
        holds=lambda c: (
            not (c.structure.tables and has_tables(c.model))
            or c.plans.expert_parallel == c.plans.data_parallel
        ),
        allowed=lambda c: f"{first(c.plans.data_parallel)}, the value of data_parallel",
        because=RANKS,
        fix=lambda c: f"set expert_parallel to {first(c.plans.data_parallel)}",
    ),
    Rule(
        field="plan.zero",
        holds=lambda c: not c.structure.tables or c.structure.zero < 3,
        allowed="0, 1 or 2, because tables are sharded",
        because="ZeRO-3 together with sharded embedding tables is not supported yet",
        fix="set zero to 0",
    ),
)
