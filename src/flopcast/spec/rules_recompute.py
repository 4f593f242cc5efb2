"""The rules about recompute: which modules it may name, and which fields each mode has.

Answers: which conditions must a plan's recompute satisfy, why, and which edit fixes a violation?
Elsewhere: partitioned activations, and schedules that split the backward pass (rules.py), what a rule is
(checks.py).
"""

from collections.abc import Callable, Iterable

import numpy as np

from flopcast.fixes import in_place
from flopcast.layers.modules import known_modules
from flopcast.spec.checks import Case, Rule, Ways, first
from flopcast.spec.divisors import up_to
from flopcast.spec.model import WHOLE, Model
from flopcast.spec.orders import stage_layers, uneven
from flopcast.spec.rows import equal_rows
from flopcast.strict_model import cached_results


@cached_results(64)  # many plans of one model are checked
def _modules(model: Model) -> tuple[str, ...]:
    """Return modules that the blocks of a model have, which selective recompute may name."""
    return known_modules(item for block in model.blocks for item in block.forward(model.hidden, WHOLE))


def _unknown(case: Case, names: Iterable[str]) -> str:
    """Return those of `names` that are not a module of the model; empty names are shown in quotes."""
    return ", ".join(name or "''" for name in sorted(set(names) - set(_modules(case.model))))


def _without_unknown(field: str, names: Iterable[str], case: Case) -> Ways:
    """Return the fix of unknown names: commas where colons stand between known names, or to remove them."""
    given = ",".join(names).replace(":", ",").split(",")
    if not set(given) - set(_modules(case.model)):
        return {field.rpartition(".")[2]: ",".join(dict.fromkeys(given))}
    unknown = _unknown(case, names)
    if unknown == "all":
        return "write recompute=full, which recomputes all activations"
    modules = _modules(case.model)
    from difflib import get_close_matches

    near = {
        name: get_close_matches(name, modules, n=1, cutoff=0.5) for name in given if name not in modules
    }
    right = [name for each in given for name in near.get(each, [each])]
    if list(near) == [unknown] or not right:
        return in_place(near[unknown][0], unknown) if near.get(unknown) else f"remove {unknown}"
    return {field.rpartition(".")[2]: ",".join(dict.fromkeys(right))}


def _names_modules(field: str, names: Callable[[Case], tuple[str, ...]]) -> Rule:
    return Rule(
        field=field,
        holds=lambda c: c.structure.recompute != "selective" or not _unknown(c, names(c)),
        value=lambda c: _unknown(c, names(c)),
        allowed=lambda c: f"names separated by commas: {', '.join(_modules(c.model))}",
        because="the blocks of this model have no module with this name",
        fix=lambda c: _without_unknown(field, names(c), c),
    )


def _largest_chunk(case: Case) -> np.ndarray:
    """Return blocks of the largest chunk, rounded up if they do not divide; (plans, 1)."""
    if case.structure.stage_layers:
        return np.full((case.plans.size, 1), float(max(case.structure.stage_layers)))
    blocks = sum(block.count for block in case.model.blocks)
    chunks: np.ndarray = np.ceil(blocks / (case.plans.pipeline_parallel * case.plans.virtual_stages))
    equal = equal_rows([case.plans.pipeline_parallel[:, 0], case.plans.virtual_stages[:, 0]])
    listed = [max(stage_layers(case.plans, row), default=0) for row in equal.first.tolist()]
    return np.where(uneven(case.plans), np.array(listed)[equal.group][:, None], chunks)


RULES: tuple[Rule, ...] = (
    _names_modules(
        "stack.selective_groups",
        lambda c: () if c.structure.recompute_modules else c.stack.selective_groups,
    ),
    _names_modules("plan.recompute_modules", lambda c: c.structure.recompute_modules),
    Rule(
        field="plan.recompute_modules",
        holds=lambda c: not c.structure.recompute_modules or c.structure.recompute == "selective",
        value=lambda c: ", ".join(c.structure.recompute_modules),
        allowed="no modules, unless recompute is selective",
        because="only with selective recompute, you can choose the modules to recompute",
        fix=({"recompute": "selective"}, "remove recompute_modules"),
    ),
    Rule(
        field="plan.recompute_method",
        holds=lambda c: (
            c.structure.recompute == "full"
            or (c.structure.recompute_method, c.structure.recompute_layers) == ("uniform", 1)
        ),
        value=lambda c: f"{c.structure.recompute_method}:{c.structure.recompute_layers}",
        allowed="uniform:1 (the default), because recompute is not full",
        because="these fields select the blocks that full recompute applies to",
        fix=({"recompute": "full"}, "remove recompute_method and recompute_layers"),
    ),
    Rule(
        field="plan.recompute_blocks",
        holds=lambda c: set(c.structure.recompute_blocks) <= set(range(len(c.model.blocks))),
        value=lambda c: ", ".join(map(str, c.structure.recompute_blocks)),
        allowed=lambda c: up_to(0, len(c.model.blocks) - 1),
        because="each number is an index into model.blocks",
        fix="remove recompute_blocks",
    ),
    Rule(
        field="plan.recompute_blocks",
        holds=lambda c: not c.structure.recompute_blocks or c.structure.recompute != "none",
        value=lambda c: ", ".join(map(str, c.structure.recompute_blocks)),
        allowed="no blocks, because recompute is none",
        because="without recompute, there are no blocks to select",
        fix=({"recompute": "full"}, "remove recompute_blocks"),
    ),
    Rule(
        field="plan.recompute_layers",
        holds=lambda c: (
            c.structure.recompute_layers == 1 or c.structure.recompute_layers <= _largest_chunk(c)
        ),
        allowed=lambda c: (
            f"{up_to(1, first(_largest_chunk(c)))}, because a chunk has {first(_largest_chunk(c))} blocks"
        ),
        because="recompute_layers counts blocks of one chunk of a pipeline stage",
        fix=lambda c: {"recompute_layers": first(_largest_chunk(c))},
    ),
)
