"""Keys of a job file that are in the wrong section, or on the same level as their section.

Answers: into which section does an unknown key belong?
Elsewhere: misspelt keys and keys of other programs (field_names.py).
"""

from collections.abc import Sequence
from difflib import get_close_matches

from pydantic import BaseModel

from flopcast.errors import MISSING, Problem
from flopcast.files.field_examples import EXAMPLES
from flopcast.files.field_names import ARGUMENT, SLIP, UNKNOWN_KEY, same_elsewhere
from flopcast.files.field_paths import OF_FILES, dotted, path_of, value_at
from flopcast.files.nearest_names import alternatives
from flopcast.files.refused_data import names_at
from flopcast.files.yaml_text import Document, Path, set_value
from flopcast.fixes import in_words
from flopcast.meant_quantities import meant_quantity
from flopcast.records import replace

MOST_SHORT = 4  # letters of a key, most of which are similar to a short key of another section
OF_MODEL: dict[str, tuple[Path, str]] = {  # a field → its place below a base, its name in a config.json
    "hidden": (("hidden",), "hidden_size"),
    "vocabulary": (("vocabulary",), "vocab_size"),
    "num_layers": (("num_layers",), "num_hidden_layers"),
    "heads": (("blocks", "0", "mixer", "heads"), "num_attention_heads"),
    "ffn_hidden": (("blocks", "0", "feed_forward", "ffn_hidden"), "intermediate_size"),
    "kv_heads": (("blocks", "0", "mixer", "kv_heads"), "num_key_value_heads"),  # not every model has it
}


def _of_model(problems: Sequence[Problem], document: Document) -> list[Problem]:
    """Return the problems of a job; all keys of a model that stand at its top level are one problem."""
    unknown = {each.field: each for each in problems if each.fault == UNKNOWN_KEY}
    means = {key: key if key in OF_MODEL else same_elsewhere(key, OF_MODEL) for key in unknown}
    keys = {key: name for key, name in means.items() if name and key in document.mapping}
    named, direct = document.mapping.get("model"), {"num_layers", "hidden", "vocabulary"}
    if not keys or keys.keys() <= direct or not isinstance(named, str | None):
        return list(problems)
    values = {name: document.mapping[key] for key, name in keys.items()}
    model: dict[str, object] = {"base": named} if named else {"model_type": "llama"}
    for name in values if named else dict.fromkeys((*list(OF_MODEL)[:5], *values)):
        place, in_config = OF_MODEL[name]
        set_value(model, place if named else (in_config,), values.get(name, EXAMPLES[name]))
    several = len(keys) > 1
    one = replace(
        unknown[next(iter(keys))],
        field=alternatives(list(keys)).replace(" or ", " and "),
        because="a job describes its model below the key model",
        fix=f"write model: {in_words(model)} in place of {'these lines' if several else 'it'}",
        fault="are keys of a model" if several else "is a key of a model",
    )
    return [one, *(each for each in problems if each.field not in (*keys, "model"))]


def with_sections(problems: Sequence[Problem], document: Document, noun: type[BaseModel]) -> list[Problem]:
    """Return the problems of a job.

    The fix of a key that belongs to another section moves it to this section.

    Problems that this move solves are omitted, such as an empty section or a section without the key.

    Parameters
    ----------
    problems, document : the faults of a job file, and the file
    noun : type
        The kind of the job.
    """
    problems = _of_model(list(map(_as_list_of_change, problems)), document)
    placed, solved = _with_blocks_once(problems)
    for number, problem in enumerate(problems):
        path = path_of(problem.field)
        if problem.fault != UNKNOWN_KEY or not path or _states_list(problem):
            continue  # a key of brackets alone, such as "[]", has no path
        path = path if path in document.lines else (*path[:-1], str(path[-1]))
        placed[number] = _as_change(problem, path, document, noun)
        inside = value_at(document.data, path)
        in_plan = names_at(noun, ("plan",))
        if isinstance(inside, dict) and inside and {*inside} <= {*in_plan} and path[-1] not in in_plan:
            lists = {key: tuple(value) for key, value in inside.items() if isinstance(value, list)}
            words = " ".join(f"{key}={in_words(value)}" for key, value in (inside | lists).items())
            fix = f"write {words} in plan in place of it"
            if lists:  # a job has one value of each
                fix = f'remove {path[-1]}, and run flopcast search {document.name} --plan "{words}"'
            placed[number] = replace(problem, fix=fix)
            continue
        if path not in document.lines:
            continue
        if same_elsewhere(str(path[-1]), problem.allowed.split(", ")):
            continue
        if below := _empty_above(path, document):
            line, above = document.lines[path], document.lines[below]
            fix = f"indent line {line} more than line {above}, as a part of {below[-1]}"
            placed[number], solved = replace(problem, fix=fix), solved | {dotted(below)}
            continue
        lacking = [path_of(each.field)[:-1] for each in problems if _lacks(each, path[-1])]
        homes = lacking or _homes(path, document, noun)
        homes = [("plan",)] if len(path) == 1 and path[0] in names_at(noun, ("plan",)) else homes
        name, homes = _meant(problem, path, homes, noun)
        if len(homes) == 1:
            home, solved = homes[0], solved | {dotted((*homes[0], path[-1]))}
            solved |= {each.field for each in problems if home and path_of(each.field)[: len(home)] == home}
            to = f"to {dotted(home)}" if home else f"out of {dotted(path[:-1])}, to the top level"
            fix, named = f"move {path[-1]} {to}{_at(home, document)}", value_at(document.data, home)
            fix += f" and call it {name}" * (name != path[-1])
            if isinstance(named, str):  # changes stand beside the name of a catalogue entry
                given = value_at(document.data, path)
                given = meant_quantity(str(given), ("USD/h",)) or given if path[-1] == "price" else given
                changed = f"{{base: {named}, {name}: {given}}}"
                changed = f"{named} {name}={given}" if home == ("plan",) else changed
                fix += f", as in {home[-1]}: {changed}"
            placed[number] = replace(problem, fix=fix)
    return [each for each in placed if each.field not in solved or each.fault == UNKNOWN_KEY]


def _as_list_of_change(problem: Problem) -> Problem:
    """Return a problem; if its value is a change and its fix writes a list, the fix writes the change."""
    path = path_of(problem.field)
    listed = f"write {path[-1]}: [" if path else ""
    if not (listed and problem.where.startswith(ARGUMENT) and problem.fix.startswith(listed)):
        return problem
    return replace(problem, fix=f'write {dotted(path)}="[{problem.fix.removeprefix(listed)}"')


def _states_list(problem: Problem) -> bool:
    """Return whether the fix of an unknown key writes a list: the blocks of a model, factors of a site."""
    return _states_blocks(problem) or bool(problem.edits and "factors" in problem.edits[0])


def _states_blocks(problem: Problem) -> bool:
    """Return whether the fix of an unknown key of a model describes all blocks."""
    return problem.fault == UNKNOWN_KEY and bool(problem.edits) and "blocks" in problem.edits[0]


def _with_blocks_once(problems: Sequence[Problem]) -> tuple[list[Problem], set[str]]:
    """Return problems of which one fix describes the blocks of a model, and the fields that it adds."""
    placed, described = list[Problem](), set[str]()
    for each in problems:
        blocks, key = dotted((*path_of(each.field)[:-1], "blocks")), path_of(each.field)[-1:]
        again = _states_blocks(each) and blocks in described
        placed.append(replace(each, fix=f"remove {key[0]}, which is a part of blocks") if again else each)
        described |= {blocks} if _states_blocks(each) else set()
    return placed, described


def _as_change(problem: Problem, path: Path, document: Document, noun: type[BaseModel]) -> Problem:
    """Return the problem of a change KEY=VALUE; its fix is the change of the section that has the key."""
    written = f"{ARGUMENT}{dotted(path)}="
    homes = [home for home in _homes(path, document, noun) if home]
    name, homes = _meant(problem, path, homes, noun)
    is_known = len(path) > 1 and not problem.fix.startswith("remove ")
    if is_known or len(homes) != 1 or not problem.where.startswith(written):
        return problem
    value = problem.where.removeprefix(written)
    edit = f'"{value}"' if " " in value else value
    return replace(problem, fix=f"write {dotted((*homes[0], name))}={edit}")


def _lacks(problem: Problem, key: str | int) -> bool:
    return problem.fault == MISSING and path_of(problem.field)[-1] == key


def _empty_above(path: Path, document: Document) -> Path:
    """Return the key in the line above a key of the same mapping if it has no value; () otherwise."""
    holder, lines = value_at(document.data, path[:-1]), document.lines
    siblings = [(*path[:-1], key) for key in (holder if isinstance(holder, dict) else {})]
    before = [each for each in siblings if lines.get(each, 0) < lines[path] and each in lines]
    last = max(before, key=lines.__getitem__, default=())
    return last if last and isinstance(holder, dict) and holder[last[-1]] is None else ()


def _homes(path: Path, document: Document, noun: type[BaseModel]) -> list[Path]:
    """Return the sections of a job, or of the mapping around a key, that have this key.

    Of several, only those of the file that lack it.
    """
    around = [(*path[:-1], name) for name in names_at(noun, path[:-1])] if len(path) > 2 else []
    sections: list[Path] = [*around, (), *((name,) for name in noun.model_fields)]
    homes = [
        section
        for section in sections
        if section != path[:-1]
        if path[-1] in (*names_at(noun, section), *OF_FILES.get(section, ()))
    ]
    lacking = [
        each
        for each in homes
        if each and isinstance(held := value_at(document.data, each), dict) and path[-1] not in held
    ]
    return homes if len(homes) < 2 else lacking


def _meant(
    problem: Problem, path: Path, homes: list[Path], noun: type[BaseModel]
) -> tuple[str | int, list[Path]]:
    """Return the name of a key and the sections that have it.

    Without such a section, these are the key that an unknown key at the top level misspells, and its
    section. A key that is as similar to a key of the top level misspells that key.
    """
    key, own = problem.field, [str(name) for edit in problem.edits for name in edit]
    if homes or len(path) > 1 or len(key) <= MOST_SHORT or get_close_matches(key, own, cutoff=SLIP):
        return path[-1], homes
    parts = dict.fromkeys(("plan", *noun.model_fields))
    for part in parts:
        if near := get_close_matches(key, names_at(noun, (part,)), n=1, cutoff=SLIP):
            return near[0], [(part,)]
    return path[-1], homes


def _at(section: Path, document: Document) -> str:
    return f" (line {document.lines[section]})" if section and section in document.lines else ""
