"""A model as flags of Megatron-LM.

Answers: which flags describe this decoder?
Elsewhere: the meaning of the flags (interop/megatron/model.py, experts.py, latent.py, whose tables are
inverted here), the check that they express the whole model (same_job.py). Biases, norms and dropout are
chosen once for all blocks. If blocks differ in them, the flags of the first block are written, and the
check finds the others.
"""

from collections.abc import Mapping

from flopcast.interop.megatron.experts import (
    BACKEND,
    BALANCING,
    BESIDE,
    CAPACITY,
    COUNTS,
    DISPATCHER,
    FUSED_ROUTER,
    GATE,
    NUMBER,
    PADDED,
    SHARED,
)
from flopcast.interop.megatron.latent import MLA, SHARED_MTP, SIZES
from flopcast.interop.megatron.layer_kinds import FREQUENCY, SKIPPED, WINDOW
from flopcast.interop.megatron.model import SOFTMAX
from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.experts import Experts
from flopcast.layers.latent_attention import LatentAttention
from flopcast.spec.expert_software import ExpertSoftware
from flopcast.spec.job import Job
from flopcast.spec.model import Model

Flags = list[str]
NORM_NAMES = {"rmsnorm": "RMSNorm"}  # LayerNorm is the default, and older than the flag
ACTIVATIONS = {"swiglu": "--swiglu", "geglu": "--quick-geglu", "relu2": "--squared-relu"}
USUAL_COEFFICIENT = "1e-2"  # of the loss that keeps loads even; any but 0 is one


def word_of(table: Mapping[str, str], meaning: str) -> str:
    """Return the flag's value that a reader's table maps to this meaning; the meaning itself if there is
    none.

    >>> word_of({"p2p": "ring", "a2a": "all_to_all"}, "ring")
    'p2p'
    """
    return next((word for word, means in table.items() if means == meaning), meaning)


def model_flags(job: Job, current: bool) -> Flags:
    """Return the flags of a job's model and sequences.

    Parameters
    ----------
    current : whether the software is Megatron-Core, which can make up its own data
    """
    model = job.model
    dense = [block for block in model.blocks if block.feed_forward.kind == "mlp"]
    block = (dense or model.blocks)[0]
    length = job.batch.sequence_length
    positions = max(model.learned_positions + model.position_offset, length)
    return [
        f"--num-layers {model.num_blocks}",
        f"--hidden-size {model.hidden}",
        *_attention(block, model.hidden),
        *_feed_forward(block),
        f"--seq-length {length}",
        f"--max-position-embeddings {positions}",
        *_positions(block, model),
        *([f"--normalization {NORM_NAMES[block.norm]}"] if block.norm in NORM_NAMES else []),
        f"--hidden-dropout {block.dropout}",
        f"--attention-dropout {getattr(block.mixer, 'dropout', 0.0)}",
        *([] if model.tied_embeddings else ["--untie-embeddings-and-output-weights"]),
        *(["--embed-layernorm"] if model.embedding_norm else []),
        *([f"--mtp-num-layers {model.mtp}"] if model.mtp else []),
        *([SHARED_MTP] if model.mtp and model.mtp_shared else []),
        *_experts(job),
        *_windows(model),
        *_vocabulary(model, current),
    ]


def _attention(block: Block, hidden: int) -> Flags:
    """Return the flags of heads or latents; biases are switched off for the whole model."""
    mixer = block.mixer
    heads = [f"--num-attention-heads {mixer.heads}"] if hasattr(mixer, "heads") else []
    if isinstance(mixer, LatentAttention):
        sizes = [f"{flag} {getattr(mixer, field)}" for (flag, *_), (field, _) in SIZES.items()]
        queries = [f"--q-lora-rank {mixer.q_lora_rank}"] if mixer.q_lora_rank else []
        return [*heads, MLA[0], *queries, *sizes, "--qk-layernorm", *_biases(block, False)]
    if not isinstance(mixer, Attention):
        return heads
    grouped = mixer.groups != mixer.heads
    sized = mixer.size(hidden) * mixer.heads != hidden
    return [
        *heads,
        *(["--group-query-attention", f"--num-query-groups {mixer.groups}"] if grouped else []),
        *([f"--kv-channels {mixer.size(hidden)}"] if sized else []),
        *(["--qk-layernorm"] if mixer.qk_norm == "per_head" else []),
        *([f"{SOFTMAX} learnable"] if mixer.sinks else []),
        *_biases(block, mixer.qkv_bias),
    ]


def _biases(block: Block, queries: bool) -> Flags:
    """Return the flags of biases, on by default; if they are off, q, k and v may still have them."""
    inner = block.feed_forward
    every = inner.expert_bias if isinstance(inner, Experts) else inner.bias
    if every:
        return []
    return ["--disable-bias-linear", *(["--add-qkv-bias"] if queries else [])]


def _feed_forward(block: Block) -> Flags:
    """Return the flags of inner width and activation; those of experts if no block is dense."""
    inner = block.feed_forward
    width = getattr(inner, "expert_hidden", None) or getattr(inner, "ffn_hidden", 1)
    flag = ACTIVATIONS.get(getattr(inner, "activation", ""))
    return [f"--ffn-hidden-size {width}", *([flag] if flag else [])]


def _positions(block: Block, model: Model) -> Flags:
    """Return the flags of positions: a table is the default, and latent attention rotates only a part."""
    mixer = block.mixer
    if model.learned_positions:
        return []
    if isinstance(mixer, LatentAttention):
        return ["--position-embedding-type rope"]
    if isinstance(mixer, Attention) and mixer.alibi:
        return ["--position-embedding-type alibi"]
    fraction = mixer.rotary_fraction if isinstance(mixer, Attention) else 0.0
    if not fraction:
        return ["--position-embedding-type none"]
    share = [f"--rotary-percent {fraction}"] if fraction != 1.0 else []
    return ["--position-embedding-type rope", *share]


def _vocabulary(model: Model, current: bool) -> Flags:
    """Return the flags of the vocabulary and its padding; the tokenizer adds an end-of-document token."""
    multiple = f"--make-vocab-size-divisible-by {model.vocabulary_multiple}"
    if not current or model.vocabulary < 2:
        return [f"--vocab-size {model.vocabulary}", multiple]
    made_up = ["--mock-data", "--tokenizer-type NullTokenizer"]
    return [f"--vocab-size {model.vocabulary - 1}", multiple, *made_up]


def _experts(job: Job) -> Flags:
    """Return the flags of experts: their number, width, selection and layers."""
    sparse = [block.feed_forward for block in job.model.blocks if isinstance(block.feed_forward, Experts)]
    if not sparse:
        return []
    experts = sparse[0]
    return [
        f"{NUMBER} {experts.num_experts}",
        *(
            f"{flag} {getattr(experts, field)}"
            for flag, (field, usual) in COUNTS.items()
            if getattr(experts, field) != usual or field == "top_k"
        ),
        f"--moe-ffn-hidden-size {experts.expert_hidden}",
        *_shared(experts),
        *_router(experts),
        *_capacity(experts),
        f"{FREQUENCY} {_frequency(job.model)}",
        "--moe-grouped-gemm",
        *_software(job.stack.experts, job.plan.recompute),
    ]


def _software(software: ExpertSoftware, recompute: str) -> Flags:
    """Return the flags of the token exchange, its overlap with computation, and the router's kernels."""
    library = software.dispatcher
    flex = [f"{DISPATCHER} flex", f"{BACKEND} {library}"]
    beside = [BESIDE] if software.overlaps_exchanges(recompute) else []
    fused = [FUSED_ROUTER] if software.router_kernels == "fused" else []
    return [*([f"{DISPATCHER} alltoall"] if library == "all_to_all" else flex), *beside, *fused]


def _shared(experts: Experts) -> Flags:
    """Return the width of all shared experts together, because they form one dense MLP."""
    if not experts.shared_experts:
        return []
    each = experts.shared_hidden or experts.expert_hidden
    return [f"{SHARED} {experts.shared_experts * each}", *([GATE] if experts.shared_gate else [])]


def _router(experts: Experts) -> Flags:
    """Return the flags of scores, their type, and load balancing."""
    loss = [f"{BALANCING} aux_loss", f"--moe-aux-loss-coeff {USUAL_COEFFICIENT}"]
    return [
        *(["--moe-router-score-function sigmoid"] if experts.router == "sigmoid" else []),
        *(["--moe-router-dtype fp32"] if experts.router_dtype == "fp32" else []),
        *(["--moe-router-enable-expert-bias"] if experts.selection_bias else []),
        *(loss if experts.auxiliary_loss else [f"{BALANCING} none"]),
    ]


def _capacity(experts: Experts) -> Flags:
    """Return the capacity of an expert relative to its mean load, if tokens are dropped."""
    if not experts.capacity_factor:
        return []
    return [f"{CAPACITY} {experts.capacity_factor}", *([PADDED] if experts.pads_to_capacity else [])]


def _windows(model: Model) -> Flags:
    """Return the window to the left of a query, and the layers with a window if not all have one."""
    windows = [getattr(block.mixer, "window", None) for block in model.blocks]
    wide = next((window for window in windows if window), None)
    if wide is None:
        return []
    layers = _listed(model, [int(window is not None) for window in windows])
    return [f"{WINDOW} {wide - 1},0", *([f"{SKIPPED} {layers}"] if layers != "1" else [])]


def _frequency(model: Model) -> str:
    """Return which layers have experts: all, or a list with 1 for each such layer.

    >>> from flopcast.library import catalog
    >>> _frequency(catalog.model("mixtral-8x7b")), _frequency(catalog.model("deepseek-v3"))
    ('1', '"([0]*3+[1]*58)"')
    """
    return _listed(model, [int(block.feed_forward.kind == "experts") for block in model.blocks])


def _listed(model: Model, kinds: list[int]) -> str:
    rows = [(kinds[place - 1], count) for place, count in model.runs() if 1 <= place <= len(kinds)]
    if all(marked for marked, _ in rows):
        return "1"
    return f'"({"+".join(f"[{marked}]*{count}" for marked, count in rows)})"'
