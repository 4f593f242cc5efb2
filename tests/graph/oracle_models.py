"""Models of timm, transformers and diffusers, and arguments of a call of each, for oracle.py.

Names are "timm:resnet50", "transformers:bert" and "diffusers:UNet2DModel". Models have the sizes of their
default configuration, but models of transformers have few layers, because equal layers prove nothing more.
Dropout is off: the tensors that it saves depend on the kernel. "full:…" are models in their real size.
"""

import inspect
from itertools import pairwise

from flopcast.interop.graphs.named import call_of_transformers

SAMPLES, TOKENS = 2, 64
LAYERS = (
    *(
        "num_hidden_layers",
        "num_layers",
        "n_layer",
        "n_layers",
        "encoder_layers",
        "decoder_layers",
        "depth",
    ),
    *("num_encoder_layers", "num_decoder_layers", "encoder_num_layers", "decoder_num_layers", "layers"),
    *("num_decoder_layers", "vision_layers", "num_hidden_groups", "encoder_depth", "decoder_depth"),
)
FEW = 2


def example(torch, name):
    """A model and the arguments of a call; run it under the device "meta"."""
    library, _, word = name.partition(":")
    model, named = {
        "timm": of_timm,
        "transformers": of_transformers,
        "diffusers": of_diffusers,
        "full": full,
    }[library](torch, word)
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return model.train(), named


def of_timm(torch, word):
    """A model of timm and its images."""
    import timm

    model = timm.create_model(word)
    return model, {"x": torch.zeros(SAMPLES, *model.default_cfg["input_size"])}


def small(cls, **given):
    """A configuration with few layers, without dropout and without a cache, and so all of its parts."""
    fields = set(inspect.signature(cls).parameters) | set(getattr(cls, "__dataclass_fields__", ()))
    layers = given.pop("layers_of_all", FEW)
    few = {name: layers for name in LAYERS if name in fields and isinstance(getattr(cls(), name, 0), int)}
    parts = {
        name: small(part)
        for name, part in getattr(cls, "sub_configs", {}).items()
        if name in fields and isinstance(part, type) and hasattr(part, "model_type") and part.model_type
    }
    config = cls(**few, **parts, **given)
    for name in list(vars(config)):
        if (
            "drop" in name or name in ("mask_time_prob", "apply_spec_augment", "mask_feature_prob")
        ) and isinstance(getattr(config, name), (float, int)):
            setattr(config, name, type(getattr(config, name))(0))
    config.use_cache = False
    return config


def of_transformers(torch, word):
    """A model of transformers with few layers; `word` may end with settings: "mamba2,layers=4"."""
    import transformers

    word, *settings = word.split(",")
    given = {key: int(value) for key, value in (each.split("=") for each in settings)}
    cls = transformers.models.auto.configuration_auto.CONFIG_MAPPING[word]
    config = small(cls, **({"layers_of_all": given.pop("layers")} if "layers" in given else {}), **given)
    model = transformers.AutoModel.from_config(config)
    if model._can_set_experts_implementation():
        model.set_experts_implementation("grouped_mm")
    return model, dict(call_of_transformers(model, config, {"batch": SAMPLES, "tokens": TOKENS}))


def of_diffusers(torch, word):
    """A model of diffusers in its default configuration; transformers with few layers."""
    import diffusers

    cls = getattr(diffusers, word)
    fields = inspect.signature(cls.__init__).parameters
    settings = {name: FEW for name in ("num_layers", "num_single_layers", "n_layers") if name in fields}
    if name := next((name for name in ("num_refiner_layers", "num_mmdit_layers") if name in fields), ""):
        settings[name] = FEW
    settings |= DIFFUSERS.get(word, ({},))[0]
    model = cls(**settings)
    made = {}
    for name, shape in {**SHAPES, **DIFFUSERS.get(word, ({}, {}))[1]}.items():
        if name in inspect.signature(model.forward).parameters and shape is not None:
            whole = name in ("timestep", "class_labels") or name.endswith("_mask")
            made[name] = torch.zeros(*shape, dtype=torch.long if whole else torch.float32)
    made["return_dict"] = False
    return model, made


SHAPES = {"sample": (SAMPLES, 3, 64, 64), "timestep": (SAMPLES,)}
TEXT = (SAMPLES, 77, 1024)
DIFFUSERS = {
    "UNet2DModel": ({}, {"sample": (SAMPLES, 3, 64, 64)}),
    "UNet2DConditionModel": (
        {"cross_attention_dim": 1024},
        {"sample": (SAMPLES, 4, 64, 64), "encoder_hidden_states": TEXT},
    ),
    "UNet1DModel": ({"sample_size": 65536}, {"sample": (SAMPLES, 2, 512)}),
    "UNet3DConditionModel": ({}, {"sample": (SAMPLES, 4, 4, 32, 32), "encoder_hidden_states": TEXT}),
    "UNetSpatioTemporalConditionModel": (
        {},
        {
            "sample": (SAMPLES, 4, 8, 32, 32),
            "encoder_hidden_states": (SAMPLES, 1, 1024),
            "added_time_ids": (SAMPLES, 3),
        },
    ),
    "ControlNetModel": (
        {"cross_attention_dim": 1024},
        {
            "sample": (SAMPLES, 4, 32, 32),
            "encoder_hidden_states": TEXT,
            "controlnet_cond": (SAMPLES, 3, 256, 256),
        },
    ),
    "DiTTransformer2DModel": (
        {"sample_size": 32, "num_attention_heads": 16},
        {"hidden_states": (SAMPLES, 4, 32, 32), "class_labels": (SAMPLES,)},
    ),
    "PixArtTransformer2DModel": (
        {"sample_size": 32, "caption_channels": 4096},
        {"hidden_states": (SAMPLES, 4, 32, 32), "encoder_hidden_states": (SAMPLES, 120, 4096)},
    ),
    "SD3Transformer2DModel": (
        {},
        {
            "hidden_states": (SAMPLES, 16, 64, 64),
            "encoder_hidden_states": (SAMPLES, 154, 4096),
            "pooled_projections": (SAMPLES, 2048),
        },
    ),
    "FluxTransformer2DModel": (
        {},
        {
            "hidden_states": (SAMPLES, 1024, 64),
            "encoder_hidden_states": (SAMPLES, 256, 4096),
            "pooled_projections": (SAMPLES, 768),
            "img_ids": (1024, 3),
            "txt_ids": (256, 3),
        },
    ),
    "AuraFlowTransformer2DModel": (
        {"num_single_dit_layers": 2, "joint_attention_dim": 2048},
        {"hidden_states": (SAMPLES, 4, 64, 64), "encoder_hidden_states": (SAMPLES, 256, 2048)},
    ),
    "HunyuanDiT2DModel": (
        {"sample_size": 32, "num_layers": 4},
        {
            "hidden_states": (SAMPLES, 4, 64, 64),
            "encoder_hidden_states": (SAMPLES, 77, 1024),
            "text_embedding_mask": (SAMPLES, 77),
            "encoder_hidden_states_t5": (SAMPLES, 256, 2048),
            "text_embedding_mask_t5": (SAMPLES, 256),
            "image_meta_size": (SAMPLES, 6),
            "style": None,
            "image_rotary_emb": None,
        },
    ),
    "CogVideoXTransformer3DModel": (
        {},
        {"hidden_states": (SAMPLES, 4, 16, 60, 90), "encoder_hidden_states": (SAMPLES, 226, 4096)},
    ),
    "LTXVideoTransformer3DModel": (
        {},
        {
            "hidden_states": (SAMPLES, 512, 128),
            "encoder_hidden_states": (SAMPLES, 128, 4096),
            "encoder_attention_mask": (SAMPLES, 128),
        },
    ),
    "MochiTransformer3DModel": (
        {},
        {
            "hidden_states": (SAMPLES, 12, 4, 32, 32),
            "encoder_hidden_states": (SAMPLES, 256, 4096),
            "encoder_attention_mask": (SAMPLES, 256),
        },
    ),
    "WanTransformer3DModel": (
        {},
        {"hidden_states": (SAMPLES, 16, 4, 32, 32), "encoder_hidden_states": (SAMPLES, 128, 4096)},
    ),
    "SanaTransformer2DModel": (
        {},
        {"hidden_states": (SAMPLES, 32, 32, 32), "encoder_hidden_states": (SAMPLES, 128, 2304)},
    ),
    "Lumina2Transformer2DModel": (
        {},
        {
            "hidden_states": (SAMPLES, 16, 32, 32),
            "encoder_hidden_states": (SAMPLES, 64, 1024),
            "encoder_attention_mask": (SAMPLES, 64),
        },
    ),
    "LatteTransformer3DModel": (
        {"sample_size": 32, "caption_channels": 4096},
        {"hidden_states": (SAMPLES, 4, 4, 32, 32), "encoder_hidden_states": (SAMPLES, 120, 4096)},
    ),
    "StableAudioDiTModel": (
        {},
        {
            "hidden_states": (SAMPLES, 64, 512),
            "encoder_hidden_states": (SAMPLES, 64, 768),
            "global_hidden_states": (SAMPLES, 1, 1536),
        },
    ),
    "CogView4Transformer2DModel": (
        {},
        {
            "hidden_states": (SAMPLES, 16, 32, 32),
            "encoder_hidden_states": (SAMPLES, 64, 4096),
            "original_size": (SAMPLES, 2),
            "target_size": (SAMPLES, 2),
            "crop_coords": (SAMPLES, 2),
        },
    ),
    "QwenImageTransformer2DModel": (
        {},
        {
            "hidden_states": (SAMPLES, 256, 64),
            "encoder_hidden_states": (SAMPLES, 64, 3584),
            "encoder_hidden_states_mask": (SAMPLES, 64),
        },
    ),
    "UVit2DModel": (
        {},
        {
            "input_ids": (SAMPLES, 16, 16),
            "encoder_hidden_states": (SAMPLES, 77, 768),
            "pooled_text_emb": (SAMPLES, 768),
            "micro_conds": (SAMPLES, 5),
        },
    ),
    "AutoencoderKL": ({}, {"sample": (SAMPLES, 3, 64, 64)}),
    "AsymmetricAutoencoderKL": ({}, {"sample": (SAMPLES, 3, 64, 64)}),
    "VQModel": ({}, {"sample": (SAMPLES, 3, 64, 64)}),
    "AutoencoderTiny": ({}, {"sample": (SAMPLES, 3, 64, 64)}),
    "AutoencoderDC": ({}, {"sample": (SAMPLES, 3, 64, 64)}),
    "AutoencoderKLTemporalDecoder": ({}, {"sample": (SAMPLES, 3, 64, 64)}),
    "AutoencoderOobleck": ({}, {"sample": (SAMPLES, 2, 8192)}),
    "AutoencoderKLCogVideoX": ({}, {"sample": (SAMPLES, 3, 1, 64, 64)}),
    "AutoencoderKLHunyuanVideo": ({}, {"sample": (SAMPLES, 3, 5, 64, 64)}),
    "AutoencoderKLMochi": ({}, {"sample": (SAMPLES, 3, 7, 64, 64)}),
}


def full(torch, word):
    """A model in its real size."""
    return {"t5-11b": t5_11b, "mamba2-2.7b": mamba2, "flux": flux, "qwen2.5-vl-7b": qwen_vl, "dlrm": dlrm}[
        word
    ](torch)


def t5_11b(torch):
    """T5-11B (the configuration "t5-11b" of arXiv:1910.10683), 512 tokens in and 512 out."""
    import transformers

    config = transformers.T5Config(
        d_model=1024, d_ff=65536, d_kv=128, num_heads=128, num_layers=24, dropout_rate=0.0, use_cache=False
    )
    words = torch.zeros(SAMPLES, 512, dtype=torch.long)
    model = transformers.T5ForConditionalGeneration(config)
    return model, {"input_ids": words, "decoder_input_ids": words}


def mamba2(torch):
    """Mamba-2-2.7B (arXiv:2405.21060): 64 layers of width 2560."""
    import transformers

    config = transformers.Mamba2Config(
        hidden_size=2560, num_hidden_layers=64, num_heads=80, head_dim=64, state_size=128, vocab_size=50288,
        n_groups=1, use_cache=False,
    )  # fmt: skip
    return transformers.Mamba2ForCausalLM(config), {
        "input_ids": torch.zeros(SAMPLES, 2048, dtype=torch.long)
    }


def flux(torch):
    """Flux.1-dev: 19 double and 38 single blocks of width 3072, an image of 1024 x 1024 and 512 words."""
    import diffusers

    model = diffusers.FluxTransformer2DModel(guidance_embeds=True)
    return model, {
        "hidden_states": torch.zeros(SAMPLES, 4096, 64),
        "encoder_hidden_states": torch.zeros(SAMPLES, 512, 4096),
        "pooled_projections": torch.zeros(SAMPLES, 768),
        "timestep": torch.zeros(SAMPLES),
        "guidance": torch.zeros(SAMPLES),
        "img_ids": torch.zeros(4096, 3),
        "txt_ids": torch.zeros(512, 3),
        "return_dict": False,
    }


def qwen_vl(torch):
    """Qwen2.5-VL-7B: a vision tower of 32 layers, a decoder of 28; 1024 tokens, an image of 448 x 448.

    The model reads the sizes of images from a tensor. Here they are constants, as an export needs them.
    """
    import numpy
    import transformers

    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
            "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "use_cache": False,
        },
        vision_config={
            "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
            "out_hidden_size": 3584,
        },
    )  # fmt: skip
    patches, window = 32 * 32, 8 * 8
    images = {
        "position_ids": torch.zeros(SAMPLES * patches, 2, dtype=torch.long),
        "window_index": torch.zeros(SAMPLES * patches // 4, dtype=torch.long),
        "cu_seqlens": numpy.arange(0, SAMPLES * patches + 1, patches),
        "cu_window_seqlens": numpy.arange(0, SAMPLES * patches + 1, window),
        "max_seqlen": patches,
        "max_window_seqlen": window,
    }

    class QwenOfImages(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = transformers.Qwen2_5_VLForConditionalGeneration(config)

        def forward(self, input_ids, pixel_values, positions):
            model, words = self.inner.model, self.inner.get_input_embeddings()(input_ids)
            seen = model.visual(pixel_values, grid_thw=None, return_dict=True, **images).pooler_output
            is_image = (input_ids == config.image_token_id)[..., None].expand_as(words)
            words = words.masked_scatter(is_image, seen)
            made = model.language_model(inputs_embeds=words, position_ids=positions, use_cache=False)
            return self.inner.lm_head(made.last_hidden_state)

    return QwenOfImages(), {
        "input_ids": torch.zeros(SAMPLES, 1024, dtype=torch.long),  # its first axis counts the samples
        "pixel_values": torch.zeros(SAMPLES * patches, 3 * 2 * 14 * 14),
        "positions": torch.zeros(3, SAMPLES, 1024, dtype=torch.long),
    }


TABLES = (
    *(
        40_000_000,
        39060,
        17295,
        7424,
        20265,
        3,
        7122,
        1543,
        63,
        40_000_000,
        3067956,
        405282,
        10,
        2209,
        11938,
    ),
    *(155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590152, 12973, 108, 36),
)
LOOK_UPS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


def dlrm(torch):
    """DLRM-DCNv2 with the sizes of MLPerf Training: 26 tables of width 128, cross layers of rank 512."""
    nn = torch.nn

    def mlp(*sizes):
        layers = [nn.Sequential(nn.Linear(n, m), nn.ReLU()) for n, m in pairwise(sizes)]
        return nn.Sequential(*layers)

    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(rows, 128, mode="sum") for rows in TABLES)
            self.bottom, width = mlp(13, 512, 256, 128), 27 * 128
            self.down = nn.ModuleList(nn.Linear(width, 512, bias=False) for _ in range(3))
            self.up = nn.ModuleList(nn.Linear(512, width) for _ in range(3))
            self.top = nn.Sequential(mlp(width, 1024, 1024, 512, 256), nn.Linear(256, 1))

        def forward(self, dense, indices):
            rows = [table(index) for table, index in zip(self.tables, indices, strict=True)]
            first = crossed = torch.cat([self.bottom(dense), *rows], dim=1)
            for down, up in zip(self.down, self.up, strict=True):
                crossed = first * up(down(crossed)) + crossed
            return self.top(crossed)

    indices = [torch.zeros(SAMPLES, times, dtype=torch.long) for times in LOOK_UPS]
    return Dlrm(), {"dense": torch.zeros(SAMPLES, 13), "indices": indices}
