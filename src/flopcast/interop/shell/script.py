"""Launch scripts: the commands that a shell script runs, and their arguments. Nothing is executed.

Answers: what are the commands of this text after its variables, arrays and option strings are expanded?
Elsewhere: words and quotes (lexer.py), expansion (variables.py), conditions (conditions.py), the meaning of
flags (interop/megatron/launch_script.py, interop/serving/).

A branch is skipped if the script determines that it does not run. Otherwise, all branches are read in order
as if each were taken, and the last value counts; a loop's body is read once. Notes report both. Inside such
a branch, a value that only a running shell knows does not replace a known value: `while … case $1 in --tp)
TP=$2` keeps the default of TP. No other file is read.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import accumulate

from flopcast.interop.shell.commands import (
    READ_BY,
    Command,
    assignments,
    before_shell,
    inner_script,
    sets_variables,
    shell_of,
    variable_of_read,
    wrapped_script,
    written_script,
)
from flopcast.interop.shell.conditions import decided
from flopcast.interop.shell.lexer import document_parts, tokens_of
from flopcast.interop.shell.parameters import with_values
from flopcast.interop.shell.slurm import slurm_options, slurm_variables, submitted_options
from flopcast.interop.shell.text import check_text, fault
from flopcast.interop.shell.tokens import HERE_DOCUMENT, REDIRECTS, Token
from flopcast.interop.shell.variables import (
    MAX_NESTING,
    Value,
    Variables,
    Word,
    is_known,
    joined,
    text_of,
    word_of,
)
from flopcast.interop.shell.written_files import PRINTING, printed
from flopcast.records import Record

_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_IGNORED = ("then", "do", "{", "}", "!", "time", "else", "elif", "fi", "done", "esac", "in")
_UNDECIDED = "only a running shell can decide this condition, so flopcast reads all branches in order"


class Script(Record, kw_only=False):
    """The commands of a script, and notes.

    `variables` holds the final values, `directives` the options of `#SBATCH` lines by long name, and
    `notes` what could not be decided or read; `file` returns the text that is written to a path.
    """

    name: str
    commands: tuple[Command, ...]
    variables: Mapping[str, Word]
    directives: Mapping[str, Word]
    notes: tuple[str, ...]
    file: Callable[[str], Word | None]


def read_script(
    text: str,
    name: str,
    arguments: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Script:
    """Read a script.

    Parameters
    ----------
    text : str
        The whole script; at most 1 MB.
    name : str
        The name in error messages, usually the path.
    arguments, environment : mappings
        Values from outside: arguments by number, "1" for `$1`, and variables by name.

    Raises
    ------
    SpecError
        The script is not text, is too large, has unclosed quotes, or has values that grow without limit.

    Examples
    --------
    >>> script = read_script("TP=8; ARGS=(--tp $TP)\\ntorchrun train.py ${ARGS[@]}", "run.sh")
    >>> [word.text for word in script.commands[0].words]
    ['torchrun', 'train.py', '--tp', '8']
    """
    text = text.replace("\r\n", "\n")
    check_text(text, name)
    text = with_values(text, arguments or {}, environment or {})
    directives = slurm_options(text)
    reader = _Reader(name, Variables(name, slurm_variables(directives)), directives)
    reader.read(tokens_of(text, name))
    variables = {key: word_of(value, 1) for key, value in reader.variables.scalars.items()}
    return Script(name, tuple(reader.commands), variables, reader.directives, reader.notes(), reader.file)


class _Reader:
    """Goes through the tokens, keeps variables, and collects commands.

    `_live`: the current text runs. `_doubtful` counts open undecided branches and loops, `_effects` the
    assignments and commands with options: a branch without any needs no note.
    """

    def __init__(self, name: str, variables: Variables, directives: Mapping[str, Word]) -> None:
        self.variables = variables
        self.directives = dict(directives)
        self.commands: list[Command] = []
        self._name = name
        self._tokens: tuple[Token, ...] = ()
        self._at = 0
        self._live = True
        self._doubtful = 0
        self._effects = 0
        self._depth = 0
        self._outer: tuple[Word, ...] = ()
        self._files: dict[str, Callable[[], Value]] = {}  # texts that were written to files
        self._target = ""
        self._shell: tuple[Word, ...] = ()  # a command of the last line that runs what it reads
        self._noted: dict[str, list[int]] = {}

    def read(self, tokens: tuple[Token, ...]) -> None:
        """Read a text, or one that `eval` or `bash -c` reads again, then continue at the old position."""
        outside = self._tokens, self._at
        self._tokens, self._at = tokens, 0
        while self._at < len(self._tokens):
            self._block(())
        self._tokens, self._at = outside

    def notes(self) -> tuple[str, ...]:
        """Return one note per kind of undecided or unread text, with its lines."""
        return tuple(
            f"{self._name}: line{'s' * (len(lines) > 1)} {', '.join(map(str, sorted(set(lines))))}: {note}"
            for note, lines in self._noted.items()
        )

    def file(self, path: str) -> Word | None:
        """Return the text that was written to a path, None if there is none."""
        path = path.removeprefix("./")
        return word_of(self._files[path](), 1) if path in self._files else None

    def _note(self, note: str, line: int) -> None:
        if self._live:
            self._noted.setdefault(note, []).append(line)

    def _block(self, ends: Collection[str], live: bool = True, doubtful: bool = False) -> str:
        """Read commands up to a word or operator in `ends`, which is consumed and returned."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            line = self._tokens[min(self._at, len(self._tokens) - 1)].line
            raise fault(self._name, line, "block", self._depth, f"blocks nested at most {MAX_NESTING} deep")
        outside = self._live
        self._live = outside and live
        self._doubtful += doubtful
        end = ""
        while self._at < len(self._tokens) and not end:
            token = self._tokens[self._at]
            if (token.plain or token.text) in ends:
                end = token.plain or token.text
                self._at += 1
            else:
                self._statement(token)
        self._live, self._depth = outside, self._depth - 1
        self._doubtful -= doubtful
        return end

    def _statement(self, token: Token) -> None:
        """Read one command or compound command that begins with `token`."""
        word, after = token.plain, self._tokens[self._at + 1 : self._at + 2]
        if token.text == "newline" and not (after and after[0].text == HERE_DOCUMENT):
            self._shell, self._target = (), ""
        compound = {"if": self._if, "for": self._for, "while": self._while, "until": self._while}
        compound["case"] = self._case
        is_document = token.text == HERE_DOCUMENT
        if token.is_word and not is_document and word not in (*_IGNORED, *compound):
            self._simple(self._until_operator())
            return
        self._at += 1
        if is_document:
            self._document(token)
        elif token.is_word and word in compound:
            compound[word](token.line)

    def _document(self, token: Token) -> None:
        """Read a here-document that a shell runs, or store it for a file or for the variable of `read`."""
        shell, self._shell, target, self._target = self._shell, (), self._target, ""
        text = partial(self._text, token)
        if self._live and shell:
            self._submitted(text(), shell)
        elif self._live and target:
            self._files[target] = text
        elif self._live and (name := variable_of_read(self.commands)):
            self.variables.scalars[name] = text()

    def _text(self, token: Token) -> Value:
        return self.variables.value(document_parts(token, self._name))

    def _submitted(self, value: Value, shell: tuple[Word, ...]) -> None:
        """Read a text that a command runs as a script, after the words before the shell."""
        self.directives |= submitted_options(text_of(value), shell)
        self.variables.scalars |= slurm_variables(self.directives)
        self._again((value,), shell[: before_shell(shell)])

    def _until(self, word: str) -> tuple[Token, ...]:
        start = self._at  # the word is also consumed
        while self._at < len(self._tokens) and self._tokens[self._at].plain != word:
            self._at += 1
        self._at += 1
        return self._tokens[start : self._at - 1]

    def _until_operator(self) -> tuple[Token, ...]:
        """Return the words of one command, without redirections and their targets."""
        words = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.is_word:
                words.append(token)
            elif token.text not in REDIRECTS:
                break
            elif self._at + 1 < len(self._tokens) and self._tokens[self._at + 1].is_word:
                self._at += 1
                if token.text in (">", ">|"):
                    target = text_of(self.variables.value(self._tokens[self._at].parts))
                    self._target = target.removeprefix("./")
            self._at += 1
        return tuple(words)

    def _if(self, line: int) -> None:
        """Run branches in order until one is certainly taken; skip those that are certainly not taken."""
        done, doubtful, end, before = False, False, "if", self._effects
        while end in ("if", "elif"):
            verdict = decided(self._until("then"), self.variables) if not done and self._live else False
            doubtful = doubtful or (verdict is None and not done)
            end = self._block(("elif", "else", "fi"), verdict is not False, doubtful)
            done = done or verdict is True
        if end == "else":
            self._block(("fi",), not done, doubtful)
        if doubtful and self._effects > before:
            self._note(_UNDECIDED, line)

    def _for(self, line: int) -> None:
        head = [token for token in self._until("do") if token.is_word]
        if self._live and len(head) > 2 and head[1].plain == "in":
            values = self.variables.elements(head[2:])
            if values and is_known(values[0]):
                self.variables.scalars[head[0].plain] = values[0]
            if len(values) != 1:
                self._note("flopcast reads the body of this loop once, with the first value", line)
        self._block(("done",))

    def _while(self, line: int) -> None:
        self._until("do")
        before = self._effects
        self._block(("done",), doubtful=True)
        if self._effects > before:
            self._note("flopcast reads the body of this loop once", line)

    def _case(self, line: int) -> None:
        """Run the branch whose pattern matches; all of them, in order, if the word is unknown."""
        words = self._until("in")
        value = self.variables.value(words[0].parts) if words and self._live else ()
        known, done, before = is_known(value) and bool(words), False, self._effects
        end = ";;"
        while end.startswith(";") and (patterns := self._patterns()) is not None:
            fits = not known or any(fnmatchcase(text_of(value), pattern) for pattern in patterns)
            end = self._block((";;", ";&", ";;&", "esac"), fits and not done, not known)
            done = done or (known and fits)
        if not known and self._effects > before:
            self._note(_UNDECIDED, line)

    def _patterns(self) -> list[str] | None:
        patterns: list[str] = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token.plain == "esac" or token.text == ")":
                return patterns if token.plain != "esac" else None
            if token.is_word:
                patterns.append(text_of(self.variables.value(token.parts)))
        return None

    def _simple(self, words: tuple[Token, ...]) -> None:
        """Run assignments, and the command that follows them, if any."""
        if not self._live or not words:
            return
        declares = words[0].plain in _DECLARING
        assigned = assignments(words, anywhere=declares)
        rest = words[len(assigned) :]
        if declares or not rest:
            for token, named in assigned:
                self._effects += 1
                self.variables.assign(token, named, doubtful=bool(self._doubtful))
            return
        held = self.variables
        environment = {
            named[1]: word_of(held.value_assigned(token, named), token.line) for token, named in assigned
        }
        if values := held.elements(rest):
            self._run(values, environment, words[0].line)

    def _run(self, values: Sequence[Value], environment: Mapping[str, Word], line: int) -> None:
        """Run a command with its variables expanded; `eval` and `bash -c` are read again.

        The words before `bash -c` (srun, docker run, numactl) also precede each command of the inner
        script, so that the launcher is found when ranks are counted.
        """
        program = text_of(values[0])
        if program in ("source", "."):
            self._note(f"{' '.join(map(text_of, values))}: flopcast does not read other files", line)
        elif program == "eval":
            self._again(values[1:], ())
        elif program in PRINTING and self._target:
            self._files[self._target] = partial(printed, values)
        elif not sets_variables(values, self.variables, bool(self._doubtful)):
            inner = inner_script(values)
            outer = (*self._outer, *(word_of(value, line) for value in values[: inner or len(values)]))
            if inner:
                self._again(values[inner : inner + 1], outer[: shell_of(values)])
            else:
                words = tuple(word_of(value, line) for value in values)
                if program.rpartition("/")[2] in READ_BY or shell_of(values) >= 0:
                    self._shell = words
                if written := written_script(words, self._files, bool(self._shell)):
                    self._submitted(self._files.pop(written)(), words)
                elif wrapped := wrapped_script(words):
                    self._submitted(wrapped, words)
                self.commands.append(Command(outer, environment, line))
                self._effects += any(word.text.startswith("--") for word in outer)

    def _again(self, values: Sequence[Value], outer: tuple[Word, ...]) -> None:
        """Read a text that the script has assembled as a separate script."""
        pieces = joined(values)
        starts = accumulate((len(piece.text) for piece in pieces), initial=0)
        lines = [(start, piece.line) for start, piece in zip(starts, pieces, strict=False)]
        outside, self._outer = self._outer, outer or self._outer
        self._depth += 1
        if pieces and self._depth <= MAX_NESTING:
            self.read(tokens_of("".join(piece.text for piece in pieces), self._name, lines))
        self._depth -= 1
        self._outer = outside
