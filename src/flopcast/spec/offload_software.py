"""Settings of training software for states that are placed outside the devices.

Answers: which placements does the software have, how are gradients copied, does anything overlap?
Elsewhere: the rest of a stack (stack.py), the placements of a plan (offload.py).
"""

from typing import Literal

from pydantic import Field

from flopcast.strict_model import StrictModel
from flopcast.units import Number


class OffloadSoftware(StrictModel):
    """The placement of states outside the devices, as a software does it.

    Attributes
    ----------
    places : tuple of str
        Placements that the software has: a kind of state and a memory, such as "optimizer:host".
    gradient_copies : str
        Memory on the host that gradients are copied to. Copies to "pageable" memory are slower than copies
        to "pinned" memory.
    pinned_fraction : float or None
        Fraction of the rate of the link to the host that copies of gradients, parameters and optimizer
        states reach, to and from pinned memory. None takes the constant `state_copies`. Activations, a few
        large tensors, reach all of the rate.
    gradient_flush : str
        When gradients are copied to the host. "blocking": the backward pass waits for each copy.
        "overlapped": copies run during the backward pass. "before_update": in one copy before the update.
        "beside_update": in pieces, while the host updates those that have arrived and returns the others.
    updates_on : str
        Where an optimizer that is placed outside the devices is updated: on the "host", or on the "device",
        to which its states are copied and from which they return.
    strides : bool
        Whether some subgroups of the optimizer can be updated on the device while the host updates the
        others.
    buffer_bytes : float
        Memory of the host, for each rank, through which states on drives and file systems pass.
    forward_layer_s : float
        Time in the forward pass of a block, for each micro-batch, in which the device waits for the
        software to find and release the shards of its parameters, if states are outside the devices and
        parameters are sharded (ZeRO-3).
    backward_layer_s : float
        The same in the backward pass, with the bookkeeping of gradients.
    window_layers : float
        With activations placed outside the device, the number of layers whose activations are on the device
        at the same time: the layer that computes, and the layer that is copied. It is less than 2 if
        copied tensors are freed before their layer ends.
    """

    places: tuple[str, ...] = ()
    gradient_copies: Literal["pageable", "pinned"] = "pinned"
    pinned_fraction: float | None = Field(default=None, gt=0, le=1)
    gradient_flush: Literal["blocking", "overlapped", "before_update", "beside_update"] = "before_update"
    updates_on: Literal["host", "device"] = "host"
    strides: bool = False
    buffer_bytes: float = Field(default=0.0, ge=0)
    forward_layer_s: float = Field(default=0.0, ge=0)
    backward_layer_s: float = Field(default=0.0, ge=0)
    window_layers: Number = Field(default=2.0, ge=1)
