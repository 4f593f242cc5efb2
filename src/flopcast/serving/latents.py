"""The latents of latent attention that one rank keeps, and the heads that read them.

Answers: how many elements of a token are in the cache of a rank, and how many heads share them?
Elsewhere: the layer (layers/latent_attention.py), the kernels (rewrites/cached_latents.py), bytes
(memory.py).

A rank keeps all latents, the latents of its heads, or a part of each latent:

    replicated, one latent (MLA)         rank + rope        its own heads
    replicated, a latent for a group     rank + rope        its own heads, where it has one group
    split (TPLA, arXiv:2508.15881)       rank / t + rope    all heads

If a rank has several groups (grouped latent attention, arXiv:2505.21487), each group has a latent.
"""

from flopcast.layers.base import Weight
from flopcast.layers.latent_attention import LatentAttention
from flopcast.records import Record, replace
from flopcast.spec.deployment import Deployment
from flopcast.units import Number

OF_ALL_HEADS = ("attention.q", "attention.q_up", "attention.out")  # products of decoding tokens


class CachedLatents(Record):
    """The latents of one token on one rank: `groups` of `rank` elements, each read by `heads` heads.

    A rank keeps `groups` · `rank` elements for a token, and `rope_size` elements of a key with rotated
    positions, which all groups share. If ranks split a latent, the numbers may be fractions. `heads` counts
    the heads of this rank that read one group.
    """

    groups: Number
    rank: Number
    rope_size: int
    heads: Number  # of a group, on this rank

    @property
    def elements(self) -> Number:
        """Return the elements of one token in the cache of one layer."""
        return self.groups * self.rank + self.rope_size


def cached_latents_of(mixer: LatentAttention, plan: Deployment) -> CachedLatents:
    """Return the latents that one rank of a deployment keeps.

    Examples
    --------
    DeepSeek-V3 on two ranks, arXiv:2508.15881, section 5.4:

    >>> mixer = LatentAttention(heads=128, kv_lora_rank=512, qk_nope_head_size=128, qk_rope_head_size=64,
    ...                         value_head_size=128)
    >>> for latents in ("replicated", "split"):
    ...     kept = cached_latents_of(mixer, Deployment(tp=2, latents=latents))
    ...     print(kept.elements, kept.heads)
    576.0 64.0
    320.0 128
    """
    ranks = plan.tensor_parallel
    if plan.latents == "split":
        return CachedLatents(
            groups=1, rank=mixer.kv_lora_rank / ranks, rope_size=mixer.qk_rope_head_size, heads=mixer.heads
        )
    groups = max(mixer.latent_groups / ranks, 1.0)
    return CachedLatents(
        groups=groups,
        rank=mixer.kv_lora_rank,
        rope_size=mixer.qk_rope_head_size,
        heads=mixer.heads / ranks / groups,
    )


def held_weights(weights: tuple[Weight, ...], plan: Deployment) -> tuple[Weight, ...]:
    """Return the weights that a rank holds: with split latents, a rank holds the projections of all heads.

    A rank then holds two overlapping parts of the up-projection: the part of its heads, for prompts, and
    the part of its share of each latent, for decoding tokens.
    """
    ranks = float(plan.tensor_parallel)
    if plan.latents != "split":
        return weights
    times = {"attention.kv_up": 2.0 - 1.0 / ranks} | dict.fromkeys(OF_ALL_HEADS, ranks)
    return tuple(
        replace(weight, elements=weight.elements * times.get(weight.name, 1.0)) for weight in weights
    )
