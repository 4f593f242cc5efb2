"""The phases of a step of reinforcement learning: their sizes and their devices."""

from typing import Literal

from pydantic import Field

from flopcast.strict_model import StrictModel


class RlPlan(StrictModel):
    """The size of a step of reinforcement learning, and which phases share devices.

    Attributes
    ----------
    prompts : int
        Number of prompts of a step.
    samples : int
        Number of answers that are generated for each prompt.
    scorers : int
        Number of additional models of the same size, such as a reference model or a reward model, that run
        one forward pass over every answer.
    scored_on : str
        Which software scores the answers. "training": the training workers, with their plan, as most
        trainers do. "rollout": the inference engine.
    critics : int
        Number of value models of the same size as the trained model. Each of them runs one forward pass
        over every answer, and is trained on the same devices as the trained model.
    epochs : int
        Number of times that the training uses each answer of a step.
    handoff : str
        Which weights the inference engine receives after each step. "full": all weights. "adapter": only
        the weights of the trained adapters.
    handoff_over : str
        How the weights are sent: directly over the fastest "link" between the devices, or as files in a
        storage of the rollout's cluster ("nvme", "file_system" or "object_store").
    handoff_tensor_s : float or None
        Time that the software needs for each tensor in a file. The default, 1 ms, is an estimate.
    packed_experts : bool
        Whether a file contains one tensor with the adapters of all experts of a block for each matrix,
        instead of one tensor for each expert.
    apart : bool
        Whether generation has its own devices. Generation then overlaps with training on the previous
        answers. On shared devices, the phases run one after another.

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
        """Return the number of answers of a step."""
        return self.prompts * self.samples

    @property
    def passes(self) -> int:
        """Return the number of forward passes over each answer after it is generated."""
        return self.scorers + self.critics
