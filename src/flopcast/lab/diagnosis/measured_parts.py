"""Parts of a measured step beside the predicted ones: timers of a log, kernels of a trace.

Answers: which part of the step takes longer than predicted, and which is as predicted?
Elsewhere: timers (lab/logs/timers.py), traces (lab/calibration/trace.py), the predicted parts of a trace
(lab/validation/step_parts.py).

Predicted parts are those of the busiest stage. A part is a suspect if it exceeds its prediction by
LEAST_EXCESS of the step; if all of it is within the uncertainty of the prediction, the suspect says so.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flopcast.cost.factors import HOST
from flopcast.lab.calibration.kernel_names import ATTENTION, COMMUNICATION, GEMM, MEMORY
from flopcast.lab.calibration.trace import Trace, busy_seconds_per_step, seconds_per_step
from flopcast.lab.diagnosis.suspect import Basis, Suspect
from flopcast.lab.logs.timers import Part, TimedPart
from flopcast.lab.validation.step_parts import components
from flopcast.operators.item import Item
from flopcast.report.report import BUBBLE, Report
from flopcast.units import show_seconds

LEAST_EXCESS = 0.02  # of the step
ALIKE_RATIO = 1.1  # kernels that are slower by ratios this close have one cause
SLOW_RATIO = 1.05
STRAGGLER_RATIO = 1.04  # slowest over fastest rank, beyond what stages of unequal work explain
REDUCED = (
    "gradients.flatten",
    "gradients.scale_gradient",
    "gradients.reduce",
    "gradients.unflatten",
    "gradients.replicated",
    "gradients.tied_embeddings",
)
Found = tuple[list[Suspect], list[str]]  # suspects, and what is as predicted


@dataclass(frozen=True, kw_only=True, slots=True)
class Excess:
    """How a part that is too long is called and explained."""

    name: str
    part: str  # "the reduction of gradients"
    title: str
    change: str
    against: tuple[str, ...] = ()


OF_TIMERS: Mapping[str, Excess] = {
    "data": Excess(
        name="data_loading",
        part="the data loader",
        title="The step waits for data",
        change="use more workers and prefetch in the data loader, or move the data to faster storage",
    ),
    "gradients": Excess(
        name="gradient_reduction",
        part="the reduction of gradients",
        title="The reduction of gradients takes longer than predicted",
        change="run nccl-tests between these nodes; look for a slow link or network card, and for NCCL"
        " settings that leave a card unused",
        against=("a rank that computes longer than others makes all others wait in this reduction",),
    ),
    "parameters": Excess(
        name="parameter_gather",
        part="the gather of parameters",
        title="The gather of updated parameters takes longer than predicted",
        change="run nccl-tests between these nodes; look for a slow link or network card",
    ),
    "optimizer": Excess(
        name="optimizer",
        part="the optimizer",
        title="The optimizer takes longer than predicted",
        change="use a fused optimizer, and look for work that runs in every step, such as logging norms",
    ),
    "compute": Excess(
        name="compute",
        part="forward and backward",
        title="Forward and backward take longer than predicted",
        change="compare clocks and power of the devices with their limits (nvidia-smi -q -d CLOCK,POWER),"
        " and give a trace with --trace to see which kernels are slow",
    ),
    "passes": Excess(
        name="passes",
        part="forward, backward and the reduction of gradients",
        title="Forward, backward and the reduction of gradients take longer than predicted",
        change="print more timers (Megatron-LM: --timing-log-level 1), or give a trace with --trace",
    ),
    "between": Excess(
        name="between_steps",
        part="the time between forward, backward and optimizer",
        title="Time passes between the optimizer and the next forward pass",
        change="look for work of the host in every step: data loading, logging, garbage collection",
    ),
}
OF_TRACES: Mapping[str, Excess] = {
    GEMM: Excess(
        name="products",
        part="matrix products",
        title="Matrix products are slower than predicted",
        change="compare clocks and power of the device with its limits, and the library's version with a"
        " newer one",
    ),
    ATTENTION: Excess(
        name="attention",
        part="attention",
        title="Attention is slower than predicted",
        change="check which attention kernel runs: the trace names it",
    ),
    MEMORY: Excess(
        name="memory_bound",
        part="kernels bound by memory",
        title="Kernels bound by memory take longer than predicted",
        change="look for unfused elementwise kernels, and compile or fuse them",
    ),
    COMMUNICATION: Excess(
        name="communication",
        part="communication that nothing hides",
        title="Communication that nothing hides takes longer than predicted",
        change="run nccl-tests between these nodes, and compare traces of several ranks: the rank that"
        " waits least is the slow one",
        against=("a collective also waits for the slowest rank, and a receive for the neighbouring stage",),
    ),
    HOST: Excess(
        name="idle_device",
        part="time in which the device runs nothing",
        title="The device waits for the host",
        change="use CUDA graphs or larger micro-batches, and look for synchronisation and data loading",
    ),
}


def timed_suspects(report: Report, timers: Sequence[TimedPart], step_s: float) -> Found:
    """Return parts that timers show to be longer than predicted, and sentences on the others.

    Parameters
    ----------
    step_s : the measured steady step
    """
    known = {timed.part: timed for timed in timers}
    predicted = timed_parts(report)
    measured = _measured_parts(known, step_s)
    if "optimizer" in measured and "parameters" not in measured:
        predicted["optimizer"] += predicted.pop("parameters", 0.0)  # Megatron-LM's timer holds both
    seen = "the timers of the log show"
    suspects, cleared = _compared(report, measured, predicted, OF_TIMERS, seen)
    if straggler := _straggler(report, known):
        suspects.append(straggler)
    return suspects, cleared


def timed_parts(report: Report) -> dict[str, float]:
    """Return predicted seconds of a step by the parts that timers have, on the busiest stage."""
    seconds: dict[str, float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        seconds[_part_of(share.item)] += share.path_s
    seconds["passes"] = (
        seconds["compute"] + seconds["gradients"] + seconds["transfers"] + report.breakdown.get(BUBBLE, 0.0)
    )
    seconds["data"] = 0.0
    return dict(seconds)


def _part_of(item: Item | None) -> str:
    if item is None:
        return "compute"
    first = item.name.partition(".")[0]
    if item.name == "gradients.gather_parameters":
        return "parameters"
    if item.name in REDUCED:
        return "gradients"
    if first in ("gradients", "optimizer", "host"):
        return "optimizer"
    return "transfers" if first in ("hop", "receive") else "compute"


def _measured_parts(timers: Mapping[Part, TimedPart], step_s: float) -> dict[str, float]:
    """Return measured seconds by part: of the slowest rank, but of the fastest for what waits for it."""
    found: dict[str, float] = {}
    for part, timed in timers.items():
        if part in ("data", "optimizer"):
            found[part] = timed.most_s
        elif part in ("gradients", "parameters"):
            found[part] = timed.least_s
    if "forward" in timers and "backward" in timers:
        found["compute"] = timers["forward"].most_s + timers["backward"].most_s - found.get("data", 0.0)
    elif "passes" in timers:
        found["passes"] = timers["passes"].most_s - found.get("data", 0.0)
    if "passes" in timers and "optimizer" in timers:
        found["between"] = step_s - timers["passes"].most_s - timers["optimizer"].most_s
    return found


def _straggler(report: Report, timers: Mapping[Part, TimedPart]) -> Suspect | None:
    """Return the suspect of ranks that compute longer than others by more than their stages explain."""
    both = [timers[part] for part in ("forward", "backward") if part in timers]
    if not both or any(timed.most_s <= timed.least_s for timed in both):
        return None
    least_s, most_s = sum(timed.least_s for timed in both), sum(timed.most_s for timed in both)
    expected = stage_ratio(report)
    if most_s / least_s < STRAGGLER_RATIO * expected:
        return None
    rank = next((timed.slowest_rank for timed in both if timed.slowest_rank is not None), None)
    who = "the slowest rank" if rank is None else f"rank {rank}, most often the slowest,"
    return Suspect(
        name="straggler",
        title="Some ranks compute longer than others, and all others wait for them",
        cost_s=most_s - expected * least_s,
        basis="measured",
        evidence=(
            f"{who} computes {show_seconds(most_s)} a step and the fastest {show_seconds(least_s)};"
            f" unequal stages explain a ratio of {expected:.2f} of these {most_s / least_s:.2f}",
        ),
        change="find the slow rank (Megatron-LM: --timing-log-option all, --log-straggler), and compare its"
        " clocks, temperature and power with those of the others",
    )


def stage_ratio(report: Report) -> float:
    """Return the predicted compute of the longest stage over that of the shortest."""
    classes = report.priced.programs.stages.of(0).chunk_class
    passes = (report.timeline.run.forward, report.timeline.run.backward)
    seconds = [sum(float(one.duration_s[1, 0, chunks].sum()) for one in passes) for chunks in classes]
    return max(seconds) / min(seconds) if min(seconds) > 0 else 1.0


def traced_suspects(report: Report, trace: Trace) -> Found:
    """Return parts that a trace shows to be longer than predicted, and sentences on the others.

    Kernels that are all slower by about one ratio are one suspect: the clock.
    """
    measured, predicted = seconds_per_step(trace), components(report)
    waits_s = report.breakdown.get(BUBBLE, 0.0)  # for other stages, inside of receives
    predicted[COMMUNICATION] = predicted.get(COMMUNICATION, 0.0) + waits_s
    if trace.step_time_s is not None:
        measured[HOST] = max(0.0, trace.step_time_s - busy_seconds_per_step(trace))
    suspects, cleared = _compared(report, measured, predicted, OF_TRACES, "the trace shows")
    ratios = {
        part: measured[part] / predicted[part]
        for part in (GEMM, ATTENTION)
        if measured.get(part) and predicted.get(part)
    }
    slow = len(ratios) == 2 and min(ratios.values()) > SLOW_RATIO
    if slow and max(ratios.values()) < ALIKE_RATIO * min(ratios.values()):
        alike = [one for one in suspects if one.name in ("products", "attention")]
        suspects = [one for one in suspects if one not in alike] + [_clocks(alike, ratios)]
    return suspects, cleared


def _clocks(alike: Sequence[Suspect], ratios: Mapping[str, float]) -> Suspect:
    """Return one suspect in the place of products and attention that are slower alike."""
    sure = any(one.basis == "measured" for one in alike)
    each = " and ".join(f"{OF_TRACES[part].part} × {ratio:.2f}" for part, ratio in ratios.items())
    return Suspect(
        name="clocks",
        title="All kernels bound by the core are slower by about the same ratio, as at a lower clock",
        cost_s=sum(one.cost_s for one in alike),
        basis="measured" if sure else "within doubt",
        evidence=(f"the trace shows {each} of the predicted time",),
        change="compare clocks, temperature and power limit with those of a device that is not slow"
        " (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE)",
    )


def _compared(
    report: Report,
    measured: Mapping[str, float],
    predicted: Mapping[str, float],
    named: Mapping[str, Excess],
    seen: str,
) -> Found:
    """Return what exceeds its prediction, and sentences on what does not."""
    doubt = report.step_time_high_s / report.step_time_s - 1.0
    suspects, cleared = [], []
    for part, found_s in measured.items():
        if part not in named:
            continue
        ours_s, excess = predicted.get(part, 0.0), named[part]
        extra_s = found_s - ours_s
        beside = f"{show_seconds(found_s)} for {excess.part}, and {show_seconds(ours_s)} are predicted"
        if extra_s < LEAST_EXCESS * report.step_time_s:
            cleared.append(f"{seen} {beside}")
            continue
        basis: Basis = "within doubt" if extra_s < doubt * ours_s else "measured"
        unsure = ("the prediction of this part is not more certain than that",)
        suspects.append(
            Suspect(
                name=excess.name,
                title=excess.title,
                cost_s=extra_s,
                basis=basis,
                evidence=(f"{seen} {beside}",),
                against=(*excess.against, *(unsure if basis == "within doubt" else ())),
                change=excess.change,
            )
        )
    return suspects, cleared
