"""Decoder families up to 2025: the facts that their configs give, and the fixed ones.

Answers: for one `model_type`, which facts are read, with which defaults, and which are fixed?
Elsewhere: families since 2025 (recent_families.py), the form of a table (family.py), keys of facts
(values.py).

A family is a table of facts: `fact(default)` is read from the config, a function computes its fact from
several keys, and any other value is fixed. Defaults are those of the family's configuration class in
Hugging Face transformers
(`src/transformers/models/<family>/configuration_<family>.py`; for Baichuan and
InternLM2, in the repositories of their checkpoints), which the library uses for keys that a config leaves
out. Fixed facts follow the code of the model in the same folder.
"""

from flopcast.interop.hugging_face.deepseek import (
    deepseek_v2_experts,
    deepseek_v3_experts,
    further_predictions,
    latent_attention,
    leading_dense_layers,
)
from flopcast.interop.hugging_face.derived_facts import (
    baichuan_alibi,
    falcon_kv_heads,
    falcon_residual,
    local_window,
    mpt_alibi,
    mpt_bias,
    mpt_inner,
    mpt_learned,
    residual,
    rotary_dim,
    used_window,
)
from flopcast.interop.hugging_face.experts import (
    dense_layers,
    gpt_oss_experts,
    grok_experts,
    llama4_dense_layers,
    llama4_experts,
    mixtral_experts,
    qwen2_experts,
    qwen3_experts,
)
from flopcast.interop.hugging_face.family import (
    ATTENTION_BIAS,
    GATED,
    GPT_DROPOUT,
    LEARNED,
    NO_DROPOUT,
    NO_ROTARY,
    PLAIN,
    Family,
    Must,
    Rule,
    biased,
    fact,
    sizes,
)
from flopcast.interop.hugging_face.windows import (
    all_but_each,
    every,
    every_other,
    from_the_last_full_one,
    listed_as_local,
    local_layers,
    turned_layers,
    unturned_layers,
)

LLAMA: dict[str, Rule] = sizes(4096, 32, 32, 11008, 32000, 2048) | GATED | ATTENTION_BIAS | {
    "head_size": fact(None), "mlp_bias": fact(False, "mlp_bias"), "rotary_fraction": fact(1.0),
}  # fmt: skip
MISTRAL: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 14336, 32000, 131072) | {
    "kv_heads": fact(8), "qkv_bias": False, "out_bias": False, "mlp_bias": False,
    "window": fact(4096, "sliding_window"), "local": local_layers(every),
}  # fmt: skip
QWEN2: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 22016, 151936, 32768) | {
    "kv_heads": fact(32), "qkv_bias": True, "out_bias": False, "mlp_bias": False,
    "window": used_window, "local": local_layers(from_the_last_full_one),
}  # fmt: skip
QWEN3: dict[str, Rule] = QWEN2 | ATTENTION_BIAS | {"head_size": fact(128), "qk_norm": "per_head"}
GEMMA: dict[str, Rule] = LLAMA | sizes(3072, 28, 16, 24576, 256000, 8192) | {
    "kv_heads": fact(16), "head_size": fact(256), "activation": fact("gelu_pytorch_tanh"),
    "tied": fact(True), "mlp_bias": False,
}  # fmt: skip
GEMMA2: dict[str, Rule] = GEMMA | sizes(2304, 26, 8, 9216, 256000, 8192) | {
    "kv_heads": fact(4), "norm_placement": "around", "window": fact(4096),
    "local": local_layers(every_other),
    "softcap": fact(50.0), "logit_softcap": fact(30.0),
}  # fmt: skip
GEMMA3: dict[str, Rule] = GEMMA2 | sizes(2304, 26, 8, 9216, 262208, 131072) | {
    "qk_norm": "per_head", "softcap": fact(None), "logit_softcap": fact(None),
    "local": local_layers(all_but_each(6)),
}  # fmt: skip
GPT2: dict[str, Rule] = sizes(768, 12, 12, None, 50257, 1024) | PLAIN | biased(True) | LEARNED | GPT_DROPOUT
GPT_NEO: dict[str, Rule] = sizes(2048, 24, 16, None, 50257, 2048) | PLAIN | LEARNED | {
    "qkv_bias": False, "out_bias": True, "mlp_bias": True, "window": local_window,
    "local": listed_as_local,
    "attention_dropout": fact(0.0), "hidden_dropout": fact(0.0, "resid_dropout"),
    "embedding_dropout": fact(0.0, "embed_dropout"),
}  # fmt: skip
GPT_NEOX: dict[str, Rule] = sizes(6144, 44, 64, 24576, 50432, 2048) | PLAIN | {
    "qkv_bias": fact(True, "attention_bias"), "out_bias": fact(True, "attention_bias"),
    "mlp_bias": True, "activation": fact("gelu"), "tied": fact(False),
    "rotary_fraction": fact(0.25, "rotary_pct", "partial_rotary_factor"),
    "residual": residual(True, "parallel"), "hidden_dropout": fact(0.0),
    "attention_dropout": fact(0.0),
}  # fmt: skip
GPTJ: dict[str, Rule] = sizes(4096, 28, 16, None, 50400, 2048) | PLAIN | NO_DROPOUT | {
    "qkv_bias": False, "out_bias": False, "mlp_bias": True, "head_bias": True, "tied": fact(False),
    "rotary_fraction": rotary_dim, "residual": "parallel_shared_norm",
}  # fmt: skip
OPT: dict[str, Rule] = sizes(768, 12, 12, 3072, 50272, 2048) | PLAIN | LEARNED | {
    "activation": fact("relu"), "position_offset": 2, "attention_dropout": fact(0.0),
    "hidden_dropout": fact(0.1, "dropout"), "norm_scale": fact(True, "layer_norm_elementwise_affine"),
} | biased(fact(True, "enable_bias"))  # fmt: skip
BLOOM: dict[str, Rule] = sizes(64, 2, 8, None, 250880, 2048) | PLAIN | biased(True) | NO_ROTARY | {
    "activation": "gelu", "alibi": True, "embedding_norm": True,
    "attention_dropout": fact(0.0), "hidden_dropout": fact(0.0),
}  # fmt: skip
FALCON: dict[str, Rule] = sizes(4544, 32, 71, None, 65024, 2048) | PLAIN | {
    "activation": fact("gelu", "activation"), "kv_heads": falcon_kv_heads, "residual": falcon_residual,
    "alibi": fact(False), "attention_dropout": fact(0.0), "hidden_dropout": fact(0.0),
} | biased(fact(False, "bias"))  # fmt: skip
MPT: dict[str, Rule] = sizes(2048, 24, 16, None, 50368, 2048) | PLAIN | NO_ROTARY | {
    "activation": "gelu", "ffn_hidden": mpt_inner, "norm_bias": mpt_bias, "alibi": mpt_alibi,
    "learned": mpt_learned, "attention_dropout": fact(0.0, "attn_config.attn_pdrop"),
    "hidden_dropout": fact(0.0), "embedding_dropout": fact(0.0),
} | biased(mpt_bias)  # fmt: skip
PHI: dict[str, Rule] = sizes(2048, 24, 32, 8192, 51200, 2048) | PLAIN | NO_DROPOUT | biased(True) | {
    "kv_heads": fact(None), "tied": fact(False), "head_bias": True, "rotary_fraction": fact(0.5),
    "residual": "parallel_shared_norm",
}  # fmt: skip
PHI3: dict[str, Rule] = LLAMA | NO_DROPOUT | sizes(3072, 32, 32, 8192, 32064, 4096) | {
    "qkv_bias": False, "out_bias": False, "mlp_bias": False, "window": fact(None),
    "local": local_layers(every),
}  # fmt: skip
STARCODER2: dict[str, Rule] = sizes(3072, 30, 24, 12288, 49152, 4096) | PLAIN | NO_DROPOUT | {
    "activation": fact("gelu_pytorch_tanh"), "kv_heads": fact(2), "window": fact(None),
    "local": local_layers(every),
} | biased(fact(True, "use_bias"))  # fmt: skip
STABLELM: dict[str, Rule] = sizes(2560, 32, 32, 6912, 50304, 4096) | GATED | {
    "norm": "layernorm", "norm_bias": True, "qkv_bias": fact(False, "use_qkv_bias"),
    "kv_heads": fact(32), "rotary_fraction": fact(0.25, "partial_rotary_factor", "rope_pct"),
    "residual": residual(False, "parallel_shared_norm"), "hidden_dropout": fact(0.0),
}  # fmt: skip
OLMO: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 11008, 50304, 2048) | {
    "norm": "layernorm", "norm_scale": False, "mlp_bias": False,
}  # fmt: skip
OLMO2: dict[str, Rule] = OLMO | {
    "norm": "rmsnorm", "norm_scale": True, "norm_placement": "after", "qk_norm": "whole",
}  # fmt: skip
COHERE: dict[str, Rule] = LLAMA | sizes(8192, 40, 64, 22528, 256000, 8192) | {
    "norm": "layernorm", "tied": fact(True), "mlp_bias": False, "residual": "parallel_shared_norm",
}  # fmt: skip
INTERNLM2: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 11008, 103168, 2048) | {
    "qkv_bias": fact(True, "bias"), "out_bias": fact(True, "bias"), "mlp_bias": False,
}  # fmt: skip
INTERNLM3: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 11008, 128512, 32768) | {
    "qkv_bias": fact(False, "qkv_bias"), "out_bias": fact(False, "bias"),
    "mlp_bias": fact(False, "bias"),
}  # fmt: skip
BAICHUAN: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 11008, 64000, 4096) | {
    "kv_heads": fact(None), "qkv_bias": False, "out_bias": False, "mlp_bias": False,
    "alibi": baichuan_alibi,
}  # fmt: skip
MIXTRAL: dict[str, Rule] = MISTRAL | {"experts": mixtral_experts, "window": fact(None)}
QWEN2_MOE: dict[str, Rule] = QWEN2 | sizes(2048, 24, 16, 5632, 151936, 32768) | {
    "kv_heads": fact(16), "experts": qwen2_experts, "dense_layers": dense_layers,
    "qkv_bias": fact(True, "qkv_bias"),
}  # fmt: skip
QWEN3_MOE: dict[str, Rule] = QWEN3 | sizes(2048, 24, 32, 6144, 151936, 32768) | {
    "kv_heads": fact(4), "head_size": fact(None), "experts": qwen3_experts,
    "dense_layers": dense_layers,
}  # fmt: skip
NEMOTRON: dict[str, Rule] = LLAMA | sizes(6144, 32, 48, 24576, 256000, 4096) | {
    "activation": fact("relu2"), "gated": False, "norm": "layernorm", "norm_bias": True,
    "rotary_fraction": fact(0.5, "partial_rotary_factor", "partial_rotary_percent", "rope_percent"),
}  # fmt: skip
GPT_OSS: dict[str, Rule] = LLAMA | sizes(2880, 36, 64, 2880, 201088, 131072) | {
    "kv_heads": fact(8), "head_size": fact(64), "mlp_bias": False, "sinks": True, "rotary_scaled": True,
    "qkv_bias": fact(True, "attention_bias"), "out_bias": fact(True, "attention_bias"),
    "window": fact(128), "local": local_layers(every_other), "experts": gpt_oss_experts,
}  # fmt: skip
LLAMA4: dict[str, Rule] = LLAMA | sizes(5120, 48, 40, 8192, 202048, 131072) | {
    "kv_heads": fact(8), "head_size": fact(128), "mlp_bias": False,
    "ffn_hidden": lambda read: read.count("intermediate_size_mlp", 16384),
    "qk_norm": lambda read: "unscaled" if read.flag("use_qk_norm", True) else "none",
    "window": fact(8192, "attention_chunk_size"), "window_kind": "chunked",
    "local": local_layers(turned_layers), "unturned": unturned_layers,
    "experts": llama4_experts, "dense_layers": llama4_dense_layers,
}  # fmt: skip
DEEPSEEK_V2: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 11008, 32000, 2048) | {
    "kv_heads": None, "head_size": None, "mlp_bias": False, "qkv_bias": False, "out_bias": False,
    "rotary_fraction": 1.0, "latent": latent_attention(1536), "experts": deepseek_v2_experts,
    "dense_layers": leading_dense_layers(0),
}  # fmt: skip
DEEPSEEK_V3: dict[str, Rule] = DEEPSEEK_V2 | sizes(7168, 61, 128, 18432, 129280, 4096) | {
    "experts": deepseek_v3_experts, "dense_layers": leading_dense_layers(3), "mtp": further_predictions,
}  # fmt: skip
GROK: dict[str, Rule] = LLAMA | sizes(6144, 64, 48, 32768, 131072, 8192) | {
    "kv_heads": fact(8), "activation": "gelu", "tied": fact(True), "qkv_bias": False,
    "out_bias": False, "mlp_bias": False, "norm_placement": "around", "experts": grok_experts,
    "softcap": fact(30.0, "max_attn_value"),
}  # fmt: skip

_NORMED_HEADS = "layer norms of queries and keys are not supported"
EARLIER: dict[str, Family] = {
    **{
        name: Family(facts=facts)
        for name, facts in {
            "llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "qwen3": QWEN3, "gemma": GEMMA,
            "gemma2": GEMMA2, "gemma3_text": GEMMA3, "gpt2": GPT2, "gpt_neo": GPT_NEO,
            "gpt_neox": GPT_NEOX, "gptj": GPTJ, "olmo2": OLMO2, "internlm2": INTERNLM2,
            "internlm3": INTERNLM3,
            "baichuan": BAICHUAN, "nemotron": NEMOTRON, "mixtral": MIXTRAL, "qwen2_moe": QWEN2_MOE,
            "qwen3_moe": QWEN3_MOE, "gpt_oss": GPT_OSS, "llama4_text": LLAMA4,
        }.items()
    },
    "opt": Family(
        facts=OPT,
        musts=(
            Must(key="do_layer_norm_before", wanted=True, because="OPT-350M is not supported"),
            Must(key="_remove_final_layer_norm", wanted=False, because="a final norm is always there"),
            Must(
                key="word_embed_proj_dim",
                same_as="hidden",
                because="OPT-350M is not supported: it projects its embeddings",
            ),
        ),
    ),
    "bloom": Family(facts=BLOOM),
    "falcon": Family(facts=FALCON),
    "mpt": Family(
        facts=MPT,
        musts=(
            Must(
                key="attn_config.attn_type",
                wanted="multihead_attention",
                because="others are not supported",
            ),
            Must(key="attn_config.qk_ln", wanted=False, because=_NORMED_HEADS),
        ),
        scales=("attn_config.clip_qkv", "logit_scale"),
    ),
    "phi": Family(facts=PHI, musts=(Must(key="qk_layernorm", wanted=False, because=_NORMED_HEADS),)),
    "phi3": Family(
        facts=PHI3,
        musts=(Must(key="attention_bias", wanted=False, because="Phi-3 has no biases"),),
    ),
    "starcoder2": Family(
        facts=STARCODER2,
        musts=(
            Must(key="norm_type", wanted="layer_norm", because="other norms are not supported"),
            Must(key="mlp_type", wanted="default", because="gated StarCoder2 MLPs are not supported"),
        ),
    ),
    "stablelm": Family(
        facts=STABLELM, musts=(Must(key="qk_layernorm", wanted=False, because=_NORMED_HEADS),)
    ),
    "olmo": Family(facts=OLMO, scales=("clip_qkv",)),
    "granite": Family(
        facts=LLAMA,
        scales=("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"),
    ),
    **{
        name: Family(
            facts=facts,
            musts=(
                Must(key="attention_bias", wanted=False, because="latents have no biases"),
                Must(key="mlp_bias", wanted=False, because="DeepSeek's MLPs have no biases"),
            ),
        )
        for name, facts in {
            "deepseek_v2": DEEPSEEK_V2, "deepseek_v3": DEEPSEEK_V3, "kimi_k2": DEEPSEEK_V3,
        }.items()
    },
    "grok-1": Family(
        facts=GROK,
        scales=("embedding_multiplier_scale", "output_multiplier_scale", "attn_output_multiplier"),
    ),
    "cohere": Family(
        facts=COHERE,
        musts=(Must(key="use_qk_norm", wanted=False, because=_NORMED_HEADS),),
        scales=("logit_scale",),
    ),
}  # fmt: skip
