"""Splits and blocks that the tests of this folder share: the published shapes, small and large."""

import numpy as np

from flopcast.dtypes import constant
from flopcast.layers.adapters import Adapted, Adapters
from flopcast.layers.attention import Attention
from flopcast.layers.base import Split
from flopcast.layers.block import Block
from flopcast.layers.cross_attention import CrossAttention
from flopcast.layers.embedding import Embedding
from flopcast.layers.experts import Experts
from flopcast.layers.gated_delta_net import GatedDeltaNet
from flopcast.layers.head import FinalNorm, Head
from flopcast.layers.images import Image, Patching
from flopcast.layers.latent_attention import LatentAttention
from flopcast.layers.mlp import Mlp
from flopcast.layers.multi_token import MultiTokenPrediction
from flopcast.layers.selective_scan import SelectiveScan
from flopcast.layers.time_mix import TimeMix
from flopcast.layers.tower import Patches, Projection, Projector, SeenBlock, TowerBlock
from flopcast.layers.traced import NO_ENDS, NoFeedForward, Traced

RESIDUALS = ("sequential", "parallel", "parallel_shared_norm")


def split(sequences=1, length=2048, tensor=1, sequence_parallel=False, dtype="fp16"):
    """One plan; lists give a batch of plans."""
    columns = {
        name: np.array(values, dtype=float).reshape(-1, 1)
        for name, values in (("sequences", sequences), ("length", length), ("tensor", tensor))
    }
    images = ((Image(width=112, height=112),),)  # which only layers of a vision tower read
    return Split(sequence_parallel=sequence_parallel, dtype=dtype, images=images, **columns)


def gpt(heads, hidden, dropout=0.1, **fields):
    """GPT-2 and GPT-3: biases, layer norms, GELU, dropout everywhere, no rotary positions."""
    mixer = Attention(heads=heads, qkv_bias=True, out_bias=True, rotary_fraction=0.0, dropout=dropout)
    feed_forward = Mlp(ffn_hidden=4 * hidden, activation="gelu", bias=True)
    return Block(mixer=mixer, feed_forward=feed_forward, dropout=dropout, **fields)


def llama(heads, kv_heads, ffn_hidden, **fields):
    """Llama: grouped queries, rotary positions, gated MLP, no biases, no dropout."""
    return Block(
        mixer=Attention(heads=heads, kv_heads=kv_heads),
        feed_forward=Mlp(ffn_hidden=ffn_hidden, activation="swiglu"),
        norm="rmsnorm",
        **fields,
    )


def experts(num_experts, top_k, expert_hidden=96, norm_placement="before", **fields):
    """Mixtral's block: Llama's, whose feed-forward is spread over experts; their loads are even."""
    layer = Experts(
        num_experts=num_experts,
        top_k=top_k,
        expert_hidden=expert_hidden,
        **{"load_imbalance_ratio": 1.0} | fields,
    )
    return Block(
        mixer=Attention(heads=8, kv_heads=8),
        feed_forward=layer,
        norm="rmsnorm",
        norm_placement=norm_placement,
    )


def latent(**fields):
    """DeepSeek's block with a dense MLP: heads of 12 and 10 elements out of a latent of 16."""
    mixer = LatentAttention(
        heads=8, kv_lora_rank=16, qk_nope_head_size=8, qk_rope_head_size=4, value_head_size=10, **fields
    )
    return Block(mixer=mixer, feed_forward=Mlp(ffn_hidden=160, activation="swiglu"), norm="rmsnorm")


HIDDEN = 64
BLOCKS = {
    "gpt": gpt(8, HIDDEN),
    "gpt_without_dropout": gpt(8, HIDDEN, dropout=0.0),
    "neox": gpt(8, HIDDEN, residual="parallel"),
    "falcon": gpt(8, HIDDEN, residual="parallel_shared_norm"),
    "llama": llama(8, 8, 160),
    "grouped": llama(8, 4, 160),
    "multi_query": llama(8, 1, 160),
    "wide_heads": Block(
        mixer=Attention(heads=8, head_size=32, rotary_fraction=0.25),
        feed_forward=Mlp(ffn_hidden=256, activation="geglu"),
    ),
    "qwen3": Block(
        mixer=Attention(heads=8, kv_heads=4, head_size=16, qk_norm="per_head"),
        feed_forward=Mlp(ffn_hidden=160, activation="swiglu"),
        norm="rmsnorm",
    ),
    "olmo2": Block(
        mixer=Attention(heads=8, qk_norm="whole"),
        feed_forward=Mlp(ffn_hidden=160, activation="swiglu"),
        norm="rmsnorm",
        norm_placement="after",
    ),
    "gemma2": Block(
        mixer=Attention(heads=8, kv_heads=4, softcap=True),
        feed_forward=Mlp(ffn_hidden=160, activation="geglu"),
        norm="rmsnorm",
        norm_placement="around",
    ),
    "bloom": Block(
        mixer=Attention(heads=8, qkv_bias=True, out_bias=True, rotary_fraction=0.0, alibi=True),
        feed_forward=Mlp(ffn_hidden=256, bias=True),
    ),
    "nemotron": Block(
        mixer=Attention(heads=8, kv_heads=2, rotary_fraction=0.5),
        feed_forward=Mlp(ffn_hidden=256, activation="relu2"),
        norm_scale=False,
    ),
    "bidirectional": Block(
        mixer=Attention(heads=8, causal=False), feed_forward=Mlp(ffn_hidden=256, activation="relu")
    ),
}
MIXTURES = {
    "mixtral": experts(num_experts=8, top_k=2),
    "deepseek_moe": experts(num_experts=8, top_k=3, shared_experts=2, shared_hidden=32),
    "qwen2_moe": experts(num_experts=4, top_k=1, shared_experts=1, shared_hidden=160, shared_gate=True),
    "fp32_router": experts(num_experts=8, top_k=8, router="sigmoid", router_dtype="fp32"),
    "experts_after": experts(num_experts=8, top_k=2, norm_placement="after"),
}
LATENT = {  # DeepSeek's, small: no two widths are equal
    "latent": latent(q_lora_rank=24),
    "latent_without_queries": latent(),
    "grouped_latents": latent(q_lora_rank=24, latent_groups=2),
    "latent_dropout": latent(q_lora_rank=24, dropout=0.1),
}
TRACED = Traced.model_validate(
    {
        "weights_of_block": [{"name": "norm", "elements": 64}, {"name": "w", "elements": 64 * 64}],
        "operators": [
            {
                "kind": "pass",
                "name": "norm",
                "inputs": ["x"],
                "output": "n",
                "moved": {"tokens": 128, "constant": 64},
                "keeps": [{"name": "x", "elements": {"tokens": 64}}],
            },
            {
                "kind": "matmul",
                "name": "linear",
                "inputs": ["n"],
                "output": "q",
                "m": {"tokens": 1},
                "n": 64,
                "k": 64,
            },
            {
                "kind": "attention",
                "name": "core",
                "inputs": ["q", "q", "q"],
                "output": "y",
                "heads": 4,
                "kv_heads": 4,
                "head_size": 16,
            },
        ],
    }
)
GRAPH = Traced.model_validate(
    {
        "batch_of": "samples",
        "units": 1,
        "weights_of_block": [{"name": "w0", "elements": 3 * 8 * 9}],
        "operators": [
            {
                "kind": "convolution",
                "name": "convolution.0",
                "inputs": ["x"],
                "output": "t0",
                "rows": {"sequences": 256},
                "columns": 8,
                "terms": 27,
                "read": {"sequences": 768},
            },
            {
                "kind": "graph_pass",
                "name": "relu.1",
                "family": "elementwise",
                "inputs": ["t0"],
                "output": "t1",
                "moved": {"sequences": 4096},
                "moved_backward": {"sequences": 6144},
                "written": {"sequences": 2048},
                "keeps": [{"name": "t1", "elements": {"sequences": 2048}}],
                "fusible": True,
            },
            {
                "kind": "graph_attention",
                "name": "attention.2",
                "inputs": ["t1", "t1", "t1"],
                "output": "y",
                "heads": {"sequences": 2},
                "kv_heads": {"sequences": 2},
                "queries": 16,
                "keys": 8,
                "head_size": 8,
            },
        ],
    }
)
SEES = TowerBlock(mixer=Attention(heads=8, causal=False), feed_forward=Mlp(ffn_hidden=160))
LAYERS = {
    "graph_block": Block(mixer=GRAPH, feed_forward=NoFeedForward()),
    "no_end": NO_ENDS[0],
    **BLOCKS,
    **MIXTURES,
    **LATENT,
    "adapted": Adapted(
        kind="block",
        inner=BLOCKS["llama"],
        adapters=Adapters(rank=4, targets=("q", "v", "out", "gate_up", "down"), dropout=0.1),
    ),
    "adapted_head": Adapted(
        kind="head", inner=Head(vocabulary=1000), adapters=Adapters(rank=4, targets=("q",))
    ),
    "gated_attention": Attention(heads=8, kv_heads=2, head_size=16, qk_norm="per_head", out_gate=True),
    "gated_delta": GatedDeltaNet(heads=8, key_heads=4, key_size=16, value_size=12),
    "gated_linear_attention": GatedDeltaNet(
        rule="gated", heads=8, key_heads=8, key_size=8, value_size=16, convolution=0
    ),
    "kimi_delta": GatedDeltaNet(
        rule="channel", heads=8, key_heads=8, key_size=16, value_size=12, out_gate_rank=12
    ),
    "selective_scan": SelectiveScan(heads=32, state_size=4, rank=6, norms="weighted"),
    "time_mix_5": TimeMix(version=5, heads=8, head_size=8),
    "time_mix_6": TimeMix(version=6, heads=8, head_size=8, shift_rank=4, decay_rank=6),
    "time_mix_7": TimeMix(
        version=7, heads=8, head_size=8, decay_rank=6, rate_rank=4, value_rank=2, gate_rank=10
    ),
    "channel_mix": Mlp(ffn_hidden=256, activation="relu2", mix="gated"),
    "delta_block": Block(
        mixer=GatedDeltaNet(heads=8, key_heads=4, key_size=16, value_size=12),
        feed_forward=Mlp(ffn_hidden=160, activation="swiglu"),
        norm="rmsnorm",
    ),
    "cross_attention": CrossAttention(heads=8, head_size=16, qkv_bias=True, out_bias=True, dropout=0.1),
    "end_of_encoder": Block(
        mixer=Attention(heads=8, causal=False),
        feed_forward=Mlp(ffn_hidden=160),
        reads="source",
        ends_encoder=True,
    ),
    "t5_decoder": Block(
        mixer=Attention(heads=8, head_size=16, rotary_fraction=0.0, alibi=True),
        cross=CrossAttention(heads=8, head_size=16),
        feed_forward=Mlp(ffn_hidden=160, activation="relu"),
        norm="rmsnorm",
    ),
    "traced": TRACED,
    "traced_block": Block(mixer=TRACED, feed_forward=NoFeedForward(), norm="rmsnorm"),
    "no_feed_forward": NoFeedForward(),
    "attention": Attention(heads=8, kv_heads=2, qkv_bias=True, dropout=0.1),
    "latent_attention": LATENT["latent"].mixer,
    "mlp": Mlp(ffn_hidden=256, activation="silu", bias=True),
    "experts": Experts(num_experts=16, top_k=4, expert_hidden=32, shared_experts=1),
    "embedding": Embedding(vocabulary=1000, learned_positions=32, dropout=0.1),
    "normed_embedding": Embedding(vocabulary=1000, norm="layernorm", dropout=0.1),
    "embedding_alone": Embedding(vocabulary=1000, vocabulary_multiple=1),
    "final_norm": FinalNorm(),
    "head": Head(vocabulary=1000),
    "further_head": Head(vocabulary=1000, predictions=3),
    "mtp": MultiTokenPrediction(modules=2, block=BLOCKS["llama"], vocabulary=1000),
    "tied_head": Head(vocabulary=1000, tied=True),
    "capped_head": Head(vocabulary=1000, bias=True, softcap=True),
    "tower_block": SEES,
    "seen_block": SeenBlock(width=HIDDEN, patching=Patching(patch=14), block=SEES),
    "patches": Patches(width=HIDDEN, patching=Patching(patch=14), bias=True, positions=64, norms=1),
    "projector": Projector(
        width=HIDDEN, patching=Patching(patch=14), projection=Projection(widths=(96, HIDDEN))
    ),
}


def operators(items):
    """Items that run a kernel."""
    return [item for item in items if hasattr(item.work, "saves")]


def messages(items):
    """Items that send something."""
    return [item for item in items if getattr(item.work, "collective", "")]


def flop(items):
    """FLOP of one rank, shape (plans, 1)."""
    return sum((item.work.work().flop for item in operators(items)), constant(0))
