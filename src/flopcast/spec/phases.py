"""Phases of a run: the number of tokens, and the changes of the job in each phase.

Answers: what does a file of phases contain?
Elsewhere: the job that a phase changes (job.py), the cost of the run (economics/run.py).
"""

import re

from pydantic import Field, field_validator

from flopcast.spec.run_length import read_count
from flopcast.strict_model import NotAllowedError, StrictModel


class StatedPhase(StrictModel):
    """A phase of a run: its number of tokens, and how the job changes during the phase.

    Attributes
    ----------
    name : str
        Name of the phase in the report.
    tokens : float
        Number of tokens of the phase, such as 2e12, 2T or 300B.
    changes : str or tuple of str
        Changes of the job, in the form of the command line and separated by spaces: "plan.gbs=2048
        batch.seq=8192".

    Examples
    --------
    >>> phase = StatedPhase(tokens="800B", changes="batch.seq=131072 plan.cp=16")
    >>> phase.tokens, phase.words
    (800000000000.0, ('batch.seq=131072', 'plan.cp=16'))
    """

    name: str = ""
    tokens: float = Field(gt=0)
    changes: str | tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Return the changes, one by one."""
        return tuple(self.changes.split()) if isinstance(self.changes, str) else self.changes

    @field_validator("tokens", mode="before")
    @classmethod
    def _written(cls, value: object) -> object:
        if share := re.fullmatch(r"([\d.]+) ?%", str(value)):  # of a run of 1T tokens
            allowed = "a number of tokens, such as 2e12, 2T or 300B"
            because = "the length of a phase is a number of tokens, not a share of the run"
            raise NotAllowedError(allowed, because, {"tokens": f"{float(share[1]) * 10:g}B"})
        return read_count(value, "tokens") if isinstance(value, str) else value


class StatedRun(StrictModel):
    """The phases of a run.

    Attributes
    ----------
    phases : tuple of StatedPhase
        The phases in order.
    """

    phases: tuple[StatedPhase, ...] = Field(min_length=1)
