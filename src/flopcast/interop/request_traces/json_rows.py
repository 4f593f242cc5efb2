"""Traces as JSON lines: one request, or one conversation, on each line.

Answers: which keys hold times, lengths, shared prefixes and turns, and what are their values?
Elsewhere: the allowed values (rows.py).

A request has `timestamp` in milliseconds, `input_length`, `output_length` and `hash_ids` of blocks of 512
tokens (kvcache-ai/Mooncake), or `arrival_s`, `prompt_tokens` and `output_tokens`. A conversation has
`conversations`, a list of turns with `from` and `value` (ShareGPT), and no time. Its tokens are estimated
from the length of its text.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flopcast.dtypes import Integers
from flopcast.errors import Problem, SpecError
from flopcast.files.field_names import meant_name
from flopcast.interop.request_traces.csv_rows import block_tokens
from flopcast.interop.request_traces.lines import Lines
from flopcast.interop.request_traces.rows import MOST_SHOWN, NO_TIME, Rows, Rules

BLOCK_TOKENS = 512  # of Mooncake's hashes
CHARACTERS_PER_TOKEN = 4  # of English text (OpenAI, "What are tokens and how to count them?")
TIMES = {"arrival_s": 1.0, "timestamp": 1e-3}  # key → seconds of its unit
PROMPTS = ("prompt_tokens", "input_length", "input_tokens", "prompt_len")
OUTPUTS = ("output_tokens", "output_length", "output_len")
ANSWERS = ("gpt", "assistant", "chatgpt", "bing", "bard", "model")  # who speaks in ShareGPT's files
_WIDEST = 2**31


def is_conversation(text: str) -> bool:
    """Return whether a line holds a conversation in full text."""
    return '"conversations"' in text


def json_rows(lines: Lines, rules: Rules) -> Rows:
    """Return the requests of lines; empty lines, and conversations without an answer, are skipped.

    Raises
    ------
    SpecError
        Lines are not JSON objects, or lack a length; at most MOST_SHOWN of them are reported.
    """
    gathered, problems = _Gathered(), list[Problem]()
    for line, text in enumerate(lines.texts, lines.first):
        if not text.strip():
            continue
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            allowed, because = "a JSON object", "each line of the trace is one request"
            fix = "write one object on each line, without brackets and commas between them"
            shown = text if len(text) < 80 else f"{text[:80]}…"
            where = f"{rules.path}:{line}"
            problems.append(Problem(f"{rules.field} line", shown, allowed, because, fix, where=where))
        elif "conversations" in data:
            gathered.conversation(line, data["conversations"])
        else:
            lacking = {each.field for each in problems if each.fault}  # one error for each missing key
            problems += [each for each in gathered.request(line, data, rules) if each.field not in lacking]
        if len(problems) >= MOST_SHOWN:
            break
    if problems:
        raise SpecError(problems)
    return gathered.rows()


class _Request(NamedTuple):
    """A request; `after` is the place of the turn before it, and `keep` the segment of its context."""

    line: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    segments: list[int]
    kept_tokens: int = 0  # of the segment of a conversation; 0 for hashes
    after: int = -1
    keep: int = -1


class _Gathered:
    """Requests of the lines that were read so far."""

    def __init__(self) -> None:
        self._requests: list[_Request] = []
        self._names: dict[str, str] = {}

    def _column(self, name: str) -> Integers:
        return np.array([getattr(each, name) for each in self._requests], dtype=np.intp)

    def rows(self) -> Rows:
        """Return the requests as arrays.

        Each hash identifies a block at the beginning of the prompt. The last block may be shorter. Turns of
        conversations also keep their whole context for the next turn.
        """
        prompt, keep = self._column("prompt_tokens"), self._column("keep")
        segments = np.array([len(each.segments) for each in self._requests], dtype=np.intp)
        kept = np.repeat(self._column("kept_tokens"), segments)
        chained = bool((keep >= 0).any())
        return Rows(
            lines=self._column("line"),
            arrival_s=np.array([each.arrival_s for each in self._requests], dtype=np.float64),
            prompt_tokens=prompt,
            output_tokens=self._column("output_tokens"),
            segments=segments,
            segment_ids=np.array([one for each in self._requests for one in each.segments], dtype=np.intp),
            segment_tokens=np.where(kept > 0, kept, block_tokens(prompt, segments, BLOCK_TOKENS)),
            after=self._column("after") if chained else None,
            keep=keep if chained else None,
            names=self._names,
        )

    def request(self, line: int, data: Mapping[str, object], rules: Rules) -> list[Problem]:
        """Add a request with token counts, and return its faults.

        Parameters
        ----------
        line : int
            Its line in the file.
        data : mapping
            The JSON object of the line.
        rules : Rules
            Name of the trace and its file, for messages.
        """
        problems, values, where = [], [], f"{rules.path}:{line}"
        for name, keys in (("prompt_tokens", PROMPTS), ("output_tokens", OUTPUTS)):
            key = self._names[name] = next((key for key in keys if key in data), keys[0])
            value = data.get(key)
            if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _WIDEST:
                allowed = f"a whole number under one of the keys {', '.join(keys)}"
                because = "a request needs the lengths of its prompt and its output"
                fault = "is missing" if key not in data else ""
                field, fix = f"{rules.field} {key}", f"write {key} as a whole number"
                wrong = [
                    each for each in data if each not in (*PROMPTS, *OUTPUTS) and meant_name(each, keys)
                ]
                fix = f"write {key} in place of {wrong[0]} in every line" if fault and wrong else fix
                problems.append(Problem(field, value, allowed, because, fix, where=where, fault=fault))
            else:
                values.append(value)
        time = next((key for key in TIMES if key in data), "")
        self._names |= {"arrival": time} if time else {}
        at = data.get(time, NO_TIME)
        if isinstance(at, bool) or not isinstance(at, (int, float)) or (time and not abs(at) < 1e300):
            because, fix = "this key is the arrival time of the request", "write a number"
            problems.append(Problem(f"{rules.field} {time}", at, "a number", because, fix, where=where))
        hashes = data.get("hash_ids", [])
        if not isinstance(hashes, list) or not all(isinstance(h, int) and 0 <= h < 2**62 for h in hashes):
            allowed, because = "a list of whole numbers", "each number identifies a block of the prompt"
            field = f"{rules.field} hash_ids"
            problems.append(Problem(field, hashes, allowed, because, f"write {allowed}", where=where))
        if not problems and isinstance(at, (int, float)) and isinstance(hashes, list):
            self._requests.append(_Request(line, at * TIMES.get(time, 1.0), values[0], values[1], hashes))
        return problems

    def conversation(self, line: int, turns: object) -> None:
        """Add the turns of a conversation that have an answer.

        The prompt of a turn contains all turns before it, whose context is in the cache. Consecutive
        turns of the user count as one; turns without an answer are left out. Texts have
        `CHARACTERS_PER_TOKEN` characters for each token.
        """
        context, asked, before = 0, 0, -1
        for turn in turns if isinstance(turns, list) else ():
            if not isinstance(turn, Mapping):
                continue
            tokens = max(len(str(turn.get("value", ""))) // CHARACTERS_PER_TOKEN, 1)
            if turn.get("from") not in ANSWERS:
                asked += tokens
            elif asked:
                kept = [line] if before >= 0 and context > 1 else []
                prompt, seen = context + asked, max(context - 1, 0)
                self._requests.append(_Request(line, NO_TIME, prompt, tokens, kept, seen, before, line))
                before = len(self._requests) - 1
                context, asked = context + asked + tokens, 0
