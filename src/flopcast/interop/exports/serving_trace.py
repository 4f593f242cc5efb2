"""A serving report as a trace in Chrome's format, with the iterations of the engine.

Answers: what does `flopcast predict --engine … --trace FILE` write?
Elsewhere: traces of training (trace_files.py), the iterations (serving/served.py).

Consecutive equal iterations form one slice. Counters show the requests in the engine, the requests that
wait, and the share of the KV cache in use.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from flopcast.files.atomic_write import write_whole
from flopcast.serving.served import LIMITED_BY, Iterations
from flopcast.serving.serving_report import ServingReport

MICRO = 1e6
MOST_ROWS = 200_000  # of iterations, so that a trace stays below about 100 MB


def write_serving_trace(report: ServingReport, path: Path) -> None:
    """Write the trace; an existing file is replaced.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in _rows(report))
    write_whole(path, f'{{"displayTimeUnit": "ms", "traceEvents": [\n{rows}\n]}}\n')


def _rows(report: ServingReport) -> Iterator[dict[str, object]]:
    pools = ("prompts", "decoding") if len(report.served.tables) > 1 else ("engine",)
    computed = report.served.limits.computed_tokens
    blocks = max(report.served.limits.kv_blocks, 1)
    for number, (name, table) in enumerate(zip(pools, report.served.tables, strict=True), 1):
        yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_name", "pid": number, "tid": 1, "args": {"name": "iterations"}}
        yield from _of_table(table, number, computed, blocks)


def _of_table(table: Iterations, pid: int, computed: int, blocks: int) -> Iterator[dict[str, object]]:
    """Yield slices and counters of one engine."""
    for row in range(min(len(table.start_s), MOST_ROWS)):
        start, elapsed = (round(float(each[row]) * MICRO, 3) for each in (table.start_s, table.elapsed_s))
        decoding = int(table.decoding[row])
        prompts = int(table.new_tokens[row] - decoding * computed)
        parts = [f"{prompts} tokens of prompts"] if prompts > 0 else []
        parts += [f"{decoding} decoding"] if decoding else []
        yield {
            "ph": "X",
            "name": " + ".join(parts) or "idle",
            "cat": "iteration",
            "pid": pid,
            "tid": 1,
            "ts": start,
            "dur": elapsed,
            "args": {
                "iterations": int(table.passes[row]),
                "kv_tokens": round(float(table.kv_tokens[row])),
                "limited_by": LIMITED_BY[int(table.limited_by[row])],
            },
        }
        common = {"ph": "C", "pid": pid, "tid": 0, "ts": start}
        counts = {"running": int(table.running[row]), "waiting": int(table.waiting[row])}
        yield {**common, "name": "requests", "args": counts}
        percent = round(100.0 * float(table.kv_blocks[row]) / blocks, 2)
        yield {**common, "name": "KV cache, %", "args": {"in use": percent}}
