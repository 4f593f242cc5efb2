"""The decoder that a configuration of GPT-NeoX describes.

Answers: which blocks, which vocabulary and which length of a sequence do these keys describe?
Elsewhere: how it is trained (gpt_neox.py).

References
----------
EleutherAI/gpt-neox: megatron/model/transformer.py (widths of gated layers, two norms of parallel halves
unless `gpt_j_tied`), megatron/utils.py (`expand_attention_types`), megatron/tokenizer/tokenizer.py
(`_vocab_size_with_padding`). The tokenizer of GPT-NeoX-20B has 50,277 tokens: padded to 128 · model
parallel they are the 50,304, 50,432 and 50,688 of config.json of GPT-NeoX-20B and of Pythia.
"""

from pathlib import PurePath

from flopcast.files.yaml_text import Path
from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.megatron.flags import TOKENIZER_NAMES

NORMS = {"layernorm": "layernorm", "rmsnorm": "rmsnorm", "te_rmsnorm": "rmsnorm"}
NORMS |= {"te_layernorm": "layernorm", "non_parametric_layernorm": "layernorm"}
POSITIONS = {name: name for name in ("learned", "rotary", "sinusoidal", "alibi", "none")}
GATED = {"geglu": "geglu", "swiglu": "swiglu", "reglu": "geglu", "bilinear": "geglu", "glu": "geglu"}
NEAREST = ("softsign", "mish", "reglu", "bilinear", "glu")  # counted as one that moves as many bytes
KINDS = ("global", "flash")
LLAMA_MULTIPLE = 256  # the width of mlp_type llama is rounded up to a multiple of this
CONFIG, TOKENIZER = "attention_config", "tokenizer_type"
VOCABULARIES = {  # tokenizer type → number of tokens, and its source
    "gpt2bpetokenizer": (50257, "vocab_size of the configuration of GPT-2"),
    "hfgpt2tokenizer": (50258, "the tokens of GPT-2 and one padding token"),
    "charleveltokenizer": (512, "GPT-NeoX's tokenizer of bytes"),
    "hftokenizer": (50277, "the tokenizer of GPT-NeoX-20B"),
}
ASSUMED_VOCABULARY = 50257
BLOCK: Path = ("model", "blocks", 0)


def attention_kind(reader: JobReader) -> str:
    """Return the kind of attention of all layers: "global" writes its scores to memory, "flash" does not.

    The value lists the kind of each layer, or kinds with their number of layers, such as [[["flash"], 24]].
    Layers of different kinds, and sparse kinds, are not supported yet.
    """
    layers, value = reader.count("num_layers"), reader.raw(CONFIG)
    kinds = set(_expanded(value, layers) or ()) if value is not None else {"global"}
    allowed = f"one kind for {layers} layers, such as [[[flash], {layers}]]"
    if not kinds:
        because = "this setting states the kind of attention of each layer"
        reader.fault(CONFIG, allowed, because, f"write [[[flash], {layers}]]")
    elif not kinds <= set(KINDS):
        other = ", ".join(sorted(kinds - set(KINDS)))
        reader.refuse(CONFIG, f"{other} layers", "write global or flash")
    elif len(kinds) > 1:
        reader.refuse(CONFIG, "a mix of global and flash attention", f"write [[[flash], {layers}]]")
    return "flash" if "flash" in kinds else "global"


def read_model(reader: JobReader, kind: str) -> None:
    """Put the model and the sequence length into the job, unless the command line gives a model.

    Parameters
    ----------
    reader : JobReader
    kind : str
        As `attention_kind` returns it.
    """
    length = reader.required("seq_length")
    reader.put(("batch", "sequence_length"), length, "seq_length")
    if reader.options.model:
        return
    hidden, layers = reader.required("hidden_size"), reader.required("num_layers")
    reader.put(("model", "name"), PurePath(reader.document.name).stem)
    reader.put(("model", "hidden"), hidden, "hidden_size")
    _vocabulary(reader)
    reader.put(("model", "tied_embeddings"), not reader.flag("no_weight_tying"), "no_weight_tying")
    reader.put((*BLOCK, "count"), layers, "num_layers")
    _norms(reader)
    _attention(reader, length, kind)
    _feed_forward(reader, hidden)


def _vocabulary(reader: JobReader) -> None:
    """Put the vocabulary into the model, padded to a multiple that depends on the degree."""
    if reader.has("padded_vocab_size"):
        reader.put(("model", "vocabulary"), reader.count("padded_vocab_size"), "padded_vocab_size")
        reader.put(("model", "vocabulary_multiple"), 1, "padded_vocab_size")
        return
    multiple = "make_vocab_size_divisible_by"
    reader.put(("model", "vocabulary_multiple"), reader.count(multiple, 128), multiple)
    file = reader.text("vocab_file").lower()
    kind = reader.text(TOKENIZER) or "GPT2BPETokenizer"
    known = next((size for part, size in TOKENIZER_NAMES.items() if part in file), None)
    own = "20b" in file or "neox" in file or not file or kind.lower() != "hftokenizer"
    known = known or (VOCABULARIES.get(kind.lower()) if own else None)
    if known:
        reader.assume(f"vocabulary {known[0]}: {known[1]}", TOKENIZER)
    else:
        text = f"the tokenizer {kind} {file}".rstrip()
        advice = "give model.vocabulary=N or padded_vocab_size"
        reader.assume(
            f"VOCABULARY {ASSUMED_VOCABULARY} (GPT-2's) IS ASSUMED, because {text} is not read; {advice}"
        )
    reader.put(("model", "vocabulary"), known[0] if known else ASSUMED_VOCABULARY, "vocab_file", TOKENIZER)


def _norms(reader: JobReader) -> None:
    """Put the kind of norms, their biases, and the order of attention and MLP into the model."""
    if reader.text("norm") == "scalenorm":
        reader.refuse("norm", "scalenorm, a norm with a single scale", "write layernorm or rmsnorm")
    else:
        norm = reader.choice("norm", NORMS, "layernorm")
        reader.put((*BLOCK, "norm"), norm, "norm")
    bare = reader.text("norm") == "non_parametric_layernorm"
    if bare:
        reader.put((*BLOCK, "norm_scale"), False, "norm")
    if bare or not reader.flag("use_bias_in_norms", True):
        reader.put((*BLOCK, "norm_bias"), False, "use_bias_in_norms")
    if reader.flag("gpt_j_residual"):
        tied = reader.flag("gpt_j_tied")
        residual = "parallel_shared_norm" if tied else "parallel"
        reader.put((*BLOCK, "residual"), residual, "gpt_j_residual")
    dropout = reader.fraction("hidden_dropout", 0.0)
    reader.put((*BLOCK, "dropout"), dropout, "hidden_dropout")
    reader.put(("model", "embedding_dropout"), dropout, "hidden_dropout")


def _attention(reader: JobReader, length: int, kind: str) -> None:
    """Put heads, key/value heads, positions, window and biases into the model."""
    mixer = (*BLOCK, "mixer")
    reader.put((*mixer, "heads"), reader.required("num_attention_heads"), "num_attention_heads")
    if reader.has("num_kv_heads"):
        reader.put((*mixer, "kv_heads"), reader.count("num_kv_heads"), "num_kv_heads")
    biased = reader.flag("use_bias_in_attn_linear", True)
    for part in ("qkv_bias", "out_bias"):
        reader.put((*mixer, part), biased, "use_bias_in_attn_linear")
    reader.put((*mixer, "dropout"), reader.fraction("attention_dropout", 0.0), "attention_dropout")
    if reader.flag("use_qk_layernorm"):
        reader.put((*mixer, "qk_norm"), "per_head", "use_qk_layernorm")
    window = reader.count("sliding_window_width", 0, least=0)
    if window and kind == "flash":
        reader.put((*mixer, "window"), window, "sliding_window_width")
    elif window:
        reader.assume("sliding_window_width has no effect without flash attention", "sliding_window_width")
    _positions(reader, mixer, length)


def _positions(reader: JobReader, mixer: Path, length: int) -> None:
    """Put the kind of positions into the model: learned, rotary, ALiBi or none."""
    key = "max_position_embeddings"
    longest = reader.required(key)
    if longest < length and not reader.faulty(key, "seq_length"):
        because = f"each of the {length} tokens of a sequence needs a position"
        reader.fault(key, f"{length} or more", because, f"write {length}")
    if reader.text("pos_emb") == "rpe":
        reader.refuse("pos_emb", "relative position biases", "write rotary")
        return
    kind = reader.choice("pos_emb", POSITIONS, "learned")
    if kind == "learned":
        reader.put(("model", "learned_positions"), longest, key)
        reader.put(("model", "position_offset"), reader.count("opt_pos_emb_offset", 0, least=0))
    elif kind == "alibi":
        reader.put((*mixer, "alibi"), True, "pos_emb")
    elif kind == "sinusoidal":
        reader.assume("the time of adding fixed positions to the embedding is ignored", "pos_emb")
    rotary = reader.fraction("rotary_pct", 1.0) if kind == "rotary" else 0.0
    reader.put((*mixer, "rotary_fraction"), rotary, "rotary_pct", "pos_emb")


def _feed_forward(reader: JobReader, hidden: int) -> None:
    """Put activation, MLP width and biases into the model.

    Together, the two halves of a gated layer are two thirds of `intermediate_size` wide, so the file of
    Llama 2 70B has 86,016 for its 28,672. With `mlp_type` llama, it is the width of each half, and there is
    no bias.
    """
    inner = (*BLOCK, "feed_forward")
    llama = reader.choice("mlp_type", {"regular": "", "llama": "llama"}, "") == "llama"
    activation = reader.choice("activation", {**reader.words("activations"), **GATED}, "gelu")
    named = reader.text("activation")
    gated = named in GATED
    if named in NEAREST:
        reader.assume(f"the activation {named} is predicted as {activation}", "activation")
    keys = ("intermediate_size", "expansion_factor", "hidden_size")
    if llama:
        activation = "swiglu" if activation == "silu" else "geglu" if not gated else activation
        width = reader.count("intermediate_size", _up(8 * hidden // 3, LLAMA_MULTIPLE))
    else:
        width = _width(reader, hidden, gated)
    reader.put((*inner, "ffn_hidden"), width, *keys)
    reader.put((*inner, "activation"), activation, "activation", "mlp_type")
    biased = not llama and reader.flag("use_bias_in_mlp", True)
    reader.put((*inner, "bias"), biased, "use_bias_in_mlp", "mlp_type")


def _width(reader: JobReader, hidden: int, gated: bool) -> int:
    multiple = reader.count("mlp_multiple_of", 1)
    factor = reader.raw("expansion_factor")
    if factor is not None and (
        isinstance(factor, bool) or not isinstance(factor, (int, float)) or factor <= 0
    ):
        reader.fault("expansion_factor", "a number above 0", "a width must be larger than 0", "write 4")
        factor = None
    usual = int(hidden * factor) if isinstance(factor, (int, float)) else 4 * hidden
    whole = reader.count("intermediate_size", max(usual, 1))
    if not gated:
        return _up(whole, multiple)
    key = "intermediate_size" if reader.has("intermediate_size") else "activation"
    text = "the width of each half of the gated MLP is a third of intermediate_size, as in GPT-NeoX"
    reader.assume(text, key)
    return _up(whole * 2 // 3 // 2, multiple)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _expanded(value: object, layers: int) -> list[str] | None:
    """Return the kind of attention of each layer, or None if the value does not list all layers.

    >>> _expanded([[["global", "local"], 2]], 4), _expanded([[["flash"], "all"]], 2)
    (['global', 'local', 'global', 'local'], ['flash', 'flash'])
    """
    if not isinstance(value, list):
        return None
    if all(isinstance(one, str) for one in value):
        return [str(one) for one in value] if len(value) == layers else None
    expanded: list[str] = []
    for item in value:
        kinds, times = item if isinstance(item, list) and len(item) == 2 else (None, None)
        if not isinstance(kinds, list) or not kinds or not all(isinstance(kind, str) for kind in kinds):
            return None
        if times == "all":
            times = layers // len(kinds)
        if not isinstance(times, int) or times < 0 or times > layers:
            return None
        expanded += kinds * times
    return expanded if len(expanded) == layers else None
