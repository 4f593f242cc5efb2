"""Mamba (the first version): a selective scan whose step sizes, inputs and outputs depend on the token.

Answers: fields, weights, sharding and forward items of the mixer of Mamba, Falcon Mamba and Jamba.
Elsewhere: the scan (operators/gated_delta.py), Mamba-2 (layers/gated_delta_net.py), what an engine runs
(serving/rewrites/cached_states.py).

Tensor parallelism divides the channels. The step sizes and the two matrices of the scan come from all
channels, so ranks add their shares of these few columns.

Tensors, each prefixed "attention.": `in.full` (tokens, hidden) → `mixed` (channels and gates) → `convolved`
→ `steps.partial`, `steps` (rank of the step sizes, and both matrices) → `decays` → `states` (tokens,
channels) → `partial` (tokens, hidden).
"""

from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from flopcast.dtypes import Counts, constant
from flopcast.layers.base import Split, Weight, linear_weights, memory_pass, replicated, row_parallel
from flopcast.layers.gated_delta_net import convolution_of
from flopcast.layers.mixer import AbstractRecurrentMixer
from flopcast.operators.gated_delta import GatedDelta
from flopcast.operators.item import Item, blocking, in_part
from flopcast.operators.matmul import Matmul
from flopcast.operators.messages import AllReduce, Replicate

_item = partial(in_part, "attention")


class SelectiveScan(AbstractRecurrentMixer):
    """The selective scan of Mamba (arXiv:2312.00752).

    Attributes
    ----------
    heads : int
        Number of channels. Each has a state of `state_size` elements.
    state_size : int
        Number of elements of the state of a channel.
    rank : int
        Rank of the product that computes the step size of each channel.
    convolution : int
        Kernel size of the short convolution, in tokens.
    norms : str
        RMS norms of step sizes and of both matrices: "none" (Mamba), "weighted" (Jamba) or "unweighted"
        (Falcon Mamba).

    Examples
    --------
    A sequence in Jamba has states of 512 KiB in each of its 28 layers of this kind:

    >>> mixer = SelectiveScan(heads=8192, state_size=16, rank=256, norms="weighted")
    >>> mixer.state_elements * 4 / 2**10, mixer.linear_elements(hidden=4096)
    (512.0, 105119744)
    """

    kind: Literal["selective_scan"] = "selective_scan"
    in_tensor_region: ClassVar[bool] = True
    heads: int = Field(ge=1)
    state_size: int = Field(default=16, ge=1)
    rank: int = Field(ge=1)
    convolution: int = Field(default=4, ge=1)
    norms: Literal["none", "weighted", "unweighted"] = "none"

    @property
    def state_elements(self) -> int:
        """Return the elements of the states of a sequence, over all channels."""
        return self.heads * self.state_size

    @property
    def last_tokens(self) -> int:
        """Return the number of earlier tokens that the convolution reads."""
        return self.convolution - 1

    @property
    def channels(self) -> int:
        """Return the channels of the convolution."""
        return self.heads

    def local_channels(self, split: Split) -> Counts:
        """Return the channels of the convolution on one rank."""
        return self.heads / split.tensor

    @property
    def _step_columns(self) -> int:
        """Return the number of columns that hold the inputs of step sizes and both matrices of a token."""
        return self.rank + 2 * self.state_size

    def linear_elements(self, hidden: int) -> int:
        """Return the elements of the projections, without products with states."""
        return self.heads * (3 * hidden + self._step_columns + self.rank)

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return projections, convolution, decays and norms; tensor-parallel ranks divide the channels.

        `steps` is the only projection whose input is divided. Each channel has a decay for each element of
        its state, and a weight for its input.
        """
        channels, tensor = self.heads, split.tensor
        taps = channels * (self.convolution + 1)  # and a bias
        decays = channels * (self.state_size + 1)
        norms = (replicated("attention.steps_norm", self._step_columns),)
        return (
            *linear_weights("attention.mix", hidden, 2 * channels, tensor, bias=False),
            Weight(name="attention.convolution", elements=taps / tensor, total=taps),
            row_parallel("attention.steps", channels, self._step_columns, tensor),
            *(norms if self.norms == "weighted" else ()),
            *linear_weights("attention.decays", self.rank, channels, tensor, bias=True),
            Weight(name="attention.decay", elements=decays / tensor, total=decays),
            row_parallel("attention.out", channels, hidden, tensor),
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from "attention.in.full" to "attention.partial", one rank's share of the sum.

        The scan includes the gate. Context parallelism is not supported (spec/rules_context.py).
        """
        channels, tokens = self.heads / split.tensor, split.tokens
        columns = constant(self._step_columns)

        def product(width: Counts, length: Counts) -> Matmul:
            return Matmul(m=tokens, n=width, k=length, dtype=split.dtype)

        core = GatedDelta(
            sequences=split.sequences,
            tokens=split.length,
            heads=channels,
            key_heads=constant(1),
            key_size=constant(self.state_size),
            value_size=constant(1),
            dtype=split.dtype,
            rule="selective",
        )
        norm = memory_pass("rmsnorm", tokens * columns, split, columns)
        normed = (_item("steps_norm", norm, ("steps",), "steps"),)
        return (
            _item("mix", product(2 * channels, constant(hidden)), ("in.full",), "mixed"),
            _item("convolve", convolution_of(channels, split), ("mixed",), "convolved"),
            _item("steps", product(columns, channels), ("convolved",), "steps.partial"),
            *self._summed_steps(split),
            *(normed if self.norms != "none" else ()),
            _item("decays", product(channels, constant(self.rank)), ("steps",), "decays"),
            _item("delta", core, ("convolved", "decays", "mixed"), "states"),
            _item("out", product(constant(hidden), channels), ("states",), "partial"),
        )

    def _summed_steps(self, split: Split) -> tuple[Item, ...]:
        """Return messages that add the ranks' shares of the steps, and of their gradients backward."""
        sent_bytes = split.tokens * self._step_columns * split.element_bytes
        total = AllReduce(axis="tp", message_bytes=sent_bytes)
        gradient = Replicate(axis="tp", message_bytes=sent_bytes)
        return (
            blocking("attention.sum_steps", total, "attention.steps.partial", "attention.steps"),
            blocking("attention.enter_steps", gradient, "attention.steps", "attention.steps"),
        )
