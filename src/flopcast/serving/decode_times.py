"""The time of many decoding iterations at once.

Answers: how long do n iterations take that decode the same sequences, and how many of them begin before a
given time?
Elsewhere: the time of one pass (a function that the scheduler receives), which iterations are simulated
together (scheduler.py).

For a number of sequences, the time of a pass is a function of the KV tokens that it reads. It is computed
at some nodes in one call and is linear between them, so that the sum over growing caches has a closed form.
"""

import math
from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from flopcast.dtypes import Counts, Floats

Amount = float | Counts
PassSeconds = Callable[[Amount, Amount, Amount, Amount], float | Floats]
"""Seconds of passes, from floats or from arrays of one shape, in this order:

- new tokens, which the pass computes;
- sequences in the pass;
- KV tokens: the sum of the contexts of all sequences, which is the number of tokens in the cache after the
  pass;
- new tokens x context: the sum over new tokens of the tokens to which each attends, including itself. It is
  n (c + (n + 1) / 2) for a sequence with n new tokens after c cached tokens.

The scheduler calls the function with floats for an iteration with prompts, with arrays for the iterations
of one long prompt, and once for several numbers of decoding sequences.
"""
KNOTS = 97  # adjacent contexts differ by at most 13 % for contexts up to 131,072 tokens
TOGETHER = 8  # numbers of sequences priced in one call: takes twice as long as for a single number
_Line = tuple[list[float], list[float], list[float]]


class DecodeTimes:
    """Times of iterations in which every sequence decodes.

    Parameters
    ----------
    pass_seconds : PassSeconds
    computed_tokens : int
        New tokens that a pass computes for each sequence.
    longest_tokens : int
        Largest context of a sequence; beyond it, times are extrapolated.
    """

    def __init__(self, pass_seconds: PassSeconds, computed_tokens: int, longest_tokens: int) -> None:
        self.pass_seconds: PassSeconds = pass_seconds
        self._computed_tokens = computed_tokens
        longest_tokens = max(longest_tokens, 2) + computed_tokens
        self._contexts: Counts = np.geomspace(computed_tokens, longest_tokens, KNOTS)
        self._lines: dict[int, _Line] = {}

    def run(
        self, sequences: int, kv_tokens: float, growth_tokens: float, most_passes: int, until_s: float
    ) -> tuple[int, float]:
        """Return the number of passes that run, and the sum of their seconds.

        Parameters
        ----------
        sequences : int
            At least 1.
        kv_tokens, growth_tokens : float
            KV tokens that the first pass reads, and additional tokens of each further pass.
        most_passes : int
            At least 1.
        until_s : float
            The first pass that ends at this time or later is the last one; infinity if there is no such
            time.
        """
        if sequences not in self._lines:
            self._add_lines(sequences)
        knots, values, slopes = self._lines[sequences]
        place = min(max(bisect_right(knots, kv_tokens) - 1, 0), len(slopes) - 1)
        done, elapsed_s = 0, 0.0
        while True:
            each_s = values[place] + slopes[place] * (kv_tokens - knots[place])
            step_s = slopes[place] * growth_tokens
            passes = most_passes - done
            if place < len(slopes) - 1 and growth_tokens > 0:
                passes = min(passes, int((knots[place + 1] - kv_tokens) // growth_tokens) + 1)
            together_s = passes * (each_s + step_s * (passes - 1) / 2)
            if elapsed_s + together_s >= until_s:
                passes = _passes(until_s - elapsed_s, each_s, step_s, passes)
                together_s = passes * (each_s + step_s * (passes - 1) / 2)
                return done + passes, elapsed_s + together_s
            done += passes
            elapsed_s += together_s
            if done >= most_passes:
                return done, elapsed_s
            kv_tokens += passes * growth_tokens
            place += 1

    def _add_lines(self, sequences: int) -> None:
        """Add the lines of a number of sequences and of the numbers near it.

        A line has knots, seconds at the knots, and slopes between them.
        """
        first = sequences - sequences % TOGETHER
        numbers = np.arange(max(first, 1), first + TOGETHER)
        knots = numbers[:, None] * self._contexts
        each = np.repeat(numbers.astype(np.float64), KNOTS)
        new, kv_tokens = each * self._computed_tokens, knots.ravel()
        pairs = self._computed_tokens * (kv_tokens - new) + new * (self._computed_tokens + 1) / 2
        seconds = np.asarray(self.pass_seconds(new, each, kv_tokens, pairs), dtype=np.float64)
        values = seconds.reshape(knots.shape)
        slopes = np.diff(values) / np.diff(knots)
        for row, number in enumerate(numbers.tolist()):
            self._lines[number] = knots[row].tolist(), values[row].tolist(), slopes[row].tolist()


def _passes(until_s: float, each_s: float, step_s: float, most: int) -> int:
    """Return the least number of passes that last `until_s` or longer, from 1 to `most`.

    The first takes `each_s` and every other one `step_s` more than the one before: a quadratic equation.
    """
    linear_s = each_s - step_s / 2
    root_s = math.sqrt(max(linear_s * linear_s + 2 * step_s * until_s, 0.0))
    return min(max(math.ceil(2 * until_s / (linear_s + root_s) - 1e-9), 1), most)
