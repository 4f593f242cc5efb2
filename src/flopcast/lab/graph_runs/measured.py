"""A measured run of a model that is not a decoder of tokens.

Answers: which quantity of a run was measured, and which graph ran on which device?
Elsewhere: the rows of each table (timm.py, neusight.py, diffusion.py, mlperf.py), predicting runs
(score.py).
"""

from collections.abc import Mapping

from flopcast.cost.graph_kernels.kernel_rows import KernelRows
from flopcast.lab.graph_runs.kernels import Software
from flopcast.lab.scores import Compared, MeasuredNumber, MeasuredRun, Scores
from flopcast.records import Record
from flopcast.units import Number

PER_SECOND: Mapping[str, Number] = {"s": 1.0, "ms": 1e3}


class MeasuredGraph(MeasuredNumber, slots=False):
    """One measured number: a time in its unit, or samples per second with `samples` in a step."""

    samples: Number = 0.0

    def of_seconds(self, seconds: Number) -> Number:
        """Return the seconds of a step as this quantity."""
        return self.samples / seconds if self.samples else seconds * PER_SECOND[self.unit]

    @property
    def seconds(self) -> Number:
        """Return the measured seconds of a step."""
        return self.samples / self.value if self.samples else self.value / PER_SECOND[self.unit]


class Setup(Record):
    """The device and the software of a graph; `efficiencies` names the set of fitted numbers to use."""

    device: str
    software: Software
    efficiencies: str


class GraphRun(MeasuredRun[MeasuredGraph], slots=False):
    """One measured row of a table. Its model may have known facts, published totals, or neither.

    `groups` holds the device, the table and the family.

    Attributes
    ----------
    facts : str
        Name of the model's facts; "" if there are none.
    rows : KernelRows or None
        Kernels of a model whose table states sizes instead of facts.
    batch : float
        Number of samples in a step.
    fixed_s, hops : float
        Seconds of messages, which no efficiency scales, and the number of times that devices of a ring
        pass data on.
    multiply_adds, activations : float
        Published counts for one sample, used if there are no facts.
    """

    setup: Setup
    facts: str = ""
    batch: Number
    rows: KernelRows | None = None
    fixed_s: Number = 0.0
    hops: Number = 0.0
    multiply_adds: Number = 0.0
    activations: Number = 0.0
    notes: tuple[str, ...] = ()


ComparedGraph = Compared[GraphRun, MeasuredGraph]
GraphScores = Scores[GraphRun, MeasuredGraph]
