"""What the documentation shows is what the program prints: every block is run, `...` is any text."""

import doctest
import re
import shlex
import sys
from pathlib import Path

import pytest

from flopcast.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = ("git clone", "./dev")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
ELLIPSIS = doctest.OutputChecker()


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def steps(text):
    """Commands of a console block, each with the output shown."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_does_what_it_shows(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for language, text in blocks(page):
        named = re.match(r"# (\w+\.yaml)\n", text)
        if named:
            Path(named.group(1)).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, page.name, "exec"), {})  # the page's own code
        elif language == "console":
            for command, shown in steps(text):
                if not command.startswith(NOT_RUN):
                    printed, code = output_of(command, monkeypatch, capsys)
                    assert ELLIPSIS.check_output(shown, printed, doctest.ELLIPSIS), f"{command}\n{printed}"
                    assert code == ("in the input" in shown), f"{command}\n{printed}"


def output_of(command, monkeypatch, capsys):
    program, *arguments = shlex.split(command)
    assert program.endswith("flopcast"), command
    monkeypatch.setattr(sys, "argv", ["flopcast", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return "".join(capsys.readouterr()), ended.value.code or 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_first_screen_of_the_readme_holds_the_commands_a_prediction_and_the_accuracy():
    first = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30])
    for needed in ("./dev run", "flopcast predict", "90 %:", "flopcast validate", "4.98 %"):
        assert needed in first


def test_the_accuracy_page_is_what_its_command_prints(monkeypatch, capsys):
    page = (ROOT / "docs/accuracy/suites.md").read_text(encoding="utf-8")
    printed, _ = output_of("flopcast validate --markdown", monkeypatch, capsys)
    assert printed == page, "flopcast validate --markdown > docs/accuracy/suites.md"


def test_the_readmes_accuracy_table_holds_the_numbers_of_the_accuracy_page():
    page = (ROOT / "docs/accuracy/suites.md").read_text(encoding="utf-8")
    table = (ROOT / "README.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^\| (\S+ \| (?:best|mean)) \| \d+ \| ([\d.]+)% ", page, re.M)[:4])
    assert len(found) == 4
    for value in found.values():
        assert f"{value} %" in table
