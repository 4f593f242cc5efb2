"""How pages of the documentation are read and run: README.md and everything under docs/.

A fenced block says by its first word what becomes of it:

console        every line behind "$ " is run in this process; what follows it must be printed. `flopcast` is
               run, and `curl -s URL -d BODY` asks a server that runs as long as it takes (`flopcast ui`)
python         is run; a `text output` block right behind it must be what it prints
yaml json ...  with `title=NAME`, or a first line "# NAME.yaml", becomes a file beside the others

In what is shown, `...` is any text. A command ends with 0; with 1 where "in the input" is shown; otherwise
the fence says `exit=2`. Blocks without a language are drawings.

`python tests/pages.py` puts the numbers of today into what is shown, line by line; read the difference.
"""

import difflib
import doctest
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests/ui"))
from server_at_hand import asked, served  # noqa: E402

from flopcast.library import catalog  # noqa: E402

README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
NOT_RUN = ("git clone", "./dev")  # they set up what is already there
WRITTEN = ("yaml", "json", "bash", "text")
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)
_NAMED = re.compile(r"# ([\w.-]+\.yaml)\n")
_NUMBER = re.compile(r"\d[\d.,]*")
_ANY_NUMBER = re.compile(r"\d(?:\d|\\\.|,)*")  # in a pattern, where "." is escaped
_ELLIPSIS = doctest.OutputChecker()
Server = Callable[[], tuple[str, int]]  # starts a server when it is first called; its host and port


@dataclass(frozen=True)
class Block:
    """One fenced block: the line where it begins, its language, the rest of its fence, its text."""

    line: int
    language: str
    words: dict[str, str]
    text: str

    @property
    def file(self) -> str:
        """The file that the block is, "" for none."""
        named = _NAMED.match(self.text)
        return self.words.get("title", "") or (named.group(1) if named else "")


def blocks(text: str) -> list[Block]:
    """Every block with a language, in order."""
    return [
        Block(
            line=text.count("\n", 0, found.start()) + 1,
            language=found.group(1),
            words=dict(word.partition("=")[::2] for word in found.group(2).split()),
            text=found.group(3),
        )
        for found in _BLOCK.finditer(text)
    ]


def steps(text: str) -> list[tuple[str, str]]:
    """Commands of a console block, each with the output shown; a backslash carries a command on."""
    parts = re.split(r"^\$ ", text.replace("\\\n", ""), flags=re.M)[1:]
    return [part.partition("\n")[::2] for part in parts]


def matches(shown: str, printed: str) -> bool:
    """Whether this may be shown for what is printed; blanks at the ends of lines do not show."""
    shown, printed = (re.sub(r"[ \t]+$", "", text, flags=re.M) for text in (shown, printed))
    return _ELLIPSIS.check_output(shown, printed, doctest.ELLIPSIS)


@dataclass(frozen=True)
class Shown:
    """What a page shows of one command or program, beside what it prints and how it ends."""

    line: int
    command: str
    shown: str
    printed: str
    code: int = 0
    wanted_code: int = 0

    @property
    def fault(self) -> str:
        """What is not as it is shown, "" where all is."""
        if matches(self.shown, self.printed) and self.code == self.wanted_code:
            return ""
        return f"line {self.line}: {self.command}\nexit code {self.code}, printed\n{self.printed}"


def run_page(text: str, folder: Path) -> list[Shown]:
    """Run every block of a page in a folder, in order."""
    found: list[Shown] = []
    printed = ""
    with chdir(folder), ExitStack() as ends:
        server = cache(lambda: ends.enter_context(served()))  # one for all requests of the page
        for block in blocks(text):
            if block.language == "console":
                found += _console(block, server)
            elif block.language == "python":
                printed = _python(block)
            elif "output" in block.words:
                found.append(Shown(block.line, "the program above", block.text, printed))
            elif block.language in WRITTEN and block.file:
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                Path(block.file).write_text(block.text, encoding="utf-8")
            else:
                found.append(Shown(block.line, "a block that is neither run nor a file", "", "", code=-1))
    return found


def own_config(folder: Path) -> None:
    """The reader's config.json, with which the README begins: the tutorial's."""
    tutorial = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    config = next(block for block in blocks(tutorial) if block.file == "config.json")
    (folder / config.file).write_text(config.text, encoding="utf-8")


def faults(text: str, folder: Path) -> list[str]:
    """What a page shows that is not so."""
    return [shown.fault for shown in run_page(text, folder) if shown.fault]


def _console(block: Block, server: Server) -> list[Shown]:
    """What each command of a block prints."""
    found = []
    for command, shown in steps(block.text):
        if not command.startswith(NOT_RUN):
            wanted = int(block.words.get("exit", "in the input" in shown))
            printed, code = output_of(command, server)
            found.append(Shown(block.line, command, shown, printed, code, wanted))
    return found


def _python(block: Block) -> str:
    """What a program prints; it starts with no name defined."""
    code = compile("\n" * block.line + block.text, "page", "exec")
    return _printed(lambda: exec(code, {"__name__": "page"}))  # the page's own code


def output_of(command: str, server: Server | None = None) -> tuple[str, int]:
    """What `flopcast ...` prints on stdout and behind it on stderr, and its exit code.

    `server` starts a server at its first call and returns its address, for `curl`.
    """
    from flopcast.cli.main import main

    program, *arguments = shlex.split(command)
    if program == "curl" and server is not None:
        return _answer_of(server, *arguments), 0
    if os.path.basename(program) != "flopcast":
        return f"not a command of flopcast: {program}", -1
    before, codes = sys.argv, [0]

    def ended() -> None:
        try:
            main()
        except SystemExit as end:
            codes[0] = end.code or 0

    sys.argv = ["flopcast", *arguments]
    try:
        return _printed(ended), codes[0]
    finally:
        sys.argv = before


def _answer_of(server: Server, silent: str, url: str, data: str, body: str) -> str:
    """What a server of our own answers to `curl -s URL -d BODY`."""
    place = url.removeprefix("http://127.0.0.1:8000")
    if (silent, data) != ("-s", "-d") or place == url:
        return f"not a request that a page may show: {url}"
    return asked(server(), place, "POST", body)[2] + "\n"


def _printed(run: Callable[[], None]) -> str:
    """What a call prints, stdout first."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        run()
    return out.getvalue() + err.getvalue()


def links(text: str) -> list[str]:
    """Targets of links inside the project, without their anchors."""
    found = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    return [target for target in found if "://" not in target]


def refreshed(text: str, folder: Path) -> str:
    """The page with every shown line replaced by the printed line that is most like it, numbers aside."""
    for shown in run_page(text, folder):
        if shown.shown and not matches(shown.shown, shown.printed):
            text = text.replace(shown.shown, _renewed(shown.shown, shown.printed), 1)
    return text


def counts() -> dict[str, int]:
    """How many entries of each kind `flopcast catalog` lists."""
    return {kind: len(catalog.names(kind)) for kind in catalog.KINDS}


def recounted(text: str) -> str:
    """The page with the numbers of entries of today, in the paragraph of "`flopcast catalog` lists"."""
    before, told, rest = text.partition("`flopcast catalog` lists")
    paragraph, end, rest = rest.partition("\n\n")
    for kind, number in counts().items():
        paragraph = re.sub(rf"\b\d+ {kind}\b", f"{number} {kind}", paragraph) if told else paragraph
    return before + told + paragraph + end + rest


def _renewed(shown: str, printed: str) -> str:
    """Shown lines, in their order, as they are printed; lines with `...` inside take new numbers only."""
    rest, lines = printed.splitlines(), []
    for line in shown.splitlines():
        if "..." in line:
            lines.append(_with_new_numbers(line, printed.splitlines()))
            continue
        masked = [_masked(other) for other in rest]
        near = difflib.get_close_matches(_masked(line), masked, n=1, cutoff=0.5)
        if not line.strip() or not near:
            lines.append(line)
            continue
        at = masked.index(near[0])
        lines.append(rest[at].rstrip())
        rest = rest[at + 1 :]
    return "\n".join(lines) + "\n"


def _with_new_numbers(line: str, printed: list[str]) -> str:
    """A line with `...` inside, with the numbers of the printed line that shares most numbers with it."""
    pieces = line.split("...")
    alike = ".*".join(_ANY_NUMBER.sub(lambda _: r"(\d[\d.,]*)", re.escape(piece)) for piece in pieces)
    found = [match for match in (re.fullmatch(alike, other) for other in printed) if match]
    old = [number for piece in pieces for number in _NUMBER.findall(piece)]
    new = [list(match.groups()) for match in found]
    if not new:
        return line
    nearest = iter(max(new, key=lambda numbers: sum(map(str.__eq__, numbers, old))))
    return "...".join(_NUMBER.sub(lambda _: next(nearest), piece) for piece in pieces)


def _masked(line: str) -> str:
    """A line without its numbers and bars."""
    return re.sub(r"[\d.,]+|[█▏▎▍▌▋▊▉]+", "#", line)


if __name__ == "__main__":
    for page in [README, *DOCS]:
        before = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as place:
            own_config(Path(place))
            after = recounted(refreshed(before, Path(place)))
        if after != before:
            page.write_text(after, encoding="utf-8")
