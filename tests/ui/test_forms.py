"""Forms and addresses: fields of every word, links that take the job along, plans that become fields."""

from html import escape
from urllib.parse import parse_qsl, urlsplit

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pages import Outline

from flopcast.errors import Problem
from flopcast.library import catalog
from flopcast.library.edits import plan_words
from flopcast.spec.plan import Plan
from flopcast.ui import page
from flopcast.ui.error_responses import errors_as_html, errors_as_json
from flopcast.ui.form import plan_note
from flopcast.ui.form_fields import FIELDS
from flopcast.ui.openapi import described
from flopcast.ui.packed_documents import packed, unpacked
from flopcast.ui.page import PAGES, START
from flopcast.ui.request_values import OF_JOB, OF_PLAN, OF_SEARCH, OF_SERVING
from flopcast.ui.responses import fields_of

JOB = {"model": "gpt3-175b", "cluster": "selene", "gpus": "64", "tp": "8", "gbs": "128"}


def links(name, words):
    """Where the list of pages leads, by the path of each."""
    outline = Outline(page.page(name, words, ""))
    found = [
        urlsplit(link) for link in outline.links if urlsplit(link).path in {to for to, _ in PAGES.values()}
    ]
    return {each.path: dict(parse_qsl(each.query)) for each in found[: len(PAGES)]}


def test_every_word_has_a_field_and_every_field_a_word():
    assert set(FIELDS) == {*OF_JOB, *OF_PLAN, *OF_SEARCH, *OF_SERVING, "plan", "changes"}


@pytest.mark.parametrize("name", ["predict", "search"])
def test_a_form_holds_its_words(name):
    outline = Outline(page.page(name, JOB, ""))

    assert {word: outline.values[word] for word in JOB} == JOB


def test_a_form_of_two_holds_both():
    words = {f"a.{word}": value for word, value in JOB.items()} | {"b.model": "llama-3-8b", "b.tp": "2"}

    outline = Outline(page.page("compare", words, ""))

    assert {word: outline.values[word] for word in words} == words


@all_cases("there", ["predict", "search"])
@all_cases("here", ["predict", "search"])
def test_a_job_goes_along_to_another_page(here, there):
    job = JOB | {"qlora": "16", "samples": "52k", "epochs": "3"}

    assert links(here, job)[PAGES[there][0]] == job


def test_a_comparison_begins_with_the_job_twice_and_leaves_the_first():
    sides = links("predict", JOB)["/compare"]
    back = links("compare", sides | {"b.tp": "4"})

    assert sides == {f"{side}.{word}": value for side in ("a", "b") for word, value in JOB.items()}
    assert back["/"] == JOB
    assert back["/search"] == JOB


@all_cases("left", [{"objectives": "cost"}, {"deadline": "30 d"}, {"budget": "1M"}])
def test_what_only_a_search_asks_stays_there(left):
    assert links("search", JOB | left)["/"] == JOB
    assert links("search", JOB | left)["/search"] == JOB | left


@pytest.mark.parametrize("several", [{"tp": "4,8"}, {"gpus": "64..256"}, {"mbs": "1,2"}])
def test_several_values_stay_with_the_search(several):
    kept = {word: value for word, value in JOB.items() if word not in several}

    assert links("search", JOB | several)["/"] == kept


@all_cases("word", ["model", "stack", "precision", "recompute"])
def test_a_value_that_a_list_does_not_offer_is_kept(word):
    outline = Outline(page.page("predict", JOB | {word: "my-own<>"}, ""))

    assert outline.values[word] == "my-own<>"


@all_cases(
    ("own", "note"),
    [
        ({}, "chosen for you"),
        ({"tp": "4"}, "set by you: tp"),
        ({"tp": "4", "pp": "2", "recompute": "full"}, "set by you: tp, pp, recompute"),
    ],
)
def test_a_form_says_who_chose_its_plan(own, note):
    chosen = {"tp": "8", "pp": "1", "mbs": "1", "recompute": "none"}
    words = JOB | chosen | {"chosen": "&".join(f"{name}={value}" for name, value in chosen.items())}

    assert plan_note(words | own) == note
    assert plan_note({"tp": "8"}) == "set by you"


def test_a_fault_leads_to_its_field():
    problems = [
        Problem(field=field, value=1, allowed="a", because="b", fix="c")
        for field in ("plan.tensor_parallel", "gpus", "stack.launches")
    ]

    html = errors_as_html("", problems)

    outline = Outline(page.page("predict", JOB, html))
    leads = [link[1:] for link in outline.links if link.startswith("#field-")]
    assert leads == ["field-tp", "field-gpus"]
    assert set(leads) <= set(outline.ids)


def test_a_file_that_was_brought_stays_in_the_form_and_in_the_links():
    brought = packed("job.yaml\nmodel: llama-3-8b\n")

    text = page.page("predict", JOB | {"job": brought}, "")

    assert Outline(text).values["job"] == brought
    assert f"job={brought}" in next(link for link in Outline(text).links if link.startswith("/report.html"))


@given(st.text(min_size=1, max_size=400))
@settings(max_examples=50)
def test_a_document_comes_out_of_an_address_as_it_went_in(text):
    word = packed(text)

    assert unpacked(word) == text
    assert set(word) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


PLANS = st.builds(
    Plan,
    data_parallel=st.sampled_from([1, 2, 16]),
    tensor_parallel=st.sampled_from([1, 2, 8]),
    pipeline_parallel=st.sampled_from([1, 4]),
    virtual_stages=st.sampled_from([1, 2]),
    context_parallel=st.sampled_from([1, 2]),
    micro_batch=st.sampled_from([1, 4]),
    global_batch=st.sampled_from([64, 512]),
    zero=st.sampled_from([0, 1, 2, 3]),
    recompute=st.sampled_from(["none", "full", "selective"]),
    precision=st.sampled_from(["bf16", "fp16"]),
    sequence_parallel=st.booleans(),
    optimizer=st.sampled_from(["adamw", "sgd"]),
)


@given(PLANS)
@settings(max_examples=80)
def test_fields_say_all_of_a_plan_but_its_replicas(plan):
    fields = fields_of(plan)
    words = [f"{name}={fields[name]}" for name in OF_PLAN if fields.get(name)]

    again = Plan(**plan_words(" ".join([f"dp={plan.data_parallel}", *words, fields["plan"]])))

    assert again == plan
    assert fields["dp"] == ""


FAULT = Problem(
    field="plan.tp<b>", value="<i>", allowed="1 & 2", because="a < b", fix='write "2"', where="job.yaml:3"
)


def test_faults_are_told_whole_and_as_text():
    html = errors_as_html("", (FAULT,))
    told = errors_as_json("input", "", (FAULT,))

    for part in (FAULT.field, FAULT.allowed, FAULT.because, FAULT.fix, FAULT.where):
        assert escape(part) in html
    assert "<b>" not in html
    assert '"because": "a < b"' in told
    assert '"place": "job.yaml:3"' in told


@all_cases(
    ("field", "where", "fix", "shown"),
    [
        ("plan.tensor_parallel", "", "set tensor_parallel to 4", "set Tensor parallel to 4"),
        ("--gpus", "", "set --gpus to 8 or 16", "set GPUs to 8 or 16"),
        ("cluster.price.device_usd_per_hour", "--price", "see --price", "see Price of a device"),
        ("gpus", "request", "write gpus=8", "set GPUs to 8"),
    ],
)
def test_a_fault_of_a_form_has_the_labels_of_the_form(field, where, fix, shown):
    html = errors_as_html("", (Problem(field, 3, "1", "see --seq", fix, where=where),))

    label = shown.split(" to ")[0].removeprefix("set ").removeprefix("see ")
    assert f"<strong>{label}</strong></a> = 3" in html
    assert shown in html
    assert "--" not in html


def test_the_place_of_a_fault_is_none_of_the_command_line():
    own = Problem(field="plan.tp", value=3, allowed="1", because="b", fix="f", where="--plan")

    assert "--plan" not in errors_as_html("", (own,))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_faults_are_counted(count):
    html = errors_as_html("", (FAULT,) * count)

    assert f"{count} error{'s' if count > 1 else ''} in the input" in html
    assert html.count("<li>") == count


def test_the_first_page_asks_what_the_catalogue_has():
    assert START["model"] in catalog.names("models")
    assert START["cluster"] in catalog.names("clusters")
    assert START["gpus"].isdecimal()


@pytest.mark.parametrize("body", ["Job", "Question"])
def test_the_description_of_a_word_says_what_it_may_hold(body):
    words = described()["components"]["schemas"][body]["properties"]

    assert "optimizer states" in words["zero"]["description"]
    assert all(word["description"].endswith((".", '1,2".')) for word in words.values())
    assert words["gpus"]["type"] == ("integer" if body == "Job" else ["string", "integer"])
    assert words["job"]["type"] == "object"
    assert set(OF_SEARCH) <= set(words) or body == "Job"


def test_every_answer_that_the_description_promises_is_one_of_http():
    for told in described()["paths"].values():
        answers = told["post"]["responses"]
        assert set(answers) == {"200", "400", "413", "422", "503"}
        assert all(each["description"] for each in answers.values())
