"""DeepSpeed as it ran in the logs of measured runs with states outside the devices.

Answers: what differs from the catalogue's stack of DeepSpeed?
Elsewhere: the machines (machines.py), the tables (zero3.py, nvme.py).

Gradients are reduced between kernels and not beside them, as the backward passes of several nodes show. The
times of the host were fitted on the runs of zero3.py: those of a layer on forward and backward passes,
those of a step on what lies between the timed parts.
"""

from collections.abc import Mapping

FLUSH: Mapping[str, object] = {"gradient_copies": "pinned", "gradient_flush": "overlapped", "strides": True}
LAYER_TIMES: Mapping[str, object] = {"forward_layer_s": "1.1 ms", "backward_layer_s": "4 ms"}
STEP_S, MICRO_BATCH_S = 0.2, 0.24


def stack_of(*, flushes: bool, micro_batches: int, fitted: bool) -> dict[str, object]:
    """Return DeepSpeed, as files describe stacks.

    Parameters
    ----------
    flushes : whether gradients leave through pinned memory during the backward pass
    fitted : whether the host's times and the rate of pinned copies are those fitted on measured runs;
        otherwise, layers need none
    """
    offload: dict[str, object] = dict(FLUSH) if flushes else {}
    found: dict[str, object] = {"base": "deepspeed-zero", "gradients": {"overlap": False}}
    if fitted:
        offload |= {"pinned_fraction": 1, **LAYER_TIMES}  # the machine states the rate of its copies
        found["optimizer"] = {"step_host_s": f"{STEP_S + MICRO_BATCH_S * micro_batches} s"}
    return found | {"offload": offload}
