"""The time that a long run loses to checkpoints, restarts and repeated work.

Answers: how much longer than its steps does a run take, and how often should it save a checkpoint?
Elsewhere: how often devices fail (spec/operations.py), what the lost time costs (run.py).

Failures are a Poisson process that never pauses: they also occur during checkpoints and restarts. Each
failure loses all work since the last checkpoint. The expectations below are exact for that process (Daly
2006), for any interval; Young's interval is the limit of rare failures.
"""

import math

from flopcast.economics.amount import Amount
from flopcast.errors import InfeasibleError
from flopcast.records import Record
from flopcast.spec.operations import Reliability
from flopcast.units import show_seconds


class LostTime(Record):
    """Time that a run loses to checkpoints, restarts and repeated work, per second of its steps.

    All amounts are ratios to the time of the steps themselves; `wall` is 1 plus all losses.
    """

    interval_s: float  # of work between two checkpoints
    time_between_failures_s: float  # of the whole job
    saving: Amount
    restarting: Amount
    redone: Amount

    @property
    def stopped(self) -> Amount:
        """Return the time for saving and restarting, per second of useful steps."""
        return self.saving + self.restarting

    @property
    def lost(self) -> Amount:
        """Return all lost time, per second of useful steps."""
        return self.stopped + self.redone

    @property
    def wall(self) -> Amount:
        """Return the wall-clock time per second of useful steps."""
        return Amount(1.0) + self.lost


def pause_s(reliability: Reliability, cluster: str) -> Amount:
    """Return the time of one planned stop: a checkpoint and the restart from it, without repeated work."""
    restart = Amount(reliability.restart_s)
    restart = restart.hanging_on(f"restart[{cluster}]", reliability.restart_log_sigma_factor)
    saving = Amount(reliability.checkpoint_s)
    return restart + saving.hanging_on(f"checkpoint[{cluster}]", reliability.checkpoint_log_sigma_factor)


def best_interval_s(checkpoint_s: float, time_between_failures_s: float) -> float:
    """Return the seconds of work between two checkpoints that lose the least time.

    Parameters
    ----------
    checkpoint_s : seconds of a checkpoint, above 0
    time_between_failures_s : mean time between failures of the whole job

    Returns
    -------
    float
        Seconds t that solve `1 - t / M = exp(-(t + C) / M)`, by Newton's method from Young's
        `sqrt(2 C M)`, which is the limit if C is much shorter than M.

    References
    ----------
    J. W. Young, CACM 17(9), 1974; J. T. Daly, Future Generation Computer Systems 22(3), 2006, equation 20.

    Examples
    --------
    >>> round(best_interval_s(5.0, 1e6)), round(math.sqrt(2 * 5.0 * 1e6))
    (3159, 3162)
    """
    mean_s = time_between_failures_s
    ratio = min(math.sqrt(2 * checkpoint_s / mean_s), 0.99)
    for _ in range(50):
        kept = math.exp(-ratio - checkpoint_s / mean_s)
        step = (1 - ratio - kept) / (kept - 1)
        ratio -= step
        if abs(step) < 1e-14:
            break
    return ratio * mean_s


def lost_time(reliability: Reliability, num_devices: int, cluster: str) -> LostTime:
    """Return the time that a job loses to failures and checkpoints, given its number of devices.

    Parameters
    ----------
    cluster : name in the factors `failures[...]`, `restart[...]` and `checkpoint[...]`. The checkpoint
        interval is chosen before the run, so it does not depend on these factors.

    Raises
    ------
    InfeasibleError
        A restart and a checkpoint take as long as the mean time between two failures, so the job makes no
        progress.
    """
    mean_s = reliability.device_time_between_failures_s / num_devices
    restart_s, checkpoint_s = reliability.restart_s, reliability.checkpoint_s
    if restart_s + checkpoint_s >= mean_s:
        raise InfeasibleError(
            f"one of the {num_devices} devices fails every {show_seconds(mean_s)}, and a restart and a "
            f"checkpoint take {show_seconds(restart_s + checkpoint_s)}: the run would make almost no "
            "progress. Use fewer devices, or change cluster.reliability"
        )
    interval_s = reliability.checkpoint_interval_s or best_interval_s(checkpoint_s, mean_s)
    if (interval_s + checkpoint_s) / mean_s > 100:
        raise InfeasibleError(
            f"one of the {num_devices} devices fails every {show_seconds(mean_s)}, and checkpoints are "
            f"{show_seconds(interval_s)} apart, so the run would rarely reach the next checkpoint. "
            "Shorten cluster.reliability.checkpoint_interval_s"
        )
    failures = (f"failures[{cluster}]", reliability.failures_log_sigma_factor)
    restart = (f"restart[{cluster}]", reliability.restart_log_sigma_factor)
    checkpoint = (f"checkpoint[{cluster}]", reliability.checkpoint_log_sigma_factor)

    each = (interval_s + checkpoint_s) / mean_s  # failures while a segment is worked and saved
    tries = math.expm1(each) * mean_s / interval_s  # time in segments over work, failed ones too
    rise = math.exp(each) * checkpoint_s / interval_s  # of it with the checkpoint
    running = (
        Amount(tries)
        .hanging_on(*checkpoint, rise)
        .hanging_on(*failures, tries - math.exp(each) * each * mean_s / interval_s)
    )
    again = restart_s / mean_s  # failures while it restarts
    grown = again * math.exp(again)
    restarts = Amount(math.expm1(again)).hanging_on(*restart, grown).hanging_on(*failures, -grown)
    saving = Amount(checkpoint_s / interval_s).hanging_on(*checkpoint)
    return LostTime(
        interval_s=interval_s,
        time_between_failures_s=mean_s,
        saving=saving,
        restarting=running * restarts,
        redone=running + (saving + Amount(1.0)) * -1.0,
    )
