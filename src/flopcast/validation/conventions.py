"""FLOP conventions of publications: from printed TFLOP/s back to the seconds that were measured.

Answers: which formula did a source divide by the step time?
A rate is a FLOP count over a time; papers differ in the count (recompute or not, full or causal attention,
head or not), and a rate read by another's formula is wrong by up to a third. What was measured is the
time, so it is recovered by the source's own formula, and predictions are compared in seconds.
Elsewhere: the formulas themselves (report/flop_conventions.py).
"""

from flopcast.report.flop_conventions import equation_3
from flopcast.spec.job import Job


def step_time_of_rate(job: Job, device_flop_per_s: float) -> float:
    """Seconds of a step that ran at so many FLOP/s per device by Megatron-LM's formula of 2021.

    `F = 96 B s l h² (1 + s / 6h + V / 16 l h)`: four passes (recompute included), full attention, head of
    the published (not the padded) vocabulary.

    Parameters
    ----------
    job : Job
        Gives batch B, sequence length s, layers l, hidden size h, vocabulary V and the devices.
    device_flop_per_s : float
        As printed, per device.

    Returns
    -------
    float
        Seconds of one step.

    References
    ----------
    Narayanan et al., SC21, arXiv:2104.04473, equation 3.
    """
    flop = equation_3(job, 4.0, job.model.vocabulary)
    return flop / (job.cluster.num_devices * device_flop_per_s)
