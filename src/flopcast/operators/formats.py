"""Low-precision number formats: operands of GEMMs in 8 or 4 bits, including their scales.

Answers: how many bytes does an element of a format have, and which matrix engine multiplies it?
Elsewhere: which products run in which format (spec/precision.py), which tensors are cast
(workload/rewrites).

A format consists of elements, and of scales that blocks of elements share. 16-bit and 32-bit formats (fp16,
bf16, fp32) have no scales and are dtypes (dtypes.py).

Serving engines support more formats of weights than training (`SERVED_FORMATS`).
"""

from collections.abc import Mapping

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.records import Record, replace


class NumberFormat(Record):
    """Elements of `element_bytes`, and one scale of `scale_bytes` for each `block` of them.

    `engine` is the dtype under which a device lists the peak of its matrix engine (spec/cluster.py).
    `engine_scales`: the matrix engine applies the scales of whole blocks; otherwise the kernel applies them
    between partial sums. `norms_write`: cuDNN's norms can write it. `may_be_parameters`: weights may be
    kept only in this format, which is not possible with 4 bits.
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
        """Return the bytes of one element with its share of a scale.

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


class ServedFormat(Record):
    """The formats of a weight and of its inputs in a serving engine.

    `weight_bytes` and `input_bytes` are the bytes of one element with its share of a scale; `input_bytes`
    is None if inputs keep the 16 bits of the model. `engine` is the matrix engine, "" for that of 16 bits.
    `shared_bytes` are the bytes that a kernel moves in shared memory to unpack an element of a weight into
    a dense tile.
    """

    weight_bytes: float
    input_bytes: float | None = None
    engine: str = ""
    shared_bytes: float = 0.0

    def bytes_of_weight(self, dtype: str) -> float:
        """Return the bytes of one element of a weight."""
        return self.weight_bytes or ELEMENT_BYTES[dtype]

    def bytes_of_input(self, dtype: str) -> float:
        """Return the bytes of one element of the input that is multiplied by the weight."""
        return self.input_bytes or ELEMENT_BYTES[dtype]

    def shared_cycles(self, weights: Counts) -> Counts:
        """Return the cycles in which a number of weights pass through shared memory."""
        return weights * self.shared_bytes / SHARED_BYTES_PER_CYCLE

    def engine_of(self, dtype: str) -> str:
        """Return the matrix engine that multiplies elements of this format."""
        return self.engine or dtype


def _both(name: str) -> ServedFormat:
    """Return a format in which both operands are multiplied."""
    size_bytes = FORMATS[name].size_bytes
    return ServedFormat(weight_bytes=size_bytes, input_bytes=size_bytes, engine=FORMATS[name].engine)


# codes of 4 bits, 8-bit powers of two for 32 of them: OCP Microscaling Formats specification 1.0, table 1
MXFP4_BYTES = 0.5 + 1.0 / 32
# matrix engines of 8 and 4 bits; a device without one widens the elements
NARROW_ENGINES = ("fp8", "fp4", "int8", "int4")


class MixedEngine(Record):
    """Matrix engines that multiply different blocks of one GEMM, and the length of their sums.

    `shares` are engines, with the fraction of all terms that each multiplies. After `sum_terms` terms, the
    fp32 units convert and scale a sum with `scale_instructions` instructions, concurrently with the
    products.
    """

    shares: tuple[tuple[str, float], ...]
    sum_terms: int
    scale_instructions: int

    def flop_per_s(self, peaks: Mapping[str, float], fp32_flop_per_s: float) -> float:
        """Return the FLOP/s, which either the engines, one after another, or the fp32 units limit.

        >>> mixed = MixedEngine(shares=(("int4", 0.5), ("int8", 0.5)), sum_terms=128, scale_instructions=3)
        >>> round(mixed.flop_per_s({"int4": 1200e12, "int8": 600e12}, 20e12) / 1e12)
        800
        """
        products_flop_per_s = 1.0 / sum(share / peaks[engine] for engine, share in self.shares)
        sums_per_s = fp32_flop_per_s / 2.0 / self.scale_instructions
        return min(products_flop_per_s, sums_per_s * 2.0 * self.sum_terms)


# Blocks of 128 channels of activations have 4 bits, those with outliers 8 (COMET, arXiv:2410.12168,
# sections 3 and 4). An estimate: 16 % of the blocks have 8 bits. To scale a sum of integers, it is
# converted (an addition and a subtraction) and added to the result in fp32.
OUTLIER_FRACTION = 0.16
MIXED_ENGINES = {
    "int4_int8": MixedEngine(
        shares=(("int4", 1.0 - OUTLIER_FRACTION), ("int8", OUTLIER_FRACTION)),
        sum_terms=128,
        scale_instructions=3,
    )
}
# shares of zeros in unstructured sparse weights, by format; products stay dense
SPARSE_FRACTIONS = {"sparse_70": 0.7, "sparse_80": 0.8, "sparse_90": 0.9}
NONZERO_BYTES = 4.0  # a value and its place in a tile, 16 bits each: arXiv:2309.10285, section 4.3.2
# Flash-LLM builds a dense tile in shared memory (csrc/SpMM_Kernel.cuh of AlibabaResearch/flash-llm): it
# clears and reads 2 bytes of each element, and the 16-bit write of a nonzero occupies a bank of 4 bytes. A
# multiprocessor of A100 moves 128 bytes in a cycle (its architecture white paper). We assume that nothing
# hides these accesses.
SHARED_BYTES_PER_CYCLE = 128.0
WIDEST = "fp32"  # in which engines for CPUs keep all weights, those of norms and of the vocabulary as well
SERVED_FORMATS: dict[str, ServedFormat] = {
    "": ServedFormat(weight_bytes=0.0),  # weights in the model's dtype
    WIDEST: ServedFormat(weight_bytes=4.0, input_bytes=4.0, engine="fp32"),
    "fp8": _both("fp8"),
    # a scale for 1 x 128 inputs, and one for 128 x 128 weights: arXiv:2412.19437, section 3.3.2
    "fp8_block": replace(_both("fp8_block"), weight_bytes=1.0 + 4.0 / 128**2),
    "nvfp4": _both("nvfp4"),
    # codes of 4 bits, 16-bit scales for 128 of them, products in 16 bits: arXiv:2306.00978, section 5.1
    "int4": ServedFormat(weight_bytes=0.5 + 2.0 / 128),
    "mxfp4": ServedFormat(weight_bytes=MXFP4_BYTES),  # multiplied in 16 bits
    "mxfp4_mxfp8": ServedFormat(
        weight_bytes=MXFP4_BYTES, input_bytes=FORMATS["mxfp8"].size_bytes, engine="fp8"
    ),
    # 4 bits on both sides but for outliers of activations; 16-bit scales for 128 of them
    "w4a4": ServedFormat(
        weight_bytes=0.5 + 2.0 / 128,
        input_bytes=0.5 * (1.0 + OUTLIER_FRACTION) + 2.0 / 128,
        engine="int4_int8",
    ),
    **{
        name: ServedFormat(
            weight_bytes=NONZERO_BYTES * (1.0 - zeros), shared_bytes=2.0 + 2.0 + 4.0 * (1.0 - zeros)
        )
        for name, zeros in SPARSE_FRACTIONS.items()
    },
}


def engines_of(name: str) -> tuple[str, ...]:
    """Return the matrix engines that a format of weights needs; none if its products have 16 bits.

    >>> engines_of("nvfp4"), engines_of("int4"), engines_of("w4a4")
    (('fp4',), (), ('int4', 'int8'))
    """
    engine = SERVED_FORMATS[name].engine if name in SERVED_FORMATS else ""
    if (mixed := MIXED_ENGINES.get(engine)) is not None:
        return tuple(each for each, _ in mixed.shares)
    return (engine,) if engine else ()


class CachedFormat(Record):
    """The format in which an engine keeps keys and values.

    `element_bytes` are the bytes of one element with its share of scales; 0 means as many as in queries.
    `engine` is the matrix engine that multiplies keys and values; "" means that of the queries.
    """

    element_bytes: float
    engine: str = ""

    def bytes_of_element(self, dtype: str) -> float:
        """Return the bytes of one element if queries have this dtype."""
        return self.element_bytes or ELEMENT_BYTES[dtype]

    def engine_of(self, dtype: str) -> str:
        """Return the matrix engine that multiplies keys and values by queries of a dtype."""
        return self.engine or dtype


CACHED_FORMATS: dict[str, CachedFormat] = {
    "": CachedFormat(element_bytes=0.0),
    "fp8": CachedFormat(element_bytes=1.0, engine="fp8"),
    # a 16-bit scale and zero point for a head of 128, products in 16 bits: arXiv:2405.04532, section 4.2
    "int4": CachedFormat(element_bytes=0.5 + 4.0 / 128),
}
