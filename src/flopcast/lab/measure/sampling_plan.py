"""The sampling plan: the shapes, cold or loaded, their order, and the seconds that they may take.

Answers: what is measured first, and what fits into a time budget?
Elsewhere: shapes (shapes.py), the run itself (sampling_run.py), which stops at the deadline even if the
plan is not finished.

The plan has rounds of growing size: the first round measures every relevant class, and each later one
doubles the points of every class. Within a round, short measurements come first, and cold ones come before
loaded ones, so that the device is heated once per round. A run that stops early leaves a coarse but
complete pack.
"""

from collections.abc import Container, Mapping

from flopcast.lab.measure.measured_operators import need_of
from flopcast.lab.measure.shapes import SPACES, SamplingSpace, Shape
from flopcast.records import Record

COLD, LOADED = "cold", "loaded"
ROUNDS = 11
USUAL_FRACTION = 0.4  # of the roofline, for the estimate of seconds only
MOST_RUN_S = 0.25  # of one execution: longer ones teach nothing that shorter ones do not
MEMORY_FRACTION = 0.4  # of the device's memory that one shape may hold
LAUNCH_S = 20e-6  # an estimate of one eager call, for the estimate of seconds only
LEAST_LOADED_S = 2e-4  # of one execution: back to back, shorter ones would wait for the host
HOST_LAUNCHES = 500  # in a row: fewer than a device's queue holds
SETUP_S = 0.03  # allocation and random numbers of one shape
COMPILE_S = 8.0  # the first use of a class that is compiled


class Speed(Record):
    """The speed of a device, for estimates of measuring times.

    It comes from data sheets and is never a result.

    `tiny` reduces every size to one that a processor runs in milliseconds; short runs are then not left
    out. `peak_flop_per_s` holds peaks by dtype; a missing dtype is not measured. `libraries` are the
    installed packages besides torch, and "cuda" if kernels run on a GPU.
    """

    peak_flop_per_s: Mapping[str, float]
    memory_bytes_per_s: float
    memory_bytes: float
    libraries: frozenset[str] = frozenset()
    tiny: bool = False


class Effort(Record):
    """The effort of timing one shape.

    It holds the repetitions for each condition, and three durations in seconds: idle time before each cold
    repetition, continuous load before the loaded repetitions, and heating at the beginning of a loaded
    phase.
    """

    repetitions: int = 10
    idle_s: float = 0.005
    load_s: float = 0.3
    heat_s: float = 3.0


QUICK = Effort(repetitions=5, idle_s=0.003, load_s=0.2, heat_s=2.0)
TINY = Effort(repetitions=3, idle_s=0.0, load_s=0.01, heat_s=0.02)


class Planned(Record):
    """One measurement: a shape, a condition, and its expected duration in seconds."""

    shape: Shape
    condition: str
    needed_s: float

    @property
    def key(self) -> str:
        """Return the shape and condition as one text, which identifies the samples of a resumed pack."""
        return f"{self.shape.key}|{self.condition}"


def plan(
    budget_s: float, speed: Speed, effort: Effort, seed: int = 0, done: Container[str] = ()
) -> tuple[Planned, ...]:
    """Return the measurements, in order, that together take about `budget_s`.

    The keys in `done`, which a pack already contains, are left out and take no time. Every shape fits
    into the device's memory and runs in a quarter of a second. No key occurs twice. The plan ends before
    the round that would exceed the budget.
    """
    chosen: list[Planned] = []
    seen: set[str] = set()
    compiled: set[str] = set()
    spent_s = 0.0
    for number in range(ROUNDS):
        for planned in _round(number, speed, effort, seed, seen):
            if planned.key in done:
                continue
            first = planned.shape.kernel not in compiled and _needs(planned.shape) == "triton"
            cost_s = planned.needed_s + (COMPILE_S if first else 0.0)
            if spent_s + cost_s > budget_s:
                return tuple(chosen)
            compiled.add(planned.shape.kernel)
            spent_s += cost_s
            chosen.append(planned)
    return tuple(chosen)


def run_s(shape: Shape, speed: Speed) -> float:
    """Return an estimate of the time of one execution: the roofline bound divided by a usual efficiency,
    plus a launch.

    Only the plan uses this estimate; a run measures its time and ends at the deadline.
    """
    need = need_of(shape)
    compute_s = need.flop_flop / speed.peak_flop_per_s.get(shape.dtype, 1.0)
    return LAUNCH_S + max(compute_s, need.moved_bytes / speed.memory_bytes_per_s) / USUAL_FRACTION


def _round(number: int, speed: Speed, effort: Effort, seed: int, seen: set[str]) -> tuple[Planned, ...]:
    """Return the measurements that one round adds, cold ones first, each part sorted from short to long.

    The loaded part contains only runs that keep a device busy while the host queues the next one: back to
    back, a shorter run takes the time of its launch.
    """
    cold: list[Planned] = []
    loaded: list[Planned] = []
    for space in SPACES:
        for shape in _points(space, number, speed, seed):
            if shape.key in seen:
                continue
            seen.add(shape.key)
            once_s = run_s(shape, speed)
            cold.append(_planned(shape, COLD, once_s, effort))
            if space.loaded and (speed.tiny or once_s >= LEAST_LOADED_S):
                loaded.append(_planned(shape, LOADED, once_s, effort))
    return (*sorted(cold, key=_cost), *sorted(loaded, key=_cost))


def _points(space: SamplingSpace, number: int, speed: Speed, seed: int) -> list[Shape]:
    """Return the points of a class in a round, except those that do not fit into this device or take too
    long on it.

    Classes with one point, and classes of the host, are measured once.
    """
    if space.needs and space.needs not in speed.libraries:
        return []
    start, stop = (0, space.share) if number == 0 else (space.share << (number - 1), space.share << number)
    if not space.axes:
        start, stop = min(start, 1), min(stop, 1)
    shapes = [space.shape(index, speed.tiny, seed) for index in range(start, stop)]
    return [shape for shape in shapes if _possible(shape, speed)]


def _possible(shape: Shape, speed: Speed) -> bool:
    if shape.dtype not in speed.peak_flop_per_s:
        return False
    fits = need_of(shape).held_bytes <= MEMORY_FRACTION * speed.memory_bytes
    return fits and run_s(shape, speed) <= MOST_RUN_S


def _planned(shape: Shape, condition: str, once_s: float, effort: Effort) -> Planned:
    """Return the measurement with its duration: set-up, a warm-up of three runs, and the repetitions of
    the condition.

    Loaded runs take `load_s`, or longer if the repetitions need more time.
    """
    setup_s = SETUP_S + 3 * once_s if effort.idle_s else 4 * once_s
    executions = HOST_LAUNCHES if shape.kernel == "host.launch" else 1
    timed_s = effort.repetitions * (effort.idle_s + executions * once_s)
    if condition == LOADED:
        timed_s = max(effort.load_s, (effort.repetitions + 1) * once_s)
    return Planned(shape=shape, condition=condition, needed_s=setup_s + timed_s)


def _cost(planned: Planned) -> float:
    return planned.needed_s


def _needs(shape: Shape) -> str:
    return next((s.needs for s in SPACES if s.kernel == shape.kernel), "")
