"""The answer of a search as plain data: JSON, and rows of a table.

Later versions may add keys, but never rename keys.

Answers: which keys can a program rely on that reads the answer of a search?
Elsewhere: what the numbers mean (search/find.py, search/rank.py, search/objectives.py), the same as text
(search_text.py).
"""

from flopcast.economics.run import TrainingRun
from flopcast.render.plain_data import FORMAT_VERSION, fields_of
from flopcast.render.report_json import cost_as_json, factors_as_json, run_as_json
from flopcast.render.search_reasons import (
    broken_rules,
    gap_to_best,
    reason_infeasible,
    reason_no_plan,
    sentence_of,
)
from flopcast.render.search_text import warnings_of
from flopcast.report.metrics import measure
from flopcast.search.find import SearchResult
from flopcast.search.objectives import run_of
from flopcast.search.rank import Ranked
from flopcast.search.settings import Setting
from flopcast.spec.job import Job
from flopcast.units import Number, nine_digits


def as_json(result: SearchResult, top: int, seconds: Number, screening_s: Number) -> dict[str, object]:
    """Return the result of a search as JSON data.

    Parameters
    ----------
    top : int
        The most plans to list; the front is always complete.
    seconds, screening_s : numbers
        The time of the whole search, and of its screening.

    Returns
    -------
    dict
        It contains only text, numbers, booleans, lists and dicts in a fixed order. The same search gives
        the same bytes, except for its times and rates. `nearest_infeasible` holds plans that break a limit
        and would otherwise be better. If no plan is feasible, it holds the nearest plan or the rules that
        this plan breaks. `preferences` holds the plans of the front that are best for a weight of the first
        objective against another objective. `settings` holds every requested cluster, size and stack with
        its `best` plan and the reason `why` it is the best; if `best` is null, `why` states why there is no
        plan.
    """
    plans = result.plans[:top]
    return {
        "format_version": FORMAT_VERSION,
        "objectives": [objective.key for objective in result.question.asked],
        **fields_of(result, "candidates", "possible", "in_memory", "feasible"),
        "screened": result.candidates,
        "screened_per_s": nine_digits(result.candidates / screening_s) if screening_s else 0.0,
        **fields_of(result, "played", "refined"),
        "seconds": nine_digits(seconds),
        "partial": result.partial,
        "front_thinned": result.thinned,
        "warnings": warnings_of(result),
        "assumptions": list(result.question.assumptions),
        "plans": [plan_as_json(one, result, sentence_of(one, result)) for one in plans],
        "pareto": [plan_as_json(one, result, sentence_of(one, result)) for one in result.on_front],
        "preferences": _preferences(result),
        "nearest_infeasible": _nearest(result),
        "settings": [setting_as_json(one, result) for one in result.settings],
        "given": [
            plan_as_json(one, result, gap_to_best(one, result.plans[0], result.question))
            for one in result.given
        ],
    }


def plan_as_json(one: Ranked, result: SearchResult, why: str) -> dict[str, object]:
    """Return one plan with the sentence that explains its rank.

    `run` holds the whole run; it is null if its tokens are unknown, or if it never ends.
    """
    played = one.played
    metrics, run = measure(played.job, played.step_time_s), run_of(played, result.question.total_tokens)
    return {
        "plan": played.plan.model_dump(mode="json"),
        "short": played.plan.short(),
        **_names_of(played.job),
        **fields_of(played, "step_time_s"),
        "low_s": nine_digits(played.step_low_s),
        "high_s": nine_digits(played.step_high_s),
        "tokens_per_s": nine_digits(metrics.tokens_per_s),
        "mfu": nine_digits(metrics.mfu_ratio),
        "peak_memory_bytes": nine_digits(played.device_used_bytes),
        "expected_memory_bytes": nine_digits(played.expected_bytes),
        "high_memory_bytes": nine_digits(played.high_bytes),
        "memory_verdict": played.verdict,
        **cost_as_json(played.cost),
        "run": None if run is None else run_as_json(TrainingRun(phases=(run,))),
        "objectives": _objectives(one, result),
        "ratio_to_best": nine_digits(one.ratio),
        **fields_of(one, "ratio_low", "ratio_high"),
        "equal_to_best": one.equal,
        **fields_of(played, "breakdown"),
        "factors": factors_as_json(played.factors),
        "why": why,
    }


def _objectives(one: Ranked, result: SearchResult) -> dict[str, float]:
    pairs = zip(result.question.asked, one.losses, strict=True)
    return {objective.key: nine_digits(objective.shown(loss.value)) for objective, loss in pairs}


def _preferences(result: SearchResult) -> list[dict[str, object]]:
    """Return for each further objective which plans of the front are best for which weights."""
    first, *others = result.question.asked
    return [
        {
            "of": first.key,
            "against": other.key,
            "plans": [
                {
                    "low_weight": one.low_ratio,
                    "high_weight": one.high_ratio,
                    "short": one.plan.played.plan.short(),
                    **_names_of(one.plan.played.job),
                    "objectives": _objectives(one.plan, result),
                }
                for one in plans
            ],
        }
        for other, plans in zip(others, result.preferences, strict=False)
    ]


def setting_as_json(setting: Setting, result: SearchResult) -> dict[str, object]:
    """Return one cluster, size and stack with its counts, its best plan, and the reason for this plan or
    for having no plan.
    """
    best = setting.best
    why = reason_no_plan(setting, result) if best is None else sentence_of(best, result)
    return {
        **_names_of(setting.job),
        **fields_of(setting, "candidates", "possible", "feasible"),
        "best": None if best is None else plan_as_json(best, result, why),
        "why": why,
    }


def _names_of(job: Job) -> dict[str, object]:
    return {
        "cluster": job.cluster.name,
        "devices": job.cluster.num_devices,
        "stack": job.stack.label,
        "tensor_overlap": job.stack.tensor_overlap,
        "power_limit_w": job.site.power_limit_w,
    }


def _nearest(result: SearchResult) -> list[dict[str, object]]:
    """Return the plans that are not feasible but close to it."""
    if result.rejected is not None:
        plan, problems = result.rejected.plan, result.rejected.problems
        dumped = plan.model_dump(mode="json")
        return [{"plan": dumped, "short": plan.short(), "why": broken_rules(problems)}]
    alone = not result.plans
    return [
        plan_as_json(one, result, reason_infeasible(one, result.question, alone=alone))
        for one in result.nearest
    ]


def as_rows(result: SearchResult) -> list[dict[str, object]]:
    """Return every simulated feasible plan as one flat row, for CSV and Parquet.

    Fields of the plan come first, under their long names; a list is a string with commas. A cluster, size
    and stack without a feasible plan has a row without a rank, and `why` gives the reason.
    """
    on_front = set(result.on_front)
    rows = []
    for rank, one in enumerate(result.plans, 1):
        written = plan_as_json(one, result, sentence_of(one, result))
        plan = {
            name: ",".join(map(str, value)) if isinstance(value, list) else value
            for name, value in one.played.plan.model_dump(mode="json").items()
        }
        numbers = {key: value for key, value in written.items() if not isinstance(value, (dict, list))}
        numbers |= _objectives(one, result)
        rows.append({"rank": rank, **plan, **numbers, "on_front": one in on_front})
    for setting in result.settings:
        if setting.best is None:
            empty: dict[str, object] = dict.fromkeys(rows[0]) if rows else {"rank": None}
            rows.append(empty | _names_of(setting.job) | {"why": reason_no_plan(setting, result)})
    return rows
