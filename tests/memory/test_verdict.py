"""The verdict on memory: by hand at its boundaries, and its interval against measured peaks."""

import numpy as np
import pytest
from conftest import make_job

from flopcast.accuracy import validate_memory, validate_runs
from flopcast.lab.published.suite_files import load_suite
from flopcast.library.curves import load_book
from flopcast.memory.peak import fits, peak_memory
from flopcast.memory.verdict import ALLOCATED_HIGH_RATIO, ALLOCATED_LOW_RATIO, verdict
from flopcast.prediction import memory_by_class, memory_of
from flopcast.search.exact import play_each
from flopcast.search.memory_limit import within_memory
from flopcast.spec.plan import Plan, batch_plans
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

BETTER = ("does not fit", "tight", "fits")
PLANS = [Plan(dp=8, mbs=mbs, gbs=64, precision="fp16", zero=1) for mbs in (1, 2, 4, 8)]


def on_device(job, capacity_bytes):
    """The job on devices with so much memory."""
    group = job.cluster.groups[0]
    device = group.node.device.model_copy(update={"memory_bytes": capacity_bytes})
    node = group.node.model_copy(update={"device": device})
    cluster = job.cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})
    return job.model_copy(update={"cluster": cluster})


def test_the_boundaries_belong_to_the_better_verdict():
    cases = [
        ((80.0, 80.0), "fits"),
        ((70.0, np.nextafter(80.0, 81.0)), "tight"),
        ((80.0, 90.0), "tight"),
        ((np.nextafter(80.0, 81.0), 90.0), "does not fit"),
    ]

    wrong = [(sizes, verdict(*sizes, 80.0)) for sizes, right in cases if verdict(*sizes, 80.0) != right]

    assert not wrong


def test_the_interval_is_what_is_allocated_and_cached_with_the_drivers_part():
    job = make_job()
    memory, _ = memory_by_class(job)
    report = memory_of(job)
    software = job.stack.memory
    allocated, driver = (
        memory.allocated_bytes[0].max(),
        report.expected_bytes - memory.allocated_bytes[0].max(),
    )

    assert driver >= software.context_bytes
    assert report.low_bytes == pytest.approx(allocated * np.exp(-1.6449 * 0.033) + driver)
    high = allocated * np.exp(1.6449 * 0.033) * (1 + software.fragmentation_fraction) + driver
    assert report.high_bytes == pytest.approx(high)


def test_a_larger_device_never_gets_a_worse_verdict_and_meets_all_three():
    job = make_job()
    need = memory_of(job)

    found = [
        memory_of(on_device(job, part * need.expected_bytes)).verdict for part in np.linspace(0.9, 1.3, 21)
    ]

    places = [BETTER.index(each) for each in found]
    assert places == sorted(places)
    assert set(places) == {0, 1, 2}


def test_one_plan_gets_the_same_verdict_from_predict_search_and_a_batch_of_plans():
    wrong = []
    needs = [memory_of(make_job(plan=plan.short())).expected_bytes for plan in PLANS]
    job = make_job()
    for capacity_bytes in (needs[0] * 1.02, needs[1] * 1.02, needs[2] * 1.3):
        here = on_device(job, capacity_bytes)
        jobs = [here.model_copy(update={"plan": plan}) for plan in PLANS]
        batch = peak_memory(realise(lower(here.model, batch_plans(PLANS), here.batch), here.software))
        played = dict(play_each(jobs, load_book))
        for place, one in enumerate(jobs):
            alone = memory_of(one)
            searched = bool(within_memory(batch, here.cluster, None)[place].all())
            same = (
                played[place].verdict == alone.verdict,
                searched == (alone.verdict == "fits"),
                bool(fits(batch, here.cluster)[place]) == alone.fits,
                batch.high_bytes[place].max() == alone.high_bytes,
                batch.low_bytes[place].max() == alone.low_bytes,
            )
            wrong += [] if all(same) else [(capacity_bytes, one.plan.short(), same)]

    assert not wrong


def held(rows):
    """The share of measured peaks inside the 90 % interval of what is allocated; (measured, predicted)."""
    ratio = np.array([measured / predicted for measured, predicted in rows])
    return ((ratio >= ALLOCATED_LOW_RATIO) & (ratio <= ALLOCATED_HIGH_RATIO)).mean()


def test_the_interval_holds_nine_of_ten_logged_peaks_of_other_software():
    rows = [row for row in load_suite("paper").rows if row.measured.allocated_bytes]
    peaks = []
    for row in rows:
        memory, stage_class = memory_by_class(row.job)
        peaks.append((row.measured.allocated_bytes, memory.allocated_bytes[0, stage_class[0]]))
    peaks += [(row.measured_bytes, row.predicted_bytes) for row in validate_memory("memory")]

    assert len(peaks) == 16
    assert held(peaks) >= 0.9


def test_the_interval_holds_nine_of_ten_functional_tests_of_megatron(shared):
    rows, _ = validate_runs(shared / "validation" / "megatron_functional_8gpu.csv")

    assert held([(row.measured_bytes, row.predicted_bytes) for row in rows]) >= 0.9


def test_the_interval_holds_nine_of_ten_published_peaks_of_rows_that_say_everything(published_runs):
    rows = [
        row
        for row in published_runs.judged("catalogue").rows
        if row.measured_memory_bytes is not None and row.run.fully_specified
    ]

    assert len(rows) >= 20
    assert held([(row.measured_memory_bytes, row.predicted_memory_bytes) for row in rows]) >= 0.9
