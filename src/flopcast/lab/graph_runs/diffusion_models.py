"""Sizes of diffusion transformers, and what their parts in fp32 move.

Answers: which blocks, text encoder and decoder of latents has a model?
Elsewhere: the kernels that they run (diffusion.py).

Sizes are those of the models' configurations on the Hugging Face hub (transformer/config.json). They equal
the defaults of diffusers 0.42 (models/transformers) for HunyuanVideo, CogVideoX-2b, PixArt and SANA, those
of arXiv:2503.20314 for Wan, and those of DiT-g/2 of Tencent/HunyuanDiT. Operators are also those of
diffusers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from flopcast.units import Number

ROTARY, RMS_NORM, WIDE_NORM = (26.0, 8.0), (15.0, 5.0), (8.0, 2.0)
"""Elements of 16 bits that these move in fp32 beyond a plain norm, and their kernels: the rotary embedding
of a tensor (embeddings.apply_rotary_emb), diffusers' RMSNorm of a tensor, a FP32LayerNorm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """Equal blocks of a diffusion transformer.

    `joined`: text has weights of its own in each block, and attends together with the image; else the image
    attends to the text in a product of its own. `linear`: attention is linear in the tokens. `wide`: what
    parts in fp32 move for each token and column, and their kernels. `modulations`: passes that scale, shift
    or gate.
    """

    count: int
    hidden: int
    heads: int
    ffn_hidden: int
    joined: bool = False
    linear: bool = False
    shared: bool = False  # weights of image and text are the same, and both are one sequence
    skip_fraction: Number = 0.0  # of the blocks that read the output of an earlier one too
    fused: bool = False  # modulations, gates and rotary embedding run with their neighbours
    modulations: int = 6
    wide: tuple[Number, Number] = (0.0, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Diffusion:
    """A model: its blocks, and latents, text and decoder.

    `patch` is the side of the square of pixels that is one token; `frames` the frames that are one.
    `passes` of the transformer a step: 2 with guidance. `decoder` lists channels by halving of the side.
    """

    blocks: tuple[Blocks, ...]
    patch: int
    text_tokens: int
    encoder_parameters: Number
    decoder: tuple[int, ...]
    passes: int = 2
    frames: int = 4
    window: int = 9  # of the decoder's filters


def _sum(*parts: tuple[Number, tuple[Number, Number]]) -> tuple[Number, Number]:
    """Return the elements and kernels of several parts, each with how often it occurs."""
    return sum(n * each[0] for n, each in parts), sum(n * each[1] for n, each in parts)


T5_XXL, T5_XL, GEMMA_2B, LLAMA_8B = 4.7e9, 1.2e9, 2.6e9, 8e9
IMAGE_DECODER, VIDEO_DECODER = (128, 256, 512, 512), (128, 256, 512, 512)
MODELS: Mapping[str, Diffusion] = {
    "Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers": Diffusion(
        blocks=(Blocks(count=20, hidden=2240, heads=20, ffn_hidden=5600, linear=True),),
        patch=32,
        text_tokens=300,
        encoder_parameters=GEMMA_2B,
        decoder=(128, 256, 512, 512, 1024, 1024),
    ),
    "Efficient-Large-Model/SANA1.5_4.8B_1024px_diffusers": Diffusion(
        blocks=(Blocks(count=60, hidden=2240, heads=20, ffn_hidden=5600, linear=True),),
        patch=32,
        text_tokens=300,
        encoder_parameters=GEMMA_2B,
        decoder=(128, 256, 512, 512, 1024, 1024),
    ),
    "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS": Diffusion(
        blocks=(Blocks(count=28, hidden=1152, heads=16, ffn_hidden=4608),),
        patch=16,
        text_tokens=300,
        encoder_parameters=T5_XXL,
        decoder=IMAGE_DECODER,
    ),
    "Tencent-Hunyuan/HunyuanDiT-v1.2-Diffusers": Diffusion(
        blocks=(
            Blocks(
                count=40,
                hidden=1408,
                heads=16,
                ffn_hidden=6144,
                skip_fraction=0.5,
                modulations=1,
                wide=_sum((3, ROTARY), (3, WIDE_NORM)),  # queries of the text's attention are rotated, too
            ),
        ),
        patch=16,
        text_tokens=333,
        encoder_parameters=T5_XL,
        decoder=IMAGE_DECODER,
    ),
    "stabilityai/stable-diffusion-3.5-large": Diffusion(
        blocks=(
            Blocks(count=38, hidden=2432, heads=38, ffn_hidden=9728, joined=True, wide=_sum((2, RMS_NORM))),
        ),
        patch=16,
        text_tokens=333,
        encoder_parameters=T5_XXL,
        decoder=IMAGE_DECODER,
    ),
    "Wan-AI/Wan2.1-T2V-1.3B-Diffusers": Diffusion(
        blocks=(
            Blocks(  # modulations, gates and residuals run in fp32: 70 elements in place of 22
                count=30,
                hidden=1536,
                heads=12,
                ffn_hidden=8960,
                wide=_sum((1, (48.0, 12.0)), (2, (15.0, 8.0)), (3, RMS_NORM), (1, WIDE_NORM)),
            ),
        ),
        patch=16,
        text_tokens=512,
        encoder_parameters=T5_XXL,
        decoder=(96, 192, 384, 384),
        window=27,
    ),
    "tencent/HunyuanVideo": Diffusion(
        blocks=(
            Blocks(
                count=20,
                hidden=3072,
                heads=24,
                ffn_hidden=12288,
                joined=True,
                wide=_sum((2, ROTARY), (2, RMS_NORM)),
            ),
            Blocks(
                count=40,
                hidden=3072,
                heads=24,
                ffn_hidden=12288,
                shared=True,
                wide=_sum((2, ROTARY), (2, RMS_NORM)),
            ),
        ),
        patch=16,
        text_tokens=256,
        encoder_parameters=LLAMA_8B,
        decoder=VIDEO_DECODER,
        passes=1,
        window=27,
    ),
    "zai-org/CogVideoX-2b": Diffusion(
        blocks=(Blocks(count=30, hidden=1920, heads=30, ffn_hidden=7680, shared=True),),
        patch=16,
        text_tokens=226,
        encoder_parameters=T5_XXL,
        decoder=(128, 256, 256, 512),
        window=27,
    ),
}
