"""Collectives that send low-precision elements in one direction and 16-bit elements in the other.

Answers: how many bytes are sent in the forward and in the backward pass if activations or gradients are
cast before they are sent?
Elsewhere: collectives whose dual has the same bytes (messages.py), the casts (workload/rewrites).
"""

from flopcast.dtypes import Floats
from flopcast.operators.base import AbstractMessage

DUALS = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather"}


class LowPrecisionMessage(AbstractMessage):
    """A collective of DUALS with `message_bytes`, whose dual has `dual_bytes`.

    Gathers copy elements, which may have 8 or 4 bits; reductions add elements, which keep 16 or 32 bits.
    Bytes are counted by each collective's own convention (messages.py).

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> gather = LowPrecisionMessage(kind="all_gather", axis="tp", message_bytes=constant(8),
    ...     dual_bytes=constant(16))
    >>> gather.dual().collective, gather.dual().message_bytes.item()
    ('reduce_scatter', 16.0)
    """

    kind: str
    dual_bytes: Floats

    @property
    def collective(self) -> str:
        """Return the collective of this kind."""
        return self.kind

    def dual(self) -> "LowPrecisionMessage":
        """Return the collective of the backward pass with `dual_bytes`, whose dual is this message."""
        return LowPrecisionMessage(
            kind=DUALS[self.kind],
            axis=self.axis,
            message_bytes=self.dual_bytes,
            dual_bytes=self.message_bytes,
        )
