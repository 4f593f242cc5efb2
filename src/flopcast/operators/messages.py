"""Messages between ranks, and their counterparts in the backward pass.

Answers: which collective, over which axis of the plan, with how many bytes?
Elsewhere: how long it takes (cost/collectives), which ranks and links form the axis (cost/placement),
exchanges of experts' tokens (exchanges.py).

Conventions, as in nccl-tests: `message_bytes` is the array that every rank holds for an all-reduce, the
gathered result for an all-gather, the full input of one rank for a reduce-scatter, the sent array for a
point-to-point message, and all copies of one rank's tokens for a dispatch or a combine, including the copy
that stays on the rank, as in an all-to-all. A collective over one rank costs nothing.

The dual of a message is its adjoint. A message is a linear map from the data of the ranks before it to the
data after it, and the transpose of this map sends gradients back. `axis` names the ranks that exchange the
message (operators/base.py).
"""

from typing import ClassVar

from flopcast.operators.base import AbstractMessage
from flopcast.operators.exchanges import Combine, Dispatch


class AllReduce(AbstractMessage):
    """Every rank gets the sum. The gradient of a sum of copies needs no message.

    `message_bytes` is the array that every rank holds. A ring sends 2 (n - 1) / n of it.
    """

    collective: ClassVar[str] = "all_reduce"

    def dual(self) -> "Replicate":
        """Return the dual, which sends nothing: each rank already holds the gradient of its summand."""
        return Replicate(axis=self.axis, message_bytes=self.message_bytes)


class Replicate(AbstractMessage):
    """Every rank uses its copy of one array: nothing is sent, but the gradients must be summed.

    It is `f` in Megatron-LM (arXiv:1909.08053, section 3), and `AllReduce` is `g`.
    """

    collective: ClassVar[str] = ""

    def dual(self) -> AllReduce:
        """Return the dual: the gradients of the copies are summed."""
        return AllReduce(axis=self.axis, message_bytes=self.message_bytes)


class ServedAllReduce(AbstractMessage):
    """Every rank gets the sum, which a serving engine computes.

    For small messages, engines have their own kernels with one or two steps instead of NCCL's trees and
    rings; they use NCCL if it is faster. Engines do not train, so its dual, an all-reduce, is never used.
    """

    collective: ClassVar[str] = "served_all_reduce"

    def dual(self) -> "Replicate":
        """Return the dual of an all-reduce."""
        return Replicate(axis=self.axis, message_bytes=self.message_bytes)


class CustomAllReduce(AbstractMessage):
    """Every rank gets the sum, which vLLM's own kernels compute.

    For small messages, they take longer than the kernels of TensorRT-LLM, which FlashInfer also offers.
    Engines do not train, so its dual is never used.
    """

    collective: ClassVar[str] = "custom_all_reduce"

    def dual(self) -> "Replicate":
        """Return the dual of an all-reduce."""
        return Replicate(axis=self.axis, message_bytes=self.message_bytes)


class StarAllReduce(AbstractMessage):
    """Every rank gets the sum, which one rank computes from the arrays of all ranks and sends back.

    It takes two latencies for any number of ranks, so that it is faster than a ring over links with a long
    latency (TPI-LLM, arXiv:2410.00531). Engines do not train, so its dual is never used.
    """

    collective: ClassVar[str] = "star_all_reduce"

    def dual(self) -> "Replicate":
        """Return the dual of an all-reduce."""
        return Replicate(axis=self.axis, message_bytes=self.message_bytes)


class AllGather(AbstractMessage):
    """Every rank gets all shards; `message_bytes` is the gathered array."""

    collective: ClassVar[str] = "all_gather"

    def dual(self) -> "ReduceScatter":
        """Return the dual: the gradient of a gather is a sum, scattered."""
        return ReduceScatter(axis=self.axis, message_bytes=self.message_bytes)


class RouteGather(AbstractMessage):
    """Every rank gets the routes of all tokens; `message_bytes` is the gathered array of one byte each."""

    collective: ClassVar[str] = "all_gather"

    def dual(self) -> "Replicate":
        """Return a dual that sends nothing, because routes have no gradients."""
        return Replicate(axis=self.axis, message_bytes=self.message_bytes)


class ReduceScatter(AbstractMessage):
    """Every rank gets one shard of the sum; `message_bytes` is the full input of one rank."""

    collective: ClassVar[str] = "reduce_scatter"

    def dual(self) -> AllGather:
        """Return the dual: the gradient of a scatter is a gather."""
        return AllGather(axis=self.axis, message_bytes=self.message_bytes)


class QuantisedReduceScatter(AbstractMessage):
    """Every rank gets one shard of the sum, by all-to-alls of quantised parts (qgZ of ZeRO++).

    `message_bytes` is the full input of one rank in the narrow format. The ranks of a domain first exchange
    and add their parts, so that only the sums, which are quantised again, leave the domain
    (arXiv:2306.10209, section 3.3). The message sums gradients, so its dual, that of a reduce-scatter, is
    never used.
    """

    collective: ClassVar[str] = "quantised_reduce_scatter"

    def dual(self) -> AllGather:
        """Return the dual: the gradient of a scatter is a gather."""
        return AllGather(axis=self.axis, message_bytes=self.message_bytes)


class Broadcast(AbstractMessage):
    """Every rank gets the array of one rank.

    In the backward pass, the gradients of all copies are reduced to this rank.

    `message_bytes` is the size of this array.
    """

    collective: ClassVar[str] = "broadcast"

    def dual(self) -> "Reduce":
        """Return the dual: the gradients of the copies are summed at the source of the array."""
        return Reduce(axis=self.axis, message_bytes=self.message_bytes)


class Reduce(AbstractMessage):
    """One rank gets the sum of an array that every rank has; the backward pass broadcasts its gradient.

    `message_bytes` is the array of one rank.
    """

    collective: ClassVar[str] = "reduce"

    def dual(self) -> Broadcast:
        """Return the dual: every summand gets the gradient of the sum."""
        return Broadcast(axis=self.axis, message_bytes=self.message_bytes)


class SendReceive(AbstractMessage):
    """One rank sends to its neighbour on the axis. The gradient is sent in the opposite direction.

    `message_bytes` is the number of bytes that one rank sends.
    """

    collective: ClassVar[str] = "send_receive"

    def dual(self) -> "SendReceive":
        """Return the dual: the gradient is sent in the opposite direction."""
        return self


class AllToAll(AbstractMessage):
    """Every rank sends an equal part of its array to each other rank, so that the array is divided along
    another axis.

    `message_bytes` is the array of one rank, including the part that stays on it.
    """

    collective: ClassVar[str] = "all_to_all"

    def dual(self) -> "AllToAll":
        """Return the dual, which sends the gradients back."""
        return self


class IndexExchange(AbstractMessage):
    """Indices of look-ups are sent to the ranks that hold the rows: an all-to-all without gradients.

    `message_bytes` has the same meaning as in `AllToAll`. In the backward pass (`backward`) nothing is
    sent.
    """

    backward: bool = False

    @property
    def collective(self) -> str:
        """Return all-to-all, and nothing in the backward pass."""
        return "" if self.backward else "all_to_all"

    def dual(self) -> "IndexExchange":
        """Return the dual, which sends nothing."""
        return IndexExchange(axis=self.axis, message_bytes=self.message_bytes, backward=not self.backward)


class RingPass(AbstractMessage):
    """One step of a ring: every rank sends an array to the next rank, and receives one from the previous.

    In contrast to `SendReceive`, all ranks send at the same time. `order` states which part of a sequence a
    rank holds (spec/plan.py). It determines the work with the received array, but not the message.
    `returns_gradients`: gradients are also sent around the ring; otherwise, ranks sum them in another
    message (workload/rewrites/ring_scores.py).
    """

    order: str = "zigzag"
    returns_gradients: bool = True
    collective: ClassVar[str] = "ring_pass"

    def dual(self) -> "RingPass | Replicate":
        """Return the message of the backward pass: gradients are sent in the opposite direction, or nothing
        is sent.
        """
        if self.returns_gradients:
            return self
        return Replicate(axis=self.axis, message_bytes=self.message_bytes)


MESSAGES: dict[str, type[AbstractMessage]] = {
    "all_reduce": AllReduce,
    "replicate": Replicate,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "broadcast": Broadcast,
    "reduce": Reduce,
    "send_receive": SendReceive,
    "all_to_all": AllToAll,
    "ring_pass": RingPass,
    "dispatch": Dispatch,
    "combine": Combine,
}
