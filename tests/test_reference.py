"""Pages of the reference are what commands, docstrings and the API say of themselves."""

from all_cases import all_cases
from pages import ROOT
from reference import PAGES

import flopcast
from flopcast.cli.main import COMMANDS

REFERENCE = ROOT / "docs/reference"


@all_cases("name", PAGES)
def test_a_page_of_the_reference_is_what_its_source_says(name):
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name](), "python tests/reference.py"


def test_every_command_and_every_public_name_has_its_heading():
    cli, python = ((REFERENCE / name).read_text(encoding="utf-8") for name in ("cli.md", "python.md"))

    assert {name for name in COMMANDS if f"\n## flopcast {name}\n" not in cli} == set()
    assert {name for name in flopcast.__all__ if f"\n## flopcast.{name}\n" not in python} == set()


def test_no_page_of_the_reference_is_left_of_another_time():
    assert {page.name for page in REFERENCE.iterdir()} == set(PAGES)
