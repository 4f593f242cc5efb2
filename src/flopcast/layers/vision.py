"""A vision tower as a user describes it: its patches, its blocks, and its projections.

Answers: which layers does a tower have, which of them are trained, and how many FLOP do they need?
Elsewhere: what each layer runs (layers/tower.py), sizes of images (layers/images.py), the position of the
tower in a model (spec/model.py).
"""

import math
from typing import Literal

from pydantic import Field, model_validator

from flopcast.dtypes import ONE, constant
from flopcast.layers.base import Split
from flopcast.layers.images import Images, Patching
from flopcast.layers.mlp import Mlp
from flopcast.layers.tower import Patches, Projection, Projector, SeenBlock, TowerBlock, TowerLayer
from flopcast.operators.base import AbstractOperator
from flopcast.operators.matmul import BatchedMatmul, Matmul


class Vision(Patching):
    """A vision tower with its projections, before the first block of a decoder.

    Attributes
    ----------
    hidden : int
        Width of the tower.
    frames : int
        Number of video frames that form one patch. An image is repeated this many times.
    patch_bias : bool
        Whether the patch embedding has a bias.
    positions : int
        Number of rows of the table of learned position embeddings; 0 if the tower has none.
    norms : int
        Number of norms before the first block and after the last block of the tower. They have the kind of
        the norms of the first block.
    blocks : tuple of TowerBlock
        The blocks of the tower, one entry for each group of equal blocks. Their order does not matter.
    projections : tuple of Projection
        Projections to tokens of the decoder.
    trained : str, optional
        What is trained: "all", the "projector" alone, or "none". By default, it is "none" if the model has
        adapters, and "all" otherwise. A frozen tower runs only its forward pass and keeps no activations.

    Examples
    --------
    >>> tower = Vision(hidden=64, patch=14, merge=2, projections=[{"widths": [256, 128]}], blocks=[
    ...     {"count": 2, "mixer": {"heads": 4, "causal": False}, "feed_forward": {"ffn_hidden": 256}}])
    >>> [layer.kind for layer, count in tower.layers(adapted=False)]
    ['patches', 'block', 'projector']
    """

    hidden: int = Field(ge=1)
    frames: int = Field(default=1, ge=1)
    patch_bias: bool = False
    positions: int = Field(default=0, ge=0)
    norms: int = Field(default=0, ge=0, le=2)
    blocks: tuple[TowerBlock, ...] = Field(min_length=1)
    projections: tuple[Projection, ...] = Field(min_length=1)
    trained: Literal["all", "projector", "none"] | None = None

    @model_validator(mode="after")
    def _windows_hold_whole_patches(self) -> "Vision":
        for block in self.blocks:
            if block.window_pixels is not None and block.window_pixels % self.patch:
                raise ValueError(f"window_pixels: a multiple of patch ({self.patch})")
            if not block.mixer.has_whole_heads(self.hidden):
                raise ValueError(f"heads: a divisor of hidden ({self.hidden})")
        return self

    @property
    def divided(self) -> int:
        """Return the number that tensor-parallel degrees must divide: the gcd of all heads and widths."""
        blocks = [block for block in self.blocks if isinstance(block.feed_forward, Mlp)]
        heads = [block.mixer.heads for block in blocks]
        widths = [block.feed_forward.ffn_hidden for block in blocks]  # type: ignore[union-attr]
        return math.gcd(*heads, *widths)

    def fault_before(self, hidden: int, adapted: bool) -> str:
        """Return the values with which the tower would fit a decoder of this width; "" if it fits.

        >>> Vision(hidden=64, patch=14, projections=[{"widths": [128]}], blocks=[
        ...     {"mixer": {"heads": 4, "causal": False}, "feed_forward": {"ffn_hidden": 256}},
        ... ]).fault_before(256, adapted=False)
        'vision.projections: widths that end with the hidden size of the decoder, 256'
        """
        if any(each.widths[-1] != hidden for each in self.projections):
            return f"vision.projections: widths that end with the hidden size of the decoder, {hidden}"
        if adapted and self.trained not in (None, "none"):
            return "vision.trained: none; a trained tower beside adapters is not supported yet"
        return ""

    def part_trained(self, adapted: bool) -> str:
        """Return what is trained, "all", "projector" or "none", in a model with or without adapters."""
        return self.trained or ("none" if adapted else "all")

    def layers(self, adapted: bool) -> tuple[tuple[TowerLayer, int], ...]:
        """Return the layers in order, each with its number.

        Parameters
        ----------
        adapted
            Whether the decoder has adapters, which are then the only trained weights of the decoder.
        """
        trained = self.part_trained(adapted)
        patching = Patching(**{name: getattr(self, name) for name in Patching.model_fields})
        tower = {"width": self.hidden, "patching": patching, "trained": trained == "all"}
        patches = Patches(
            **tower,
            frames=self.frames,
            bias=self.patch_bias,
            positions=self.positions,
            norms=self.norms,
            norm=self.blocks[0].norm,
        )
        end = tower | {"trained": trained != "none", "reads_data": trained == "projector"}
        return (
            (patches, 1),
            *(
                (SeenBlock(**tower, block=block.model_copy(update={"count": 1})), block.count)
                for block in self.blocks
            ),
            *(
                (Projector(**end, projection=each.model_copy(update={"count": 1})), each.count)
                for each in self.projections
            ),
        )

    def step_flop(self, images: Images, adapted: bool, backward: bool, ranks: int = 1) -> float:
        """Return the FLOP of all matrix products of the tower for the images of one sequence.

        Parameters
        ----------
        images
            Those of the sequence.
        adapted
            Whether the decoder has adapters.
        backward
            Whether to add the backward pass of the trained parts.
        ranks
            Number of tensor-parallel ranks. The result is the sum over these ranks, each of which
            multiplies all patches by the patch embedding.
        """
        if not images:
            return 0.0
        split = Split(
            sequences=ONE,
            length=ONE,
            tensor=constant(ranks),
            sequence_parallel=False,
            dtype="bf16",
            images=(images,),
        )
        total_flop = 0.0
        for layer, count in self.layers(adapted):
            for item in layer.forward(self.hidden, split):
                if isinstance(item.work, Matmul | BatchedMatmul):
                    passes = item.work.gradients() if backward and layer.trained else ()
                    products: list[AbstractOperator] = [item.work, *(each for _, each in passes)]
                    total_flop += count * sum(float(each.work().flop.item()) for each in products)
        return ranks * total_flop
