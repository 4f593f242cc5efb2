"""Precision recipes: which GEMMs run in 8 or 4 bits, in which format, and what the casts cost.

Answers: what does a plan's `precision` mean, and which details depend on the stack?
Elsewhere: the formats (operators/formats.py), the rewrite that applies a recipe
(workload/rewrites/quantise.py), how fast low-precision GEMMs run (cost/kernels/fallback_classes.py), the
rules (rules_precision.py).

In every recipe, all three GEMMs of a linear layer (forward, input gradient, weight gradient) run in low
precision. Attention, norms, the router of experts, the head, embeddings and the residual stream stay in
bf16. Sums, main gradients and optimizer states are as in bf16 training.
"""

from typing import Annotated, Literal

from pydantic import Field

from flopcast.operators.formats import FORMATS
from flopcast.records import Record
from flopcast.strict_model import StrictModel

Precision = Literal["fp16", "bf16", "fp32", "fp8", "fp8_current", "fp8_blockwise", "mxfp8", "nvfp4"]
SmallerActivation = Literal["recast", "gate_inputs", "attention_outputs"]
SIXTEEN_BITS = ("fp16", "bf16")  # precisions without a recipe
WIDE = "fp32"
NORMS = ("layernorm", "rmsnorm", "fused_layernorm", "fused_rmsnorm")


class Recipe(Record):
    """The conversion of tensors to operands of GEMMs in 8 or 4 bits.

    Attributes
    ----------
    format : str
        Format of both operands of all three GEMMs.
    reads : int
        How often a cast reads the tensor: once if the scale is known or computed for each block, twice if
        the largest value of the whole tensor must be found first.
    cast_kernels : int
        Number of kernels of one cast: 3 if one kernel finds the largest value and another computes the
        scale.
    norm_passes : int
        Number of passes over the 16-bit tensor that are saved if a norm computes this tensor: two if the
        norm writes low-precision elements itself (its own write, and the read of the cast), one if the norm
        finds the largest value (the first read of the cast).
    transforms : bool
        Whether the columns of inputs and gradients are Hadamard-transformed before they are cast. The
        transform reads the tensor once more, unless the stack casts rows and columns together
        (`fused_transform`). Weights are not transformed.
    agrees : str
        Which ranks agree on the largest value. "stage": all ranks of a stage, once per pass (delayed
        scaling). "tensor": the ranks that share a tensor, where it is gathered. Otherwise, none.
    both_layouts : bool
        Whether a tensor is cast both along rows and along columns, because its blocks extend along the
        summed axis. In other recipes, the second copy is a transpose, which is needed by devices that read
        only one layout.
    low_precision_updates : bool
        Whether parameters that are stored in low precision are also gathered in low precision after other
        ranks have updated them. This is false for recipes whose second layout is cast from 16-bit elements:
        these parameters are gathered in 16 bits and then cast.
    for_output_layer : bool
        Whether Megatron-Core can also use the recipe for the output layer.
    source : str
        Source of these facts. `norm_passes`: csrc/extensions/normalization.cpp of Transformer Engine;
        `low_precision_updates`: Megatron-Core, core/distributed: buffers of 8-bit parameters hold their
        bytes, but those of MXFP8 bf16 (`reuse_grad_buf_for_mxfp8_param_ag`).
    """

    format: str
    reads: int = 1
    cast_kernels: int = 1
    norm_passes: int = 0
    transforms: bool = False
    agrees: Literal["stage", "tensor", ""] = ""
    both_layouts: bool = True
    low_precision_updates: bool = True
    for_output_layer: bool = False
    source: str


TE = "Transformer Engine 2, transformer_engine/pytorch"
BOTH_PASSES = 2  # a norm's write, and the read of the cast after it
RECIPES: dict[str, Recipe] = {
    "fp8": Recipe(  # per tensor, scales from the largest values of earlier steps
        format="fp8",
        norm_passes=BOTH_PASSES,
        agrees="stage",
        both_layouts=False,
        source=f"arXiv:2209.05433, section 4.3; DelayedScaling: {TE}/fp8.py",
    ),
    "fp8_current": Recipe(  # per tensor, scales from the tensor itself
        format="fp8",
        reads=2,
        cast_kernels=3,
        norm_passes=1,
        agrees="tensor",
        both_layouts=False,
        source=f"Float8CurrentScaling: {TE}/tensor/float8_tensor.py, {TE}/csrc/quantizer.cpp",
    ),
    "fp8_blockwise": Recipe(
        format="fp8_block",
        source=f"arXiv:2412.19437, section 3.3; Float8BlockScaling: {TE}/tensor/float8_blockwise_tensor.py",
    ),
    "mxfp8": Recipe(
        format="mxfp8",
        low_precision_updates=False,
        for_output_layer=True,
        source=f"arXiv:2506.08027, section 3; MXFP8BlockScaling: {TE}/tensor/mxfp8_tensor.py",
    ),
    "nvfp4": Recipe(  # stochastic rounding happens inside the passes of the cast
        format="nvfp4",
        reads=2,
        transforms=True,
        agrees="tensor",
        low_precision_updates=False,
        source=f"arXiv:2509.25149, sections 2 and 4; NVFP4Quantizer: {TE}/csrc/quantizer.cpp",
    ),
}


def activation_dtype(precision: str) -> str:
    """Return the dtype of everything except operands of low-precision GEMMs: bf16 under every recipe.

    >>> activation_dtype("fp16"), activation_dtype("nvfp4")
    ('fp16', 'bf16')
    """
    return "bf16" if precision in RECIPES else precision


def scales_loss(precision: str) -> bool:
    """Return whether training in a precision scales the loss: gradients of fp16 may vanish or overflow.

    arXiv:1710.03740, section 3.2.
    """
    return precision == "fp16"


def product_engine(precision: str) -> str:
    """Return the matrix engine of a plan's linear layers. MFU is relative to its peak rate.

    >>> product_engine("mxfp8"), product_engine("bf16")
    ('fp8', 'bf16')
    """
    return FORMATS[RECIPES[precision].format].engine if precision in RECIPES else precision


Cycles = Annotated[float, Field(ge=0)]


class CastCycles(StrictModel):
    """Cycles of one multiprocessor for each element that is cast; 0 if memory limits the casts.

    Attributes
    ----------
    inputs : float
        Inputs of linear layers.
    gradients : float
        Gradients of their outputs.
    weights : float
        Weights.
    """

    inputs: Cycles = 0.0
    gradients: Cycles = 0.0
    weights: Cycles = 0.0


class NarrowProducts(StrictModel):
    """How a training framework trains in 8 and 4 bits. These settings have no effect on plans in 16 bits.

    Attributes
    ----------
    narrow_parameters : bool
        Whether weights of 8-bit linear layers are stored only in 8 bits, without a 16-bit copy
        (Megatron-Core's `fp8_param_gather`). Under ZeRO, updated weights are then gathered in 8 bits if the
        recipe allows it. Under nvfp4, trained weights always stay in 16 bits.
    frozen_parameters : bool
        Whether the frozen weights of a fine-tune with adapters are stored only in the format of the recipe.
        They are cast once, before training. This includes nvfp4, whose two layouts are both stored.
    weight_caching : bool
        Whether low-precision copies of weights are kept for all micro-batches of a step (Transformer
        Engine's `is_first_microbatch`). Megatron-Core's `disable_parameter_transpose_cache` sets it to
        false. If false, weights are cast in every forward pass. Weights that are stored only in 8 bits are
        instead transposed in every backward pass, on devices that need a transposed copy.
    narrow_gathers : bool
        Whether tensors are cast before the all-gathers of sequence parallelism, so that they are sent in
        low precision. It applies to the forward and the backward pass.
    narrow_dispatch : bool
        Whether tokens are sent to their experts in 8 bits (DeepSeek-V3, arXiv:2412.19437, section 3.3.3).
        The outputs of experts and gradients are always sent in 16 bits.
    smaller_activations : tuple of str
        What a layer keeps in fewer bytes under a recipe (arXiv:2412.19437, section 3.3.3).
        "recast": operands of linear layers whose 16-bit source is recomputed are cast again, and not kept.
        "gate_inputs": gated activation functions keep their inputs in 8 bits.
        "attention_outputs": the output of attention is kept once, in 12 bits, for its own backward pass and
        for the linear layer behind it.
    block_scaled_norms : bool
        Whether the kernel of a norm also casts its output to MXFP8, with one scale per block (Transformer
        Engine with `NVTE_NORM_FWD_USE_CUDNN=1`). If false, a second kernel casts it.
    fused_transform : bool
        Whether one kernel casts a tensor to nvfp4 in both layouts: rows, and Hadamard-transformed columns
        (Transformer Engine 2.14 and later, pull request 2555). If false, two kernels each read the 16-bit
        tensor.
    nvfp4_cast_cycles : CastCycles
        Cycles of the instructions of casts to nvfp4: Hadamard transforms, random numbers and scales.
    transposes : bool
        Whether operands with one scale per tensor need a transposed copy, as on Hopper. Do not set it:
        flopcast sets it from the device of the job.
    wide_first_blocks : int
        Number of blocks at the beginning of the model whose GEMMs stay in bf16.
    wide_last_blocks : int
        Number of blocks at the end of the model whose GEMMs stay in bf16.
    wide_mtp : bool
        Whether the GEMMs of multi-token prediction stay in bf16.
    attention : bool
        Whether fused attention has 8-bit operands (Megatron-Core's `fp8_dot_product_attention`): MXFP8 if
        the scales of the recipe apply to blocks, and FP8 otherwise.
    output_layer : bool
        Whether the GEMMs of the output layer have the format of the recipe (Megatron-Core's
        `fp8_output_proj`). It has an effect only under mxfp8, the only recipe that Megatron-Core supports
        there.
    """

    narrow_parameters: bool = False
    frozen_parameters: bool = False
    weight_caching: bool = True
    narrow_gathers: bool = True
    narrow_dispatch: bool = False
    smaller_activations: tuple[SmallerActivation, ...] = ()
    block_scaled_norms: bool = False
    fused_transform: bool = True
    nvfp4_cast_cycles: CastCycles = CastCycles()
    transposes: bool = True
    wide_first_blocks: int = Field(default=0, ge=0)
    wide_last_blocks: int = Field(default=0, ge=0)
    wide_mtp: bool = False
    attention: bool = False
    output_layer: bool = False
