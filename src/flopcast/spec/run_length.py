"""The length of a whole training run: a number of tokens, or samples of a data set and epochs over them.

Answers: on how many tokens does a run train?
Elsewhere: runs of several phases (phases.py), the days and dollars of a run (economics/run.py).
"""

import re
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator

from flopcast.fixes import Fix, set_to, such_as
from flopcast.quantities import parse_tokens, without_separators
from flopcast.strict_model import NotAllowedError, StrictModel
from flopcast.units import Number, show_count

ONE_OF = "tokens or samples"
MOST = 10**18  # tokens or samples: ten thousand times those of the longest known runs


def read_count(text: str, field: str) -> float:
    """Return the number of tokens or samples that a text means, by the name of its field.

    Raises
    ------
    NotAllowedError
        The text is not a number. The fix is a number of about this size, or an example.
    """
    try:
        return parse_tokens(text, "samples?|sequences?" if field == "samples" else "tok(?:en)?s?")
    except ValueError:
        from flopcast.meant_quantities import meant_count

        right = meant_count(text)
        number = re.match(r"(?!0+[A-Za-z])\d+(?:\.\d+)?(?= ?[A-Za-z]$)", text)  # of "2X"
        usual, unit = {"tokens": ("1T", "T"), "samples": ("52k", "k")}[field]
        if not right[-1:].isalpha() and not right.isdecimal():  # 2T of 2T/epoch, but nothing of 1.5.2T
            begun = re.match(r"\d+(?:\.\d+)?(?=[kMBT]?(?:\.?$|/))", text)
            right = begun[0] + "".join(re.findall(r"(?<=\d)[kMBT]\b", text)) if begun else ""
        usual = f"{number[0]}{unit}" if number else usual
        fix = set_to({field: right}) if right else such_as(field, usual)
        allowed, because = "a number, such as 52,000, 52k, 300B or 2T", "the text is not a number"
        raise NotAllowedError(allowed, because, fix) from None


class RunLength(StrictModel):
    """The length of a whole training run.

    Attributes
    ----------
    tokens : float, optional
        Number of tokens of the run or, if epochs are given, of one epoch.
    samples : int, optional
        Number of sequences of one epoch. Each has the sequence length of the batch.
    epochs : float
        Number of passes over the data; by default 1.

    Examples
    --------
    >>> RunLength(samples="52k", epochs=3).total_tokens(512)
    79872000.0
    >>> RunLength(tokens="2T").total_tokens(512)
    2000000000000.0
    """

    tokens: float | None = Field(default=None, gt=0, le=MOST)
    samples: int | None = Field(default=None, ge=1, le=MOST)
    epochs: Annotated[float, Field(gt=0)] | None = None

    @field_validator("tokens", "samples", mode="before")
    @classmethod
    def _written(cls, value: object, info: ValidationInfo) -> object:
        """Return the number that a text means."""
        return read_count(value, str(info.field_name)) if isinstance(value, str) else value

    @field_validator("epochs", mode="before")
    @classmethod
    def _without_separators(cls, value: object) -> object:
        return without_separators(value) if isinstance(value, str) else value

    @field_validator("samples")
    @classmethod
    def _without_tokens(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("tokens") is not None:
            because = "each of these fields determines the length of the run"
            raise NotAllowedError(f"{ONE_OF}, not both", because, "remove samples, or tokens")
        return value

    @field_validator("epochs")
    @classmethod
    def _of_known_data(cls, value: Number | None, info: ValidationInfo) -> Number | None:
        known = {"tokens", "samples"} - info.data.keys() or any(info.data.values())
        if value is not None and not known:
            because = (
                "flopcast cannot compute the length of a run from the number of epochs without the "
                "size of an epoch"
            )
            raise NotAllowedError(
                f"together with {ONE_OF}", because, Fix("add samples: 52000", ({"samples": 52000},))
            )
        return value

    @model_validator(mode="after")
    def _stated(self) -> "RunLength":
        if self.tokens is None and self.samples is None:
            raise NotAllowedError(
                ONE_OF, "a run needs a length, in tokens or in samples", "add samples or tokens"
            )
        return self

    def total_tokens(self, sample_tokens: Number) -> Number:
        """Return the number of tokens of the whole run, including padding."""
        of_epoch = self.tokens or (self.samples or 0) * sample_tokens
        return of_epoch * (self.epochs or 1.0)

    def text(self) -> str:
        """Return the stated length as text: "52,000 samples, 3 epochs".

        >>> RunLength(tokens=1e9, epochs=2.5).text(), RunLength(samples=1).text()
        ('1.00 B tokens, 2.5 epochs', '1 sample')
        """
        samples = f"{self.samples:,} sample{'' if self.samples == 1 else 's'}" if self.samples else ""
        data = samples or f"{show_count(self.tokens or 0.0)} tokens"
        epochs = "" if self.epochs is None else f", {self.epochs:g} epoch{'' if self.epochs == 1 else 's'}"
        return data + epochs
