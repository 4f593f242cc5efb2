"""Vision towers of Hugging Face families: one function for each family.

Answers: which blocks, projections and image sizes does the tower of Qwen2-VL, LLaVA, Pixtral or InternVL
have?
Elsewhere: configs with a tower, and their notes (vision.py), the definition of a tower (layers/vision.py).

Each function reads the keys of its own vision part. It also states what the family's code fixes: the
biases, norms and activations in transformers' `modeling_FAMILY.py`. Limits of image sizes are those of
the family's image processor, because a config.json does not state them.
"""

from collections.abc import Callable
from math import isqrt
from typing import Any

from flopcast.fixes import set_to
from flopcast.interop.hugging_face.decoder_facts import ACTIVATIONS, meant_activation
from flopcast.interop.hugging_face.values import Reader
from flopcast.spec.divisors import nearest_divisor

Tower = dict[str, Any]
OF_DECODER = "the decoder reads tokens of this width"
LLAMA_4_TILES = 16  # `max_patches` of its image processor
PIXTRAL = "pixtral"
INTERNVL_TILES = 12  # the same of InternVL


def _size(read: Reader, key: str, default: int) -> int:
    """Return a size that a config gives as a number or as a list of equal numbers."""
    given = read.raw(key)
    if isinstance(given, (list, tuple)) and given and all(each == given[0] for each in given):
        read.values[key] = (read.values[key][0], given[0])
    return read.count(key, default)


def _block(read: Reader, heads: int, ffn_hidden: int, usual: str = "gelu", **other: object) -> Tower:
    """Return a block without a mask, with biases unless `bias` is false; `usual` is the activation."""
    gated, bias = bool(other.pop("gated", False)), bool(other.pop("bias", True))
    turned = other.pop("rotary", True)
    written = str(read.value("text", ("hidden_act",), usual))
    known = ACTIVATIONS.get(written)
    if known is None or not known[gated]:
        allowed = ", ".join(name for name, kinds in ACTIVATIONS.items() if kinds[gated])
        fix = f"write {meant_activation(written, gated=gated, usual=usual)}"
        read.fault("hidden_act", allowed, "flopcast does not support other activations", fix)
        known = ACTIVATIONS["gelu"]
    return {
        "mixer": {
            "heads": heads,
            "qkv_bias": bias,
            "out_bias": bias,
            "rotary_fraction": 1.0 if turned else 0.0,
            "causal": False,
        },
        "feed_forward": {"ffn_hidden": ffn_hidden, "activation": known[gated], "bias": bias},
        **other,
    }


def _heads(read: Reader, key: str, usual: int, width: int) -> int:
    """Return the number of heads, which divides the width of the tower."""
    heads = read.count(key, usual)
    if width % heads:
        because = f"the number of heads must divide the width of the tower, {width}"
        read.fault(key, f"a divisor of {width}", because, set_to({key: nearest_divisor(width, heads)}))
        return 1
    return heads


def _check_width(read: Reader, key: str, width: int, because: str) -> None:
    """Check a width that follows from other keys against the given one, if there is one."""
    if read.raw(key) not in (None, width):
        read.fault(key, str(width), because, set_to({key: width}))


def _places(read: Reader, key: str, usual: list[int]) -> list[int]:
    """Return a list of block numbers, or the default list."""
    given = read.entries(key, lambda one: isinstance(one, int), "a list of numbers of blocks")
    return usual if given is None else given


def _of_frames(read: Reader, widths: tuple[int, int], patch: int, norm: str, blocks: list[Tower]) -> Tower:
    """Return a tower that reads frames of any size, and projects merged patches to the second width."""
    merge = read.count("spatial_merge_size", 2)
    return {
        "hidden": widths[0],
        "patch": _size(read, "patch_size", patch),
        "frames": _size(read, "temporal_patch_size", 2),
        "merge": merge,
        "blocks": blocks,
        "projections": [{"norm": norm, "widths": [widths[0] * merge**2, widths[1]]}],
    }


def _qwen2(read: Reader, _: Reader, hidden: int) -> Tower:
    """Return the tower of Qwen2-VL: blocks of layer norms, images of any size."""
    width = read.count("embed_dim", 1280)
    _check_width(read, "hidden_size", hidden, OF_DECODER)
    ffn_hidden = int(width * float(str(read.value("factor", ("mlp_ratio",), 4))))
    block = _block(read, _heads(read, "num_heads", 16, width), ffn_hidden, "quick_gelu")
    blocks = [block | {"count": read.count("depth", 32)}]
    return _of_frames(read, (width, hidden), 14, "layernorm", blocks)


def _qwen2_5(read: Reader, _: Reader, hidden: int) -> Tower:
    """Return the tower of Qwen2.5-VL: RMS norms and gated MLPs, and windows in most blocks."""
    width, depth = read.count("hidden_size", 3584), read.count("depth", 32)
    heads, inner = _heads(read, "num_heads", 16, width), read.count("intermediate_size", 3420)
    block = _block(read, heads, inner, "silu", gated=True, norm="rmsnorm")
    full = len({one for one in _places(read, "fullatt_block_indexes", [7, 15, 23, 31]) if one < depth})
    window = read.count("window_size", 112)
    _check_width(read, "out_hidden_size", hidden, OF_DECODER)
    counts: tuple[tuple[int, Tower], ...] = ((depth - full, {"window_pixels": window}), (full, {}))
    blocks = [block | own | {"count": count} for count, own in counts if count]
    return _of_frames(read, (width, hidden), 14, "rmsnorm", blocks)


def _qwen3(read: Reader, _: Reader, hidden: int) -> Tower:
    """Return the tower of Qwen3-VL: learned positions, and projections of further layers (DeepStack)."""
    width = read.count("hidden_size", 1152)
    heads, inner = _heads(read, "num_heads", 16, width), read.count("intermediate_size", 4304)
    block = _block(read, heads, inner, "gelu_pytorch_tanh", count=read.count("depth", 27))
    further = len(_places(read, "deepstack_visual_indexes", [8, 16, 24]))
    _check_width(read, "out_hidden_size", hidden, OF_DECODER)
    tower = _of_frames(read, (width, hidden), 16, "layernorm", [block])
    if further:
        tower["projections"] += [tower["projections"][0] | {"norm_merged": True, "count": further}]
    return tower | {
        "patch_bias": True,
        "positions": read.count("num_position_embeddings", 2304),
        "least_pixels": 256 * 256,
        "most_pixels": 4096 * 4096,
    }


def _square(read: Reader, sizes: tuple[int, int, int, int, int, int]) -> Tower:
    """Return the sizes of a tower whose images, or tiles, are all resized to one square.

    No patch reads the pixels after the last whole patch of a row or column.
    """
    width, layers, heads, ffn_hidden, side, patch = sizes
    side, patch = _size(read, "image_size", side), _size(read, "patch_size", patch)
    width = read.count("hidden_size", width)
    if side < patch:
        because = "an image has at least one patch"
        read.fault("image_size", f"at least patch_size ({patch})", because, set_to({"image_size": patch}))
    inner = read.count("intermediate_size", ffn_hidden)
    heads = _heads(read, "num_attention_heads", heads, width)
    block = _block(read, heads, inner, rotary=False, count=read.count("num_hidden_layers", layers))
    return {
        "hidden": width,
        "patch": patch,
        "side": side // patch * patch,
        "positions": (side // patch) ** 2,
        "blocks": [block],
    }


def _with_class_token(tower: Tower) -> Tower:
    """Return the tower with a class token, which has a position, and norms before and after the blocks."""
    return tower | {"class_token": True, "positions": tower["positions"] + 1, "norms": 2}


def _check_one_layer(whole: Reader) -> None:
    """Check that the decoder reads the result of one layer of the tower."""
    layer = "vision_feature_layer"
    if isinstance(layers := whole.raw(layer), list) and len(layers) > 1:
        because = "features of several layers side by side are not supported yet"
        whole.fault(layer, "the number of one layer", because, "choose one layer, such as -2")


def _llava(read: Reader, whole: Reader, hidden: int) -> Tower | None:
    """Return the tower of LLaVA (CLIP or SigLIP) and a projection of two matrices; None for others."""
    kind = read.raw("model_type")
    if kind == "siglip_vision_model":
        tower = _square(read, (768, 12, 12, 3072, 224, 16)) | {"patch_bias": True, "norms": 1}
    elif kind in (None, "clip_vision_model"):
        tower = _with_class_token(_square(read, (1024, 24, 16, 4096, 336, 14)))
    elif kind == PIXTRAL:
        tower = _pixtral(read, merge=1)
    else:
        return None
    _check_one_layer(whole)
    bias = whole.flag("multimodal_projector_bias", True)
    return tower | {"projections": [{"widths": [hidden, hidden], "bias": bias}]}


def _gemma3(read: Reader, whole: Reader, hidden: int) -> Tower:
    """Return the tower of Gemma 3: SigLIP, whose patches are averaged to a fixed number of tokens."""
    tower = _square(read, (1152, 27, 16, 4304, 896, 14))
    tokens = whole.count("mm_tokens_per_image", 256)
    merge = max(1, tower["side"] // tower["patch"] // isqrt(tokens))
    projection = {"norm": "rmsnorm", "widths": [hidden], "bias": False, "pooled": True}
    return tower | {"patch_bias": True, "norms": 1, "merge": merge, "projections": [projection]}


def _llama4(read: Reader, _: Reader, hidden: int) -> Tower:
    """Return the tower of Llama 4: each tile has a class token, and four patches become one token."""
    tower = _with_class_token(_square(read, (1408, 34, 16, 5632, 336, 14)))
    tower["blocks"][0]["mixer"]["rotary_fraction"] = 1.0
    ratio = float(str(read.value("part", ("pixel_shuffle_ratio",), 0.5)))
    inner = (read.count("projector_input_dim", 4096), read.count("projector_output_dim", 4096))
    because = "this key must have the value of projector_output_dim"
    _check_width(read, "vision_output_dim", inner[1], because)
    read.used.add("multi_modal_projector_bias")  # no matrix of the projector has a bias
    return tower | {
        "merge": max(1, round(1.0 / ratio)),
        "tiles": LLAMA_4_TILES,
        "projections": [{"widths": [*inner, hidden], "bias": False}],
    }


def _pixtral(read: Reader, merge: int) -> Tower:
    """Return the tower of Pixtral: RMS norms, gated MLPs, no biases, and images of any size up to a
    maximum side length.

    Sides are rounded up to whole tokens. The sequence also has a token at the end of each row of an
    image, which counts as text.
    """
    width, patch = read.count("hidden_size", 1024), _size(read, "patch_size", 16)
    heads, inner = _heads(read, "num_attention_heads", 16, width), read.count("intermediate_size", 4096)
    _check_width(read, "head_dim", width // heads, "the number of heads must divide the width of the tower")
    block = _block(read, heads, inner, gated=True, bias=False, norm="rmsnorm")
    return {
        "hidden": width,
        "patch": patch,
        "merge": merge,
        "longest_pixels": max(_size(read, "image_size", 1024), patch * merge),
        "norms": 1,
        "blocks": [block | {"count": read.count("num_hidden_layers", 24)}],
    }


def _mistral3(read: Reader, whole: Reader, hidden: int) -> Tower | None:
    """Return the tower of Mistral Small 3.1: Pixtral, whose patches are merged before the projection."""
    if read.raw("model_type") not in (None, PIXTRAL):
        return None
    _check_one_layer(whole)
    tower = _pixtral(read, whole.count("spatial_merge_size", 2))
    if whole.flag(bias := "multimodal_projector_bias", False):
        because = "the norm and the matrix that merges patches have no bias"
        whole.fault(bias, "false", because, set_to({bias: False}))
    widths = [tower["hidden"], hidden, hidden]
    return tower | {"projections": [{"norm": "rmsnorm", "widths": widths, "bias": False}]}


def _internvl(read: Reader, whole: Reader, hidden: int) -> Tower:
    """Return the tower of InternVL: tiles with a class token each, and a scaled output of attention and
    MLP.

    Images are divided into the grid of tiles whose aspect ratio is closest to their own.
    """
    _check_one_layer(whole)
    tower = _square(read, (1024, 24, 16, 4096, 448, 14))
    for key, built in (("norm_type", "layer_norm"), ("use_qk_norm", False), ("use_mask_token", False)):
        if read.raw(key) not in (None, built):
            because = "flopcast does not support other towers of InternVL yet"
            read.fault(key, str(built).lower(), because, set_to({key: str(built).lower()}))
    tower["blocks"][0]["layer_scale"] = True
    tower["blocks"][0]["mixer"]["qkv_bias"] = read.flag("attention_bias", False)
    learned = read.flag("use_absolute_position_embeddings", True)
    ratio = float(str(whole.value("part", ("downsample_ratio",), 0.5)))
    return tower | {
        "patch_bias": True,
        "class_token": True,
        "positions": tower["positions"] + 1 if learned else 0,
        "norms": 0 if read.flag("use_mean_pooling", True) else 1,
        "merge": max(1, round(1.0 / ratio)),
        "tiles": INTERNVL_TILES,
        "tile_grid": "ratio",
        "projections": [{"norm": "layernorm", "norm_merged": True, "widths": [hidden, hidden]}],
    }


FAMILIES: dict[str, Callable[[Reader, Reader, int], Tower | None]] = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "llava": _llava,
    "gemma3": _gemma3,
    "llama4": _llama4,
    "mistral3": _mistral3,
    "internvl": _internvl,
}
