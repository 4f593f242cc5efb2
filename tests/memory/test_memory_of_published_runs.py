"""Peak memory against the logs of real runs: GPT-NeoX and DeepSpeed, first pipeline stage."""

import pytest
from all_cases import all_cases

from flopcast.lab.published.suite_files import load_suite
from flopcast.memory.peak import peak_memory
from flopcast.prediction import memory_of
from flopcast.spec.plan import one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

ROWS = load_suite("paper").rows  # arXiv:2509.22832; what the logs print besides, per run
MEASURED = [row for row in ROWS if row.measured.allocated_bytes]
EACH_RUN = pytest.mark.parametrize("row", MEASURED, ids=lambda row: row.id)


def first_stage(row):
    """The run's memory, and the class of its first stage."""
    job = row.job
    programs = realise(lower(job.model, one_plan(job.plan), job.batch), job.stack)
    return peak_memory(programs), int(programs.stages.of(0).stage_class[0])


def test_the_suite_has_runs_whose_logs_print_memory():
    assert len(MEASURED) == 6
    assert all(row.measured.resident_bytes for row in MEASURED)


@EACH_RUN
def test_the_peak_of_the_first_stage_is_the_logged_one_within_6_percent(row):
    memory, first = first_stage(row)

    assert memory.allocated_bytes[0, first] == pytest.approx(row.measured.allocated_bytes, rel=0.06)


@EACH_RUN
def test_what_the_first_stage_keeps_between_steps_is_the_logged_number_within_3_percent(row):
    memory, first = first_stage(row)

    assert memory.resident_bytes[0, first] == pytest.approx(row.measured.resident_bytes, rel=0.03)


@all_cases("row", ROWS)
def test_runs_that_trained_are_found_to_fit(row):
    assert memory_of(row.job).fits


def test_the_runs_rank_by_peak_memory_as_they_were_measured():
    predicted = {row.id: first_stage(row)[0].allocated_bytes[0, first_stage(row)[1]] for row in MEASURED}

    measured = {row.id: row.measured.allocated_bytes for row in MEASURED}
    clearly = [(a, b) for a in measured for b in measured if measured[a] > 1.1 * measured[b]]
    assert clearly
    assert all(predicted[a] > predicted[b] for a, b in clearly)
