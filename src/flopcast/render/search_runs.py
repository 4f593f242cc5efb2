"""What a search shows about whole runs: the limits, and the time and cost of a run with each plan.

Answers: which limits do the plans meet, and how long and how expensive is a run with each plan?
Elsewhere: the run itself (economics/run.py), the table of plans (search_table.py).
"""

import math
from collections.abc import Mapping
from statistics import NormalDist

from flopcast.search.exact import Exact
from flopcast.search.find import SearchResult
from flopcast.search.objectives import OBJECTIVES, run_of
from flopcast.search.question import Limit, Question
from flopcast.units import Number, show_seconds, show_usd

TAIL = 0.05  # above the 90 % interval
INTERVAL_SIGMAS = NormalDist().inv_cdf(1.0 - TAIL)
TIME, COST = (OBJECTIVES[name].label for name in ("time_to_train", "run_cost"))  # names of columns


def limits_lines(result: SearchResult) -> list[str]:
    """Return a line with the deadline and the budget, or no line if neither is set.

    The lines state whether every plan of the table keeps the limits with its whole interval, and which
    limits the first plan may exceed.
    """
    limits = result.question.limits
    if not limits:
        return []
    told = " and ".join(f"a {one.name} of {one.objective.show(one.most)}" for one in limits)
    if result.plans:
        all_keep = all(not risk_text(one.played, result.question) for one in result.plans)
        sure = " with its whole 90 % interval" if all_keep else ", but not with its whole 90 % interval"
        first = risk_text(result.plans[0].played, result.question)
        which = "both" if len(limits) > 1 else "it"
        told += f": every plan in the table meets {which}{sure}"
        told += f"; plan 1 {first}" if first else ""
    return [f"limits    {told}"]


def risk_text(played: Exact, question: Question) -> str:
    """Return the limits inside the 90 % interval of a plan, with the probability to exceed each limit.

    The text is "" if the whole interval of the plan is within every limit.
    """
    risks = ((limit, chance_to_miss(limit, played, question.total_tokens)) for limit in question.limits)
    texts = [f"the {one.name} with a probability of {chance:.0%}" for one, chance in risks if chance > TAIL]
    return f"misses {' and '.join(texts)}" if texts else ""


def chance_to_miss(limit: Limit, played: Exact, total_tokens: Number) -> float:
    """Return the probability that a plan exceeds a limit: its loss is log-normal."""
    loss = limit.objective.exact(played, total_tokens)
    sigma = math.log(loss.bounds[1] / loss.value) / INTERVAL_SIGMAS
    margin = math.log(limit.most / loss.value)
    return NormalDist().cdf(-margin / sigma) if sigma > 0.0 else float(margin < 0.0)


def names_of_run(question: Question) -> tuple[str, ...]:
    """Return the names of the known properties of whole runs; empty if their tokens are unknown."""
    if not question.total_tokens:
        return ()
    priced = any(job.cluster.price is not None for job in question.jobs)
    return (TIME, COST) if priced else (TIME,)


def run_values(played: Exact, question: Question) -> Mapping[str, str]:
    """Return the time and the cost of a plan's whole run by name; "never ends" if its cluster fails too
    often."""
    run = run_of(played, question.total_tokens)
    if run is None:
        return {TIME: "never ends", COST: "unknown"}
    return {
        TIME: show_seconds(run.wall_s.value),
        COST: "unknown" if run.usd is None else show_usd(run.usd.value),
    }
