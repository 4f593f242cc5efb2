"""Parameter counts of the models of an installed `transformers`, as a small table.

Run where torch, transformers and flopcast are installed; tests only read the table:

    python transformers_counts.py tests/interop/transformers_counts.json [FAMILY ...]

Every causal language model of the library, and every encoder-decoder that flopcast reads, is built on the
meta device, with its default configuration and with small changes of it. A configuration is kept as the
library saves it (`to_diff_dict`), in the spelling of the installed version. Run it once with version 4 and
once with version 5: other rows stay. Of families that flopcast refuses, the name is kept. With families,
only their rows are replaced.
"""

import json
import os
import sys
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
CHANGES = (
    {},
    {"num_hidden_layers": 4, "tie_word_embeddings": True},
    {"num_hidden_layers": 2, "vocab_size": 5000, "attention_bias": True},
    {"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4},
)
ENCODER_DECODERS = (  # changes of T5 and its like, whose sizes have other names
    {},
    {"num_layers": 4, "num_decoder_layers": 2, "tie_word_embeddings": True},
    {"feed_forward_proj": "gated-gelu", "num_layers": 2, "d_ff": 1000},
    {"d_model": 768, "num_heads": 12, "d_kv": 32, "relative_attention_num_buckets": 16},
)
BARTS = (  # those of BART and its like
    {},
    {"encoder_layers": 4, "decoder_layers": 2},
    {"d_model": 512, "decoder_attention_heads": 8, "encoder_attention_heads": 8, "vocab_size": 5000},
    {"decoder_ffn_dim": 1000, "encoder_ffn_dim": 1000, "max_position_embeddings": 300},
)
SPECIAL = {  # configurations whose class has no usable default
    "dots1": {"n_routed_experts": 16, "n_shared_experts": 2, "num_experts_per_tok": 4},
    "hunyuan_v1_dense": {"head_dim": 128, "pad_token_id": 0},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 8, "moe_topk": 2},
    "ministral": {"head_dim": 128, "pad_token_id": 0},
    "nemotron": {"num_key_value_heads": 8},
    "bloom": {"hidden_size": 256},
    "glm4_moe": {"head_dim": 128},
    "qwen3_next": {"num_experts": 16},  # ten of which a token chooses
    "bamba": {"attn_layer_indices": [1]},
    "deepseek_v3": {"n_routed_experts": 16},  # four of eight groups hold the eight that a token chooses
    "deepseek_v32": {"n_routed_experts": 16},
    "glm_moe_dsa": {"n_routed_experts": 16},
}
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
FEW_EXPERTS = 8  # version 4 builds a module for each expert, which takes minutes for hundreds of them
PARTS = ("gemma3", "got_ocr2", "llama4", "emu3", "mistral3")  # with a vision tower beside the decoder
WITHOUT_SIZE = (
    "architectures",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "initializer_range",
    "use_cache",
)
ENDINGS = ("_token_id", "_eps", "_epsilon", "_dropout", "_pdrop", "_std")


def changes_of(family: str) -> tuple[dict[str, object], ...]:
    """The changes of an encoder-decoder's configuration."""
    return ENCODER_DECODERS if family.endswith("t5") else BARTS


def rows(version: str, families: list[str]) -> list[dict[str, object]]:
    """One row for each configuration that the library can build, of some families or of all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )

    from flopcast.interop.hugging_face.config import TYPES
    from flopcast.interop.hugging_face.families import FAMILIES

    found = []
    both = {family for family in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES if family in FAMILIES}
    for family in sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *both}):
        if families and family not in families:
            continue
        build = AutoModelForSeq2SeqLM if family in both else AutoModelForCausalLM
        if family in PARTS or TYPES.get(family, family) not in FAMILIES:
            found.append({"version": version, "config": {"model_type": family}, "parameters": None})
            continue
        seen = set()
        for changes in changes_of(family) if family in both else CHANGES:
            try:
                known = set(CONFIG_MAPPING[family]().to_dict())
                if "num_hidden_layers" not in known and changes and family not in both:
                    continue
                few = {name: FEW_EXPERTS for name in EXPERTS if name in known}
                wanted = few | SPECIAL.get(family, {}) | {n: v for n, v in changes.items() if n in known}
                config = CONFIG_MAPPING[family](**wanted)
                with torch.device("meta"):
                    model = build.from_config(config)
            except Exception as error:  # a default that the library itself cannot build
                print(f"{family}: {type(error).__name__}: {error}"[:150], file=sys.stderr)
                continue
            saved = {
                name: value
                for name, value in config.to_diff_dict().items()
                if name not in WITHOUT_SIZE and not name.endswith(ENDINGS)
            }
            text = json.dumps(saved | {"model_type": family}, sort_keys=True, default=str)
            if text not in seen:
                seen.add(text)
                parameters = sum(each.numel() for each in model.parameters())
                found.append({"version": version, "config": json.loads(text), "parameters": parameters})
    return found


def main(path: Path, families: list[str]) -> None:
    """Replace the rows of the installed version, and of the families if there are any, in the table."""
    import transformers

    version = transformers.__version__
    major = version.partition(".")[0]
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    others = [
        row
        for row in kept
        if row["version"].partition(".")[0] != major
        or (families and row["config"]["model_type"] not in families)
    ]
    table = sorted(
        others + rows(version, families), key=lambda row: (row["config"]["model_type"], row["version"])
    )
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in table)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
