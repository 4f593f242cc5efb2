"""The words for a refused value: the allowed range, the meaning of the field, an edit that passes."""

from typing import Annotated, Literal

import pytest
from all_cases import all_cases
from annotated_types import Gt
from pydantic import Field, model_validator

from flopcast.errors import SpecError
from flopcast.files.field_examples import EXAMPLES
from flopcast.files.validate import build
from flopcast.files.yaml_text import read_yaml
from flopcast.spec.site import RunShare, Site, SiteFactor, SiteRun
from flopcast.strict_model import StrictModel


class Fan(StrictModel):
    """A fan.

    Attributes
    ----------
    load_fraction, spare_fraction : float
        Power over its maximum. A fan that stands still has 0.
    mode : str
    """

    load_fraction: float = Field(default=0.5, ge=0, lt=1)
    spare_fraction: float = Field(default=0.5, gt=0, le=0.2, description="not shown")
    blades: int = Field(default=3, ge=2, le=9, description="of its wheel")
    delay_s: float = Field(default=1.0, gt=0)
    mode: Literal["fast", "slow"] = "fast"
    draw_w: dict[str, Annotated[float, Gt(0)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _slow_fans_wait(self) -> "Fan":
        if self.mode == "slow" and self.delay_s < 1:
            raise ValueError("a delay_s of 1 s or more, where the mode is slow")
        return self


def told(text, noun=Fan):
    """Allowed values, reason and edit of the only fault."""
    document = read_yaml(text.encode(), "fan.yaml")
    with pytest.raises(SpecError) as error:
        build(noun, document, document.data)
    (problem,) = error.value.problems
    return problem.allowed, problem.because, problem.fix


MEANS = '("power over its maximum")'


@all_cases(
    ("text", "allowed", "because"),
    [
        (
            "load_fraction: -1",
            "a number of at least 0 and below 1",
            f"smaller values are not possible for load_fraction {MEANS}",
        ),
        (
            "load_fraction: 1",
            "a number of at least 0 and below 1",
            f"larger values are not possible for load_fraction {MEANS}",
        ),
        (
            "spare_fraction: 0.3",
            "a number above 0 and at most 0.2",
            f"larger values are not possible for spare_fraction {MEANS}",
        ),
        (
            "blades: 1",
            "a whole number from 2 to 9",
            'smaller values are not possible for blades ("of its wheel")',
        ),
        ("delay_s: 0 ms", "a quantity above 0 s", "smaller values are not possible"),
        ("draw_w: {full: 0 W}", "a quantity above 0 W", "smaller values are not possible"),
        ("blades: many", "a whole number from 2 to 9", "the value is not a whole number"),
        ("mode: 7", "fast or slow", "flopcast supports only these values"),
        (
            "{mode: slow, delay_s: 1 ms}",
            "a delay_s of 1 s or more, where the mode is slow",
            "the fields of document contradict each other",
        ),
    ],
)
def test_a_refused_value_is_told_with_its_range_and_its_meaning(text, allowed, because):
    assert told(text)[:2] == (allowed, because)


@all_cases(
    ("text", "fix"),
    [
        ("blades: 1", "set blades to 3, the default"),
        ("draw_w: {full: 0 W}", "set full to 1 W"),
        ("mode: slo", "set mode to slow"),
        ("mode: 7", "set mode to fast"),
    ],
)
def test_the_edit_says_which_value_would_pass(text, fix):
    assert told(text)[2] == fix


def test_the_spread_of_clocks_has_a_range_and_a_meaning():
    assert told("clock_spread_fraction: 0.5", Site) == (
        "a number from 0 to 0.2",
        'larger values are not possible for clock_spread_fraction ("standard deviation of the'
        ' clocks of equal devices, divided by their mean")',
        "set clock_spread_fraction to 0.015, the default",
    )


def test_required_numbers_of_a_site_have_examples():
    for noun in (SiteFactor, SiteRun, RunShare):
        numbers = [name for name, field in noun.model_fields.items() if field.annotation is float]

        assert {*numbers} <= EXAMPLES.keys()
