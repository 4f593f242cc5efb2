"""The machines of measured runs with states outside the devices, and DeepSpeed as it ran on them.

Answers: which devices, memory and links did the machine of a run have, and what differs from the
catalogue's stack of DeepSpeed?
Elsewhere: which run ran where (zero3.py, nvme.py), the machines' rates (catalog/runs/offload.yaml).

The tables do not describe machines. Names of folders, times and the artifacts of the papers tell four
apart: nodes of 4 A100 with one processor, whose ranks are bound to NUMA domains or not; nodes of 4 H100
with two processors; and a node of 4 H100 with drives. Hosts, memory and links are assumed. Devices of the
nodes of A100 share one card of 100 Gb/s, of which gathers reach two thirds.

Gradients are reduced between kernels and not beside them, as the backward passes of several nodes show. The
times of the host were fitted on the runs of zero3.py: those of a layer on forward and backward passes,
those of a step on what lies between the timed parts.
"""

from collections.abc import Mapping

from flopcast.lab.catalog_facts import catalog_facts
from flopcast.strict_model import StrictModel
from flopcast.units import Number

DRIVE_BYTES_PER_S = (6.5e9, 4e9)  # data sheet of a PCIe 4.0 drive, reading and writing
SECOND_PATH_RATIO = 1 / 3  # MLP-Offload divides states by bandwidth: a quarter goes to the file system
FLUSH: Mapping[str, object] = {"gradient_copies": "pinned", "gradient_flush": "overlapped", "strides": True}
LAYER_TIMES: Mapping[str, object] = {"forward_layer_s": "1.1 ms", "backward_layer_s": "4 ms"}
STEP_S, MICRO_BATCH_S = 0.2, 0.24


class Machine(StrictModel):
    """A machine with nodes of `devices` devices.

    The last five rates were fitted on the runs of the machine. Without them, data sheets stand in. Rates of
    drives are those of all drives of a node, and 0 where there are none; `network_bytes_per_s` is that of
    each device, to other nodes.
    """

    name: str
    device: str
    host: str
    devices: int
    capacity_bytes: float
    memory_bytes_per_s: float
    scale_up_bytes_per_s: float
    fabric: str
    network_bytes_per_s: float
    optimizer_bytes_per_s: float
    pageable_bytes_per_s: float
    pinned_bytes_per_s: float
    read_bytes_per_s: float = 0.0
    write_bytes_per_s: float = 0.0

    def cluster(self, ranks: int, fitted: bool = True) -> dict[str, object]:
        """Return the cluster that so many ranks fill, as files describe clusters.

        Parameters
        ----------
        ranks : int
        fitted : bool
            Whether rates that were fitted on runs of the machine are part of it, or those of data sheets.
        """
        used = min(ranks, self.devices)
        node: dict[str, object] = {"devices": used, "host": self.host}
        memory: dict[str, object] = {
            "capacity_bytes": f"{self.capacity_bytes} B",
            "bytes_per_s": f"{self.memory_bytes_per_s} B/s",
        }
        device: dict[str, object] = {"base": self.device}
        if fitted:
            memory["optimizer_bytes_per_s"] = f"{self.optimizer_bytes_per_s} B/s"
            memory["pageable_bytes_per_s"] = f"{self.pageable_bytes_per_s} B/s"
            device["host_bytes_per_s"] = f"{self.pinned_bytes_per_s} B/s"
        node |= {"device": device, "memory": memory}
        found: dict[str, object] = {}
        if self.read_bytes_per_s:
            rates = (self.read_bytes_per_s, self.write_bytes_per_s) if fitted else DRIVE_BYTES_PER_S
            node["nvme"] = _storage(*rates)
            found["file_system"] = _storage(*(SECOND_PATH_RATIO * rate for rate in rates))
        return found | {
            "name": self.name,
            "groups": [{"count": ranks // used, "node": node}],
            "tiers": [
                {
                    "name": "nvlink",
                    "devices": used,
                    "bytes_per_s": f"{self.scale_up_bytes_per_s} B/s",
                    "latency_s": "5 us",
                    "fabric": self.fabric,
                },
                {
                    "name": "network",
                    "devices": 0,
                    "bytes_per_s": f"{self.network_bytes_per_s} B/s",
                    "latency_s": "10 us",
                },
            ],
        }


def _storage(read_bytes_per_s: Number, write_bytes_per_s: Number) -> dict[str, object]:
    return {
        "capacity_bytes": "30 TB",
        "read_bytes_per_s": f"{read_bytes_per_s} B/s",
        "write_bytes_per_s": f"{write_bytes_per_s} B/s",
    }


class _Machines(StrictModel):
    machines: tuple[Machine, ...]


def machines() -> Mapping[str, Machine]:
    """Return the machines of the tables by name."""
    return {machine.name: machine for machine in catalog_facts("offload", _Machines).machines}


def stack_of(*, flushes: bool, micro_batches: int, fitted: bool, device: str) -> dict[str, object]:
    """Return DeepSpeed, as files describe stacks.

    Parameters
    ----------
    flushes : whether gradients leave through pinned memory during the backward pass
    fitted : whether the host's times and the rate of pinned copies are those fitted on measured runs;
        otherwise, layers need none
    device : name of the device, on which runs of DeepSpeed were then fitted
    """
    offload: dict[str, object] = dict(FLUSH) if flushes else {}
    found: dict[str, object] = {"base": "deepspeed-zero", "gradients": {"overlap": False}}
    if fitted:
        found["fitted_on"] = [device]
        offload |= {"pinned_fraction": 1, **LAYER_TIMES}  # the machine states the rate of its copies
        found["optimizer"] = {"step_host_s": f"{STEP_S + MICRO_BATCH_S * micro_batches} s"}
    return found | {"offload": offload}
