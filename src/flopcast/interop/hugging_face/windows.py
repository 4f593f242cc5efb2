"""Layers of a Hugging Face config with a window or with rotary positions, and their pattern.

Answers: of which kind is each layer, and how are kinds written as runs or as a pattern?
Elsewhere: the other facts of these families (families.py), their layer (layers/attention.py).

If a config lists its layers (`layer_types`, `no_rope_layers`, `attention_layers`), the list decides.
Otherwise, the family's own rule decides, which is that of its configuration class in Hugging Face
transformers.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import groupby
from typing import TypeVar

from flopcast.interop.hugging_face.values import Reader

Layers = tuple[int, ...]
Kind = TypeVar("Kind", bound=Hashable)
FULL = ("full_attention", "global")
NEO, KINDS = ("global", "local"), '"global" or "local"'  # of GPT-Neo
LOCAL = ("sliding_attention", "chunked_attention", "local")


def local_layers(by_rule: Callable[[Reader], Layers]) -> Callable[[Reader], Layers]:
    """Return the layers with a window: those not full in `layer_types`, or those of the family's rule."""

    def layers(read: Reader) -> Layers:
        number = read.size("layers", 1)
        kinds = read.raw("layer_types")
        if kinds is None:
            return by_rule(read)
        allowed, kinds = f"a list with the kinds of {number} layers", (*FULL, *LOCAL)
        listed = read.entries("layer_types", kinds.__contains__, allowed, number)
        return tuple(layer for layer, kind in enumerate(listed or ()) if kind not in FULL)

    return layers


def linear_layers(read: Reader) -> Layers:
    """Return the layers with linear attention: those of `layer_types`, or all but every fourth."""
    number, kinds = read.size("layers", 1), ("linear_attention", "full_attention")
    allowed = f"a list with {number} entries, each {' or '.join(kinds)}"
    listed = read.entries("layer_types", kinds.__contains__, allowed, number)
    read.used.add("full_attention_interval")
    if listed is None:
        step = read.count("full_attention_interval", 4)
        return tuple(layer for layer in range(number) if (layer + 1) % step)
    return tuple(layer for layer, kind in enumerate(listed) if kind == kinds[0])


def every(read: Reader) -> Layers:
    """Return all layers (Mistral, Phi-3, StarCoder2)."""
    return tuple(range(read.size("layers", 32)))


def every_other(read: Reader) -> Layers:
    """Return the first of every two layers (Gemma 2, GPT-OSS)."""
    return every(read)[::2]


def all_but_each(step: int) -> Callable[[Reader], Layers]:
    """Return the rule that all but every `step`-th layer have a window; a key may state another step."""

    def rule(read: Reader) -> Layers:
        keys = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
        number = read.count(next((key for key in keys if key in read.values), keys[0]), step)
        return tuple(layer for layer in every(read) if (layer + 1) % number)

    return rule


def full_layers(local: Callable[[Reader], Layers]) -> Callable[[Reader], Layers]:
    """Return the rule of layers with full attention; empty if no layer has a window."""

    def rule(read: Reader) -> Layers:
        if read.fact("window", 4096) is None:
            return ()
        windowed = local_layers(local)(read)
        return tuple(layer for layer in every(read) if layer not in windowed)

    return rule


def from_the_last_full_one(read: Reader) -> Layers:
    """Return layers from `max_window_layers` on (Qwen)."""
    return every(read)[read.count("max_window_layers", 28) :]


def listed_as_local(read: Reader) -> Layers:
    """Return GPT-Neo's own list, or kinds with their number of repeats; the default alternates between
    global and local.

    `attention_layers` names the kind of each layer, `attention_types` lists [kinds, repeats].
    """
    number = read.size("layers", 24)
    allowed = f"a list with {number} entries, each {KINDS}"
    listed = read.entries("attention_layers", NEO.__contains__, allowed, number)
    if listed is None:
        allowed = f"a list of [[{KINDS}, …], repeats] for {number} layers in all"
        groups = read.entries("attention_types", _is_repeated, allowed)
        if groups is not None and sum(len(kinds) * repeats for kinds, repeats in groups) != number:
            because = "every layer has exactly one kind"
            read.fault("attention_types", allowed, because, "correct attention_types")
            groups = None
        listed = (
            list(NEO) * number
            if groups is None
            else [each for kinds, repeats in groups for each in kinds * repeats]
        )
    return tuple(layer for layer, kind in enumerate(listed[:number]) if kind == "local")


def _is_repeated(group: object) -> bool:
    """Return whether a value is a list of kinds and how often it repeats."""
    if not (isinstance(group, list) and len(group) == 2 and isinstance(group[0], list)):
        return False
    return all(kind in NEO for kind in group[0]) and type(group[1]) is int and group[1] > 0


def unturned_layers(read: Reader) -> Layers:
    """Return the layers without rotary positions (Llama 4): 0 in `no_rope_layers`, or every n-th."""
    number = read.size("layers", 48)
    if read.raw("no_rope_layers") != []:  # which counts as not given
        allowed = f"a list with {number} entries, each 0 or 1"
        listed = read.entries(
            "no_rope_layers", lambda one: type(one) in (int, bool) and one in (0, 1), allowed, number
        )
        if listed is not None:
            return tuple(layer for layer, turned in enumerate(listed) if not turned)
    return every(read)[(step := read.count("no_rope_layer_interval", 4)) - 1 :: step]


def turned_layers(read: Reader) -> Layers:
    """Return layers with rotary positions, which attend only within their chunk (Llama 4)."""
    others = unturned_layers(read)
    return tuple(layer for layer in every(read) if layer not in others)


def runs(kinds: Sequence[Kind]) -> tuple[list[tuple[Kind, int]], list[int]]:
    """Return layers by kind with their numbers, and the pattern in which they repeat.

    If the sequence of kinds repeats completely at least once, kinds are counted over the model;
    otherwise, runs of equal layers are listed in order, without a pattern.

    Returns
    -------
    pairs
        Pairs of a kind and a count: over the model if there is a pattern, and otherwise of a run.
    pattern
        Indices of the pairs; empty where runs are listed.

    Examples
    --------
    >>> runs("llgllg")
    ([('l', 4), ('g', 2)], [0, 0, 1])
    >>> runs("glll")
    ([('g', 1), ('l', 3)], [])
    """
    rows = [(kind, len(list(row))) for kind, row in groupby(kinds)]
    distinct = list(dict.fromkeys(kinds))
    numbers = {kind: number for number, kind in enumerate(distinct)}
    codes = [numbers[kind] for kind in kinds]
    period = _period(codes)
    if len(rows) == len(distinct) or 2 * period > len(codes):
        return rows, []
    counts = Counter(codes)
    return [(kind, counts[number]) for kind, number in numbers.items()], codes[:period]


def _period(codes: Sequence[int]) -> int:
    """Return the shortest period of the entries, whose last repeat may be partial.

    It is the length less the longest proper prefix that is a suffix too (Knuth, Morris, Pratt, SIAM Journal
    on Computing 6(2), 1977), which takes time in proportion to the length.

    >>> _period([0, 0, 1, 0, 0, 1, 0]), _period([1, 0, 0])
    (3, 3)
    """
    prefix = [0] * len(codes)
    for at in range(1, len(codes)):
        length = prefix[at - 1]
        while length and codes[at] != codes[length]:
            length = prefix[length - 1]
        prefix[at] = length + (codes[at] == codes[length])
    return len(codes) - prefix[-1]
