"""Speculative decoding: how tokens are drafted, how many, and how many of them are accepted.

Answers: how many tokens does a pass compute and generate for each sequence?
Elsewhere: the kernels of drafting (serving/drafts.py), measured acceptance (library/acceptance_lengths.py).
"""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from flopcast.fixes import write
from flopcast.spec.model import Model
from flopcast.strict_model import NotAllowedError, StrictModel
from flopcast.units import Number

Drafter = Literal["mtp", "eagle", "ngram", "model"]


class Drafting(StrictModel):
    """How tokens are drafted before each pass. The pass then verifies all of them at once.

    Attributes
    ----------
    drafter : str
        How tokens are drafted. "mtp": by the model's own modules for multi-token prediction. "eagle": by a
        head of one block that is trained for the model. "ngram": by a search for the last tokens in the
        prompt. "model": by a smaller model.
    model : Model or None
        The smaller model.
    drafted : int
        Number of tokens that are drafted for each sequence in each pass.
    accepted : float
        Mean number of tokens that a pass generates for each sequence: the accepted drafted tokens, and one
        token of the model itself. It lies between 1 and `drafted` + 1.
    layers_at_once : int
        Number of attention layers of the smaller model that run at the same time with the same input, each
        on its own rank (EasySpec, arXiv:2502.02493). The pass that adds verified tokens to the cache of the
        smaller model runs one layer after the other.

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
        """Raise an error if more tokens are accepted than a pass computes."""
        drafted = info.data.get("drafted")
        if drafted is not None and value > drafted + 1:
            because = (
                f"an iteration generates at most {drafted} drafted tokens and one token of the model itself"
            )
            raise NotAllowedError(f"at most {drafted + 1}", because, write(drafted + 1, "accepted"))
        return value

    @property
    def computed_tokens(self) -> int:
        """Return the number of tokens that a pass computes for each decoding sequence."""
        return self.drafted + 1


def expected_tokens(acceptance_share: float, drafted: int) -> float:
    """Return the mean number of tokens of a pass, given the probability that a drafted token is accepted.

    With acceptance probability a and k drafted tokens, it is 1 + a + ... + a^k = (1 - a^(k + 1)) / (1 - a)
    (arXiv:2211.17192, equation 1).

    >>> expected_tokens(0.5, 2), expected_tokens(1.0, 3), expected_tokens(0.9, 0)
    (1.75, 4.0, 1.0)
    """
    return float(sum(acceptance_share**power for power in range(drafted + 1)))
