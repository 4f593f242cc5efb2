"""Power of serving devices, computed from the rates at which kernels multiply and move bytes.

Answers: how much power does a device draw on average, including the time in which it waits for the host or
for requests?
Elsewhere: powers of a device by kind of work (spec/operations.py), watts of training steps
(economics/energy.py), joules and their intervals (estimates.py).

The power of a GEMM is the sum of three parts: the power of a waiting device, energy for each byte that it
moves, and a part in proportion to the square root of its FLOP rate. Products of few rows compute whole
tiles, so the energy per FLOP falls as the rate rises. The power limit is the maximum, at which large
products run with lower clocks. All other kernels draw the power of memory-bound kernels, in proportion to
the rate of their bytes.
"""

from collections.abc import Sequence

import numpy as np

from flopcast.cost.kernels.classes import DECODE, GROUPED_GEMM, SERVED_EXPERTS, class_of
from flopcast.cost.kernels.clocks import most_w
from flopcast.cost.kernels.roofline import SUSTAINED_FRACTION
from flopcast.dtypes import Counts, Floats
from flopcast.economics.energy import WAITING, drawn_w
from flopcast.operators.base import AbstractOperator
from flopcast.records import Record
from flopcast.serving.instances import Instances
from flopcast.serving.pass_prices import PricedPasses, Ratios
from flopcast.serving.served import Served
from flopcast.spec.cluster import Device
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.site import Site
from flopcast.units import Number


class KernelDraw(Record, kw_only=False):
    """The power of kernels of one family, in addition to the power of a waiting device.

    `at_peak_fraction` is the fraction of the board power that these kernels would draw at the peak FLOP
    rate, without a limit. `byte_j` is the energy in joules for each moved byte.
    """

    at_peak_fraction: float
    byte_j: float


# Least absolute errors on kernels of 0.2 ms and more, on H200 and B200 (data/power, aiconfigurator;
# tests/serving/test_kernel_watts.py). Shorter ones are not read for long enough.
PRODUCT_DRAW = KernelDraw(0.69, 71e-12)
DRAWS = {
    **dict.fromkeys((SERVED_EXPERTS, GROUPED_GEMM), KernelDraw(1.3, 107e-12)),
    DECODE: KernelDraw(1.39, 50e-12),
}


class DevicePower(Record):
    """The mean power of a device during passes and between passes, and its uncertainty.

    `log_sigma_factor` is the sigma of the logarithm of the power while passes run.
    """

    running_w: float
    standing_w: float
    log_sigma_factor: float

    def mean_w(self, busy_share: Number) -> float:
        """Return the mean power over time, given the share of the time in which passes run."""
        return busy_share * self.running_w + (1.0 - busy_share) * self.standing_w


def device_power(
    job: ServingJob, priced: PricedPasses, ratios: Ratios, weights: Counts, pass_s: float
) -> DevicePower | None:
    """Return the power of one device; None if its data sheet states no board power.

    Parameters
    ----------
    priced : mean passes of the job
    ratios : of their components: times in the engine divided by times in benchmarks
    weights : shares of the passes of all iterations, (passes,)
    pass_s : seconds of a mean iteration, including the host and waiting for stages
    """
    device = job.cluster.node.device
    if device.board_power_w is None:
        return None
    wait_w, message_w = (drawn_w(kind, device, job.site) for kind in (WAITING, "communication"))
    # busy seconds of the device of each stage in one iteration, summed over the passes in flight
    each = job.passes_in_flight / job.plan.pipeline_parallel
    busy_s = used_j = uncertain_j = 0.0
    draws = device.power
    for item, seconds in priced.seconds():
        ratio = ratios(item.component)
        taken_s = each * ratio * seconds
        work, item_w = item.work, np.array(message_w)
        sigma = draws.communication.log_sigma_factor
        if isinstance(work, AbstractOperator):
            once_s = np.maximum(ratio[:, None] * priced.prices[item].alone_s, 1e-12)
            item_w = np.broadcast_to(kernel_w(work, once_s, device, job.site), (priced.size, 1))[:, 0]
            sigma = draws.memory.log_sigma_factor
        item_j = float((item_w * taken_s) @ weights)
        used_j += item_j
        uncertain_j += sigma * item_j
        busy_s += float(taken_s @ weights)
    idle_s = max(pass_s - busy_s, 0.0)
    used_j += idle_s * wait_w
    uncertain_j += draws.waiting.log_sigma_factor * idle_s * wait_w
    return DevicePower(
        running_w=used_j / max(pass_s, busy_s),
        standing_w=drawn_w("idle", device, job.site),
        log_sigma_factor=uncertain_j / used_j,
    )


class MeanPower(Record):
    """The mean power over time and over all devices of a job."""

    device_w: float
    log_sigma_factor: float


def power_of_kinds(
    kinds: Sequence[Instances], powers: Sequence[DevicePower | None], served: Served
) -> MeanPower | None:
    """Return the mean power of the devices of all kinds of instances; None if it is unknown.

    Parameters
    ----------
    kinds : sequence of Instances
        One entry, or two for pools (prompts first).
    powers : sequence of DevicePower or None
        The power of a device of each kind. None if the board power of the device is not known.
    served : Served
        Gives the share of the time in which iterations run; a device draws `standing_w` in the rest.

    Returns
    -------
    MeanPower or None
        The mean weights each kind by its number of devices. flopcast assumes that all kinds have the same
        error.

    Notes
    -----
    Instances without requests draw `standing_w`. A data-parallel group without requests joins the passes of
    the other groups of its instance, because they share experts: on such a group, vLLM runs a pass of one
    token (execute_dummy_batch in vllm/v1/engine/core.py). Its devices draw as much power as those of the
    other groups.
    """
    span_s = served.end_s - float(served.arrival_s.min())
    engines = (served.prefill_engines, served.engines)[-len(kinds) :]
    devices, total_w, uncertain_w = 0, 0.0, 0.0
    for kind, power, table, number in zip(kinds, powers, served.tables, engines, strict=True):
        if power is None:
            return None
        busy_share = min(float(table.elapsed_s.sum()) / (span_s * number), 1.0)
        if len(kinds) == 1:
            busy_share *= kind.job.busy_replicas / kind.job.replicas
        kind_w = kind.job.devices * power.mean_w(busy_share)
        devices += kind.job.devices
        total_w += kind_w
        uncertain_w += kind_w * power.log_sigma_factor
    return MeanPower(device_w=total_w / devices, log_sigma_factor=uncertain_w / total_w)


def kernel_w(kernel: AbstractOperator, taken_s: Floats, device: Device, site: Site) -> Floats:
    """Return the watts of a device while the kernel of an operator runs for `taken_s`, as arrays of one
    shape.

    >>> from flopcast.dtypes import constant
    >>> from flopcast.library import catalog
    >>> from flopcast.operators.row_sort import RowSort
    >>> h100 = catalog.device("h100-sxm5-80gb")
    >>> sort = RowSort(rows=constant(0), columns=constant(100), dtype="fp32")
    >>> kernel_w(sort, constant(1), h100, Site()).item() == drawn_w(WAITING, h100, Site())
    True
    """
    board_w, work = device.board_power_w or 0.0, kernel.work()
    family = class_of(kernel.kernel).kind
    draw = DRAWS.get(family, PRODUCT_DRAW if family.is_product else None)
    wait_w = device.power.waiting.fraction * board_w
    if draw is None:
        sustained = device.memory_bytes_per_s * SUSTAINED_FRACTION
        rate = np.minimum(work.moved_bytes / (taken_s * sustained), 1.0)
        drawn = wait_w + (device.power.memory.fraction * board_w - wait_w) * rate
    else:
        rate = work.flop / (device.peak(work.unit) * taken_s)
        moving_w = draw.byte_j * work.moved_bytes / taken_s
        drawn = wait_w + draw.at_peak_fraction * np.sqrt(rate) * board_w + moving_w
    sustained_w = device.power.products.fraction * board_w
    found_w: Floats = np.minimum(drawn, min(sustained_w, most_w(site, device)))
    return found_w
