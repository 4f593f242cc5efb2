"""Kinds of factors: the label of each, its usual source, and whether better hardware changes it.

Answers: what does `gemm_level[h100-sxm5-80gb]` mean?
Elsewhere: the factors themselves (factors.py), the files that make them (kernels/kernel_factors.py,
kernels/clocks.py, price.py, report/report.py, economics/failures.py).

The part of a factor's name before the bracket is its kind, the part inside it is what it belongs to.
"""

from collections.abc import Mapping

from flopcast.records import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FactorKind:
    """One kind of factors.

    Attributes
    ----------
    label : str
        What is uncertain, in words of the field.
    meaning : str
        What a constant of this kind is relative to; empty if no constant is fitted.
    rests_on : str
        What its sigma comes from, where neither a site nor whole runs give one.
    is_lever : bool
        Whether faster hardware or software changes it.
    """

    label: str
    meaning: str = ""
    rests_on: str = "the error of its curves"
    is_lever: bool = True


KINDS: Mapping[str, FactorKind] = {
    "gemm_level": FactorKind(
        label="speed of matrix products",
        meaning="time of matrix products in training, relative to their curves for this device",
    ),
    "attention_level": FactorKind(
        label="speed of attention kernels",
        meaning="time of attention kernels in training, relative to their curves for this device",
    ),
    "memory_level": FactorKind(
        label="speed of memory-bound kernels",
        meaning="time of memory-bound kernels in training, relative to their curves for this device",
    ),
    "graph_level": FactorKind(
        label="speed of the kernels of an exported graph",
        rests_on="step times of models and devices that were left out of the fit",
    ),
    "in_training_derate": FactorKind(
        label="efficiency of the software in training",
        meaning="time of products and unfused attention under a stack (clocks, cold caches, kernels),"
        " relative to the curves",
        is_lever=False,
    ),
    "fabric": FactorKind(
        label="speed of collectives",
        meaning="time of collectives in a job, relative to the fabric's measurements or data sheet",
    ),
    "borrowed": FactorKind(
        label="unmeasured kernel, estimated from a similar one",
        meaning="time of an unmeasured kernel or collective, relative to the curve of another that it uses",
        rests_on="the curve of another kernel class or collective",
        is_lever=False,
    ),
    "uncalibrated": FactorKind(
        label="kernels not measured on this device",
        meaning="time of a device's unmeasured kernels, relative to a fallback device or data sheet",
        rests_on="the curves of another device, or a data sheet",
        is_lever=False,
    ),
    "extrapolated": FactorKind(
        label="sizes outside the measured range",
        meaning="time of kernels or messages outside their measured range, relative to the curve",
        rests_on="its shape lies outside the measured range",
        is_lever=False,
    ),
    "attention_generation": FactorKind(
        label="version of the attention kernel",
        meaning="time of an earlier attention kernel, relative to the ratio in its paper",
        rests_on="ratios of the kernels' papers",
    ),
    "exchange": FactorKind(
        label="speed of the all-to-all between experts",
        meaning="time of the all-to-all of expert tokens, relative to the prediction",
        rests_on="the difference between kernels alone and calls of the library",
    ),
    "expert_launch": FactorKind(
        label="launch time of one GEMM for each expert",
        meaning="launch time if each expert has its own GEMM, relative to launches from Python",
        rests_on="prior: a launch from C++ costs a fifth of one from Python",
    ),
    "host": FactorKind(label="speed of the host", rests_on="prior: the usual difference between hosts"),
    "host_step": FactorKind(
        label="work of the host once a step", rests_on="prior: the usual difference between hosts"
    ),
    "power_limit": FactorKind(
        label="clocks under the power limit",
        rests_on="epochs of small networks, measured under power limits",
    ),
    "clock": FactorKind(
        label="effect of a locked clock", rests_on="prior: the effect of a locked clock was not measured"
    ),
    "clock_spread": FactorKind(
        label="clock differences between devices",
        rests_on="clocks of equal devices, measured on five clusters (arXiv:2208.11035)",
        is_lever=False,
    ),
    "iteration": FactorKind(
        label="software efficiency of the engine", rests_on="measured runs of engines, by their residuals"
    ),
    "jitter": FactorKind(label="variation from step to step", is_lever=False),
    "between_plans": FactorKind(
        label="unexplained differences between plans",
        meaning="unexplained deviation from the predicted ratio of two plans' step times, on one machine",
    ),
    "carried": FactorKind(
        label="constants used for another kind of job",
        meaning="how much constants differ between kinds of jobs; widens intervals of another kind of job",
    ),
    "unexplained": FactorKind(
        label="unexplained differences between runs",
        meaning="deviation of whole steps that no other factor explains; affects only the interval",
        is_lever=False,
    ),
    "host_link": FactorKind(
        label="speed of copies between device and host",
        rests_on="prior: the usual difference between hosts",
    ),
    "host_link_pageable": FactorKind(
        label="speed of copies to memory that is not pinned",
        rests_on="copies of gradients on three machines",
    ),
    "host_update": FactorKind(
        label="speed of the optimizer on the host", rests_on="updates of the optimizer on three machines"
    ),
    "state_copies": FactorKind(
        label="speed of software that copies states",
        meaning="time of copies of states through pinned memory, relative to the rate of the link",
        rests_on="prior: software reaches a fraction of the link's bandwidth",
    ),
    "host_updates": FactorKind(
        label="speed of the optimizer on a host without measured rate",
        meaning="time of updates on the host, relative to the peak bandwidth of its memory",
        rests_on="prior: processors reach a fraction of their memory bandwidth",
    ),
    "interleaved_update": FactorKind(
        label="speed of updates that the host and the device share",
        meaning="time of an update that host and device share: the host's part relative to its usual"
        " time, and the device's part relative to half of the time that the host would need",
        rests_on="prior: the device costs between nothing and as much as the host",
    ),
    "checkpoint_copies": FactorKind(
        label="speed of copies of checkpoints",
        meaning="time of copies to memory that is not pinned, relative to 4 GB/s of one rank",
        rests_on="prior: one processor core zeroes the pages before it writes them",
    ),
    "checkpoint_files": FactorKind(
        label="time to open a file of a checkpoint",
        meaning="time that coordinating the ranks adds for each further file, as a multiple of 2 ms",
        rests_on="prior: the time to create a file on a parallel file system",
    ),
    "checkpoint_interference": FactorKind(
        label="training speed lost to writes in the background",
        meaning="share of the training speed that a writer in Python costs, relative to 0.2",
        rests_on="prior: a writer in Python slows training",
    ),
    "storage": FactorKind(
        label="speed of the storage", rests_on="prior: the usual difference from data sheets"
    ),
    "failures": FactorKind(label="failures of devices"),
    "restart": FactorKind(label="time of a restart"),
    "checkpoint": FactorKind(label="time of writing a checkpoint"),
}


def kind_of(factor: str) -> FactorKind:
    """Return the kind of a factor by its name; the label of an unknown kind is its own name.

    >>> kind_of("clock_spread[h100-sxm5-80gb]").is_lever, kind_of("of_mine").label
    (False, 'of mine')
    """
    word = factor.partition("[")[0]
    return KINDS.get(word) or FactorKind(label=word.replace("_", " "))


def in_words(factor: str) -> str:
    """Return what a factor is, with its name in brackets.

    >>> in_words("fabric[infiniband]")
    'speed of collectives (fabric[infiniband])'
    """
    return f"{kind_of(factor).label} ({factor})"
