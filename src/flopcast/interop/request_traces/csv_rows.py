"""Traces as CSV: a header, then one request on each line.

Answers: which columns hold times, lengths and shared prefixes, and what are their values?
Elsewhere: the allowed values (rows.py).

Known headers: arrival_s, prompt_tokens, output_tokens and blocks_of_512_hashes; TIMESTAMP, ContextTokens
and GeneratedTokens (Azure/AzurePublicDataset, 2023 and 2024); Timestamp, Request tokens and Response tokens
(HPMLL/BurstGPT). Other columns are not read.
"""

import re
from collections.abc import Mapping

import numpy as np

from flopcast.dtypes import Counts, Flags, Integers
from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.nearest_names import nearest
from flopcast.files.tables import other_separator
from flopcast.interop.request_traces.lines import Lines
from flopcast.interop.request_traces.rows import MOST_SHOWN, Rows, Rules, row_problems
from flopcast.records import Record

TIMES = ("arrival_s", "timestamp")
PROMPTS = ("prompt_tokens", "contexttokens", "request tokens")
OUTPUTS = ("output_tokens", "generatedtokens", "response tokens")
OF_TIMES, OF_PROMPTS = "time|arriv|start|^ts$", "prompt|input|prefill|context"  # parts of other names
OF_OUTPUTS = "output|decode|generat|response|completion"
_HASHES = re.compile(r"blocks_of_([1-9]\d{0,5})_hashes")
_ZONE = re.compile(r"(?:\+00:?00|Z)$")
_WIDEST = 2**31  # of a number of tokens


class Columns(Record, kw_only=False):
    """Indices of the columns that are read."""

    arrival: int
    prompt: int
    output: int
    hashes: int | None
    block_tokens: int  # of one hash
    number: int  # of columns
    names: Mapping[str, str]  # of the columns of arrivals, prompt and output tokens


def columns_of(header: str, rules: Rules) -> tuple[Columns, list[Problem]]:
    """Return the indices of the columns in a header, and the problems of those with other names.

    Raises
    ------
    SpecError
        A column is missing. All missing columns are reported.
    """
    because, fix = other_separator(header)
    if because:
        where = f"{rules.path}:1"
        raise spec_error(f"{rules.field} header", header, "names between commas", because, fix, where=where)
    written = [name.strip().strip('"') for name in header.split(",")]
    names = [name.lower() for name in written]
    found, problems = list[int | None](), list[Problem]()
    if names[0][:1].isdecimal():
        because = "line 1 contains values"
        fix = f"add the line {TIMES[0]},{PROMPTS[0]},{OUTPUTS[0]} above line 1"
        where = f"{rules.path}:1"
        raise spec_error(f"{rules.field} header", header, "names of columns", because, fix, where=where)
    unused = {*names} - {*TIMES, *PROMPTS, *OUTPUTS}
    for known, words in ((TIMES, OF_TIMES), (PROMPTS, OF_PROMPTS), (OUTPUTS, OF_OUTPUTS)):
        place = next((names.index(name) for name in known if name in names), None)
        if place is None:
            allowed = f"a column {' or '.join(known)}, in small or capital letters"
            because = "a trace needs an arrival time and the lengths of prompt and output"
            near = [name for name in names if name in unused and re.search(words, name)]
            near = near or nearest(known[0], unused)
            unused -= {*near[:1]}
            place = names.index(near[0]) if near else None
            fix = f"add a column {known[0]}, with a value in every line"
            fix = f"write {known[0]} in place of {near[0]} in the header" if near else fix
            value = header if len(header) < 200 else f"{header[:200]}…"
            field, where = f"{rules.field} header", f"{rules.path}:1"
            problems.append(Problem(field, value, allowed, because, fix, where=where))
        found.append(place)
    arrival, prompt, output = found
    if arrival is None or prompt is None or output is None:
        raise SpecError(problems)
    hashed = [(place, match) for place, name in enumerate(names) if (match := _HASHES.fullmatch(name))]
    place, block = (hashed[0][0], int(hashed[0][1][1])) if hashed else (None, 1)
    number = len(names)
    named = {
        "arrival": written[arrival],
        "prompt_tokens": written[prompt],
        "output_tokens": written[output],
    }
    columns = Columns(arrival, prompt, output, hashes=place, block_tokens=block, number=number, names=named)
    return columns, problems


def csv_rows(lines: Lines, columns: Columns, rules: Rules) -> Rows:
    """Return the requests of lines; empty lines are skipped.

    Raises
    ------
    SpecError
        Lines have missing cells, or cells that are not numbers; at most MOST_SHOWN of them are reported.
    """
    numbers = np.flatnonzero([bool(text) for text in lines.texts]) + lines.first
    cells = [text.split(",") for text in lines.texts if text]
    last = max(columns.arrival, columns.prompt, columns.output, columns.hashes or 0)
    short = [row for row, each in enumerate(cells) if len(each) <= last]
    if short:
        raise SpecError(_short(rules, int(numbers[row]), cells[row], columns) for row in short[:MOST_SHOWN])
    faults: list[Problem] = []
    arrival_s = _column(cells, columns, numbers, "arrival", rules, faults)
    prompts = _column(cells, columns, numbers, "prompt_tokens", rules, faults)
    outputs = _column(cells, columns, numbers, "output_tokens", rules, faults)
    if faults:
        right = np.isfinite(arrival_s) & _are_counts(prompts) & _are_counts(outputs)
        numbers, arrival_s = numbers[right], arrival_s[right]
        prompts, outputs = prompts[right], outputs[right]
        cells = [each for each, is_right in zip(cells, right, strict=True) if is_right]
    prompt, output = prompts.astype(np.intp), outputs.astype(np.intp)
    segments, ids = np.broadcast_to(np.intp(0), (len(cells),)), np.zeros(0, np.intp)
    tokens = ids
    if columns.hashes is not None:
        words = [each[columns.hashes].split() for each in cells]
        segments = np.array([len(each) for each in words], dtype=np.intp)
        try:
            ids = np.array([int(word) for each in words for word in each], dtype=np.intp)
        except (ValueError, OverflowError):
            raise _no_hash(words, numbers, rules) from None
        if (ids < 0).any():
            raise _no_hash(words, numbers, rules)
        tokens = block_tokens(prompt, segments, columns.block_tokens)
    rows = Rows(
        lines=numbers,
        arrival_s=arrival_s,
        prompt_tokens=prompt,
        output_tokens=output,
        segments=segments,
        segment_ids=ids,
        names=columns.names,
        segment_tokens=tokens,
    )
    if faults:
        raise SpecError([*faults, *row_problems(rows, rules, -np.inf)])
    return rows


def block_tokens(prompt: Integers, segments: Integers, block: int) -> Integers:
    """Return the tokens in each hashed block, (all segments,): a prompt's last block may be shorter."""
    first = np.cumsum(segments) - segments
    place = np.arange(int(segments.sum())) - np.repeat(first, segments)
    left: Integers = np.repeat(prompt, segments) - block * place
    return np.clip(left, 0, block)


def _column(
    cells: list[list[str]],
    columns: Columns,
    lines: Integers,
    name: str,
    rules: Rules,
    faults: list[Problem],
) -> Counts:
    """Return a column as numbers, which are whole numbers if they count tokens; calendar times become
    seconds.

    Cells that are neither become `faults`, at most MOST_SHOWN of them.
    """
    place: int = getattr(columns, name.removesuffix("_tokens"))
    texts = [each[place] for each in cells]
    dated = name == "arrival" and any(":" in text for text in texts)
    if dated:
        texts = [_ZONE.sub("", text.strip().strip('"')) for text in texts]
    try:
        values = _seconds(texts) if dated else np.array(texts, dtype=np.float64)
    except ValueError:
        values = np.array([_number(text, dated) for text in texts])
    wrong = np.flatnonzero(~(np.isfinite(values) if name == "arrival" else _are_counts(values))).tolist()
    if wrong:
        allowed = f"a whole number of at most {_WIDEST - 1}"
        because, noun = "this column contains numbers of tokens", "a whole number"
        if name == "arrival":
            allowed, because = "a number, or a date and a time", "this column contains times"
            noun = "a date and a time" if dated else "a number"
        fix = f"write {noun} in this cell, or remove the line"
        field, shown = f"{rules.field} {columns.names[name]}", wrong[:MOST_SHOWN]
        faults += (
            Problem(field, texts[row], allowed, because, fix, f"{rules.path}:{lines[row]}") for row in shown
        )
    return values


def _are_counts(values: Counts) -> Flags:
    """Return which values are whole numbers that a count of tokens may have."""
    counts: Flags = (values == np.floor(values)) & (np.abs(values) < _WIDEST)
    return counts


def _seconds(texts: list[str]) -> Counts:
    """Return dates with a time as seconds since 1970, of the shape of `texts`."""
    return np.array(texts, dtype="datetime64[ns]").astype(np.int64) / 1e9


def _number(text: str, dated: bool) -> float:
    """Return a number, or the seconds of a date, or NaN for anything else."""
    try:
        return float(_seconds([text])[0] if dated else text)
    except ValueError:
        return float("nan")


def _short(rules: Rules, line: int, cells: list[str], columns: Columns) -> Problem:
    allowed = f"{columns.number} columns, as the header has"
    because, fix = "cells are missing", "complete the line, or remove it"
    value = f"{len(cells)} columns"
    return Problem(f"{rules.field} line", value, allowed, because, fix, where=f"{rules.path}:{line}")


def _no_hash(words: list[list[str]], lines: Integers, rules: Rules) -> SpecError:
    row = next(
        row for row, each in enumerate(words) if not all(w.isdecimal() and len(w) < 19 for w in each)
    )
    allowed = "whole numbers that are separated by spaces"
    because = "each number identifies a block of the prompt"
    value, where = " ".join(words[row]), f"{rules.path}:{lines[row]}"
    return spec_error(f"{rules.field} hashes", value, allowed, because, f"write {allowed}", where=where)
