"""The short form of a plan's recompute: "full:block:4", "selective:core_attention,mlp".

Answers: which fields of a plan does the short form set, and what is the short form of these fields?
Elsewhere: the fields (plan.py), whether a mode is possible (rules_recompute.py), what it does
(workload/recompute.py).
"""

import re
from collections.abc import Mapping

from flopcast.fixes import set_to
from flopcast.strict_model import NotAllowedError

# what a word may say besides the mode
FIELDS = ("recompute_method", "recompute_layers", "recompute_modules")
PATTERN = r"^(full:(uniform|block|every)(:[1-9][0-9]*)?|selective:[a-z_]+(,[a-z_]+)*)$"


def split_word(given: Mapping[object, object]) -> dict[object, object]:
    """Return a plan's data with the short forms of its recompute expanded. Other values do not change.

    Raises
    ------
    ValueError
        The value is a number or a list, or the short form sets a field that is also set separately.

    Examples
    --------
    >>> split_word({"recompute": "full:block:4"})
    {'recompute': 'full', 'recompute_method': 'block', 'recompute_layers': '4'}
    >>> split_word({"recompute": "selective:core_attention,mlp"})
    {'recompute': 'selective', 'recompute_modules': ('core_attention', 'mlp')}
    >>> split_word({"recompute": "selective", "recompute_modules": "core_attention,mlp"})
    {'recompute': 'selective', 'recompute_modules': ('core_attention', 'mlp')}
    """
    modules = given.get("recompute_modules")
    if isinstance(modules, str):
        given = {**given, "recompute_modules": tuple(re.findall(r"[^\s,[\]]+", modules))}
    word = given.get("recompute")
    if word and not isinstance(word, (str, bool)):
        allowed = "none, selective or full, or a short form such as full:block:4"
        because = "numbers, lists and mappings do not state which activations are recomputed"
        fix = set_to({"recompute": "full"}, "to full:block:N for the first N blocks of each chunk")
        if isinstance(word, list) and word and all(isinstance(each, str) for each in word):
            mode, *modules = word if word[0] in ("none", "selective", "full") else ("selective", *word)
            fix = set_to(recompute=f"{mode}:{','.join(modules)}" if modules else mode)
            if modules and (mode != "selective" or {"none", "full"} & {*modules}):  # several modes
                search = f'run flopcast search with --plan "recompute={",".join(word)}"'
                fix = set_to({"recompute": mode}, f"remove it, and {search}")
        raise NotAllowedError(f"recompute: {allowed}", because, fix)
    if not isinstance(word, str) or ":" not in word:
        return dict(given)
    mode, *rest = word.split(":")
    fields: dict[object, object] = {"recompute": mode}
    from difflib import get_close_matches

    if get_close_matches(mode, ("full", "selective"), n=1) == ["selective"]:
        fields["recompute_modules"] = tuple(":".join(rest).split(","))
    else:
        if rest[0].isdecimal():
            allowed = "full:METHOD:BLOCKS, where METHOD is uniform, block or every"
            fix = set_to(recompute=f"full:block:{rest[0]}")
            raise NotAllowedError(f"recompute: {allowed}", f"{rest[0]} is not a method", fix)
        fields["recompute_method"] = rest[0]
        if len(rest) > 1:
            fields["recompute_layers"] = ":".join(rest[1:])
    twice = [name for name in fields if name != "recompute" and name in given]
    if twice:
        raise ValueError(f"either the short form recompute: {word} or the field {twice[0]}, but not both")
    return {**given, **fields}


def one_word(mode: str, method: str, layers: int, modules: tuple[str, ...]) -> str:
    """Return the short form, without defaults; `split_word` expands it.

    Examples
    --------
    >>> one_word("full", "uniform", 1, ()), one_word("full", "every", 2, ())
    ('full', 'full:every:2')
    >>> one_word("selective", "uniform", 1, ("core_attention", "mlp"))
    'selective:core_attention,mlp'
    """
    if mode == "full" and (method, layers) != ("uniform", 1):
        return f"full:{method}:{layers}"
    if mode == "selective" and modules:
        return f"selective:{','.join(modules)}"
    return mode
