"""The strategies of the blocks of one stage, by dynamic programming over blocks and memory.

Answers: which option should each block have, so that the stage fits and takes the least time?
Elsewhere: time and memory of the options, and all stages together (per_layer.py).
"""

import numpy as np

from flopcast.dtypes import Floats, Integers
from flopcast.units import Number

BUCKETS = 256  # of the memory of a stage; a block needs whole ones, so that no choice needs too much


def best_of_stage(
    block_s: Floats, block_bytes: Floats, reshard_s: Floats, room_bytes: Number, own: int = 0
) -> list[int] | None:
    """Return the options of the blocks of one stage that fit into memory in the least time, or None.

    Parameters
    ----------
    block_s, block_bytes : arrays of shape (options, blocks)
    reshard_s : array of shape (options, options)
        Seconds of a change of layout.
    room_bytes : number
        Memory for all blocks together.
    own : int
        The option in whose layout a stage begins and ends.

    Examples
    --------
    Two blocks, one of which must have the slower option that needs less memory:

    >>> seconds, need = np.array([[0.0, 0.0], [1.0, 3.0]]), np.array([[4.0, 4.0], [0.0, 0.0]])
    >>> best_of_stage(seconds, need, np.zeros((2, 2)), 4.0)
    [1, 0]
    """
    least = block_bytes.min(axis=0)
    room = room_bytes - least.sum()
    if room < 0:
        return None
    width = max(room, 1.0) / BUCKETS
    need = np.ceil((block_bytes - least) / width - 1e-9).astype(np.intp)
    options, blocks = block_s.shape
    level = np.full(
        (options, BUCKETS + 1), np.inf
    )  # least seconds by last option and buckets that are used
    before: list[Integers] = []
    for block in range(blocks):
        if block == 0:
            start = np.full((options, BUCKETS + 1), np.inf)
            start[:, 0] = reshard_s[own]
            came = np.zeros((options, BUCKETS + 1), dtype=np.intp)
        else:
            through = level[:, None] + reshard_s[:, :, None]
            came = through.argmin(axis=0)
            start = np.take_along_axis(through, came[None], axis=0)[0]
        level = np.full((options, BUCKETS + 1), np.inf)
        for option in range(options):
            shift = need[option, block]
            if shift <= BUCKETS:
                level[option, shift:] = start[option, : BUCKETS + 1 - shift] + block_s[option, block]
        before.append(came)
    last_s = level + reshard_s[:, [own]]
    if not np.isfinite(last_s).any():
        return None
    option, bucket = (int(at) for at in np.unravel_index(last_s.argmin(), last_s.shape))
    choice = []
    for block in range(blocks - 1, -1, -1):
        choice.append(option)
        bucket -= int(need[option, block])
        option = int(before[block][option, bucket])
    return choice[::-1]
