"""Sentences of a search: they name what was made larger by hand, with its number."""

import re
from dataclasses import replace

import pytest
from conftest import make_job
from made_plans import JOB, factor, found, played

from flopcast.render.search_drawing import drawing_of
from flopcast.render.search_json import as_json, as_rows
from flopcast.render.search_reasons import reason_infeasible, reason_recommended, reason_slower
from flopcast.render.search_text import as_text
from flopcast.search.question import Question
from flopcast.search.space import Space

GIB = 2.0**30
QUESTION = Question(jobs=(JOB,))
COMMON = factor("gemm_level[a100]", 0.1, 0.5)
BEST = played(10.0, COMMON, breakdown={"mlp": 6.0, "attention": 3.0, "pipeline_bubble": 1.0})


def test_a_runner_up_is_told_what_it_takes_more_of():
    other = played(
        11.0, COMMON, tp=2, dp=4, breakdown={"mlp": 6.0, "attention": 2.5, "pipeline_bubble": 2.5}
    )
    answer = found(BEST, other)

    sentence = reason_slower(answer.plans[1], answer.plans[0], QUESTION)

    assert "10.0% slower than the best (90 %: +10.0% to +10.0%)" in sentence
    assert "pipeline bubble +1.50 s" in sentence
    assert "attention with projections -500 ms" in sentence


def test_steps_of_other_batches_are_compared_token_by_token():
    """Twice the batch in twice the time takes no more of anything."""
    rates = Question(jobs=(JOB,), objectives=("tokens_per_s",))
    double = played(20.2, COMMON, gbs=32, breakdown={"mlp": 12.0, "attention": 6.0, "pipeline_bubble": 2.2})
    answer = found(BEST, double, question=rates)

    sentence = reason_slower(answer.plans[1], answer.plans[0], rates)

    assert "1.0% slower" in sentence
    assert "pipeline bubble +100 ms" in sentence
    assert "mlp" not in sentence


def test_the_first_is_told_what_limits_it_and_what_would_help():
    """Half of the step hangs on products: 10 % faster ones save half of 1 - 1 / 1.1."""
    sentence = reason_recommended(found(BEST, played(12.0, COMMON, tp=2, dp=4)))

    assert "better than every other plan" in sentence
    assert "MLP (60%) and attention with projections (30%)" in sentence
    assert f"by {0.5 * (1 - 1 / 1.1):.1%} for speed of GEMMs (gemm_level[a100])" in sentence


def test_what_nobody_can_buy_is_no_advice():
    doubtful = played(10.0, factor("jitter", 0.1), factor("unexplained[x]", 0.1), factor("host", 0.1, 0.2))

    sentence = reason_recommended(found(doubtful))

    assert "jitter" not in sentence
    assert "unexplained" not in sentence
    assert "by 1.8% for speed of the host (host)" in sentence


def test_a_simpler_plan_says_how_far_it_is_behind():
    intricate = played(9.9, COMMON, factor("fabric[x]", 0.1, 0.3), dp=1, tp=8)

    sentence = reason_recommended(found(intricate, BEST))

    assert "the simplest of the 2 plans that may be as good as the best and are within 2%" in sentence
    assert "1.0% slower than the best" in sentence


def test_a_plan_that_does_not_fit_is_told_how_many_bytes_it_lacks():
    device_bytes = JOB.cluster.node.device.memory_bytes
    large = played(8.0, COMMON, used_bytes=device_bytes + 7 * GIB)

    sentence = reason_infeasible(found(BEST, nearest=[large]).nearest[0], QUESTION)

    assert "20.0% faster than the best" in sentence
    assert "needs 7.00 GiB more" in sentence
    assert "GiB more than a device has (does not fit: " in sentence


def test_a_tight_plan_lacks_what_its_high_end_lacks_and_names_the_option():
    device_bytes = JOB.cluster.node.device.memory_bytes
    tight = played(8.0, COMMON, used_bytes=0.99 * device_bytes, high_bytes=device_bytes + 3 * GIB)

    sentence = reason_infeasible(found(BEST, nearest=[tight]).nearest[0], QUESTION)

    assert "needs 3.00 GiB more" in sentence
    assert "GiB more than a device has (tight: " in sentence
    assert sentence.endswith("--headroom 1 accepts such plans)")


def test_a_plan_beyond_the_headroom_of_the_user_lacks_the_headroom():
    device_bytes = JOB.cluster.node.device.memory_bytes
    narrow = Question(jobs=(JOB,), space=Space(headroom_fraction=0.8))
    large = played(8.0, COMMON, used_bytes=0.9 * device_bytes)

    sentence = reason_infeasible(found(BEST, nearest=[large], question=narrow).nearest[0], narrow)

    assert f"needs {0.1 * device_bytes / GIB:.2f} GiB more" in sentence
    assert "80% of" in sentence


def test_a_deadline_that_is_missed_is_told_with_what_is_missing():
    tokens = BEST.job.step_tokens * 8640  # a day of steps of ten seconds
    late = Question(jobs=(JOB,), total_tokens=tokens, deadline_s=43200.0)

    sentence = reason_infeasible(found(nearest=[BEST], question=late).nearest[0], late, alone=True)

    more = re.search(r"^needs (\S+) h more than the deadline", sentence)
    assert 12.0 <= float(more.group(1)) < 12.5  # half a day, and what failures take
    assert "at least 24 devices or at most" in sentence  # 8 devices take a day and a bit
    keeps = re.search(r"at most ([\d.]+) M tokens would do", sentence)
    assert 0.9 * tokens / 2 < 1e6 * float(keeps.group(1)) < tokens / 2


def test_every_line_has_its_plan_as_an_option_and_tied_plans_are_marked():
    plans = [BEST, played(10.0, COMMON, tp=2, dp=4), played(12.0, COMMON, tp=4, dp=2)]

    text = as_text(found(*plans))

    marked = re.findall(r'^\d( =)? .*\n      --plan "(.+)"$', text, re.M)
    shorts = [one.plan.short() for one in plans]
    assert marked == list(zip((" =", " =", ""), shorts, strict=True))
    assert re.search(r"^3 .*\+20\.0%", text, re.M)


def test_the_best_of_several_tied_plans_far_from_the_others_is_no_simplest():
    far = played(10.5, COMMON, factor("fabric[x]", 0.1, 0.3), dp=1, tp=8)

    assert reason_recommended(found(BEST, far)).startswith("the best of 2 plans that may be equally good; ")


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"partial": True}, "interrupted: only a part of the space was searched"),
        ({"thinned": True}, "only a part of the Pareto front was simulated"),
    ],
)
def test_what_is_not_whole_says_so(parts, told):
    assert told in as_text(found(BEST, **parts))
    assert told not in as_text(found(BEST))


def test_an_order_of_clusters_inside_the_interval_is_not_settled():
    other = make_job(cluster="dgx-a100:2", plan="dp=16 gbs=16")
    two = Question(jobs=(JOB, other), objectives=("tokens_per_s",))
    mine = played(10.0, factor("fabric[a]", 0.1))
    near = played(10.3, factor("fabric[b]", 0.1), job=other, dp=16)
    far = played(16.0, factor("fabric[b]", 0.1), job=other, dp=16)

    unsure, sure = (as_text(found(mine, theirs, question=two)) for theirs in (near, far))

    assert "may be the best" in unsure
    assert "may be the best" not in sure
    assert "the best on each cluster" in sure


def test_rates_in_json_are_candidates_over_seconds():
    told = as_json(found(BEST), 5, seconds=4.0, screening_s=2.0)

    assert told["screened_per_s"] == 500.0
    assert told["seconds"] == 4.0


def test_json_lists_as_many_plans_as_asked_and_the_whole_front():
    plans = [played(10.0 + n, COMMON, gbs=16 * (n + 1)) for n in range(6)]

    told = as_json(found(*plans), 2, 1.0, 1.0)

    assert len(told["plans"]) == 2
    assert len(told["pareto"]) == 6


def test_a_row_holds_lists_as_texts_and_says_whether_it_is_on_the_front():
    uneven = played(10.0, COMMON, dp=4, pp=2, stage_layers=(3, 5))
    answer = replace(found(uneven, BEST), on_front=())

    rows = as_rows(answer)

    assert {row["stage_layers"] for row in rows} == {"", "3,5"}
    assert not any(row["on_front"] for row in rows)
    assert [row["rank"] for row in rows] == [1, 2]


def test_names_in_a_drawing_are_escaped():
    named = JOB.model_copy(update={"cluster": JOB.cluster.model_copy(update={"name": "<b>&"})})
    best = replace(BEST, job=named)
    page = drawing_of(found(best, question=Question(jobs=(named,)))).html("<b>&", "<i>")

    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page
    assert "&lt;i&gt;" in page


def test_a_drawing_of_one_plan_or_of_none_is_whole():
    assert drawing_of(found(BEST)).svg().count("<circle") == 1
    assert "no plan is feasible" in drawing_of(found()).svg()
