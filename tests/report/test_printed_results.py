"""Results as a notebook shows them, and as they are printed."""

import re

from all_cases import all_cases
from page_reader import Page
from sample_reports import PARTS, sample_report, with_parts

from flopcast import job, predict
from flopcast.best_plans import search_plans
from flopcast.library.curves import load_book
from flopcast.render.report_json import as_json
from flopcast.report.versus import versus
from flopcast.search.find import find
from flopcast.search.question import Question
from flopcast.search.space import Space


@all_cases("name", PARTS)
def test_a_notebook_shows_the_answer_with_the_numbers_of_the_json(name):
    told = as_json(sample_report(name))

    page = Page(sample_report(name)._repr_html_())

    assert page.wrong == page.open == []
    _, rows = page.table(told["job"]["model"])
    largest = [*told["breakdown"].items()][:3]
    assert [row[1] for row in rows[:7]] == [
        told["step_time_s"],
        told["tokens_per_s"],
        told["mfu"],
        told["memory"]["expected_bytes"],
        *(seconds for _, seconds in largest),
    ]
    assert rows[3][2].endswith("does not fit") == (not told["memory"]["fits"])
    assert [row[2] for row in rows[7:]] == told["warnings"]


def test_the_time_and_the_cost_of_a_whole_run_are_shown():
    report = predict(job("llama-3.2-1b", gpus=8, seq=512, samples="52k", epochs=3, plan="dp=8 gbs=64"))
    assert re.search(r"\nwhole run  +[\d.]+ min +90 %: .* to .* min\n", str(report))
    assert re.search(r"\ncost of the run  +\$[\d.]+ +90 %: \$.* to \$.*\n", str(report))


def test_it_is_small_runs_nothing_and_trusts_no_text():
    hostile = "<script>alert(1)</script>"
    report = sample_report("one stage")
    model = report.job.model.model_copy(update={"name": hostile})
    report = with_parts(report, job=report.job.model_copy(update={"model": model}), warnings=(hostile,))

    text = report._repr_html_()

    page = Page(text)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "style", "link", "img"})
    assert hostile in page.text("caption")
    assert len(text) < 3000


def test_a_result_prints_as_the_table_of_a_notebook_and_names_itself_in_a_line():
    one, other = sample_report("one stage"), sample_report("jitter")
    space = Space(gbs=one.job.plan.global_batch, tp=1, pp=1, cp=1, mbs=1)
    results = (one, versus(one, other), find(Question(jobs=(one.job,), space=space), load_book))
    for result in results:
        caption, heading, *lines = str(result).splitlines()
        page = Page(result._repr_html_())

        assert page.wrong == page.open == []
        ((shown, (headings, *rows)),) = page.tables.items()
        assert shown == caption
        assert heading.split() == " ".join(headings).split()
        assert len(lines) == len(rows) > 0
        assert repr(result) == f"<{type(result).__name__}: {caption}>"


def test_a_search_in_python_keeps_the_batch_of_the_job():
    job = sample_report("one stage").job
    batch = job.plan.global_batch

    kept, other = (
        search_plans(job, Space(tp=1, pp=1, cp=1, mbs=1, **words)) for words in ({}, {"gbs": 2 * batch})
    )

    assert {each.played.plan.global_batch for each in kept.plans} == {batch}
    assert {each.played.plan.global_batch for each in other.plans} == {2 * batch}


def test_a_search_in_python_keeps_a_list_of_stages_only_where_it_names_these_stages():
    job = sample_report("one stage").job
    layers = sum(block.count for block in job.model.blocks)
    plan = job.plan.model_copy(
        update={"pipeline_parallel": 2, "data_parallel": job.plan.data_parallel // 2}
        | {"stage_layers": (layers // 2 + 1, layers - layers // 2 - 1)}
    )
    listed = job.model_copy(update={"plan": plan})
    free, named = (
        search_plans(listed, Space(pp=pp, vpp=1, tp=1, cp=1, mbs=1, refine=False)) for pp in ((1, 2), (2,))
    )

    assert {each.played.plan.pipeline_parallel for each in free.plans} == {1, 2}
    assert {each.played.plan.stage_layers for each in free.plans} == {()}
    assert {each.played.plan.stage_layers for each in named.plans} == {plan.stage_layers}
