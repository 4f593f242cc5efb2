"""The vision tower of a Hugging Face config: `vision_config` of models that see.

Answers: which tower and which projections does a config with a vision part describe?
Elsewhere: its text part (config.py), what a tower is (layers/vision.py).

Each family has one function, which reads the keys of its own vision part and names what the code of the
family fixes: biases, norms and activations of transformers' `modeling_FAMILY.py`. Limits of image sizes are
those of the family's image processor, because a config.json does not state them.
"""

from collections.abc import Callable
from math import isqrt
from typing import Any

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.hugging_face.decoder_facts import ACTIVATIONS
from flopcast.interop.hugging_face.unsupported import SILENT
from flopcast.interop.hugging_face.values import Reader, flattened

Tower = dict[str, Any]
KEY = "vision_config"
IGNORED = frozenset({  # keys of vision parts that change neither time nor memory
    "in_channels", "in_chans", "num_channels", "tokens_per_second", "projection_dim", "vision_use_head",
    "attention_dropout", "dropout", "logit_scale_init_value", "initializer_factor", "projector_dropout",
    "spatial_patch_size", "vision_feature_layer", "vision_feature_select_strategy",
})  # fmt: skip
LLAMA_4_TILES = 16  # `max_patches` of its image processor


def tower_of_config(
    document: Document, data: dict[str, Any], hidden: int
) -> tuple[Tower | None, list[str]]:
    """Return the vision tower of a config as a Model has it, and notes; None if it has none that is known.

    Parameters
    ----------
    document, data
        The config, and its plain data.
    hidden
        Width of the decoder.
    """
    part, family = data.get(KEY), str(data.get("model_type", ""))
    if not isinstance(part, dict) or family not in FAMILIES:
        return None, []
    reader = Reader(document, flattened(part, (KEY,)))
    tower = FAMILIES[family](reader, data, hidden)
    notes = [f"{KEY}.{key} is not a known key, and was ignored" for key in reader.unused(SILENT | IGNORED)]
    if reader.defaults:
        taken = ", ".join(f"{key} {value}" for key, value in reader.defaults.items())
        notes.append(f"not given in {KEY}, so the default of {family}: {taken}")
    if tower.get("tiles", 1) > 1:
        notes.append(f"images are divided into at most {tower['tiles']} tiles, which is the default")
    if reader.problems:
        raise SpecError(reader.problems.values())
    return tower, notes


def _size(read: Reader, key: str, default: int) -> int:
    """Return a size that a config gives as a number or as a list of equal numbers."""
    given = read.raw(key)
    if isinstance(given, (list, tuple)) and given and all(each == given[0] for each in given):
        read.values[key] = (read.values[key][0], given[0])
    return read.count(key, default)


def _block(read: Reader, heads: int, ffn_hidden: int, activation: str, **other: object) -> Tower:
    """Return a block with biases and without a mask."""
    gated = bool(other.pop("gated", False))
    turned = other.pop("rotary", True)
    known = ACTIVATIONS.get(activation)
    if known is None or not known[gated]:
        read.fault(
            "hidden_act",
            ", ".join(ACTIVATIONS),
            "flopcast does not support other activations",
            "choose gelu",
        )
        known = ACTIVATIONS["gelu"]
    return {
        "mixer": {
            "heads": heads,
            "qkv_bias": True,
            "out_bias": True,
            "rotary_fraction": 1.0 if turned else 0.0,
            "causal": False,
        },
        "feed_forward": {"ffn_hidden": ffn_hidden, "activation": known[gated], "bias": True},
        **other,
    }


def _places(read: Reader, key: str, usual: list[int]) -> list[int]:
    """Return a list of numbers of blocks, or the usual one."""
    given = read.entries(key, lambda one: isinstance(one, int), "a list of numbers of blocks")
    return usual if given is None else given


def _qwen2(read: Reader, _: Tower, hidden: int) -> Tower:
    """Return the tower of Qwen2-VL: blocks of layer norms, images of any size."""
    width = read.count("embed_dim", 1280)
    read.used.add("hidden_size")  # the width of the decoder
    merge = read.count("spatial_merge_size", 2)
    act = str(read.value("text", ("hidden_act",), "quick_gelu"))
    ffn_hidden = int(width * float(str(read.value("factor", ("mlp_ratio",), 4))))
    block = _block(read, read.count("num_heads", 16), ffn_hidden, act)
    return {
        "hidden": width,
        "patch": _size(read, "patch_size", 14),
        "frames": _size(read, "temporal_patch_size", 2),
        "merge": merge,
        "blocks": [block | {"count": read.count("depth", 32)}],
        "projections": [{"norm": "layernorm", "widths": [width * merge**2, hidden]}],
    }


def _qwen2_5(read: Reader, _: Tower, hidden: int) -> Tower:
    """Return the tower of Qwen2.5-VL: RMS norms and gated MLPs, and windows in most blocks."""
    width, merge = read.count("hidden_size", 3584), read.count("spatial_merge_size", 2)
    depth = read.count("depth", 32)
    act = str(read.value("text", ("hidden_act",), "silu"))
    block = _block(
        read,
        read.count("num_heads", 16),
        read.count("intermediate_size", 3420),
        act,
        gated=True,
        norm="rmsnorm",
    )
    whole = read.entries("fullatt_block_indexes", lambda one: isinstance(one, int), "a list of numbers")
    full = len({one for one in ([7, 15, 23, 31] if whole is None else whole) if one < depth})
    window = read.count("window_size", 112)
    read.used.add("out_hidden_size")  # the width of the decoder
    counts: tuple[tuple[int, Tower], ...] = ((depth - full, {"window_pixels": window}), (full, {}))
    return {
        "hidden": width,
        "patch": _size(read, "patch_size", 14),
        "frames": _size(read, "temporal_patch_size", 2),
        "merge": merge,
        "blocks": [block | own | {"count": count} for count, own in counts if count],
        "projections": [{"norm": "rmsnorm", "widths": [width * merge**2, hidden]}],
    }


def _qwen3(read: Reader, _: Tower, hidden: int) -> Tower:
    """Return the tower of Qwen3-VL: learned positions, and projections of further layers (DeepStack)."""
    width, merge = read.count("hidden_size", 1152), read.count("spatial_merge_size", 2)
    act = str(read.value("text", ("hidden_act",), "gelu_pytorch_tanh"))
    block = _block(read, read.count("num_heads", 16), read.count("intermediate_size", 4304), act)
    stacked = read.entries(
        "deepstack_visual_indexes", lambda one: isinstance(one, int), "a list of numbers"
    )
    further = len([8, 16, 24] if stacked is None else stacked)
    read.used.add("out_hidden_size")  # the width of the decoder
    projection = {"norm": "layernorm", "widths": [width * merge**2, hidden]}
    deep = [projection | {"norm_merged": True, "count": further}] if further else []
    return {
        "hidden": width,
        "patch": _size(read, "patch_size", 16),
        "frames": _size(read, "temporal_patch_size", 2),
        "merge": merge,
        "patch_bias": True,
        "positions": read.count("num_position_embeddings", 2304),
        "least_pixels": 256 * 256,
        "most_pixels": 4096 * 4096,
        "blocks": [block | {"count": read.count("depth", 27)}],
        "projections": [projection, *deep],
    }


def _square(read: Reader, sizes: tuple[int, int, int, int, int, int]) -> Tower:
    """Return the sizes of a tower whose images, or tiles, are all resized to one square."""
    width, layers, heads, ffn_hidden, side, patch = sizes
    side, patch = _size(read, "image_size", side), _size(read, "patch_size", patch)
    return {
        "hidden": read.count("hidden_size", width),
        "patch": patch,
        "side": side,
        "positions": (side // patch) ** 2,
        "blocks": [
            _block(
                read,
                read.count("num_attention_heads", heads),
                read.count("intermediate_size", ffn_hidden),
                str(read.value("text", ("hidden_act",), "gelu")),
                rotary=False,
                count=read.count("num_hidden_layers", layers),
            )
        ],
    }


def _with_class_token(tower: Tower) -> Tower:
    """Return the tower with a class token, which has a position, and norms before and after the blocks."""
    return tower | {"class_token": True, "positions": tower["positions"] + 1, "norms": 2}


def _llava(read: Reader, data: Tower, hidden: int) -> Tower:
    """Return the tower of LLaVA: CLIP or SigLIP, and a projection of two matrices."""
    if read.raw("model_type") == "siglip_vision_model":
        tower = _square(read, (768, 12, 12, 3072, 224, 16)) | {"patch_bias": True, "norms": 1}
    else:
        tower = _with_class_token(_square(read, (1024, 24, 16, 4096, 336, 14)))
    bias = data.get("multimodal_projector_bias") is not False
    return tower | {"projections": [{"widths": [hidden, hidden], "bias": bias}]}


def _gemma3(read: Reader, data: Tower, hidden: int) -> Tower:
    """Return the tower of Gemma 3: SigLIP, whose patches are averaged to a fixed number of tokens."""
    tower = _square(read, (1152, 27, 16, 4304, 896, 14))
    tokens = data.get("mm_tokens_per_image", 256)
    merge = max(1, tower["side"] // tower["patch"] // max(1, isqrt(tokens)))
    projection = {"norm": "rmsnorm", "widths": [hidden], "bias": False, "pooled": True}
    return tower | {"patch_bias": True, "norms": 1, "merge": merge, "projections": [projection]}


def _llama4(read: Reader, _: Tower, hidden: int) -> Tower:
    """Return the tower of Llama 4: tiles with a class token each; four patches become one token."""
    tower = _with_class_token(_square(read, (1408, 34, 16, 5632, 336, 14)))
    tower["blocks"][0]["mixer"]["rotary_fraction"] = 1.0
    ratio = float(str(read.value("part", ("pixel_shuffle_ratio",), 0.5)))
    inner = (read.count("projector_input_dim", 4096), read.count("projector_output_dim", 4096))
    read.used.update(("vision_output_dim", "multi_modal_projector_bias"))
    return tower | {
        "merge": max(1, round(1.0 / ratio)),
        "tiles": LLAMA_4_TILES,
        "projections": [{"widths": [*inner, hidden], "bias": False}],
    }


FAMILIES: dict[str, Callable[[Reader, Tower, int], Tower]] = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "llava": _llava,
    "gemma3": _gemma3,
    "llama4": _llama4,
}
