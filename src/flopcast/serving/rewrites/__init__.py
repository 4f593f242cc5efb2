"""The rewrites from the forward pass of a layer to the kernels of a serving engine, in order.

Each rewrite has one file, and one line in this module.

Each rewrite has the signature `(items, seen) -> items`, and changes nothing if a layer lacks its pattern.
"""

from collections.abc import Callable

from flopcast.operators.item import Item
from flopcast.serving.rewrites.adapter_products import adapter_products
from flopcast.serving.rewrites.cached_attention import cached_attention
from flopcast.serving.rewrites.cached_latents import cached_latents
from flopcast.serving.rewrites.cached_states import cached_states
from flopcast.serving.rewrites.fused_norms import fused_norms
from flopcast.serving.rewrites.fused_rotation import fused_rotation
from flopcast.serving.rewrites.last_tokens import last_tokens
from flopcast.serving.rewrites.served_experts import served_experts
from flopcast.serving.rewrites.served_messages import served_messages
from flopcast.serving.rewrites.served_products import served_products
from flopcast.serving.seen import Seen

ServingRewrite = Callable[[tuple[Item, ...], Seen], tuple[Item, ...]]
SERVING_REWRITES: dict[str, ServingRewrite] = {
    "cached_attention": cached_attention,
    "cached_latents": cached_latents,
    "cached_states": cached_states,
    "served_experts": served_experts,
    "last_tokens": last_tokens,
    "fused_norms": fused_norms,
    "fused_rotation": fused_rotation,
    "served_products": served_products,
    "served_messages": served_messages,
    "adapter_products": adapter_products,
}
