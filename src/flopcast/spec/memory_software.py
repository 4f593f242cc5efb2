"""Memory that a training framework needs in addition to parameters, gradients, optimizer states and
activations.

Answers: which buffers does the software allocate, and how much memory does it need for each logit of the
loss?
Elsewhere: the peak of memory (memory/), other properties of the software (stack.py).
"""

from typing import Literal

from pydantic import Field

from flopcast.strict_model import StrictModel

OTHER_CODE: dict[str, object] = {"memory": {"compared": False}}
"""Change of a TorchTitan stack that describes other training code, whose peaks were not compared."""


class Memory(StrictModel):
    """Memory other than parameters, gradients, optimizer states and saved activations.

    Attributes
    ----------
    workspace_bytes : float
        Memory that cuBLAS and similar libraries take from the allocator of the framework.
    logit_bytes : float
        Memory for each logit while the loss is computed. The default is a 16-bit and an fp32 copy.
    sharded_logit_bytes : float, optional
        Memory for each logit if each tensor-parallel rank holds a part of the logits. By default,
        `logit_bytes`.
    gathers_logits : bool
        Whether each tensor-parallel rank holds all logits. The time to gather them is not predicted.
    stage_outputs : int
        Number of copies of its output that a stage keeps for each micro-batch until its backward pass.
    weight_gradients : str
        What the backward pass of a linear layer allocates for the gradient of its weight. "written": a
        tensor of the weight's shape, which is freed when the gradient has been added to the gradient
        buffer. "placeholder": the GEMM adds the gradient to the buffer directly, and one unused tensor of
        each shape stays allocated for autograd (Transformer Engine's `get_dummy_wgrad`).
    keeps_gradients : bool
        Whether gradients are in one buffer that stays allocated (Megatron-LM), instead of being freed
        between steps (PyTorch).
    score_buffer : bool
        Whether a buffer for the scores of one layer stays allocated if attention is not fused.
    received_activations : int
        Number of buffers for received activations that stay allocated for each chunk of a pipeline stage.
    update_bytes : float
        Memory that is allocated during the optimizer step, for each parameter that the rank updates.
    bucket_copies : int
        Number of gradient buckets of which a copy exists during their reduction.
    context_bytes : float
        Memory of the CUDA context, which is not part of the framework's allocator.
    communicator_bytes : float
        Memory of the buffers of one communicator (NCCL), which are not part of the framework's allocator.
    fragmentation_fraction : float
        Memory that the allocator reserves but has not given out, divided by the allocated memory.
    compared : bool
        Whether the predicted peaks were compared with logged peaks of this framework, and corrected. If
        not, the interval of the predicted memory is much wider (memory/verdict.py).
    verified : bool
        Whether logged peaks of this framework have confirmed the predicted peaks. If not, the interval of
        the predicted memory is wider.
    """

    workspace_bytes: float = Field(default=64e6, ge=0)
    logit_bytes: float = Field(default=6.0, ge=0)
    sharded_logit_bytes: float | None = Field(default=None, ge=0)
    gathers_logits: bool = False
    stage_outputs: int = Field(default=0, ge=0)
    weight_gradients: Literal["written", "placeholder"] = "written"
    keeps_gradients: bool = False
    score_buffer: bool = False
    received_activations: int = Field(default=0, ge=0)
    update_bytes: float = Field(default=0.0, ge=0)
    bucket_copies: int = Field(default=0, ge=0)
    context_bytes: float = Field(default=0.6e9, ge=0)
    communicator_bytes: float = Field(default=0.25e9, ge=0)
    fragmentation_fraction: float = Field(default=0.08, ge=0)
    compared: bool = False
    verified: bool = False

    @property
    def writes_weight_gradients(self) -> bool:
        """Return whether a linear's backward allocates a tensor of its weight's shape."""
        return self.weight_gradients == "written"
