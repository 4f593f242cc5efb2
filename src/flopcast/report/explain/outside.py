"""Explanation of the times of copies between memories, and of updates on the host.

Answers: from which bytes and rates are these times computed?
Elsewhere: the rates (cost/tier_copies.py), all other items (steps.py).
"""

from flopcast.cost.item_prices import Priced
from flopcast.cost.tier_constants import (
    HOST_UPDATES,
    INTERLEAVED_ON_DEVICE,
    INTERLEAVED_ON_HOST,
    STATE_COPIES,
    fitted_ratio,
)
from flopcast.cost.tier_copies import (
    device_rate,
    host_memory,
    interleaved_ratio,
    storage_rates,
    update_rate,
)
from flopcast.dtypes import Floats
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.report.explain.explanation import Input
from flopcast.report.explain.kernels import element_at
from flopcast.units import show


def outside_inputs(
    work: TierCopy | HostUpdate, priced: Priced, column: int
) -> tuple[str, tuple[Input, ...]]:
    """Return the formula of a copy or of an update on the host, and the numbers in it.

    Parameters
    ----------
    work : TierCopy or HostUpdate
    priced : Priced
        Gives the cluster and the fitted levels of host and links.
    column : int
        Stage class.

    Returns
    -------
    tuple
        The formula as text, and its inputs. The update on the host takes the longest of three times: the
        update itself, the traffic of its storage, and the concurrent copies.
    """
    cluster, levels = priced.cluster, priced.levels
    if isinstance(work, TierCopy):
        amount, speed = _amount("bytes", work.size_bytes, column), _copy_rate(work, priced)
        return "bytes / rate of one device while all devices of its node copy", (amount, speed)
    ranks, memory = cluster.node.devices, host_memory(cluster)
    formula = "bytes of states and gradients / rate of one rank on the host"
    rate = update_rate(memory, fitted_ratio(levels, HOST_UPDATES)) / ranks
    inputs = [_amount("bytes", work.moved_bytes, column), _rate("rate", rate)]
    if work.stride:
        formula += " × interleaved"
        constants = (fitted_ratio(levels, name) for name in (INTERLEAVED_ON_HOST, INTERLEAVED_ON_DEVICE))
        ratio = interleaved_ratio(work.stride, *constants)
        inputs.append(
            Input(name="interleaved", text=f"{ratio:.3g}", source=f"stride {work.stride}", number=ratio)
        )
    for traffic in work.storage:
        tier = traffic.tier
        formula += f", or bytes / rates of {tier}, if that is longer"
        read, write = storage_rates(cluster, tier)
        inputs += [
            _amount(f"{tier} reads", traffic.read_bytes, column),
            _rate(f"{tier} read rate", read),
            _amount(f"{tier} writes", traffic.written_bytes, column),
            _rate(f"{tier} write rate", write),
        ]
    for copy in work.beside:
        formula += f", or bytes / rate {copy.link}, if that is longer"
        inputs += [_amount(f"bytes {copy.link}", copy.size_bytes, column), _copy_rate(copy, priced)]
    return formula, tuple(inputs)


def _copy_rate(work: TierCopy, priced: Priced) -> Input:
    cluster = priced.cluster
    if work.link in ("to_device", "to_host"):
        memory = "pinned memory" if work.pinned else "memory that is not pinned"
        fraction = work.link_fraction or 1.0 / fitted_ratio(priced.levels, STATE_COPIES)
        return _rate("rate", device_rate(cluster, work.pinned, fraction), f"{memory} of the host")
    read, write = storage_rates(cluster, work.tier)
    return _rate("rate", read if work.link.endswith("read") else write, work.tier)


def _amount(name: str, size_bytes: Floats, column: int) -> Input:
    size = element_at(size_bytes, 0, column)
    return Input(name=name, text=show(size, "B"), source="of one rank", number=size)


def _rate(name: str, bytes_per_s: float, source: str = "of one rank") -> Input:
    return Input(name=name, text=show(bytes_per_s, "B/s"), source=source, number=bytes_per_s)
