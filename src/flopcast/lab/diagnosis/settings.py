"""Settings of a job that make its step unnecessarily long.

Answers: which change of a setting would save time, and how much?
Elsewhere: the titles (suspects.yaml), another plan (better_plan.py), the evidence in a log or a trace
(timer_suspects.py, trace_suspects.py).

Each setting is changed alone, and the changed job is predicted. A change is not a suspect if it breaks a
rule, if the job then no longer fits, or if the job's software has no switch for it (spec/switches.py).
A change saves at most the seconds of the critical path that it can shorten, since the rest of this path
stays. If these seconds are too few for advice, the changed job is not predicted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from flopcast.errors import SpecError
from flopcast.lab.diagnosis.excess import known_suspects
from flopcast.lab.diagnosis.job_edits import difference, with_recompute
from flopcast.lab.diagnosis.suspect import CERTAINTY, Predict, Suspect
from flopcast.layers.experts import Experts
from flopcast.operators.item import Item
from flopcast.prediction import programs_of
from flopcast.records import Record, replace
from flopcast.report.memory_report import memory_report
from flopcast.report.report import LAUNCH, Report
from flopcast.spec.job import Job
from flopcast.spec.precision import SIXTEEN_BITS
from flopcast.timeline.uncertainty import holds_one
from flopcast.units import show_seconds

LEAST_GAIN = 0.01  # of the step
BEFORE_EXPERTS = ("attention", "router")  # parts of a layer with tensors of fixed sizes
UNSETTLED_GAIN = 0.05  # of the step, that is worth advice although its interval contains zero


class Setting(Record):
    """A setting: its fault, its switch, and the jobs with other values of the setting, the best first.

    `switch` is a field of `Switches`. `changed` gives no job if the setting is right or has no effect. A
    better plan also changes settings with `is_of_plan`. `shortens` are the components and phases of the
    step that the change can shorten; if there are none, it can shorten the whole step.
    """

    name: str
    title: str
    switch: str
    is_of_plan: bool = False
    shortens: Sequence[str] = ()
    changed: Callable[[Job], Sequence[Job]]

    def most_s(self, report: Report) -> float:
        """Return the most seconds that the change can save: those on the critical path that it shortens."""
        if not self.shortens:
            return report.step_time_s
        path_s = sum(share.path_s for share in report.timeline.shares if self._is_shortened(share.item))
        return report.step_time_s * path_s / report.timeline.step_time_s

    def _is_shortened(self, item: Item | None) -> bool:
        """Return whether the change can shorten an item or, without an item, the launches of the host."""
        return any(name in self.shortens for name in ((item.component, item.phase) if item else (LAUNCH,)))


def _of_stack(wrong: Callable[[Job], bool], part: str, value: object) -> Callable[[Job], Sequence[Job]]:
    """Return the only change of a setting if it is `wrong`: a value, or fields of a part, of the stack."""

    def changed(job: Job) -> Sequence[Job]:
        if not wrong(job):
            return ()
        new = getattr(job.stack, part).model_copy(update=value) if isinstance(value, dict) else value
        return (job.with_part("stack", **{part: new}),)

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


def _varies(job: Job) -> bool:
    """Return whether experts have inputs of varying sizes, and the software can graph what is before them.

    Then no graph of the whole step exists (docs/training/cuda-graphs.md of Megatron-Bridge; pull request
    4247 of Megatron-LM), unless the device reads the sizes itself, as the stack's graphs then show.
    """
    experts = (block.feed_forward for block in job.model.blocks if isinstance(block.feed_forward, Experts))
    return bool(job.stack.switches.graphs_of_experts) and any(not one.pads_to_capacity for one in experts)


def _launches_wait(job: Job) -> bool:
    return "iteration" not in job.stack.host.graphs and not _varies(job)


def _launches_before_experts_wait(job: Job) -> bool:
    graphed = set(job.stack.host.graphs)
    return "iteration" not in graphed and not graphed >= {*BEFORE_EXPERTS} and _varies(job)


def _less_recompute(job: Job) -> Sequence[Job]:
    less = {"full": ("none", "selective"), "selective": ("none",)}.get(job.plan.recompute, ())
    return [with_recompute(job, mode) for mode in less]


def _larger_micro_batch(job: Job) -> Sequence[Job]:
    whole, now = job.plan.global_batch // job.plan.data_parallel, job.plan.micro_batch
    return [job.with_part("plan", micro_batch=size) for size in (4 * now, 2 * now) if whole % size == 0]


def _published_precision(job: Job) -> Sequence[Job]:
    published = job.model.trained_precision
    lower = published and job.plan.precision in SIXTEEN_BITS
    return [job.with_part("plan", precision=published)] if lower else ()


def _fewer_placements(job: Job) -> Sequence[Job]:
    placed = job.plan.offload
    fewer = [(), *(tuple(other for other in placed if other is not one) for one in placed)]
    return [job.with_part("plan", offload=rest) for rest in dict.fromkeys(fewer)] if placed else ()


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
    "launches": _of_stack(_launches_wait, "host", {"graphs": ("iteration",)}),
    "launches_of_experts": _of_stack(_launches_before_experts_wait, "host", {"graphs": BEFORE_EXPERTS}),
}
SETTINGS = tuple(
    Setting(name=name, changed=CHANGES[name], **row) for name, row in known_suspects()["settings"].items()
)
OF_PLAN = frozenset(setting.name for setting in SETTINGS if setting.is_of_plan)


def slow_settings(
    report: Report, predict: Predict, negligible: list[Suspect] | None = None
) -> Iterator[Suspect]:
    """Yield the settings whose change saves at least LEAST_GAIN of the step without breaking a limit.

    All other settings that can be changed are added to `negligible`.
    """
    for setting in _switchable(report.job):
        found = list(_until_worth(setting, report, predict))
        if found and _gain(found[-1], report) >= LEAST_GAIN:
            yield found[-1]
        elif found and negligible is not None:
            negligible.append(found[0])


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
    least_s = LEAST_GAIN * report.step_time_s
    settings = [one for one in _switchable(report.job) if one.most_s(report) >= least_s]
    found = filter(None, (_advised(setting, report, predict) for setting in settings))
    return tuple(sorted(found, key=lambda one: -one.rank))


def best_change(report: Report, predict: Predict) -> Suspect | None:
    """Return the first of `best_changes`, without predicting changes that cannot save as much as it."""
    best: Suspect | None = None
    limits = [(setting.most_s(report), setting) for setting in _switchable(report.job)]
    for most_s, setting in sorted(limits, key=lambda limit: -limit[0]):
        least_s = LEAST_GAIN * report.step_time_s if best is None else best.rank / CERTAINTY["predicted"]
        if most_s < least_s:
            break
        found = _advised(setting, report, predict)
        if found is not None and (best is None or found.rank > best.rank):
            best = found
    return best


def _switchable(job: Job) -> list[Setting]:
    """Return the settings that the job's software can change."""
    return [setting for setting in SETTINGS if job.stack.switches.can(setting.switch)]


def _advised(setting: Setting, report: Report, predict: Predict) -> Suspect | None:
    """Return a setting whose change is worth advice, as `best_changes` describes; None if it is not."""
    for one in _until_worth(setting, report, predict):
        gain = _gain(one, report)
        if gain >= LEAST_GAIN:
            return one if one.basis != "unsettled" or gain >= UNSETTLED_GAIN else None
    return None


def _gain(suspect: Suspect, report: Report) -> float:
    """Return the share of the step that the change of a setting saves."""
    return (suspect.cost_s or 0.0) / report.step_time_s


def _until_worth(setting: Setting, report: Report, predict: Predict) -> Iterator[Suspect]:
    """Yield a setting with each of its changes that fits, up to the first that saves LEAST_GAIN."""
    for job in setting.changed(report.job):
        suspect = _judged(setting, report, job, predict)
        if suspect is not None:
            yield suspect
            if _gain(suspect, report) >= LEAST_GAIN:
                return


def _judged(setting: Setting, report: Report, job: Job, predict: Predict) -> Suspect | None:
    """Return a setting as a suspect; None if its change breaks a rule or the changed job does not fit.

    Memory is computed first, because it needs no times.
    """
    try:
        kept = report.priced.kept
        if memory_report(programs_of(job, kept), job.cluster, kept).verdict == "does not fit":
            return None
        faster = predict(job)
    except SpecError:
        return None
    suspect = saving(report, faster)
    edits, switch = difference(report.job, job), job.stack.switches.text(setting.switch)
    return replace(
        suspect,
        name=setting.name,
        title=setting.title.format(would="may" if suspect.is_tight else "would"),
        evidence=(*fall(report, faster, edits), *_needed(faster, suspect) * setting.is_of_plan),
        change=f"{switch}; in a job file: {edits}" if switch else f"in a job file: {edits}",
        edits=edits,
        plan=job.plan.short() if job.plan != report.job.plan else "",
    )


def _needed(faster: Report, suspect: Suspect) -> tuple[str, ...]:
    """Return a sentence about the memory after a change; none if the suspect is tight, which says it."""
    return () if suspect.is_tight else (f"with this change, the job fits: memory is {faster.memory.need}",)


def saving(report: Report, faster: Report) -> Suspect:
    """Return the saving of a job that fits, as an unnamed suspect."""
    from flopcast.report.versus import time_ratio

    ratio, low_ratio, high_ratio = time_ratio(report, faster)
    unsure = holds_one(low_ratio, high_ratio)
    against = [
        f"with this change, {name} is tight, because the 90 % interval exceeds the capacity: {need}"
        for name, need, word in faster.memory.needs
        if word == "tight"
    ]
    if unsure:
        against.append("the 90 % interval of the saving contains zero")
    return Suspect(
        name="",
        title="",
        cost_s=report.step_time_s * (1.0 - ratio),
        low_s=report.step_time_s * (1.0 - high_ratio),
        high_s=report.step_time_s * (1.0 - low_ratio),
        basis="unsettled" if unsure else "predicted",
        is_tight=faster.memory.verdict == "tight",
        evidence=(),
        against=tuple(against),
        change="",
    )


def fall(report: Report, faster: Report, change: str) -> tuple[str]:
    """Return a sentence about the step before and after a change."""
    before, after = (show_seconds(one.step_time_s, like=report.step_time_s) for one in (report, faster))
    return (f"with {change}, the predicted step falls from {before} to {after}",)
