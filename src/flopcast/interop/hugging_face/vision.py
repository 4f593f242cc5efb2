"""The vision tower of a Hugging Face config: `vision_config` of models that see.

Answers: which tower and which projections does a config with a vision part describe?
Elsewhere: its text part (config.py), what a tower is (layers/vision.py).

Each family has one function, which reads the keys of its own vision part and names what the code of the
family fixes: biases, norms and activations of transformers' `modeling_FAMILY.py`. Limits of image sizes are
those of the family's image processor, because a config.json does not state them.
"""

import json
from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.hugging_face.decoder_facts import ACTIVATIONS
from flopcast.interop.hugging_face.unsupported import SILENT
from flopcast.interop.hugging_face.values import Reader, flattened
from flopcast.spec.divisors import nearest_divisor

Tower = dict[str, Any]
KEY = "vision_config"
IGNORED = frozenset({  # keys of vision parts that change neither time nor memory
    "tokens_per_second", "projection_dim", "logit_scale_init_value", "initializer_factor",
    "spatial_patch_size", "vocab_size",
})  # fmt: skip
BESIDE = frozenset({  # the same beside the parts; sizes of the decoder are repeated there
    "projector_hidden_act", "image_seq_length", "boi_token_index", "eoi_token_index", "ignore_index",
    "vocab_size", "text_config", "tie_word_embeddings",
})  # fmt: skip
BUILT: dict[str, object] = {  # keys of vision parts, and the value whose cost is counted
    **dict.fromkeys(("in_channels", "in_chans", "num_channels"), 3),
    **dict.fromkeys(("attention_dropout", "dropout", "projector_dropout"), 0),
    "vision_use_head": False,
}
OF_DECODER = "the decoder reads tokens of this width"
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
    if part is None or family not in FAMILIES:
        return None, []
    whole = Reader(document, flattened(data))
    if not isinstance(part, dict):
        whole.fault(KEY, "a mapping", "this key describes the vision tower", f"correct or remove {KEY}")
        raise SpecError(whole.problems.values())
    reader = Reader(document, flattened(part, (KEY,)))
    tower = FAMILIES[family](reader, whole, hidden)
    if problems := [*whole.problems.values(), *reader.problems.values()]:
        raise SpecError(problems)
    return tower, [] if tower is None else list(_notes(reader, whole, family, tower))


def _notes(read: Reader, whole: Reader, family: str, tower: Tower) -> Iterator[str]:
    """Yield what was ignored of a config with this tower, and which defaults were taken."""
    for key, built in BUILT.items():
        value = read.raw(key)
        if value not in (None, built):
            counted = json.dumps(built)
            yield f"{KEY}.{key} = {json.dumps(value)} is ignored: the cost is that of {key} = {counted}"
    for key in read.unused(SILENT | IGNORED):
        yield f"{KEY}.{key} is not a known key, and was ignored"
    if whole.raw("vision_feature_select_strategy") == "full" and tower.get("class_token"):
        yield "vision_feature_select_strategy = full is ignored: the decoder gets no class token"
    for key in whole.unused(SILENT | BESIDE) if "text_config" in whole.values else ():
        yield f"{key} is not a known key of {family}, and was ignored"
    if read.defaults:
        taken = ", ".join(f"{key} {value}" for key, value in read.defaults.items())
        yield f"not given in {KEY}, so the default of {family}: {taken}"
    if tower.get("tiles", 1) > 1:
        yield f"images are divided into at most {tower['tiles']} tiles, which is the default"


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
            ", ".join(name for name, kinds in ACTIVATIONS.items() if kinds[gated]),
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


def _heads(read: Reader, key: str, usual: int, width: int) -> int:
    """Return the number of heads, which divides the width of the tower."""
    heads = read.count(key, usual)
    if width % heads:
        because = f"the heads divide the width of the tower, {width}"
        read.fault(key, f"a divisor of {width}", because, f"set {key} to {nearest_divisor(width, heads)}")
        return 1
    return heads


def _check_width(read: Reader, key: str, width: int, because: str) -> None:
    """Check that a width that follows from other keys is given as it is, if it is given."""
    if read.raw(key) not in (None, width):
        read.fault(key, str(width), because, f"set {key} to {width}")


def _places(read: Reader, key: str, usual: list[int]) -> list[int]:
    """Return a list of numbers of blocks, or the usual one."""
    given = read.entries(key, lambda one: isinstance(one, int), "a list of numbers of blocks")
    return usual if given is None else given


def _qwen2(read: Reader, _: Reader, hidden: int) -> Tower:
    """Return the tower of Qwen2-VL: blocks of layer norms, images of any size."""
    width = read.count("embed_dim", 1280)
    _check_width(read, "hidden_size", hidden, OF_DECODER)
    merge = read.count("spatial_merge_size", 2)
    act = str(read.value("text", ("hidden_act",), "quick_gelu"))
    ffn_hidden = int(width * float(str(read.value("factor", ("mlp_ratio",), 4))))
    block = _block(read, _heads(read, "num_heads", 16, width), ffn_hidden, act)
    return {
        "hidden": width,
        "patch": _size(read, "patch_size", 14),
        "frames": _size(read, "temporal_patch_size", 2),
        "merge": merge,
        "blocks": [block | {"count": read.count("depth", 32)}],
        "projections": [{"norm": "layernorm", "widths": [width * merge**2, hidden]}],
    }


def _qwen2_5(read: Reader, _: Reader, hidden: int) -> Tower:
    """Return the tower of Qwen2.5-VL: RMS norms and gated MLPs, and windows in most blocks."""
    width, merge = read.count("hidden_size", 3584), read.count("spatial_merge_size", 2)
    depth = read.count("depth", 32)
    act = str(read.value("text", ("hidden_act",), "silu"))
    block = _block(
        read,
        _heads(read, "num_heads", 16, width),
        read.count("intermediate_size", 3420),
        act,
        gated=True,
        norm="rmsnorm",
    )
    full = len({one for one in _places(read, "fullatt_block_indexes", [7, 15, 23, 31]) if one < depth})
    window = read.count("window_size", 112)
    _check_width(read, "out_hidden_size", hidden, OF_DECODER)
    counts: tuple[tuple[int, Tower], ...] = ((depth - full, {"window_pixels": window}), (full, {}))
    return {
        "hidden": width,
        "patch": _size(read, "patch_size", 14),
        "frames": _size(read, "temporal_patch_size", 2),
        "merge": merge,
        "blocks": [block | own | {"count": count} for count, own in counts if count],
        "projections": [{"norm": "rmsnorm", "widths": [width * merge**2, hidden]}],
    }


def _qwen3(read: Reader, _: Reader, hidden: int) -> Tower:
    """Return the tower of Qwen3-VL: learned positions, and projections of further layers (DeepStack)."""
    width, merge = read.count("hidden_size", 1152), read.count("spatial_merge_size", 2)
    act = str(read.value("text", ("hidden_act",), "gelu_pytorch_tanh"))
    block = _block(read, _heads(read, "num_heads", 16, width), read.count("intermediate_size", 4304), act)
    further = len(_places(read, "deepstack_visual_indexes", [8, 16, 24]))
    _check_width(read, "out_hidden_size", hidden, OF_DECODER)
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
    """Return the sizes of a tower whose images, or tiles, are all resized to one square.

    Pixels beyond the last whole patch of a row or column are read by no patch.
    """
    width, layers, heads, ffn_hidden, side, patch = sizes
    side, patch = _size(read, "image_size", side), _size(read, "patch_size", patch)
    width = read.count("hidden_size", width)
    if side < patch:
        because = "an image has at least one patch"
        read.fault("image_size", f"at least patch_size = {patch}", because, f"set image_size to {patch}")
    return {
        "hidden": width,
        "patch": patch,
        "side": side // patch * patch,
        "positions": (side // patch) ** 2,
        "blocks": [
            _block(
                read,
                _heads(read, "num_attention_heads", heads, width),
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


def _llava(read: Reader, whole: Reader, hidden: int) -> Tower | None:
    """Return the tower of LLaVA, CLIP or SigLIP, and a projection of two matrices; None for others."""
    kind = read.raw("model_type")
    if kind == "siglip_vision_model":
        tower = _square(read, (768, 12, 12, 3072, 224, 16)) | {"patch_bias": True, "norms": 1}
    elif kind in (None, "clip_vision_model"):
        tower = _with_class_token(_square(read, (1024, 24, 16, 4096, 336, 14)))
    else:
        return None
    layer = "vision_feature_layer"
    if isinstance(layers := whole.raw(layer), list) and len(layers) > 1:
        because = "features of several layers side by side are not supported yet"
        whole.fault(layer, "the number of one layer", because, "choose one layer, such as -2")
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
    """Return the tower of Llama 4: tiles with a class token each; four patches become one token."""
    tower = _with_class_token(_square(read, (1408, 34, 16, 5632, 336, 14)))
    tower["blocks"][0]["mixer"]["rotary_fraction"] = 1.0
    ratio = float(str(read.value("part", ("pixel_shuffle_ratio",), 0.5)))
    inner = (read.count("projector_input_dim", 4096), read.count("projector_output_dim", 4096))
    _check_width(read, "vision_output_dim", inner[1], "this is projector_output_dim")
    read.used.add("multi_modal_projector_bias")  # no matrix of the projector has a bias
    return tower | {
        "merge": max(1, round(1.0 / ratio)),
        "tiles": LLAMA_4_TILES,
        "projections": [{"widths": [*inner, hidden], "bias": False}],
    }


FAMILIES: dict[str, Callable[[Reader, Reader, int], Tower | None]] = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "llava": _llava,
    "gemma3": _gemma3,
    "llama4": _llama4,
}
