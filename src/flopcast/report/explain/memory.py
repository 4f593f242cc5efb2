"""Explanation of memory: the categories of the fullest stage, and their parts.

Answers: which bytes does a category contain, and from which numbers are they computed?
Elsewhere: the categories themselves (memory/categories.py), whose docstrings the explanation shows.
"""

from flopcast.memory import categories
from flopcast.memory.outside import placements_of
from flopcast.memory.tiers import TierMemory
from flopcast.report.explain.explanation import Explanation, Input
from flopcast.report.explain.kernels import element_at
from flopcast.report.report import Report
from flopcast.spec.offload import offload_word
from flopcast.units import show_memory

KINDS = (
    categories.STANDING,
    categories.IN_FLIGHT,
    categories.WAITING,
    categories.AT_WORK,
    categories.UPDATE,
)
PER_PARAMETER = ("parameters", "gradients", "optimizer_states", "narrow_weights", "main_gradients")


def explain_memory(report: Report) -> Explanation:
    """Return the allocated memory of the fullest stage by category, and the memory in addition to it.

    The amount is the memory that the framework has allocated at the peak. The inputs list further memory
    (fragments of the allocator, the context of the driver, buffers of communicators) and the capacity.
    """
    memory = report.memory
    parts = tuple(
        Explanation(name=f"memory.{name}", amount=size, unit="B", formula="")
        for name, size in sorted(memory.by_category.items(), key=lambda pair: -pair[1])
    )
    stage = report.memory.per_stage[_fullest(report)]
    software = report.job.stack.memory
    cached = f"allocated + {software.fragmentation_fraction:.0%} that the allocator caches"
    return Explanation(
        name="memory",
        amount=memory.allocated_bytes,
        unit="B",
        formula="allocated memory: sum of the categories at the peak",
        inputs=(
            Input(name="stage", text=f"{stage.stage}, in its {stage.moment} pass"),
            _size("reserved", memory.reserved_bytes, cached),
            _size(
                "in use on the device",
                memory.device_used_bytes,
                "reserved + driver context + communication buffers",
            ),
            _size(
                "expected need",
                memory.expected_bytes,
                f"90 %: {show_memory(memory.low_bytes)} to {show_memory(memory.high_bytes)}",
            ),
            _size("capacity", memory.capacity_bytes, report.job.cluster.node.device.name),
            *(_size(tier.label, tier.expected_bytes, f"memory.{tier.tier}") for tier in memory.tiers),
        ),
        parts=parts,
    )


def explain_tier(report: Report, tier: TierMemory) -> Explanation:
    """Return the bytes that the plan places in a memory outside the devices, by category, and its capacity.

    The sum is over all ranks of the tier's owner: a node for the host and its drives, the cluster for the
    file system.
    """
    parts = tuple(
        Explanation(name=f"memory.{tier.tier}.{name}", amount=size, unit="B", formula="")
        for name, size in sorted(tier.by_category.items(), key=lambda pair: -pair[1])
    )
    interval = f"90 %: {show_memory(tier.low_bytes)} to {show_memory(tier.high_bytes)}"
    placements = tuple(dict.fromkeys(placements_of(report.priced.programs)))
    return Explanation(
        name=f"memory.{tier.tier}",
        amount=tier.expected_bytes,
        unit="B",
        formula=f"sum of the states that the plan places in the {tier.label}, over all ranks of"
        f" {tier.owner}",
        inputs=(
            Input(name="placements", text=offload_word(placements)),
            Input(name="verdict", text=tier.verdict, source=interval),
            _size("capacity", tier.capacity_bytes, f"of {tier.owner}"),
        ),
        parts=parts,
    )


def _size(name: str, size_bytes: float, source: str) -> Input:
    return Input(name=name, text=show_memory(size_bytes), source=source, number=size_bytes)


def explain_category(report: Report, name: str) -> Explanation:
    """Return the explanation of one category, with the descriptions of the functions that compute it.

    The formula is the first paragraph of the docstring of each function in memory/categories.py, so that
    explanation and computation cannot differ.
    """
    functions = [kind[name] for kind in KINDS if name in kind]
    size = report.memory.by_category[name]
    words = [" ".join((function.__doc__ or "").partition("\n\n")[0].split()) for function in functions]
    words = [text.removeprefix("Return").strip(" .") for text in words]
    return Explanation(
        name=f"memory.{name}",
        amount=size,
        unit="B",
        formula=" + ".join(dict.fromkeys(words)),
        inputs=_inputs(report, name, size),
    )


def _inputs(report: Report, name: str, size: float | int) -> tuple[Input, ...]:
    """Return numbers that a category follows from, if they are few."""
    programs, at_stage = report.priced.programs, _stage_class(report)
    if name in PER_PARAMETER:
        held = element_at(programs.parameters, 0, at_stage)
        plan = report.job.plan
        return (
            Input(name="parameters of a rank", text=f"{held:,.0f}", number=held),
            Input(name="bytes of each", text=f"{size / held:.4g}", number=size / held),
            Input(name="zero, replicas", text=f"{plan.zero}, {plan.data_parallel * plan.context_parallel}"),
        )
    if name != "activations":
        return ()
    counts = programs.stages.stage_counts
    layers = [
        (layer.kind, float(counts[0, at_stage, part]), element_at(layer.kept_bytes, 0, at_stage))
        for part, layer in enumerate(programs.layers)
    ]
    each = sum(count * kept for _, count, kept in layers)
    return (
        *(
            Input(name=kind, text=f"{count:g} × {show_memory(kept)} a micro-batch")
            for kind, count, kept in layers
            if count and kept
        ),
        Input(name="micro-batches kept", text=f"{size / each:.4g}" if each else "0"),
    )


def _fullest(report: Report) -> int:
    stages = report.memory.per_stage
    return max(range(len(stages)), key=lambda stage: stages[stage].allocated_bytes)


def _stage_class(report: Report) -> int:
    return int(report.priced.programs.stages.of(0).stage_class[_fullest(report)])
