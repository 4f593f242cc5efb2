"""The rules about heads and widths: which tensor-parallel degrees can divide a model's layers.

Answers: which degrees divide heads, key/value heads and the inner width of MLPs, and do heads divide the
hidden size?
Elsewhere: all other rules (rules.py), experts (rules_experts.py).
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import Counts
from flopcast.layers.block import Block
from flopcast.layers.latent_attention import LatentAttention
from flopcast.layers.mlp import Mlp
from flopcast.layers.sparse_index import SparseIndex
from flopcast.spec.checks import Case, Rule, first
from flopcast.spec.divisors import divisors, even_width, is_odd_width, listed, nearest_divisor


def _heads(case: Case) -> int:
    """Return what a tensor-parallel degree must divide: it cuts the heads of all runs of blocks."""
    heads = [block.mixer.heads for block in case.model.blocks if not block.mixer.is_whole_block]
    crossed = [block.cross.heads for block in case.model.blocks if block.cross]
    return int(np.gcd.reduce([0, *heads, *crossed]))  # none of a traced model, which no rank cuts


def _kv_fits(block: Block, tensor: Counts) -> np.ndarray:
    """Return where key/value heads fit: fewer than ranks are repeated, but each rank holds whole ones."""
    if block.mixer.groups == block.mixer.heads:  # the rule of heads says it already
        return np.ones(tensor.shape, dtype=bool)
    kept: np.ndarray = (block.mixer.groups % tensor == 0) | (tensor % block.mixer.groups == 0)
    return kept


def _width_fits(block: Block, tensor: Counts) -> np.ndarray:
    """Return where the inner width of dense feed-forwards is cut evenly; for experts: rules_experts.py."""
    width = block.feed_forward.ffn_hidden if isinstance(block.feed_forward, Mlp) else 0
    kept: np.ndarray = width % tensor == 0
    return kept


def _cut(case: Case, fits: Callable[[Block, Counts], np.ndarray]) -> np.ndarray:
    """Return whether every run of blocks can be cut, shape (plans, 1)."""
    tensor = case.plans.tensor_parallel
    kept: np.ndarray = np.logical_and.reduce([fits(block, tensor) for block in case.model.blocks])
    return kept


def _uncut(case: Case, fits: Callable[[Block, Counts], np.ndarray]) -> Block:
    """Return the first run of blocks that the first plan cannot cut."""
    tensor = case.plans.tensor_parallel[:1]
    return next(block for block in case.model.blocks if not fits(block, tensor).all())


def _uncut_width(case: Case) -> int:
    """Return the first inner width of a dense feed-forward that the first plan cannot cut."""
    layer = _uncut(case, _width_fits).feed_forward
    return layer.ffn_hidden if isinstance(layer, Mlp) else 0


def _tensor_degree(case: Case) -> int:
    """Return the degree nearest to the first plan's that divides heads, key/value heads and MLP widths."""
    wanted = first(case.plans.tensor_parallel)

    def cuts(degree: int) -> bool:
        column = np.array([[float(degree)]])
        return all(
            fits(block, column).all() for block in case.model.blocks for fits in (_kv_fits, _width_fits)
        )

    degrees = [degree for degree in divisors(_heads(case)) if cuts(degree)] or [1]
    return min(degrees, key=lambda degree: (abs(degree - wanted), degree))


def _wrong(case: Case, right: Callable[[Block, Case], bool]) -> int:
    return next(i for i, block in enumerate(case.model.blocks) if not right(block, case))


def _heads_divide(block: Block, case: Case) -> bool:
    """Return whether a head has a whole number of elements."""
    return block.mixer.has_whole_heads(case.model.hidden)


def _all_heads_divide(case: Case) -> bool:
    return all(_heads_divide(block, case) for block in case.model.blocks)


def _undivided_heads(case: Case) -> int:
    return case.model.blocks[_wrong(case, _heads_divide)].mixer.heads


def _groups_divide(block: Block, _: Case) -> bool:
    """Return whether every key/value head serves equally many query heads."""
    return block.mixer.heads % block.mixer.groups == 0


def _nearest(case: Case) -> int:
    """Return the number of key/value heads that is nearest to that of the first wrong block."""
    mixer = case.model.blocks[_wrong(case, _groups_divide)].mixer
    return nearest_divisor(mixer.heads, mixer.groups)


def _indexers(case: Case) -> dict[int, SparseIndex]:
    """Return the indexers of sparse attention by the place of their run of blocks."""
    mixers = enumerate(block.mixer for block in case.model.blocks)
    return {
        place: mixer.index for place, mixer in mixers if isinstance(mixer, LatentAttention) and mixer.index
    }


def _dense(case: Case) -> str:
    """Return the changes that make sparse attention of all blocks attention to all tokens."""
    places = range(len(case.model.blocks))
    changes = " ".join(f"model.blocks.{place}.mixer.index=null" for place in places)
    return f"remove index from all blocks ({changes})"


RULES: tuple[Rule, ...] = (
    Rule(
        field=lambda c: f"model.blocks[{min(_indexers(c))}].mixer.index.top_k",
        holds=lambda c: not _indexers(c),
        allowed="no index (sparse attention) in a training job",
        because="flopcast predicts only the serving of models with sparse attention, not their training",
        fix=lambda c: f"{_dense(c)}, to train with attention to all tokens",
    ),
    Rule(
        field="plan.tensor_parallel",
        holds=lambda c: (_heads(c) % c.plans.tensor_parallel == 0) | (not _all_heads_divide(c)),
        allowed=lambda c: f"a divisor of heads ({_heads(c)}): {listed(divisors(_heads(c)))}",
        because="each tensor-parallel rank holds whole attention heads",
        fix=lambda c: {"tensor_parallel": _tensor_degree(c)},
    ),
    Rule(
        field="plan.tensor_parallel",
        holds=lambda c: _cut(c, _kv_fits),
        allowed=lambda c: f"a divisor or multiple of kv_heads ({_uncut(c, _kv_fits).mixer.groups})",
        because="each tensor-parallel rank holds whole key/value heads, which may be replicated",
        fix=lambda c: {"tensor_parallel": _tensor_degree(c)},
    ),
    Rule(
        field="plan.tensor_parallel",
        holds=lambda c: _cut(c, _width_fits),
        allowed=lambda c: f"a divisor of ffn_hidden ({_uncut_width(c)})",
        because="every tensor-parallel rank holds the same number of columns of the MLP",
        fix=lambda c: {"tensor_parallel": _tensor_degree(c)},
    ),
    Rule(
        field="model.hidden",
        holds=lambda c: _all_heads_divide(c) or not is_odd_width(c.model.hidden),
        allowed=lambda c: f"a multiple of heads ({_undivided_heads(c)})",
        because="if head_size is not given, a head has hidden / heads elements",
        fix=lambda c: {"hidden": even_width(c.model.hidden, _undivided_heads(c))},
    ),
    Rule(
        field=lambda c: f"model.blocks[{_wrong(c, _heads_divide)}].mixer.heads",
        holds=lambda c: _all_heads_divide(c) or is_odd_width(c.model.hidden),
        allowed=lambda c: f"a divisor of hidden ({c.model.hidden}): {listed(divisors(c.model.hidden))}",
        because="if head_size is not given, a head has hidden / heads elements",
        fix=lambda c: ({"heads": nearest_divisor(c.model.hidden, _undivided_heads(c))}, "give head_size"),
    ),
    Rule(
        field=lambda c: f"model.blocks[{_wrong(c, _groups_divide)}].mixer.kv_heads",
        holds=lambda c: all(_groups_divide(block, c) for block in c.model.blocks),
        value=lambda c: c.model.blocks[_wrong(c, _groups_divide)].mixer.groups,
        allowed=lambda c: (
            f"a divisor of heads ({c.model.blocks[_wrong(c, _groups_divide)].mixer.heads}): "
            f"{listed(divisors(c.model.blocks[_wrong(c, _groups_divide)].mixer.heads))}"
        ),
        because="every key/value head is shared by the same number of query heads",
        fix=lambda c: {"kv_heads": _nearest(c)},
    ),
)
