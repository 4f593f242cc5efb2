"""Formats of training logs: the content of one line of each framework.

Answers: does this line print a step, or a part of one, and which numbers does it hold?
Elsewhere: memory of ranks and sizes of the job (facts.py). Each line is read alone. The reader (reader.py)
handles ranks, repeated lines and incomplete lines. A new framework is one function, one line in READERS and
one entry in formats.yaml. The order of entries matters if one log holds lines of several frameworks: the
log counts as one of the first framework that printed a step.

All returned numbers have SI units.

Sources of the formats: `training_log` of Megatron-LM (megatron/training/training.py), Megatron-DeepSpeed
and GPT-NeoX (megatron/logging.py); ThroughputTimer of DeepSpeed (deepspeed/utils/timer.py),
PipelineEngine.train_batch and the flops profiler; MetricsProcessor.log of torchtitan
(torchtitan/components/metrics.py); record_current_batch_training_metrics of InternEvo
(internlm/train/pipeline.py); MetricLogger of MaxText (maxtext/common/metric_logger.py); logs of NeMo and of
the Trainer of transformers; mllog (mlcommons/logging) and the results of mlcommons/training_results_v5.1.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from flopcast.files.package_table import read_table
from flopcast.records import Record

NUMBER = r"([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b)"
RATE_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
MLLOG = ":::MLLOG"
MOST_VALUE = 1e24
MOST_BRACKETS = 100  # in one event; those of submissions have fewer than ten
MLPERF = {  # statistic of an event → field
    "train_step_time": "step_time_s",
    "train_step_timing": "step_time_s",
    "throughput": "samples_per_s",
}
TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
Fields = dict[str, float]  # names of lab.logs.log.LoggedSteps, and RUNTIME, NUM_STEPS
RUNTIME, NUM_STEPS = "runtime_s", "num_steps"  # of a whole run, where only that is printed


class LogLine(Record):
    """The values in a line about a step.

    A `complete` line ends a step. The values of other lines belong to the next `complete` line.
    """

    fields: Fields
    complete: bool = True


class LogFormat(Record):
    """The format in which a framework prints steps: texts of which a line must contain one, a reader, and
    an example.

    `read` returns None for a line that only resembles the format. `software` names the programs that
    print this format, as in `Switches.software` (spec/switches.py); () if any program may print it.
    """

    cues: tuple[str, ...]
    read: Callable[[str], LogLine | None]
    example: str
    software: tuple[str, ...] = ()


_PAIR = re.compile(rf"\s*([^:=]+?)\s*[:=]\s*{NUMBER}")
_ITERATION = re.compile(r"\biteration[\s=]+(\d+)\s*/")
_NEOX_RATE = re.compile(rf"approx flops per GPU:\s*{NUMBER}([KMGTP]?)FLOPS")
_BRIDGE_RATE = re.compile(rf"GPU utilization:\s*{NUMBER}\s*MODEL_TFLOP/s/GPU")
_PIPELINE = re.compile(rf"\bsteps:\s*(\d+)\s+loss:.*?iter time \(s\):\s*{NUMBER}\s+samples/sec:\s*{NUMBER}")
_THROUGHPUT = re.compile(
    rf"(?:global_step=|\b\d+/)(\d+),\s+(?:RunningAvgSamplesPerSec=[^,]+,\s+Curr)?SamplesPerSec={NUMBER}"
)
_LATENCY = re.compile(rf"^\s*iter latency:\s*{NUMBER}\s*(us|ms|s)\b")
_PROFILED = re.compile(rf"^\s*FLOPS per GPU = 3 .*latency:\s*{NUMBER}\s*([KMGTP]?)FLOPS", re.IGNORECASE)
_PROFILED_SAMPLES = re.compile(rf"^\s*samples/second:\s*{NUMBER}")
_TITAN = re.compile(
    rf"(?<!validate )step:\s*(\d+)\s.*?\b(?:tps|wps):\s*{NUMBER}(?:.*?\btflops:\s*{NUMBER})?"
)
_INTERN = re.compile(rf"\btflops={NUMBER},step=(\d+),.*\btgs \(tokens/gpu/second\)={NUMBER}")
_MAXTEXT = re.compile(
    rf"completed step:\s*(\d+), seconds:\s*{NUMBER}"
    rf"(?:.*?TFLOP/s/device:\s*{NUMBER}, Tokens/s/device:\s*{NUMBER})?"
)
_BAR = re.compile(rf"global_step={NUMBER},.*train_step_timing in s={NUMBER}")
_RUN = re.compile(rf"'train_runtime':\s*'?{NUMBER}.*'train_samples_per_second':\s*'?{NUMBER}")
_RUN_STEPS = re.compile(rf"'train_steps_per_second':\s*'?{NUMBER}")
_TOTAL_STEPS = re.compile(r"Total optimization steps\s*=\s*([\d,]+)")


@cache
def log_table() -> Mapping[str, Any]:
    """Return the tables of texts in logs: formats.yaml."""
    return read_table(__package__, "formats.yaml")


def scaled(name: str) -> dict[str, tuple[str, float]]:
    """Return the field and the scale of each name in a table of formats.yaml."""
    rows = log_table()[name]
    return {each: (row["field"], row["scale"]) for row in rows for each in row["names"]}


KEYS = scaled("keys")  # of "key: value | key: value" lines → field and scale


def number(text: str) -> float:
    """Return the number that NUMBER matched.

    >>> number("6,123"), number("1.073e+04")
    (6123.0, 10730.0)
    """
    return float(text.replace(",", ""))


def _pairs(line: str) -> Fields:
    """Return a line's "key: value" or "key=value" fields, separated by bars; ignore unknown keys."""
    fields: Fields = {}
    for part in line.split("|"):
        match = _PAIR.match(part)
        key = match.group(1).replace("_", " ").lower() if match else ""
        if match and key in KEYS:
            field, scale = KEYS[key]
            fields[field] = number(match.group(2)) * scale
    return fields


def _ruled(rule: re.Pattern[str], **scale_factor: float) -> Callable[[str], LogLine | None]:
    """Return a reader of lines: the groups of a regular expression, times their scales, are the fields."""

    def read(line: str) -> LogLine | None:
        match = rule.search(line)
        if not match:
            return None
        named = zip(scale_factor.items(), match.groups(), strict=True)
        return LogLine(fields={name: number(text) * scale for (name, scale), text in named if text})

    return read


def _iteration(line: str) -> Fields | None:
    """Return a line of the Megatron family that has a number and the time of an iteration."""
    numbered = _ITERATION.search(line)
    fields = _pairs(line) if numbered else {}
    if numbered is None or "step_time_s" not in fields:
        return None
    return fields | {"step": float(numbered.group(1))}


def _megatron_lm(line: str) -> LogLine | None:
    """Read all releases; Megatron-Bridge prints the rate in a separate line before the iteration."""
    bridge = _BRIDGE_RATE.search(line)
    if bridge:
        return LogLine(fields={"device_flop_per_s": number(bridge.group(1)) * 1e12}, complete=False)
    fields = _iteration(line)
    return LogLine(fields=fields) if fields else None


def _megatron_deepspeed(line: str) -> LogLine | None:
    """Read a line like one of Megatron-LM, with sequences per second and the rate at the end."""
    has_rate = "samples per second" in line or "samples_per_second" in line
    fields = _iteration(line) if has_rate else None
    return LogLine(fields=fields) if fields and "samples_per_s" in fields else None


def _gpt_neox(line: str) -> LogLine | None:
    """Read like Megatron-LM, but with sequences per second first and another prefix for the rate."""
    fields = _iteration(line) if "samples/sec:" in line else None
    if fields is None or "samples_per_s" not in fields:
        return None
    rate = _NEOX_RATE.search(line)
    if rate:
        fields["device_flop_per_s"] = number(rate.group(1)) * RATE_UNITS[rate.group(2)]
    return LogLine(fields=fields)


def _deepspeed_timers(line: str) -> LogLine | None:
    """Read SynchronizedWallClockTimer: forward, backward and update, summed over micro-batches."""
    matches = [_PAIR.match(part) for part in line.split("|")[1:]]
    times = {pair.group(1): number(pair.group(2)) * 1e-3 for pair in matches if pair}
    names = [("fwd", "forward"), ("bwd", "backward"), ("step",)]
    parts = [times[name] for choice in names for name in choice if name in times]
    return LogLine(fields={"step_time_s": sum(parts)}) if len(parts) == 3 and any(parts) else None


def _deepspeed_profiler(line: str) -> LogLine | None:
    """Read the flops profiler's summary, whose three lines time one micro-batch and an update."""
    latency, rate, samples = (rule.search(line) for rule in (_LATENCY, _PROFILED, _PROFILED_SAMPLES))
    if latency:
        time_s = number(latency.group(1)) * TIME_UNITS[latency.group(2)]
        return LogLine(fields={"step_time_s": time_s}, complete=False)
    if rate:
        flop_per_s = number(rate.group(1)) * RATE_UNITS[rate.group(2).upper()]
        return LogLine(fields={"device_flop_per_s": flop_per_s}, complete=False)
    return LogLine(fields={"samples_per_s": number(samples.group(1))}) if samples else None


def _nemo(line: str) -> LogLine | None:
    fields = _pairs(line)
    return LogLine(fields=fields) if {"step", "step_time_s"} <= fields.keys() else None


def _trainer(line: str) -> LogLine | None:
    """Read the summary of a run; its mean includes warm-up, evaluation and checkpoints."""
    total, run, rate = (rule.search(line) for rule in (_TOTAL_STEPS, _RUN, _RUN_STEPS))
    if total:
        return LogLine(fields={NUM_STEPS: number(total.group(1))}, complete=False)
    if not run:
        return None
    fields = {"step": 1.0, RUNTIME: number(run.group(1)), "samples_per_s": number(run.group(2))}
    if rate and number(rate.group(1)) > 0:
        fields["step_time_s"] = 1.0 / number(rate.group(1))
    return LogLine(fields=fields)


def mlperf_event(line: str) -> dict[str, object]:
    """Return the event in a line of an MLPerf log; empty if the line holds no complete event.

    >>> mlperf_event('0: :::MLLOG {"key": "global_batch_size", "value": 1152}')
    {'key': 'global_batch_size', 'value': 1152}
    """
    text = line.partition(MLLOG)[2].strip()
    if not text or text.count("{") + text.count("[") > MOST_BRACKETS:
        return {}
    try:
        event = json.loads(text)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _mlperf(line: str) -> LogLine | None:
    """Return the statistics of an MLPerf Training submission: the step time, or sequences per second.

    `step` counts steps in some submissions and sequences in others, so it is used only to order lines.
    """
    event = mlperf_event(line)
    value, metadata = event.get("value"), event.get("metadata")
    if event.get("key") != "tracked_stats" or not isinstance(value, dict):
        return None
    fields = {field: float(value[key]) for key, field in MLPERF.items() if _is_number(value.get(key))}
    if not fields:
        return None
    step = metadata.get("step") if isinstance(metadata, dict) else None
    return LogLine(fields=fields | ({"step": float(str(step))} if _is_number(step) else {}))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST_VALUE


TABLE = "csv"
READERS: Mapping[str, Callable[[str], LogLine | None]] = {
    "gpt-neox": _gpt_neox,
    "megatron-deepspeed": _megatron_deepspeed,
    "megatron-lm": _megatron_lm,
    "nemo": _nemo,
    "nemo-progress-bar": _ruled(_BAR, step=1.0, step_time_s=1.0),  # NeMo 1, printed again and again
    # tokens per second of one device (tps, once wps); the step time is not printed
    "torchtitan": _ruled(_TITAN, step=1.0, device_tokens_per_s=1.0, device_flop_per_s=1e12),
    # tokens per second of one device; the step time is not printed
    "internevo": _ruled(_INTERN, device_flop_per_s=1e12, step=1.0, device_tokens_per_s=1.0),
    "maxtext": _ruled(_MAXTEXT, step=1.0, step_time_s=1.0, device_flop_per_s=1e12, device_tokens_per_s=1.0),
    # PipelineEngine: mean time of the steps since the last line
    "deepspeed-pipeline": _ruled(_PIPELINE, step=1.0, step_time_s=1.0, samples_per_s=1.0),
    # ThroughputTimer: the current rate, or in its first releases the mean since the start
    "deepspeed": _ruled(_THROUGHPUT, step=1.0, samples_per_s=1.0),
    "deepspeed-timers": _deepspeed_timers,
    "hugging-face-trainer": _trainer,
    "mlperf": _mlperf,
    "deepspeed-profiler": _deepspeed_profiler,
    TABLE: lambda _: None,
}
FORMATS = {
    name: LogFormat(
        cues=tuple(row["cues"]),
        read=READERS[name],
        example=row["example"],
        software=tuple(row.get("software", ())),
    )
    for name, row in log_table()["formats"].items()
}
