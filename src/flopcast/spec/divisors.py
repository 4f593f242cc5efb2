"""Divisors, for degrees and stages that must be equal.

Answers: which degrees divide a number of heads, blocks or devices, how is a list of degrees shown, and how
are blocks divided over stages if the number of stages does not divide them?
"""

from collections.abc import Mapping
from math import isqrt, lcm, prod

MANY = 10**12  # divisors of larger numbers are not listed


def divisors(number: int) -> list[int]:
    """Return all divisors in order; only 1 if there are too many numbers to try.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    if number > MANY:
        return [1]
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def listed(numbers: list[int]) -> str:
    """Return numbers as text, without the middle of long lists."""
    return ", ".join(map(str, numbers if len(numbers) <= 16 else [*numbers[:8], "…", *numbers[-3:]]))


def up_to(least: int, most: int) -> str:
    """Return a text with the allowed whole numbers: ``a whole number from 0 to 3``, or ``only 0``."""
    return f"a whole number from {least} to {most}" if most > least else f"only {least}"


def is_odd_width(hidden: int) -> bool:
    """Return whether a hidden size is probably mistyped: hidden sizes of large models are multiples of 64.

    >>> is_odd_width(4100), is_odd_width(4096)
    (True, False)
    """
    return hidden > 256 and hidden % 64 != 0


def even_width(hidden: int, heads: int) -> int:
    """Return the multiple of 64 and of the number of heads that is nearest to a hidden size.

    >>> even_width(4100, 32), even_width(770, 12)
    (4096, 768)
    """
    step = lcm(64, heads)
    return max(1, round(hidden / step)) * step


def nearest_multiples(number: int, of: int) -> str:
    """Return the multiples of a number that are nearest to another, as text.

    >>> nearest_multiples(96, 21), nearest_multiples(5, 8)
    ('84 or 105', '8')
    """
    below = number // of * of
    return f"{below} or {below + of}" if below > 0 else str(of)


def nearest_divisor(number: int, wanted: int, least: int = 1) -> int:
    """Return the nearest divisor of at least `least`; if two are equally near, the smaller one."""
    return min((d for d in divisors(number) if d >= least), key=lambda d: (abs(d - wanted), d))


def contradicted(devices: int, stated: int | None, share: int) -> tuple[str, str, str]:
    """Return the fault of a degree of a file whose degrees are for `stated` devices.

    The result contains the allowed values, the reason and the fix. `share` is the product of the other
    degrees.

    >>> contradicted(8, 16, 2)[::2]
    ('-1, or 4 (8 devices / 2)', 'write -1, or use --gpus 16')
    """
    because = f"the degrees of the file are for {stated} devices, and the command states {devices}"
    fix = f"write -1, or use --gpus {stated}"
    return f"-1, or {devices // share} ({devices} devices / {share})", because, fix


def undivided(ranks: int, degrees: Mapping[str, int], more: str = "") -> tuple[str, str, str, str]:
    """Return the fault of a degree with which replicas do not divide the ranks: the degree, the allowed
    values, the reason, and the fix.

    Parameters
    ----------
    degrees : degrees of a replica, by the names that their file gives them
    more : number of ranks that the fix also proposes

    Examples
    --------
    >>> undivided(16, {"tp_degree": 3, "pp_degree": 1})[1::2]
    ('a divisor of 16: 1, 2, 4, 8, 16', 'set tp_degree to 2')
    """
    name = max(degrees, key=lambda each: (ranks % degrees[each] > 0, degrees[each]))
    product = " · ".join(f"{size} ({each})" for each, size in degrees.items() if size > 1)
    share = prod(degrees.values())
    because = f"a replica of the model has {share} ranks: {product}"
    if degrees[name] == share:
        because = f"a replica of the model has {share} ranks ({name}), and {share} does not divide {ranks}"
    others, limit = share // degrees[name], f"{ranks} ranks"
    if ranks % others:
        fix = f"set --gpus to {more or f'{lcm(share, 8)}, or a multiple of it'}"
        return name, f"degrees whose product divides the {limit}", because, fix
    limit = f"{limit} / {others} = {ranks // others}" if others > 1 else str(ranks)
    is_usual = share & (share - 1) == 0  # other degrees rarely divide the heads
    more = more or (f"{lcm(share, 8)}, or a multiple of it" if is_usual else "")
    fix = f"set {name} to {nearest_divisor(ranks // others, degrees[name])}"
    fix += f", or --gpus to {more}" if more else ""
    return name, f"a divisor of {limit}: {listed(divisors(ranks // others))}", because, fix


def dealt(
    blocks: int, chunks: int, ends: tuple[int, int] = (0, 0), last_short: int | None = None
) -> tuple[int, ...]:
    """Return the blocks of each chunk if chunks are as equal as possible.

    Parameters
    ----------
    ends : as how many blocks the embedding and the head count
    last_short : number of chunks at the end that get none of the remaining blocks, which go to the chunks
        before them; with None, the remaining blocks go to the first chunks

    Examples
    --------
    >>> dealt(32, 8, (1, 1)), dealt(27, 4, (1, 1))
    ((4, 5, 4, 4, 4, 4, 4, 3), (7, 7, 7, 6))
    >>> dealt(10, 4, last_short=1)
    (2, 3, 3, 2)
    """
    each, rest = divmod(blocks + sum(ends), chunks)
    first = 0 if last_short is None else chunks - last_short - rest
    held = [each + (first <= chunk < first + rest) for chunk in range(chunks)]
    held[0] -= ends[0]
    held[-1] -= ends[1]
    return tuple(held)


def divided_over_chunks(blocks: int, chunks: int) -> tuple[int, ...]:
    """Return the blocks of each chunk: equal numbers or, if this is impossible, with embedding and head
    counted as blocks.

    Late stages get the remaining blocks, because earlier stages keep more micro-batches in flight.

    Examples
    --------
    Llama 3 405B on 16 stages: the first and the last stage have one block less (arXiv:2407.21783, section
    3.3.2).

    >>> divided_over_chunks(126, 16)
    (7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7)
    >>> divided_over_chunks(61, 16)
    (2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3)
    >>> divided_over_chunks(32, 4)
    (8, 8, 8, 8)
    """
    if blocks % chunks == 0:
        return (blocks // chunks,) * chunks
    return dealt(blocks, chunks, (1, 1), last_short=(blocks + 2) % chunks < chunks - 1)


def divided_by_cost(
    blocks: int, hidden: int, ffn_hidden: int, vocabulary: int, stages: int
) -> tuple[int, ...]:
    """Return the blocks of each stage if a stage ends as soon as it exceeds its share of the cost.

    All stages have equal shares, and the head follows the last block (nanotron, `build_model` in
    models/base.py, and `get_block_compute_costs` of Llama and Qwen2, here divided by `hidden`). If the head
    costs more than the shares of two stages, the stages before it have no block, which is not allowed in
    `plan.stage_layers`.

    Examples
    --------
    24 blocks and a head that costs as much as 2.4 of them:

    >>> divided_by_cost(24, 1, 2, 24, 4), divided_by_cost(24, 1, 2, 24, 8)
    ((7, 7, 6, 4), (4, 3, 3, 4, 3, 3, 4, 0))
    """
    block_cost = 4 * hidden + 3 * ffn_hidden
    held, total = [0] * stages, blocks * block_cost + vocabulary
    stage = 0
    for block in range(1, blocks + 1):
        held[stage] += 1
        stage += block * block_cost * stages > total * (stage + 1)
    return tuple(held)
