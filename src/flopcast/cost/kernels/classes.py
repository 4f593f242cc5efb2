"""Kernel classes: which curve applies to a kernel, and which kernels share their errors.

Answers: which curve, layout and kind belong to the name of a kernel, and how much more uncertain is a curve
of that kind outside of its measured range or on another device?
Elsewhere: the curves (curve_book.py), the operators that name kernels (operators/), the sources of the
sigmas (lab/calibration/score.py, docs/accuracy/kernels.md).
"""

from functools import lru_cache
from typing import Literal

from flopcast.records import Record, replace

Family = Literal["gemm_level", "attention_level", "unfused_attention_level", "memory_level"]
PowerClass = Literal["products", "attention", "memory"]
LAYOUTS = ("forward", "input_gradient", "weight_gradient", "gradients")


class KernelFamily(Record):
    """Classes with the same uncertainty outside the measured shapes and on other devices.

    `family` names the factor of their level, and `power_class` the power that a device draws while they run
    (spec/operations.py). The sigmas are added in quadrature for a shape outside the measured range, and for
    a curve of another device. GEMMs run below the highest clock on a busy device (sustained.py). The core
    clock limits GEMMs and attention, and memory limits all other kernels. `lends_seconds`: on a device that
    borrows the curve of serving kernels, the time in addition to their bound is the same number of seconds,
    and not the same number of cycles (curve_conversion.py).
    """

    name: str
    family: Family
    power_class: PowerClass
    is_product: bool = False
    is_core_bound: bool = True
    lends_seconds: bool = False
    extrapolation_log_sigma_factor: float
    other_device_log_sigma_factor: float


GEMM = KernelFamily(
    name="products",
    family="gemm_level",
    power_class="products",
    is_product=True,
    extrapolation_log_sigma_factor=0.06,
    other_device_log_sigma_factor=0.20,
)
LOW_PRECISION_GEMMS = replace(
    GEMM, name="narrow products", extrapolation_log_sigma_factor=0.14, other_device_log_sigma_factor=0.35
)
GROUPED_GEMM = replace(
    GEMM, name="grouped products", extrapolation_log_sigma_factor=0.0, other_device_log_sigma_factor=0.26
)
ATTENTION = KernelFamily(
    name="attention",
    family="attention_level",
    power_class="attention",
    extrapolation_log_sigma_factor=0.0,
    other_device_log_sigma_factor=0.29,
)
LINEAR_ATTENTION = replace(
    ATTENTION,
    name="linear attention",
    extrapolation_log_sigma_factor=0.84,
    other_device_log_sigma_factor=0.19,
)
MEMORY = KernelFamily(
    name="memory-bound",
    family="memory_level",
    power_class="memory",
    is_core_bound=False,
    extrapolation_log_sigma_factor=0.0,
    other_device_log_sigma_factor=0.26,
)
SERVED_GEMM = replace(
    GEMM, name="served products", extrapolation_log_sigma_factor=0.11, other_device_log_sigma_factor=0.20
)
DECODE = KernelFamily(
    name="decode attention",
    family="attention_level",
    power_class="memory",
    is_core_bound=False,
    lends_seconds=True,
    extrapolation_log_sigma_factor=0.51,
    other_device_log_sigma_factor=0.85,
)
SERVED_EXPERTS = replace(
    GEMM, name="served experts", extrapolation_log_sigma_factor=0.08, other_device_log_sigma_factor=0.23
)
KINDS = (
    GEMM, LOW_PRECISION_GEMMS, GROUPED_GEMM, SERVED_GEMM, SERVED_EXPERTS,
    ATTENTION, LINEAR_ATTENTION, DECODE, MEMORY,
)  # fmt: skip


class KernelBase(Record):
    """The properties of all kernels whose names begin with one word.

    Attributes
    ----------
    kind
        Kind of the training kernels. `kind_of_formats` is that of serving tables in 8 and 4 bits
        ("gemm.fp8").
    layouts_share_a_curve
        Whether all passes of a product have one curve, with a ratio for each pass.
    is_fused_attention
        Whether it is a fused attention kernel, of any generation and pass. Such a kernel leaves the matrix
        engines idle for much of its time. It takes as long in training as in a benchmark, as runs of MPT on
        A100 and H100 show (docs/accuracy/journal.md), so derates of stacks do not scale it.
    serves
        Whether the kernels were measured in serving engines. Their curves are then in separate files
        (library/curves.py), unless training also runs them, and derates of training stacks do not scale
        them. Products with few rows wait for their weights, so a lower clock slows them only as far as FLOP
        bound them (unscaled.py).
    also_trains
        Whether training also runs kernels that were measured in serving engines, such as those of linear
        attention. Their curves are in the files for training.
    writes_results_after
        Whether some devices write the 16-bit results of these low-precision products afterwards
        (narrow_results.py).
    """

    kind: KernelFamily
    kind_of_formats: KernelFamily | None = None
    layouts_share_a_curve: bool = False
    is_fused_attention: bool = False
    serves: bool = False
    also_trains: bool = False
    writes_results_after: bool = False


OTHERS = KernelBase(kind=MEMORY)
BASES: dict[str, KernelBase] = {  # the first word of a kernel's name; all others are memory-bound
    **dict.fromkeys(
        ("gemm", "expert_gemm"),
        KernelBase(kind=GEMM, kind_of_formats=LOW_PRECISION_GEMMS, layouts_share_a_curve=True),
    ),
    **dict.fromkeys(("narrow_gemm", "wide_gemm"), KernelBase(kind=GEMM, layouts_share_a_curve=True)),
    "narrow_expert_gemm": KernelBase(kind=GEMM, layouts_share_a_curve=True, writes_results_after=True),
    **dict.fromkeys(
        ("grouped_gemm", "narrow_grouped_gemm"), KernelBase(kind=GROUPED_GEMM, layouts_share_a_curve=True)
    ),
    "convolution": KernelBase(kind=GEMM, layouts_share_a_curve=True),
    "served_gemm": KernelBase(kind=SERVED_GEMM, serves=True),
    **dict.fromkeys(("decode_attention", "latent_decode"), KernelBase(kind=DECODE, serves=True)),
    **dict.fromkeys(("fused_experts", "padded_experts"), KernelBase(kind=SERVED_EXPERTS, serves=True)),
    **dict.fromkeys(
        ("gated_delta", "channel_delta", "state_space"),
        KernelBase(kind=LINEAR_ATTENTION, serves=True, also_trains=True),
    ),
    **dict.fromkeys(
        ("causal_convolution", "gated_linear_attention", "selective_scan", "wkv"),
        KernelBase(kind=MEMORY, serves=True, also_trains=True),
    ),
    **dict.fromkeys(
        ("delta_decode", "state_space_decode", "row_sort"), KernelBase(kind=MEMORY, serves=True)
    ),
    "flash_attention": KernelBase(kind=ATTENTION, is_fused_attention=True),
    "batched_gemm": KernelBase(kind=replace(ATTENTION, family="unfused_attention_level")),
}


class KernelClass(Record):
    """The properties of a curve that follow from the name of its kernel.

    Attributes
    ----------
    curve : str
        Class of the curve in the files of `catalog/curves`.
    layout : str
        Layout of the operands, for which the curve has a ratio; "" for classes without layouts.
    base : KernelBase
        Common properties of all kernels whose names begin with the same word.
    kind : KernelFamily
        Kind of the kernel, which determines the effect of clocks and the conversion between devices.
    """

    curve: str
    layout: str
    base: KernelBase
    kind: KernelFamily

    @property
    def is_derated(self) -> bool:
        """Return whether a stack's derate scales the class.

        It scales GEMMs, also those of unfused attention.
        """
        return self.kind.is_core_bound and not (self.base.is_fused_attention or self.base.serves)


@lru_cache(maxsize=4096)
@lru_cache(maxsize=512)
def class_of(kernel: str) -> KernelClass:
    """Return the class of a kernel by its name in operators, or of a curve by its name.

    "gemm.fp8" is a table of serving kernels. "narrow_gemm.fp8" stands for the products of training. These
    run in the same libraries as 16-bit products and mostly use their curves, so that they have the same
    kind.

    Examples
    --------
    >>> found = class_of("gemm.fp8.weight_gradient")
    >>> found.curve, found.layout, found.kind.name
    ('gemm.fp8', 'weight_gradient', 'narrow products')
    >>> class_of("flash_attention.backward").curve, class_of("layernorm.backward").kind.family
    ('flash_attention.backward', 'memory_level')
    >>> class_of("flash_attention.latent.backward").kind.name
    'attention'
    """
    word, last = kernel.partition(".")[0], kernel.rpartition(".")[2]
    base = BASES.get(word, OTHERS)
    layout = last if base.layouts_share_a_curve and last in LAYOUTS else ""
    curve = kernel.removesuffix(f".{layout}") if layout else kernel
    kind = base.kind if curve == word else base.kind_of_formats or base.kind
    return KernelClass(curve=curve, layout=layout, base=base, kind=kind)
