"""The printed answer of a search: what is shown, and what is left to JSON."""

import re

from all_cases import all_cases
from conftest import make_job
from made_plans import JOB, factor, found, played

from flopcast.errors import Problem
from flopcast.render.search_json import as_json, as_rows
from flopcast.render.search_text import NEAREST, VARIANTS, as_text, rows_of, shared_words, variants_of
from flopcast.search.question import Question
from flopcast.search.settings import RejectedPlan
from flopcast.spec.plan import Plan

COMMON = factor("gemm_level[a100]", 0.1, 0.5)
PLANS = [played(10.0 + n, COMMON, gbs=16, mbs=1, tp=2**n, dp=8 // 2**n) for n in range(4)]
ROOMY = JOB.cluster.node.device.memory_bytes


def rows(text):
    """The lines of the table of plans."""
    return re.findall(r"^\d+ [= ] .*$", text, re.M)


def test_a_row_a_plan_in_the_order_of_the_answer():
    lines = rows(as_text(found(*PLANS)))

    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    seconds = [float(re.search(r"(\d+\.\d) s ", line).group(1)) for line in lines]
    assert seconds == [10.0, 11.0, 12.0, 13.0]


def test_an_interval_stands_beside_what_it_bounds():
    """Step time, its interval, memory: an interval behind memory would be read as that of memory."""
    head = next(line for line in as_text(found(*PLANS)).splitlines() if "step time" in line)

    columns = ["step time", "90 %", "vs best", "90 %", "expected memory", "plan"]
    assert re.split(r"\s{2,}", head.strip()) == columns
    (low, high), value = re.findall(r"([\d.]+) s to ([\d.]+) s", rows(as_text(found(*PLANS)))[0])[0], 10.0
    assert float(low) < value < float(high)


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

    assert "dgx-a100 × 16" in rows(as_text(found(*plans, question=two)))[0]
    assert "dgx-a100 ×" not in rows(as_text(found(*PLANS)))[0]


def test_a_plan_without_words_of_its_own_has_a_dash():
    again = found(played(10.0, COMMON), played(11.0, COMMON, recompute="full"))
    shared = shared_words(again.plans)

    assert [row[1] for row in rows_of(again, again.plans, shared)] == ["plan", "–", "recompute=full"]


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

    assert [line.split('"')[1] for line in rows(text)] == [one.plan.short() for one in (first, other, slow)]
    told = "and 2 variants tied with it: rank_order=tp-cp-pp-dp (+1.0%); zero=1 (+2.0%)"
    assert re.search(rf"^1 = .*\n      {re.escape(told)}\n2 = ", text, re.M)


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

    assert variants_of(group) == "1 variant tied with it: without stage_layers and vpp (+3.0%)"
    assert variants_of(group[:1]) == ""


def test_only_the_nearest_few_are_shown_and_json_has_all():
    lacking = [played(9.0 - n, COMMON, used_bytes=ROOMY * (1.1 + 0.1 * n)) for n in range(5)]
    answer = found(*PLANS, nearest=lacking)

    assert as_text(answer).count("faster than the best, but needs") == NEAREST
    assert len(as_json(answer, 4, 1.0, 1.0)["nearest_infeasible"]) == 5


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

    assert "no plan is possible; the nearest" in text
    assert "breaks plan.zero = 3: the stack has no more (allowed: 0 or 1)" in text
    assert told[0]["short"] == rejected.plan.short()
    assert "the stack has no more" in told[0]["why"]


def test_an_empty_space_says_so_unless_it_was_broken_off():
    empty = {"candidates": 0, "possible": 0, "feasible": 0}

    assert "the space holds no plan" in as_text(found(**empty))
    assert "the space holds no plan" not in as_text(found(**empty, partial=True))


def test_the_front_is_shown_where_it_is_asked_for():
    plain, whole = (as_text(found(*PLANS), 2, with_front=front) for front in (False, True))

    assert "the front:" not in plain
    assert "the front: no plan is better in step time and memory in use at once" in whole
    assert len(rows(whole)) == 2 + len(PLANS)


def test_memory_is_a_column_whatever_is_asked():
    rates = Question(jobs=(JOB,), objectives=("tokens_per_s", "tokens_per_s_per_device"))

    for answer in (found(*PLANS), found(*PLANS, question=rates)):
        head = next(line for line in as_text(answer).splitlines() if line.endswith("  plan"))
        assert head.count("memory") == 1


def test_the_text_has_no_control_characters():
    text = as_text(found(*PLANS), with_front=True)

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


def test_the_same_answer_is_told_in_the_same_words():
    assert as_text(found(*PLANS)) == as_text(found(*PLANS))
    assert as_json(found(*PLANS), 3, 1.0, 1.0) == as_json(found(*PLANS), 3, 1.0, 1.0)
