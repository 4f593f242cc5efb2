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
    scored_on : str
        Where answers are scored: by the workers of the "training", with its plan, as usual trainers do, or
        by the engine of the "rollout".
    critics : int
        Number of value models, as large as the one that generates. Each of them computes every answer once,
        and is trained like it, on the same devices.
    epochs : int
        How often the training goes through the answers of a step.
    handoff : str
        Which weights the generating devices receive after each step: all ("full"), or those of the trained
        adapters ("adapter").
    handoff_over : str
        How the weights get there: directly over the fastest "link" between the devices, or over files in a
        storage that the cluster of the rollout describes ("nvme", "file_system" or "object_store").
    handoff_tensor_s : float or None
        Time that software takes for each tensor in a file; by default 1 ms, which is an estimate.
    packed_experts : bool
        Whether files hold the adapters of all experts of a block as one tensor for each matrix, instead of
        one for each expert.
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
    scored_on: Literal["training", "rollout"] = "training"
    critics: int = Field(default=0, ge=0, le=16)
    epochs: int = Field(default=1, ge=1, le=1000)
    handoff: Literal["full", "adapter"] = "full"
    handoff_over: Literal["link", "nvme", "file_system", "object_store"] = "link"
    handoff_tensor_s: float | None = Field(default=None, ge=0)
    packed_experts: bool = False
    apart: bool = False

    @property
    def answers(self) -> int:
        """Return the answers of a step."""
        return self.prompts * self.samples

    @property
    def passes(self) -> int:
        """Return the number of forward passes over each answer after it is generated."""
        return self.scorers + self.critics
