"""Unknown keys in files of other programs.

Answers: is an unknown key an error or a note, and which known key is nearest to it?
Elsewhere: the keys of each format (interop/configs/tables/, interop/megatron/flags.py,
interop/hugging_face/unsupported.py).

Every reader of another program's files calls `unknown_key`. A key whose name contains a word for a size, a
degree or trained parameters may change time and memory a lot, so a job with such an unknown key cannot be
predicted. The same holds if the value of an unknown key contains such a name. If such a key has no effect,
it must be in the tables under its full name: wildcards do not cover it. Words that are also used for other
things, such as "width", count only if the value is a whole number above 1.
"""

import difflib
import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from flopcast.files.field_names import same_in_section
from flopcast.files.nearest_names import with_other_numbers
from flopcast.records import Record

COSTLY = ("parallel", "expert", "layer", "freeze", "offload", "vocab", "rank", "hidden", "head", "quant",
          "lora", "accum", "seq_len", "sequence_len", "model_len", "device_batch", "dtype")  # fmt: skip
SIZES = re.compile(
    r"(?:^|[._-])(dim|ff|ffn|mlp|feed_?forward|width|depth|kv|query_groups?|channels|blocks|mtp|batch_size)(?![a-z])",
    re.IGNORECASE,
)  # words of sizes that other settings contain as well
DATA_TYPES = re.compile(r"(?:^|[._-])((?:bf|fp|int|float|bfloat)\d+)$")  # bf16, and bf17 as well
HARMLESS = re.compile(
    r"overhead|lookahead|ahead_|header|delayer"
)  # words that contain "head" or "layer" by chance
NOTHING: tuple[object, ...] = (
    None, False, 0, "", "none", "None", "no", "off", "false", "null", [], {},
)  # fmt: skip
MANY_EDITS = 3  # a misspelling differs from the right name in fewer letters


class UnknownKey(Record):
    """The verdict on an unknown key.

    `near` is the nearest known key, or None. `because` states why the key is an error. It is "" for a note.
    `slip` states whether the key is certainly a misspelling of `near`.
    """

    near: str | None
    because: str
    slip: bool


def unknown_key(
    key: str,
    value: object,
    *,
    program: str,
    weighty: Collection[str],
    others: Collection[str] = (),
    given: Collection[str] = (),
    shortest: int = 6,
    least_fraction: float = 0.8,
) -> UnknownKey:
    """Return whether an unknown key is an error or a note.

    Parameters
    ----------
    key, value : str, object
        In the file. A key with a value such as false or null is not an error, unless the key is misspelt.
    program : str
        The program whose file it is.
    weighty, others : collections of str
        Known keys that change a prediction or are refused; known keys that do neither.
    given : collection of str
        Keys of the file: a key that is present under its right name is not also misspelt.
    shortest : int
        Least length of the part of a name that differs, for which misspellings are recognised.
    least_fraction : float
        Least similarity of near names, from 0 to 1.

    Examples
    --------
    >>> unknown_key("num_layer", 8, program="X", weighty=["num_layers"]).near
    'num_layers'
    >>> unknown_key("side_expert_size", 8, program="X", weighty=["num_layers"]).because
    "flopcast does not know this key of X, and 'expert' in its name suggests that it affects time or memory"
    >>> unknown_key("mascot", "llama", program="X", weighty=["num_layers"]).because
    ''
    >>> unknown_key("mascots", [{"heads": 2}], program="X", weighty=["num_layers"]).because[42:]
    "'head' in a name inside it (heads) suggests that it affects time or memory"
    >>> unknown_key("mlp_width", 8, program="X", weighty=["num_layers"]).because[42:]
    "'mlp' in its name suggests that it affects time or memory"
    """
    near = _nearest(key, (*weighty, *others), least_fraction)
    slip = (
        near is not None
        and (near in weighty or (bool(weighty) and _is_in_misspelt_section(key, near)))
        and near not in given
        and (sorted(key) == sorted(near) or len(_differing(key, near)) >= shortest)
        and (_begins(key, near) or edits(_snake(key), near) < MANY_EDITS)
    )
    named, part = next(_costly_names(key, value), ("", ""))
    if slip:
        return UnknownKey(near=near, because=f"{program} has no such key", slip=True)
    if named and value not in NOTHING:
        owner = "its name" if named == key else f"a name inside it ({named})"
        reason = f"{part!r} in {owner} suggests that it affects time or memory"
        return UnknownKey(
            near=near, because=f"flopcast does not know this key of {program}, and {reason}", slip=False
        )
    return UnknownKey(near=near, because="", slip=False)


@lru_cache(maxsize=1024)  # files of one program have many of the same keys
def _nearest(key: str, known: tuple[str, ...], least_fraction: float) -> str | None:
    """Return the known key that is most like a key or means the same in other programs; None if none is."""
    snake = _snake(key)
    near = difflib.get_close_matches(key, known, n=1, cutoff=least_fraction) or same_in_section(key, known)
    near = near or [each for each in known if len(each) == len(key) and sorted(each) == sorted(key)]
    longer = [each for each in known if "_" in snake and f"_{snake}_" in f"_{each}_"]  # padded_vocab_size
    if longer and (not near or edits(snake, near[0]) > 1):
        return min(longer, key=len)
    if not near and snake != key:
        near = difflib.get_close_matches(snake, known, n=1, cutoff=least_fraction)
    if not near and DATA_TYPES.search(snake):
        near = with_other_numbers(key, known)
    return next(iter(near), None)


def _is_in_misspelt_section(key: str, near: str) -> bool:
    """Return whether a key and a known key differ only in the names of their sections."""
    parts, right = key.split("."), near.split(".")
    return len(parts) == len(right) > 1 and parts[-1] == right[-1]


def _begins(key: str, near: str) -> bool:
    """Return whether a key is the beginning of a known one, and not the section of it."""
    return near.startswith(key) and near.rpartition(".")[0] != key


def _differing(key: str, near: str) -> str:
    """Return the part between dots in which a key differs from a known one; else its last part.

    >>> _differing("zero_optimisation.stage", "zero_optimization.stage")
    'zero_optimisation'
    """
    pairs = zip(key.split("."), near.split("."), strict=False)
    return next((part for part, right in pairs if part != right), key.rpartition(".")[2])


def _snake(key: str) -> str:
    """Return a key in small letters: "numLayers" is "num_layers"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()


def _costly_names(key: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield each name with such a word, of a key and of all mappings inside its value, and the word."""
    of_size = SIZES.search(key) if _is_count(value) else None
    of_type = DATA_TYPES.search(_snake(key))
    if part := costly_part(key) or next((found[1].lower() for found in (of_size, of_type) if found), ""):
        yield key, part
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _costly_names(str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _costly_names("", inner)


def _is_count(value: object) -> bool:
    """Return whether a value is a whole number above 1, or the text of one."""
    if isinstance(value, str):
        return value.isdecimal() and value.lstrip("0") not in ("", "1")
    return type(value) is int and value > 1


def costly_part(key: str) -> str:
    """Return the word of a name that means a size, a degree or trained parameters, or "".

    >>> costly_part("model.moe_shared_expert_width"), costly_part("wandb.project"), costly_part("header")
    ('expert', '', '')
    """
    plain = HARMLESS.sub("", key.lower().replace("-", "_"))
    return next((part for part in COSTLY if part in plain), "")


def edits(left: str, right: str) -> int:
    """Return the number of letters to insert, drop or change between two names (Levenshtein distance).

    >>> edits("--num-layer", "--num-layers"), edits("--seq-lenght", "--seq-length")
    (1, 2)
    """
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]


def is_misspelt_switch(text: str) -> bool:
    """Return whether a word is a misspelling of true or false: letters are swapped, or one is missing.

    >>> [is_misspelt_switch(word) for word in ("ture", "flse", "trues", "true", "tree", "no")]
    [True, True, True, False, False, False]
    """
    return any(
        sorted(text) == sorted(word) or (abs(len(text) - len(word)) == 1 and edits(text, word) == 1)
        for word in ("true", "false")
        if text not in ("true", "false")
    )
