"""Published runs judged: errors, the trivial model, rows that count once, rows that no device could run."""

import math

import pytest
from conftest import make_job
from made_up_runs import JOB, judged, run

from flopcast.api import predict
from flopcast.errors import Problem, SpecError
from flopcast.lab.validation.published import compare_each, ideal_s
from flopcast.lab.validation.published_statistics import of_rows, reasons, worst
from flopcast.lab.validation.run import measured_step_time_s
from flopcast.render.published_tables import runs_as_json
from flopcast.render.published_text import runs_as_text

PEAK = 8 * 312e12  # data sheet of the A100, fp16


def forward_flop(job):
    """Products of one forward by hand: 12 h² a block and token, scores, head."""
    hidden, length, layers, vocabulary = 1024, 1024, 8, 50257
    block = 2 * 12 * hidden**2 + 4 * length * hidden
    return job.plan.global_batch * length * (layers * block + 2 * hidden * vocabulary)


def test_a_printed_step_time_is_taken_as_it_is():
    assert measured_step_time_s(*run(step_time_s=1.5, device_tokens_per_s=1.0)) == (1.5, "")


def test_a_rate_of_tokens_gives_the_step_of_the_global_batch():
    """16 sequences of 1024 tokens on 8 devices."""
    assert measured_step_time_s(*run(device_tokens_per_s=4096.0)) == (0.5, "")


def test_a_rate_of_flop_gives_the_step_by_the_convention_that_is_named():
    seconds, told = measured_step_time_s(*run(device_flop_per_s=1e14, attention="full"))

    assert told == ""
    assert seconds == pytest.approx(3 * forward_flop(JOB) / 8e14)


def test_a_rate_of_hardware_flop_counts_what_runs_again():
    """Full recompute: a fourth forward of all blocks, not of the head (arXiv:2104.04473, equation 3)."""
    job = make_job(plan="dp=8 mbs=1 gbs=16 recompute=full precision=fp16")
    head = 16 * 1024 * 2 * 1024 * 50257

    seconds, _ = measured_step_time_s(
        *run(job=job, device_flop_per_s=1e14, attention="full", flop_convention="hardware")
    )

    assert seconds == pytest.approx((4 * forward_flop(job) - head) / 8e14)


def test_a_convention_that_is_not_named_is_an_assumption():
    _, told = measured_step_time_s(*run(device_flop_per_s=1e14))

    assert "full attention" in told


def test_a_row_without_any_time_is_left_out():
    published = judged([run(memory_bytes=1e9)])

    assert published.rows == ()
    assert "no measured time" in published.left_out[0].reasons[0]


@pytest.mark.parametrize("seconds", [1e-3, 1e3])
def test_a_step_that_no_device_reaches_is_left_out(seconds):
    published = judged([run(step_time_s=seconds)])

    assert "of their peak rate" in published.left_out[0].reasons[0]


def test_a_step_that_would_recompute_above_the_peak_rate_is_left_out():
    """At 0.9 of the peak rate, a third more FLOP of full recompute do not fit into the step."""
    whole = JOB.plan.model_copy(update={"recompute": "full"})
    seconds = 3 * forward_flop(JOB) / PEAK / 0.9

    assert judged([run(step_time_s=seconds)]).rows
    assert not judged([run(job=JOB.model_copy(update={"plan": whole}), step_time_s=seconds)]).rows


def test_the_error_is_predicted_over_measured_less_one():
    seconds = predict(JOB).step_time_s

    (row,) = judged([run(step_time_s=seconds / 1.25)]).rows

    assert row.relative_error == pytest.approx(0.25)


def test_the_trivial_model_is_flop_over_peak_stretched_by_the_bubble():
    """Two stages and 8 micro-batches: a bubble of one eighth."""
    job = make_job(plan="dp=4 pp=2 mbs=1 gbs=32 precision=fp16")

    assert ideal_s(job) == pytest.approx(3 * forward_flop(job) / PEAK * 9 / 8)


def test_the_trivial_model_is_exact_on_runs_of_one_efficiency():
    """Half of the work in half of the time; predictions are not, as they know of more than FLOP."""
    half = make_job(plan="dp=8 mbs=1 gbs=8 precision=fp16")

    found = of_rows(judged([run(), run("other", job=half, step_time_s=0.05)]).rows)

    assert found["trivial_mape"] == pytest.approx(0.0, abs=1e-9)
    assert found["trivial_efficiency"] == pytest.approx(3 * forward_flop(JOB) / PEAK / 0.1)


def test_a_run_of_two_tables_counts_once():
    printed, rounded = [run("a")], [run("b", step_time_s=0.10004), run("c", step_time_s=0.11)]

    published = judged(printed, rounded)

    assert [row.run.id for row in published.rows] == ["a", "c"]
    assert published.twice == ("b",)


def test_repeats_inside_of_one_table_are_runs_of_their_own():
    assert len(judged([run("a"), run("b")]).rows) == 2


def test_a_refused_row_is_listed_with_every_reason():
    problems = [
        Problem(field=field, value=1, allowed="", because=f"no {field}", fix="")
        for field in ("plan", "model")
    ]

    published = judged([run("a"), run("b", job=SpecError(problems))])

    assert published.left_out[0].reasons == ("plan: no plan", "model: no model")
    assert reasons(published.left_out) == {("made-up", "plan: no plan; model: no model"): 1}


def test_a_row_that_is_no_run_is_listed_once_with_all_of_its_faults():
    faults = [
        Problem(where="t.csv:7", field=name, value="x", allowed="", because="text", fix="")
        for name in ("tp", "pp")
    ]

    published = judged(broken=faults)

    assert [row.where for row in published.left_out] == ["t.csv:7"]
    assert len(published.left_out[0].reasons) == 2


def test_what_could_not_be_read_is_listed_by_file_and_line():
    fault = Problem(where="folder/t.csv:7", field="tp", value="x", allowed="", because="text", fix="")

    published = judged(broken=[fault])

    assert list(reasons(published.left_out)) == [("t.csv:7", "tp = 'x': text")]


def test_a_step_that_cannot_be_is_refused_before_it_is_predicted():
    """A batch in tokens would be played for hours."""
    asked = []

    compare_each([[run("a", step_time_s=1e-9)[0]]], lambda _: JOB, asked.append, 1)

    assert asked == []


def test_equal_jobs_are_predicted_once_whatever_they_assume():
    asked = []
    other = JOB.model_copy(update={"assumptions": ("a guess",)})
    runs = {"a": JOB, "b": other}

    def counted(job):
        asked.append(job)
        return (predict(job),)

    compare_each([[run(name)[0] for name in runs]], lambda one: runs[one.id], counted, 1)

    assert len(asked) == 1


def test_a_run_that_cannot_fit_is_counted_and_told_with_what_fills_it():
    """GPT-3 175B on 8 devices of 80 GB needs its 2.8 TB of states and weights."""
    job = make_job(model="gpt3-175b", plan="tp=8 mbs=1 gbs=1 precision=fp16", batch={"seq": 2048})

    published = judged([run("big", job=job, step_time_s=5.0)])

    assert of_rows(published.rows)["do_not_fit"] == 1
    assert (
        "runs that fitted into memory, but are predicted not to fit: 1 of 1"
        " (100.0%, above the target of 2%)" in runs_as_text(published)
    )
    assert runs_as_json(published)["does_not_fit"][0]["used_fraction"] > 2.8e12 / 8 / 80e9


def test_the_worst_rows_are_those_furthest_off_by_ratio():
    """Half of the measured time is as far off as twice."""
    seconds = predict(JOB).step_time_s
    rows = judged([run("near", step_time_s=seconds / 1.4), run("far", step_time_s=seconds * 2)]).rows

    assert [row.run.id for row in worst(rows)] == ["far", "near"]


def test_tables_without_a_row_that_can_be_predicted_are_still_told():
    text = runs_as_text(judged([run(memory_bytes=1e9)]))

    assert "rows that are not predicted: 1" in text


def test_errors_of_memory_are_those_of_rows_that_print_it():
    allocated = predict(JOB).memory.allocated_bytes
    rows = judged([run("a", step_time_s=0.1, memory_bytes=allocated / 1.1), run("b")]).rows

    found = of_rows(rows)

    assert found["memory_rows"] == 1
    assert found["memory_median"] == pytest.approx(0.1)


def test_a_peak_is_compared_with_the_prediction_of_what_its_unit_counts():
    memory = predict(JOB).memory
    counted = {
        "GiB": memory.allocated_bytes,
        "GiB reserved": memory.reserved_bytes,
        "GiB, nvidia-smi": memory.device_used_bytes,
    }

    rows = judged(
        [run(unit, step_time_s=0.1, memory_bytes=size, memory_unit=unit) for unit, size in counted.items()]
    ).rows

    assert [row.memory_error for row in rows] == [0.0, 0.0, 0.0]
    assert len(set(counted.values())) == 3


def test_rates_of_the_whole_job_give_the_step_of_the_global_batch():
    """16 sequences of 1024 tokens."""
    assert measured_step_time_s(*run(tokens_per_s=32768.0)) == (0.5, "")
    assert measured_step_time_s(*run(sequences_per_s=32.0)) == (0.5, "")


@pytest.fixture(scope="module")
def real(published_runs):
    return published_runs.judged()


def test_no_row_of_the_real_table_is_dropped_silently(real):
    assert len(real.rows) + len(real.left_out) == 1016
    assert len(real.rows) >= 620
    assert sum("only training" in row.reasons[0] for row in real.left_out) == 151


def test_sources_whose_rows_say_everything_are_met_without_a_constant_of_theirs(real):
    """No constant was tuned on these rows but on those of Korthikanti's kernels alone."""
    within = {"korthikanti-2022": 0.04, "internevo": 0.10, "vtrain-measured": 0.15, "nemo-longseq": 0.12}
    rows = {source: [row for row in real.rows if row.run.source == source] for source in within}

    found = {source: of_rows(members) for source, members in rows.items()}

    assert {s: round(f["mape"], 3) for s, f in found.items() if f["mape"] > within[s]} == {}


def test_the_whole_is_nearer_than_one_efficiency_for_all(real):
    found = of_rows(real.rows)

    assert found["mape"] < found["trivial_mape"]


def test_every_assumption_of_the_real_rows_has_a_reason(real):
    told = {text for row in real.rows for text in row.assumptions}

    assert all(":" in text or "FLOP/s" in text or "does not use the column" in text for text in told)
    assert all(math.isfinite(row.ideal_s) for row in real.rows)
