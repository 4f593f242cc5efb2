"""How the phases of a step of reinforcement learning are put together, as data."""

from typing import Literal

from pydantic import Field

from flopcast.strict_model import StrictModel


class RlPlan(StrictModel):
    """The size of a step, and which phases share devices.

    Attributes
    ----------
    prompts : int
        Number of prompts of a step.
    samples : int
        Number of answers that are generated to each prompt.
    scorers : int
        Number of models, as large as the one that generates, that compute every answer once, such as a
        reference model or a reward model.
    handoff : str
        Which weights the generating devices receive after each step: all ("full"), or those of the trained
        adapters ("adapter").
    apart : bool
        Whether generation has its own devices. It then overlaps with training on the previous answers. On
        shared devices, the phases run one after another.

    Examples
    --------
    >>> RlPlan(prompts=128, samples=8).answers
    1024
    """

    prompts: int = Field(default=128, ge=1, le=10**6)
    samples: int = Field(default=8, ge=1, le=10**4)
    scorers: int = Field(default=1, ge=0, le=16)
    handoff: Literal["full", "adapter"] = "full"
    apart: bool = False

    @property
    def answers(self) -> int:
        """Return the answers of a step."""
        return self.prompts * self.samples
