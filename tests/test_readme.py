"""The README shows what the program prints, and its first screen and its numbers hold what they must."""

import re

from all_cases import all_cases
from pages import README, ROOT, counts, faults, links, own_config

TEXT = README.read_text(encoding="utf-8")


def test_every_block_of_the_readme_does_what_it_shows(tmp_path):
    own_config(tmp_path)

    assert faults(TEXT, tmp_path) == []


@all_cases("target", sorted(set(links(TEXT))))
def test_every_link_of_the_readme_leads_somewhere(target):
    assert (ROOT / target).exists()


def test_the_first_screens_of_the_readme_hold_the_commands_a_prediction_and_the_accuracy():
    first = TEXT[: TEXT.index("## Your own job")]

    assert len(first.splitlines()) < 90
    for needed in ("./dev run", "config.json", "90 %:", "blind", "left out", "docs/accuracy/overview.md"):
        assert needed in first
    assert first.count("$ flopcast ") == 3


def test_the_readme_counts_what_the_catalogue_lists():
    kinds = ("devices", "clusters", "models", "stacks")

    told = {kind: int(found[1]) for kind in kinds if (found := re.search(rf"\b(\d+) {kind}\b", TEXT))}

    assert told == {kind: counts()[kind] for kind in kinds}, "python tests/pages.py counts again"


def test_the_overview_of_the_accuracy_holds_the_numbers_of_the_suites():
    page, overview = (
        (ROOT / "docs/accuracy" / name).read_text(encoding="utf-8") for name in ("suites.md", "overview.md")
    )
    found = dict(re.findall(r"^\| (\S+ \| (?:best|mean)) \| \d+ \| ([\d.]+)% ", page, re.M)[:4])
    assert len(found) == 4
    for value in found.values():
        assert f"{value} %" in overview
