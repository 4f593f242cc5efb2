"""Projections around routed experts that work in a space narrower than the model (LatentMoE).

Answers: which weights and GEMMs take the tokens of a rank into this space, and back?
Elsewhere: the experts between them (layers/experts.py). The router and shared experts read whole tokens.

Both projections are whole on every rank and run on its own tokens, as `fc1_latent_proj` and
`fc2_latent_proj` of Megatron-Core (megatron/core/transformer/moe/moe_layer.py). Nemotron 3 Super and Ultra
have such experts (config.json on the Hugging Face hub, moe_latent_size).
"""

from flopcast.dtypes import constant
from flopcast.layers.base import Split, Weight, whole_matrix
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import Matmul

ENTERED, LEFT = "experts.latent", "experts.latent_sum"  # tensors of own tokens in the narrow space


def projection_weights(hidden: int, latent: int) -> tuple[Weight, ...]:
    """Return the matrices that project tokens into the smaller space and back."""
    return (
        whole_matrix("experts.latent_in", hidden, latent),
        whole_matrix("experts.latent_out", latent, hidden),
    )


def entering(hidden: int, latent: int, split: Split) -> Item:
    """Return the GEMM from "mlp.in" to ENTERED."""
    return _projection("latent_in", latent, hidden, split, "mlp.in", ENTERED)


def leaving(hidden: int, latent: int, split: Split, output: str) -> Item:
    """Return the GEMM from LEFT to `output`."""
    return _projection("latent_out", hidden, latent, split, LEFT, output)


def _projection(name: str, columns: int, depth: int, split: Split, source: str, output: str) -> Item:
    work = Matmul(m=split.own_tokens, n=constant(columns), k=constant(depth), dtype=split.dtype)
    return kernel(f"experts.{name}", work, (source,), output, component="experts")
