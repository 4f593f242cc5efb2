"""A report as plain data for JSON.

Later versions may add keys, but never rename keys. Numbers have nine digits.

Answers: on which keys and units can a program that reads reports rely?
Elsewhere: what the numbers mean (report/report.py, report/metrics.py, timeline/uncertainty.py).
Keys end in their units (`_s`, `_bytes`, `_flop`). `model_tflops_per_device` is a rate in TFLOP/s.
"""

from collections.abc import Iterable

from flopcast.economics.amount import Amount
from flopcast.economics.run import TrainingRun
from flopcast.economics.step import KWH_J, StepCost
from flopcast.render.checkpoint_text import checkpoint_as_json
from flopcast.render.loader_text import loader_as_json
from flopcast.render.outer_text import outer_as_json
from flopcast.render.plain_data import FORMAT_VERSION, fields_of, plain
from flopcast.report.memory_report import MemoryReport
from flopcast.report.report import Report
from flopcast.report.stragglers import Stragglers
from flopcast.report.training import DAY_S
from flopcast.spec.job import Job
from flopcast.spec.precision import product_engine
from flopcast.timeline.uncertainty import Sensitivity
from flopcast.units import nine_digits

OF_TIER = ("tier", "expected_bytes", "low_bytes", "high_bytes", "capacity_bytes", "verdict", "by_category")


def as_json(report: Report) -> dict[str, object]:
    """Return the report as JSON data, its public form.

    Returns
    -------
    dict
        It contains only text, numbers, booleans, lists and dicts in a fixed order, so the same job gives
        the same bytes. `factors` hold `d_log_step`, the share of the step that a factor scales; `breakdown`
        sums to `step_time_s`, up to the rounding; `clean_step_time_s` is the step without jitter.
    """
    job, metrics = report.job, report.metrics
    parameters, trained = job.model.parameters(), job.model.trained_parameters()
    return {
        "format_version": FORMAT_VERSION,
        "job": job_as_json(job),
        **fields_of(report, "step_time_s", "step_time_low_s", "step_time_high_s", "clean_step_time_s"),
        "batch_unit": job.batch_unit,
        "tokens_per_s": nine_digits(metrics.tokens_per_s),
        "tokens_per_s_per_device": nine_digits(metrics.device_tokens_per_s),
        "model_tflops_per_device": nine_digits(metrics.device_flop_per_s / 1e12),
        "mfu": nine_digits(metrics.mfu_ratio),
        "hfu": nine_digits(metrics.hfu_ratio),
        "mfu_peak": {"dtype": product_engine(job.plan.precision), "flop_per_s": metrics.peak_flop_per_s},
        "flop_convention": "full",
        "model_parameters": parameters,
        "active_parameters": job.model.active_parameters(),
        "trained_parameters": trained,
        "frozen_parameters": parameters - trained,
        **fields_of(metrics, "model_flop", "hardware_flop"),
        **fields_of(report, "breakdown"),
        "factors": factors_as_json(report.factors),
        "memory": memory_as_json(report.memory),
        **cost_as_json(report.cost),
        "power": None if report.watts is None else fields_of(report.watts),
        "run": None if report.run is None else run_as_json(report.run),
        "checkpoint": None if report.checkpoint is None else checkpoint_as_json(report.checkpoint),
        "loader": None if report.loader is None else loader_as_json(report.loader),
        "outer": None if report.outer is None else outer_as_json(report.outer, report.peers),
        "stragglers": None if report.stragglers is None else stragglers_as_json(report.stragglers),
        "assumptions": list(report.assumptions),
        "evidence": [
            {name: getattr(each, name) for name in ("curve", "source", "relative_error", "extrapolated")}
            for each in report.evidence
        ],
        "warnings": list(report.warnings),
    }


def stragglers_as_json(found: Stragglers) -> dict[str, object]:
    """Return the cost of slow parts: the step without them, the time that all of them add, and the time of
    each.
    """
    return {
        **fields_of(found, "without_s", "lost_s", "lost_fraction"),
        "parts": [
            {**fields_of(one.part, "kind", "index", "speed_fraction"), "alone_s": plain(one.alone_s)}
            for one in found.each
        ],
    }


def job_as_json(job: Job) -> dict[str, object]:
    """Return the job: names of its parts, and plan and batch field by field."""
    return {
        "model": job.model.name,
        "cluster": job.cluster.name,
        "devices": job.cluster.num_devices,
        "plan": job.plan.model_dump(mode="json"),
        "batch": job.batch.model_dump(mode="json"),
        "stack": job.stack.label,
        "site": job.site.name,
    }


def factors_as_json(factors: Iterable[Sensitivity], share: str = "d_log_step") -> list[dict[str, object]]:
    """Return the factors. `share` names the share of the step, or of another amount, that they scale."""
    return [
        {"name": one.name, "log_sigma": nine_digits(one.log_sigma_factor), share: nine_digits(one.share)}
        for one in factors
    ]


def memory_as_json(memory: MemoryReport) -> dict[str, object]:
    """Return the memory part of a report.

    Returns
    -------
    dict
        Sizes of the fullest stage, `by_category` at its fullest moment, and one entry a stage in
        `per_stage`, at that stage's own fullest moment, with the task that runs then (-1: none, at the
        update). One entry in `tiers` for each memory outside the devices that the plan uses, in bytes of a
        node or, for the file system, of the cluster. `verdict` is the worst of `device_verdict` and theirs.
    """
    moment = ("stage", "moment", "chunk", "micro_batch")
    sizes = ("allocated_bytes", "reserved_bytes", "device_used_bytes", "by_category")
    return {
        **fields_of(memory, "allocated_bytes", "resident_bytes", "reserved_bytes", "device_used_bytes"),
        "capacity_bytes": memory.capacity_bytes,
        **fields_of(memory, "low_bytes", "expected_bytes", "high_bytes", "verdict", "fits", "by_category"),
        "device_verdict": memory.device_verdict,
        "per_stage": [fields_of(stage, *moment, *sizes) for stage in memory.per_stage],
        "tiers": [fields_of(tier, *OF_TIER) for tier in memory.tiers],
    }


def cost_as_json(cost: StepCost) -> dict[str, object]:
    """Return the keys of a report about cost and energy.

    Returns
    -------
    dict
        Values are null if no price, or no board power, is known. The energy is that of the whole building,
        and the mean power is that of one device. `busy` contains the fractions of the step that a device
        spends on each kind of work. `price` states the price of a device, its source and its date.
    """
    joules, power = (
        (None, None) if cost.energy is None else (cost.energy.step_j, cost.energy.device_power_w)
    )
    return {
        "price": None if cost.price is None else cost.price.model_dump(mode="json", exclude={"source"}),
        **with_bounds("cost_usd_per_step", cost.step_usd),
        **with_bounds("cost_usd_per_1e12_tokens", cost.many_tokens_usd),
        **with_bounds("energy_j_per_step", joules),
        **with_bounds("energy_kwh_per_1e12_tokens", cost.many_tokens_kwh),
        **with_bounds("mean_power_w_per_device", power),
        "busy": None if cost.energy is None else plain(cost.energy.busy),
    }


def run_as_json(run: TrainingRun) -> dict[str, object]:
    """Return the totals of a run: tokens and steps, and days, goodput, dollars and kilowatt-hours with
    their bounds.

    Dollars are null without a price, and energy is null without a board power.
    """
    goodput, low, high = (nine_digits(share) for share in run.goodput)
    kwh = None if run.joules is None else run.joules * (1 / KWH_J)
    return {
        "tokens": sum(phase.phase_tokens for phase in run.phases),
        "steps": nine_digits(sum(phase.num_steps for phase in run.phases)),
        **with_bounds("days", run.wall_s * (1 / DAY_S)),
        **{"goodput": goodput, "goodput_low": low, "goodput_high": high},
        "interruptions": nine_digits(run.num_failures),
        **with_bounds("cost_usd", run.usd),
        **with_bounds("energy_kwh", kwh),
    }


def with_bounds(key: str, amount: Amount | None) -> dict[str, object]:
    """Return a key with its value and its bounds (`_low`, `_high`); None if the amount is unknown."""
    if amount is None:
        return {key: None, f"{key}_low": None, f"{key}_high": None}
    low, high = amount.bounds
    numbers = {key: amount.value, f"{key}_low": low, f"{key}_high": high}
    return {name: nine_digits(number) for name, number in numbers.items()}
