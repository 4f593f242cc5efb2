"""Matrices of a block that may have low-rank adapters, by the names that users give them.

Answers: which linear layers does a block have, how large are they, and which GEMM computes them?
Elsewhere: what an adapter adds to a layer (adapters.py), adapters of an engine (serving/adapters.py).
"""

from collections.abc import Iterable
from typing import Literal, get_args

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.experts import Experts
from flopcast.layers.mlp import Mlp
from flopcast.operators.memory_bound import KINDS
from flopcast.records import Record, replace

Target = Literal[
    "q", "k", "v", "qkv", "out", "gate", "up", "gate_up", "down", "expert_gate", "expert_up", "expert_down"
]
OF_TRANSFORMERS = {  # a module's name in transformers → which linear it is
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out", "out_proj": "out", "gate_proj": "gate",
    "up_proj": "up", "down_proj": "down", "qkv_proj": "qkv", "gate_up_proj": "gate_up", "w_pack": "qkv",
    "query_key_value": "qkv", "fc1": "up", "fc2": "down",
}  # fmt: skip
OF_LLAMA = {"wq": "q", "wk": "k", "wv": "v", "wo": "out", "output_proj": "out"}  # Meta's code, torchtune
FUSED = {"qkv": {"q", "k", "v"}, "gate_up": {"gate", "up"}}  # one adapter beside all of these


class Linear(Record):
    """A matrix that may have an adapter: the item that multiplies with it, and its whole shape.

    `share` is its share of the columns of a fused GEMM. A mixture has one such matrix for each of its
    `experts`, of which a token uses `active`; both are 0 for other matrices. Keys and values of
    cross-attention are computed from the output of the encoder (`reads_source`).
    """

    item: str
    rows: int
    columns: int
    share: float = 1.0
    experts: int = 0
    active: int = 0
    reads_source: bool = False

    @property
    def leaves_region(self) -> bool:
        """Return whether the layer is divided along its input, so that its output is a partial sum."""
        return self.item in ("attention.out", "cross.out", "mlp.down")


def linears(block: Block, hidden: int) -> dict[str, Linear]:
    """Return the matrices of a block that may have adapters, by target.

    >>> block = Block(mixer=Attention(heads=4), feed_forward=Mlp(ffn_hidden=256, activation="swiglu"))
    >>> [f"{name} {linear.rows}×{linear.columns}" for name, linear in linears(block, 64).items()]
    ['q 64×64', 'k 64×64', 'v 64×64', 'qkv 64×192', 'out 64×64', 'down 256×64', 'gate 64×256', 'up 64×256',
    'gate_up 64×512']
    """
    linears_by_name: dict[str, Linear] = {}
    mixer, mlp = block.mixer, block.feed_forward
    if isinstance(mixer, Attention):
        query, key = (count * mixer.size(hidden) for count in (mixer.heads, mixer.groups))
        both = query + 2 * key
        for name, columns in (("q", query), ("k", key), ("v", key), ("qkv", both)):
            linears_by_name[name] = Linear(
                item="attention.qkv", rows=hidden, columns=columns, share=columns / both
            )
        linears_by_name["out"] = Linear(item="attention.out", rows=query, columns=hidden)
    if isinstance(mlp, Mlp):
        width = mlp.ffn_hidden
        linears_by_name["down"] = Linear(item="mlp.down", rows=width, columns=hidden)
        if KINDS[mlp.activation].is_gated:
            for name in ("gate", "up"):
                linears_by_name[name] = Linear(item="mlp.up", rows=hidden, columns=width, share=0.5)
            linears_by_name["gate_up"] = Linear(item="mlp.up", rows=hidden, columns=2 * width)
        else:
            linears_by_name["up"] = Linear(item="mlp.up", rows=hidden, columns=width)
    if isinstance(mlp, Experts):
        linears_by_name |= _linears_of_experts(mlp, hidden)
    return linears_by_name


def adapted(block: Block, hidden: int, targets: Iterable[str]) -> dict[str, Linear]:
    """Return the matrices of a block that have adapters, each under a unique name.

    A target in attention also applies to cross-attention, because PEFT selects modules by their names. In
    cross-attention, queries are computed from other tokens than keys and values, so "qkv" has two adapters.

    >>> from flopcast.layers.cross_attention import CrossAttention
    >>> parts = {"mixer": Attention(heads=4), "feed_forward": Mlp(ffn_hidden=256)}
    >>> [*adapted(Block(cross=CrossAttention(heads=4), **parts), 64, ["q", "v"])]
    ['q', 'v', 'cross.q', 'cross.v']
    """
    known, chosen = linears(block, hidden), tuple(targets)
    found = {name: known[name] for name in chosen if name in known}
    if block.cross is None:
        return found
    inner = block.cross.heads * block.cross.size(hidden)
    queries = Linear(item="cross.q", rows=hidden, columns=inner)
    half = Linear(item="cross.kv", rows=hidden, columns=inner, share=0.5, reads_source=True)
    crossed = {
        "q": {"cross.q": queries},
        "k": {"cross.k": half},
        "v": {"cross.v": half},
        "qkv": {"cross.q": queries, "cross.kv": replace(half, columns=2 * inner, share=1.0)},
        "out": {"cross.out": Linear(item="cross.out", rows=inner, columns=hidden)},
    }
    return found | {own: each for name in chosen for own, each in crossed.get(name, {}).items()}


def _linears_of_experts(layer: Experts, hidden: int) -> dict[str, Linear]:
    """Return the matrices of each expert by target; those of shared experts have no adapters."""
    up = Linear(
        item="experts.up",
        rows=layer.inner_hidden(hidden),
        columns=layer.expert_hidden,
        share=layer.expert_hidden / layer.up_columns,
        experts=layer.num_experts,
        active=layer.top_k,
    )
    names = ("expert_gate", "expert_up") if KINDS[layer.activation].is_gated else ("expert_up",)
    down = replace(up, item="experts.down", rows=layer.expert_hidden, columns=up.rows, share=1.0)
    return {**dict.fromkeys(names, up), "expert_down": down}


def separate_linears(blocks: Iterable[Block], hidden: int) -> tuple[Target, ...]:
    """Return the targets of all matrices that every block has, except fused matrices and experts.

    >>> block = Block(mixer=Attention(heads=4), feed_forward=Mlp(ffn_hidden=256, activation="swiglu"))
    >>> separate_linears([block], 64)
    ('q', 'k', 'v', 'out', 'gate', 'up', 'down')
    """
    known = [linears(block, hidden) for block in blocks]
    separate: tuple[Target, ...] = tuple(name for name in get_args(Target) if name not in FUSED)
    return tuple(name for name in separate if all(name in one and not one[name].experts for one in known))


def meant_linear(name: str) -> str:
    """Return the linear layer with this name in transformers or in Meta's code of Llama; "" if none has it.

    >>> meant_linear("layers.0.attention.wo"), meant_linear("router")
    ('out', '')
    """
    return (OF_TRANSFORMERS | OF_LLAMA).get(name.rpartition(".")[2], "")
