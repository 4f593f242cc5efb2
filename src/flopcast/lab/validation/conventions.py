"""FLOP conventions of publications: from printed TFLOP/s back to the seconds that were measured.

Answers: which formula did a source divide by the step time?
A rate is a FLOP count over a time; papers differ in the count (recompute or not, full or causal attention,
head or not), and a rate read by another's formula is wrong by up to a third. What was measured is the
time, so it is recovered by the source's own formula, and predictions are compared in seconds.
Elsewhere: the formulas themselves (report/flop_conventions.py).
"""

from collections.abc import Callable, Mapping
from typing import Literal

from flopcast.report.flop_conventions import CONVENTIONS, equation_3
from flopcast.spec.job import Job

Formula = Literal["megatron-2021", "megatron-core"]


def _megatron_2021(job: Job) -> float:
    """Return `F = 96 B s l h² (1 + s / 6h + V / 16 l h)` of SC21: four passes, so recompute is included.

    Attention is full, the head that of the published vocabulary; logs count the padded one
    (report/flop_conventions.py).
    """
    return equation_3(job, 4.0, job.model.vocabulary)


FORMULAS: Mapping[Formula, Callable[[Job], float]] = {
    "megatron-2021": _megatron_2021,
    "megatron-core": CONVENTIONS["megatron-core"].flop,  # model FLOP: full attention, no recompute
}


def step_time_of_rate(job: Job, device_flop_per_s: float, formula: Formula = "megatron-2021") -> float:
    """Return the seconds of a step that ran at this many FLOP/s per device by a source's formula.

    Parameters
    ----------
    job : Job
        Gives batch B, sequence length s, layers l, hidden size h, vocabulary V and the devices.
    device_flop_per_s : float
        As printed, per device.
    formula : one of FORMULAS
        What the source divided by the step time.

    Returns
    -------
    float
        Seconds of one step.

    References
    ----------
    Narayanan et al., SC21, arXiv:2104.04473, equation 3.
    """
    return FORMULAS[formula](job) / (job.cluster.num_devices * device_flop_per_s)
