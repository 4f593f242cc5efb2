"""Proposals of offload, checkpoints, and searches that rank no plans, over HTTP and on pages."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from flopcast.api import predict
from flopcast.errors import SpecError
from flopcast.jobs import job
from flopcast.library import catalog
from flopcast.placement import best_strategies
from flopcast.plans_that_fit import offload_that_fits
from flopcast.render.layouts import per_layer_json
from flopcast.ui.form import predict_form, search_form
from flopcast.ui.request_fields import job_from
from flopcast.ui.responses import TASKS

DEGREES = {"tp": 8, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "mbs": 1, "gbs": 64}
TOO_LARGE = {"model": "llama-3-70b", "cluster": "dgx-h100", "gpus": 8, **DEGREES}
SETTLED = {"zero": 0, "recompute": "full", "precision": "bf16"}


def made(task, words):
    return json.loads(TASKS[task](words, lambda _: None)[1])


def links(html):
    """The fields of each address that a part of a page links to."""
    paths = [part.partition('"')[0].replace("&amp;", "&") for part in html.split('href="')[1:]]
    return [{name: value[0] for name, value in parse_qs(urlsplit(each).query).items()} for each in paths]


def test_a_plan_that_does_not_fit_is_answered_with_the_cheapest_placement_and_a_link_that_applies_it():
    words = TOO_LARGE | SETTLED
    expected = offload_that_fits(job_from(words)).as_json()

    asks = words | {"proposals": True}
    memory, report = made("api.memory", asks), made("api.predict", asks)
    page = made("page.advice", words)["html"]

    assert memory["offload_that_fits"] == report["offload_that_fits"] == expected
    (applied,) = [fields for fields in links(page) if "offload" in fields]
    fitting = predict(job_from(applied))
    assert fitting.memory.verdict != "does not fit"
    assert fitting.step_time_s == pytest.approx(expected["step_time_s"], rel=1e-3)


def test_a_plan_that_fits_is_answered_without_a_placement():
    words = TOO_LARGE | SETTLED | {"model": "llama-3-8b"}
    told = made("api.predict", words | {"proposals": True})

    assert "offload_that_fits" not in told
    assert "hint" not in told
    assert "the job fits" not in made("page.advice", words)["html"]


def test_advice_names_the_software_only_where_it_changes_it():
    """A name would remove the doubt about memory that an assumed software has."""
    words = {"model": "llama-3-8b", "gpus": 16, "plan": "dp=8 tp=2 gbs=64 sp mbs=1 recompute=full"}

    applied = links(made("page.advice", words)["html"])

    assert len(applied) > 1
    assert [("stack" in fields) for fields in applied] == [
        "stack." in fields.get("changes", "") for fields in applied
    ]


def test_an_answer_says_how_to_ask_for_placements_and_refuses_other_values_than_true_and_false():
    told = made("api.memory", TOO_LARGE | SETTLED)

    assert "offload_that_fits" not in told
    assert told["hint"].startswith("set proposals to true")
    with pytest.raises(SpecError, match=r"proposals = 'yes' is not allowed\n  allowed: true or false"):
        made("api.memory", TOO_LARGE | SETTLED | {"proposals": "yes"})


def test_a_search_without_a_feasible_plan_is_answered_with_a_placement():
    found = made("api.search", TOO_LARGE)
    page = made("page.search", TOO_LARGE)["html"]

    assert found["feasible"] == 0
    (placed,) = found["offload_that_fits"]
    (applied,) = [fields for fields in links(page) if "offload" in fields]
    assert applied["offload"] == placed["offload"]
    assert predict(job_from(applied)).memory.verdict != "does not fit"


def test_checkpoints_are_a_field_of_the_form_and_a_part_of_the_answer():
    words = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": 8, **DEGREES, "seq": 2048, **SETTLED}
    words["checkpoint"] = "lazy host every=100"

    assert 'name="checkpoint"' in predict_form({})
    assert job_from(words).checkpoint.method == "lazy"
    assert "What saving takes" in made("page.predict", words)["html"]
    with pytest.raises(SpecError, match="checkpoint"):
        job_from(words | {"checkpoint": "sometimes"})


def test_the_largest_model_is_found_with_and_without_offload():
    words = TOO_LARGE | {"seq": 2048, "find": "largest"}

    inside, outside = made("api.search", words)["largest"]

    assert inside["num_layers"] < outside["num_layers"]
    assert f"{outside['num_layers']} layers" in made("page.search", words)["html"]


def test_strategies_of_blocks_are_those_of_the_command_line():
    words = {"model": "llama-2-7b", "cluster": "dgx-a100", "gpus": 8, "seq": 4096, "find": "per_layer"}
    plan = "dp=1 tp=8 mbs=1 gbs=8 sp"
    asked = job("llama-2-7b", cluster="dgx-a100:1", plan=plan, seq=4096)

    assert made("api.search", words | {"job": {"plan": plan}}) == per_layer_json(best_strategies(asked))
    placed = made("api.search", words | {"job": {"plan": plan}, "offload": "auto"})
    assert placed == per_layer_json(best_strategies(asked, placements=True))


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"find": "everything"}, "find"),
        ({"find": "largest", "objectives": "cost"}, "objectives"),
        ({"find": "largest", "offload": "auto"}, "offload"),
        ({"find": "node_order", "evolve": "yes"}, "evolve"),
        ({"find": "node_order", "tp_beyond_domain": "yes"}, "tp_beyond_domain"),
        ({"find": "node_order"}, "cluster.tiers"),
    ],
)
def test_what_a_search_cannot_find_is_an_error(words, field):
    with pytest.raises(SpecError) as error:
        made("api.search", TOO_LARGE | SETTLED | {"model": "llama-3-8b"} | words)

    (problem,) = error.value.problems
    assert problem.field.startswith(field)
    assert problem.fix


def test_the_form_of_a_search_lists_what_it_finds():
    assert all(f'value="{name}"' in search_form({}) for name in ("largest", "per_layer", "node_order"))
    assert catalog.names("models")[0] in search_form({})
