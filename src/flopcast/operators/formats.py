"""Narrow number formats: what the operands of a product look like in 8 or 4 bits, scales included.

Answers: how many bytes has an element of a format, and which matrix engine multiplies it?
Elsewhere: which products run in which format (spec/precision.py), what is cast when (workload/rewrites).

A format is elements, and scales that blocks of elements share. Wide formats (fp16, bf16, fp32) have no
scales and are dtypes (dtypes.py).
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberFormat:
    """Elements of `element_bytes`, and one scale of `scale_bytes` for each `block` of them.

    `engine` is the dtype under which a device lists the peak of its matrix engine (spec/cluster.py).
    `engine_scales`: the engine applies the scales of blocks, whole ones only; otherwise the kernel does,
    between partial sums. `norms_write`: cuDNN's norms can write it. `may_be_parameters`: it may be all
    that is kept of a weight, which 4 bits are not.
    """

    engine: str
    element_bytes: float
    scale_bytes: float = 0.0
    block: int = 1
    engine_scales: bool = False
    norms_write: bool = False
    may_be_parameters: bool = True

    @property
    def size_bytes(self) -> float:
        """Return bytes of one element with its share of a scale.

        >>> FORMATS["fp8"].size_bytes, FORMATS["mxfp8"].size_bytes, FORMATS["nvfp4"].size_bytes
        (1.0, 1.03125, 0.5625)
        """
        return self.element_bytes + self.scale_bytes / self.block


FORMATS: dict[str, NumberFormat] = {
    "fp8": NumberFormat(engine="fp8", element_bytes=1.0),  # one scale a tensor: arXiv:2209.05433
    # fp32 scales of 1 × 128 elements, of 128 × 128 of a weight: arXiv:2412.19437, section 3.3.2
    "fp8_block": NumberFormat(engine="fp8", element_bytes=1.0, scale_bytes=4.0, block=128),
    # 8-bit powers of two for 32 elements: OCP Microscaling Formats specification 1.0, table 1
    "mxfp8": NumberFormat(
        engine="fp8", element_bytes=1.0, scale_bytes=1.0, block=32, engine_scales=True, norms_write=True
    ),
    # 8-bit scales for 16 elements of 4 bits, and one fp32 scale a tensor: arXiv:2509.25149, section 2
    "nvfp4": NumberFormat(
        engine="fp4",
        element_bytes=0.5,
        scale_bytes=1.0,
        block=16,
        engine_scales=True,
        may_be_parameters=False,
    ),
}
