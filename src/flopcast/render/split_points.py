"""The divisions of a model over a chain of devices, as text and as plain data.

Answers: what does `flopcast search --split-points` print?
Elsewhere: the divisions themselves (search/split_points.py), other layouts of one plan (layouts.py).
"""

from flopcast.render.plain_data import fields_of
from flopcast.render.tables import aligned
from flopcast.render.trained_text import subject_lines
from flopcast.search.split_points import SplitFront, SplitPoint
from flopcast.units import nine_digits, show, show_seconds


def split_points_text(found: SplitFront) -> str:
    """Return the front as text, with one line per division, and the change that applies the last
    division to the job.
    """
    job, each = found.job, found.job.plan.micro_batch
    divided = [tuple(filter(None, point.blocks)) for point in found.on_front]
    best = next((blocks for blocks in reversed(divided) if len(blocks) > 1), ())
    rows = [["blocks", "latency", "90 %", "throughput", "sends", "energy of a sample"]]
    rows += [
        [
            "+".join(map(str, point.blocks)),
            show_seconds(point.latency_s),
            " to ".join(show_seconds(s) for s in (point.latency_low_s, point.latency_high_s)),
            show(each / point.period_s, "samples/s"),
            show(point.sent_bytes, "B"),
            "unknown" if point.batch_joules is None else show(point.batch_joules / each, "J"),
        ]
        for point in found.on_front
    ]
    change = f"set       plan.stage_layers={','.join(map(str, best))}"
    if len(best) < job.plan.pipeline_parallel:
        change += f" plan.pipeline_parallel={len(best)}, on the first {len(best)} devices"
    count = f"{len(found.on_front)} of {len(found.points)} divisions"
    return "\n".join(
        [
            *subject_lines(job),
            f"front     {count}: no other division has both a lower latency and a higher throughput",
            "",
            *aligned(rows, "<>>>>>"),
            "",
            *([change] if best else []),
        ]
    ).rstrip()


def split_points_json(found: SplitFront) -> dict[str, object]:
    """Return all divisions as plain data, under "split_points", and which of them are on the front."""
    return {
        "split_points": [
            {**_as_json(point, found.job.plan.micro_batch), "on_front": point in found.on_front}
            for point in found.points
        ]
    }


def _as_json(point: SplitPoint, samples: int) -> dict[str, object]:
    energy = point.batch_joules
    return {
        **fields_of(point, "blocks", "sent_bytes", "latency_s", "latency_low_s", "latency_high_s"),
        "samples_per_s": nine_digits(samples / point.period_s),
        "energy_j_per_sample": None if energy is None else nine_digits(energy / samples),
        "fits": point.fits,
    }
