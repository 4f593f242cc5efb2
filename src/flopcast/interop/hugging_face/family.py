"""A family of decoders: the table of facts that its configs give, and the values that it must not have.

Answers: how does a table state a fact, and which facts do many families share?
Elsewhere: the tables (families.py, recent_families.py), keys of facts (values.py), the mapping that they
make (config.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flopcast.interop.hugging_face.values import Reader


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFact:
    """A fact that the config gives; `keys` are the family's own names for it, if it has any."""

    default: object
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Must:
    """A key of which only one value is supported.

    Its value must be `wanted`, or equal the fact `same_as`; absent and null keys pass.
    """

    key: str
    wanted: object = None
    same_as: str = ""
    because: str


Rule = ConfigFact | Callable[[Reader], object] | str | int | float | bool | None
Facts = Mapping[str, Rule]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """The facts of a family, restrictions on its keys, and keys of passes that are not counted."""

    facts: Facts
    musts: tuple[Must, ...] = ()
    scales: tuple[str, ...] = field(default=())


def fact(default: object, *keys: str) -> ConfigFact:
    """Return a fact that the config gives, under the family's own keys if it has any."""
    return ConfigFact(default=default, keys=keys)


def sizes(
    hidden: int, layers: int, heads: int, ffn_hidden: int | None, vocabulary: int, context: int
) -> dict[str, Rule]:
    """Return the published defaults of the sizes; ffn_hidden None means 4 · hidden."""
    published = {"hidden": hidden, "layers": layers, "heads": heads, "ffn_hidden": ffn_hidden}
    published |= {"vocabulary": vocabulary, "context": context}
    return {name: fact(value) for name, value in published.items()}


def biased(rule: Rule) -> dict[str, Rule]:
    """Return one rule for the biases of all linears of a block."""
    return {"qkv_bias": rule, "out_bias": rule, "mlp_bias": rule}


GATED: dict[str, Rule] = {
    "activation": fact("silu"), "gated": True, "norm": "rmsnorm", "norm_bias": False,
    "kv_heads": fact(None), "tied": fact(False), "attention_dropout": fact(0.0),
}  # fmt: skip
PLAIN: dict[str, Rule] = {
    "activation": fact("gelu_new"), "gated": False, "norm": "layernorm", "norm_bias": True,
    "tied": fact(True),
}  # fmt: skip
ATTENTION_BIAS: dict[str, Rule] = {name: fact(False, "attention_bias") for name in ("qkv_bias", "out_bias")}
LEARNED: dict[str, Rule] = {"rotary_fraction": 0.0, "learned": True}
NO_ROTARY: dict[str, Rule] = {"rotary_fraction": 0.0}
GPT_DROPOUT: dict[str, Rule] = {
    "hidden_dropout": fact(0.1), "embedding_dropout": fact(0.1), "attention_dropout": fact(0.1),
}  # fmt: skip
NO_DROPOUT: dict[str, Rule] = {name: fact(0.0) for name in GPT_DROPOUT}
