"""What a search shows of whole runs: the limits of the question, and the time and cost of each plan's run.

Answers: which limits do the plans keep, and how long and how dear is the run of each?
Elsewhere: the run itself (economics/run.py), the table of plans (search_table.py).
"""

from collections.abc import Mapping

from flopcast.search.exact import Exact
from flopcast.search.find import SearchResult
from flopcast.search.objectives import OBJECTIVES, run_of
from flopcast.search.question import Question
from flopcast.units import show_seconds, show_usd

TIME, COST = (OBJECTIVES[name].label for name in ("time_to_train", "run_cost"))  # names of columns


def limits_lines(result: SearchResult) -> list[str]:
    """Return a line with the deadline and the budget that were set; none if there are none."""
    limits = result.question.limits
    if not limits:
        return []
    told = " and ".join(f"a {one.name} of {one.objective.show(one.most)}" for one in limits)
    kept = f": every plan in the table keeps {'both' if len(limits) > 1 else 'it'}" if result.plans else ""
    return [f"limits    {told}{kept}"]


def names_of_run(question: Question) -> tuple[str, ...]:
    """Return the names of what is known of whole runs: nothing unless the question has their tokens."""
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
