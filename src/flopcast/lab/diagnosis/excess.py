"""Parts of a step that take longer than predicted.

Answers: by how much does a measured part exceed its prediction, and is the prediction certain enough to
conclude this?
Elsewhere: the parts that timers show (timer_suspects.py), the parts that a trace shows (trace_suspects.py).
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from flopcast.files.package_table import read_table
from flopcast.lab.diagnosis.suspect import Basis, Suspect
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.units import show_seconds

LEAST_EXCESS = 0.02  # of the step
ROUNDING = 1e-9  # of the step: less is the rounding of a difference
CLOCKS = (
    "compare clocks and power of the devices with their limits (nvidia-smi -q -d CLOCK,POWER; rocm-smi)"
)
NETWORK = "measure collectives between these nodes while no job runs (nccl-tests, rccl-tests)"
UNSURE = "the difference is within the uncertainty of this prediction"
Found = tuple[list[Suspect], list[str]]  # suspects, and sentences on what is as predicted


class Excess(Record):
    """The name and the explanation of a part that takes too long."""

    name: str
    part: str  # "the reduction of gradients"
    title: str
    change: str
    against: tuple[str, ...] = ()


@cache
def known_suspects() -> Mapping[str, Any]:
    """Return the causes of a slow step that flopcast knows, by the source that shows them."""
    return read_table(__package__, "suspects.yaml")


def shown_by(source: str) -> Mapping[str, Excess]:
    """Return the parts that a source shows, "timers" or "trace", each with its suspect.

    >>> shown_by("timers")["data"].title
    'The step waits for data'
    """
    return {
        part: Excess(
            **row
            | {"change": row["change"].format(clocks=CLOCKS, network=NETWORK)}
            | {"against": tuple(row.get("against", ()))}
        )
        for part, row in known_suspects()[source].items()
    }


def texts_of(source: str, name: str, **words: object) -> dict[str, str]:
    """Return the texts about one suspect of a source, with `words` in place of the names in braces."""
    texts = known_suspects()[source][name].items()
    return {key: text.format(clocks=CLOCKS, network=NETWORK, **words) for key, text in texts}


def doubt_of(report: Report) -> float:
    """Return the largest fraction by which a step inside its interval exceeds the prediction."""
    return report.step_time_high_s / report.step_time_s - 1.0


def compared(
    report: Report,
    measured: Mapping[str, float],
    predicted: Mapping[str, float],
    named: Mapping[str, Excess],
    seen: str,
) -> Found:
    """Return the parts that exceed their prediction by LEAST_EXCESS of the step, and sentences about the
    other parts.

    Parameters
    ----------
    measured, predicted : seconds of a step by part
    named : parts that are compared; others are left out
    seen : the source as a clause: "the trace shows"
    """
    doubt = doubt_of(report)
    suspects, cleared = [], []
    for part, seconds in measured.items():
        if part not in named:
            continue
        found_s = seconds if seconds > ROUNDING * report.step_time_s else 0.0
        ours_s, excess = max(0.0, predicted.get(part, 0.0)), named[part]
        extra_s = found_s - ours_s
        text = f"{seen} {show_seconds(found_s)} for {excess.part}; flopcast predicts {show_seconds(ours_s)}"
        if extra_s < LEAST_EXCESS * report.step_time_s:
            cleared.append(text)
            continue
        basis: Basis = "within doubt" if extra_s < doubt * ours_s else "measured"
        suspects.append(
            Suspect(
                name=excess.name,
                title=excess.title,
                cost_s=extra_s,
                basis=basis,
                evidence=(text,),
                against=(*excess.against, *((UNSURE,) if basis == "within doubt" else ())),
                change=excess.change,
            )
        )
    return suspects, cleared
