"""Settings of training software for offloaded states.

Answers: what can the software offload, how does it copy gradients, and what overlaps?
Elsewhere: the rest of a stack (stack.py), the offload of a plan (offload.py).
"""

from typing import Literal

from pydantic import Field, model_validator

from flopcast.strict_model import NotAllowedError, StrictModel
from flopcast.units import Number


class OffloadSoftware(StrictModel):
    """How a training framework offloads states to host memory, drives and file systems.

    Attributes
    ----------
    places : tuple of str
        What the framework can offload, and to which memory, such as "optimizer:host".
    gradient_copies : str
        Kind of host memory to which gradients are copied. Copies to "pageable" memory are slower than
        copies to "pinned" memory.
    pinned_fraction : float or None
        Fraction of the bandwidth between device and host that copies of gradients, parameters and optimizer
        states reach with pinned memory. By default (null), the fitted constant `state_copies`. Copies of
        activations always reach the whole bandwidth.
    gradient_flush : str
        When gradients are copied to the host. "blocking": during the backward pass, which waits for each
        copy. "overlapped": during the backward pass, without waiting. "before_update": in one copy before
        the optimizer step. "beside_update": in pieces during the optimizer step; the host updates one piece
        while the next one is copied.
    buffers_gradients : bool
        Whether the reduced gradients of every micro-batch are copied in 16 bits to pinned buffers on the
        host and back, if an optimizer is offloaded under ZeRO-3. They are summed over micro-batches in
        these buffers (`partition_grads` in deepspeed/runtime/zero/stage3.py).
    updates_on : str
        Where the step of an offloaded optimizer runs. "host": on the CPUs. "device": on the device, to
        which states are copied before the update and from which they are copied back.
    overlaps_updates : bool
        Whether the host updates each layer as soon as its gradients have arrived, during the backward pass
        and the next forward pass, in which each layer waits for its new parameters (AutoHete). It needs
        gradients that are copied during the backward pass, ZeRO-2 or ZeRO-3, and a single pipeline stage.
        No gradient norm is then known before the first update. By default, the update begins after the
        backward pass.
    backward_fraction : float
        Fraction of overlapped updates that runs beside the backward pass; the rest runs beside the next
        forward pass. The default is the backward pass's part of the time of both. With 1, all updates end
        before the next forward pass (SuperOffload of DeepSpeed, arXiv:2509.21271).
    strides : bool
        Whether a plan may set a stride: some subgroups of the optimizer are then updated on the device
        while the host updates the others (Deep Optimizer States).
    buffer_bytes : float
        Size of the host buffer of each rank through which states on drives and file systems are copied.
    forward_layer_s : float
        Overhead of the framework in the forward pass of each block and micro-batch if states are offloaded
        under ZeRO-3: the device waits while the framework finds and releases shards of parameters.
    backward_layer_s : float
        Overhead of the framework in the backward pass of each block and micro-batch if states are offloaded
        under ZeRO-3. It includes the bookkeeping of gradients.
    window_layers : float
        Number of layers whose activations are on the device at the same time if activations are offloaded.
        The default of 2 counts the layer that is computed and the layer that is copied. A value below 2
        means that copied tensors are freed before their layer ends.
    """

    places: tuple[str, ...] = ()
    gradient_copies: Literal["pageable", "pinned"] = "pinned"
    pinned_fraction: float | None = Field(default=None, gt=0, le=1)
    gradient_flush: Literal["blocking", "overlapped", "before_update", "beside_update"] = "before_update"
    buffers_gradients: bool = False
    updates_on: Literal["host", "device"] = "host"
    overlaps_updates: bool = False
    backward_fraction: float = Field(default=2 / 3, gt=0, le=1)
    strides: bool = False
    buffer_bytes: float = Field(default=0.0, ge=0)
    forward_layer_s: float = Field(default=0.0, ge=0)
    backward_layer_s: float = Field(default=0.0, ge=0)
    window_layers: Number = Field(default=2.0, ge=1)

    @model_validator(mode="after")
    def _gradients_leave_in_time(self) -> "OffloadSoftware":
        if self.overlaps_updates and (not self.leaves_in_backward or self.updates_on != "host"):
            because = "the host can update a layer during a pass only if it has the layer's gradients"
            raise NotAllowedError(
                "overlaps_updates only with gradient_flush blocking or overlapped and updates_on host",
                because,
                {"stack.offload.gradient_flush": "overlapped"},
            )
        return self

    @property
    def leaves_in_backward(self) -> bool:
        """Return whether gradients are copied to the host during the backward pass, layer by layer."""
        return self.gradient_flush in ("blocking", "overlapped")
