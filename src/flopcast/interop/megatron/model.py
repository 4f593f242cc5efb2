"""Megatron-LM's flags as a model: shape, norms, biases, positions, vocabulary, and the sequence length.

Answers: which model do these flags describe?
Elsewhere: a decoder with an encoder (encoder.py), layers that differ (layer_kinds.py), experts
(experts.py), latents (latent.py), the division over ranks (plan.py). Defaults are Megatron-LM's, core
v0.12.
"""

from flopcast.files.yaml_text import Path
from flopcast.fixes import set_to
from flopcast.interop.megatron.encoder import BUCKETS, read_encoder
from flopcast.interop.megatron.flags import PATCH_VOCABULARIES, TOKENIZER_NAMES, VOCABULARIES
from flopcast.interop.megatron.job_builder import JobBuilder
from flopcast.interop.megatron.latent import MLA, read_further_predictions, read_latents
from flopcast.interop.megatron.layer_kinds import read_kinds
from flopcast.library import catalog
from flopcast.spec.rules_size import MOST_LAYERS

ACTIVATIONS = {"--quick-geglu": "geglu", "--swiglu": "swiglu", "--squared-relu": "relu2"}
SOFTMAX = "--softmax-type"
PATCHED, EXTRA = "--patch-tokenizer-type", "--extra-vocab-size"  # of Pai-Megatron-Patch
DROPOUT = 0.1  # the default of --attention-dropout and --hidden-dropout
HIDDEN = "--hidden-size"
LAYERS = ("--num-layers", "--encoder-num-layers")
SEQUENCE = ("--seq-length", "--encoder-seq-length")


def read_model(args: JobBuilder) -> None:
    """Read the decoder; blocks are equal, except for experts and windows in some of them.

    Layer norms have a bias, and root-mean-square norms have none. One dropout probability applies to the
    residual stream and the embedding, and another to the attention weights. The head shares the
    embedding's table unless it is untied.

    Parameters
    ----------
    args : JobBuilder
        The function adds `model`, `batch` and the number of layers to the builder; faults go to its
        arguments.

    References
    ----------
    Megatron-LM, `core_transformer_config_from_args` in megatron/training/arguments.py.
    """
    args.put(("model", "name"), args.name)
    hidden = args.required(HIDDEN)
    args.layers = args.required(*LAYERS)
    if args.layers > MOST_LAYERS:
        because, flag = "no known model has so many layers", args.first(*LAYERS)
        args.fault(flag, args.layers, f"at most {MOST_LAYERS}", because, set_to({flag: MOST_LAYERS}))
        args.layers = 1
    args.put(("model", "hidden"), hidden, HIDDEN)
    block: Path = ("model", "blocks", 0)
    args.put((*block, "count"), args.layers, *LAYERS)
    norm = args.choice("--normalization", "layernorm")
    args.put((*block, "norm"), norm, "--normalization")
    args.put((*block, "norm_bias"), norm == "layernorm", "--normalization")
    dropout = _dropout(args, "--hidden-dropout")
    args.put((*block, "dropout"), dropout, "--hidden-dropout")
    args.put(("model", "embedding_dropout"), dropout, "--hidden-dropout")
    untied = "--untie-embeddings-and-output-weights"
    args.put(("model", "tied_embeddings"), not args.has(untied), untied)
    if args.has("--embed-layernorm"):
        args.put(("model", "embedding_norm"), True, "--embed-layernorm")
    _attention(args, block)
    _feed_forward(args, block, hidden)
    _vocabulary(args)
    _sequence(args, block)
    read_kinds(args)
    read_further_predictions(args)
    read_encoder(args)


def _dropout(args: JobBuilder, flag: str) -> float:
    """Return a dropout probability; Megatron-LM's default is not zero and costs time."""
    if not args.has(flag):
        args.assume(f"{flag} {DROPOUT}, Megatron-LM's default")
    return args.fraction(flag, DROPOUT)


def _attention(args: JobBuilder, block: Path) -> None:
    """Read heads, key/value heads, norms of queries and keys, and biases.

    `--group-query-attention` alone means one key/value head for all queries; a number of groups alone has
    no effect. Megatron-DeepSpeed states the number of these heads as `--num-key-value-heads`. Without
    biases, `--add-qkv-bias` still gives q, k and v a bias (Qwen). Norms of queries and keys apply to each
    head.
    """
    mixer = (*block, "mixer")
    heads = args.required("--num-attention-heads")
    softmax = args.choice(SOFTMAX, "vanilla")
    if softmax == "off-by-one" or (softmax != "vanilla" and args.has(*MLA)):
        args.assume("flopcast predicts an ordinary softmax instead", SOFTMAX)
    if args.has(*MLA):
        read_latents(args, mixer, heads)
        args.put((*mixer, "dropout"), _dropout(args, "--attention-dropout"), "--attention-dropout")
        return
    args.put((*mixer, "heads"), heads, "--num-attention-heads")
    groups = args.first("--num-key-value-heads", "--num-query-groups")
    if args.has("--group-query-attention") and not args.has(groups):
        args.assume("--num-query-groups 1 (multi-query attention), which is Megatron-LM's default")
    if args.has("--group-query-attention", "--num-key-value-heads"):
        groups = groups if args.has(groups) else "--num-query-groups"
        args.put((*mixer, "kv_heads"), args.count(groups), groups)
    elif args.has(groups):
        args.assume(f"{groups} has no effect: --group-query-attention is not given", groups)
    if args.has("--qk-layernorm"):
        args.put((*mixer, "qk_norm"), "per_head", "--qk-layernorm")
    if args.has("--kv-channels"):
        args.put((*mixer, "head_size"), args.count("--kv-channels"), "--kv-channels")
    biased = not args.has("--disable-bias-linear")
    flags = ("--add-qkv-bias", "--disable-bias-linear")
    args.put((*mixer, "qkv_bias"), biased or args.has("--add-qkv-bias"), *flags)
    args.put((*mixer, "out_bias"), biased, "--disable-bias-linear")
    args.put((*mixer, "dropout"), _dropout(args, "--attention-dropout"), "--attention-dropout")
    if softmax == "learnable":
        args.put((*mixer, "sinks"), True, SOFTMAX)


def _feed_forward(args: JobBuilder, block: Path, hidden: int) -> None:
    """Read the inner width and the activation.

    The default width is 4 · hidden; for a gated activation two thirds of this width, rounded down to a
    multiple of 64, so that three matrices are as large as two.
    """
    inner = (*block, "feed_forward")
    for one, other in (("--swiglu", "--squared-relu"), ("--swiglu", "--quick-geglu")):
        args.clash(one, other, "a block has one activation")
    usual = next((name for flag, name in ACTIVATIONS.items() if args.has(flag)), "gelu")
    activation = args.choice("--glu-activation", usual)
    width = args.count("--ffn-hidden-size", swiglu_width(hidden) if args.has("--swiglu") else 4 * hidden)
    args.put((*inner, "ffn_hidden"), width, "--ffn-hidden-size", HIDDEN)
    args.put((*inner, "activation"), activation, "--glu-activation", *ACTIVATIONS)
    args.put((*inner, "bias"), not args.has("--disable-bias-linear"), "--disable-bias-linear")


def swiglu_width(hidden: int) -> int:
    """Return the width that Megatron uses for SwiGLU without `--ffn-hidden-size` (megatron/arguments.py).

    >>> swiglu_width(5120)
    13632
    """
    return max(8 * hidden // 3 // 64, 1) * 64


def _vocabulary(args: JobBuilder) -> None:
    """Read the number of tokens, and the padding of their table.

    A padded size is used unchanged. A tokenizer for benchmarks, `NullTokenizer`, adds an end-of-document
    token to `--vocab-size`.
    """
    padded = args.first("--padded-vocab-size", "--pad-vocab-size-to")
    multiple = "--make-vocab-size-divisible-by"
    args.put(("model", "vocabulary_multiple"), args.count(multiple, 128), multiple)
    if args.has(padded):
        args.put(("model", "vocabulary"), args.count(padded), padded)
        args.put(("model", "vocabulary_multiple"), 1, padded)
    elif args.has("--vocab-size"):
        kind = args.text("--tokenizer-type")
        end_token = 1 if kind.startswith("Null") else 0  # such a tokenizer adds an end of document
        args.put(("model", "vocabulary"), args.count("--vocab-size") + end_token, "--vocab-size")
    else:
        tokens, flag = _tokens(args)
        more = args.count(EXTRA, 0, least=0)
        args.put(("model", "vocabulary"), tokens + more, flag)


def _tokens(args: JobBuilder) -> tuple[int, str]:
    """Return the vocabulary of a tokenizer, from its type, its name or the name of its model.

    pretrain_gpt.py uses GPT-2's tokenizer if none is named. An unknown tokenizer is an error, because the
    embeddings of 32,000 and of 256,000 tokens differ by the parameters of a small model.
    """
    path = args.first("--tokenizer-model", "--tokenizer-name-or-path")
    flag = PATCHED if args.has(PATCHED) else "--tokenizer-type"
    kind = args.text(flag) or ("" if args.has(path) else "GPT2BPETokenizer")
    known = (PATCH_VOCABULARIES if flag == PATCHED else VOCABULARIES).get(kind)
    if known is None:
        flag = path
        own = args.text(path).lower()
        known = next((size for part, size in TOKENIZER_NAMES.items() if part in own), None)
        known = known or _of_a_model(args.text(path))
    if known:
        args.assume(f"vocabulary {known[0]}: {known[1]}", flag)
        return known[0], flag
    tokenizer = f"{kind} {args.text(path)}".strip()
    because = f"the vocabulary size is needed, and flopcast does not read the tokenizer {tokenizer}"
    args.fault("--vocab-size", None, "a whole number", because, "add --vocab-size N", "is missing")
    return 1, "--vocab-size"


def _of_a_model(tokenizer: str) -> tuple[int, str] | None:
    """Return the vocabulary of the catalogue's model that is named in the tokenizer's path."""
    for part in tokenizer.replace("\\", "/").split("/")[::-1]:
        if entry := catalog.known("models", part):
            source = f"the vocabulary of {entry}, because the name of the tokenizer contains this model"
            return catalog.model(entry).vocabulary, source
    return None


def _sequence(args: JobBuilder, block: Path) -> None:
    """Read the sequence length in tokens, and the kind of positions.

    `--max-position-embeddings` is the number of rows of a learned table, and at least the length.
    `--rotary-percent` is a share in [0, 1], in spite of its name.
    """
    mixer = (*block, "mixer")
    length = args.required(*SEQUENCE)
    args.put(("batch", "sequence_length"), length, *SEQUENCE)
    longest = args.count("--max-position-embeddings", length)
    if longest < length:
        flag = "--max-position-embeddings"
        because = f"each of the {length} tokens of a sequence needs a position"
        args.fault(flag, longest, f"{length} or more", because, f"write {flag} {length}")
    kind = _positions(args)
    learned = longest if kind == "learned" else 0
    args.put(("model", "learned_positions"), learned, "--max-position-embeddings")
    if args.has(*MLA):  # a part of each head of its own is rotated
        return
    fraction = args.fraction("--rotary-percent", 1.0) if kind == "rope" else 0.0
    flags = ("--rotary-percent", "--use-rotary-position-embeddings", "--position-embedding-type")
    args.put((*mixer, "rotary_fraction"), fraction, *flags)
    if kind in ("alibi", "relative"):
        args.put((*mixer, "alibi"), True, "--position-embedding-type")
    if kind == "relative":
        args.put(("model", "relative_positions"), args.count(BUCKETS, 32), BUCKETS)


def _positions(args: JobBuilder) -> str:
    """Return the kind of positions: "learned" by default, "rope", "alibi", "relative" (T5) or "none"."""
    kind = args.choice("--position-embedding-type", "learned")
    if args.has("--use-rotary-position-embeddings"):
        return "rope"
    if args.has("--no-position-embedding") and not args.has("--position-embedding-type"):
        return "none"
    return kind
