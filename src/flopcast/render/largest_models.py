"""The largest models that train on some devices, as text and as plain data.

Answers: what does `flopcast search --largest` print?
Elsewhere: the models themselves (search/largest_model.py).
"""

from collections.abc import Sequence

from flopcast.search.largest_model import STEP, LargestModel, LargestOn
from flopcast.units import show_count

WHERE = {False: "all states on the devices", True: "states outside the devices"}


def largest_text(answers: Sequence[LargestOn]) -> str:
    """Return the answers as text."""
    lines = [f"largest model with the layers of {answers[0].job.model.name}, {STEP} layers at a time"]
    for one in answers:
        cluster = one.job.cluster
        devices = f"{cluster.num_devices} × {cluster.node.device.name}"
        lines.append(f"on {devices} ({cluster.name}), {one.job.stack.label}")
        lines += [f"  {WHERE[outside]:<27} {_line(model)}" for outside, model in one.found.items()]
    return "\n".join(lines)


def _line(model: LargestModel | None) -> str:
    if model is None:
        return f"not even {STEP} layers fit"
    size = f"{model.num_layers} layers, {show_count(model.num_parameters).replace(' ', '')} parameters"
    return f"{size}: {model.plan.short()}"


def largest_json(answers: Sequence[LargestOn]) -> dict[str, object]:
    """Return the answers as plain data, under "largest".

    There are two entries for each cluster: with and without offload. Fields of the model are null if none
    fits.
    """
    return {
        "largest": [
            {
                "cluster": one.job.cluster.name,
                "num_devices": one.job.cluster.num_devices,
                "stack": one.job.stack.label,
                "offload": outside,
                "num_layers": model.num_layers if model else None,
                "num_parameters": model.num_parameters if model else None,
                "plan": model.plan.short() if model else None,
            }
            for one in answers
            for outside, model in one.found.items()
        ]
    }
