"""A step of reinforcement learning as text and as JSON.

Elsewhere: the prediction of a step (rl/step.py), its serving and its training (serving_text.py,
report_text.py).
"""

from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.plain_data import FORMAT_VERSION
from flopcast.render.serving_json import estimate_as_json
from flopcast.render.serving_text import plan_text
from flopcast.render.tables import aligned, bar, in_paragraphs
from flopcast.render.terminal import answer
from flopcast.rl.step import PHASES, RlReport
from flopcast.units import nine_digits, show, show_memory, show_seconds, show_usd


def marked_text(report: RlReport) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    low, high = (
        show_seconds(bound, like=report.step_s.value) for bound in (report.step_s.low, report.step_s.high)
    )
    tokens = report.generated_tokens_per_s.value
    lines = [
        heading(report),
        *jobs_of(report),
        f"step      {answer(show_seconds(report.step_s.value))}   (90 %: {low} to {high})",
        f"rate      {show(tokens, 'tokens/s')} generated during the rollout",
    ]
    if report.usd is not None:
        lines.append(f"cost      {show_usd(report.usd.value)} a step")
    memory = report.training.memory
    text = f"memory    {show_memory(memory.expected_bytes)} expected in training: {memory.device_verdict}"
    lines.append(text)
    total = sum(phase.value for phase in report.phases.values())
    rows = [
        [
            f"  {name}",
            show_seconds(report.phases[name].value),
            f"{report.phases[name].value / total:.1%}",
            bar(report.phases[name].value / total),
        ]
        for name in PHASES
    ]
    texts = [*report.rollout.job.assumptions, *report.training.assumptions]
    parts = (lines, ["phases", *aligned(rows, "<>><"), sent_text(report)], assumption_lines(texts))
    return in_paragraphs(*parts)


def heading(report: RlReport) -> str:
    """Return the model, the number of answers, and the devices that the phases share."""
    plan = report.plan
    where = "on separate devices" if plan.apart else "on the same devices, one after another"
    answers = "1 answer" if plan.samples == 1 else f"{plan.samples} answers"
    name = report.rollout.job.model.name
    return f"{name}: {plan.prompts} prompts with {answers} each, generation and training {where}"


def jobs_of(report: RlReport) -> list[str]:
    """Return one line about the rollout and one about the training."""
    rollout, training, critics = report.rollout.job, report.training.job, report.plan.critics
    trained = f" of the model and of {critics} critic{'s' * (critics > 1)}" if critics else ""
    return [
        f"rollout   {rollout.devices} × {rollout.cluster.node.device.name},"
        f" {rollout.engine.name} {plan_text(rollout)}",
        f"training  {training.cluster.machine}, {training.plan.short()},"
        f" {report.train_steps} optimizer step{'s' * (report.train_steps > 1)}{trained}",
    ]


def sent_text(report: RlReport) -> str:
    """Return what each device of the engine receives in the handoff."""
    plan = report.plan
    size = show_memory(report.handoff_bytes)
    sent = f"each device of the engine keeps {size} of the new weights ({plan.handoff})"
    if plan.handoff_over != "link":
        sent += f" from {report.handoff_tensors} tensors in files ({plan.handoff_over})"
    return sent


def as_json(report: RlReport) -> dict[str, object]:
    """Return plain data; an estimate is its value with the ends of its 90 % interval."""
    return {
        "format_version": FORMAT_VERSION,
        "rl_plan": report.plan.model_dump(mode="json"),
        "step_s": estimate_as_json(report.step_s),
        "phases_s": {name: estimate_as_json(report.phases[name]) for name in PHASES},
        "optimizer_steps": report.train_steps,
        "training_memory_bytes": nine_digits(report.training.memory.expected_bytes),
        "training_fits": report.training.memory.device_verdict,
        "handoff_bytes_per_device": nine_digits(report.handoff_bytes),
        "handoff_tensors": report.handoff_tensors,
        "usd_per_step": estimate_as_json(report.usd),
        "generated_tokens_per_s": estimate_as_json(report.generated_tokens_per_s),
        "assumptions": [*report.rollout.job.assumptions, *report.training.assumptions],
    }
