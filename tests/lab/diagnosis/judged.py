"""A good job, and its diagnosis from the text of a log."""

from functools import lru_cache

import pytest

from flopcast.lab.diagnosis import better_plan, diagnose
from flopcast.lab.logs.reader import read_log
from flopcast.predictor import Predictor

PREDICTOR = Predictor()
PREDICTED = lru_cache(maxsize=512)(PREDICTOR.predict)  # diagnoses of a job change it in the same ways
GOOD = {
    "model": "llama-2-7b",
    "cluster": "dgx-a100:4",
    "stack": "megatron-core-2025",
    "plan": "dp=32 gbs=128 mbs=1 zero=1",
}
CHOOSE = better_plan.choose
CHOSEN = lru_cache(maxsize=64)(
    lambda one, fixed: CHOOSE(one, dict(fixed), better_plan.load_book(one.cluster))
)


def found(one, text="", trace=None, *, plans=True):
    """The diagnosis of a job and the text of a log; the search for a better plan takes most of the time."""
    log = read_log(text, "train.log") if text else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(better_plan, "choose", lambda job, fixed, _: CHOSEN(job, tuple(fixed.items())))
        if not plans:
            patch.setattr(diagnose, "better_plan", lambda *_: ())
        return diagnose.diagnose(one, PREDICTED, log, trace)


def without_plans(one, text="", trace=None):
    """The diagnosis without a search for a better plan."""
    return found(one, text, trace, plans=False)


def suspects(told, *bases):
    """The suspects of a diagnosis whose seconds are known in one of these ways, by name."""
    return {one.name: one for one in told.suspects if one.basis in bases}
