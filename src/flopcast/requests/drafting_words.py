"""Drafted tokens in the words of a plan: draft=mtp drafted=3 accepted=2.5.

Answers: which model drafts, how many tokens does it draft, and how many of them are accepted by default?
Elsewhere: what the fields mean (spec/drafting.py), measured acceptance (library/acceptance_lengths.py).
"""

from typing import get_args

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.yaml_text import Document
from flopcast.fixes import Fix, write
from flopcast.library import catalog
from flopcast.library.acceptance_lengths import measured_acceptance
from flopcast.requests.job_files import built
from flopcast.spec.drafting import Drafter, Drafting, expected_tokens

KINDS = tuple(kind for kind in get_args(Drafter) if kind != "model")
WORDS = ("draft", "drafted", "accepted", "acceptance", "draft_layers")
DRAFTED = 3  # tokens, where the plan does not say


def with_drafting(plan: dict[str, object], document: Document) -> dict[str, object]:
    """Return a plan in which one field replaces the words about drafting.

    Raises
    ------
    SpecError
        The words contradict each other, values are out of range, or no source measured the acceptance.
    """
    given = {name: plan[name] for name in WORDS if name in plan}
    if not given:
        return plan
    rest = {name: value for name, value in plan.items() if name not in WORDS}
    where = document.where(("plan",))
    if "draft" not in given:
        name = next(iter(given))
        allowed = "no value, unless draft is given"
        because = "this setting describes how tokens are drafted"
        raise spec_error(f"plan.{name}", given[name], allowed, because, write("mtp", "draft"), where)
    drafter = str(given["draft"])
    own = drafter not in KINDS
    if own and catalog.known("models", drafter) is None:
        allowed = f"one of {', '.join(KINDS)}, or a model of the catalogue"
        because = f"{drafter} is not a drafting method and not a known model"
        fix: str = Fix("write draft=eagle, or see: flopcast catalog models", ({"draft": "eagle"},))
        name, colon, number = drafter.partition(":")
        if colon and number.isdecimal() and (name in KINDS or catalog.known("models", name)):
            fix = f"write draft={name} drafted={number}"
        raise spec_error("plan.draft", drafter, allowed, because, fix, where)
    drafted = _whole(given.get("drafted", DRAFTED), where)
    found: dict[str, object] = {
        "drafter": "model" if own else drafter,
        "drafted": drafted,
        "accepted": _accepted(given, drafter, drafted, where),
        "layers_at_once": _layers(given.get("draft_layers", 1), own, where),
    }
    if own:
        found["model"] = built("model", drafter, document)
    return {**rest, "drafting": Drafting.model_validate(found)}


def _layers(value: object, own: bool, where: str) -> int:
    """Return the attention layers of a smaller model that run side by side."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not whole or (value != 1 and not own):
        because = "only the attention layers of a smaller draft model can run in parallel"
        allowed = "a whole number above 0" if own else "1, unless a smaller model drafts tokens"
        raise spec_error("plan.draft_layers", value, allowed, because, write(1, "draft_layers"), where)
    return int(str(value))


def _whole(value: object, where: str) -> int:
    """Return the number of drafted tokens."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 64:
        because, allowed = "this setting is a number of tokens", "a whole number from 0 to 64"
        raise spec_error("plan.drafted", value, allowed, because, write(3, "drafted"), where)
    return value


def _accepted(given: dict[str, object], drafter: str, drafted: int, where: str) -> float:
    """Return the tokens that a pass yields: as stated, from a probability, or as measured."""
    problems: list[Problem] = []
    if "accepted" in given and "acceptance" in given:
        because = "both settings determine how many tokens an iteration generates"
        fix = "remove accepted or acceptance"
        allowed = "one of accepted and acceptance"
        problems.append(Problem("plan.accepted", given["accepted"], allowed, because, fix, where=where))
    elif "accepted" in given:
        value, most = given["accepted"], drafted + 1
        if isinstance(value, (int, float)) and 1 <= value <= most:
            return float(value)
        because = (
            f"an iteration generates at most {drafted} drafted tokens and one token of the model itself"
        )
        allowed = f"a number from 1 to {most}"
        right = most if isinstance(value, (int, float)) and value > most else min(2, most)
        fix = write(right, "accepted")
        problems.append(Problem("plan.accepted", value, allowed, because, fix, where=where))
    elif "acceptance" in given:
        value = given["acceptance"]
        if isinstance(value, (int, float)) and 0 <= value <= 1:
            return expected_tokens(float(value), drafted)
        because = "acceptance is the probability that a drafted token is accepted"
        fix = write(0.7, "acceptance")
        problems.append(Problem("plan.acceptance", value, "from 0 to 1", because, fix, where=where))
    else:
        measured = 1.0 if not drafted else measured_acceptance(drafter, drafted)
        if measured is not None:
            return measured
        because = f"flopcast has no measurement of how many of {drafted} tokens from {drafter} are accepted"
        fix = "write accepted=2, or acceptance=0.7 for the probability of each token"
        fault = "is missing"
        allowed = "the mean number of tokens that an iteration generates"
        problems.append(Problem("plan.accepted", None, allowed, because, fix, where=where, fault=fault))
    raise SpecError(problems)
