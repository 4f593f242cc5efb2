"""A step of reinforcement learning: answers are generated, scored and used for training, and weights are
transferred.

Answers: how long is such a step, how long is each phase, and what does a step cost?
Elsewhere: how answers are served (serving/serve.py), a training step (prediction.py), the handoff of
weights (handoff.py), the report as text and JSON (render/rl_text.py), the file of a step
(requests/rl_request.py).

All answers of a step are requested at once, and the phase ends with the longest answer. Each scorer and
critic runs one forward pass over every answer with its prompt, either with the plan of the training or on
the engine. Critics are trained after the model, with its plan. Phases on the same devices follow one
another; on separate devices, answers of the next step are generated while this step is trained.
"""

import math
from collections.abc import Mapping

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.tier_constants import fitted_ratio
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.rl.handoff import handoff_of
from flopcast.serving.serve import serve
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.spec.lengths import Lengths
from flopcast.spec.operations import HOUR_S
from flopcast.spec.rl_plan import RlPlan
from flopcast.spec.serving_job import ServingJob

ROLLOUTS = "rollouts"  # the constant of a trainer's rollouts
UNFITTED_LOG_SIGMA = 0.7  # of that constant, where it is not fitted
ROLLOUT, SCORING, TRAINING, HANDOFF = PHASES = ("rollout", "scoring", "training", "handoff")


class RlReport(Record, eq=False):
    """The prediction of one step of reinforcement learning.

    Attributes
    ----------
    plan : RlPlan
        How both jobs share devices.
    rollout : ServingReport
        Generation of the answers by the engine alone.
    generated_tokens_per_s : Estimate
        Rate of the rollout in the trainer.
    training : Report
        One step of the training job.
    train_steps : int
        Optimizer steps of the trained model in each step of reinforcement learning.
    phases : mapping of Estimate
        Seconds by name of the phase: generation, scoring, training, hand-over of weights.
    step_s : Estimate
        Time between the starts of two consecutive steps. Phases on separate devices overlap.
    handoff_bytes : float
        Bytes of weights or adapters that each generating device keeps.
    handoff_tensors : int
        Number of tensors in a checkpoint of all weights, or of all adapters.
    usd : Estimate or None
        Cost of a step; None without a price.
    """

    plan: RlPlan
    rollout: ServingReport
    generated_tokens_per_s: Estimate
    training: Report
    train_steps: int
    phases: Mapping[str, Estimate]
    step_s: Estimate
    handoff_bytes: float
    handoff_tensors: int
    usd: Estimate | None


def rl_step(
    rollout: ServingJob, training: Report, scoring: Report | None, plan: RlPlan, book: CurveBook
) -> RlReport:
    """Predict a step of reinforcement learning.

    Parameters
    ----------
    rollout : the job that generates; its traffic states the lengths of prompts and answers
    training : the prediction of the training step on the answers
    scoring : the prediction of one forward pass over all answers; None if the engine of the rollout scores
    plan : the sizes of the phases, and the devices that they share
    book : the curves of the cluster of `rollout`

    Raises
    ------
    SpecError
        See `serve`; or adapters are to be handed over, but the training has none.
    """
    served = serve(_at_once(rollout, plan.answers), book, leave_out_share=0.0)
    ratio = fitted_ratio(book.levels, ROLLOUTS)
    doubt = book.levels[ROLLOUTS].log_sigma_factor if ROLLOUTS in book.levels else UNFITTED_LOG_SIGMA
    sigma = math.hypot(served.log_sigma_factor, doubt)
    generated = Estimate.log_normal(ratio * served.served.end_s, sigma)
    tokens_per_s = served.output_tokens_per_s.value / ratio
    steps = max(math.ceil(plan.answers / training.job.plan.global_batch), 1)
    steps *= plan.epochs
    trained = _step(training).times(steps * (1 + plan.critics))
    sent = handoff_of(rollout, training.job.model, plan, book.levels)
    phases = {
        ROLLOUT: generated,
        SCORING: _scored(rollout, scoring, plan, book),
        TRAINING: trained,
        HANDOFF: sent.taken,
    }
    step_s = _together(phases, plan)
    return RlReport(
        plan=plan,
        rollout=served,
        generated_tokens_per_s=Estimate.log_normal(tokens_per_s, sigma),
        training=training,
        train_steps=steps,
        phases=phases,
        step_s=step_s,
        handoff_bytes=sent.received_bytes,
        handoff_tensors=sent.tensors,
        usd=_cost(rollout, training, step_s, apart=plan.apart),
    )


def _step(report: Report) -> Estimate:
    """Return the time of one step of a job."""
    low, high = report.bounds_s
    return Estimate(value=report.step_time_s, low=low, high=high)


def _scored(rollout: ServingJob, scoring: Report | None, plan: RlPlan, book: CurveBook) -> Estimate:
    """Return the time in which all scorers and critics compute all answers once."""
    if not plan.passes:
        return Estimate(value=0.0, low=0.0, high=0.0)
    if scoring is not None:
        return _step(scoring).times(plan.passes)
    asked = _at_once(_scoring(rollout), plan.answers)
    return _whole(serve(asked, book, leave_out_share=0.0)).times(plan.passes)


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


def _together(phases: Mapping[str, Estimate], plan: RlPlan) -> Estimate:
    """Return the time from step to step: the sum of the phases, or the longer side of two that overlap."""

    def of(end: str) -> float:
        values = {name: getattr(phase, end) for name, phase in phases.items()}
        if not plan.apart:
            return float(sum(values.values()))
        sides = {ROLLOUT: values[ROLLOUT] + values[HANDOFF], TRAINING: values[TRAINING]}
        sides[plan.scored_on] += values[SCORING]
        return float(max(sides.values()))

    return Estimate(value=of("value"), low=of("low"), high=of("high"))


def _cost(rollout: ServingJob, training: Report, step_s: Estimate, *, apart: bool) -> Estimate | None:
    """Return the dollars of a step: of all devices for its whole time; None without prices."""
    price = training.job.cluster.price
    usd_per_hour = None if price is None else price.device_usd_per_hour * training.job.cluster.num_devices
    if apart and usd_per_hour is not None:
        other = rollout.cluster.price
        usd_per_hour = None if other is None else usd_per_hour + other.device_usd_per_hour * rollout.devices
    return None if usd_per_hour is None else step_s.times(usd_per_hour / HOUR_S)
