"""Traces of the PyTorch profiler (Kineto, Chrome trace JSON), plain or gzipped, of any length.

Answers: which kernels ran when, which operator launched them on which shapes, and in which step and pass?
Elsewhere: reading long JSON (json_stream.py), classes and totals (lab/calibration/trace.py), samples
(lab/calibration/traced_shapes.py).

A kernel names its operator's call by "External id"; in older traces, the launch (category cuda_runtime)
names it and shares the kernel's "correlation". A call belongs to the backward pass if it runs inside a
span of the autograd engine ("autograd::engine::evaluate_function", or a "Fwd thread id" above 0) on its
thread; kernels that are recomputed there count as backward. Steps are the host's annotations
ProfilerStep#N. The size of a collective's message is in the kernel or in the call "record_param_comms";
old versions do not state it.

Memory holds a chunk of the file, each name and shape once, and at its peak about 0.4 kB per kernel with
its launch and its operator's call; all other events are dropped at once. The fields are those of
torch.profiler's `export_chrome_trace`, including older spellings
(torch/csrc/autograd/profiler_kineto.cpp; github.com/pytorch/kineto, libkineto/src/output_json.cpp).
"""

import math
import re
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.errors import SpecError
from flopcast.lab.calibration.kernel_names import collective_class
from flopcast.lab.calibration.trace import Trace, Words, inside
from flopcast.lab.calibration.traced_shapes import message_bytes
from flopcast.lab.traces.columns import Launched, TracedSteps, traced
from flopcast.lab.traces.json_stream import EVENTS, fault, read_text, values
from flopcast.units import Number

S_PER_US = 1e-6
MOST_ID = 2**63  # of what a column holds
MOST_NUMBER = 1e300  # of a time or a size: sums of such numbers stay finite
KERNELS = {
    "kernel": "",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
CALLS = ("cpu_op", "operator")
LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime")
ENGINE = "autograd::engine::evaluate_function"
_STEP = re.compile(r"ProfilerStep\*?#(\d+)")
Event = Mapping[str, object]  # or the arguments of one
Message = tuple[int, int, float, float]  # group and collective (words), bytes, ranks


def read_kineto(path: Path) -> Trace:
    """Return the trace in a file, for the device that ran the most kernels.

    Raises
    ------
    SpecError
        The file cannot be read, is not JSON, is incomplete, or holds no kernel of a device.
    """
    return kineto_trace(read_text(path), path.name)


def kineto_trace(chunks: Iterable[str], name: str) -> Trace:
    """Return the same as `read_kineto`, from the parts of the file's text.

    Parameters
    ----------
    chunks : iterable of str
        The text in pieces of any length, so that memory stays bounded.
    name : str
        Name of the file for messages.

    Raises
    ------
    SpecError
        The trace has no kernel of a device, or is not JSON.
    """
    reading = _TraceState()
    for key, value in values(chunks, name):
        if key == EVENTS and isinstance(value, dict):
            reading.take(value)
        elif key == "distributedInfo" and isinstance(value, dict) and "rank" in value:
            reading.remarks.append(
                f"rank {value['rank']} of {value.get('world_size', 'an unknown number')}"
            )
    if reading.num_bad:
        reading.remarks.append(f"{reading.num_bad} kernels without a start time or a duration are ignored")
    if not len(reading.kernels["start_s"]):
        because = "the trace contains no kernels of a device (events of category kernel)"
        fix = "profile with ProfilerActivity.CUDA, and export the trace of one rank"
        raise SpecError([fault(name, because, fix)])
    return traced(name, reading.launched(), reading.steps(), tuple(reading.remarks))


def _integer(value: object) -> int:
    """Return an id or a position; 0 if it is absent, not a number, or larger than any id."""
    return int(value) if isinstance(value, (int, float)) and abs(value) < MOST_ID else 0


def _number(value: object) -> float:
    """Return a quantity; NaN if it is absent or not a number."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < MOST_NUMBER else math.nan


class _Columns:
    """Growing columns of numbers: "d" for floats, "q" for whole numbers."""

    def __init__(self, **kinds: str) -> None:
        self.columns: dict[str, array[float]] = {name: array(kind) for name, kind in kinds.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column without copying it: it must not grow any more."""
        column = self.columns[name]
        return np.frombuffer(column, dtype=column.typecode) if column else np.array(column)

    def add(self, *row: Number) -> None:
        """Add one row, in the order of the columns."""
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)


class _TraceState:
    """The columns that were read so far: kernels, calls, launches, the engine's spans, and steps."""

    def __init__(self) -> None:
        self.words = Words()
        self.kernels = _Columns(
            start_s="d", duration_s="d", kernel="q", external="q", correlation="q", queue="q", device="q",
            group="q", collective="q", message="d", ranks="d",
        )  # fmt: skip
        self.calls = _Columns(external="q", operator="q", shapes="q", dtypes="q", thread="q", start_s="d")
        self.launches = _Columns(correlation="q", external="q", start_s="d")
        self.spans = _Columns(thread="q", start_s="d", duration_s="d")
        self.annotated = {
            True: _Columns(step="q", start_s="d", duration_s="d"),
            False: _Columns(step="q", start_s="d", duration_s="d"),
        }
        self.messages: dict[int, Message] = {}
        self.remarks: list[str] = []
        self.base_us, self.num_bad = math.nan, 0

    def take(self, event: Event) -> None:
        """Add one event; only complete events ("ph": "X") with a start and a duration matter.

        Kernels, calls of operators, launches, spans of the autograd engine and annotated steps are kept,
        each as numbers in columns. Kernels without a time are counted and reported.
        """
        start_us, duration_us = _number(event.get("ts")), _number(event.get("dur"))
        category = str(event.get("cat", "")).lower()
        if event.get("ph") != "X" or math.isnan(start_us) or math.isnan(duration_us):
            self.num_bad += category in KERNELS
            return
        if math.isnan(self.base_us):
            self.base_us = start_us
        start_s, duration_s = (start_us - self.base_us) * S_PER_US, duration_us * S_PER_US
        name, args = str(event.get("name", "")), event.get("args")
        args = args if isinstance(args, dict) else {}
        if category in KERNELS:
            self._kernel(KERNELS[category] or name, start_s, duration_s, args, event)
        elif (step := _STEP.match(name)) is not None and int(step.group(1)) < MOST_ID:
            self.annotated[not category.startswith("gpu")].add(int(step.group(1)), start_s, duration_s)
        elif category in CALLS:
            self._call(name, start_s, duration_s, args, event)
        elif category in LAUNCHES:
            self.launches.add(_integer(args.get("correlation")), _external(args), start_s)

    def _kernel(self, name: str, start_s: float, duration_s: float, args: Event, event: Event) -> None:
        """Add a kernel, copy or fill on a device."""
        group, collective, message, ranks = self._message(args) or (0, 0, math.nan, math.nan)
        device, queue = args.get("device", event.get("pid")), args.get("stream", event.get("tid"))
        self.kernels.add(
            start_s,
            duration_s,
            self.words.number(name),
            _external(args),
            _integer(args.get("correlation")),
            _integer(queue),
            _integer(device),
            group,
            collective,
            message,
            ranks,
        )

    def _call(self, name: str, start_s: float, duration_s: float, args: Event, event: Event) -> None:
        """Add an operator's call on the host, and also a span if the autograd engine made the call."""
        thread = self.words.number(f"thread {event.get('pid')} {event.get('tid')}")
        if name.startswith(ENGINE) or _integer(args.get("Fwd thread id")) > 0:
            self.spans.add(thread, start_s, duration_s)
        external = _external(args)
        dims, dtypes = args.get("Input Dims", args.get("Input dims")), args.get("Input type")
        dtype = next((str(d) for d in dtypes if d), "") if isinstance(dtypes, list) else ""
        shapes = str(dims) if isinstance(dims, list) else ""
        numbers = [self.words.number(word) for word in (name, shapes, dtype)]
        self.calls.add(external, *numbers, thread, start_s)
        if message := self._message(args):
            self.messages[external] = message

    def _message(self, args: Event) -> Message | None:
        """Return the message that a kernel or a call of record_param_comms describes."""
        name = args.get("Collective name")
        if not isinstance(name, str) or not name:
            return None
        sizes = (_number(args.get("In msg nelems")), _number(args.get("Out msg nelems")))
        group = str(args.get("Process Group Description") or args.get("Process Group Name") or "")
        return (
            self.words.number(group),
            self.words.number(name),
            message_bytes(collective_class(name), *sizes, str(args.get("dtype", ""))),
            _number(args.get("Group size")),
        )

    def steps(self) -> TracedSteps:
        """Return the host's annotations, or a device's if the host has none; each number occurs once."""
        on_host = bool(len(self.annotated[True]["step"]))
        annotated = self.annotated[on_host]
        numbers, first = np.unique(annotated["step"], return_index=True)
        start_s = annotated["start_s"][first]
        return TracedSteps(
            number=numbers, start_s=start_s, end_s=start_s + annotated["duration_s"][first], on_host=on_host
        )

    def launched(self) -> Launched:
        """Return kernels joined to calls: by their own external id, or by that of their launch."""
        kernels, calls, launches = self.kernels, self.calls, self.launches
        launch = _find(kernels["correlation"], launches["correlation"])
        known = launch >= 0
        external = kernels["external"]
        if known.any():
            external = np.where((external == 0) & known, launches["external"][launch], external)
        call = _find(external, calls["external"])
        joined = call >= 0
        launch_s = np.full(len(call), math.nan)
        launch_s[joined] = calls["start_s"][call[joined]]
        launch_s[known] = launches["start_s"][launch[known]]
        message = self._messages_of(external)
        return Launched(
            words=self.words,
            kernel=kernels["kernel"],
            operator=_taken(calls["operator"], call),
            shapes=_taken(calls["shapes"], call),
            dtypes=_taken(calls["dtypes"], call),
            group=message[0].astype(np.intp),
            collective=message[1].astype(np.intp),
            call=np.where(joined, external, -1),
            backward=np.where(joined, _taken(self._in_backward().astype(np.intp), call), -1),
            queue=kernels["queue"],
            device=kernels["device"],
            start_s=kernels["start_s"],
            end_s=kernels["start_s"] + kernels["duration_s"],
            launch_s=launch_s,
            message_bytes=message[2],
            ranks=message[3],
        )

    def _messages_of(self, external: Integers) -> Floats:
        """Return each kernel's group, collective, bytes and ranks, (4, kernels), or those of its call."""
        message = np.stack([self.kernels[name] for name in ("group", "collective", "message", "ranks")])
        if self.messages:
            for at in np.flatnonzero((message[1] == 0) & np.isin(external, list(self.messages))):
                message[:, at] = self.messages[int(external[at])]
        return message

    def _in_backward(self) -> np.ndarray:
        """Return a mask of calls inside a span of the autograd engine on their own thread, (calls,)."""
        threads, moments = self.calls["thread"], self.calls["start_s"]
        spans = {name: self.spans[name] for name in ("thread", "start_s", "duration_s")}
        in_backward = np.zeros(len(threads), dtype=bool)
        for thread in np.unique(spans["thread"]):
            mine, its = threads == thread, spans["thread"] == thread
            start_s, end_s = _united(spans["start_s"][its], (spans["start_s"] + spans["duration_s"])[its])
            in_backward[mine] = inside(moments[mine], start_s, end_s) >= 0
        return in_backward


def _external(args: Event) -> int:
    """Return the id of an operator's call, in either spelling; 0 if it has none."""
    return _integer(args.get("External id", args.get("external id")))


def _find(wanted: Integers, known: Integers) -> Integers:
    """Return the index of each id among the known ids, the first of equals; -1 for 0 or unknown ids."""
    if not len(known):
        return np.full(len(wanted), -1)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    place_found = order[place]
    return np.where((known[place_found] == wanted) & (wanted != 0), place_found, -1)


def _taken(column: Integers, place: Integers) -> Integers:
    """Return the column's entries at these indices; 0, the word "", if the index is -1."""
    return np.append(column, 0)[place]


def _united(start_s: Floats, end_s: Floats) -> tuple[Floats, Floats]:
    """Return nested and touching spans, merged into spans that do not overlap."""
    order = np.argsort(start_s, kind="stable")
    start_s, until_s = start_s[order], np.maximum.accumulate(end_s[order])
    opens = np.concatenate([[True], start_s[1:] > until_s[:-1]])
    return start_s[opens], until_s[np.append(np.flatnonzero(opens)[1:] - 1, len(until_s) - 1)]
