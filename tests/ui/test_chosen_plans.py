"""A form forgets a plan that was chosen for another model or machine, and keeps what a person wrote."""

from urllib.parse import parse_qsl

from flopcast.ui.chosen_plan import CHOSEN, JOB_FIELDS, PLAN_FIELDS, chosen_word, requested, without_stale

JOB = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": "64"}
PLAN = {"tp": "1", "pp": "2", "vpp": "3", "gbs": "512", "plan": "stage_layers=5,6,6,6,6,3", "dp": ""}


def form(prefix="", **typed):
    """The fields of a form after its plan was chosen, then what a person typed."""
    word = chosen_word({prefix + name: value for name, value in JOB.items()}, PLAN, "", prefix)
    fields = JOB | PLAN | {CHOSEN: word} | typed
    return {prefix + name: value for name, value in fields.items() if value}


def test_a_change_of_the_model_or_the_machine_drops_the_chosen_plan_alone():
    left = {name: without_stale(form(**{name: "other"})) for name in JOB_FIELDS}

    for name, words in left.items():
        assert words == JOB | {name: "other"}, name


def test_every_other_change_keeps_the_plan():
    for name in ("price", "changes", "tp", "zero"):
        words = without_stale(form(**{name: "8"}))

        assert words == {key: value for key, value in (JOB | PLAN | {name: "8"}).items() if value}


def test_what_a_person_wrote_stays():
    words = without_stale(form(tp="4", zero="3", model="gpt3-13b"))

    assert words == JOB | {"model": "gpt3-13b", "tp": "4", "zero": "3"}


def test_a_plan_that_a_person_gave_is_none_that_was_chosen():
    given = JOB | {"tp": "8"}

    word = dict(parse_qsl(chosen_word(given, PLAN | {"tp": "8"})))

    assert "tp" not in word
    assert {name: word[name] for name in JOB} == JOB
    assert set(word) - set(JOB) <= set(PLAN_FIELDS)


def test_what_was_chosen_before_and_kept_is_still_chosen():
    fields = form(zero="3")
    asked = without_stale(fields)

    word = dict(parse_qsl(chosen_word(asked, PLAN | {"zero": "3"}, fields[CHOSEN])))

    assert word["vpp"] == "3"
    assert "zero" not in word


def test_the_sides_of_a_comparison_forget_on_their_own():
    words = form("a.") | form("b.", model="gpt3-13b")

    left = without_stale(without_stale(words, "a."), "b.")

    assert left["a.vpp"] == "3"
    assert "b.vpp" not in left


def test_a_form_without_a_memory_keeps_every_word():
    assert without_stale(JOB | PLAN) == JOB | PLAN


def test_while_a_slider_moves_the_plan_stays_and_replicas_follow():
    fields = form(gpus="128", dp="32")

    held = requested(fields | {"hold": "1"})

    assert held == {key: value for key, value in (JOB | PLAN | {"gpus": "128"}).items() if value}
    assert "pp" not in requested(fields)
