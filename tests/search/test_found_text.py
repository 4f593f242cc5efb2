"""The printed answer of a search: what is shown, and what is left to JSON."""

import re
from dataclasses import replace

import pytest
from all_cases import all_cases
from conftest import make_job
from made_plans import JOB, factor, found, played

from flopcast.economics.amount import Amount
from flopcast.errors import Problem
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.search_json import as_json, as_rows
from flopcast.render.search_table import VARIANTS, variants_of
from flopcast.render.search_text import NEAREST, as_text
from flopcast.report.metrics import measure
from flopcast.search.objectives import run_of
from flopcast.search.question import Question
from flopcast.search.settings import RejectedPlan
from flopcast.search.space import Space
from flopcast.search.usual_training import batch_assumed, usual_batch
from flopcast.spec.plan import Plan
from flopcast.units import show, show_seconds, show_usd

COMMON = factor("gemm_level[a100]", 0.1, 0.5)
PLANS = [played(10.0 + n, COMMON, gbs=16, mbs=1, tp=2**n, dp=8 // 2**n) for n in range(4)]
ROOMY = JOB.cluster.node.device.memory_bytes


def rows(text):
    """The lines of the table of plans."""
    return re.findall(r"^\d+ [= ] .*$", text, re.M)


def heads(text):
    """The two lines above the table of plans."""
    lines = text.splitlines()
    first = lines.index(rows(text)[0])
    return lines[first - 2 : first]


def test_a_row_a_plan_in_the_order_of_the_answer():
    lines = rows(as_text(found(*PLANS)))

    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    seconds = [float(re.search(r"(\d+\.\d) s ", line).group(1)) for line in lines]
    assert seconds == [10.0, 11.0, 12.0, 13.0]


def test_an_interval_stands_beside_what_it_bounds():
    """Step time, its interval, memory: an interval behind memory would be read as that of memory."""
    upper, lower = heads(as_text(found(*PLANS)))

    assert (upper.split(), lower.split("  ")[-1]) == (["step", "vs", "expected"], "memory")
    assert re.split(r"\s{2,}", lower.strip()) == ["time", "90 %", "best", "90 %", "memory"]
    (low, high), value = re.findall(r"([\d.]+) s to ([\d.]+) s", rows(as_text(found(*PLANS)))[0])[0], 10.0
    assert float(low) < value < float(high)


def test_the_tables_of_an_answer_are_readable_in_a_hundred_columns():
    """Of one cluster, and of several with the run; plans and sentences below the rows wrap."""
    other = make_job(cluster="dgx-a100:2", plan="dp=16 gbs=16")
    two = Question(jobs=(JOB, other), objectives=("step_time",), total_tokens=2e12)
    plans = [PLANS[0], played(8.0, COMMON, job=other, dp=16)]

    for answer in (found(*PLANS), found(*plans, question=two)):
        text = as_text(answer).partition("\nwhy ")[0]
        assert max(map(len, [*heads(text), *rows(text)])) <= 100
        assert '      --plan "' in text


def test_a_plan_has_its_rate_and_mfu_as_predict_has_them():
    metrics = measure(PLANS[0].job, PLANS[0].step_time_s)

    text, told = as_text(found(*PLANS)), as_json(found(*PLANS), 4, 1.0, 1.0)["plans"][0]

    rate = f"{show(metrics.tokens_per_s, 'tokens/s')}, MFU {metrics.mfu_ratio:.1%}"
    assert f"\n      recommended; {rate}\n" in text
    assert told["mfu"] == pytest.approx(metrics.mfu_ratio, rel=1e-8)
    assert told["tokens_per_s"] == pytest.approx(metrics.tokens_per_s, rel=1e-8)


def test_a_recommended_plan_that_is_not_the_fastest_is_marked_and_told_why():
    fastest = doubtful(10.0, 0.3, dp=2, tp=4)
    simpler = doubtful(10.1, 0.1, dp=8)

    text = as_text(found(fastest, simpler))

    marks = re.findall(r'^      --plan "(dp=.) .*\n      (.*?); ', text, re.M)
    assert marks == [("dp=8", "recommended"), ("dp=2", "fastest")]
    assert (
        "10.1 s; simpler than the fastest plan, and tied with it (1.0% slower, 90 %: "
        in re.search(r"\nanswer    (dp=8 .*)\n", text)[1]
    )
    assert re.search(r"\nanswer    \S+ .*: step time 10\.0 s\n", as_text(found(*PLANS)))


def test_the_next_cluster_stands_below_the_answer():
    other = make_job(cluster="dgx-a100:2", plan="dp=16 gbs=16")
    two = Question(jobs=(JOB, other), objectives=("step_time",), total_tokens=2e12)

    text = as_text(found(PLANS[0], played(12.0, COMMON, job=other, dp=16), question=two))

    assert re.search(
        r"\nnext best 16 × a100-sxm4-80gb \(dgx-a100\): step time 12\.0 s, time .*\+20\.0% \(90 %", text
    )


def test_what_was_not_measured_and_what_was_assumed_is_told_as_by_predict():
    open_job = JOB.model_copy(update={"assumptions": ("cluster dgx-a100",)})
    plans = [replace(one, warnings=("uncalibrated: no curve covers router",)) for one in PLANS]
    answer = found(*plans, question=Question(jobs=(open_job,)))

    text, told = as_text(answer), as_json(answer, 4, 1.0, 1.0)

    assert text.count("warning   uncalibrated: no curve covers router\n") == 1
    assert told["warnings"] == ["uncalibrated: no curve covers router"]
    batch = usual_batch(open_job)
    assumed = [
        "cluster dgx-a100",
        batch_assumed(open_job, batch),
        f"precision {open_job.cluster.node.device.dtype_of_16_bits}",
    ]
    assert told["assumptions"] == assumed
    assert text.endswith("\n".join(assumption_lines(assumed)))
    named = Question(jobs=(open_job,), space=Space(gbs=16, precision="fp16"))
    assert as_json(found(*plans, question=named), 4, 1.0, 1.0)["assumptions"] == ["cluster dgx-a100"]


def test_batches_that_differ_with_the_size_are_assumed_for_each():
    """About four million tokens: 4096 sequences of 1024 on 8 devices, and 4608 on 9 nodes of 8."""
    jobs = (JOB, make_job(cluster="selene:9", plan="dp=72 gbs=72"))
    question = Question(jobs=jobs, objectives=("tokens_per_s",))
    each = [batch_assumed(job, usual_batch(job)) for job in question.jobs]

    assert len(set(each)) == 2
    assert set(question.assumptions) >= {f"{each[0]} on 8 devices", f"{each[1]} on 72 devices"}


def test_every_way_to_read_an_answer_has_days_and_cost_of_each_setting():
    """The run that the core computes for each of two sizes, as text, in JSON and in Python."""
    jobs = (make_job(cluster="dgx-h100:1"), make_job(cluster="dgx-h100:2", plan="dp=16 gbs=16"))
    plans = [
        replace(made, cost=replace(made.cost, price_usd_per_hour=Amount(usd)))
        for made, usd in (
            (played(10.0, COMMON, job=jobs[0]), 2.0),
            (played(5.0, COMMON, job=jobs[1], dp=16), 3.0),
        )
    ]
    answer = found(*plans, question=Question(jobs=jobs, total_tokens=1e9))
    runs = {one.job.cluster.num_devices: run_of(one, 1e9) for one in plans}

    lines = as_text(answer).partition("the best on each cluster and size\n")[2].splitlines()
    told = as_json(answer, 4, 1.0, 1.0)["settings"]

    for setting, data in zip(answer.settings, told, strict=True):
        devices = setting.job.cluster.num_devices
        run = runs[devices]
        days, usd = show_seconds(run.wall_s.value), show_usd(run.usd.value)
        (line,) = [line for line in lines if line.startswith(f"  dgx-h100  {devices:>4} ")]
        for text in (
            line,
            repr(setting),
            next(row for row in str(answer).splitlines() if f"× {devices}" in row),
        ):
            assert days in text
            assert usd in text
        assert data["best"]["run"]["days"] == pytest.approx(run.wall_s.value / 86400, rel=1e-8)
        assert data["best"]["run"]["cost_usd"] == pytest.approx(run.usd.value, rel=1e-8)


@all_cases("top", [1, 2, 4, 9])
def test_no_more_plans_are_shown_than_asked(top):
    assert len(rows(as_text(found(*PLANS), top))) == min(top, len(PLANS))


def test_columns_stand_under_each_other():
    """The unit of the first objective begins in the same column of every row."""
    lines = rows(as_text(found(*PLANS)))

    assert len({line.index(" s ") for line in lines}) == 1
    assert not any(line != line.rstrip() for line in lines)


def test_the_cluster_is_a_column_where_there_are_several():
    other = make_job(cluster="dgx-a100:2", plan="dp=16 gbs=16")
    two = Question(jobs=(JOB, other), objectives=("tokens_per_s",))
    plans = [PLANS[0], played(8.0, COMMON, job=other, dp=16)]

    assert "dgx-a100    16 " in rows(as_text(found(*plans, question=two)))[0]
    assert "dgx-a100 ×" not in rows(as_text(found(*PLANS)))[0]


def doubtful(step_s, share, **plan):
    """A plan with a share of a factor: two shares that differ by 0.2 leave a ratio open by 8 %."""
    return played(step_s, COMMON, factor("fabric[x]", 0.1, share), **plan)


def test_a_plan_stands_for_its_variants_as_far_as_they_are_tied_with_it():
    first = doubtful(10.0, 0.3, dp=4, tp=2)
    ordered = doubtful(10.1, 0.1, dp=4, tp=2, rank_order="tp-cp-pp-dp")
    sharded = doubtful(10.2, 0.1, dp=4, tp=2, zero=1)
    other = doubtful(10.3, 0.1, dp=2, tp=4)
    slow = doubtful(15.0, 0.1, dp=4, tp=2, zero=2)

    text = as_text(found(first, ordered, sharded, other, slow))

    assert re.findall(r'^      --plan "(.*)"$', text, re.M) == [
        one.plan.short() for one in (first, other, slow)
    ]
    told = "and 2 variants that may be as good as this plan: rank_order=tp-cp-pp-dp (+1.0%); zero=1 (+2.0%)"
    assert re.search(rf"^1 = .*\n.*\n.*\n      {re.escape(told)}\n2 = ", text, re.M)


def test_variants_beyond_the_first_few_are_counted_and_json_has_all():
    plans = [doubtful(10.0, 0.3, dp=4, pp=2)]
    plans += [doubtful(10.0 + n / 100, 0.1, dp=4, pp=2, vpp=n) for n in range(2, 9)]

    answer = found(*plans)

    assert f"; {7 - VARIANTS} more\n" in as_text(answer)
    assert len(as_json(answer, 20, 1.0, 1.0)["plans"]) == len(as_rows(answer)) == 8


def test_a_variant_says_which_words_of_the_plan_it_lacks():
    uneven = {"vpp": 2, "stage_layers": (1, 2, 2, 3)}
    first, plain = doubtful(10.0, 0.3, dp=4, pp=2, **uneven), doubtful(10.3, 0.1, dp=4, pp=2)
    ranks = found(first, plain).plans
    group = sorted(ranks, key=lambda one: one.ratio)

    assert variants_of(group) == (
        "1 variant that may be as good as this plan: without stage_layers and vpp (+3.0%)"
    )
    assert variants_of(group[:1]) == ""


def test_only_the_nearest_few_are_shown_and_json_has_all():
    lacking = [played(9.0 - n, COMMON, used_bytes=ROOMY * (1.1 + 0.1 * n)) for n in range(5)]
    answer = found(*PLANS, nearest=lacking)

    assert as_text(answer).count("faster than the best, but needs") == NEAREST
    assert len(as_json(answer, 4, 1.0, 1.0)["nearest_infeasible"]) == 5


def test_a_plan_that_lacks_memory_and_is_no_faster_is_not_shown():
    best_s = min(one.step_time_s for one in PLANS)
    equal = played(best_s * 0.9999, COMMON, used_bytes=ROOMY * 1.1)

    assert "break a limit" not in as_text(found(*PLANS, nearest=[equal]))


def test_a_plan_that_no_device_could_hold_is_shown_only_where_it_is_the_nearest():
    far = [played(9.0 - n, COMMON, used_bytes=ROOMY * (3 + n)) for n in range(2)]

    assert as_text(found(*PLANS, nearest=far)).count("faster than the best, but needs") == 1


def test_the_rules_that_the_nearest_plan_breaks_are_told():
    broken = Problem(
        field="plan.zero", value=3, allowed="0 or 1", because="the stack has no more", fix="set"
    )
    rejected = RejectedPlan(plan=Plan(dp=8, gbs=16, zero=3), problems=(broken,))
    answer = found(rejected=rejected, possible=0, feasible=0)

    text, told = as_text(answer), as_json(answer, 5, 1.0, 1.0)["nearest_infeasible"]

    assert "no plan is possible; this plan comes closest" in text
    assert "breaks plan.zero = 3: the stack has no more (allowed: 0 or 1)" in text
    assert told[0]["short"] == rejected.plan.short()
    assert "the stack has no more" in told[0]["why"]


def test_an_empty_space_says_so_unless_it_was_broken_off():
    empty = {"candidates": 0, "possible": 0, "feasible": 0}

    assert "no plan exists" in as_text(found(**empty))
    assert "no plan exists" not in as_text(found(**empty, partial=True))


def test_the_front_is_shown_where_it_is_asked_for():
    plain, whole = (as_text(found(*PLANS), 2, with_front=front) for front in (False, True))

    assert "the front:" not in plain
    assert "Pareto front: no other plan is better in step time and memory in use at once" in whole
    assert len(rows(whole)) == 2 + len(PLANS)


def test_memory_is_a_column_whatever_is_asked():
    rates = Question(jobs=(JOB,), objectives=("tokens_per_s", "tokens_per_s_per_device"))

    for answer in (found(*PLANS), found(*PLANS, question=rates)):
        assert " ".join(heads(as_text(answer))).count("memory") == 1


def test_the_text_has_no_control_characters():
    text = as_text(found(*PLANS), with_front=True)

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


def test_the_same_answer_is_told_in_the_same_words():
    assert as_text(found(*PLANS)) == as_text(found(*PLANS))
    assert as_json(found(*PLANS), 3, 1.0, 1.0) == as_json(found(*PLANS), 3, 1.0, 1.0)
