"""Options of other tools, and the options of flopcast with the same meaning.

Answers: which edit has the meaning that an unknown option has in another tool?
Elsewhere: their names (other_tools.yaml), options whose names are merely misspelt (usage_errors.py), keys
of other tools' files (interop/).

Names are those of launchers and engines: Megatron-LM, DeepSpeed, Hugging Face TRL, torchrun, vLLM, SGLang.
"""

import re
from collections.abc import Collection, Mapping, Sequence, Set

import click

from flopcast.files.field_examples import OTHER_NAMES
from flopcast.files.field_names import SLIP
from flopcast.files.nearest_names import nearest
from flopcast.files.package_table import read_table
from flopcast.meant_quantities import meant_quantity

_TABLE = read_table(__package__, "other_tools.yaml")
_NAMES: dict[str, str] = OTHER_NAMES | _TABLE["names"]
NODES, PER_NODE, KINDS_OF_DEVICES = _TABLE["names"].values()
COMMANDS_ELSEWHERE: dict[str, str] = {  # a word → the commands, in a group or another, that do the same
    word: command for command, words in _TABLE["commands"].items() for word in words.split()
}
_OF_SERVING = {"--engine", "--traffic", "--slo"}
QUOTE_OR_BLANK = '" '  # around the unit of a value
_IN_PLAN: Mapping[str, tuple[str, str]] = {
    name: (key, usual)
    for key, (field, usual) in _TABLE["plan"].items()
    for name in OTHER_NAMES[field].split()
}
_AS_OPTION: Mapping[str, tuple[str, str]] = {
    name: (option, edit)
    for option, edits in _TABLE["options"].items()
    for edit, names in edits.items()
    for name in names.format(**_NAMES).split()
}


def same_here(option: str, value: str | None, known: Set[str], given: Collection[str] = ()) -> str:
    """Return the edit that expresses an option of another tool in flopcast; "" if none is known.

    Parameters
    ----------
    option : str
        The option in the command line: ``--tensor-parallel-size``.
    value : str or None
        The next word, unless it is an option.
    known : collection of str
        The options of the command. Only edits with these options help.
    given : collection of str
        The words of the command line. Edits must not repeat an option among these words.

    Examples
    --------
    >>> same_here("--tensor_parallel_size", "4", {"--plan"})
    'write --plan "tp=4", or add tp=4 to the plan'
    >>> same_here("--device", "t4", {"--cluster"})
    'write --cluster gcp-n1 or aws-g4dn'
    >>> same_here("--input-len", "1024", {"--traffic"})
    'write --traffic "prompt=1024"'
    >>> same_here("--nnodes", "2", {"--cluster"})
    'write --cluster NAME:2 for two nodes, or --gpus 16'
    >>> same_here("--nnodes", "2", {"--plan"}), same_here("--foo", None, {"--plan"})
    ('', '')
    >>> same_here("--nnodes", "2", {"--cluster"}, ["--nnodes", "2", "--cluster", "dgx-h100:2"])
    'remove --nnodes 2; --cluster is already given'
    """
    name = option.lstrip("-").replace("_", "-").lower()
    if name in KINDS_OF_DEVICES.split() and (value or "0" * (name == "gpu")).isdecimal():
        name = "num-gpus"
    if name in _IN_PLAN and known & {"--plan", "sweep"}:
        key, usual = _IN_PLAN[name]
        if key == "weights" and name in OTHER_NAMES["precision"] and not _OF_SERVING.intersection(given):
            key = "precision"
        setting = f"{key}={value or usual}"
        way = f'write --plan "{setting}", or add {setting} to the plan'
        return way if "--plan" in known else f"remove it, and add {setting} to the plan in the file"
    begun = [each for each in known if each.startswith(f"{option}-")]
    needed, edit = _AS_OPTION.get(name, ("", ""))
    if value and name != "num-gpus" and not begun and (same := _by_value(value, known, given)):
        return same
    is_counted = name in NODES.split() if value else name in KINDS_OF_DEVICES.split()
    if is_counted and "--gpus" in given:
        return f"remove {' '.join(filter(None, (option, value)))}; --gpus is already given"
    if needed not in known:
        return f"did you mean {begun[0]}?" if len(begun) == 1 else ""
    if needed in given and edit.startswith(f"write {needed}"):
        return f"remove {' '.join(filter(None, (option, value)))}; {needed} is already given"
    if name in KINDS_OF_DEVICES.split() and value:
        edit = _with_device(value) or edit
    return _with_value(edit, needed, option, value) if value else edit


def elsewhere_without_hyphens(word: str, value: str, known: Set[str], given: Collection[str]) -> str:
    """Return the edit for an option of another tool that lacks its hyphens, or "" for other words.

    >>> elsewhere_without_hyphens("precision", "fp8", {"--plan"}, [])
    'write --plan "precision=fp8", or add precision=fp8 to the plan'
    """
    if word.replace("_", "-") not in {*_IN_PLAN, *_AS_OPTION}:
        return ""
    return same_here(f"--{word}", value, known, given).replace(f"remove --{word}", f"remove {word}")


def _with_value(edit: str, needed: str, option: str, value: str) -> str:
    """Return an edit in which the value that the user gave replaces the example."""
    if needed == "export" and value in ("json", "yaml"):
        return f"remove {option} {value}"
    if needed == "export":
        from flopcast.cli.export import USUAL  # only this error needs it

        return edit.replace(USUAL[0], next(iter(nearest(value, USUAL)), USUAL[0]))
    if needed == "--objective":
        return f"write --objective {value}"
    if example := re.search(r"(?<==)\[.*\]|1h(?=\"$)|50000 h(?=\")", edit):
        inner = value.replace("_proj", "").strip("[]").replace(" ", "")
        inner = (meant_quantity(value, ("s", "min", "h", "d")) or inner) if "50000" in edit else inner
        return edit.replace(example[0], f"[{inner}]" if example[0][0] == "[" else inner)
    numbered = re.fullmatch(rf'(write (?:{needed} )?(?:"?[\w.]+=)?"?)[0-9]+((?:/s| W)?"?)', edit)
    if numbered:
        number = value.removesuffix(numbered[2].strip(QUOTE_OR_BLANK)).rstrip()
        if not re.match(r"\d[\d.,_]*[kKmM]?$", number):  # the example stays
            return f"{edit} in place of {option} {value}"
        edit = f"{numbered[1]}{number}{numbered[2]}"
    return edit


def _by_value(value: str, known: Collection[str], given: Collection[str]) -> str:
    """Return the edit that gives a value to the option to which it belongs; "" if there is none."""
    from flopcast.library import catalog
    from flopcast.library.edits import long_names
    from flopcast.spec.plan import Plan

    if f"--{value}" == "--json" and "--json" in known:
        return "write --json"
    fields = {*long_names(Plan), *Plan.model_fields}
    if all(word == "sp" or ("=" in word and word.partition("=")[0] in fields) for word in value.split()):
        return f'write --plan "{value}"' if "--plan" in known and "--plan" not in given else ""
    name = value.partition(":")[0]
    for option in ("--model", "--cluster", "--stack", "--engine"):
        if option in known and option not in given and name in catalog.names(f"{option[2:]}s"):
            return f"write {option} {value}"
    return ""


def _with_device(written: str) -> str:
    """Return the edit that names the clusters with this device; "" if there are none."""
    from flopcast.files.nearest_names import alternatives
    from flopcast.library.catalog import clusters_with

    found = [*clusters_with(written)]
    return f"write --cluster {alternatives(found)}" if found else ""


def misspelt_elsewhere(option: str, value: str | None, known: Set[str]) -> str:
    """Return the edit for a misspelt option of another tool, or "" for other words.

    >>> misspelt_elsewhere("--precison", "fp8", {"--plan"})
    'write --plan "precision=fp8", or add precision=fp8 to the plan'
    """
    names = [*_IN_PLAN, *_AS_OPTION] if len(option) > 6 else []
    near = nearest(option.lstrip("-"), names, least_ratio=SLIP)
    return same_here(f"--{near[0]}", value, known) if near else ""


class ForeignOptionError(click.NoSuchOption):
    """An option of other tools, with the edit that expresses it in flopcast."""

    def __init__(self, name: str, fix: str, context: click.Context) -> None:
        """Keep the name of the option and the edit."""
        super().__init__(name, ctx=context)
        self.fix = fix


def devices_of_nodes(
    words: list[str], context: click.Context
) -> tuple[ForeignOptionError | None, list[str]]:
    """Return the error of options that state a number of nodes and a number of devices per node, and the
    other words.
    """
    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    stated = [
        next((name for name in names if name[2:].replace("_", "-") in known.split()), "")
        for known in (NODES, PER_NODE)
    ]
    numbers = [next_word(words, name) or "" for name in stated]
    if not all(number.isdecimal() for number in numbers):
        return None, words
    both = " ".join(f"{name} {number}" for name, number in zip(stated, numbers, strict=True))
    fix = f"write --gpus {int(numbers[0]) * int(numbers[1])} in place of {both}"
    fix = f"remove {both}; --gpus is already given" if "--gpus" in words else fix
    left = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before not in stated and word.partition("=")[0] not in stated
    ]
    return ForeignOptionError(stated[0], fix, context), left


def next_word(words: Sequence[str], name: str) -> str | None:
    """Return the value of an option, after an equals sign or as the next word; None if there is none."""
    for word, following in zip(words, (*words[1:], "-"), strict=False):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name and not following.startswith("-"):
            return following
    return None
