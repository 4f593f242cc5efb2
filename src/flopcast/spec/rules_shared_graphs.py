"""The rules about exported graphs that ranks share: sharded embedding tables, and vertices with a halo.

Answers: which models and plans may shard tables or share a graph, and over how many ranks?
Elsewhere: what sharded tables run (layers/tables.py), what ranks with a halo exchange (layers/halo.py),
what a rule is (checks.py).
"""

from flopcast.layers.traced import Traced
from flopcast.spec.checks import Rule, first
from flopcast.spec.model import Model

RANKS = "the data-parallel ranks share the embedding tables, so expert_parallel is the number of the ranks"


def has_tables(model: Model) -> bool:
    """Return whether the model comes from an exported graph that contains an embedding table."""
    mixers = [block.mixer for block in model.blocks if isinstance(block.mixer, Traced)]
    return any(weight.row for mixer in mixers for weight in mixer.weights_of_block)


def has_neighbours(model: Model) -> bool:
    """Return whether an operator of an exported graph picks rows of a tensor, as graph networks do."""
    return any(isinstance(block.mixer, Traced) and block.mixer.picking_rows for block in model.blocks)


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
        because="if the field tables is none, every rank holds complete copies of all embedding tables",
        fix="remove whole_tables",
    ),
    Rule(
        field="plan.expert_parallel",
        holds=lambda c: (
            not (c.structure.tables and has_tables(c.model))
            or c.plans.expert_parallel == c.plans.data_parallel
        ),
        allowed=lambda c: f"{first(c.plans.data_parallel)} (the value of data_parallel)",
        because=RANKS,
        fix=lambda c: {"expert_parallel": first(c.plans.data_parallel)},
    ),
    Rule(
        field="plan.zero",
        holds=lambda c: not c.structure.tables or c.structure.zero < 3,
        allowed="0, 1 or 2, because tables are sharded",
        because="ZeRO-3 together with sharded embedding tables is not supported yet",
        fix={"zero": 0},
    ),
    Rule(
        field="plan.halo",
        holds=lambda c: not c.structure.halo or has_neighbours(c.model),
        allowed="0, because the model is not an exported graph neural network",
        because="halo is the number of vertices of the graph that a rank reads from other ranks",
        fix="remove halo",
    ),
    Rule(
        field="plan.halo",
        holds=lambda c: (c.structure.halo <= c.plans.data_parallel - 1) | (c.plans.data_parallel == 1),
        allowed=lambda c: f"at most {first(c.plans.data_parallel) - 1} (the number of other ranks)",
        because=(
            "all ranks hold equal numbers of vertices, so a rank cannot read more than all other ranks "
            "hold together"
        ),
        fix=lambda c: {"halo": first(c.plans.data_parallel) - 1},
    ),
    Rule(
        field="plan.expert_parallel",
        holds=lambda c: bool(not c.structure.halo) | (c.plans.expert_parallel == c.plans.data_parallel),
        allowed=lambda c: f"{first(c.plans.data_parallel)} (the value of data_parallel)",
        because="the data-parallel ranks share the graph, so expert_parallel is the number of these ranks",
        fix=lambda c: {"expert_parallel": first(c.plans.data_parallel)},
    ),
)
