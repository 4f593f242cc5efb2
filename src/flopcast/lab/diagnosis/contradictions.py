"""Facts in a log that contradict the job: another model, or another number of tokens per step.

Answers: does the log belong to this job, and if not, which field contradicts it and what should the user
change?
Elsewhere: sizes of the job and its degrees (size_suspects.py), recompute (recompute_shown.py).
"""

from collections.abc import Iterator

import numpy as np

from flopcast.lab.diagnosis.suspect import Contradiction
from flopcast.lab.logs.log import Log
from flopcast.report.flop_conventions import match_convention
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.units import show_count

OTHER_PARAMETERS = 0.12  # of the parameters: padding, positions and weights counted twice explain less
OTHER_FLOP, OTHER_TOKENS = 0.12, 0.05  # of a step: no formula and no rounding explains more
MODEL = "name or describe the model of the run"
SIZES = "the global batch, the sequence length and the number of devices of the job"


def of_model(job: Job, log: Log) -> Iterator[Contradiction]:
    """Yield the properties of the model in a log that contradict the model of the job.

    The number of layers and the hidden size must be equal. The printed parameters may count all
    parameters or only the trained ones, and may differ by rounding (`OTHER_PARAMETERS`).
    """
    model = job.model
    for name, theirs, ours in (
        ("layers", log.num_layers, model.num_blocks),
        ("hidden size", log.hidden_size, model.hidden),
    ):
        if theirs is not None and theirs != ours:
            yield Contradiction(
                of_log=_counted(name, theirs), of_job=f"{_counted(name, ours)} ({model.name})", change=MODEL
            )
    counted = (model.parameters(), model.trained_parameters())  # either may be printed
    stated = log.parameters
    if stated and min(abs(stated / each - 1.0) for each in counted) > OTHER_PARAMETERS:
        yield Contradiction(
            of_log=f"{show_count(stated)} parameters",
            of_job=f"{show_count(counted[0])} parameters ({model.name})",
            change=MODEL,
        )


def of_rates(report: Report, log: Log) -> Iterator[Contradiction]:
    """Yield the rates in a log that, multiplied by its step time, contradict the job.

    Parameters
    ----------
    report : the report of the job with the sizes in the log
    """
    job, steps = report.job, log.steps
    time_s = log.median_of(steps.step_time_s)
    if time_s is None:
        return
    devices, sequences = job.cluster.num_devices, job.plan.global_batch
    tokens = sequences * job.batch.mean_sequence_tokens
    of_steps = (
        (steps.tokens_per_s, 1.0),
        (steps.device_tokens_per_s, devices),
        (steps.samples_per_s, job.batch.mean_sequence_tokens),
    )
    for rates, scale in of_steps:
        rate = log.median_of(rates * np.asarray(scale))
        if rate is not None and abs(rate * time_s / tokens - 1.0) > OTHER_TOKENS:
            yield Contradiction(
                of_log=f"{show_count(rate * time_s)} tokens in a step (token rate times step time)",
                of_job=f"{show_count(tokens)} tokens in {sequences} sequences of"
                f" {job.batch.mean_sequence_tokens:.0f} tokens each",
                change=f"check {SIZES}",
            )
            return
    rate = log.median_of(steps.device_flop_per_s)
    if rate is None:
        return
    flop = rate * devices * time_s
    match = match_convention(job, flop, log.framework)
    if abs(match.mismatch_ratio) > OTHER_FLOP:
        yield Contradiction(
            of_log=f"{rate / 1e12:.1f} TFLOP/s per device, which is {flop:.3g} FLOP in a step",
            of_job=f"{flop * (1.0 + match.mismatch_ratio):.3g} FLOP in a step according to the most"
            f" similar known formula ({match.name})",
            change=f"check the model, {SIZES}",
        )


def _counted(name: str, value: int) -> str:
    return f"{value} {name}" if name == "layers" else f"a {name} of {value}"
