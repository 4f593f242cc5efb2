"""What a reader does with a key that its format is not known to have.

Answers: is an unknown key an error or a note, and which known key is nearest to it?
Elsewhere: which keys a format has (foreign/tables/, megatron/flags.py, hugging_face/known.py).

Every reader of another program's files asks `judged`. A key whose name speaks of a size, a degree or what
is trained may change time and memory a lot, so a reader that does not know it cannot predict the job. A
key that is known to change neither must stand in the tables under its full name: wildcards do not cover
such names.
"""

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass

COSTLY = ("parallel", "expert", "layer", "freeze", "offload", "vocab", "rank", "hidden", "head", "quant",
          "lora", "accum")  # fmt: skip
HARMLESS = re.compile(r"overhead|lookahead|ahead_|header")  # words that hold one of them by chance
NOTHING: tuple[object, ...] = (
    None, False, 0, "", "none", "None", "no", "off", "false", "null", [], {},
)  # fmt: skip
MANY_EDITS = 3  # a slip differs from the right name in fewer letters


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """The verdict on an unknown key.

    `near` is the known key that is nearest, None where none is near. `because` says why the key is an
    error, "" where it is only noted. `slip` says whether it is surely a misspelling of `near`.
    """

    near: str | None
    because: str
    slip: bool


def judged(
    key: str,
    value: object,
    *,
    program: str,
    weighty: Collection[str],
    others: Collection[str] = (),
    given: Collection[str] = (),
    shortest: int = 6,
    least_fraction: float = 0.8,
) -> Unknown:
    """Return whether an unknown key is an error or a note.

    Parameters
    ----------
    key, value : str, object
        As the file has them. A value that switches nothing on makes no error, unless the key is a slip.
    program : str
        Whose file it is.
    weighty, others : collections of str
        Known keys that change a prediction or are refused; known keys that do neither.
    given : collection of str
        Keys of the file: what stands there under its right name is not misspelt too.
    shortest : int
        Letters of the last part of a name that can be told from a slip of another.
    least_fraction : float
        Similarity of names that are near, from 0 to 1.

    Examples
    --------
    >>> judged("num_layer", 8, program="X", weighty=["num_layers"]).near
    'num_layers'
    >>> judged("side_expert_size", 8, program="X", weighty=["num_layers"]).because
    'it is not a known key of X, and its name says that it may change time or memory (expert)'
    >>> judged("mascot", "llama", program="X", weighty=["num_layers"]).because
    ''
    """
    found = difflib.get_close_matches(key, [*weighty, *others], n=1, cutoff=least_fraction)
    near = found[0] if found else None
    long = len(key.rpartition(".")[2]) >= shortest
    slip = (
        near is not None
        and near in weighty
        and near not in given
        and long
        and edits(key, near) < MANY_EDITS
    )
    costly = costly_part(key)
    if slip:
        return Unknown(near=near, because=f"{program} has no such key", slip=True)
    if costly and value not in NOTHING:
        because = "its name says that it may change time or memory"
        return Unknown(
            near=near, because=f"it is not a known key of {program}, and {because} ({costly})", slip=False
        )
    return Unknown(near=near, because="", slip=False)


def costly_part(key: str) -> str:
    """Return the part of a name that speaks of a size, a degree or what is trained, "" where none does.

    >>> costly_part("model.moe_shared_expert_width"), costly_part("wandb.project"), costly_part("header")
    ('expert', '', '')
    """
    plain = HARMLESS.sub("", key.lower())
    return next((part for part in COSTLY if part in plain), "")


def edits(left: str, right: str) -> int:
    """Return the letters to insert, drop or change to turn one name into the other (Levenshtein).

    >>> edits("--num-layer", "--num-layers"), edits("--seq-lenght", "--seq-length")
    (1, 2)
    """
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]
