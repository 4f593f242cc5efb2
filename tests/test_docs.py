"""The documentation is true: every block runs; links, files, commands and options that it names exist."""

import re
from collections import deque

import click
import pytest
from all_cases import all_cases
from conftest import PACKAGE
from pages import DOCS, README, ROOT, blocks, faults, links, output_of, refreshed, steps

from flopcast.cli.main import COMMANDS, group
from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES
from flopcast.interop.hugging_face.families import FAMILIES
from flopcast.lab.logs.formats import FORMATS
from flopcast.operators.memory_bound import KINDS
from flopcast.schedules import SCHEDULES
from flopcast.workload.rewrites import REWRITES

PAGES = [README, *DOCS]
CONCEPTS = [page for page in DOCS if page.parent.name == "concepts"]
REGISTERS = (FORMULAS, FALLBACK_CLASSES, FAMILIES, FORMATS, KINDS, SCHEDULES, REWRITES)
FOREIGN = re.compile(r"^```(?:bash|text|yaml|json|python)[^\n]*\n.*?^```$", re.M | re.S)
CONSOLE = re.compile(r"^```console[^\n]*\n.*?^```$", re.M | re.S)  # prints options of other programs too

WRITTEN = [page for page in PAGES if page.parent.name != "reference"]  # the others are made of help itself

every_written_page = all_cases("page", WRITTEN)
every_page = all_cases("page", PAGES)


def told(page):
    """A page's text without files and programs, whose options are not ours."""
    return FOREIGN.sub("", page.read_text(encoding="utf-8"))


def options(command):
    """Every "--option" of a command and of the commands below it."""
    found = {name for parameter in command.params for name in parameter.opts}
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found |= options(command.get_command(click.Context(command), name))
    return found | {"--help", "-h"}


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_does_what_it_shows_and_leaves_no_extension_behind(page, tmp_path):
    before = [dict(register) for register in REGISTERS]

    assert faults(page.read_text(encoding="utf-8"), tmp_path) == []
    assert [dict(register) for register in REGISTERS] == before


@every_page
def test_every_link_of_a_page_leads_somewhere(page):
    missing = [t for t in links(page.read_text(encoding="utf-8")) if not (page.parent / t).exists()]

    assert missing == []


def test_every_page_can_be_reached_from_the_readme():
    waiting, reached = deque([README]), {README}
    while waiting:
        page = waiting.popleft()
        targets = {(page.parent / target).resolve() for target in links(page.read_text(encoding="utf-8"))}
        new = {target for target in targets if target.suffix == ".md"} - reached
        reached |= new
        waiting.extend(new)

    assert set(DOCS) - reached == set()


@every_page
def test_every_command_that_a_page_names_exists(page):
    named = set(re.findall(r"(?:`|^\$ |/)flopcast ([a-z]+)", told(page), re.M))

    assert named - set(COMMANDS) == set()


@every_written_page
def test_every_option_that_a_page_names_is_one_of_a_command(page):
    text = CONSOLE.sub(lambda block: "\n".join(re.findall(r"^\$ .*", block[0], re.M)), told(page))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))

    assert named - options(group) == set()


def test_the_readme_names_every_command_but_the_demo():
    named = set(re.findall(r"`flopcast ([a-z]+)", README.read_text(encoding="utf-8")))

    assert named == set(COMMANDS) - {"demo"}  # which ./dev run runs


@every_page
def test_every_source_file_that_a_page_names_exists(page):
    named = set(re.findall(r"`((?:\w+/)+\w+\.py|\w+\.py)`", told(page)))
    places = (PACKAGE, ROOT)

    assert {name for name in named if not any((place / name).exists() for place in places)} == set()


def test_every_folder_of_the_flow_in_the_design_exists():
    design = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    drawing = design.split("```")[1]

    named = set(re.findall(r"\b(\w+/)(?:\w+)?", drawing))

    assert named >= {"spec/", "workload/", "schedules/", "memory/", "cost/", "timeline/", "report/"}
    assert {name for name in named if not (PACKAGE / name).is_dir()} == set()


def test_there_is_a_page_for_every_arrow_of_the_flow():
    arrows = {"job", "lower", "realise", "order", "memory", "price", "play", "report"}

    assert {page.stem for page in CONCEPTS} >= arrows


@all_cases("page", CONCEPTS)
def test_a_page_of_the_flow_is_short_and_has_one_checked_example_and_states_its_limits(page):
    text = page.read_text(encoding="utf-8")

    assert [block.language for block in blocks(text)] == ["python", "text"]
    assert text.count("**Limits.**") == 1
    assert len(text.splitlines()) <= 70


def test_a_page_that_shows_another_number_is_found(tmp_path):
    page = "```python\nprint(6 * 7)\n```\n\n```text output\n41\n```\n"

    assert "42" in faults(page, tmp_path)[0]


def test_a_page_that_shows_another_exit_code_is_found(tmp_path):
    page = "```console\n$ flopcast catalog nothing\n...\n```\n"

    assert "exit code 1" in faults(page, tmp_path)[0]


def test_a_block_that_is_neither_run_nor_a_file_is_found(tmp_path):
    assert len(faults("```json\n{}\n```\n", tmp_path)) == 1


def test_a_named_block_becomes_a_file_for_the_commands_behind_it(tmp_path):
    page = "```json title=a/config.json\n{}\n```\n"

    assert faults(page, tmp_path) == []
    assert (tmp_path / "a/config.json").read_text(encoding="utf-8") == "{}\n"


def test_a_command_may_go_on_in_the_next_line():
    assert steps("$ flopcast \\\ncatalog hosts\nhosts: a\n") == [("flopcast catalog hosts", "hosts: a\n")]


def test_a_shown_output_with_old_numbers_gets_those_of_today(tmp_path):
    page = '```python\nprint("step 7.5 s\\nrate 3")\n```\n\n```text output\nstep 6.9 s\n...\n```\n'

    assert refreshed(page, tmp_path) == page.replace("step 6.9 s", "step 7.5 s")


def test_what_a_command_says_on_stderr_follows_what_it_prints():
    printed, code = output_of("flopcast catalog nothing")

    assert (code, printed.startswith("1 error in the input") or "Usage" in printed) == (1, True)
