"""Megatron-LM's flags as a model: shape, norms, biases, positions, vocabulary; and the sequence length.

Answers: which decoder do these flags describe?
Elsewhere: layers that differ (kinds.py), experts (experts.py), latents (latent.py), the cut (plan.py).
Defaults are Megatron-LM's, core v0.12.
"""

from flopcast.io import catalog
from flopcast.io.megatron.draft import Draft
from flopcast.io.megatron.flags import TOKENIZER_NAMES, VOCABULARIES
from flopcast.io.megatron.kinds import read_kinds
from flopcast.io.megatron.latent import MLA, read_further_predictions, read_latents
from flopcast.io.yaml_text import Path
from flopcast.spec.rules_size import MOST_LAYERS

NORMS = {"layernorm": "layernorm", "rmsnorm": "rmsnorm"}
POSITIONS = {"learned_absolute": "learned", "absolute": "learned", "rope": "rope", "rotary": "rope"}
POSITIONS |= {"none": "none", "alibi": "alibi"}
GATES = {"swiglu": "swiglu", "geglu": "geglu"}
SOFTMAX = "--softmax-type"
SOFTMAXES = {name: name for name in ("vanilla", "off-by-one", "learnable")}
DROPOUT = 0.1  # the default of --attention-dropout and --hidden-dropout
HIDDEN = "--hidden-size"
LAYERS = ("--num-layers", "--encoder-num-layers")
SEQUENCE = ("--seq-length", "--encoder-seq-length")


def read_model(draft: Draft) -> None:
    """Read the decoder; blocks are equal, except for experts and windows in some of them.

    Layer norms have a bias, root-mean-square norms none. One dropout probability serves the residual
    stream and the embedding, another the attention weights. The head shares the embedding's table unless
    it is untied.

    Parameters
    ----------
    draft : Draft
        It gets `model`, `batch`, and its number of layers; faults go to its arguments.

    References
    ----------
    Megatron-LM, `core_transformer_config_from_args` in megatron/training/arguments.py.
    """
    args = draft.arguments
    draft.put(("model", "name"), draft.name)
    hidden = args.required(HIDDEN)
    draft.layers = args.required(*LAYERS)
    if draft.layers > MOST_LAYERS:
        because, flag = "no model has nearly as many layers", args.first(*LAYERS)
        args.fault(flag, draft.layers, f"at most {MOST_LAYERS}", because, f"change {flag}")
        draft.layers = 1
    draft.put(("model", "hidden"), hidden, HIDDEN)
    block: Path = ("model", "blocks", 0)
    draft.put((*block, "count"), draft.layers, *LAYERS)
    norm = args.choice("--normalization", NORMS, "layernorm")
    draft.put((*block, "norm"), norm, "--normalization")
    draft.put((*block, "norm_bias"), norm == "layernorm", "--normalization")
    dropout = _dropout(draft, "--hidden-dropout")
    draft.put((*block, "dropout"), dropout, "--hidden-dropout")
    draft.put(("model", "embedding_dropout"), dropout, "--hidden-dropout")
    untied = "--untie-embeddings-and-output-weights"
    draft.put(("model", "tied_embeddings"), not args.has(untied), untied)
    if args.has("--embed-layernorm"):
        draft.put(("model", "embedding_norm"), True, "--embed-layernorm")
    _attention(draft, block)
    _feed_forward(draft, block, hidden)
    _vocabulary(draft)
    _sequence(draft, block)
    read_kinds(draft)
    read_further_predictions(draft)


def _dropout(draft: Draft, flag: str) -> float:
    """Return a dropout probability; Megatron-LM's default is not zero, and costs time."""
    if not draft.arguments.has(flag):
        draft.arguments.assume(f"{flag} {DROPOUT}, Megatron-LM's default")
    return draft.arguments.fraction(flag, DROPOUT)


def _attention(draft: Draft, block: Path) -> None:
    """Read heads, key/value heads, norms of queries and keys, and biases.

    `--group-query-attention` alone means one key/value head for all; a number of groups alone means
    nothing. Megatron-DeepSpeed gives their number as `--num-key-value-heads`. Without biases,
    `--add-qkv-bias` still gives q, k and v theirs (Qwen). A norm of queries and keys is one of each head.
    """
    args, mixer = draft.arguments, (*block, "mixer")
    heads = args.required("--num-attention-heads")
    softmax = args.choice(SOFTMAX, SOFTMAXES, "vanilla")
    if softmax == "off-by-one" or (softmax != "vanilla" and args.has(MLA)):
        args.assume("the softmax is counted as the usual one", SOFTMAX)
    if args.has(MLA):
        read_latents(draft, mixer, heads)
        draft.put((*mixer, "dropout"), _dropout(draft, "--attention-dropout"), "--attention-dropout")
        return
    draft.put((*mixer, "heads"), heads, "--num-attention-heads")
    groups = args.first("--num-key-value-heads", "--num-query-groups")
    if args.has("--group-query-attention") and not args.has(groups):
        args.assume("--num-query-groups 1, Megatron-LM's default: multi-query attention")
    if args.has("--group-query-attention", "--num-key-value-heads"):
        groups = groups if args.has(groups) else "--num-query-groups"
        draft.put((*mixer, "kv_heads"), args.count(groups), groups)
    elif args.has(groups):
        args.assume(f"{groups} has no effect: --group-query-attention is not given", groups)
    if args.has("--qk-layernorm"):
        draft.put((*mixer, "qk_norm"), "per_head", "--qk-layernorm")
    if args.has("--kv-channels"):
        draft.put((*mixer, "head_size"), args.count("--kv-channels"), "--kv-channels")
    biased = not args.has("--disable-bias-linear")
    flags = ("--add-qkv-bias", "--disable-bias-linear")
    draft.put((*mixer, "qkv_bias"), biased or args.has("--add-qkv-bias"), *flags)
    draft.put((*mixer, "out_bias"), biased, "--disable-bias-linear")
    draft.put((*mixer, "dropout"), _dropout(draft, "--attention-dropout"), "--attention-dropout")
    if softmax == "learnable":
        draft.put((*mixer, "sinks"), True, SOFTMAX)


def _feed_forward(draft: Draft, block: Path, hidden: int) -> None:
    """Read inner width and activation.

    Where no width is given, it is 4 · hidden; of a gated one two thirds of that, rounded down to a
    multiple of 64, so that three matrices hold what two held.
    """
    args, inner = draft.arguments, (*block, "feed_forward")
    for one, other in (("--swiglu", "--squared-relu"), ("--swiglu", "--quick-geglu")):
        args.clash(one, other, "a block has one activation")
    activation = "relu2" if args.has("--squared-relu") else "gelu"
    activation = "swiglu" if args.has("--swiglu") else activation
    activation = "geglu" if args.has("--quick-geglu") else activation
    activation = args.choice("--glu-activation", GATES, activation)
    usual = 4 * hidden
    if args.has("--swiglu"):
        usual = max(8 * hidden // 3 // 64, 1) * 64
    width = args.count("--ffn-hidden-size", usual)
    draft.put((*inner, "ffn_hidden"), width, "--ffn-hidden-size", HIDDEN)
    flags = ("--glu-activation", "--quick-geglu", "--swiglu", "--squared-relu")
    draft.put((*inner, "activation"), activation, *flags)
    draft.put((*inner, "bias"), not args.has("--disable-bias-linear"), "--disable-bias-linear")


def _vocabulary(draft: Draft) -> None:
    """Read the number of tokens, and how their table is padded.

    A padded size is taken as it is, so that nothing is added to it. A tokenizer for benchmarks,
    `NullTokenizer`, adds an end of document to `--vocab-size`.
    """
    args = draft.arguments
    padded = args.first("--padded-vocab-size", "--pad-vocab-size-to")
    multiple = "--make-vocab-size-divisible-by"
    draft.put(("model", "vocabulary_multiple"), args.count(multiple, 128), multiple)
    if args.has(padded):
        draft.put(("model", "vocabulary"), args.count(padded), padded)
        draft.put(("model", "vocabulary_multiple"), 1, padded)
    elif args.has("--vocab-size"):
        kind = args.text("--tokenizer-type")
        end_token = 1 if kind.startswith("Null") else 0  # such a tokenizer adds an end of document
        draft.put(("model", "vocabulary"), args.count("--vocab-size") + end_token, "--vocab-size")
    else:
        tokens, flag = _tokens(draft)
        draft.put(("model", "vocabulary"), tokens, flag)


def _tokens(draft: Draft) -> tuple[int, str]:
    """Return the vocabulary of a tokenizer, from its type, its name or the name of its model.

    pretrain_gpt.py uses GPT-2's tokenizer if none is named. An unknown tokenizer is an error, because
    embeddings of 32,000 and of 256,000 tokens differ by as many parameters as a small model has.
    """
    args = draft.arguments
    path = args.first("--tokenizer-model", "--tokenizer-name-or-path")
    kind = args.text("--tokenizer-type") or ("" if args.has(path) else "GPT2BPETokenizer")
    known = VOCABULARIES.get(kind)
    flag = "--tokenizer-type"
    if known is None:
        flag = path
        own = args.text(path).lower()
        known = next((found for part, found in TOKENIZER_NAMES.items() if part in own), None)
        known = known or _of_a_model(args.text(path))
    if known:
        args.assume(f"vocabulary {known[0]}: {known[1]}", flag)
        return known[0], flag
    said = f"{kind} {args.text(path)}".strip()
    because = f"the vocabulary determines the size of both tables, and the tokenizer {said} is not read"
    args.fault("--vocab-size", None, "a whole number", because, "add --vocab-size N", "is missing")
    return 1, "--vocab-size"


def _of_a_model(tokenizer: str) -> tuple[int, str] | None:
    """Return the vocabulary of the catalogue's model that a part of the tokenizer's path names."""
    for part in tokenizer.replace("\\", "/").split("/")[::-1]:
        if found := catalog.known("models", part):
            return catalog.model(found).vocabulary, f"that of the model {found}, which the tokenizer names"
    return None


def _sequence(draft: Draft, block: Path) -> None:
    """Read the sequence length in tokens, and the kind of positions.

    `--max-position-embeddings` is the number of rows of a learned table, and no less than the length.
    `--rotary-percent` is a share in [0, 1] in spite of its name.
    """
    args, mixer = draft.arguments, (*block, "mixer")
    length = args.required(*SEQUENCE)
    draft.put(("batch", "sequence_length"), length, *SEQUENCE)
    longest = args.count("--max-position-embeddings", length)
    if longest < length:
        flag, because = "--max-position-embeddings", f"a sequence has {length} tokens, each with a position"
        args.fault(flag, longest, f"{length} or more", because, f"write {flag} {length}")
    kind = _positions(draft)
    draft.put(
        ("model", "learned_positions"), longest if kind == "learned" else 0, "--max-position-embeddings"
    )
    if args.has(MLA):  # a part of each head of its own is rotated
        return
    fraction = args.fraction("--rotary-percent", 1.0) if kind == "rope" else 0.0
    flags = ("--rotary-percent", "--use-rotary-position-embeddings", "--position-embedding-type")
    draft.put((*mixer, "rotary_fraction"), fraction, *flags)
    if kind == "alibi":
        draft.put((*mixer, "alibi"), True, "--position-embedding-type")


def _positions(draft: Draft) -> str:
    """Return the kind of positions: "learned" by default, "rope", "alibi", or "none"."""
    args = draft.arguments
    kind = args.choice("--position-embedding-type", POSITIONS, "learned")
    if args.has("--use-rotary-position-embeddings"):
        return "rope"
    if args.has("--no-position-embedding") and not args.has("--position-embedding-type"):
        return "none"
    return kind
