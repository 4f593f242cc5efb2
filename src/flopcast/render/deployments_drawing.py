"""The deployments of a search of serving as one drawing.

Answers: what does `flopcast search --plot FILE` draw for deployments?
Elsewhere: how a front is drawn (page/front.py), plans of training (search_drawing.py).
"""

from flopcast.render.page.front import ON_FRONT, OTHER, RECOMMENDED, TIED, FrontDrawing, FrontMark
from flopcast.render.serving_text import plan_text
from flopcast.search.deployments.find import DeploymentResult, RankedDeployment

LEGEND = (
    "Each mark is a deployment that was simulated and that keeps up with the traffic. Orange: the"
    " recommended deployment. Green: deployments within 1 % of the best. Blue: the Pareto front. Grey:"
    " all other deployments. Lines show 90 % intervals. Point at a mark to see its deployment."
)


def drawing_of(result: DeploymentResult) -> FrontDrawing:
    """Return a drawing of the first two objectives of all deployments that keep up.

    The recommended deployment, the front, and deployments tied with the first have marks of their own and
    the interval of their first objective. A line connects the points of the front if there are exactly two
    objectives.
    """
    first, second, *_ = result.question.asked

    def mark(each: RankedDeployment) -> FrontMark:
        is_first = each is result.deployments[0]
        kind = RECOMMENDED if is_first else ON_FRONT if each.on_front else TIED if each.tied else OTHER
        across, up = first.exact(each.report), second.exact(each.report)
        job = each.report.job
        text = (
            f"{job.engine.name} {plan_text(job)} on {job.devices} devices of {job.cluster.name}:"
            f" {first.label} {first.show(across.value)}, {second.label} {second.show(up.value)}"
        )
        interval = (across.low, across.high) if kind else None
        return FrontMark(across=across.value, up=up.value, kind=kind, text=text, interval=interval)

    # the front first, from left to right, which its line follows
    ordered = sorted(result.deployments, key=lambda each: (not each.on_front, each.losses[0]))
    return FrontDrawing(
        what="deployments",
        legend=LEGEND,
        axes=(first.label, second.label),
        shows=(first.show, second.show),
        units=(1.0, 1.0),
        marks=[mark(each) for each in ordered],
        joined=len(result.question.asked) == 2,
    )
