"""All numbers of a report that can be explained, by name.

Answers: which names can be explained, and what does each name mean?
Elsewhere: the explanations (steps.py: the step, its components, operators and factors; memory.py), how
they are shown (explanation.py).
"""

import difflib
import re
from collections.abc import Callable, Mapping

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import Problem, SpecError
from flopcast.report.explain.explanation import Explanation
from flopcast.report.explain.memory import explain_category, explain_memory, explain_tier
from flopcast.report.explain.steps import (
    explain_component,
    explain_factor,
    explain_mfu,
    explain_operator,
    explain_step,
)
from flopcast.report.loader import LOADER
from flopcast.report.report import Report

EXCHANGES = {  # other names of communication → the groups of ranks that communicate so, the likeliest first
    **dict.fromkeys(("allreduce", "reducescatter", "allgather"), "dp tp cp"),
    **dict.fromkeys(("communication", "comm", "comms", "nccl", "network"), "dp tp pp cp ep"),
    **dict.fromkeys(("alltoall", "a2a"), "ep cp"),
    **dict.fromkeys(("p2p", "send", "recv", "sendrecv"), "pp cp"),
}
Thunk = Callable[[], Explanation]


def explain(report: Report, book: CurveBook, sources: Mapping[str, str], what: str) -> Explanation:
    """Return one number of a report: formula, inputs, sources, parts.

    Parameters
    ----------
    book : the curves that the report was made with
    sources : sources of the runs to which the level of a factor was fitted, by its name
    what : one of `explainable`

    Raises
    ------
    SpecError
        There is no such name; the error lists all names.
    """
    known = explainable(report, book, sources)
    names = {name: thunk for group in known.values() for name, thunk in group.items()}
    if what not in names:
        raise SpecError([_unknown(what, known)])
    return names[what]()


def explainable(report: Report, book: CurveBook, sources: Mapping[str, str]) -> dict[str, dict[str, Thunk]]:
    """Return names by kind, each with its explanation. A name of two kinds refers to the first.

    If a factor has the name of a component, its name is "factor.NAME".
    """
    operators = dict.fromkeys(item.name for item in report.priced.programs.items())
    components = list(report.breakdown)
    if report.loader is not None and LOADER not in components:
        components.append(LOADER)  # no device waits for it, and its own time is of interest
    factors = {
        (each.name if each.name not in components else f"factor.{each.name}"): each.name
        for each in report.factors
    }
    return {
        "whole": {
            "step": lambda: explain_step(report),
            "mfu": lambda: explain_mfu(report),
            "memory": lambda: explain_memory(report),
        },
        "components": {name: _bound(explain_component, report, name) for name in components},
        "operators": {
            name: _bound(explain_operator, report, name, book, sources)
            for name in operators
            if name not in components
        },
        "factors": {
            shown: _bound(explain_factor, report, name, sources) for shown, name in factors.items()
        },
        "memory": {
            f"memory.{name}": _bound(explain_category, report, name) for name in report.memory.by_category
        }
        | {f"memory.{tier.tier}": _bound(explain_tier, report, tier) for tier in report.memory.tiers},
    }


def _bound(function: Callable[..., Explanation], *arguments: object) -> Thunk:
    """Return a call that is made when the explanation is needed."""
    return lambda: function(*arguments)


def _unknown(what: str, known: Mapping[str, Mapping[str, Thunk]]) -> Problem:
    """Return the fault of a name that no part of the prediction has: few names if one of them is near."""
    names = [name for group in known.values() for name in group]
    begun = [name for name in names if what.startswith((f"{name}_", f"{name}.")) or name.startswith(what)]
    kinds = {name.partition("[")[0]: name for name in reversed(names)}  # of factors; others are whole names
    written = re.sub(r"\.(bwd|backward|grad)\b", ".dgrad", what).partition("[")[0]
    alike = difflib.get_close_matches(written, kinds, n=1)
    exchange = EXCHANGES.get(re.sub("[-_ ]", "", what.lower()), "").split()
    meant = [f"{each}_communication" for each in exchange if f"{each}_communication" in names]
    near = meant or [kinds[each] for each in alike] or sorted(begun, key=len)[-1:]
    shown = {"whole": tuple(known["whole"]), "components": tuple(known["components"])} if near else known
    listed = "\n           ".join(f"{kind}: {', '.join(group)}" for kind, group in shown.items() if group)
    listed += "\n           or an operator, a factor or a category of memory" if near else ""
    because = "a prediction of this job contains only these numbers"
    fix = f"did you mean {near[0]}?" if near else f"write step in place of {what}"
    return Problem("WHAT", what, listed, because, fix)
