"""Decoder families since 2025, and those whose experts came later: which facts their configs give.

Answers: for one `model_type`, which facts are read, with which defaults, and which are fixed?
Elsewhere: earlier families (earlier_families.py), the form of a table (family.py), experts (experts.py).

Defaults are those of the configuration classes in Hugging Face transformers 5.3, or, for MiMo, of the
repository of its checkpoint. tests/interop/test_transformers_oracle.py compares parameter counts with the
models of the library.
"""

from flopcast.interop.hugging_face.deepseek import further_predictions, leading_dense_layers
from flopcast.interop.hugging_face.derived_facts import bigcode_kv_heads, minimax_rotary, used_window
from flopcast.interop.hugging_face.earlier_families import (
    COHERE,
    GEMMA2,
    GPT2,
    LLAMA,
    MISTRAL,
    OLMO2,
    QWEN2,
)
from flopcast.interop.hugging_face.experts import (
    dbrx_experts,
    ernie_dense_layers,
    ernie_experts,
    glm_experts,
    granite_experts,
    granite_shared_experts,
    hunyuan_experts,
    minimax_experts,
    mixtral_experts,
    olmoe_experts,
)
from flopcast.interop.hugging_face.family import Family, Must, Rule, fact, sizes
from flopcast.interop.hugging_face.windows import (
    all_but_each,
    every,
    from_the_last_full_one,
    full_layers,
    local_layers,
    unturned_layers,
)

_UNBIASED: dict[str, Rule] = {"qkv_bias": False, "out_bias": False, "mlp_bias": False}
_QKV_BIAS: dict[str, Rule] = {
    "qkv_bias": fact(True, "attention_bias"),
    "out_bias": False,
    "mlp_bias": False,
}
_SCALES = ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")
_FULL_UNTURNED: dict[str, Rule] = {  # layers with full attention have no rotary positions
    "local": local_layers(all_but_each(4)), "unturned": full_layers(all_but_each(4)),
}  # fmt: skip

SMOLLM3: dict[str, Rule] = LLAMA | sizes(2048, 36, 16, 11008, 128256, 32768) | {
    "kv_heads": fact(4), "tied": fact(True), "unturned": unturned_layers,
    "window": used_window, "local": local_layers(every),
}  # fmt: skip
OLMO3: dict[str, Rule] = OLMO2 | {
    "window": fact(4096), "local": local_layers(all_but_each(4)),
}  # fmt: skip
MINISTRAL3: dict[str, Rule] = MISTRAL | sizes(4096, 34, 32, 14336, 131072, 262144) | {
    "head_size": fact(128), "window": fact(None),
}  # fmt: skip
GLM: dict[str, Rule] = LLAMA | _QKV_BIAS | sizes(4096, 40, 32, 13696, 151552, 131072) | {
    "kv_heads": fact(2), "head_size": fact(128), "rotary_fraction": fact(0.5),
}  # fmt: skip
GLM4: dict[str, Rule] = GLM | {"norm_placement": "around"}
SEED_OSS: dict[str, Rule] = LLAMA | sizes(4096, 64, 80, 27648, 155136, 524288) | {
    "kv_heads": fact(8), "head_size": fact(128), "qkv_bias": fact(True, "attention_bias"),
    "out_bias": fact(False, "attention_out_bias"), "attention_dropout": fact(0.1),
    "hidden_dropout": fact(0.1),
}  # fmt: skip
EXAONE4: dict[str, Rule] = LLAMA | _UNBIASED | sizes(4096, 32, 32, 16384, 102400, 2048) | {
    "kv_heads": fact(32), "norm_placement": "after", "qk_norm": "per_head", "window": fact(4096),
} | _FULL_UNTURNED  # fmt: skip
COHERE2: dict[str, Rule] = COHERE | {"window": fact(4096)} | _FULL_UNTURNED
HUNYUAN: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 11008, 290943, 2048) | {
    "mlp_bias": False, "qk_norm": "per_head",
}  # fmt: skip
ERNIE45: dict[str, Rule] = LLAMA | sizes(1024, 18, 16, 3072, 103424, 131072) | {
    "kv_heads": fact(2), "head_size": fact(128), "tied": fact(True),
    **{name: fact(False, "use_bias") for name in _UNBIASED},
}  # fmt: skip
APERTUS: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 14336, 131072, 65536) | {
    "activation": fact("xielu"), "gated": False, "mlp_bias": False, "qk_norm": "per_head",
}  # fmt: skip
ARCEE: dict[str, Rule] = LLAMA | sizes(2560, 32, 32, 18432, 32000, 4096) | {
    "activation": fact("relu2"), "gated": False,
}  # fmt: skip
HELIUM: dict[str, Rule] = LLAMA | sizes(2560, 24, 20, 7040, 48000, 4096) | {
    "kv_heads": fact(20), "head_size": fact(128), "out_bias": False,
}  # fmt: skip
MIMO: dict[str, Rule] = QWEN2 | sizes(4096, 36, 32, 11008, 151680, 32768) | {
    "kv_heads": fact(8), "head_size": fact(None), "qkv_bias": fact(True, "attention_bias"),
    "mtp": further_predictions,
}  # fmt: skip
VAULT_GEMMA: dict[str, Rule] = GEMMA2 | {"norm_placement": "before"}
GPT_BIGCODE: dict[str, Rule] = GPT2 | {
    "kv_heads": bigcode_kv_heads, "activation": fact("gelu_pytorch_tanh"),
}  # fmt: skip

GLM4_MOE: dict[str, Rule] = LLAMA | sizes(4096, 46, 96, 10944, 151552, 131072) | _QKV_BIAS | {
    "kv_heads": fact(8), "head_size": fact(None), "qkv_bias": fact(False, "attention_bias"),
    "rotary_fraction": fact(0.5), "experts": glm_experts(128, 1, 8),
    "qk_norm": lambda read: "per_head" if read.flag("use_qk_norm", False) else "none",
    "dense_layers": leading_dense_layers(1), "mtp": further_predictions,
}  # fmt: skip
DOTS1: dict[str, Rule] = LLAMA | sizes(4608, 62, 32, 10944, 152064, 2048) | {
    "kv_heads": fact(32), "mlp_bias": False, "qk_norm": "per_head", "window": fact(4096),
    "local": local_layers(from_the_last_full_one), "experts": glm_experts(128, 0, 6),
    "dense_layers": leading_dense_layers(0),
}  # fmt: skip
HUNYUAN_MOE: dict[str, Rule] = HUNYUAN | {"experts": hunyuan_experts}
ERNIE45_MOE: dict[str, Rule] = ERNIE45 | sizes(2560, 28, 20, 12288, 103424, 131072) | {
    "kv_heads": fact(4), "head_size": fact(None), "experts": ernie_experts,
    "dense_layers": ernie_dense_layers,
}  # fmt: skip
MINIMAX_M2: dict[str, Rule] = LLAMA | _UNBIASED | sizes(3072, 62, 48, 1536, 200064, 196608) | {
    "kv_heads": fact(8), "head_size": fact(128), "qk_norm": "whole", "experts": minimax_experts,
    "rotary_fraction": minimax_rotary, "mtp": further_predictions,
}  # fmt: skip
OLMOE: dict[str, Rule] = LLAMA | sizes(2048, 16, 16, 2048, 50304, 4096) | {
    "mlp_bias": False, "qk_norm": "whole", "experts": olmoe_experts,
}  # fmt: skip
PHIMOE: dict[str, Rule] = LLAMA | sizes(4096, 32, 32, 6400, 32064, 131072) | {
    "kv_heads": fact(8), "mlp_bias": False, "norm": "layernorm", "norm_bias": True,
    "head_bias": lambda read: read.flag("lm_head_bias", False), "window": fact(None),
    "local": local_layers(every), "experts": mixtral_experts,
}  # fmt: skip
GRANITE_MOE: dict[str, Rule] = LLAMA | {"experts": granite_experts}
GRANITE_MOE_SHARED: dict[str, Rule] = LLAMA | {"experts": granite_shared_experts}
DBRX: dict[str, Rule] = LLAMA | _UNBIASED | sizes(2048, 24, 16, None, 32000, 2048) | {
    "kv_heads": fact(1, "attn_config.kv_n_heads", "num_key_value_heads"), "norm": "layernorm",
    "activation": "silu",
    "attention_dropout": fact(0.0, "attn_config.attn_pdrop"), "hidden_dropout": fact(0.0),
    "embedding_dropout": fact(0.0), "experts": dbrx_experts,
}  # fmt: skip

RECENT: dict[str, Family] = {
    **{
        name: Family(facts=facts)
        for name, facts in {
            "smollm3": SMOLLM3, "olmo3": OLMO3, "ministral3": MINISTRAL3, "ministral": MISTRAL, "glm": GLM,
            "glm4": GLM4, "seed_oss": SEED_OSS, "exaone4": EXAONE4, "hunyuan_v1_dense": HUNYUAN,
            "ernie4_5": ERNIE45, "apertus": APERTUS, "arcee": ARCEE, "helium": HELIUM, "mimo": MIMO,
            "glm4_moe": GLM4_MOE, "dots1": DOTS1, "hunyuan_v1_moe": HUNYUAN_MOE,
            "ernie4_5_moe": ERNIE45_MOE, "minimax_m2": MINIMAX_M2, "phimoe": PHIMOE,
            "vaultgemma": VAULT_GEMMA,
        }.items()
    },
    "cohere2": Family(facts=COHERE2, scales=("logit_scale",)),
    "olmoe": Family(facts=OLMOE, scales=("clip_qkv",)),
    "granitemoe": Family(facts=GRANITE_MOE, scales=_SCALES),
    "granitemoeshared": Family(facts=GRANITE_MOE_SHARED, scales=_SCALES),
    "dbrx": Family(facts=DBRX, scales=("attn_config.clip_qkv",)),
    "gpt_bigcode": Family(
        facts=GPT_BIGCODE,
        musts=(Must(key="add_cross_attention", wanted=False, because="cross-attention is not supported"),),
    ),
}  # fmt: skip
