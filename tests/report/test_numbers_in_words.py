"""Numbers in sentences and tables, read back by the words around them: each is that of the report."""

import re
from functools import cache

import pytest
from all_cases import all_cases
from conftest import make_job
from sample_reports import PARTS, report_of, sample_report
from unmarked import unmarked

from flopcast.library.curves import load_book
from flopcast.quantities import parse_tokens
from flopcast.render.comparison import rows_of, verdicts
from flopcast.render.explanation import marked_text as marked_explained_text
from flopcast.render.training_run import as_json as run_json
from flopcast.render.training_run import marked_text as marked_run_text
from flopcast.report import events as event_rows
from flopcast.report.events import events
from flopcast.report.explain.explanation import with_unit
from flopcast.report.explain.registry import explain, explainable
from flopcast.report.labels import component_label
from flopcast.report.training import training
from flopcast.report.versus import versus
from flopcast.spec.operations import Price, Reliability

explained_text = unmarked(marked_explained_text)
run_text = unmarked(marked_run_text)

PREFIXES = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
TIMES_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
DOLLARS = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}
CLOSE = 0.006  # of a number that is shown with three digits


def seconds_in(text):
    """The first duration in a text."""
    number, prefix, unit = re.search(r"([\d.]+) ([nµm]?)(s|min|h|d)\b", text).groups()
    return float(number) * (PREFIXES[prefix] if unit == "s" else 1.0) * TIMES_S[unit]


def amount_in(text, unit):
    """The first amount of a unit."""
    number, prefix = re.search(rf"([\d.]+) ([nµmkMGTP]?){unit}\b", text).groups()
    return float(number) * PREFIXES[prefix]


def usd_in(text):
    number, scale = re.search(r"\$([\d.,]+)(?: ([MBT]))?", text).groups()
    return float(number.replace(",", "")) * DOLLARS[scale or ""]


@cache
def priced_report(usd, plan, cluster="dgx-a100:1"):
    job = make_job(plan=plan, cluster=cluster)
    price = {"price": Price(device_usd_per_hour=usd)}
    return report_of(job.model_copy(update={"cluster": job.cluster.model_copy(update=price)}))


PLAIN = priced_report(2.0, "dp=8 mbs=1 gbs=16 precision=fp16")
OTHERS = {
    "recomputed": priced_report(2.0, "dp=8 mbs=1 gbs=16 recompute=full precision=fp16"),
    "cheaper": priced_report(0.5, "dp=8 mbs=1 gbs=16 precision=fp16"),
    "larger batch": priced_report(3.0, "dp=8 mbs=2 gbs=256 precision=fp16"),
    "pipeline": priced_report(2.0, "dp=2 pp=4 mbs=1 gbs=16 precision=fp16"),
    "more nodes": priced_report(2.0, "dp=32 mbs=1 gbs=32 precision=fp16", "dgx-a100:4"),
}


def per_token(report):
    """Seconds, dollars and joules of a token."""
    tokens = report.job.step_tokens
    return (
        report.step_time_s / tokens,
        report.cost.step_usd.value / tokens,
        report.cost.energy.step_j.value / tokens,
    )


@all_cases("name", OTHERS)
@all_cases("turned", [False, True])
def test_a_verdict_tells_by_how_much_and_in_which_direction(name, turned):
    pair = (OTHERS[name], PLAIN) if turned else (PLAIN, OTHERS[name])
    ratios = [second / first for first, second in zip(*map(per_token, pair), strict=True)]

    *sentences, difference = verdicts(versus(*pair))

    assert "than training" in difference
    for sentence, ratio in zip(sentences, ratios, strict=True):
        first, less, last, word = re.search(
            r"90 %: ([\d.]+)%( less)? to ([\d.]+)% (less|more)", sentence
        ).groups()
        low, high = sorted(
            (
                float(first) * (-1 if less or word == "less" else 1),
                float(last) * (1 if word == "more" else -1),
            )
        )
        assert low <= 100 * (ratio - 1) + 0.051
        assert high >= 100 * (ratio - 1) - 0.051
        change = re.search(r"B \w+ ([\d.]+)% (less|more)", sentence)
        if change is None:
            assert re.search("uncertain|as long|the same", sentence)
            continue
        signed = float(change[1]) * (1 if change[2] == "more" else -1)
        assert signed == pytest.approx(100 * (ratio - 1), abs=0.051)


@all_cases("name", OTHERS)
def test_a_table_of_two_holds_the_numbers_of_each(name):
    reports = (PLAIN, OTHERS[name])
    rows = {row[0]: row[1:] for row in rows_of(versus(*reports))}

    for column, report in enumerate(reports):
        step, metrics, cost = report.step_time_s, report.metrics, report.cost
        assert seconds_in(rows["step"][column]) == pytest.approx(step, rel=CLOSE)
        assert amount_in(rows["rate"][column], "tokens/s") == pytest.approx(
            report.job.step_tokens / step, rel=CLOSE
        )
        each = report.job.step_tokens / step / report.job.cluster.num_devices
        assert amount_in(rows["per device"][column], "tokens/s") == pytest.approx(each, rel=CLOSE)
        assert float(rows["MFU"][column].rstrip("%")) == pytest.approx(100 * metrics.mfu_ratio, abs=0.051)
        many = 1e12 / report.job.step_tokens
        assert usd_in(rows["cost of 1e12 tokens"][column]) == pytest.approx(
            many * cost.step_usd.value, rel=CLOSE
        )
        watt_hours = many * cost.energy.step_j.value / 3600
        assert amount_in(rows["energy of 1e12 tokens"][column], "Wh") == pytest.approx(
            watt_hours, rel=CLOSE
        )


@all_cases("name", OTHERS)
def test_components_of_two_stand_by_how_much_they_differ_the_most_first(name):
    parts = [report.breakdown for report in (PLAIN, OTHERS[name])]
    told_rows = [row for row in rows_of(versus(PLAIN, OTHERS[name])) if row[0].startswith("  ")]

    assert not [row[0] for row in told_rows if "_" in row[0]]
    keys = {component_label(key): key for part in parts for key in part}
    names = [keys[row[0].strip()] for row in told_rows]
    gaps = [abs(parts[0].get(each, 0.0) - parts[1].get(each, 0.0)) for each in names]
    assert gaps == sorted(gaps, reverse=True)
    for each, row in zip(names, told_rows, strict=True):
        for own, cell in zip(parts, row[1:], strict=True):
            seconds = own.get(each, 0.0)
            assert (seconds_in(cell) if seconds else 0.0) == pytest.approx(seconds, rel=CLOSE)
    steps = [PLAIN.step_time_s, OTHERS[name].step_time_s]
    left_out = {each for own in parts for each in own if own[each] > 0.0051 * max(steps)} - set(names)
    assert not left_out


FAILING = Reliability(device_time_between_failures_s=8 * 7200.0, restart_s=600.0, checkpoint_s=30.0)


def failing(report):
    cluster = report.job.cluster.model_copy(update={"reliability": FAILING})
    return report_of(report.job.model_copy(update={"cluster": cluster}))


@cache
def run():
    """Two phases on a cluster that fails every two hours."""
    phases = (("ramp", 2e9), ("main", 4e10))
    reports = (failing(PLAIN), failing(OTHERS["larger batch"]))
    return training(
        [(name, tokens, report) for (name, tokens), report in zip(phases, reports, strict=True)]
    )


def line_of(text, word):
    (found,) = [line for line in text.splitlines() if line.startswith(word)]
    return found


def test_the_text_of_a_run_holds_its_numbers():
    made, text = run().run, run_text(run())

    tokens = line_of(text, "tokens").removeprefix("tokens").split(" in ")[0]
    assert parse_tokens(tokens) == pytest.approx(4.2e10, rel=CLOSE)
    steps = 2e9 / (16 * 1024) + 4e10 / (256 * 1024)
    told_steps = re.search(r"in ([\d,]+) steps", text)[1]
    assert float(told_steps.replace(",", "")) == pytest.approx(steps, abs=1)
    assert seconds_in(line_of(text, "time")) == pytest.approx(made.wall_s.value, rel=CLOSE)
    goodput = line_of(text, "goodput")
    assert float(re.search(r"([\d.]+)%", goodput)[1]) == pytest.approx(100 * made.goodput[0], abs=0.051)
    failures = line_of(text, "failures")
    stopped = float(re.search(r"([\d.e+]+) expected interruptions", failures)[1])
    assert stopped == pytest.approx(made.wall_s.value / 7200, rel=CLOSE)
    assert seconds_in(failures.partition("one every")[2]) == 7200
    checkpoint = failures.partition("a checkpoint every")[2]
    assert seconds_in(checkpoint) == pytest.approx(made.phases[0].lost.interval_s, rel=CLOSE)
    assert usd_in(line_of(text, "cost")) == pytest.approx(made.usd.value, rel=CLOSE)
    assert amount_in(line_of(text, "energy"), "Wh") == pytest.approx(made.joules.value / 3600, rel=CLOSE)


def test_each_phase_has_a_line_of_its_own_numbers():
    text = run_text(run())

    for name, report, tokens, usd in (
        ("ramp", run().reports[0], 2e9, 2.0),
        ("main", run().reports[1], 4e10, 3.0),
    ):
        line = line_of(text, name)
        wall_s = tokens / report.job.step_tokens * report.step_time_s * run().run.phases[0].lost.wall.value
        durations = re.findall(r"[\d.]+ (?:[nµm]?s|min|h|d)\b", line)
        assert seconds_in(durations[0]) == pytest.approx(report.step_time_s, rel=CLOSE)
        assert seconds_in(durations[1]) == pytest.approx(wall_s, rel=CLOSE)
        assert usd_in(line) == pytest.approx(wall_s / 3600 * 8 * usd, rel=CLOSE)
        assert report.job.plan.short() in line


def test_the_data_of_a_run_are_its_numbers_in_the_units_of_their_keys():
    made, data = run().run, run_json(run())

    assert data["days"] * 86400 == pytest.approx(made.wall_s.value)
    assert data["energy_kwh"] * 3.6e6 == pytest.approx(made.joules.value)
    assert data["cost_usd"] == pytest.approx(made.usd.value)
    assert data["interruptions"] == pytest.approx(made.wall_s.value / 7200)
    assert (data["goodput_low"], data["goodput_high"]) == pytest.approx(made.goodput[1:])
    for key in ("days", "cost_usd", "energy_kwh"):
        assert data[f"{key}_low"] < data[key] < data[f"{key}_high"]
        assert sum(phase[key] for phase in data["phases"]) == pytest.approx(data[key])
    for phase, report in zip(data["phases"], run().reports, strict=True):
        useful = phase["steps"] * report.step_time_s
        assert phase["tokens"] == pytest.approx(phase["steps"] * report.job.step_tokens)
        assert phase["step_time_s"] == pytest.approx(report.step_time_s)
        assert phase["goodput"] == pytest.approx(useful / phase["days"] / 86400)
        assert phase["hours_between_interruptions"] == pytest.approx(2)
        assert phase["price"]["device_usd_per_hour"] == report.job.cluster.price.device_usd_per_hour


def test_what_the_days_hang_on_is_told_as_share_times_sigma():
    text = run_text(run())

    lines = text.partition("(share × sigma)\n")[2].splitlines()
    shares = {factor.name: factor for factor in run().run.wall_s.factors}
    told_widths = []
    for line in lines[:3]:
        name, share, sigma, wide = re.match(r"\s+(\S.*?)\s+(-?\d+)% × (\d+)% = ([\d.]+)%", line).groups()
        factor = shares[name]
        assert float(share) == pytest.approx(100 * factor.share, abs=0.51)
        assert float(sigma) == pytest.approx(100 * factor.log_sigma_factor, abs=0.51)
        told_widths.append(float(wide))
        assert float(wide) == pytest.approx(100 * abs(factor.share) * factor.log_sigma_factor, abs=0.051)
    assert told_widths == sorted(told_widths, reverse=True)


@all_cases("name", PARTS)
def test_a_bubble_is_told_beside_the_one_of_equal_stages(name):
    report = sample_report(name)
    if "pipeline_bubble" not in report.breakdown:
        assert report.job.plan.pipeline_parallel == 1
        return

    found = explain(report, load_book(report.job.cluster), {}, "pipeline_bubble")

    plan = report.job.plan
    stages, chunks, number = plan.pipeline_parallel, plan.virtual_stages, plan.num_micro_batches
    (ideal,) = [each.text for each in found.inputs if each.name.startswith("(p")]
    assert float(ideal.split()[0]) == pytest.approx((stages - 1) / chunks / number, rel=1e-3)
    assert found.amount == pytest.approx(report.timeline.bottleneck_waits_s)


@pytest.mark.parametrize("name", ["one stage", "batched"])
def test_executions_times_one_of_them_are_what_an_operator_takes(name):
    report = sample_report(name)
    book = load_book(report.job.cluster)
    checked = 0

    for operator in explainable(report, book, {})["operators"]:
        found = explain(report, book, {}, operator)
        for leaf in found.parts or (found,):
            times, one = re.match(r"([\d.e+-]+) × ([^,]+),", leaf.note).groups()
            if leaf.amount:
                assert float(times) * seconds_in(one) == pytest.approx(leaf.amount, rel=CLOSE)
                checked += 1
            else:
                assert float(times) == 0
            assert with_unit(leaf.amount, "s") in explained_text(leaf).splitlines()[0]

    assert checked > 10


@all_cases(
    ("amount", "unit", "text"),
    [
        (0.0125, "s", "12.5 ms"),
        (3 * 86400, "s", "3.00 d"),
        (2.5 * 2**30, "B", "2.50 GiB"),
        (0.41237, "", "0.4124"),
    ],
)
def test_an_explained_number_has_its_unit(amount, unit, text):
    assert with_unit(amount, unit) == text


@pytest.mark.parametrize("most", [400, 1500])
def test_of_a_long_step_the_first_and_last_micro_batches_are_shown_in_full(monkeypatch, most):
    monkeypatch.setattr(event_rows, "MOST_INSIDE", most)
    report = report_of(make_job(plan="dp=4 pp=2 gbs=160 precision=fp16"))

    rows = list(events(report))

    inside = {(row.stage, row.micro_batch) for row in rows if row.layer >= 0}
    shown = sorted({number for _, number in inside})
    each = len(shown) // 2
    assert shown == [*range(each), *range(40 - each, 40)]
    assert each >= 1
    assert inside == {(stage, number) for stage in (0, 1) for number in shown}
    tasks = [row for row in rows if row.stream == "tasks" and row.micro_batch >= 0]
    assert len(tasks) == 2 * 40 * 2  # all of them are there, in full or not
    assert all(row.end_s > row.start_s for row in rows if row.phase == "step")
