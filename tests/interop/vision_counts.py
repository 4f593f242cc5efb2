"""Parameters and forward FLOP of models that see, counted by an installed `transformers`, as a small table.

Run where torch, transformers and flopcast are installed; tests only read the table:

    python vision_counts.py tests/interop/vision_counts.json

Models are built on the meta device from the configurations of public checkpoints. The FLOP are those that
torch's `FlopCounterMode` counts for the vision tower of a small configuration on one image.
"""

import json
import sys
from pathlib import Path

QWEN2 = {
    "model_type": "qwen2_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    "vision_config": {
        "depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "hidden_size": 3584,
        "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2,
    },
}  # fmt: skip
QWEN2_5 = {
    "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    "vision_config": {
        "depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
        "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2, "temporal_patch_size": 2,
    },
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3_vl", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_vl_text", "attention_bias": False, "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 12288, "num_attention_heads": 32, "num_hidden_layers": 36,
        "num_key_value_heads": 8, "vocab_size": 151936,
    },
    "vision_config": {
        "model_type": "qwen3_vl", "deepstack_visual_indexes": [8, 16, 24], "depth": 27,
        "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16,
        "num_position_embeddings": 2304, "out_hidden_size": 4096, "patch_size": 16, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}  # fmt: skip
QWEN3_MOE = {
    "model_type": "qwen3_vl_moe", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_vl_moe_text", "attention_bias": False, "head_dim": 128, "hidden_size": 2048,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32,
        "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
        "vocab_size": 151936,
    },
    "vision_config": QWEN3["vision_config"] | {"out_hidden_size": 2048, "model_type": "qwen3_vl_moe"},
}  # fmt: skip
CLIP = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
    "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768,
}  # fmt: skip
LLAVA = {
    "model_type": "llava", "image_seq_length": 576, "projector_hidden_act": "gelu",
    "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
    "text_config": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064,
        "max_position_embeddings": 4096,
    },
    "vision_config": CLIP,
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3", "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "head_dim": 256,
        "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 34, "sliding_window": 1024,
        "vocab_size": 262208,
    },
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896,
        "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14,
        "vision_use_head": False,
    },
}  # fmt: skip
LLAMA4 = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text", "attention_bias": False, "hidden_size": 5120, "head_dim": 128,
        "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_attention_heads": 40,
        "num_hidden_layers": 48, "num_key_value_heads": 8, "num_experts_per_tok": 1,
        "num_local_experts": 16, "interleave_moe_layer_step": 1, "vocab_size": 202048,
        "tie_word_embeddings": False,
    },
    "vision_config": {
        "model_type": "llama4_vision_model", "hidden_act": "gelu", "hidden_size": 1408, "image_size": 336,
        "intermediate_size": 5632, "num_attention_heads": 16, "num_hidden_layers": 34, "patch_size": 14,
        "pixel_shuffle_ratio": 0.5, "projector_input_dim": 4096, "projector_output_dim": 4096,
        "vision_output_dim": 4096,
    },
}  # fmt: skip
MISTRAL = {
    "model_type": "mistral", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072, "sliding_window": None,
    "tie_word_embeddings": False,
}  # fmt: skip
PIXTRAL = {
    "model_type": "llava", "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
    "text_config": MISTRAL | {"intermediate_size": 14336},
    "vision_config": {
        "model_type": "pixtral", "head_dim": 64, "hidden_act": "silu", "hidden_size": 1024,
        "image_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
        "patch_size": 16,
    },
}  # fmt: skip
MISTRAL3 = {
    "model_type": "mistral3", "multimodal_projector_bias": False, "spatial_merge_size": 2,
    "tie_word_embeddings": False, "vision_feature_layer": -1,
    "text_config": MISTRAL | {"intermediate_size": 32768},
    "vision_config": PIXTRAL["vision_config"] | {"image_size": 1540, "patch_size": 14},
}  # fmt: skip
INTERNVL = {
    "model_type": "internvl", "downsample_ratio": 0.5, "image_seq_length": 256,
    "tie_word_embeddings": False, "vision_feature_layer": -1,
    "text_config": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 151674,
        "tie_word_embeddings": False,
    },
    "vision_config": {
        "model_type": "internvl_vision", "attention_bias": True, "hidden_act": "gelu", "hidden_size": 1024,
        "image_size": [448, 448], "intermediate_size": 4096, "layer_scale_init_value": 0.1,
        "norm_type": "layer_norm", "num_attention_heads": 16, "num_hidden_layers": 24,
        "patch_size": [14, 14], "use_absolute_position_embeddings": True, "use_mask_token": False,
        "use_mean_pooling": True, "use_qk_norm": False,
    },
}  # fmt: skip
CONFIGS = (QWEN2, QWEN2_5, QWEN3, QWEN3_MOE, LLAVA, GEMMA3, LLAMA4, PIXTRAL, MISTRAL3, INTERNVL)
SMALL = {  # changes of vision parts: two blocks, small images
    "qwen2_vl": {"depth": 2},
    "qwen2_5_vl": {"depth": 2, "fullatt_block_indexes": [1]},
    "qwen3_vl": {"depth": 2, "deepstack_visual_indexes": [0]},
    "llava": {"num_hidden_layers": 2},  # with `vision_feature_layer` -1: both have a backward pass
    "llama4": {"num_hidden_layers": 2},
    "mistral3": {"num_hidden_layers": 2},
    "internvl": {"num_hidden_layers": 2},
}
SMALL_TEXT = {"num_hidden_layers": 1, "vocab_size": 64}
GRID = (12, 20)  # rows and columns of patches of the image of towers without a fixed size


def built(config: dict[str, object], device: str):
    """Return the model of a configuration on a device."""
    import torch
    from transformers import AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = {name: value for name, value in config.items() if name != "model_type"}
    with torch.device(device):
        found = CONFIG_MAPPING[config["model_type"]](**values)
        return AutoModelForImageTextToText.from_config(found, attn_implementation="eager")


def small(config: dict[str, object]) -> dict[str, object]:
    """Return a configuration with few blocks and a small decoder."""
    changed = config | {"vision_config": config["vision_config"] | SMALL[config["model_type"]]}
    if "text_config" in config:
        text = config["text_config"] | SMALL_TEXT
        changed |= {"vision_feature_layer": -1} if "vision_feature_layer" in config else {}
        return changed | {
            "text_config": text | ({"num_local_experts": 1} if "num_local_experts" in text else {})
        }
    return changed | SMALL_TEXT


def leaves(value: object) -> list[object]:
    """Return the tensors of nested lists."""
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in leaves(each)]
    return [value]


def tower_flop(config: dict[str, object]) -> tuple[int, int]:
    """Return the FLOP of tower and projections on one image: of the forward pass, and with the backward."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = built(config, "cpu").float()
    part = config["vision_config"]
    if part.get("model_type") == "pixtral":
        sides = [each * part["patch_size"] for each in GRID]
        pixels = {"pixel_values": torch.zeros(1, 3, *sides), "image_sizes": torch.tensor([sides])}
    elif isinstance(part.get("image_size"), list):
        pixels = {"pixel_values": torch.zeros(1, 3, *part["image_size"])}
    elif "image_size" in part:
        pixels = {"pixel_values": torch.zeros(1, 3, part["image_size"], part["image_size"])}
    else:
        numbers = 3 * part["temporal_patch_size"] * part["patch_size"] ** 2
        pixels = {
            "pixel_values": torch.zeros(GRID[0] * GRID[1], numbers),
            "image_grid_thw": torch.tensor([[1, *GRID]]),
        }
    found = []
    for backward in (False, True):
        inner = getattr(model, "model", model)
        with FlopCounterMode(display=False) as counter:
            features = inner.get_image_features(**pixels)
            if config["model_type"] == "llama4":
                rows = [model.multi_modal_projector(features.last_hidden_state.flatten(0, -2))]
            else:
                rows = [features.pooler_output, getattr(features, "deepstack_features", None) or ()]
            if backward:
                torch.cat([row.flatten() for row in leaves(rows)]).sum().backward()
        found.append(int(counter.get_total_flops()))
    return found[0], found[1]


def main(path: Path) -> None:
    """Write the table."""
    rows = []
    for config in CONFIGS:
        parameters = sum(each.numel() for each in built(config, "meta").parameters())
        row = {"config": config, "parameters": parameters}
        if config["model_type"] in SMALL:
            row["small"] = small(config)
            row["forward_flop"], row["step_flop"] = tower_flop(row["small"])
        rows.append(row)
    text = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    path.write_text(f"[\n{text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
