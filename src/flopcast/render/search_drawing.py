"""The plans of a search as one drawing: the quantities of the axes, and the text of each mark.

Answers: what does `flopcast search --plot FILE` draw for plans of training?
Elsewhere: the numbers (search/find.py), how a front is drawn (page/front.py), deployments
(deployments_drawing.py).
"""

from flopcast.render.page.front import ON_FRONT, OTHER, RECOMMENDED, TIED, FrontDrawing, FrontMark
from flopcast.render.search_table import name_of, objective_name, values_of
from flopcast.search.find import SearchResult
from flopcast.search.rank import Ranked

LEGEND = (
    "Each mark is a plan that was simulated exactly. Orange: the recommended plan. Green: plans that"
    " may be the best. Blue: the Pareto front. Grey: all other plans. Lines show the 90 % interval of"
    " the ratio to the best plan. Point at a mark to see its plan."
)


def drawing_of(result: SearchResult) -> FrontDrawing:
    """Return a drawing of the first two objectives of all simulated plans.

    The interval of a mark is that of its ratio to the best plan, multiplied by the best plan's value, so
    that common errors cancel.
    """
    first, second, *_ = result.question.asked
    on_front = set(result.on_front)
    best = min((one.losses[0].value for one in result.plans), default=0.0)

    def mark(one: Ranked) -> FrontMark:
        is_first, of_front = one is result.plans[0], one in on_front
        kind = RECOMMENDED if is_first else ON_FRONT if of_front else TIED if one.equal else OTHER
        ends = (first.shown(best * one.ratio_low), first.shown(best * one.ratio_high))
        return FrontMark(
            across=first.shown(one.losses[0].value),
            up=second.shown(one.losses[1].value),
            kind=kind,
            text=_label(one, result),
            interval=ends if kind else None,
        )

    # the front first, in its order, which its line follows
    ordered = [*result.on_front, *(one for one in result.plans if one not in on_front)]
    return FrontDrawing(
        what="plans",
        legend=LEGEND,
        axes=(objective_name(first), objective_name(second)),
        shows=(first.show, second.show),
        units=(first.axis_unit, second.axis_unit),
        marks=[mark(one) for one in ordered],
        joined=len(result.question.asked) == 2,
    )


def _label(one: Ranked, result: SearchResult) -> str:
    """Return the text of a plan's mark: plan, cluster and the values of all objectives."""
    values = ", ".join(
        f"{objective_name(objective)} {value}"
        for objective, value in zip(result.question.asked, values_of(result, one), strict=True)
    )
    return f"{one.played.plan.short()} on {name_of(one.played.job, result.question)}: {values}"
