"""Overlap of kernels: how messages and decode attention slow the GEMMs that run at the same time.

Answers: how fast are the kernels of one pass that share a device?
Elsewhere: the engine that overlaps them (engine.py), the time of a pass (serving/overlapped_kernels.py).
"""

from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import Field, model_validator

from flopcast.strict_model import NotAllowedError, StrictModel

Share = Annotated[float, Gt(0), Le(1)]


class Overlap(StrictModel):
    """How kernels of one pass that overlap slow each other down.

    Messages overlap with GEMMs. Decode attention overlaps with GEMMs if `memory_ratio` is not empty. The
    tuples have one entry for each fraction of the device that the overlapping kernel can use.

    Attributes
    ----------
    given_fraction : tuple of float
        Fraction of the device that decode attention or a message uses, and that GEMMs cannot use.
    memory_ratio : tuple of float
        Speed of decode attention with this fraction of the device, divided by its speed on the whole
        device. Empty if decode attention does not overlap with GEMMs.
    network_ratio : tuple of float
        Speed of messages with this fraction of the device, divided by their speed on the whole device.
    split_ratio : float
        Time of the GEMMs of a pass that is split into parts, divided by the time of the GEMMs of the whole
        pass.
    """

    given_fraction: tuple[Annotated[float, Ge(0), Le(1)], ...]
    memory_ratio: tuple[Share, ...] = ()
    network_ratio: tuple[Share, ...]
    split_ratio: float = Field(default=1.0, ge=1)

    @model_validator(mode="after")
    def _one_entry_for_each_share(self) -> "Overlap":
        given = (self.given_fraction, self.network_ratio, self.memory_ratio or self.network_ratio)
        sizes = {len(each) for each in given}
        if len(sizes) > 1:
            because = "the i-th entries of these lists describe the same share of the multiprocessors"
            allowed = "given_fraction, network_ratio and memory_ratio with equally many entries"
            raise NotAllowedError(allowed, because, "write lists of the same length")
        return self


LADDER = Overlap(given_fraction=(0.0,), network_ratio=(1.0,))
"""Messages of blocks with a ladder residual: they are small, so their time is latency."""
