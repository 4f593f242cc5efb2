"""The settings of a search, from command-line options or the fields of a request.

Answers: which question do these words stand for, all faults of theirs at once?
Elsewhere: jobs in words (job_request.py), the question itself (search/question.py), the command
(cli/search.py).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import TypeVar

from flopcast.errors import Problem, SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.files.yaml_text import Path as Place
from flopcast.library.edits import plan_words
from flopcast.requests.job_files import OpenJob, open_job_of
from flopcast.requests.job_request import read_from
from flopcast.search.question import Question, option_problem
from flopcast.search.space import Space
from flopcast.spec.plan import Plan
from flopcast.units import parse_quantity, parse_tokens, units_of

Made = TypeVar("Made")
ReadOpen = Callable[..., OpenJob]
WORDS = ("sequence_parallel", "recompute", "precision", "schedule", "context_exchange", "context_order")


def question_from(job: str | None, changes: tuple[str, ...], **named: object) -> Question:
    """Return the settings of the search that the arguments describe.

    Parameters
    ----------
    job, changes
        As `asked.read_from`; changes of the plan settle its fields.
    named : object
        Values of the command's options by name.

    Raises
    ------
    SpecError
        Every fault of the job, of the space and of what is asked.
    """
    if job is not None and job.startswith("plan."):
        changes, job = (job, *changes), None
    return question_of(
        lambda given, **options: read_from(job, given, open_job_of, **options), changes, **named
    )


def question_of(read: ReadOpen, changes: tuple[str, ...], **named: object) -> Question:
    """Return the question of these options, as `question_from` does for a file.

    Parameters
    ----------
    read : callable
        The open job of other changes and of options, for each cluster, stack and limit of power.
    """
    faults = _Faults()
    settled, changes = _split_changes(changes)
    text = " ".join([str(named["plan"] or ""), *settled])
    words: dict[str, object] = faults.of(lambda: plan_words(text, "--plan"), {})
    own = {name: value for name, value in words.items() if name not in Space.model_fields}
    options = {key: named[key] for key in ("model", "seq", "site", "price")}
    options |= {name: named.get(name) for name in ("file_kind", "arg", "env")}
    options |= {"plan": _plan_text(own) if own or named["plan"] is not None else None, "gpus": None}
    machines = product(
        _each_once(named["clusters"]),
        _each_once(named["stack"]),
        map(_limited, _each_once(named.get("power_limits"))),
    )
    opened = [
        faults.of(partial(read, (*changes, *limit), **options, cluster=cluster, stack=stack), None)
        for cluster, stack, limit in machines
    ]
    found = [each for each in opened if each is not None]
    fixed = _settled(found[0].settled) if found else {}
    allowed = fixed | {name: value for name, value in words.items() if name in Space.model_fields}
    space = faults.of(lambda: _space(allowed, named), None)
    tokens = faults.of(lambda: _tokens(named["tokens"]), 1.0)
    deadline_s = faults.of(lambda: _seconds(named["deadline"]), None)
    budget_usd = faults.of(lambda: _dollars(named["budget"]), None)
    objectives = named["objectives"] if isinstance(named["objectives"], tuple) else ()
    question = faults.of(
        lambda: Question(
            jobs=tuple(each.job for each in found),
            given=tuple(each.job.model_copy(update={"plan": each.given}) for each in found if each.given),
            space=space or Space(),
            objectives=objectives or ("step_time",),
            total_tokens=tokens,
            deadline_s=deadline_s,
            budget_usd=budget_usd,
        ),
        None,
    )
    if question is None or faults.found:
        raise SpecError(faults.told(without_job=not found))
    return question


def _limited(watts: object) -> tuple[str, ...]:
    """Return the change that sets the power limit of a device; none if no limit is given."""
    return () if watts is None else (f"site.power_limit_w={watts}",)


def _each_once(named: object) -> tuple[object, ...]:
    """Return the values of an option that may be given several times; (None,) if it is not given."""
    values = named if isinstance(named, tuple) else (named,)
    return tuple(dict.fromkeys(values)) or (None,)


@dataclass(frozen=True, slots=True)
class _Faults:
    """Faults of several steps, each told once: one that fails does not hide those of the others."""

    found: list[Problem] = field(default_factory=list)

    def of(self, step: Callable[[], Made], instead: Made) -> Made:
        """Return the result of a step; if it fails, keep its faults."""
        try:
            return step()
        except SpecError as error:
            self.found.extend(one for one in error.problems if one not in self.found)
            return instead

    def told(self, *, without_job: bool) -> list[Problem]:
        """Return all faults, without those that only follow from faults of the job."""
        return [one for one in self.found if not (without_job and one.field == "jobs")]


def _split_changes(changes: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Return the changes of the plan, in short form, and all others."""
    of_plan = [change.removeprefix("plan.") for change in changes if change.startswith("plan.")]
    return of_plan, tuple(change for change in changes if not change.startswith("plan."))


def _plan_text(own: Mapping[str, object]) -> str:
    """Return a plan in which these fields are fixed and the rest is open."""
    told = (name if value is True else f"{name}={value}" for name, value in own.items() if name != "auto")
    return " ".join(["auto", *told])


def _settled(fixed: Mapping[str, object]) -> dict[str, object]:
    """Return the fixed fields of a job's plan that a space has."""
    found = {name: value for name, value in fixed.items() if name in Space.model_fields}
    if "recompute" in fixed:
        found["recompute"] = Plan(**dict(fixed)).recompute_word
    return found


def _space(fields: Mapping[str, object], named: Mapping[str, object]) -> Space:
    """Return what may vary, from the plan's text and options."""
    places: dict[Place, str] = {
        (): "--plan",
        ("num_devices",): "--gpus",
        ("headroom_fraction",): "--headroom",
    }
    data = {name: _several(name, value) for name, value in fields.items()}
    if named["gpus"] is not None:
        data["num_devices"] = named["gpus"]
    if named["headroom"] is not None:
        data["headroom_fraction"] = named["headroom"]
    if named.get("no_refine"):
        data["refine"] = False
    if named["tp_beyond_domain"]:
        data["tensor_in_domain"] = False
    return build(Space, Document("--plan", data, {}, places), data)


def _several(name: str, value: object) -> object:
    """Return the values of one field, separated by commas as in "precision=bf16,fp8"; numbers stay a text.

    A comma inside a word of recompute ("selective:mlp,layernorm") separates its modules.

    >>> _several("recompute", "none,selective:mlp,layernorm"), _several("tensor_parallel", "2,4")
    (['none', 'selective:mlp,layernorm'], '2,4')
    """
    if name not in WORDS or not isinstance(value, str):
        return value
    return re.split(r",(?=none|selective|full)" if name == "recompute" else ",", value)


def _tokens(text: object) -> float:
    """Return how many tokens a text states; 0 for None."""
    try:
        number = 0.0 if text is None else parse_tokens(str(text))
    except ValueError:
        number = -1.0
    if number < 0 or (number == 0 and text is not None):
        allowed = "a number above 0, such as 2e12, 2T or 300B"
        raise SpecError(
            [option_problem("--tokens", text, allowed, "tokens are counted", "write --tokens 2T")]
        )
    return number


def _dollars(text: object) -> float | None:
    """Return an amount of money, with or without its unit; with letters as for tokens."""
    if text is None:
        return None
    try:
        amount = parse_tokens(str(text).replace("$", "").replace("USD", ""))
    except ValueError:
        amount = 0.0
    if amount <= 0:
        allowed = 'dollars above 0, such as "2.5M USD" or 40000'
        raise SpecError(
            [option_problem("--budget", text, allowed, "prices are in dollars", 'write --budget "2M USD"')]
        )
    return amount


def _seconds(text: object) -> float | None:
    """Return the seconds of a time with its unit."""
    if text is None:
        return None
    try:
        seconds = parse_quantity(str(text), units_of("deadline_s"))
    except ValueError:
        seconds = -1.0
    if seconds <= 0:
        because = "a deadline is a time from the start of the run"
        raise SpecError(
            [
                option_problem(
                    "--deadline", text, 'above 0, such as "30 d" or "12 h"', because, 'write "30 d"'
                )
            ]
        )
    return seconds
