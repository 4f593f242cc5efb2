"""Kernel classes: which curve prices a kernel, and which kernels share their errors.

Answers: of an operator's kernel name, what is its curve's class, its layout, its kind; how much less sure
is a curve of that kind outside of its rows, or on another device?
Elsewhere: the curves (curve_book.py), the operators that name kernels (operators/), where the sigmas come
from (lab/calibration/score.py, docs/accuracy/kernels.md).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Family = Literal["gemm_level", "attention_level", "memory_level"]
LAYOUTS = ("forward", "input_gradient", "weight_gradient", "gradients")
PRODUCTS = ("gemm", "expert_gemm", "grouped_gemm")
LAYOUTS_SHARE_A_CURVE = (*PRODUCTS, *(f"narrow_{name}" for name in PRODUCTS))
OF_TRAINING = ("gemm", "expert_gemm")
FUSED_ATTENTION = "flash_attention"
ATTENTION = (FUSED_ATTENTION, "batched_gemm")


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFamily:
    """Classes that a step away from the measurements costs alike.

    `family` names the factor of their level. The sigmas are added, in quadrature, where a shape lies
    outside of the measured ones, and where another device lends its curve.
    """

    name: str
    family: Family
    extrapolation_log_sigma_factor: float
    other_device_log_sigma_factor: float


GEMM = KernelFamily(
    name="products",
    family="gemm_level",
    extrapolation_log_sigma_factor=0.07,
    other_device_log_sigma_factor=0.16,
)
LOW_PRECISION_GEMMS = KernelFamily(
    name="narrow products",
    family="gemm_level",
    extrapolation_log_sigma_factor=0.15,
    other_device_log_sigma_factor=0.36,
)
GROUPED_GEMM = KernelFamily(
    name="grouped products",
    family="gemm_level",
    extrapolation_log_sigma_factor=0.0,
    other_device_log_sigma_factor=0.27,
)
ATTENTION_KIND = KernelFamily(
    name="attention",
    family="attention_level",
    extrapolation_log_sigma_factor=0.0,
    other_device_log_sigma_factor=0.29,
)
MEMORY = KernelFamily(
    name="memory-bound",
    family="memory_level",
    extrapolation_log_sigma_factor=0.01,
    other_device_log_sigma_factor=0.28,
)
KINDS = (GEMM, LOW_PRECISION_GEMMS, GROUPED_GEMM, ATTENTION_KIND, MEMORY)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelClass:
    """The class of a curve, the layout inside it ("" for classes without), and its kind."""

    curve: str
    layout: str
    kind: KernelFamily

    @property
    def is_derated(self) -> bool:
        """Return whether a stack's derate scales the class: products, including those of unfused attention.

        Fused attention leaves the matrix engines idle for much of its time, and runs in training as it does
        alone: MPT on A100 and H100, where it is up to 90 % of a step (docs/accuracy/journal.md).
        """
        return self.kind.family != "memory_level" and not self.is_fused_attention

    @property
    def is_sustained(self) -> bool:
        """Return whether a busy device slows the class below its curve; true for GEMMs (sustained.py)."""
        return self.kind.family == "gemm_level"

    @property
    def is_fused_attention(self) -> bool:
        """Return whether the class is fused attention of any generation, in either pass."""
        return self.curve.startswith(FUSED_ATTENTION)


@lru_cache(maxsize=4096)
def class_of(kernel: str) -> KernelClass:
    """Return the class of a kernel by its name in operators, or of a curve by its name.

    "gemm.fp8" is a table of serving kernels, "narrow_gemm.fp8" the products of training: the libraries that
    run 16-bit products, from whose curves they mostly borrow, so that they are of the same kind.

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
    base, last = kernel.partition(".")[0], kernel.rpartition(".")[2]
    if base in LAYOUTS_SHARE_A_CURVE:
        layout = last if last in LAYOUTS else ""
        curve = kernel.removesuffix(f".{layout}")
        of_training = GEMM if curve in OF_TRAINING or base.startswith("narrow_") else LOW_PRECISION_GEMMS
        kind = GROUPED_GEMM if base.endswith("grouped_gemm") else of_training
        return KernelClass(curve=curve, layout=layout, kind=kind)
    return KernelClass(curve=kernel, layout="", kind=ATTENTION_KIND if base in ATTENTION else MEMORY)
