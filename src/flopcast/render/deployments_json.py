"""The answer of a search of serving as plain data: JSON, and rows of a table.

Elsewhere: the same as text (deployments_text.py), one prediction of serving (serving_json.py).
"""

from flopcast.render.deployments_text import shortfall, why_none
from flopcast.render.plain_data import FORMAT_VERSION, unrounded
from flopcast.render.serving_json import estimate_as_json, limits_as_json
from flopcast.render.serving_text import plan_text
from flopcast.search.deployments.find import DeploymentResult, RankedDeployment
from flopcast.search.deployments.objectives import SERVING_OBJECTIVES
from flopcast.units import Number, nine_digits


def as_json(result: DeploymentResult, top: int, seconds: Number) -> dict[str, object]:
    """Return the result as JSON data.

    Parameters
    ----------
    result : DeploymentResult
    top : int
        Most deployments to list; the front ("pareto") is always complete.
    seconds : Number
        How long the search took.
    """
    question = result.question
    return {
        "format_version": FORMAT_VERSION,
        "objectives": [objective.key for objective in question.asked],
        "model": question.jobs[0].model.name,
        "traffic": question.jobs[0].traffic.text(),
        "slo": question.jobs[0].slo.text(),
        **unrounded(result, "candidates", "possible", "simulated", "requests"),
        "seconds": nine_digits(seconds),
        "partial": result.partial,
        "deployments": [deployment_as_json(each, result) for each in result.deployments[:top]],
        "pareto": [deployment_as_json(each, result) for each in result.deployments if each.on_front],
        "nearest": [
            deployment_as_json(each, result) | {"why": shortfall(each)} for each in result.nearest[:top]
        ],
        "fewer_bits": deployment_as_json(result.fewer_bits, result) if result.fewer_bits else None,
        "settings": [
            {
                "cluster": job.cluster.name,
                "engine": job.engine.name,
                "best": deployment_as_json(best, result) if best is not None else None,
                "why": "" if best is not None else why_none(result, job),
            }
            for job in question.jobs
            for best in (result.best_of(job),)
        ],
        "assumptions": list(dict.fromkeys(text for job in question.jobs for text in job.assumptions)),
    }


def deployment_as_json(each: RankedDeployment, result: DeploymentResult) -> dict[str, object]:
    """Return one deployment with its objectives, each with its interval.

    Objectives that need a price are left out if no cluster of the question has one. Latencies are those of
    all metrics and statistics, in seconds, with their intervals.
    """
    report, job = each.report, each.report.job
    objectives = [
        one for one in SERVING_OBJECTIVES.values() if result.question.priced or not one.needs_price
    ]
    return {
        "plan": plan_text(job),
        "cluster": job.cluster.name,
        "engine": job.engine.name,
        "devices": job.devices,
        "keeps_up": each.keeps_up,
        "tied": each.tied,
        **limits_as_json(report),
        **{one.key: estimate_as_json(one.exact(report)) for one in objectives},
        "latencies_s": {
            metric: {name: estimate_as_json(value) for name, value in found.items()}
            for metric, found in report.latencies.items()
        },
        "limited_by": report.limited_by,
    }


def as_rows(result: DeploymentResult) -> list[dict[str, object]]:
    """Return a flat row for each simulated deployment, for CSV and Parquet.

    An objective becomes three columns: its value, and the ends of its interval with the suffixes `_low` and
    `_high`. A latency becomes one column for each metric and statistic, such as `ttft_p99_s`.
    """
    rows = []
    for each in (*result.deployments, *result.nearest):
        data = deployment_as_json(each, result)
        row: dict[str, object] = {}
        for key, value in data.items():
            if key in ("latencies_s", "limits"):
                continue
            row |= (
                {key: value["value"], f"{key}_low": value["low"], f"{key}_high": value["high"]}
                if isinstance(value, dict)
                else {key: value}
            )
        for metric, found in each.report.latencies.items():
            row |= {f"{metric}_{name}_s": nine_digits(value.value) for name, value in found.items()}
        rows.append(row)
    return rows
