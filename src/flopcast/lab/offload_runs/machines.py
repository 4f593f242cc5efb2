"""The machines of measured runs with states outside the devices, and the DeepSpeed that ran on them.

Answers: which devices, memory and links did the machine of a run have, and how does its DeepSpeed differ
from the catalogue's stack?
Elsewhere: the machine of each run (zero3.py, nvme.py), the machines' rates (catalog/runs/offload.yaml).

The tables do not describe machines, but the logs and the artifacts of the papers distinguish four:
Polaris, whose nodes have 4 A100 and one processor of 32 cores; a node of the same kind with ranks that
are bound to NUMA domains; a node of 4 H100 with 2 x 48 cores, to which ranks are bound; and a node of 4
H100 with drives. The memory and the links follow data sheets. In jobs on several nodes, devices of a node
share its network cards.

Kernels are those of Megatron-DeepSpeed with the flags that the logs print: `use_flash_attn` false,
`masked_softmax_fusion` true. RMSNorm comes from Apex (megatron/model/__init__.py), and there are no fused
kernels for the rotary embedding and the gate. Gradients are reduced between kernels and not concurrently
with them, as the backward passes on several nodes show.

`python tests/offload_accuracy.py rates` prints the rates of machines and the times of a layer. The times
of a step on the host were fitted to the time between the timed parts.
"""

from collections.abc import Mapping

from flopcast.lab.catalog_facts import catalog_facts
from flopcast.strict_model import StrictModel
from flopcast.units import Number

DRIVE_BYTES_PER_S = (6.5e9, 4e9)  # data sheet of a PCIe 4.0 drive, reading and writing
SECOND_PATH_RATIO = 1 / 3  # MLP-Offload divides states by bandwidth: a quarter goes to the file system
FLUSH: Mapping[str, object] = {"gradient_copies": "pinned", "gradient_flush": "overlapped", "strides": True}
KERNELS: Mapping[str, object] = {
    "attention_kernel": "materialised",
    "rewrites": ["fused_softmax", "fused_layernorm", "unfused_rope", "unfused_gate", "bias_dropout_add"],
}
LAYER_TIMES: Mapping[str, object] = {"forward_layer_s": "0.88 ms", "backward_layer_s": "2.9 ms"}
STEP_S, MICRO_BATCH_S = 0.2, 0.24


class Machine(StrictModel):
    """A machine with nodes of `devices` devices.

    The last five rates were fitted to the runs of the machine. Without a fit, the values of data sheets
    are used. Rates of drives are totals over all drives of a node, and 0 if there are none;
    `network_bytes_per_s` is the rate of each device to other nodes.
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
        """Return the cluster that a number of ranks fills, as files describe clusters.

        Parameters
        ----------
        ranks : int
        fitted : bool
            Whether the cluster has the rates fitted to runs of the machine, or those of data sheets.
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


def stack_of(
    *, flushes: bool, micro_batches: int, fitted: bool, device: str, buffers_gradients: bool = True
) -> dict[str, object]:
    """Return the stack of DeepSpeed, in the form of a stack file.

    Parameters
    ----------
    flushes : whether gradients leave through pinned memory during the backward pass
    fitted : whether the host's times and the rate of pinned copies are those fitted on measured runs;
        otherwise, both are left out
    device : name of the device whose runs of DeepSpeed the fitted values come from; used only with `fitted`
    buffers_gradients : whether 16-bit gradients are copied to buffers on the host and back
    """
    offload: dict[str, object] = {"buffers_gradients": buffers_gradients, **(FLUSH if flushes else {})}
    found: dict[str, object] = {"base": "deepspeed-zero", "gradients": {"overlap": False}, **KERNELS}
    if fitted:
        found["fitted_on"] = [device]
        offload |= {"pinned_fraction": 1, **LAYER_TIMES}  # the machine states the rate of its copies
        found["optimizer"] = {"step_host_s": f"{STEP_S + MICRO_BATCH_S * micro_batches} s"}
    return found | {"offload": offload}
