"""The first lines of a report: the model, the machine, the plan and the trained parameters."""

from flopcast.search.chosen_plan import FASTER_PLAN
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.plan_text import meaning_of_runs
from flopcast.units import show_count


def subject_lines(job: Job) -> list[str]:
    """Return the lines that name a job: model, machine and stack; plan and length of sequences."""
    options = {"faster": ("--", ""), "assumed": ("", "; set --seq to the length of your samples")}
    leading = [(word, text.join(options[word])) for word, text in leading_assumptions(job)]
    meaning = meaning_of_runs(job.plan.short())
    return [
        f"{job.model.name} on {job.cluster.name}: {job.cluster.machine}, {job.stack.label}",
        f"plan      {job.plan.short()}  {job.batch_text}",
        *([f"          ({meaning})"] if meaning else []),
        *(f"{word:<10}{text}" for word, text in leading),
    ]


def leading_assumptions(job: Job) -> list[tuple[str, str]]:
    """Return the assumptions with the largest effect on the result, each as a word and a sentence.

    These are the length of the samples of a fine-tune, and a faster plan that flopcast did not choose.
    """
    lines = [("faster", text) for text in job.assumptions if text.startswith(FASTER_PLAN)]
    if job.fine_tunes and any(text.startswith("sequence_length") for text in job.assumptions):
        tokens = f"each sample has {job.batch.sequence_length} tokens"
        lines.append(("assumed", f"{tokens}; time and memory depend mostly on this length"))
    return lines


def trained_lines(job: Job) -> list[str]:
    """Return lines that state how many parameters are trained, in which adapters, and which models are
    frozen.

    There are no lines if all parameters are trained, and no frozen model runs.
    """
    adapters, model = job.model.adapters, job.model
    frozen_models = _frozen_models(model)
    if adapters is None:
        return frozen_models
    trained, total = (show_count(n) for n in (model.trained_parameters(), model.parameters()))
    frozen = "" if adapters.base_dtype == "model" else f"; frozen weights stored in {adapters.base_dtype}"
    return [
        f"trains    {trained} of {total} parameters, in adapters",
        f"adapters  rank {adapters.rank} on {', '.join(adapters.targets)}{frozen}",
        *frozen_models,
    ]


def _frozen_models(model: Model) -> list[str]:
    """Return a line for each frozen model that runs forward beside the trained one, and one of its head."""
    passes = (
        "one forward pass" if model.reference_passes == 1 else f"{model.reference_passes} forward passes"
    )
    kinds = {"separate": "a frozen copy of all weights", "shared": "the frozen weights without adapters"}
    lines = []
    if model.reference != "none":
        lines.append(f"reference {kinds[model.reference]}, {passes} over each sequence")
    if model.teacher is not None:
        teacher = model.teacher
        lines.append(f"teacher   {teacher.name}, {show_count(teacher.parameters())} frozen parameters")
    if model.head == "score":
        lines.append("head      one score for each token, without logits")
    return lines
