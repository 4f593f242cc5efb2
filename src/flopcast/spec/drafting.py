"""Drafted tokens ("speculative decoding"): who drafts, how many, and how many of them are right.

Answers: how many tokens does a pass compute and yield for each sequence?
Elsewhere: the work of the draft (serving/drafts.py), measured acceptance
(library/acceptance_lengths.py).
"""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from flopcast.fixes import write
from flopcast.spec.model import Model
from flopcast.strict_model import NotAllowedError, StrictModel
from flopcast.units import Number

Drafter = Literal["mtp", "eagle", "ngram", "model"]


class Drafting(StrictModel):
    """How tokens are drafted before each pass, which then verifies all of them at once.

    Attributes
    ----------
    drafter : str
        What drafts: the model's own modules of multi-token prediction ("mtp"), a head of one block that is
        trained for the model ("eagle"), a search for the last tokens in the prompt ("ngram"), or a smaller
        model ("model").
    model : Model or None
        The smaller model.
    drafted : int
        Tokens that are drafted for each sequence and pass.
    accepted : float
        Tokens that a pass yields for each sequence on average: those drafted tokens that the model agrees
        with, and one of its own. It is from 1 to `drafted` + 1.
    layers_at_once : int
        Attention layers of the smaller model that run side by side, each whole on a rank, with the same
        input (EasySpec, arXiv:2502.02493). The pass that fills its cache with verified tokens runs one
        layer after the other.

    Examples
    --------
    >>> Drafting(drafter="mtp", drafted=3, accepted=2.5).computed_tokens
    4
    """

    drafter: Drafter
    model: Model | None = None
    drafted: int = Field(ge=0, le=64)
    accepted: Number = Field(ge=1)
    layers_at_once: int = Field(default=1, ge=1)

    @field_validator("accepted")
    @classmethod
    def _no_more_than_computed(cls, value: Number, info: ValidationInfo) -> Number:
        """Refuse more tokens than a pass computes."""
        drafted = info.data.get("drafted")
        if drafted is not None and value > drafted + 1:
            because = (
                f"an iteration generates at most {drafted} drafted tokens and one token of the model itself"
            )
            raise NotAllowedError(f"at most {drafted + 1}", because, write(drafted + 1, "accepted"))
        return value

    @property
    def computed_tokens(self) -> int:
        """Return the tokens that a pass computes for each sequence that decodes."""
        return self.drafted + 1


def expected_tokens(acceptance_share: float, drafted: int) -> float:
    """Return the tokens that a pass yields if each drafted token is right with the same probability.

    With acceptance probability a and k drafted tokens, it is 1 + a + ... + a^k = (1 - a^(k + 1)) / (1 - a)
    (arXiv:2211.17192, equation 1).

    >>> expected_tokens(0.5, 2), expected_tokens(1.0, 3), expected_tokens(0.9, 0)
    (1.75, 4.0, 1.0)
    """
    return float(sum(acceptance_share**power for power in range(drafted + 1)))
