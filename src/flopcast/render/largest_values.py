"""The largest values with which a plan fits, as text and as plain data.

Answers: what does `flopcast memory --largest` print?
Elsewhere: the values themselves (search/largest_values.py).
"""

from collections.abc import Sequence

from flopcast.render.tables import aligned, in_paragraphs
from flopcast.render.trained_text import subject_lines
from flopcast.search.largest_values import LargestValue, step_of
from flopcast.spec.job import Job
from flopcast.units import show_memory

NAMES = {"batch": "micro-batch", "seq": "sequence length", "rank": "rank of the adapters"}
OPTIONS = {"batch": "set mbs in --plan", "seq": "set --seq", "rank": "set --lora or --qlora"}


def largest_values_text(job: Job, name: str, found: Sequence[LargestValue]) -> str:
    """Return the largest values as text: a line for each recompute mode, and the meaning of the columns."""
    step = step_of(job, name)
    unit = {"batch": " in sequences", "seq": f" in tokens, a multiple of {step}", "rank": ""}[name]
    rows = [("recompute", "fits", "may fit")]
    rows += [(each.recompute, _shown(each.fits), _shown(each.tight)) for each in found]
    there = show_memory(job.cluster.node.device.memory_bytes)
    return in_paragraphs(
        subject_lines(job),
        [
            f"largest {NAMES[name]}{unit}, if everything else stays the same ({OPTIONS[name]})",
            *(f"  {line}" for line in aligned(rows, "<>>")),
            f"  fits: the whole 90 % interval of memory is within the {there} of a device",
            "  may fit: only the expected memory is within this limit; check with a short test run",
        ],
    )


def _shown(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def largest_values_json(name: str, found: Sequence[LargestValue]) -> dict[str, object]:
    """Return the largest values as plain data, under "largest"; null if no value fits."""
    values = [{"recompute": each.recompute, "fits": each.fits, "tight": each.tight} for each in found]
    return {"largest": {"of": name, "values": values}}
