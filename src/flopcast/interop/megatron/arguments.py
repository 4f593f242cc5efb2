"""The flags of one training command as typed values, and their faults.

Answers: which value does `--num-layers` have, on which line is it, and is it allowed?
Elsewhere: the known flags (flags.py), their meaning for a job (launch_script.py).

As with Python's argparse, the last of several equal flags counts, `--flag=value` is `--flag value`, and a
value that starts with two dashes is a flag.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from flopcast.errors import VARIABLE, Problem
from flopcast.files.field_examples import EXAMPLES
from flopcast.files.field_names import same_in_section
from flopcast.files.nearest_names import choice_fix
from flopcast.files.unknown_keys import unknown_key
from flopcast.interop.megatron.flags import (
    KNOWN,
    LISTED,
    MEANS_NONE,
    MODELLED,
    NOT_MODELLED,
    ONLY_ZERO_MEANS_NONE,
    REFUSED,
    SWITCHES,
    WORDS,
    is_known,
)
from flopcast.interop.shell.parameters import from_outside
from flopcast.interop.shell.variables import Word
from flopcast.slips import meant

_WHOLE = re.compile(r"-?[0-9]{1,13}")
MOST = 10**12
NAMES = ("--tokenizer-", "--vocab-file", "--merge-file")  # flags of names and paths, which are no degrees
SLIP = 0.85  # of letters in common, from which a word without hyphens is a misspelt flag
SHORTEST = 9  # shorter names are not checked for typing errors: "--fp16" and "--bf16" are close


class Arguments:
    """Flags by name, the faults found so far, and the assumptions about flags.

    There are five kinds of flags: those that are read; those that do not affect the time, which are
    ignored; those whose effect is not modelled, which become an assumption; those that request an
    unsupported feature, which are faults; and unknown ones. An unknown flag is a fault if it is a
    misspelling of one that matters, and otherwise a note.

    Readers return a default if a flag is missing or its value is wrong. A wrong value adds a fault to
    `problems`, and reading continues, so that all faults are reported together.
    """

    def __init__(self, name: str, words: Sequence[Word], line: int) -> None:
        """Store `words`, the arguments after the training program; `line` is the line of the command."""
        self.problems: list[Problem] = []
        self.assumptions: list[str] = []
        self.wide_gradients = False  # whether a file of DeepSpeed in the script accumulates them in fp32
        self._name = name
        self._line = line
        self._given: dict[str, tuple[Word, list[Word]]] = {}
        self._misspelt: set[str] = set()
        for flag, values in grouped(words):
            self._take(flag, values)
        self._sort()

    def has(self, *flags: str) -> bool:
        """Return whether any of these flags is given."""
        return any(flag in self._given for flag in flags)

    def first(self, *flags: str) -> str:
        """Return the first given flag of several names for one setting, or the first name."""
        return next((flag for flag in flags if flag in self._given), flags[0])

    def line(self, flag: str) -> int:
        """Return the line of a flag's value, or the line of the command if the flag is missing."""
        if flag not in self._given:
            return self._line
        word, values = self._given[flag]
        return values[0].line if values else word.line

    def where(self, flag: str) -> str:
        """Return the place of a flag's value as "file:line"."""
        return f"{self._name}:{self.line(flag)}"

    def words(self, flag: str) -> list[Word]:
        """Return all values of a flag."""
        return self._given[flag][1] if flag in self._given else []

    def text(self, flag: str) -> str:
        """Return the value without the quotes that an option string may have kept; "" if there is none."""
        words = self.words(flag)
        return words[0].text.strip("'\"") if words else ""

    def count(self, flag: str, default: int = 1, least: int = 1) -> int:
        """Return a whole number.

        Parameters
        ----------
        flag : a modelled flag
        default : Megatron-LM's value if the flag is missing
        least : the smallest valid value: a degree is never 0, but a ZeRO stage may be
        """
        text = self.text(flag)
        if not self.has(flag) or not self._one_value(flag, "a whole number"):
            return default
        number = int(text) if _WHOLE.fullmatch(text) else None
        if number is None or not least <= number <= MOST:
            because = "the value is not a whole number"
            if number is not None or text.isdecimal():
                small = number is not None and number < least
                because = f"{'smaller' if small else 'larger'} values are not possible"
            usual = _example(flag, max(least, default))
            allowed = f"a whole number of at least {least}" + f", such as {usual}" * (int(usual) > 1)
            fix = f"write {flag} {meant(text, allowed) or usual}"
            self.fault(flag, text, allowed, because, fix)
            return default
        return number

    def required(self, *flags: str) -> int:
        """Return a whole number that Megatron-LM also requires; the flags are alternative names of one
        setting.

        A misspelt flag is reported only as unknown and not also as missing.
        """
        flag = self.first(*flags)
        if not self.has(flag) and not self._misspelt & set(flags):
            fix = f"add {flag} with a value, such as {flag} {_example(flag, 1)}"
            if other := same_in_section(flag, self._given):
                fix = f"write {flag} in place of {other[0]}"
            allowed = "a whole number"
            self.fault(flag, None, allowed, "Megatron-LM would not start without it", fix, "is missing")
        return self.count(flag)

    def fraction(self, flag: str, default_fraction: float) -> float:
        """Return a probability or share in [0, 1].

        A value outside of it is reported, and the default is returned so that reading goes on.
        """
        if not self.has(flag) or not self._one_value(flag, "a number from 0 to 1"):
            return default_fraction
        try:
            number = float(self.text(flag))
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1:
            allowed = "a number from 0 to 1"
            fix = "the setting is a probability or a fraction"
            self.fault(flag, self.text(flag), allowed, fix, f"write {flag} 0.1")
            return default_fraction
        return number

    def choice(self, flag: str, default: str) -> str:
        """Return the meaning of the word of a flag, as the table of words says; case is ignored."""
        values = WORDS[flag]
        if not self.has(flag) or not self._one_value(flag, f"one of {', '.join(values)}"):
            return default
        text = self.text(flag).lower()
        if text not in values:
            fix = choice_fix(text, values, default, option=flag)
            because = "flopcast does not support this value"
            self.fault(flag, self.text(flag), ", ".join(values), because, fix)
            return default
        return values[text]

    def faulty(self, *flags: str) -> bool:
        """Return whether any of these flags has a fault, so that its value must not affect others."""
        return bool(self._misspelt & set(flags)) or any(problem.field in flags for problem in self.problems)

    def fault(
        self, flag: str, value: object, allowed: str, because: str, fix: str, fault: str = ""
    ) -> None:
        """Record a fault of a flag; `fault` describes the fault if the value alone does not show it."""
        if unset := VARIABLE.search(str(value)):
            because = f"the script does not set the variable {unset[1] or unset[2]}"
            fix = from_outside(unset[0], _example(flag, 2))
        self.problems.append(
            Problem(flag, value, allowed, because, fix, where=self.where(flag), fault=fault)
        )

    def clash(self, flag: str, other: str, because: str) -> None:
        """Report two contradictory flags, if both are given."""
        if self.has(flag) and self.has(other):
            allowed, fix = f"either {flag} or {other}", f"remove {flag} or {other}"
            self.fault(flag, None, allowed, because, fix, f"conflicts with {other}")

    def assume(self, text: str, flag: str = "") -> None:
        """Report an assumption of the prediction, with the line of the flag that it concerns."""
        place = f" ({self.where(flag)})" if flag and self.has(flag) else ""
        self.assumptions.append(f"{text}{place}")

    def _take(self, flag: Word, values: list[Word]) -> None:
        """Read a flag with its values; the last of repeated ones counts."""
        name = flag.text
        if name == "--":
            self._take_separate_dashes(flag, values)
            return
        after = values if name in SWITCHES else values[1:] if name in MODELLED - LISTED else []
        for word in after:
            if word.unknown:
                self.assume(
                    f"the variable {word.unknown} ({self._name}:{word.line}) is not set, so flags in "
                    "its value are ignored"
                )
        stray = [word for word in after if word.text.strip() and not word.unknown]
        self._given[name] = (flag, [] if name in SWITCHES else [word for word in values if word.text])
        if stray:
            switch, text = name in SWITCHES, " ".join(word.text for word in stray)
            allowed = "no value" if switch else "one value"
            place = "" if stray[0].line == flag.line else f" in line {stray[0].line}"
            second = f"{stray[0].text}{place} is a second value of the flag, after {values[0].text}"
            because = "this flag takes no value" if switch else second
            meant = get_close_matches(f"--{stray[0].text}", KNOWN, n=1, cutoff=SLIP)
            if name.startswith(NAMES) and not meant:  # "your tokenizer path" of scripts to be filled in
                self.assume(f"{text} after {name} is ignored, because a name or path is one word", name)
                return
            self._misspelt |= set(meant)
            fix = f"write {meant[0]} in place of {stray[0].text}" if meant else f"remove {text}"
            self.fault(name, text, allowed, f"{because}, so Megatron-LM would not start", fix)

    def _take_separate_dashes(self, dashes: Word, after: list[Word]) -> None:
        """Report `--` without a name; usually, a space separates it from the name of its flag."""
        name = f"--{after[0].text}" if after else ""
        fix = f'write {name} in place of "-- {after[0].text}"' if is_known(name) else "remove --"
        self._misspelt.add(name)
        because = "-- without a name ends the flags, so Megatron-LM would not start"
        allowed, where = "a flag, whose name follows -- without a space", f"{self._name}:{dashes.line}"
        self.problems.append(Problem("--", None, allowed, because, fix, where, "is not a flag"))

    def _sort(self) -> None:
        """Report the flags that are not modelled, not supported or not known."""
        for flag in self._given:
            if flag in NOT_MODELLED:
                self.assume(f"{flag} is not supported yet: {NOT_MODELLED[flag]}", flag)
            elif flag in REFUSED:
                self._refuse(flag)
            elif not is_known(flag):
                self._unknown(flag)

    def _refuse(self, flag: str) -> None:
        """Report a flag that requests an unsupported feature, unless its value requests none.

        `--num-experts 1` is a dense model, and `--mtp-num-layers 1` requests one further layer.
        """
        none = ("0", "0.0") if flag in ONLY_ZERO_MEANS_NONE else MEANS_NONE
        replaced = "replaced this flag by" in REFUSED[flag]
        if self.text(flag) in none and self.words(flag) and not replaced:
            return
        because = f"flopcast does not yet support {REFUSED[flag]}"
        fix = f"remove {flag} to predict the job without it"
        if replaced:
            right = REFUSED[flag].split()[-1]
            self._misspelt.add(right)
            because, fix = REFUSED[flag], f"write {' '.join((right, self.text(flag))).strip()}"
        self.fault(flag, self.text(flag) or True, "a script without this flag", because, fix)

    def _unknown(self, flag: str) -> None:
        """Report a flag that no release has: an error if it may change time or memory, else a note."""
        value = self.text(flag) if self.words(flag) else True
        weighty = MODELLED | REFUSED.keys()
        known = unknown_key(
            flag,
            value,
            program="Megatron-LM",
            weighty=weighty,
            others=sorted(KNOWN - weighty),
            shortest=SHORTEST,
            least_fraction=0.75,
        )
        if known.because:
            self._misspelt |= {known.near} if known.slip and known.near else set()
            remove = f"remove {flag} to predict the job without it"
            fix = f"did you mean {known.near}?" if known.near else remove
            if known.near and self.has(known.near):
                fix = f"remove {' '.join((flag, self.text(flag))).strip()}: {known.near} is given"
            because = f"{known.because} and would not start" if known.slip else known.because
            self.fault(flag, None, "a flag of Megatron-LM", because, fix, "is not known")
            return
        hint = f"; did you mean {known.near}?" if known.near else ""
        self.assume(f"{flag} is not known and is ignored{hint}", flag)

    def _one_value(self, flag: str, allowed: str) -> bool:
        """Return whether the script alone determines a flag's single value; if not, report the flag."""
        words = self.words(flag)
        if not words:
            fix = f"write a value after {flag}, such as {flag} {_example(flag, 1)}"
            self.fault(flag, None, allowed, "the flag needs a value", fix, "has no value")
        elif words[0].unknown:
            because = f"only the shell that runs the script knows the value of {words[0].unknown}"
            fix = from_outside(words[0].unknown, _example(flag, 2))
            self.fault(flag, words[0].text, allowed, because, fix)
        return bool(words) and not words[0].unknown


def _example(flag: str, default: int) -> str:
    """Return a typical value of a flag.

    >>> _example("--num-attention-heads", 1), _example("--context-parallel-size", 1)
    ('32', '1')
    """
    return EXAMPLES.get(flag.strip("-").replace("-", "_"), str(default))


def grouped(words: Iterable[Word]) -> list[tuple[Word, list[Word]]]:
    """Return flags, each with the words before the next flag; words before the first flag are ignored.

    A separate `--` counts as a flag, because it is not a value of the flag before it.

    >>> [(flag.text, [v.text for v in values]) for flag, values in grouped(
    ...     [Word("--lr=1e-4", 1), Word("--split", 2), Word("98,2", 2), Word("-1", 2)])]
    [('--lr', ['1e-4']), ('--split', ['98,2', '-1'])]
    """
    groups: list[tuple[Word, list[Word]]] = []
    for word in words:
        name, equals, value = word.text.partition("=")
        if name.startswith("--") and len(name) > 2:
            flag = Word(name, word.line)
            groups.append((flag, [Word(value, word.line, word.unknown)] if equals else []))
        elif groups and name == "--":
            groups.append((word, []))
        elif groups:
            groups[-1][1].append(word)
    return groups
