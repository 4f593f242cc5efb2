"""The last step of every trace reader: kernels and their launches become one Trace.

Answers: to which device does the trace belong, and what are the step, the pass and the class of each
kernel?
Elsewhere: the formats (kineto.py, nsys.py), the data type (lab/calibration/trace.py).

A kernel belongs to the step and the pass in which it was *launched*: the device runs behind the host, so
the kernel itself may start in the next step. Without a known launch, its own start counts.
"""

from collections.abc import Sequence

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers
from flopcast.lab.calibration.kernel_names import kernel_class, kind_of
from flopcast.lab.calibration.trace import Trace, Words, inside, stream_of
from flopcast.records import Record

KEPT = ("kernel", "operator", "shapes", "dtypes", "call", "queue", "message_bytes", "ranks")


class Launched(Record, eq=False):
    """Kernels of all devices with their launches; all arrays have shape (kernels,). Words are indices
    into `words`.

    Seconds may count from any moment. If no launch is known, `launch_s` is NaN and `call` is -1;
    `backward` is 1, 0, or -1 if it is unknown.
    """

    words: Words
    kernel: Integers
    operator: Integers
    shapes: Integers
    dtypes: Integers
    group: Integers  # description of the process group
    collective: Integers  # as torch.distributed calls it, "" for most kernels
    call: Integers
    backward: Integers
    queue: Integers
    device: Integers
    start_s: Floats
    end_s: Floats
    launch_s: Floats
    message_bytes: Floats
    ranks: Counts


class TracedSteps(Record, eq=False):
    """Annotated steps of a trace.

    Attributes
    ----------
    number : array of int, shape (steps,)
    start_s, end_s : arrays of shape (steps,)
    on_host : bool
        Whether these are spans of the host, to which launches belong, or of a device.
    """

    number: Integers
    start_s: Floats
    end_s: Floats
    on_host: bool = True


def traced(name: str, kernels: Launched, steps: TracedSteps, remarks: tuple[str, ...]) -> Trace:
    """Return the trace of the device that ran the most kernels, or of the lowest such device; other
    devices are mentioned in remarks.

    At least one kernel is required. If there are no steps, shares refer to the whole trace, and a remark
    states this. Kernels are ordered by their start times, and seconds count from the first start. Steps
    that launched nothing are left out.
    """
    devices, counts = np.unique(kernels.device, return_counts=True)
    device = int(devices[np.argmax(counts)])
    mine = np.flatnonzero(kernels.device == device)
    mine = mine[np.argsort(kernels.start_s[mine], kind="stable")]
    launch_s = kernels.launch_s if steps.on_host else kernels.start_s
    moments = np.where(np.isnan(launch_s), kernels.start_s, launch_s)[mine]
    place = inside(moments, steps.start_s, steps.end_s)
    classes, streams = _classes(kernels, mine)
    phases = np.array([kernels.words.number(word) for word in ("forward", "backward", "")])
    zero_s = float(kernels.start_s[mine[0]])
    ran = np.unique(place[place >= 0])
    return Trace(
        **{column: getattr(kernels, column)[mine] for column in KEPT},
        name=name,
        words=kernels.words.all(),
        kernel_class=classes,
        phase=phases[kernels.backward[mine]],  # -1 is the last
        stream=streams,
        step=np.where(place >= 0, steps.number[place] if steps.number.size else -1, -1),
        start_s=kernels.start_s[mine] - zero_s,
        end_s=kernels.end_s[mine] - zero_s,
        step_times_s=(steps.end_s - steps.start_s)[ran],
        device=device,
        remarks=(*remarks, *_remarks(kernels, mine, devices, place)),
    )


def _classes(kernels: Launched, mine: Integers) -> tuple[Integers, Integers]:
    """Return the class and stream of each kernel; if a collective has a name of its own, this name takes
    precedence.

    There are few names and many kernels, so each combination is looked up once.
    """
    columns = (kernels.kernel, kernels.operator, kernels.backward, kernels.group, kernels.collective)
    first, inverse = _combinations([column[mine] for column in columns])
    words = kernels.words.all()
    classes, streams = [], []
    for at in mine[first].tolist():
        kernel, operator, backward, group, collective = (int(column[at]) for column in columns)
        named = kernel_class(words[kernel], words[operator], backward == 1)
        sent = kernel_class(words[collective]) if kind_of(named) in ("communication", "") else ""
        name = sent or named
        classes.append(kernels.words.number(name))
        streams.append(kernels.words.number(stream_of(kind_of(name), words[group])))
    return np.array(classes)[inverse], np.array(streams)[inverse]


def _combinations(columns: Sequence[Integers]) -> tuple[Integers, Integers]:
    """Return the first row of each combination of entries, and the combination of each row.

    >>> [part.tolist() for part in _combinations([np.array([5, 5, 7]), np.array([1, 1, 1])])]
    [[0, 2], [0, 0, 1]]
    """
    first, inverse = np.zeros(1, dtype=np.intp), np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        codes = inverse * (int(column.max()) + 2) + column + 1
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return first, inverse


def _remarks(kernels: Launched, mine: Integers, devices: Integers, place: Integers) -> list[str]:
    """Return remarks about other devices, and about kernels without a launch or outside all steps."""
    remarks = []
    others = len(kernels.start_s) - len(mine)
    if others:
        remarks.append(f"{others} kernels of {len(devices) - 1} other devices are ignored")
    unjoined = int((kernels.call[mine] < 0).sum())
    if unjoined:
        remarks.append(
            f"{unjoined} of {len(mine)} kernels cannot be matched to an operator, so flopcast does not"
            f" know whether they belong to the forward or the backward pass"
        )
    if (place < 0).all():
        remarks.append("the trace has no step annotations, so flopcast treats the whole trace as one step")
    elif (place < 0).any():
        remarks.append(f"{int((place < 0).sum())} kernels outside of the annotated steps are ignored")
    return remarks
