"""An input pipeline in reports: lines of text, and JSON.

Answers: how does a report show the time that the loader adds to a step?
Elsewhere: the seconds of stages (report/loader.py), the table of a page (page/time_breakdown.py).
"""

from flopcast.render.plain_data import fields_of
from flopcast.render.tables import aligned
from flopcast.report.loader import LoadedStep
from flopcast.units import show, show_seconds


def loader_lines(found: LoadedStep | None) -> list[str]:
    """Return the time that the input pipeline adds to the step, and its stages.

    Without one, there are no lines.
    """
    if found is None:
        return []
    rows = [
        (
            each.stage.name,
            show_seconds(each.step_s),
            show(each.samples_per_s, "samples/s"),
            "overlapped" if each.stage.overlapped else "exposed",
        )
        for each in found.stages
    ]
    device = f"the devices need {show_seconds(found.device_step_s)} for a step"
    limit = "the loader is the limit" if found.is_limit else "the loader is not the limit"
    head = f"{limit}: {device} and wait {show_seconds(found.wait_s)} for samples"
    return [head, *(f"  {line}" for line in aligned(rows, "<>><"))]


def loader_as_json(found: LoadedStep) -> dict[str, object]:
    """Return the seconds that the input pipeline adds to the step, its slowest stages, and each stage."""
    names = ("device_step_s", "wait_s", "exposed_s", "overlapped_s", "slowest", "is_limit")
    stages = [
        fields_of(each.stage, "name", "overlapped") | fields_of(each, "step_s", "samples_per_s")
        for each in found.stages
    ]
    return fields_of(found, *names) | {"stages": stages}
