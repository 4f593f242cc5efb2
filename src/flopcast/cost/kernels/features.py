"""Features of a kernel's shape: the coordinates of its table, and terms of tiles and waves.

Answers: on which properties of a shape does the efficiency depend smoothly, and on which does it jump? The
efficiency of a GEMM rises smoothly with its work. It falls if the tiles do not fill the last wave of
multiprocessors, if a side is no multiple of a tile, or if rows are not aligned. The smooth part is a table
over few coordinates, so that it can be extrapolated; each jump is a term with one coefficient. Both are
fitted together (lab/calibration/efficiency_table.py). A class without an entry here has the coordinates of
its operator and no terms.

Every term is a logarithm, 0 at best. With a coefficient c of a wave term, time is proportional to w^(1 - c)
· waves^c, where w is the number of waves that the useful work alone would fill. If c is at most 1, time
never falls with more work. If w counted whole tiles, one row more than a full tile would seem to take less
time, because it fills the wave better.

References
----------
Waves and tiles: NVIDIA, Matrix Multiplication Background User's Guide (DU-09798-001), sections 3.2, 3.3.
Other tiles follow from the rows of data/peers/aiconfigurator: only the waves of the tiles in GEMM_TILES are
visible on some device. FlashAttention-2 works on blocks of 128 or 64 queries per head, and pads a head to a
multiple of 32: arXiv:2307.08691, section 3.3.
"""

from collections.abc import Callable, Mapping

import numpy as np

from flopcast.cost.kernels.served_operators import (
    Coordinates,
    causal_convolution,
    decode_attention,
    fused_experts,
    gated_delta,
    latent_decode,
    served_matmul,
)
from flopcast.dtypes import Counts, Logs
from flopcast.operators.base import AbstractOperator
from flopcast.records import Record, field, replace

Term = Callable[[Coordinates, int], Logs]
BATCHED_TILES = ((128, 128), (256, 128), (128, 256))
GEMM_TILES = (*BATCHED_TILES, (64, 64), (128, 64), (192, 128), (256, 256))
# Rows and columns of the smallest GEMMs to which curves are fitted. The measured efficiency of narrower
# ones hardly differs from theirs: over 1368 GEMMs with 32 to 256 columns on H100, the median error is 11 %
# with this limit, and 40 % if the table is extrapolated (data/peers/aiconfigurator; no curve is fitted to
# these GEMMs).
NARROWEST = 512.0


class KernelFeatures(Record):
    """One kernel class: the coordinates of its table, and its terms by name.

    Both are functions of the operator's coordinates, arrays of one shape. A term also needs the device's
    number of multiprocessors. `powers` states how work grows along each axis of the table. Time does not
    fall along such an axis. The power is None if work does not grow along an axis, or if other effects are
    larger. Axes that are not named are free. `tiled` axes count tiles, because wave terms already describe
    how the efficiency rises inside a wave along these axes. `freed` is an axis of work without tiles: its
    power is the part that the terms of the tiled axis of all work leave. `saturates`: the largest measured
    shapes run at the limit of power, so that larger ones are no more efficient. `overflow` is a pair of
    axes, the first of which is tiled: the part of a size beyond the largest measured size counts along the
    second axis. Both axes fill waves with tiles in the same way, and only the second axis was measured up
    to full waves. `at_least` contains coordinates of a whole tile. Terms are evaluated there for less work
    than that of any measured shape, because a kernel can always pad a smaller GEMM to a tile. `narrowest`
    contains the coordinates whose efficiency all narrower shapes have (unscaled.py). `operator` returns the
    operator for the name of a kernel and coordinates of the table, (rows, 1). Classes that have it
    interpolate times between nodes (between_nodes.py): their time falls along no axis, so they need no
    powers. Along `free` axes, time may nevertheless fall, because another kernel runs from some size on.
    `nodes` are log2 of the nodes of axes along which kernels change at known sizes.
    """

    table: Callable[[Coordinates], Coordinates]
    terms: Mapping[str, Term] = field(default_factory=dict)
    powers: tuple[float | None, ...] = (1.0,)
    tiled: tuple[int, ...] = ()
    freed: int | None = None
    saturates: bool = False
    overflow: tuple[int, int] | None = None
    at_least: tuple[float, ...] = ()
    narrowest: tuple[float, ...] = ()
    operator: Callable[[str, Coordinates], AbstractOperator] | None = None
    nodes: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    free: tuple[int, ...] = ()

    def rises(self, axes: int, terms: Mapping[str, float]) -> tuple[float | None, ...]:
        """Return the largest power of each axis by which the efficiency may rise, given these coefficients.

        If the tiles fill less than one wave, a wave term with the coefficient c makes the efficiency
        proportional to the output to the power c. Padded rows have the same effect in less than a tile. The
        table has the rest of the power of the axis. Longer sums fill no wave: below one wave, time may stay
        constant if the output grows, but not if the sums grow. The freed axis therefore has the whole rest.
        """
        stepped = ("wave", "padding_m")
        taken = min(1.0, sum(value for name, value in terms.items() if name.startswith(stepped)))
        rises: list[float | None] = [None] * axes
        for axis, power in enumerate(self.powers[:axes]):
            if power is None or axis not in self.tiled:
                rises[axis] = power
            elif self.freed is None:
                rises[axis] = power - taken
            else:
                rises[axis] = min(power, 1.0 - taken)
        if self.freed is not None and self.freed < axes:
            rises[self.freed] = 1.0 - sum(rises[axis] or 0.0 for axis in self.tiled)
        return tuple(rises)


def wave(tiles: Counts, multiprocessors: int, useful: Counts | None = None) -> Logs:
    """Return the logarithm of the fill of the waves; 0 if the tiles are a multiple of the multiprocessors.

    `useful` is the work in tiles, which is less than their number if some are padded; None means that no
    tile is padded.

    >>> np.exp(wave(np.array([108.0, 109.0, 216.0]), 108)).round(3).tolist()
    [1.0, 0.505, 1.0]
    """
    full = np.maximum(tiles, 1.0)
    work = full if useful is None else useful
    return np.asarray(np.log(work / (multiprocessors * np.ceil(full / multiprocessors))))


def padding(size: Counts, tile: int) -> Logs:
    """Return the logarithm of the used share of the last tile; 0 for multiples of the tile.

    >>> np.exp(padding(np.array([128.0, 192.0]), 128)).tolist()
    [1.0, 0.75]
    """
    return np.asarray(np.log(size / (np.ceil(size / tile) * tile)))


def uneven(size: Counts, tile: int) -> Logs:
    """Return -1 if a size is not a multiple of the tile, because another kernel then runs; otherwise 0."""
    off: Logs = -1.0 * (size % tile != 0)
    return off


def _gemm_table(shape: Coordinates) -> Coordinates:
    """Multiply-adds, length of the sum, and how oblong the output is; of groups, as one product."""
    m, n, k = shape[:3]
    return m * n * k, k, n / m


def _product_terms(
    product: Callable[[Coordinates], tuple[Counts, Counts, Counts, Counts]],
    paddings: Mapping[str, tuple[int, ...]],
    unevens: Mapping[str, tuple[int, ...]],
    shapes: tuple[tuple[int, int], ...] = BATCHED_TILES,
) -> dict[str, Term]:
    """Return the terms of any kernel made of products: waves of its tiles, and their fit to m, n and k.

    `product` gives how many products there are, and m, n and k of each, from a class' coordinates; `shapes`
    are rows and columns of the tiles that its kernels may have.
    """

    def tiles(rows: int, columns: int) -> Term:
        def term(shape: Coordinates, multiprocessors: int) -> Logs:
            count, m, n, _ = product(shape)
            number = count * np.ceil(m / rows) * np.ceil(n / columns)
            return wave(number, multiprocessors, useful=count * m * n / (rows * columns))

        return term

    def side(which: str, loss: Callable[[Counts, int], Logs], tile: int) -> Term:
        place = {"m": 1, "n": 2, "k": 3}[which]
        return lambda shape, _: loss(product(shape)[place], tile)

    terms = {f"wave_{rows}x{columns}": tiles(rows, columns) for rows, columns in shapes}
    for name, loss, sizes in (("padding", padding, paddings), ("uneven", uneven, unevens)):
        terms |= {
            f"{name}_{n}_{tile}": side(n, loss, tile) for n, several in sizes.items() for tile in several
        }
    return terms


def _flash_table(shape: Coordinates) -> Coordinates:
    """Return the axes of flash attention; the head is padded, so that sizes 33 to 64 run one kernel."""
    queries, head_size, batch = shape
    return queries, np.ceil(head_size / 32) * 32, batch


def _grouped_table(shape: Coordinates) -> Coordinates:
    """Return the axes of grouped products: rows of the mean group, elements of one weight, groups."""
    rows, n, k, groups = shape[:4]
    return rows / groups, n * k, groups


def _skew(shape: Coordinates, _: int) -> Logs:
    """Return minus the logarithm of the imbalance; 0 if groups are equally full.

    With a coefficient c, time is proportional to imbalance^c. At 1 a kernel lasts as if every group were
    as full as the fullest; at 0 its tiles are spread over the device whatever group they belong to.
    """
    return np.asarray(-np.log(np.maximum(shape[4], 1.0)))


def _blocks(rows: int, each: int = 1) -> Term:
    """Return the waves of blocks of queries, `each` of which run at a time on a multiprocessor."""

    def term(shape: Coordinates, multiprocessors: int) -> Logs:
        queries, _, batch = shape
        return wave(batch * np.ceil(queries / rows), each * multiprocessors)

    return term


def _as_it_is(shape: Coordinates) -> Coordinates:
    return shape


FLASH = KernelFeatures(
    table=_flash_table,
    terms={
        "padding_head_32": lambda shape, _: padding(shape[1], 32),
        "uneven_head_32": lambda shape, _: uneven(shape[1], 32),
        "wave_64": _blocks(64),
        "wave_128": _blocks(128),
        "wave_128_twice": _blocks(128, each=2),
    },
    powers=(2.0, 1.0, 1.0),
    tiled=(0, 2),
    overflow=(0, 2),  # a sequence of twice the length has as many blocks of queries as two
)
GEMM = KernelFeatures(
    table=_gemm_table,
    terms=_product_terms(
        lambda shape: (np.ones(1), shape[0], shape[1], shape[2]),
        {"m": (64, 128), "n": (64, 128, 256), "k": (64,)},
        {"n": (8, 128, 256, 512), "k": (8, 64, 128, 256, 512)},
        GEMM_TILES,
    ),
    powers=(0.7, 0.3),
    tiled=(0,),
    freed=1,
    saturates=True,
    at_least=(64.0, 64.0, 64.0),
    narrowest=(NARROWEST, NARROWEST, 64.0),
)
# casts of inputs are in its time: they grow slower than work
LOW_PRECISION_GEMM = replace(GEMM, saturates=False)
BATCHED_PADDINGS: dict[str, tuple[int, ...]] = {"n": (64, 128, 256), "k": (32, 64)}
SCORES = KernelFeatures(  # queries × keys, over a head
    table=_as_it_is,
    terms=_product_terms(lambda s: (s[2], s[0], s[0], s[1]), BATCHED_PADDINGS, {}),
    powers=(2.0, 1.0, 1.0),
    tiled=(0, 2),
)
CONTEXT = KernelFeatures(  # queries × a head, over keys
    table=_as_it_is,
    terms=_product_terms(lambda s: (s[2], s[0], s[1], s[0]), BATCHED_PADDINGS, {}),
    powers=(2.0, 1.0, 1.0),
    tiled=(0, 2),
)
GROUPED = KernelFeatures(  # one product for each expert, in one kernel
    table=_grouped_table, terms={"skew": _skew}, powers=(1.0, 1.0, 1.0)
)


def _experts_table(shape: Coordinates) -> Coordinates:
    """Return rows of the mean touched expert, elements of one expert, touched experts, tokens a row.

    Where a rank holds some of the experts, more tokens than its rows pass through its routing.
    """
    rows, columns, hidden, touched, _, tokens = shape
    return rows / touched, columns * hidden, touched, tokens / rows


SERVED_GEMM = KernelFeatures(table=_as_it_is, powers=(), operator=served_matmul)


# With one query head for each cached one, kernels on some devices do not split the keys of a sequence, so
# that two take less time: 63 us in place of 1526 for 65,536 tokens on A100. 64 fill the rows of a tile.
DECODE_ATTENTION = KernelFeatures(
    table=_as_it_is, powers=(), operator=decode_attention, nodes={3: (0.0, 1.0, 3.0, 6.0)}, free=(3,)
)
GATED_DELTA = KernelFeatures(table=_as_it_is, powers=(), operator=gated_delta)
CAUSAL_CONVOLUTION = KernelFeatures(table=_as_it_is, powers=(), operator=causal_convolution)
LATENT_DECODE = KernelFeatures(table=_as_it_is, powers=(), operator=latent_decode)
FUSED_EXPERTS = KernelFeatures(
    table=_experts_table, terms={"skew": _skew}, powers=(), operator=fused_experts
)
PLAIN = KernelFeatures(table=_as_it_is)  # streams of bytes have no tiles
EMBEDDING = KernelFeatures(table=_as_it_is, powers=(1.0, None, 1.0))
FEATURES: dict[str, KernelFeatures] = {
    "gemm": GEMM,
    **dict.fromkeys(("gemm.fp8", "gemm.fp8_block", "gemm.nvfp4"), LOW_PRECISION_GEMM),
    "expert_gemm": GEMM,
    "grouped_gemm": GROUPED,
    "narrow_gemm": GEMM,
    "narrow_expert_gemm": GEMM,
    "narrow_grouped_gemm": GROUPED,
    "served_gemm": SERVED_GEMM,
    **dict.fromkeys(("decode_attention", "decode_attention.window"), DECODE_ATTENTION),
    "latent_decode": LATENT_DECODE,
    **dict.fromkeys(("gated_delta", "channel_delta", "state_space"), GATED_DELTA),
    "causal_convolution": CAUSAL_CONVOLUTION,
    "fused_experts": FUSED_EXPERTS,
    **dict.fromkeys(
        (
            f"flash_attention{kind}{gradient}"
            for kind in ("", ".latent", ".window")
            for gradient in ("", ".backward")
        ),
        FLASH,
    ),
    "embedding": EMBEDDING,
    "embedding.backward": EMBEDDING,
    "batched_gemm.scores": SCORES,
    "batched_gemm.context": CONTEXT,
}


def features_of(name: str) -> KernelFeatures:
    """Return the features of a kernel class, or of one of its precisions ("gemm.fp8")."""
    return FEATURES.get(name) or FEATURES.get(name.rpartition(".")[0], PLAIN)
