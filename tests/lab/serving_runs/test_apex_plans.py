"""The best plans of APEX (arXiv:2411.17651): which one serves each of its traces with the least latency.

Measured runs of vLLM and SGLang on eight H100 (data/serving/apex_h100_mistral.csv; its traces of
summarization have no arrivals there). No constant was fitted on them. Their energy was not measured.
"""

from collections import defaultdict

import pytest

from flopcast.lab.measured_tables import SERVING
from flopcast.lab.serving_runs.score import score_runs


def places_of(job):
    """The trace, engine and label that plans are compared for, and the degrees of one of them."""
    trace, file = job.traffic.trace.split(" of ")
    return (trace, job.engine.name, "fp8" in file), (job.plan.tensor_parallel, job.plan.expert_parallel)


@pytest.fixture(scope="module")
def latencies_s(shared):
    """Sums of latencies, measured and predicted, by trace, engine and formats, then by degrees."""
    runs = defaultdict(lambda: defaultdict(list))
    for run in SERVING.read(shared / "data" / "serving" / "apex_h100_mistral.csv"):
        if run.job is not None:
            group, degrees = places_of(run.job)
            runs[group][degrees].append(run)
    several = [each for plans in runs.values() if len(plans) > 1 for own in plans.values() for each in own]
    found = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for row in score_runs(several).rows:
        if row.measured.quantity == "sum_latency_s":
            group, degrees = places_of(row.run.job)
            found[group][degrees][0] += row.measured.value
            found[group][degrees][1] += row.predicted.value
    assert len(found) == 10
    return found


def test_the_best_plan_of_each_trace_is_found_and_all_plans_are_in_the_measured_order(latencies_s):
    """Regret is 0: traces of vLLM with three plans (four) or two (two), and of SGLang with two (four)."""
    for trace, plans in latencies_s.items():
        measured = sorted(plans, key=lambda plan: plans[plan][0])
        predicted = sorted(plans, key=lambda plan: plans[plan][1])

        assert predicted == measured, trace
