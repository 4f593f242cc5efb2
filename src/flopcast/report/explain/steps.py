"""Explanation of the step: its components, operators, factors, and MFU.

Answers: which operators does a component consist of, how often do they run, and how long does each take?
Elsewhere: one kernel (kernels.py), one message (messages.py), memory (memory.py).

Components and operators are those of the breakdown of the busiest stage over a whole step. Factors are
explained along the critical path, like sensitivities.
"""

from collections import defaultdict
from collections.abc import Mapping
from math import prod

from flopcast.cost.factors import SHARED_DERATE
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.records import replace
from flopcast.report.explain.explanation import Explanation, Input
from flopcast.report.explain.graph_kernels import graph_inputs
from flopcast.report.explain.kernels import (
    element_at,
    kernel_formula,
    kernel_inputs,
    lasting,
    rate,
    source_of,
)
from flopcast.report.explain.loader import explain_loader
from flopcast.report.explain.messages import formula_of, message_inputs
from flopcast.report.explain.outer import explain_outer
from flopcast.report.explain.outside import outside_inputs
from flopcast.report.labels import component_label
from flopcast.report.loader import LOADER
from flopcast.report.outer_round import OUTER_ROUND
from flopcast.report.report import BUBBLE, JITTER, LAUNCH, Report, whole_step
from flopcast.spec.factor_kinds import in_words, kind_of
from flopcast.spec.precision import product_engine
from flopcast.units import show_seconds

LAUNCHES = "launches"
ORDINARY_JITTER = "default: median step divided by fastest step in functional tests of Megatron-LM"
HOST_KINDS = {
    "synchronise": "host.synchronise_s",
    "step": "optimizer.step_host_s",
    "transfer": "pipeline.host_s",
    "forward_layer": "offload.forward_layer_s",
    "backward_layer": "offload.backward_layer_s",
    "sharded_operator": "host.sharded_operator_s",
}


def explain_step(report: Report) -> Explanation:
    """Return the step as the sum of its components."""
    parts = tuple(
        Explanation(
            name=name,
            amount=seconds,
            formula="",
            note=f"{_share(seconds, report)}: {component_label(name)}",
        )
        for name, seconds in report.breakdown.items()
    )
    low, high = (show_seconds(bound, like=report.step_time_s) for bound in report.bounds_s)
    interval = Input(name="90 %", text=f"{low} to {high}", source="to explain a factor, give its name")
    return Explanation(
        name="step",
        amount=report.step_time_s,
        formula="time of all tasks and waits of the busiest stage",
        inputs=(interval,),
        parts=parts,
    )


def _share(seconds: float | int, report: Report) -> str:
    return f"{seconds / report.step_time_s:.1%} of the step"


def explain_mfu(report: Report) -> Explanation:
    """Return the explanation of MFU: model FLOP divided by the FLOP of all devices at their peak rate.

    The peak is the dense rate of the engine that the plan's precision uses, as the data sheet states it.
    """
    metrics, job = report.metrics, report.job
    device = job.cluster.node.device
    engine = product_engine(job.plan.precision)
    inputs = (
        rate("model FLOP", metrics.model_flop, "FLOP", "masked attention counted in full"),
        lasting("step", report.step_time_s),
        Input(name="devices", text=str(job.cluster.num_devices), number=job.cluster.num_devices),
        rate(f"peak, {engine}", metrics.peak_flop_per_s, "FLOP/s", source_of(device.source, "peak")),
    )
    formula = "model FLOP / (step × devices × peak)"
    return Explanation(name="mfu", amount=metrics.mfu_ratio, unit="", formula=formula, inputs=inputs)


def explain_component(report: Report, name: str) -> Explanation:
    """Return the explanation of a line of the breakdown, with its operators, the longest first.

    The seconds are those by which operators lengthen the busiest stage, so hidden operators count as 0.
    Bubble and jitter have no operators, and have their own explanations.
    """
    if name == JITTER:
        return _jitter(report)
    if name == BUBBLE:
        return _bubble(report)
    if name == LOADER and report.loader is not None:
        wait_s = report.loader.wait_s
        hidden = "hidden: the devices never wait for samples"
        return explain_loader(report.loader, _share(wait_s, report) if wait_s > 0 else hidden)
    if name == OUTER_ROUND and report.outer is not None:
        note = _share(report.breakdown[name], report)
        return explain_outer(report.outer, report.job, note)
    seconds: dict[str, float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        if (share.item.component if share.item else LAUNCH) == name:
            seconds[share.item.name if share.item else LAUNCHES] += share.path_s
    parts = tuple(
        Explanation(name=each, amount=amount, formula="")
        for each, amount in sorted(seconds.items(), key=lambda pair: -pair[1])
    )
    return Explanation(
        name=name,
        amount=report.breakdown[name],
        formula="sum of the exposed times of its operators on the busiest stage",
        inputs=_host(report.priced) if name == LAUNCH else (),
        parts=parts,
        note=_share(report.breakdown[name], report),
    )


def _host(priced: Priced) -> tuple[Input, ...]:
    stack, host = priced.programs.stack, priced.cluster.node.host
    source = source_of(stack.source, "host")
    return (
        Input(name="a forward kernel", text=show_seconds(stack.host.forward_item_s), source=source),
        Input(name="a backward kernel", text=show_seconds(stack.host.backward_item_s), source=source),
        Input(
            name="speed of the host",
            text=f"{host.speed_ratio:.4g} of the reference",
            source=source_of(host.source, "speed"),
        ),
    )


def _jitter(report: Report) -> Explanation:
    """Return what shared machines and unexplained deviations add to a clean step."""
    whole = whole_step(report.job, report.priced, report.timeline)
    ratio = prod(factor.ratio for factor in whole.values())
    known = source_of(report.job.cluster.jitter.source, "ratio") or ORDINARY_JITTER
    clean_s = report.timeline.step_time_s
    inputs = [lasting("clean step", clean_s)]
    inputs += [
        Input(
            name=name.partition("[")[0],
            text=f"× {factor.ratio:.4g} ± {factor.log_sigma_factor:.1%}",
            source=known if name == JITTER else "differences between runs that no other factor explains",
            number=factor.ratio,
        )
        for name, factor in whole.items()
    ]
    amount = clean_s * (ratio - 1.0)
    formula = "step without these factors × (product of the factors that scale the whole step − 1)"
    return Explanation(name=JITTER, amount=amount, formula=formula, inputs=tuple(inputs))


def _bubble(report: Report) -> Explanation:
    """Return how long the busiest stage waits for the others."""
    plan = report.job.plan
    stages, chunks, micro = plan.pipeline_parallel, plan.virtual_stages, plan.num_micro_batches
    ideal = (stages - 1) / (chunks * micro)
    waits = report.timeline.bottleneck_waits_s
    inputs = (
        Input(name="schedule", text=str(plan.pipeline_schedule)),
        Input(name="stages p, chunks v", text=f"{stages}, {chunks}"),
        Input(name="micro-batches m", text=str(micro)),
        Input(
            name="(p − 1) / (v m)",
            text=f"{ideal:.4g} of the ideal compute time",
            source="1F1B of equal stages: arXiv:2104.04473, section 2.2",
        ),
    )
    return Explanation(
        name=BUBBLE,
        amount=waits,
        formula="step − time of the tasks of the busiest stage, simulated exactly (timeline/pipeline.py)",
        inputs=inputs,
        note=_share(waits, report),
    )


def explain_operator(report: Report, name: str, book: CurveBook, sources: Mapping[str, str]) -> Explanation:
    """Return the explanation of an operator: its time per step of the busiest stage, and per execution.

    The time is 0 s if other operators hide it. Items with the same name, as in several kinds of blocks, are
    separate parts.
    """
    path_s: dict[Item | None, float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        path_s[share.item] += share.path_s
    items = tuple(dict.fromkeys(item for item in report.priced.programs.items() if item.name == name))
    taken = tuple(item for item in items if path_s[item]) or items[:1]
    parts = tuple(_execution(report, item, path_s[item], book, sources) for item in taken)
    total = sum(path_s[item] for item in taken)
    if len(parts) == 1:
        return parts[0]
    formula = "sum over its passes, and over the kinds of blocks that contain it"
    return Explanation(name=name, amount=total, formula=formula, parts=parts, note=_share(total, report))


def _execution(
    report: Report, item: Item, path_s: float, book: CurveBook, sources: Mapping[str, str]
) -> Explanation:
    """Explain one item of the busiest stage: the number of executions times the seconds of one.

    If micro-batches differ, the explanation is that of the first kind.
    """
    priced, row = report.priced, 0
    column = _stage_class(report) if item.phase == "step" else 0
    one_s = element_at(priced.of(item).alone_s, row, column)
    inputs: tuple[Input, ...]
    if isinstance(item.work, AbstractOperator):
        formula, inputs = _of_kernel(item, priced, book, row, column)
    elif isinstance(item.work, AbstractMessage):
        inputs = message_inputs(item.work, priced, book, row, column)
        formula = formula_of(item.work, priced, row)
    elif isinstance(item.work, TierCopy | HostUpdate):
        formula, inputs = outside_inputs(item.work, priced, column)
    else:
        formula = "time that the stack states / speed of the host × factors"
        field = HOST_KINDS[item.work.kind]
        inputs = (
            Input(
                name=field,
                text="stated by the stack",
                source=source_of(priced.programs.stack.source, "host"),
            ),
        )
    times = path_s / one_s if one_s else 0.0
    ran = lasting("one", one_s)
    return Explanation(
        name=item.name,
        amount=path_s,
        formula=formula,
        inputs=(*inputs, *_factors(report, item, row, sources), ran),
        note=f"{times:.6g} × {show_seconds(one_s)}, {item.phase}, {_share(path_s, report)}",
    )


def _of_kernel(
    item: Item, priced: Priced, book: CurveBook, row: int, column: int
) -> tuple[str, tuple[Input, ...]]:
    """Return the formula of a kernel, and what enters it."""
    of_graph = graph_inputs(item, priced, book, row, column)
    if of_graph is not None:
        return of_graph
    inputs = kernel_inputs(item, priced, book, row, column)
    return kernel_formula(inputs), inputs


def _stage_class(report: Report) -> int:
    return int(report.priced.programs.stages.of(0).stage_class[report.timeline.bottleneck])


def _factors(report: Report, item: Item, row: int, sources: Mapping[str, str]) -> tuple[Input, ...]:
    priced = report.priced
    return tuple(
        Input(
            name="factor",
            text=f"{in_words(name)} × {priced.factors[name].ratio:.4g}"
            f" ± {priced.factors[name].log_sigma_factor:.1%}",
            source=source_of_factor(report, name, sources),
            number=priced.factors[name].ratio,
        )
        for name in priced.of(item).names(row)
    )


def source_of_factor(report: Report, name: str, sources: Mapping[str, str]) -> str:
    """Return the source of a factor (site, whole runs, stack or cluster), or its meaning.

    Parameters
    ----------
    report : Report
    name : str
        Name of the factor, with its owner in brackets if it has one.
    sources : mapping of str
        Sources of the constants that were fitted on whole runs, by factor.
    """
    job, kind = report.job, name.partition("[")[0]
    if any(each.name == name for each in job.site.factors):
        return "the job's site"
    if name in sources:
        return sources[name]
    if kind == SHARED_DERATE:
        shared = f"; shared with other stacks: {sources[kind]}" if kind in sources else ""
        own = source_of(job.stack.source, "derate") or "no measurement: 1"
        return f"the stack: {own}{shared}"
    if kind == JITTER:
        return source_of(job.cluster.jitter.source, "ratio") or ORDINARY_JITTER
    return kind_of(name).rests_on


def explain_factor(report: Report, name: str, sources: Mapping[str, str]) -> Explanation:
    """Return the explanation of a factor: level, uncertainty and fraction of the critical path it scales.

    The slope d log(step) / d log(factor) is the share of the critical path that the factor scales. A factor
    that affects only the ratio of two plans does not change a step, and its explanation states this.
    """
    (known,) = [each for each in report.factors if each.name == name]
    sigma = Input(name="sigma", text=f"{known.log_sigma_factor:.1%}", number=known.log_sigma_factor)
    if not known.scales_step:
        source = source_of_factor(report, name, sources)
        return Explanation(
            name=name,
            amount=0.0,
            formula="0, because this is the uncertainty of the ratio of two plans, not of a step",
            inputs=(replace(sigma, source=source),),
            note=kind_of(name).label,
        )
    whole = whole_step(report.job, report.priced, report.timeline)
    ratio = {**report.priced.factors, **report.added_factors, **whole}[name].ratio
    scaled: dict[str, float] = defaultdict(float)
    for share in report.timeline.shares:
        if name in share.factors(report.priced) or name in whole:
            scaled[share.item.component if share.item is not None else LAUNCH] += (
                share.path_s if name in whole else share.slope_s
            )
    return Explanation(
        name=name,
        amount=known.share * report.clean_step_time_s,
        formula="the fraction of the critical path that this factor scales",
        inputs=(
            Input(
                name="level",
                text=f"× {ratio:.4g}",
                source=source_of_factor(report, name, sources),
                number=ratio,
            ),
            sigma,
            Input(name="d log(step) / d log", text=f"{known.share:.4g}", number=known.share),
        ),
        parts=tuple(
            Explanation(name=each, amount=amount, formula="")
            for each, amount in sorted(scaled.items(), key=lambda pair: -pair[1])
        ),
        note=kind_of(name).label,
    )
