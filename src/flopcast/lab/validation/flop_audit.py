"""Audit of printed FLOP: the formula by which a row counts, and the weights that it counts as trained.

Answers: are TFLOP/s and tokens/s of one row consistent, and under which convention?
Elsewhere: the conventions (report/flop_conventions.py); the printed FLOP that determine the job
(lab/published/model.py). Predicted times are not used.
"""

from functools import lru_cache

from flopcast.lab.validation.run import Run, counted_flop
from flopcast.records import Record
from flopcast.report.flop_conventions import ROUNDING, WORST_MISMATCH, match_convention
from flopcast.report.metrics import BACKWARD_OVER_FORWARD
from flopcast.spec.job import Job

UNKNOWN = "no known formula"
ALL_TRAINED, FROZEN = "all weights as if trained", "weights as if frozen"
FRAMEWORKS = {  # stack → who wrote the formula that its tables print by
    "megatron-bridge": "megatron-bridge",
    "nemo": "megatron-lm",
    "nemo-automodel": "nemo",
    "composer-llm-foundry": "llm-foundry",
    "internevo": "gpt-neox",
}


class FlopAudit(Record):
    """The formula that is closest to a row's FLOP.

    `mismatch_ratio` is the formula's FLOP divided by the row's FLOP, minus 1; if no formula is within 5
    %, `formula` is UNKNOWN, and the ratio is that of `nearest`.
    """

    formula: str
    nearest: str
    mismatch_ratio: float

    def phrase(self) -> str:
        """Return the finding as an assumption of the row."""
        nearest = f"; nearest {self.nearest}" if self.formula == UNKNOWN else ""
        return f"printed FLOP: {self.formula}{nearest} ({self.mismatch_ratio:+.1%})"


@lru_cache(maxsize=1024)  # a table is compared under several ways of judging
def flop_audit(run: Run, job: Job) -> FlopAudit | None:
    """Return the formula by which a row counts FLOP; None if the row lacks a rate of FLOP or of tokens.

    For adapters, the audit also tests whether the row counts all weights as trained although the job
    freezes some (some conventions always do). If no convention fits, it tests whether the row counts
    weights as frozen although the job trains them.
    """
    printed = _printed_flop(run, job)
    if printed is None:
        return None
    match = match_convention(job, printed, FRAMEWORKS.get(job.stack.name, ""))
    for formula, flop in _other_trainings(job):
        mismatch_ratio = flop / printed - 1.0
        as_near = abs(mismatch_ratio) <= abs(match.mismatch_ratio) + ROUNDING
        if abs(mismatch_ratio) <= WORST_MISMATCH and (not match.known or (job.model.adapters and as_near)):
            return FlopAudit(formula=formula, nearest=match.name, mismatch_ratio=mismatch_ratio)
    formula = match.name if match.known else UNKNOWN
    return FlopAudit(formula=formula, nearest=match.name, mismatch_ratio=match.mismatch_ratio)


def _printed_flop(run: Run, job: Job) -> float | None:
    """Return the FLOP per step from the row's two rates, or from its FLOP rate and its step time."""
    seen = run.observed
    if seen.device_flop_per_s is None:
        return None
    tokens = job.plan.global_batch * job.batch.sequence_length
    if seen.device_tokens_per_s is not None:
        return seen.device_flop_per_s / seen.device_tokens_per_s * tokens
    if seen.step_time_s is not None:
        return seen.device_flop_per_s * seen.step_time_s * job.cluster.num_devices
    return None


def _other_trainings(job: Job) -> list[tuple[str, float]]:
    """Return the model FLOP, with full and causal attention, if other weights were trained."""
    trained = job.with_part("model", adapters=None)
    others = []
    for causal in (True, False):
        full = counted_flop(trained, causal)
        if job.model.adapters is not None:
            others.append((ALL_TRAINED, full))
        else:
            others.append((FROZEN, full - _weight_gradients(job)))
    return others


def _weight_gradients(job: Job) -> float:
    """Return the FLOP that frozen weights save: half the backward pass of their products."""
    length = job.batch.sequence_length
    linear = job.model.forward_flop(length, windows=False) - job.model.attention_flop(length, windows=False)
    return job.plan.global_batch * linear * BACKWARD_OVER_FORWARD / 2.0
