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
        label="speed of GEMMs",
        meaning="time of GEMMs in training, divided by their time in benchmarks of the device",
    ),
    "attention_level": FactorKind(
        label="speed of attention kernels",
        meaning="time of attention kernels in training, divided by their time in benchmarks of the device",
    ),
    "unfused_attention_level": FactorKind(
        label="speed of the GEMMs of unfused attention",
        meaning="time of the GEMMs of unfused attention in training, divided by their time in benchmarks of"
        " the device",
    ),
    "memory_level": FactorKind(
        label="speed of memory-bound kernels",
        meaning="time of memory-bound kernels in training, divided by their time in benchmarks of the"
        " device",
    ),
    "graph_level": FactorKind(
        label="speed of the kernels of an exported graph",
        rests_on="step times of models and devices that were left out of the fit",
    ),
    "in_training_derate": FactorKind(
        label="efficiency of the software in training",
        meaning="time of GEMMs and unfused attention in training, divided by their time in benchmarks."
        " Lower clocks, cold caches and concurrent kernels make kernels slower in training. The name in"
        " brackets is a release of a framework; the constant without brackets applies to releases without a"
        " constant of their own",
        is_lever=False,
    ),
    "fabric": FactorKind(
        label="speed of collectives",
        meaning="time of collectives in training, divided by their time in benchmarks of the network"
        " (without benchmarks: by their time at the bandwidth in the data sheet)",
    ),
    "borrowed": FactorKind(
        label="unmeasured kernel, estimated from a similar one",
        meaning="time, in published runs, of a kernel or collective without benchmarks, divided by the"
        " time of a similar kernel or collective that flopcast uses instead",
        rests_on="the curve of another kernel class or collective",
        is_lever=False,
    ),
    "uncalibrated": FactorKind(
        label="kernels not measured on this device",
        meaning="time, in published runs, of kernels without benchmarks on the device, divided by the time"
        " that flopcast derives from a similar device or from the data sheet",
        rests_on="the curves of another device, or a data sheet",
        is_lever=False,
    ),
    "extrapolated": FactorKind(
        label="sizes outside the measured range",
        rests_on="the error of a curve outside its measured range",
        is_lever=False,
    ),
    "attention_generation": FactorKind(
        label="version of the attention kernel",
        meaning="time of an older attention kernel, such as FlashAttention 1, divided by the time that"
        " flopcast derives from the time of a newer kernel and the published speed-up of the newer kernel",
        rests_on="speed-ups that the papers on the kernels state",
    ),
    "exchange": FactorKind(
        label="speed of the all-to-all between experts",
        meaning="time of the all-to-all between experts, divided by the predicted time",
        rests_on="the difference between the time of the kernels and the time of a call to the library",
    ),
    "expert_launch": FactorKind(
        label="launch time of one GEMM for each expert",
        meaning="time to launch the GEMM of one expert, divided by the time to launch any other kernel from"
        " Python",
        rests_on="prior: a launch from C++ costs a fifth of one from Python",
    ),
    "host": FactorKind(label="speed of the host", rests_on="prior: the usual difference between hosts"),
    "host_step": FactorKind(
        label="work of the host in each step", rests_on="prior: the usual difference between hosts"
    ),
    "power_limit": FactorKind(
        label="clocks under the power limit",
        rests_on="epochs of small networks, measured under power limits",
    ),
    "reserved_multiprocessors": FactorKind(
        label="multiprocessors reserved for communication",
        rests_on="prior: the time of GEMMs grows as the number of multiprocessors left for them falls",
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
        label="software efficiency of the engine", rests_on="the residuals of measured runs of engines"
    ),
    "jitter": FactorKind(label="variation from step to step", is_lever=False),
    "between_plans": FactorKind(
        label="unexplained differences between plans",
        meaning="sigma of the unexplained part of the error in the predicted ratio of two plans' step"
        " times",
    ),
    "carried": FactorKind(
        label="constants that were fitted on another kind of job",
        meaning="sigma of the change of a constant from one device generation, precision, model family,"
        " number of devices or source to another",
    ),
    "unexplained": FactorKind(
        label="unexplained differences between runs",
        meaning="sigma of the part of the step-time error that no other factor explains. The sigma widens"
        " intervals and does not change the predicted step time",
        is_lever=False,
    ),
    "unknown_site": FactorKind(
        label="speed of sites without fitted runs",
        meaning="sigma of an additional error, which applies if constants were fitted to no run with the"
        " job's framework on the job's device. The brackets state the kind of model, what is unknown (the"
        " framework, the device, or the library on which the framework is based), and whether steps are"
        " slower or faster than predicted. The sigma widens the interval only on the side that the brackets"
        " name, and does not change the predicted step time",
        rests_on="prior: releases of a framework differ by up to 30 %",
        is_lever=False,
    ),
    "host_link": FactorKind(
        label="speed of copies between device and host",
        rests_on="prior: the usual difference between hosts",
    ),
    "host_link_pageable": FactorKind(
        label="speed of copies to memory that is not pinned",
        rests_on="measured copies of gradients on three machines",
    ),
    "host_update": FactorKind(
        label="speed of the optimizer on the host", rests_on="measured optimizer updates on three machines"
    ),
    "state_copies": FactorKind(
        label="efficiency of software that copies states",
        meaning="time of copies of optimizer states, gradients and parameters through pinned memory,"
        " divided by their time at the full bandwidth of the link",
        rests_on="prior: software reaches a fraction of the link's bandwidth",
    ),
    "host_updates": FactorKind(
        label="speed of the optimizer on a host without measured rate",
        meaning="time of optimizer updates on the host, divided by their time at the peak bandwidth of the"
        " host's memory",
        rests_on="prior: CPUs reach a fraction of their memory bandwidth",
    ),
    "interleaved_update": FactorKind(
        label="speed of updates that the host and the device share",
        meaning="two ratios, for optimizer updates in which the host updates some parameters and the device"
        " updates the others. `[host]` is the time of the host, divided by the time that it needs for the"
        " same number of parameters if the device updates none. `[device]` is the time of the device,"
        " divided by half of the time that the host would need for the parameters that the device updates",
        rests_on="prior: updates on the device take between no time and as much time as on the host",
    ),
    "checkpoint_copies": FactorKind(
        label="speed of copies of checkpoints",
        meaning="time of copies of a checkpoint to memory that is not pinned, divided by their time at 4"
        " GB/s per rank. `[serialised]` applies to `torch.save`, `[allocated]` to copies to newly"
        " allocated memory, and `[chunked]` to copies whose chunks are written and freed one after"
        " another",
        rests_on="prior: one CPU core zeroes the pages before it writes to them",
    ),
    "checkpoint_files": FactorKind(
        label="time to open a file of a checkpoint",
        meaning="time to open each additional file of a checkpoint, divided by the assumed time of 2 ms",
        rests_on="prior: the time to create a file on a parallel file system",
    ),
    "checkpoint_handover": FactorKind(
        label="time until ranks have handed over what a checkpoint saves",
        meaning="time until all ranks have listed their tensors, pickled the rest of their state and"
        " synchronised, divided by the assumed time of 20 ms. We chose this constant by hand from"
        " four waits in a log",
        rests_on="prior: some thousand objects in Python and a barrier",
    ),
    "checkpoint_interference": FactorKind(
        label="training speed lost while checkpoints are written in the background",
        meaning="fraction of the training speed that is lost while a Python process writes a checkpoint in"
        " the background, divided by the assumed fraction of 0.2",
        rests_on="prior: a Python process that writes files slows training",
    ),
    "handoff_tensors": FactorKind(
        label="time of software for each tensor of a handoff",
        meaning="time to write, read and place one tensor when new weights are handed to the inference"
        " engine through files, divided by the assumed time of 0.4 ms. We chose this constant"
        " and the assumed time after we had seen the ratios that MinT published, so predictions of these"
        " ratios are development scores",
        rests_on="prior: four steps of 0.1 ms",
    ),
    "rollouts": FactorKind(
        label="time of rollouts in reinforcement learning",
        meaning="time to generate all answers of a step of reinforcement learning, divided by the time that"
        " the inference engine alone needs for answers of the stated lengths. This ratio covers"
        " three costs that flopcast does not model: the software of the trainer, the"
        " log-probabilities of sampled tokens, and very long answers",
        rests_on="prior: the usual error of a load that nobody measured",
    ),
    "loader": FactorKind(
        label="speed of a stage of data loading",
        rests_on="prior: the usual error of a time that a user states",
    ),
    "loader_gather": FactorKind(
        label="speed of row gathers in host memory",
        rests_on="prior: CPUs reach a fraction of their memory bandwidth",
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
