"""Facts of Hugging Face families that follow from several keys of a config.

Answers: how many key/value heads has this Falcon, what is the order of halves, does MPT learn positions?
Elsewhere: facts that one key gives (families.py), which layers have a window (windows.py).
"""

from collections.abc import Callable

from flopcast.io.hugging_face.reader import Reader


def used_window(read: Reader) -> object:
    """Qwen's window counts only where its flag says so."""
    window = read.fact("window", None)
    return window if read.flag("use_sliding_window", False) else None


def local_window(read: Reader) -> object:
    """GPT-Neo's window counts where any layer is local."""
    local = "local" in f"{read.raw('attention_types')}{read.raw('attention_layers')}"
    window = read.count("window_size", 256)
    return window if local else None


def rotary_dim(read: Reader) -> float:
    """GPT-J's part of a head that is turned, given in elements; null turns whole heads."""
    head = max(1, read.size("hidden", 4096) // read.size("heads", 16))
    turned = read.count("rotary_dim", 64)
    if "rotary_dim" in read.values and read.raw("rotary_dim") is None:
        return 1.0
    if turned > head:
        read.fault("rotary_dim", f"at most {head}", "it is a part of one head", "lower rotary_dim")
    return min(1.0, turned / head)


def falcon_kv_heads(read: Reader) -> object:
    """One for multi-query attention, unless the newer decoder groups them."""
    groups = read.fact("kv_heads", None)
    new = read.flag("new_decoder_architecture", False)
    multi_query = read.flag("multi_query", True)
    return 1 if multi_query and not new else groups


def falcon_residual(read: Reader) -> str:
    """Two norms in the newer decoder (40B), one in the older (7B), sequential halves in Falcon-RW."""
    new = read.flag("new_decoder_architecture", False)
    parallel = read.flag("parallel_attn", True)
    norms = read.count("num_ln_in_parallel_attn", 2 if new else 1)
    if not (new or parallel):
        return "sequential"
    return "parallel" if new and norms == 2 else "parallel_shared_norm"


def residual(default: bool, parallel: str) -> Callable[[Reader], str]:
    """The order of halves that the flag `use_parallel_residual` chooses."""

    def rule(read: Reader) -> str:
        return parallel if read.flag("use_parallel_residual", default) else "sequential"

    return rule


def mpt_inner(read: Reader) -> int:
    """MPT gives its inner width as a multiple of the hidden one."""
    return read.count("expansion_ratio", 4) * read.size("hidden", 2048)


def mpt_bias(read: Reader) -> bool:
    """MPT says where there is no bias, of linears and norms alike."""
    return not read.flag("no_bias", True)


def mpt_alibi(read: Reader) -> bool:
    """ALiBi stands in the attention's own mapping."""
    return read.flag("attn_config.alibi", True)


def mpt_learned(read: Reader) -> bool:
    """Without ALiBi, MPT learns its positions unless it is told to have none."""
    return not mpt_alibi(read) and read.flag("learned_pos_emb", True)


def baichuan_alibi(read: Reader) -> bool:
    """Baichuan's larger models have ALiBi; their configs call the context `model_max_length` alone."""
    return "max_position_embeddings" not in read.values


def minimax_rotary(read: Reader) -> float:
    """MiniMax-M2's part of a head that is rotated, given in elements (`rotary_dim`)."""
    head = read.fact("head_size", 128)
    rotated = read.count("rotary_dim", 64)
    return min(1.0, rotated / head) if isinstance(head, int) else 1.0


def bigcode_kv_heads(read: Reader) -> object:
    """One key/value head where `multi_query` is true, its default (SantaCoder, StarCoder)."""
    read.raw("num_key_value_heads")  # transformers 5 saves the number that follows from the flag
    return 1 if read.flag("multi_query", True) else None
