"""The interface of operators and messages, independent of hardware.

Answers: how many FLOP and bytes does one kernel need, which tensors does it keep for the backward
pass, and which operators compute its gradients?
Elsewhere: how long it takes (cost/), how it is sharded (layers/), when it runs (timeline/).
Shapes are local to one rank; sizes count elements unless the name ends in `_bytes`. FLOP count the
multiply-adds of matrix products only: everything else is bound by memory and counts its bytes.

The backward pass of a message is its adjoint, and that of an operator is a list of operators, so no second
set of formulas exists.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from flopcast.dtypes import ONE, ZERO, Counts, Floats
from flopcast.records import Record, RecordType, field


class Work(Record, eq=False):
    """The work of one kernel on a device.

    `flop` run on the matrix engine at precision `unit`. `moved_bytes` are the reads and writes between
    memory and compute units, with each tensor counted once. They are a lower bound for tensors that do not
    fit into a cache. `after_bytes` move after the products, so that nothing hides them. `result_bytes` are
    written in 16 bits by 8- and 4-bit GEMMs of experts; some devices write them after the products.
    `cycles` are the cycles of one multiprocessor for instructions that take longer than the bytes; all
    multiprocessors share this work. `after_cycles` are cycles that nothing hides. `chain_cycles` are cycles
    of instructions that wait for one another, which more multiprocessors do not shorten. `saved_bytes` are
    the part of the moved bytes that the forward pass saved for this kernel. They are no longer in a cache.
    `narrow_side` is the common side of all products, if a matrix engine may be wider; None if measured
    curves already contain its effect. Arrays of shape (plans, 1), or (plans, stage classes) for work on a
    rank.
    """

    flop: Floats
    moved_bytes: Floats
    unit: str
    after_bytes: Floats = field(default_factory=lambda: ZERO)
    result_bytes: Floats = field(default_factory=lambda: ZERO)
    cycles: Counts = field(default_factory=lambda: ZERO)
    after_cycles: Counts = field(default_factory=lambda: ZERO)
    chain_cycles: Counts = field(default_factory=lambda: ZERO)
    saved_bytes: Floats = field(default_factory=lambda: ZERO)
    narrow_side: Counts | None = None


class Saved(Record, eq=False):
    """One tensor that the backward pass needs.

    `role` is "input:0", "input:1", … or "output" (a tensor that flows through the layer and is stored once,
    even if several operators keep it), "tensor:NAME" (another such tensor, by its name in the layer) or any
    other word (a tensor of this operator alone). Means and variances (one number for each row) are too
    small to count; log-sums are counted.
    """

    role: str
    size_bytes: Floats


class _Interface(RecordType, ABCMeta):
    """The class of an interface without virtual subclasses: `isinstance` needs no registry of such."""

    __instancecheck__: ClassVar[Callable[..., bool]] = type.__instancecheck__


class AbstractOperator(Record, metaclass=_Interface, eq=False, slots=False):
    """One kernel-sized piece of work on one rank: a frozen dataclass of arrays."""

    @property
    @abstractmethod
    def kernel(self) -> str:
        """Return the name of the kernel class whose curve prices this operator."""

    @abstractmethod
    def work(self) -> Work:
        """Return FLOP and bytes of one execution."""

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the coordinates of the kernel class's curve, in the order of its axes.

        By default, the only coordinate is the number of bytes that the kernel moves. Coordinates are
        positive, except for the bytes of a kernel that moves nothing (views, a bias that a GEMM adds).
        """
        return (self.work().moved_bytes,)

    def kernels(self) -> Counts:
        """Return the number of kernels of equal size that do this work."""
        return ONE

    def in_turn(self) -> Counts:
        """Return the number of these kernels that wait for each other, each with its own launch."""
        return ONE

    @abstractmethod
    def saves(self) -> tuple[Saved, ...]:
        """Return the tensors that are kept from the forward until the backward pass."""

    @abstractmethod
    def gradients(self) -> "tuple[tuple[str, AbstractOperator], ...]":
        """Return the operators of the backward pass, each with the suffix of its name, input gradient
        first.

        "dgrad" is the gradient of an input, on the critical path of the backward pass; "wgrad" is the
        gradient of a weight, for which nothing in the pass waits. The result is empty if the backward pass
        runs no kernel.
        """


class AbstractWithoutBackward(AbstractOperator):
    """An operator without a backward pass, which serves requests or updates the weights."""

    def saves(self) -> tuple[Saved, ...]:
        """Return nothing, because no backward pass needs a tensor of the operator."""
        return ()

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return no operators."""
        return ()


class AbstractMessage(Record, metaclass=_Interface, eq=False):
    """Data that the ranks of one parallel axis exchange: a frozen dataclass of arrays.

    A message states its axis and its bytes; the plan and the cluster determine its ranks and links.
    `collective` names the formula that gives its seconds (cost/collectives/formulas.py), and `dual` gives
    the message of the backward pass.
    """

    axis: str  # "tp", "cp", "dp", "ep", "etp", "expert_dp", "pp", ...: cost/placement.py
    message_bytes: Floats  # by the convention of the collective

    @property
    @abstractmethod
    def collective(self) -> str:
        """Return the name of the collective whose formula prices this message; "" if nothing is sent."""

    def bytes_in_domains(self, domains: Counts) -> Floats:
        """Return the bytes of the message if its ranks are in this many scale-up domains."""
        return self.message_bytes

    def bytes_to_domains(self, domains: Counts) -> Floats:
        """Return the bytes of the message if at most one copy is sent to each of this many domains."""
        return self.message_bytes

    @abstractmethod
    def dual(self) -> "AbstractMessage":
        """Return the message of the backward pass, whose own dual is this message."""
