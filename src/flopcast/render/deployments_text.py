"""The answer of a search of serving as text: counts, deployments, the best of each setting, assumptions.

Answers: what does the terminal show for a search of serving?
Elsewhere: the same as data (deployments_json.py), a search of training (search_text.py).
"""

from collections.abc import Iterator, Sequence

from flopcast.files.nearest_names import alternatives
from flopcast.records import Record
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.serving_text import bounds, plan_text
from flopcast.render.tables import aligned_below, in_paragraphs
from flopcast.render.terminal import answer, plain
from flopcast.search.deployments.find import DeploymentResult, RankedDeployment, same_setting
from flopcast.search.deployments.objectives import SERVING_OBJECTIVES
from flopcast.spec.serving_job import ServingJob
from flopcast.units import counted, show, show_seconds

TOP = 10
NEAREST = 3
INDENT = " " * 4


class DeploymentGroup(Record, eq=False, kw_only=False):
    """A deployment, and equally good ones that differ only in the limits of a pass."""

    first: RankedDeployment
    others: tuple[RankedDeployment, ...]


def groups_of(found: Sequence[RankedDeployment]) -> list[DeploymentGroup]:
    """Return deployments in their order; those with the same degrees and formats are one group."""
    families: dict[object, list[RankedDeployment]] = {}
    for each in found:
        job = each.report.job
        plan = job.plan.model_copy(update={"max_sequences": None, "max_tokens": None})
        families.setdefault((job.cluster.name, job.engine.name, plan), []).append(each)
    return [DeploymentGroup(first, tuple(others)) for first, *others in families.values()]


def as_text(result: DeploymentResult, top: int = TOP, *, with_front: bool = False) -> str:
    """Return the answer as text, without a final newline; at most `top` deployments."""
    return plain(marked_text(result, top, with_front=with_front))


def marked_text(result: DeploymentResult, top: int = TOP, *, with_front: bool = False) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    groups = groups_of(result.deployments)[:top]
    on_front = groups_of([each for each in result.deployments if each.on_front])
    parts = (
        _question(result),
        [*_answer(result), *_table(result, groups)],
        [f"front of {_axes(result)}", *_table(result, on_front)] if with_front and on_front else [],
        _settings(result),
        _nearest(result),
        assumption_lines(text for job in result.question.jobs for text in _assumed(result, job)),
    )
    return in_paragraphs(*parts)


def _assumed(result: DeploymentResult, job: ServingJob) -> Iterator[str]:
    """Yield what was assumed and holds for every deployment: not the plan, which the search chooses."""
    chosen = ("plan ", "weights ") if result.question.space.weights else ("plan ",)
    yield from (text for text in job.assumptions if not text.startswith(chosen))


def _axes(result: DeploymentResult) -> str:
    return " and ".join(objective.label for objective in result.question.asked)


def _question(result: DeploymentResult) -> list[str]:
    """Return the lines that state the question and the number of deployments."""
    jobs = result.question.jobs
    clusters = dict.fromkeys(f"{job.cluster.name}: {job.cluster.machine}" for job in jobs)
    engines = dict.fromkeys(f"{job.engine.label}" for job in jobs)
    lines = [
        f"{jobs[0].model.name} on {alternatives([*clusters])}, {', '.join(engines)}",
        f"traffic   {jobs[0].traffic.text()}",
    ]
    if stated := jobs[0].slo.text():
        lines.append(f"SLO       {stated}")
    within = f", and {len(result.deployments)} meet all limits" if stated else ""
    lines.append(
        f"searched  {result.candidates:,} deployments: {result.possible:,} fit into memory;"
        f" {result.simulated} of these were simulated with up to {result.requests:,} requests for each"
        f" replica; {result.keeping_up} keep up with the traffic{within}"
    )
    return lines


def _answer(result: DeploymentResult) -> list[str]:
    """Return what to run; or that nothing keeps up or meets all limits, and what would."""
    if not result.deployments:
        lines = [f"answer    {_none_found(result.keeping_up > 0)}; the closest ones are listed below"]
        return lines + [f"{INDENT}      {sentence}" for sentence in what_would(result)]
    report = result.deployments[0].report
    job = report.job
    chosen = f'{job.engine.option} --plan "{plan_text(job)}"'
    lines = [
        f"answer    {answer(chosen)}"
        f" on {job.devices} of the {job.cluster.num_devices} devices of {job.cluster.name}"
    ]
    if report.slo_chance is not None:
        chance = f"It meets all limits with a probability of {report.slo_chance:.0%}"
        unlikely = "" if result.deployments[0].likely else ", and no other deployment reaches 50 %"
        lines.append(f"{INDENT}      {chance}{unlikely}.")
    tied = [each for each in result.deployments[1:] if each.tied]
    if tied:
        label = result.question.named[0].label
        lines.append(
            f"{INDENT}      It has the lowest latency of {len(tied) + 1} deployments within 1 % of the best"
            f' {label}, which are marked "=".'
        )
    return lines


def _none_found(some_keep_up: bool) -> str:
    return f"no deployment {'meets all limits' if some_keep_up else 'keeps up with the traffic'}"


def what_would(result: DeploymentResult) -> list[str]:
    """Return sentences on the closest deployment with weights in fewer bits, if it meets all limits."""
    if result.fewer_bits is None:
        return []
    report = result.fewer_bits.report
    does = "keeps up with the traffic"
    if report.slo_chance is not None:
        does = f"meets all limits with a probability of {report.slo_chance:.0%}"
    word = f"weights={report.job.plan.weights}"
    return [
        f"With {word}, {plan_text(report.job).replace(f' {word}', '')} {does}.",
        f"Such weights change the answers of the model. To search with them, add {word} to the plan.",
    ]


def _table(result: DeploymentResult, groups: Sequence[DeploymentGroup]) -> list[str]:
    """Return a row for each group, and below it how many variants in limits there are."""
    if not groups:
        return []
    headings, rows = rows_of(result, [group.first for group in groups])
    signs = "<" * 2 + ("<" if "engine" in headings else "") + ("<" if "cluster" in headings else "")
    signs += ">" * (len(headings) - len(signs))
    upper_lines = aligned_below(headings, rows, signs)
    lines = upper_lines[: -len(rows)]
    for group, row in zip(groups, upper_lines[-len(rows) :], strict=True):
        lines.append(row)
        if equal := sum(each.tied == group.first.tied for each in group.others):
            which = "with other values of max_sequences or max_tokens that are equally good"
            lines.append(f"{INDENT}{counted(equal, 'variant')} {which}")
    return lines


def rows_of(
    result: DeploymentResult, found: Sequence[RankedDeployment]
) -> tuple[list[str], list[list[str]]]:
    """Return the names of columns, and a row of cells for each deployment.

    Columns for cluster and engine exist only if the question names several. The first objective and all
    latencies have intervals. The other objectives are values. If there are limits, a column has the
    probability that all of them are met. Latencies are the statistics of the limits, or p99 without limits,
    and a rate per device is added unless it is an objective. "=" after a number marks a tie with the first.
    """
    jobs = result.question.jobs
    several_clusters = len({job.cluster.name for job in jobs}) > 1
    several_engines = len({job.engine.name for job in jobs}) > 1
    named = result.question.named
    shown = {objective.name for objective in named}
    rate = SERVING_OBJECTIVES["tokens_per_s_per_device"]
    headings = ["", "plan"]
    headings += ["cluster"] if several_clusters else []
    headings += ["engine"] if several_engines else []
    headings += ["devices", named[0].label, "90 %", *(each.label for each in named[1:])]
    for metric in ("ttft", "tpot"):
        headings += [_latency_label(jobs[0], metric), "90 %"]
    headings += ["all limits met with"] if jobs[0].slo.text() else []
    headings += [] if rate.name in shown else [rate.label]
    rows = []
    for number, each in enumerate(found, 1):
        report, job = each.report, each.report.job
        first = named[0].exact(report)
        row = [f"{number}{' =' if each.tied else ''}", plan_text(job)]
        row += [job.cluster.name] if several_clusters else []
        row += [job.engine.name] if several_engines else []
        row += [str(job.devices), named[0].show(first.value)]
        row += [f"{named[0].show(first.low)} to {named[0].show(first.high)}"]
        row += [one.show(one.exact(report).value) for one in named[1:]]
        for metric in ("ttft", "tpot"):
            latency = report.latencies[metric][_percentile(job, metric)]
            row += [show_seconds(latency.value), bounds(latency)]
        row += [] if report.slo_chance is None else [f"{report.slo_chance:.0%}"]
        row += [] if rate.name in shown else [show(rate.exact(report).value, "tokens/s")]
        rows.append(row)
    return headings, rows


def _percentile(job: ServingJob, metric: str) -> str:
    """Return the percentile at which a latency is limited; the 99th where it is not."""
    stated = getattr(job.slo, f"{metric}_s") is not None
    return f"p{getattr(job.slo, f'{metric}_percentile'):g}" if stated else "p99"


def _latency_label(job: ServingJob, metric: str) -> str:
    return f"{metric.upper()} {_percentile(job, metric)}"


def _settings(result: DeploymentResult) -> list[str]:
    """Return the best deployment of each cluster and engine, where there are several."""
    jobs = result.question.jobs
    if len(jobs) < 2:
        return []
    lines = ["best of each cluster and engine"]
    for job in jobs:
        best, name = result.best_of(job), f"  {job.cluster.name}, {job.engine.name}"
        if best is None:
            lines.append(f"{name}: {why_none(result, job)}")
            continue
        first = result.question.named[0]
        value, chosen = first.show(first.exact(best.report).value), best.report.job
        lines.append(f"{name}: {plan_text(chosen)} on {chosen.devices} devices, {first.label} {value}")
    return lines


def why_none(result: DeploymentResult, job: ServingJob) -> str:
    """Return why a cluster and engine have no deployment that keeps up and meets all limits."""
    nearest = [each for each in result.nearest if same_setting(each.report.job, job)]
    if not nearest:
        return "no deployment is possible"
    none = _none_found(any(each.keeps_up for each in nearest))
    return f"{none}; the closest one, {plan_text(nearest[0].report.job)}, {shortfall(nearest[0])}"


def shortfall(each: RankedDeployment) -> str:
    """Return why a deployment is not recommended, as the end of a sentence.

    The reason is the load that it can serve, if the traffic exceeds this load, or else each latency above
    its limit, with the probability that all limits are met nevertheless.
    """
    report = each.report
    if report.saturation_per_s is not None:
        return f"serves at most {report.saturation_per_s:.3g} requests/s"
    broken = [
        f"has a {one.metric.upper()} p{one.percentile:g} of {show_seconds(one.reached_s)}, but the"
        f" limit is {show_seconds(one.limit_s)}"
        for one in report.summary.objectives
        if not one.kept
    ]
    return f"{' and '.join(broken)}; all limits are met with a probability of {report.slo_chance or 0:.0%}"


def _nearest(result: DeploymentResult) -> list[str]:
    """Return the deployments that come closest, if none keeps up."""
    if result.deployments or not result.nearest:
        return []
    return [
        "closest",
        *(
            f"  {each.report.job.engine.name}, {plan_text(each.report.job)}: {shortfall(each)}"
            for each in result.nearest[:NEAREST]
        ),
    ]
