"""Kinds of factors: the label of each, its usual source, and whether better hardware changes it.

Answers: what does `gemm_level[h100-sxm5-80gb]` mean?
Elsewhere: the meaning of fitted constants (catalog/constants/meanings.yaml), the factors themselves
(cost/factors.py), the modules that create them (cost/kernels/, cost/price.py, report/report.py,
economics/failures.py).

The name of a factor begins with its kind. The brackets state what the factor applies to.
"""

from collections.abc import Mapping

from flopcast.records import Record
from flopcast.strict_model import NotAllowedError


class FactorKind(Record, kw_only=False):
    """One kind of factors.

    Attributes
    ----------
    label : str
        What is uncertain, in words of the field.
    rests_on : str
        Source of its sigma if neither a site nor whole runs determine it.
    is_lever : bool
        Whether faster hardware or software changes it.
    """

    label: str
    rests_on: str = "the error of its curves"
    is_lever: bool = True


KINDS: Mapping[str, FactorKind] = {
    "gemm_level": FactorKind("speed of GEMMs"),
    "attention_level": FactorKind("speed of attention kernels"),
    "unfused_attention_level": FactorKind("speed of the GEMMs of unfused attention"),
    "memory_level": FactorKind("speed of memory-bound kernels"),
    "graph_level": FactorKind(
        "speed of the kernels of an exported graph",
        "step times of models and devices that were left out of the fit",
    ),
    "in_training_derate": FactorKind("efficiency of the software in training", is_lever=False),
    "fabric": FactorKind("speed of collectives"),
    "borrowed": FactorKind(
        "unmeasured kernel, estimated from a similar one",
        "the curve of another kernel class or collective",
        is_lever=False,
    ),
    "uncalibrated": FactorKind(
        "kernels not measured on this device",
        "the curves of another device, or a data sheet",
        is_lever=False,
    ),
    "extrapolated": FactorKind(
        "sizes outside the measured range",
        "the error of a curve outside its measured range",
        is_lever=False,
    ),
    "attention_generation": FactorKind(
        "version of the attention kernel", "the speed-ups that the papers about these kernels state"
    ),
    "exchange": FactorKind(
        "speed of the all-to-all between experts",
        "the difference between the time of the kernels and the time of a call to the library",
    ),
    "expert_launch": FactorKind(
        "launch time of one GEMM for each expert",
        "prior: a launch from C++ takes a fifth of the time of a launch from Python",
    ),
    "host": FactorKind("speed of the host", "prior: the usual difference between hosts"),
    "host_step": FactorKind("work of the host in each step", "prior: the usual difference between hosts"),
    "power_limit": FactorKind(
        "clocks under the power limit", "epochs of small networks, measured under power limits"
    ),
    "reserved_multiprocessors": FactorKind(
        "multiprocessors reserved for communication",
        "prior: GEMMs take longer if they have fewer multiprocessors",
    ),
    "clock": FactorKind("effect of a locked clock", "prior: the effect of a locked clock was not measured"),
    "clock_spread": FactorKind(
        "clock differences between devices",
        "clocks of equal devices, measured on five clusters (arXiv:2208.11035)",
        is_lever=False,
    ),
    "iteration": FactorKind(
        "software efficiency of the engine", "the residuals of measured runs of engines"
    ),
    "outer_round": FactorKind(
        "speed of the exchange between peers", "prior: peers share their links with other traffic"
    ),
    "jitter": FactorKind("variation from step to step", is_lever=False),
    "between_plans": FactorKind("unexplained differences between plans"),
    "carried": FactorKind("constants that were fitted on another kind of job"),
    "unexplained": FactorKind("unexplained differences between runs", is_lever=False),
    "unknown_site": FactorKind(
        "no fitted run of this software on this device",
        "prior: releases of a framework differ by up to 30 %",
        is_lever=False,
    ),
    "host_link": FactorKind(
        "speed of copies between device and host", "prior: the usual difference between hosts"
    ),
    "host_link_pageable": FactorKind(
        "speed of copies to memory that is not pinned", "measured copies of gradients on three machines"
    ),
    "host_update": FactorKind(
        "speed of the optimizer on the host", "measured optimizer updates on three machines"
    ),
    "state_copies": FactorKind(
        "efficiency of software that copies states",
        "prior: software reaches a fraction of the link's bandwidth",
    ),
    "host_updates": FactorKind(
        "speed of the optimizer on a host without measured rate",
        "prior: CPUs reach a fraction of their memory bandwidth",
    ),
    "interleaved_update": FactorKind(
        "speed of updates that the host and the device share",
        "prior: updates on the device take between no time and as much time as on the host",
    ),
    "checkpoint_copies": FactorKind(
        "speed of copies of checkpoints", "prior: one CPU core zeroes the pages before it writes to them"
    ),
    "checkpoint_files": FactorKind(
        "time to open a file of a checkpoint", "prior: the time to create a file on a parallel file system"
    ),
    "checkpoint_handover": FactorKind(
        "time until ranks have handed over what a checkpoint saves",
        "prior: the time to handle a few thousand Python objects, and a barrier",
    ),
    "checkpoint_interference": FactorKind(
        "training speed lost while checkpoints are written in the background",
        "prior: a Python process that writes files slows training",
    ),
    "handoff_tensors": FactorKind(
        "time of software for each tensor of a handoff", "prior: four steps of 0.1 ms"
    ),
    "rollouts": FactorKind(
        "time of rollouts in reinforcement learning",
        "prior: the usual error for a load that was not measured",
    ),
    "loader": FactorKind(
        "speed of a stage of data loading", "prior: the usual error of a time that a user states"
    ),
    "loader_gather": FactorKind(
        "speed of row gathers in host memory", "prior: CPUs reach a fraction of their memory bandwidth"
    ),
    "storage": FactorKind("speed of the storage", "prior: the usual difference from data sheets"),
    "failures": FactorKind("failures of devices"),
    "restart": FactorKind("time of a restart"),
    "checkpoint": FactorKind("time of writing a checkpoint"),
}


def kind_of(factor: str) -> FactorKind:
    """Return the kind of a factor by its name. The label of an unknown kind is the name of the factor.

    >>> kind_of("clock_spread[h100-sxm5-80gb]").is_lever, kind_of("of_mine").label
    (False, 'of mine')
    """
    word = factor.partition("[")[0]
    return KINDS.get(word) or FactorKind(word.replace("_", " "))


def known_factor(name: str) -> str:
    """Return the name of a factor.

    Raises
    ------
    NotAllowedError
        There is no such kind of factors.
    """
    kind, bracket, subject = name.partition("[")
    if kind in KINDS:
        return name
    from difflib import get_close_matches  # only a wrong name needs it

    near = get_close_matches(kind, KINDS, n=1)
    allowed = "a factor as reports name it, such as host or gemm_level[h100-sxm5-80gb]"
    fix = {"name": f"{near[0]}{bracket}{subject}"} if near else ""
    raise NotAllowedError(allowed, "no prediction has a factor with this name", fix)


def in_words(factor: str) -> str:
    """Return the meaning of a factor, followed by its name in brackets.

    >>> in_words("fabric[infiniband]")
    'speed of collectives (fabric[infiniband])'
    """
    return f"{kind_of(factor).label} ({factor})"
