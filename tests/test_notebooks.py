"""Notebooks show what they give today."""

import json

from all_cases import all_cases
from notebooks import EXAMPLES, executed, written


def test_there_is_a_notebook_for_each_of_three_ways_to_begin():
    assert [path.stem for path in EXAMPLES] == ["calibrating", "choosing_hardware", "first_prediction"]


@all_cases("path", EXAMPLES)
def test_every_notebook_shows_what_it_gives_today(path):
    text = path.read_text(encoding="utf-8")

    assert written(executed(json.loads(text))) == text, "python tests/notebooks.py runs all of them"
