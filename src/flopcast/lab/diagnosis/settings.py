"""Settings of a job that make its step unnecessarily long.

Answers: which change of a setting would save time, and how much?
Elsewhere: the titles (suspects.yaml), the evidence in a log or a trace (timer_suspects.py,
trace_suspects.py), how a plan is chosen (search/default_plan.py).

Each setting is changed alone, and the changed job is predicted. A change is not a suspect if it breaks a
rule, if the job then no longer fits, or if the job's software has no switch for it (spec/switches.py).
The search for a better plan comes last. It varies every degree of the software, and keeps the batch, the
precision and the optimizer.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from flopcast.errors import InfeasibleError, SpecError
from flopcast.lab.diagnosis.excess import known_suspects
from flopcast.lab.diagnosis.job_edits import difference, with_plan, with_stack
from flopcast.lab.diagnosis.recompute_shown import with_recompute
from flopcast.lab.diagnosis.suspect import Predict, Suspect
from flopcast.library.curves import load_book
from flopcast.records import dataclass, replace
from flopcast.report.report import Report
from flopcast.report.versus import versus
from flopcast.search.default_plan import choose
from flopcast.spec.job import Job
from flopcast.spec.precision import SIXTEEN_BITS
from flopcast.units import show_memory, show_seconds

LEAST_GAIN, BETTER_GAIN = 0.01, 0.03  # of the step: for a setting, for another plan
UNSETTLED_GAIN = 0.05  # of the step, that is worth advice although its interval contains zero
OF_TRAINING = ("global_batch", "precision", "optimizer")  # what another plan must not change


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A setting: its fault, its switch, and the jobs with other values of the setting, the best first.

    `switch` is a field of `Switches`. `changed` gives no job if the setting is right or has no effect. A
    better plan also changes settings with `is_of_plan`.
    """

    name: str
    title: str
    switch: str
    is_of_plan: bool = False
    changed: Callable[[Job], Sequence[Job]]


def _of_stack(wrong: Callable[[Job], bool], part: str, value: object) -> Callable[[Job], Sequence[Job]]:
    """Return the only change of a setting if it is `wrong`: a value, or fields of a part, of the stack."""

    def changed(job: Job) -> Sequence[Job]:
        if not wrong(job):
            return ()
        new = getattr(job.stack, part).model_copy(update=value) if isinstance(value, dict) else value
        return (with_stack(job, **{part: new}),)

    return changed


def _gradients_wait(job: Job) -> bool:
    known, plan = job.stack.gradients, job.plan
    alone = job.stack.switches.overlaps_alone and (plan.zero == 0 or plan.pipeline_parallel > 1)
    return plan.data_parallel > 1 and not known.overlaps(plan.zero) and not alone


def _transfers_wait(job: Job) -> bool:
    staged = job.plan.pipeline_parallel > 1 and job.plan.virtual_stages > 1
    return staged and job.stack.pipeline.style(interleaved=True) != "overlapped"


def _gathers_wait(job: Job) -> bool:
    sharded = job.plan.data_parallel > 1 and job.plan.zero in (1, 2)
    return sharded and not job.stack.gradients.overlap_gather


def _exchanges_wait(job: Job) -> bool:
    return job.plan.expert_parallel > 1 and not job.stack.experts.overlaps_exchanges(job.plan.recompute)


def _attention_is_old(job: Job) -> bool:
    return job.stack.attention_kernel == "flash" and job.stack.attention_generation != "newest"


def _less_recompute(job: Job) -> Sequence[Job]:
    less = {"full": ("none", "selective"), "selective": ("none",)}.get(job.plan.recompute, ())
    return [with_recompute(job, mode) for mode in less]


def _larger_micro_batch(job: Job) -> Sequence[Job]:
    whole, now = job.plan.global_batch // job.plan.data_parallel, job.plan.micro_batch
    return [with_plan(job, micro_batch=size) for size in (4 * now, 2 * now) if whole % size == 0]


def _published_precision(job: Job) -> Sequence[Job]:
    published = job.model.trained_precision
    return [with_plan(job, precision=published)] if published and job.plan.precision in SIXTEEN_BITS else ()


def _fewer_placements(job: Job) -> Sequence[Job]:
    placed = job.plan.offload
    fewer = [(), *(tuple(other for other in placed if other is not one) for one in placed)]
    return [with_plan(job, offload=rest) for rest in dict.fromkeys(fewer)] if placed else ()


CHANGES: Mapping[str, Callable[[Job], Sequence[Job]]] = {  # by the name of the setting
    "gradients_not_overlapped": _of_stack(_gradients_wait, "gradients", {"overlap": True}),
    "parameters_not_overlapped": _of_stack(_gathers_wait, "gradients", {"overlap_gather": True}),
    "tensor_messages_not_overlapped": _of_stack(
        lambda job: job.plan.tensor_parallel > 1 and job.stack.tensor_overlap == "none",
        "tensor_overlap",
        "chunks",
    ),
    "transfers_not_overlapped": _of_stack(_transfers_wait, "pipeline", {"transfers": "overlapped"}),
    "exchanges_not_overlapped": _of_stack(
        _exchanges_wait, "experts", {"exchange_overlap": "other_micro_batch"}
    ),
    "dispatcher_slow": _of_stack(
        lambda job: job.plan.expert_parallel > 1 and job.stack.experts.sends_every_row,
        "experts",
        {"dispatcher": "deepep"},
    ),
    "recompute_not_needed": _less_recompute,
    "micro_batch_small": _larger_micro_batch,
    "precision_wider_than_published": _published_precision,
    "offload_not_needed": _fewer_placements,
    "copies_not_pinned": _of_stack(
        lambda job: bool(job.plan.offload) and job.stack.offload.gradient_copies != "pinned",
        "offload",
        {"gradient_copies": "pinned"},
    ),
    "attention_not_fused": _of_stack(
        lambda job: job.stack.attention_kernel != "flash", "attention_kernel", "flash"
    ),
    "attention_kernel_old": _of_stack(_attention_is_old, "attention_generation", "newest"),
    "launches": _of_stack(
        lambda job: "iteration" not in job.stack.host.graphs, "host", {"graphs": ("iteration",)}
    ),
}
SETTINGS = tuple(
    Setting(name=name, changed=CHANGES[name], **row) for name, row in known_suspects()["settings"].items()
)


def slow_settings(
    report: Report, predict: Predict, negligible: list[Suspect] | None = None
) -> Iterator[Suspect]:
    """Yield the settings whose change saves at least LEAST_GAIN of the step without breaking a limit.

    All other settings that can be changed are added to `negligible`.
    """
    known, least_s = report.job.stack.switches, LEAST_GAIN * report.step_time_s
    for setting in (one for one in SETTINGS if known.can(one.switch)):
        little: Suspect | None = None
        for job in setting.changed(report.job):
            suspect = _judged(setting, report, job, predict)
            if suspect is not None and (suspect.cost_s or 0.0) >= least_s:
                yield suspect
                break
            little = little or suspect
        else:
            if little is not None and negligible is not None:
                negligible.append(little)


def little_saved(suspect: Suspect) -> str:
    """Return a sentence, without its full stop, about the effect of changing a setting."""
    saved_s = suspect.cost_s or 0.0
    if saved_s < 0.0:
        return f"{suspect.edits} would lengthen the step by {show_seconds(-saved_s)}"
    return f"{suspect.edits} would save {show_seconds(saved_s)}"


def best_changes(report: Report, predict: Predict) -> tuple[Suspect, ...]:
    """Return the settings whose change saves time, ordered by seconds and certainty.

    A saving whose interval includes a loss is left out if the expected saving is below UNSETTLED_GAIN of
    the step.
    """
    least_s = UNSETTLED_GAIN * report.step_time_s
    found = (
        one
        for one in slow_settings(report, predict)
        if one.basis != "unsettled" or (one.cost_s or 0.0) >= least_s
    )
    return tuple(sorted(found, key=lambda one: -one.rank))


def better_plan(report: Report, predict: Predict, settings: Sequence[Suspect]) -> Iterator[Suspect]:
    """Yield the suspect that another plan is faster than any single change of the plan's settings.

    Its seconds are those that it saves beyond the best of these changes, at least BETTER_GAIN of the step.
    """
    job = report.job
    fixed = {name: getattr(job.plan, name) for name in (*OF_TRAINING, *job.stack.switches.fixed)}
    try:
        chosen = choose(job, fixed, load_book(job.cluster))
        faster = predict(job.model_copy(update={"plan": chosen.plan}))
    except (SpecError, InfeasibleError):
        return
    suspect = _faster(report, faster, BETTER_GAIN)
    known = {setting.name for setting in SETTINGS if setting.is_of_plan}
    saved_s = max((one.cost_s or 0.0 for one in settings if one.name in known), default=0.0)
    gain_s = 0.0 if suspect is None else suspect.cost_s or 0.0
    if suspect is None or gain_s < saved_s + BETTER_GAIN * report.step_time_s:
        return
    yield replace(
        suspect,
        name="plan",
        title="Another plan is faster" + (" still" if saved_s else ""),
        cost_s=gain_s - saved_s,
        low_s=None,
        high_s=None,
        evidence=(
            *_fall(report, faster, f"the plan {chosen.plan.short()}"),
            *(
                [f"{show_seconds(gain_s)} in total; a setting above accounts for {show_seconds(saved_s)}"]
                if saved_s
                else []
            ),
        ),
        change=f'--plan "{chosen.plan.short()}"; `flopcast search` lists others',
    )


def _judged(setting: Setting, report: Report, job: Job, predict: Predict) -> Suspect | None:
    """Return a setting as a suspect; None if its change breaks a rule or the changed job does not fit."""
    try:
        faster = predict(job)
    except SpecError:
        return None
    suspect = _faster(report, faster, -math.inf)
    if suspect is None:
        return None
    edits, switch = difference(report.job, job), job.stack.switches.text(setting.switch)
    return replace(
        suspect,
        name=setting.name,
        title=setting.title,
        evidence=_fall(report, faster, edits),
        change=f"{switch}; in a job file: {edits}" if switch else f"in a job file: {edits}",
        edits=edits,
        plan=job.plan.short() if job.plan != report.job.plan else "",
    )


def _faster(report: Report, faster: Report, least_gain_fraction: float) -> Suspect | None:
    """Return a faster job's saving as an unnamed suspect; None if it is too small or nothing fits."""
    compared = versus(report, faster)
    saved_s = report.step_time_s * (1.0 - compared.time_ratio)
    if saved_s < least_gain_fraction * report.step_time_s or faster.memory.verdict == "does not fit":
        return None
    against = []
    if faster.memory.verdict == "tight":
        against.append(f"memory is then tight: {show_memory(faster.memory.expected_bytes)} expected")
    if not compared.sure:
        against.append("the interval of the saving contains zero")
    return Suspect(
        name="",
        title="",
        cost_s=saved_s,
        low_s=report.step_time_s * (1.0 - compared.high_ratio),
        high_s=report.step_time_s * (1.0 - compared.low_ratio),
        basis="predicted" if compared.sure else "unsettled",
        evidence=(),
        against=tuple(against),
        change="",
    )


def _fall(report: Report, faster: Report, change: str) -> tuple[str]:
    before, after = (show_seconds(one.step_time_s, like=report.step_time_s) for one in (report, faster))
    return (f"with {change}, the predicted step falls from {before} to {after}",)
