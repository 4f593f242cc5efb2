"""Constants of memory outside the devices that were fitted to whole runs, and their defaults.

Answers: how much slower than their hardware are copies of states, updates on the host and checkpoints?
Elsewhere: the fitted values (catalog/constants), seconds of copies and updates (tier_copies.py), seconds of
checkpoints (economics/checkpoints.py) and of handoffs (rl/handoff.py).

A constant is a measured time divided by the time that follows from the hardware or from an estimate.
Without a fitted value, as under `--no-constants`, its ratio is 1, and its sigma is the wide sigma of this
file.
"""

from collections.abc import Mapping

from flopcast.cost.constant_transfer import FittedLevel

STATE_COPIES = "state_copies"
HOST_UPDATES = "host_updates"
INTERLEAVED_ON_HOST, INTERLEAVED_ON_DEVICE = "interleaved_update[host]", "interleaved_update[device]"
SERIALISING = "checkpoint_copies[serialised]"
ALLOCATED_COPIES = "checkpoint_copies[allocated]"
CHUNKED_COPIES = "checkpoint_copies[chunked]"
OPENED_FILES = "checkpoint_files"
INTERFERENCE = "checkpoint_interference[asynchronous]"
HANDOVER = "checkpoint_handover"
HANDED_TENSORS = "handoff_tensors"

LOG_SIGMAS: Mapping[str, float] = {  # of their logarithms, where nothing was fitted
    STATE_COPIES: 0.5,
    HOST_UPDATES: 0.7,
    INTERLEAVED_ON_HOST: 0.3,
    INTERLEAVED_ON_DEVICE: 0.7,
    SERIALISING: 0.7,
    ALLOCATED_COPIES: 0.7,
    CHUNKED_COPIES: 0.7,
    OPENED_FILES: 1.0,
    INTERFERENCE: 1.0,
    HANDOVER: 1.0,
    HANDED_TENSORS: 1.0,
}


def fitted_ratio(levels: Mapping[str, FittedLevel], name: str) -> float:
    """Return the fitted ratio of a constant; 1 if it was not fitted.

    >>> fitted_ratio({}, STATE_COPIES)
    1.0
    """
    return levels[name].ratio if name in levels else 1.0
