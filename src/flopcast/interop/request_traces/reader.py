"""Files of recorded requests, read into arrays.

Answers: which requests does a trace contain, when do they arrive, how long are they, and which prefixes do
they share?
Elsewhere: the formats (csv_rows.py, json_rows.py), the allowed values (rows.py), the use of the requests
(serving/).

Lines are read in chunks, and only numbers are kept: ten million requests take 240 MB, and 600 MB while
they are read.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path

import numpy as np

from flopcast.dtypes import Integers
from flopcast.errors import Problem, SpecError, collected, spec_error
from flopcast.interop.request_traces.csv_rows import columns_of, csv_rows
from flopcast.interop.request_traces.json_rows import CHARACTERS_PER_TOKEN, is_conversation, json_rows
from flopcast.interop.request_traces.lines import Lines, chunks
from flopcast.interop.request_traces.rows import Rows, Rules, row_problems
from flopcast.records import Record, replace
from flopcast.serving.requests import Requests
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import MOST_REQUESTS

FIELD = "traffic.trace"
NO_LINES = np.zeros(0, dtype=np.intp)


class RequestTrace(Record, eq=False):
    """The requests of a file, and notes for readers of the results.

    In a file without times, `arrival_s` is NaN. For later turns of a conversation it is 0, because each
    follows the turn before it at once.
    """

    requests: Requests
    notes: tuple[str, ...]


def trace_of(job: ServingJob) -> RequestTrace | None:
    """Return the trace of a job's traffic, None if it names none; an unchanged file is read once.

    Raises
    ------
    SpecError
        As for `read_request_trace`.
    """
    if job.traffic.trace is None:
        return None
    path = Path(job.traffic.trace)
    try:
        state = path.stat()
        file_state: tuple[int, ...] = (state.st_mtime_ns, state.st_size, state.st_ino)
    except OSError:  # the reader says what is wrong with the file
        file_state = ()
    return _unchanged(path, file_state, job.traffic.num_requests, job.model.context_length or None)


@lru_cache(maxsize=1)  # the choice of a deployment and its prediction need the same requests
def _unchanged(
    path: Path, _state: tuple[int, ...], most_requests: int, longest_tokens: int | None
) -> RequestTrace:
    return read_request_trace(path, most_requests, longest_tokens)


def read_request_trace(
    path: Path, most_requests: int = MOST_REQUESTS, longest_tokens: int | None = None
) -> RequestTrace:
    """Return the first requests of a trace; the clock starts with the first arrival.

    Parameters
    ----------
    path : Path
        A CSV file or JSON lines, plain or gzipped.
    most_requests : int
        Lines after these requests are not read.
    longest_tokens : int or None
        The context length of the model, which no request may exceed.

    Raises
    ------
    SpecError
        The file cannot be read or has no requests. Or lines are not requests, arrive before the line
        above them, have lengths below 1 or exceed the context. Each problem has the file and the line;
        the first faulty lines are named.
    """
    rules = Rules(path=path, field=FIELD, longest_tokens=longest_tokens)
    parse: Callable[[Lines], Rows] | None = None
    parts: list[Rows] = []
    size, before_s, estimated, names = 0, -np.inf, False, dict[str, str]()
    for chunk in chunks(path, FIELD):
        lines, texts = chunk, chunk.texts
        if parse is None:
            first = next((place for place, text in enumerate(texts) if text.strip()), None)
            if first is None:
                continue
            parse, skipped, misnamed = _parser(texts[first], rules)
            estimated = is_conversation(texts[first])
            texts = texts[first + skipped :]
            lines = Lines(lines.first + first + skipped, texts)
        problems = [*misnamed]
        with collected(problems):
            rows = parse(lines)
            names |= rows.names
            rows = replace(rows, names=names)
            if len(rows.lines):
                problems += row_problems(rows, rules, before_s)
        if problems:
            raise SpecError(problems)
        if not len(rows.lines):
            continue
        parts.append(replace(rows, lines=NO_LINES))
        before_s = float(rows.arrival_s[-1])
        size += len(rows.lines)
        if size >= most_requests:
            break
    if not parts:
        because, fix = "the file contains no requests", "give a file with a line for each request"
        raise spec_error(FIELD, str(path), "a trace with requests", because, fix, where=str(path))
    note = f"{path}: lengths are estimated with {CHARACTERS_PER_TOKEN} characters per token"
    return RequestTrace(requests=_joined(parts).first(most_requests), notes=(note,) if estimated else ())


def _parser(first: str, rules: Rules) -> tuple[Callable[[Lines], Rows], int, list[Problem]]:
    """Return the function that reads a file with this first line, the number of lines to skip, and the
    problems of a header whose columns have other names."""
    begin = first.lstrip()[:1]
    if begin == "[":
        because, fix = "each line of a trace is one request", "write the list as lines: jq -c '.[]' FILE"
        raise spec_error(FIELD, str(rules.path), "CSV or JSON lines", because, fix, where=f"{rules.path}:1")
    if begin == "{":
        return partial(json_rows, rules=rules), 0, []
    columns, misnamed = columns_of(first, rules)
    return partial(csv_rows, columns=columns, rules=rules), 1, misnamed


def _joined(parts: list[Rows]) -> Requests:
    """Return the joined parts and empty the list, so that no column is stored twice for long."""
    sizes = [len(part.prompt_tokens) for part in parts]
    size, none = sum(sizes), np.broadcast_to(np.intp(-1), (sum(sizes),))
    after, keep, starts = none, none, np.broadcast_to(np.intp(0), (size + 1,))
    if any(part.after is not None for part in parts):
        firsts = [0, *accumulate(sizes[:-1])]
        rows = zip(parts, sizes, firsts, strict=True)
        after = np.concatenate([_shifted(part.after, n, first) for part, n, first in rows])
        keep = np.concatenate([_shifted(part.keep, n, 0) for part, n in zip(parts, sizes, strict=True)])
    if any(len(part.segment_ids) for part in parts):
        starts = np.concatenate([[0], np.cumsum(np.concatenate([part.segments for part in parts]))])
    names = ("arrival_s", "prompt_tokens", "output_tokens", "segment_ids", "segment_tokens")
    pieces = {name: [getattr(part, name) for part in parts] for name in names}
    parts.clear()
    arrival_s, prompt, output, ids, tokens = (np.concatenate(pieces.pop(name)) for name in names)
    arrival_s -= 0.0 if np.isnan(arrival_s[0]) else arrival_s[0]
    arrival_s[after >= 0] = 0.0
    return Requests(
        arrival_s=arrival_s,
        prompt_tokens=prompt,
        output_tokens=output,
        after=after,
        cached_tokens=np.broadcast_to(np.intp(0), (size,)),
        keep_ids=keep,
        segment_starts=starts,
        segment_ids=ids,
        segment_tokens=tokens,
    )


def _shifted(values: Integers | None, size: int, offset: int) -> Integers:
    """Return row indices of a part as those of the whole; -1 stays, and is used without indices."""
    if values is None:
        return np.full(size, -1, dtype=np.intp)
    return np.where(values >= 0, values + offset, -1)
