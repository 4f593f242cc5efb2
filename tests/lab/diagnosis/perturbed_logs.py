"""Logs of Megatron-LM, made from predictions into which a cause of slowness was injected."""

from dataclasses import dataclass, field

import numpy as np

from flopcast.lab.diagnosis.timer_suspects import pass_times, stage_ratio, timed_parts
from flopcast.report.report import BUBBLE

RECORDS = 150
JITTER = 0.005


@dataclass
class Run:
    """What a log is written from: the parts of a step, the steps, what it states of the job."""

    report: object
    parts: dict
    steps_s: np.ndarray
    facts: dict
    lines: dict = field(default_factory=dict)  # step → further lines
    head: tuple = ()  # further lines before the first step
    printed: str = ""  # a further cell of each step
    slower_s: float = 0.0  # what the slowest rank computes longer than others of its stage


def run_of(report, seed=1):
    """A run that goes as predicted."""
    job = report.job
    parts = timed_parts(report)
    parts["stages"] += report.step_time_s - report.clean_step_time_s  # jitter, for which ranks wait
    noise = np.exp(JITTER * np.random.default_rng(seed).standard_normal(RECORDS))
    facts = {
        "global_batch_size": job.plan.global_batch,
        "micro_batch_size": job.plan.micro_batch,
        "seq_length": job.batch.sequence_length,
        "world_size": job.cluster.num_devices,
    }
    return Run(report=report, parts=parts, steps_s=report.step_time_s * noise, facts=facts)


def longer(run, part, share):
    """One part of every step takes longer, by a share of the step."""
    extra_s = share * run.report.step_time_s
    run.parts[part] = run.parts.get(part, 0.0) + extra_s
    run.steps_s = run.steps_s + extra_s


def checkpoints(run):
    for step in range(25, RECORDS + 1, 25):
        run.steps_s[step - 1] += 6.0 * run.report.step_time_s
        run.lines.setdefault(step - 1, []).append(f"saving checkpoint at iteration {step - 1:7d} to /tmp/x")


def evaluation(run):
    for step in range(30, RECORDS + 1, 30):
        run.steps_s[step - 1] += 6.0 * run.report.step_time_s
        run.lines.setdefault(step - 1, []).append(
            f" validation loss at iteration {step - 1} | lm loss value: 2.1E+00 | lm loss PPL: 8.0E+00 |"
        )


def irregular_pauses(run):
    draw = np.random.default_rng(3)
    slow = draw.choice(np.arange(20, RECORDS), 9, replace=False)
    run.steps_s[slow] += draw.uniform(2.0, 5.0, 9) * run.report.step_time_s


def slower_at_once(run):
    run.steps_s[90:] *= 1.4


def slower_gradually(run):
    run.steps_s *= np.linspace(1.0, 1.4, RECORDS)


def straggler(run):
    run.slower_s = 0.2 * run.report.step_time_s
    run.steps_s = run.steps_s + run.slower_s


def data_loading(run):
    longer(run, "data", 0.2)


def gradient_reduction(run):
    longer(run, "gradients", 0.3)


def compute(run):
    """All stages compute longer, and wait longer for each other in proportion."""
    before_s = run.parts["compute"]
    longer(run, "compute", 0.35)
    slower = run.parts["compute"] / before_s - 1.0
    longer(run, "stages", slower * run.report.breakdown.get(BUBBLE, 0.0) / run.report.step_time_s)


def stage_waits(run):
    """Transfers between stages take longer."""
    longer(run, "stages", 0.3)


def optimizer(run):
    longer(run, "optimizer", 0.2)


ANYWHERE = {
    "checkpoints": checkpoints,
    "evaluation": evaluation,
    "irregular_pauses": irregular_pauses,
    "slower_at_once": slower_at_once,
    "slower_gradually": slower_gradually,
    "straggler": straggler,
    "data_loading": data_loading,
    "gradient_reduction": gradient_reduction,
    "compute": compute,
    "optimizer": optimizer,
}
OF_STAGES = {"stage_waits": stage_waits}
CAUSES = ANYWHERE | OF_STAGES


def log_text(run, *, with_timers=True):
    """The log as Megatron-LM prints it."""
    facts = "\n".join(f"  {name} {'.' * (32 - len(name))} {value}" for name, value in run.facts.items())
    lines = ["------------------------ arguments ------------------------", facts]
    compute_s, data_s = run.parts["compute"], run.parts["data"]
    least_s, most_s = compute_s / stage_ratio(run.report), compute_s + run.slower_s
    parameters_s = run.parts.get("parameters", 0.0)
    alike = {
        "forward-backward": most_s + data_s + run.parts["gradients"] + run.parts["stages"],
        "batch-generator": max(data_s, 1e-4),
        "all-grads-sync": run.parts["gradients"],
        "params-all-gather": parameters_s,
        "optimizer": run.parts["optimizer"] + parameters_s,
    }
    passes = pass_times(run.report)
    forward = passes.forward_s / (passes.forward_s + passes.backward_s)
    backward = 1.0 - forward
    timers = {name: (seconds, seconds) for name, seconds in alike.items()} | {
        "forward-compute": (forward * least_s + data_s, forward * most_s + data_s),
        "backward-compute": (backward * least_s, backward * most_s),
    }
    batch = run.facts["global_batch_size"]
    lines += run.head
    for step, step_s in enumerate(run.steps_s.tolist(), 1):
        lines.append(
            f" [2026-01-05 16:08:{step % 60:02d}] iteration {step:8d}/    2000 |"
            f" consumed samples: {step * batch:12d} |"
            f" elapsed time per iteration (ms): {1e3 * step_s:.1f} |{run.printed}"
            " learning rate: 3.000000E-05 |"
            f" global batch size: {batch:5d} | lm loss: 1.080000E+01 | loss scale: 1.0 | grad norm: 1.258 |"
            " number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        if with_timers:
            lines.append("(min, max) time across ranks (ms):")
            lines += [
                f"    {name} {'.' * (46 - len(name))}: ({1e3 * least_s:.2f}, {1e3 * most_s:.2f})"
                for name, (least_s, most_s) in timers.items()
            ]
        lines += run.lines.get(step, [])
    return "\n".join(lines) + "\n"
