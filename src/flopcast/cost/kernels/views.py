"""How a kernel's shape is looked at: the coordinates of its table, and terms of tiles and waves.

Answers: what of a shape varies smoothly, and what jumps?
A GEMM's efficiency rises smoothly with its work, and falls where its tiles do not fill the last wave of
multiprocessors, where its width is no multiple of a tile, and where rows are not aligned. The smooth part
is a table over few coordinates, so that it can be extrapolated; each jump is a term with one coefficient.
Both are fitted together (calibration/table.py). A class without an entry here has its own coordinates
and no terms.

Every term is a logarithm, 0 at best. With a coefficient c of a wave term, time is proportional to
w^(1 - c) · ceil(w)^c for w waves: it never falls with more work as long as c is at most 1.

References
----------
Waves and tiles: NVIDIA, Matrix Multiplication Background User's Guide (DU-09798-001), sections 3.2, 3.3.
FlashAttention-2 works on blocks of 128 or 64 queries a head, and pads a head to a multiple of 32:
arXiv:2307.08691, section 3.3.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts, Logs

Coordinates = tuple[Counts, ...]
GEMM_TILES = ((128, 128), (256, 128), (128, 256))


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """One kernel class: its table's coordinates, and its terms by name.

    Both are functions of the operator's coordinates, arrays of one shape; terms need the device's number
    of multiprocessors besides. `powers` say how work grows along each axis of the table: time does not
    fall there; None where work stays or other things matter more. Axes beyond those named are free.
    `tiled` axes count tiles: there, wave terms already let efficiency rise inside a wave.
    `tiled` axes count tiles: there, wave terms already let efficiency rise inside a wave.
    """

    table: Callable[[Coordinates], Coordinates]
    terms: Callable[[Coordinates, int], Mapping[str, Logs]]
    powers: tuple[float | None, ...] = (1.0,)
    tiled: tuple[int, ...] = ()

    def rises(self, axes: int, terms: Mapping[str, float]) -> tuple[float | None, ...]:
        """By which power of each axis the table's efficiency may rise, beside terms of these coefficients.

        A wave term of coefficient c makes efficiency proportional to the tiles' number to the power c as
        long as they fill less than one wave; the table has what is left of the axis' power.
        """
        waves = min(1.0, sum(value for name, value in terms.items() if name.startswith("wave")))
        return tuple(
            None
            if axis >= len(self.powers) or (power := self.powers[axis]) is None
            else power - (waves if axis in self.tiled else 0.0)
            for axis in range(axes)
        )


def wave(tiles: Counts, multiprocessors: int) -> Logs:
    """Logarithm of how full the waves are: 0 where the tiles are a multiple of the multiprocessors.

    >>> np.exp(wave(np.array([108.0, 109.0, 216.0]), 108)).round(3).tolist()
    [1.0, 0.505, 1.0]
    """
    waves = np.maximum(tiles, 1.0) / multiprocessors
    return np.asarray(np.log(waves / np.ceil(waves)))


def padding(size: Counts, tile: int) -> Logs:
    """Logarithm of the used share of the last tile's padding: 0 for multiples of the tile.

    >>> np.exp(padding(np.array([128.0, 192.0]), 128)).tolist()
    [1.0, 0.75]
    """
    return np.asarray(np.log(size / (np.ceil(size / tile) * tile)))


def uneven(size: Counts, tile: int) -> Logs:
    """-1 where a size is no multiple of the tile: another kernel is chosen, however little is padded."""
    off: Logs = -1.0 * (size % tile != 0)
    return off


def _gemm_table(shape: Coordinates) -> Coordinates:
    """Multiply-adds, length of the sum, and how oblong the output is."""
    m, n, k = shape
    return m * n * k, k, n / m


def _gemm_terms(shape: Coordinates, multiprocessors: int) -> Mapping[str, Logs]:
    m, n, k = shape
    terms = {
        f"wave_{rows}x{columns}": wave(np.ceil(m / rows) * np.ceil(n / columns), multiprocessors)
        for rows, columns in GEMM_TILES
    }
    terms |= {f"padding_n_{tile}": padding(n, tile) for tile in (64, 128, 256)}
    terms |= {"padding_k_64": padding(k, 64)}
    terms |= {f"uneven_n_{tile}": uneven(n, tile) for tile in (8, 128, 256, 512)}
    return terms | {f"uneven_k_{tile}": uneven(k, tile) for tile in (8, 64, 128, 256, 512)}


def _flash_table(shape: Coordinates) -> Coordinates:
    """The head is padded: sizes from 33 to 64 run one kernel."""
    queries, head_size, batch = shape
    return queries, np.ceil(head_size / 32) * 32, batch


def _flash_terms(shape: Coordinates, multiprocessors: int) -> Mapping[str, Logs]:
    queries, head_size, batch = shape
    blocks = {rows: batch * np.ceil(queries / rows) for rows in (64, 128)}
    return {
        "padding_head_32": padding(head_size, 32),
        "uneven_head_32": uneven(head_size, 32),
        "wave_64": wave(blocks[64], multiprocessors),
        "wave_128": wave(blocks[128], multiprocessors),
        "wave_128_twice": wave(blocks[128], 2 * multiprocessors),  # two blocks share a multiprocessor
    }


def _batched(role: str) -> View:
    """Scores: queries × keys over a head; context: queries × a head over keys. Both are GEMMs."""

    def terms(shape: Coordinates, multiprocessors: int) -> Mapping[str, Logs]:
        length, head_size, batch = shape
        n, k = (length, head_size) if role == "scores" else (head_size, length)
        found = {
            f"wave_{rows}x{columns}": wave(
                batch * np.ceil(length / rows) * np.ceil(n / columns), multiprocessors
            )
            for rows, columns in GEMM_TILES
        }
        found |= {f"padding_n_{tile}": padding(n, tile) for tile in (64, 128, 256)}
        return found | {f"padding_k_{tile}": padding(k, tile) for tile in (32, 64)}

    return View(table=_as_it_is, terms=terms, powers=(2.0, 1.0, 1.0), tiled=(0, 2))


def _as_it_is(shape: Coordinates) -> Coordinates:
    return shape


def _no_terms(_: Coordinates, __: int) -> Mapping[str, Logs]:
    """Streams of bytes have no tiles."""
    return {}


PLAIN = View(table=_as_it_is, terms=_no_terms)
FLASH = View(table=_flash_table, terms=_flash_terms, powers=(2.0, 1.0, 1.0), tiled=(0, 2))
EMBEDDING = View(table=_as_it_is, terms=_no_terms, powers=(1.0, None, 1.0))
VIEWS: dict[str, View] = {
    "gemm": View(table=_gemm_table, terms=_gemm_terms, powers=(0.7, 0.3), tiled=(0,)),
    "flash_attention": FLASH,
    "flash_attention.backward": FLASH,
    "embedding": EMBEDDING,
    "embedding.backward": EMBEDDING,
    "batched_gemm.scores": _batched("scores"),
    "batched_gemm.context": _batched("context"),
}


def view_of(name: str) -> View:
    """The view of a kernel class, or of a precision of it ("gemm.fp8")."""
    return VIEWS.get(name) or VIEWS.get(name.rpartition(".")[0], PLAIN)
