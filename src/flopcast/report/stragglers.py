"""What slow devices, hosts and links of a job cost.

Answers: how long would the step be without the slow parts, and which of them costs how much?
Elsewhere: how slow parts are stated (spec/slow_parts.py), what a stage with a slow part costs
(cost/part_prices.py).
"""

from flopcast.cost.item_prices import Priced
from flopcast.cost.part_prices import axes_of, with_parts
from flopcast.cost.parts import layout_of
from flopcast.records import dataclass
from flopcast.spec.job import Job
from flopcast.spec.slow_parts import SlowPart
from flopcast.timeline.step import simulated_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """A slow part, and by how much the step is longer if it is the only one.

    Several slow parts cost less together than the sum of what each costs alone, if they delay the same
    stage or stages that wait for each other.
    """

    part: SlowPart
    alone_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Stragglers:
    """The cost of all slow parts of a job.

    `step_time_s` is the mean step with all of them and `without_s` the mean step without any. `each` has
    one entry for every part that is slow alone; their costs need not add up, because stages wait only for
    the slowest.
    """

    step_time_s: float
    without_s: float
    each: tuple[Straggler, ...]

    @property
    def lost_s(self) -> float:
        """Return the seconds of a step that are lost to slow parts."""
        return self.step_time_s - self.without_s

    @property
    def lost_fraction(self) -> float:
        """Return the fraction of the step time, and of the cost of the step, that is lost to slow parts."""
        return self.lost_s / self.step_time_s


def stragglers_of(job: Job, priced: Priced, step_time_s: float, clean_s: float) -> Stragglers | None:
    """Return what the slow parts of a job cost; None if it has none.

    Parameters
    ----------
    priced : with rows for the parts of the job
    step_time_s, clean_s : the step with all slow parts, with jitter and without
    """
    if not job.site.slow:
        return None
    jitter_ratio = step_time_s / clean_s
    axes = axes_of(priced.programs)

    def mean_step_s(slow: tuple[SlowPart, ...]) -> float:
        site = job.site.model_copy(update={"slow": slow})
        layout = layout_of(job.plan, job.cluster, site, axes)
        return jitter_ratio * simulated_seconds(with_parts(priced.equal, layout, job.cluster))

    without_s = mean_step_s(())
    each = tuple(Straggler(part=part, alone_s=mean_step_s((part,)) - without_s) for part in job.site.slow)
    return Stragglers(step_time_s=step_time_s, without_s=without_s, each=each)
