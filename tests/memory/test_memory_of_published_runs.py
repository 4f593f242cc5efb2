"""Peak memory against the logs of real runs: GPT-NeoX and DeepSpeed, first pipeline stage."""

from all_cases import all_cases

from flopcast.lab.published.suite_files import load_suite
from flopcast.memory.peak import peak_memory
from flopcast.prediction import memory_of
from flopcast.spec.plan import one_plan
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

ROWS = load_suite("paper").rows  # arXiv:2509.22832; what the logs print besides, per run
MEASURED = [row for row in ROWS if row.measured.allocated_bytes]


def first_stage(row):
    """The run's memory, and the class of its first stage."""
    job = row.job
    programs = realise(lower(job.model, one_plan(job.plan), job.batch), job.stack)
    return peak_memory(programs), int(programs.stages.of(0).stage_class[0])


@all_cases("row", ROWS)
def test_runs_that_trained_are_found_to_fit(row):
    assert memory_of(row.job).fits


def test_the_runs_rank_by_peak_memory_as_they_were_measured():
    predicted = {row.id: first_stage(row)[0].allocated_bytes[0, first_stage(row)[1]] for row in MEASURED}

    measured = {row.id: row.measured.allocated_bytes for row in MEASURED}
    clearly = [(a, b) for a in measured for b in measured if measured[a] > 1.1 * measured[b]]
    assert clearly
    assert all(predicted[a] > predicted[b] for a, b in clearly)
