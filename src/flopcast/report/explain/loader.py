"""Explanation of the time in which devices wait for samples.

Answers: how is the wait of a step computed from the stages of data loading?
Elsewhere: the seconds of stages (report/loader.py), the other parts of a step (steps.py).
"""

from flopcast.report.explain.explanation import Explanation
from flopcast.report.explain.kernels import lasting
from flopcast.report.loader import LOADER, LoadedStep
from flopcast.spec.loader import LoaderStage
from flopcast.units import nine_digits


def explain_loader(found: LoadedStep, note: str) -> Explanation:
    """Return how long the devices wait for samples, with the times of all stages.

    `note` states the share of the step.
    """
    return Explanation(
        name=LOADER,
        amount=found.wait_s,
        formula="max(devices + exposed stages, slowest overlapped stages) − devices",
        inputs=(
            lasting("devices", found.device_step_s),
            lasting("exposed stages", found.exposed_s),
            lasting("slowest overlapped stages", found.overlapped_s),
        ),
        parts=tuple(
            Explanation(name=each.stage.name, amount=each.step_s, formula=_text(each.stage))
            for each in found.stages
        ),
        note=note,
    )


def _text(stage: LoaderStage) -> str:
    """Return a stage in the short form, without the last digits of a time that was converted."""
    if stage.sample_s is None:
        return stage.text()
    return stage.model_copy(update={"sample_s": nine_digits(stage.sample_s)}).text()
