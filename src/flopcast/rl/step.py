"""A step of reinforcement learning: answers are generated, scored and trained on, and weights handed over.

Answers: how long does such a step take, which phase takes how much of it, what does it cost?
Elsewhere: how answers are served (serving/serve.py), a training step (prediction.py), the handoff of
weights (handoff.py), the same as text and JSON (render/rl_text.py), the file of a step
(requests/rl_request.py).

All answers of a step are asked for at once, and the phase ends with the longest. Scoring computes each
answer with its prompt once, forward, on the same engine. Phases on the same devices follow one another; on
devices of their own, answers of the next step are generated and scored while this step is trained.
"""

import math
from collections.abc import Mapping

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.records import dataclass
from flopcast.report.report import Report
from flopcast.rl.handoff import handoff_of
from flopcast.serving.serve import serve
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.spec.lengths import Lengths
from flopcast.spec.operations import HOUR_S
from flopcast.spec.rl_plan import RlPlan
from flopcast.spec.serving_job import ServingJob

ROLLOUT, SCORING, TRAINING, HANDOFF = PHASES = ("rollout", "scoring", "training", "handoff")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class RlReport:
    """The prediction of one step of reinforcement learning.

    Attributes
    ----------
    plan : RlPlan
        How both jobs share devices.
    rollout : ServingReport
        Generation of the answers.
    training : Report
        One step of the training job.
    train_steps : int
        Training steps in each step of reinforcement learning.
    phases : mapping of Estimate
        Seconds by name of the phase: generation, scoring, training, hand-over of weights.
    step_s : Estimate
        Time from step to step, in which phases on separate devices overlap.
    handoff_bytes : float
        Bytes of weights or adapters that each generating device receives.
    handoff_tensors : int
        Number of tensors in a checkpoint of all weights, or of all adapters.
    usd : Estimate or None
        Cost of a step; None without a price.
    """

    plan: RlPlan
    rollout: ServingReport
    training: Report
    train_steps: int
    phases: Mapping[str, Estimate]
    step_s: Estimate
    handoff_bytes: float
    handoff_tensors: int
    usd: Estimate | None


def rl_step(rollout: ServingJob, training: Report, plan: RlPlan, book: CurveBook) -> RlReport:
    """Predict a step of reinforcement learning.

    Parameters
    ----------
    rollout : the job that generates; its traffic states the lengths of prompts and answers
    training : the prediction of the training step on the answers
    plan : how the phases are put together
    book : the curves of the cluster of `rollout`

    Raises
    ------
    SpecError
        As `serve`; or the handoff is of adapters, and the training has none.
    """
    served = serve(_at_once(rollout, plan.answers), book, leave_out_share=0.0)
    scored = None
    if plan.scorers:
        scored = serve(_at_once(_scoring(rollout), plan.answers), book, leave_out_share=0.0)
    steps = max(math.ceil(plan.answers / training.job.plan.global_batch), 1)
    low, high = (steps * bound for bound in training.bounds_s)
    trained = Estimate(value=steps * training.step_time_s, low=low, high=high)
    sent = handoff_of(rollout, training.job.model, plan, book.levels)
    phases = {
        ROLLOUT: _whole(served),
        SCORING: _whole(scored).times(plan.scorers) if scored else Estimate(value=0.0, low=0.0, high=0.0),
        TRAINING: trained,
        HANDOFF: sent.taken,
    }
    step_s = _together(phases, apart=plan.apart)
    return RlReport(
        plan=plan,
        rollout=served,
        training=training,
        train_steps=steps,
        phases=phases,
        step_s=step_s,
        handoff_bytes=sent.received_bytes,
        handoff_tensors=sent.tensors,
        usd=_cost(rollout, training, step_s, apart=plan.apart),
    )


def _at_once(job: ServingJob, answers: int) -> ServingJob:
    """Return the job with all answers asked for at the same time, in place of an assumed load."""
    notes = tuple(text for text in job.assumptions if not text.startswith("traffic concurrency"))
    update = {"rate_per_s": None, "concurrency": answers, "requests": answers}
    traffic = job.traffic.model_copy(update=update)
    return job.model_copy(update={"traffic": traffic, "assumptions": notes})


def _scoring(job: ServingJob) -> ServingJob:
    """Return the job that computes each answer with its prompt once: prompts of that length, one token."""
    lengths = [each.mean for each in (job.traffic.prompt_tokens, job.traffic.output_tokens) if each]
    whole, one = Lengths(mean_tokens=max(round(sum(lengths)), 1)), Lengths(mean_tokens=1)
    traffic = job.traffic.model_copy(update={"prompt_tokens": whole, "output_tokens": one})
    return job.model_copy(update={"traffic": traffic})


def _whole(report: ServingReport) -> Estimate:
    """Return the time until the last request ends."""
    return Estimate.log_normal(report.served.end_s, report.log_sigma_factor)


def _together(phases: Mapping[str, Estimate], *, apart: bool) -> Estimate:
    """Return the time from step to step: the sum of the phases, or the longer side of two that overlap."""

    def of(end: str) -> float:
        values = {name: getattr(phase, end) for name, phase in phases.items()}
        if not apart:
            return float(sum(values.values()))
        return float(max(values[ROLLOUT] + values[SCORING] + values[HANDOFF], values[TRAINING]))

    return Estimate(value=of("value"), low=of("low"), high=of("high"))


def _cost(rollout: ServingJob, training: Report, step_s: Estimate, *, apart: bool) -> Estimate | None:
    """Return the dollars of a step: of all devices for its whole time; None without prices."""
    price = training.job.cluster.price
    usd_per_hour = None if price is None else price.device_usd_per_hour * training.job.cluster.num_devices
    if apart and usd_per_hour is not None:
        other = rollout.cluster.price
        usd_per_hour = None if other is None else usd_per_hour + other.device_usd_per_hour * rollout.devices
    return None if usd_per_hour is None else step_s.times(usd_per_hour / HOUR_S)
