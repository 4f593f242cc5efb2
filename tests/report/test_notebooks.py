"""Report._repr_html_: what a notebook shows of a report."""

from all_cases import all_cases
from page_reader import Page
from sample_reports import PARTS, sample_report, with_parts

from flopcast.render.report_json import as_json


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
