"""The flags of Megatron-LM's training programs, and the effect of each on a prediction.

Answers: is this flag modelled, without effect on a step's time, unsupported, or unknown?
Elsewhere: the flags themselves (flags.yaml), the meaning of modelled flags (launch_script.py, stack.py),
how words become flags (arguments.py).

Flags for the location of data, the frequency of logs and checkpoints, or the learning rate change no
kernel.
"""

from collections.abc import Mapping

from flopcast.files.package_table import meanings, read_table
from flopcast.files.unknown_keys import costly_part

_TABLE = read_table(__package__, "flags.yaml")
SWITCHES, VALUED, LISTED, SILENT = (  # the first three are modelled: without, with one, with several values
    frozenset(_TABLE[name].split()) for name in ("switches", "valued", "listed", "silent")
)
SILENT_PREFIXES: tuple[str, ...] = tuple(_TABLE["silent_prefixes"].split())
REFUSED: Mapping[str, str] = _TABLE["refused"]  # flag → what it asks for
MEANS_NONE = ("0", "0.0", "1", "none", "None")  # values that ask for nothing: --num-experts 1 is dense
ONLY_ZERO_MEANS_NONE = ("--hybrid-attention-ratio", "--hybrid-mlp-ratio")
NOT_MODELLED: Mapping[str, str] = _TABLE["not_modelled"]  # flag → what it changes that is not counted
SIGNS: tuple[tuple[str, str], ...] = tuple(_TABLE["signs"].items())  # stack and its flags, newest first
SWITCHED_ON_BY: Mapping[str, str] = _TABLE["switched_on_by"]  # a rewrite → the flag that adds it
SWITCHED_OFF_BY: Mapping[str, str] = _TABLE["switched_off_by"]  # a rewrite → the flag that removes it
WORDS: Mapping[str, Mapping[str, str]] = {  # a flag → what each of its words means
    flag: meanings(
        words if isinstance(words, dict) else dict(zip(words.split(), words.split(), strict=True))
    )
    for flags, words in _TABLE["words"].items()
    for flag in flags.split()
}
OTHER_MODELS = meanings(_TABLE["other_models"])  # a part of a name → what is trained
MODELLED = SWITCHES | VALUED | LISTED
KNOWN = MODELLED | SILENT | REFUSED.keys() | NOT_MODELLED.keys()
(
    VOCABULARIES,
    PATCH_VOCABULARIES,
    TOKENIZER_NAMES,
) = (  # a tokenizer's type, a part of its name → its tokens, and their source
    {name: (int(tokens), str(source)) for name, (tokens, source) in _TABLE[key].items()}
    for key in ("vocabularies", "patch_vocabularies", "tokenizer_names")
)


def is_silent(flag: str) -> bool:
    """Return whether a flag is known to change neither the time nor the memory of a step.

    A prefix does not cover a name with a word for a size or a degree (`unknown_keys.costly_part`).

    >>> is_silent("--lr-warmup-iters"), is_silent("--num-layers"), is_silent("--rl-experts")
    (True, False, False)
    """
    if flag in SILENT:
        return True
    starts = [start for start in SILENT_PREFIXES if flag.startswith(start)]
    return flag not in KNOWN and any(not costly_part(flag.removeprefix(start)) for start in starts)


def is_known(flag: str) -> bool:
    """Return whether any release of Megatron-LM, or of its forks listed in the table, has such a flag."""
    return flag in KNOWN or is_silent(flag)
