"""Which fitted numbers price the kernels of an exported graph.

Answers: which efficiencies, levels and uncertainties apply to the software and the device of a job?
Elsewhere: the numbers (efficiencies.py, library/graph_efficiencies.py), the seconds (efficiency.py).
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from flopcast.cost.graph_kernels.efficiencies import Efficiencies
from flopcast.cost.graph_kernels.efficiency import (
    COMPUTE,
    MEMORY,
    Rates,
    design,
    efficiency_of,
    number_names,
    priced,
    prior_numbers,
)
from flopcast.cost.graph_kernels.kernel_classes import GRAPH_KERNELS, IS_VECTOR
from flopcast.cost.graph_kernels.kernel_rows import KernelRows
from flopcast.cost.graph_kernels.operator_rows import is_described, is_of_graphs_alone, rows_of_items
from flopcast.cost.graph_kernels.rates import rates_of
from flopcast.cost.kernels.generations import NEWEST, generation_ratio
from flopcast.dtypes import Floats, Logs
from flopcast.operators.base import AbstractOperator
from flopcast.operators.graph_kernel import GraphKernel
from flopcast.operators.item import Item
from flopcast.records import Record, replace
from flopcast.spec.cluster import Device
from flopcast.units import Number

EAGER, COMPILED, TRAINING, PROCESSOR = "eager", "compiled", "training", "cpu"
UNFITTED = "not fitted"
FUSED = "fused_"  # kernels that a compiler joined, in the names of numbers
UNFITTED_LOG_SIGMA = 0.3  # of the priors


class GraphSoftware(Record, eq=False):
    """The numbers that price a job's graph; `sources` are the tables on which they were fitted.

    `kind` is the kind of software, or states that nothing was fitted. `whole`: all blocks of the model are
    graphs, so GEMMs and attention are also priced with these numbers.
    """

    kind: str
    numbers: Logs
    levels: tuple[float, float]
    log_sigma_factor: Number
    sources: tuple[str, ...] = ()
    whole: bool = True
    attention: str = NEWEST  # generation of its kernels, which the stack states
    is_measured: bool = False  # whether steps of this device are among the fitted ones
    call_s: Number = 0.0  # of each kernel on a processor, beside its work

    def prices(self, item: Item) -> bool:
        """Return whether an item is priced as a kernel of a graph."""
        return is_of_graphs_alone(item) or (self.whole and is_described(item))

    def parts(self, items: Sequence[Item], device: Device) -> "GraphSeconds":
        """Return the seconds of items, and their parts."""
        rows, shapes = rows_of_items(items)
        ratios = [generation_ratio(self.attention, _kernel(item), device.name)[0] for item in items]
        rows = replace(rows, time_ratio=np.repeat(ratios, [math.prod(shape) for shape in shapes]))
        unit = next(item.work.work().unit for item in items if isinstance(item.work, AbstractOperator))
        rates = rates_of([(device, unit)])
        compute_ratio, memory_ratio = np.exp(self.levels)
        scaled = Rates(
            flop_per_s=rates.flop_per_s * compute_ratio,
            vector_flop_per_s=rates.vector_flop_per_s * compute_ratio,
            bytes_per_s=rates.bytes_per_s * memory_ratio,
            launch_s=rates.launch_s + self.call_s,
        )
        compute, memory = (
            design(rows, bound).sums(self.numbers, len(rows.graph)) for bound in (COMPUTE, MEMORY)
        )
        return GraphSeconds(
            rows=rows,
            shapes=shapes,
            rates=scaled,
            whole_s=priced(rows, scaled, compute, memory).whole_s,
            efficiencies={COMPUTE: efficiency_of(compute), MEMORY: efficiency_of(memory)},
        )


def _kernel(item: Item) -> str:
    """Return the kernel class of an item's operator."""
    return item.work.kernel if isinstance(item.work, AbstractOperator) else ""


class GraphSeconds(Record, eq=False):
    """Seconds of items, one after another, and their parts; `shapes` contains the shape of each item."""

    rows: KernelRows
    shapes: list[tuple[int, ...]]
    rates: Rates
    whole_s: Floats
    efficiencies: Mapping[str, Floats]  # by bound

    @property
    def seconds(self) -> Floats:
        """Return the seconds including launches; 0 for an item that moves no bytes."""
        launch_s = self.rows.calls * self.rates.launch_s[self.rows.graph]
        return np.where(self.rows.moved_bytes > 0, self.whole_s + launch_s, 0.0)

    @property
    def name(self) -> str:
        """Return the class of the first kernel."""
        return tuple(GRAPH_KERNELS)[int(self.rows.kernel[0])]

    @property
    def is_vector(self) -> bool:
        """Return whether the first kernel runs without matrix engines."""
        return bool(IS_VECTOR[self.rows.kernel[0]])

    @property
    def flop_per_s(self) -> Number:
        """Return the rate of the first kernel under load."""
        rates = self.rates.vector_flop_per_s if self.is_vector else self.rates.flop_per_s
        return float(rates[0])

    @property
    def bytes_per_s(self) -> Number:
        """Return the rate of the memory under load."""
        return float(self.rates.bytes_per_s[0])


def usual_levels(fitted: Sequence[Sequence[float]], *, is_processor: bool) -> tuple[float, float]:
    """Return the two levels of a device without measurements, given those of fitted devices.

    They are the means of other processors for a processor, and 0 for other devices, whose power limits
    differ (rates.py).
    """
    compute, memory = np.mean(fitted, axis=0).tolist() if is_processor and len(fitted) else (0.0, 0.0)
    return compute, memory


def graph_software(
    known: Mapping[str, Efficiencies],
    items: Iterable[Item],
    device: Device,
    attention: str,
    *,
    trains: bool,
    whole: bool,
) -> GraphSoftware:
    """Return the numbers for a job, fitted on training or inference, eager or compiled; otherwise the
    priors.

    No table contains measurements of compiled training. Its numbers are those of eager training, except for
    kernels that a compiler fuses, whose numbers are those of compiled inference. Tables of CPUs contain
    compiled inference on two CPUs. All other CPUs have the means of their levels, with the uncertainty of
    other devices.
    """
    is_compiled = any(isinstance(item.work, GraphKernel) and item.work.is_joined for item in items)
    name = TRAINING if trains else COMPILED if is_compiled else EAGER
    kind = f"{COMPILED} {TRAINING}" if trains and is_compiled else name
    if device.is_processor:
        name = kind = PROCESSOR
    found = known.get(name)
    if found is None:
        return GraphSoftware(
            kind=UNFITTED,
            numbers=prior_numbers(),
            levels=(0.0, 0.0),
            log_sigma_factor=UNFITTED_LOG_SIGMA,
            whole=whole,
            attention=attention,
        )
    numbers = found.numbers
    if trains and is_compiled and COMPILED in known:
        joined = np.array([name.startswith(FUSED) for name in number_names()])
        numbers = np.where(joined, known[COMPILED].numbers, numbers)
    is_known = device.name in found.levels
    usual = usual_levels([*found.levels.values()], is_processor=device.is_processor)
    return GraphSoftware(
        kind=kind,
        numbers=numbers,
        levels=found.levels.get(device.name, usual),
        log_sigma_factor=found.log_sigma_factor if is_known else found.other_device_log_sigma_factor,
        sources=found.sources,
        whole=whole,
        attention=attention,
        is_measured=is_known,
        call_s=found.call_s,
    )
