"""A decoder block written out in NumPy for one tensor-parallel rank, counting as it multiplies.

An independent, slow reading of arXiv:1909.08053, section 3: whole weights are made, the rank's slices
are cut out of them, and every product, weight element and array that ranks exchange is noted.
"""

import numpy as np


class Rank:
    """What one rank did."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks
        self.flop, self.weights, self.summed_bytes = 0, 0, 0

    def product(self, x, w):
        """A (batched) product; a multiply and an add per term."""
        result = x @ w
        self.flop += 2 * result.size * x.shape[-1]
        return result

    def columns(self, whole):
        """The rank's share of a weight that is cut along its output."""
        return self._held(np.array_split(whole, self.ranks, axis=1)[self.rank])

    def rows(self, whole):
        """The rank's share of a weight that is cut along its input."""
        return self._held(np.array_split(whole, self.ranks, axis=0)[self.rank])

    def heads(self, whole, heads):
        """Whole heads of the rank; ranks that outnumber the heads share them."""
        by_head = np.split(whole, heads, axis=1)
        if heads >= self.ranks:
            each = heads // self.ranks
            mine = by_head[self.rank * each : (self.rank + 1) * each]
        else:
            mine = [by_head[self.rank * heads // self.ranks]]
        return self._held(np.concatenate(mine, axis=1))

    def partial(self, array):
        """A partial sum that goes out to be added over the ranks, in 16 bits."""
        self.summed_bytes += array.astype(np.float16).nbytes
        return array

    def _held(self, part):
        self.weights += part.size
        return part


def run(block, hidden, sequences, length, ranks, rng_seed=0):
    """Every rank's account of one forward pass, without norms, and the sum of their outputs."""
    accounts = [Rank(rank, ranks) for rank in range(ranks)]
    weights = _weights(block, hidden, np.random.default_rng(rng_seed))
    x = np.random.default_rng(rng_seed + 1).normal(size=(sequences, length, hidden))
    attended = sum(_attention(block, x, weights, account) for account in accounts)
    return accounts, attended + sum(_mlp(block, x, weights, account) for account in accounts)


def _weights(block, hidden, rng):
    mixer, wide = block.mixer, block.feed_forward.ffn_hidden
    inner, shared = mixer.heads * mixer.size(hidden), mixer.groups * mixer.size(hidden)
    shapes = {"q": (hidden, inner), "k": (hidden, shared), "v": (hidden, shared), "out": (inner, hidden)}
    shapes |= {"up": (hidden, wide), "gate": (hidden, wide), "down": (wide, hidden)}
    return {name: rng.normal(size=shape) / hidden for name, shape in shapes.items()}


def _attention(block, x, weights, rank):
    mixer = block.mixer
    size = weights["q"].shape[1] // mixer.heads
    q = _by_head(rank.product(x, rank.heads(weights["q"], mixer.heads)), size)
    k = _by_head(rank.product(x, rank.heads(weights["k"], mixer.groups)), size)
    v = _by_head(rank.product(x, rank.heads(weights["v"], mixer.groups)), size)
    each = q.shape[1] // k.shape[1]
    k, v = (np.repeat(tensor, each, axis=1) for tensor in (k, v))
    scores = np.exp(rank.product(q, k.swapaxes(-1, -2)))
    context = rank.product(scores / scores.sum(axis=-1, keepdims=True), v)
    joined = context.swapaxes(1, 2).reshape(*x.shape[:2], -1)
    return rank.partial(rank.product(joined, rank.rows(weights["out"])))


def _by_head(x, size):
    return x.reshape(*x.shape[:2], -1, size).swapaxes(1, 2)


def _mlp(block, x, weights, rank):
    inner = np.tanh(rank.product(x, rank.columns(weights["up"])))
    if block.feed_forward.activation in ("swiglu", "geglu"):
        inner = inner * rank.product(x, rank.columns(weights["gate"]))
    return rank.partial(rank.product(inner, rank.rows(weights["down"])))
