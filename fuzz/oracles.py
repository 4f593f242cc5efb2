"""What must hold however an input is broken, and what must stay the same where nothing of meaning changes.

Answers: is this end a failure, and by which rule?
Elsewhere: changes that may change the meaning (mutate.py), those that never do (equal_files.py), laws of
jobs (jobs.py).
"""

import json
import math
import re
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import yaml

from fuzz import branches
from fuzz.child import (
    CODE_BROKEN,
    CODE_DIED,
    CODE_OVER_TIME,
    LONGEST_CPU_S,
    MOST_BYTES,
    MOST_CPU_S,
    Child,
    Ended,
)
from fuzz.equal_files import ORDERED, SAME, columns
from fuzz.kinds import JOBS, Input, kinds
from fuzz.mutate import NoAliases, at_path, loaded, paths

DECISIVE_KEY = "fuzz_parallel_layers"  # its name speaks of what costs time (flopcast.files.unknown_keys)
NO_FILE = ("plan", "changes", *JOBS)  # kinds whose words are no file of their own
PLACE = re.compile(r"(?:input|samples)\.\w+:\d+")
NOTHING = re.compile(rb"(\s|(?m:#.*$)|~|null|Null|NULL|---|\xef\xbb\xbf)*")  # YAML that holds no value
OF_WHOLE_FILES = (  # what is wrong with a file that has no line to blame
    "the file contains no usable row of results",
    "the file contains no keys and no command",
    "none of the",
    "printed steps has a negative, infinite or nan value",
    "command line: batch.sequence_length",  # a model that contradicts itself
    "contains no kernels of a device",
    "a header but no rows",
    "training command was not found in the file",
    "the table must list the tasks of every stage",  # the plan has another number of them
    "the table must list the tasks of every chunk",
    "valid rows of one kernel class",
)
PASSIVE = {  # sections that say nothing of sizes
    "auto_map",
    "data_stages",
    "datasets",
    "quantization_config",
    "rope_scaling",
    "rope_parameters",
    "task_specific_params",
    "init_config",
    "vision_config",
}
FRAME = re.compile(r'File ".*?/flopcast/(\S+?)", line \d+, in (\S+)')
HUGE = re.compile(r"\de\+[2-9]\d\b")  # a number from 1e20 on
COUNTS = re.compile(
    r"(num_hidden_layers|num_layers|n_layers?|hidden_size|n_embd|d_model|n_embed|hidden|count|vocab_size"
    r"|intermediate_size|ffn_hidden_size|seq_length|max_seq_len|micro_batch_size|global_batch_size)$"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An input that breaks a rule. Two failures of one `name` have one cause, as far as can be told."""

    input: Input
    name: str
    text: str


def judge(one: Input, ended: Ended) -> Failure | None:
    """Return what is wrong with the end of a run, None where all is right."""
    found = _fault(one, ended)
    return None if found is None else Failure(input=one, name=f"{one.kind} {found[0]}", text=found[1])


def _fault(one: Input, ended: Ended) -> tuple[str, str] | None:
    """The name of a broken rule, and a text about it."""
    if ended.code in (CODE_DIED, CODE_OVER_TIME, CODE_BROKEN):
        why = re.sub(r"[^a-zA-Z_ ]+.*", "", f"{ended.err} ".splitlines()[0])
        return f"dies, hangs or breaks {why}", ended.err
    if ended.code not in (0, 1, 2) or "Traceback" in ended.err:
        frames = FRAME.findall(ended.err)
        where = " ".join(frames[-1]) if frames else ""
        lines = [line for line in ended.err.splitlines() if re.match(r"[\w.]+(Error|Warning)?:", line)]
        return f"crashes {lines[-1].partition(':')[0] if lines else ended.code} {where}", ended.err
    most_s = LONGEST_CPU_S if _is_long(one, ended) else MOST_CPU_S
    if ended.peak_bytes > MOST_BYTES or ended.cpu_s > most_s:
        return "takes too much", f"{ended.cpu_s:.2f} s, {ended.peak_bytes / 1e6:.0f} MB"
    return _untold(one, ended) if ended.code else _odd_answer(ended.out)


def _is_long(one: Input, ended: Ended) -> bool:
    """Whether a run may take longer: it chooses a plan, or predicts many changes of a job."""
    return one.kind in JOBS or branches.ran("search/default_plan.py", ended.branches)


def _untold(one: Input, ended: Ended) -> tuple[str, str] | None:
    """What a refusal does not say: its file, its line, or that it is one."""
    if ended.out and not ended.out.startswith("{"):
        return "prints an answer beside its faults", ended.out
    if ended.code != 1 or one.kind in NO_FILE or NOTHING.fullmatch(one.data):
        return None
    told = ended.err + ended.out  # JSON lists rows that are not predicted
    if PLACE.search(told) or any(text in told for text in OF_WHOLE_FILES):
        return None
    if not re.search(r"(input|samples)\.\w+", ended.err):
        return "does not name the file", ended.err
    if one.kind == "nsys":  # a database has no lines
        return None
    because = re.search(r"because: (.*)", ended.err)
    return f"names no line, {re.sub(r':.*|[^a-z ]', '', because[1])[:40] if because else ''}", ended.err


def _odd_answer(out: str) -> tuple[str, str] | None:
    """An answer that is empty, no JSON where it begins so, or has a number that none can be."""
    if not out.strip():
        return "prints nothing", out
    if not out.startswith("{\n"):
        return None
    try:
        data = json.loads(out, parse_constant=lambda name: [][name])  # type: ignore[call-overload]
    except (ValueError, TypeError):
        return "prints no JSON", out
    step_s, mfu = data.get("step_time_s", 1.0), data.get("mfu", 0.0)
    if not 0 < step_s < math.inf or not 0 <= mfu <= 1:
        return "answers with an impossible number", f"step_time_s {step_s}, mfu {mfu}"
    return None


def _answer(ended: Ended) -> object:
    """An end without the lines of the file that it names: those move."""
    text = (
        ended.out
        if ended.code == 0
        else re.sub(r"\n  .*| = .* is not allowed|\S+ (?=is given twice)", "", ended.err)
    )
    plain = re.sub(r"(input|samples)\.\w+(:\d+)?|\b(on )?lines? \d+( and \d+)?", "", text)
    return ended.code, sorted({line.rstrip(",") for line in plain.splitlines()})


def _syntax(one: Input) -> str:
    if one.suffix == ".toml":
        return "toml"
    return "json" if one.data.lstrip()[:1] == b"{" else kinds()[one.kind].syntax


def check_same(random: Random, child: Child, one: Input, ended: Ended) -> Failure | None:
    """One change that means nothing: the answer, or the faults, must be the same."""
    change = random.choice(SAME[_syntax(one)])
    if not kinds()[one.kind].command or (change is columns and one.kind in ORDERED):
        return None
    data = change(random, one.data)
    if data is None:
        return None
    again = child.run(replace(one, data=data))
    if _answer(again) == _answer(ended):
        return None
    text = f"before: {ended.code} {ended.err or ended.out}\nafter: {again.code} {again.err or again.out}\n"
    return Failure(
        input=one,
        name=f"{one.kind} changes by {change.__name__}",
        text=text + data.decode("utf-8", "replace"),
    )


def _accepted_tree(child: Child, one: Input, ended: Ended) -> tuple[dict[str, object], Ended] | None:
    """The mapping of an accepted JSON or YAML file, and how its plain spelling ends; None for all else."""
    kind = kinds()[one.kind]
    if ended.code or _syntax(one) not in ("json", "yaml") or not kind.command or one.kind == "kineto":
        return None
    tree = loaded(one.data)
    if not isinstance(tree, dict):
        return None
    try:
        plain = child.run(_written(one, tree))
    except (ValueError, TypeError):  # JSON has no dates
        return None
    return None if plain.code else (tree, plain)


def _mapping(value: object) -> dict[str, object]:
    """A mapping, or an empty one instead of anything else."""
    return value if isinstance(value, dict) else {}


def _is_read(tree: dict[str, object], path: tuple[object, ...]) -> bool:
    """Whether a value says something of the model: model configs have sections about other things."""
    beside = "text_config" in tree and path[0] != "text_config"  # of a model that also sees
    dense = path[-1] in ("intermediate_size", "ffn_hidden_size")  # of a block without experts
    all_experts = dense and any("expert" in str(key) for key in tree | _mapping(tree.get(path[0])))
    dotted = any("." in str(key) for key in path[:-1])  # another program's file has no such section
    return not (PASSIVE.intersection(path) or beside or all_experts or dotted)


def _dotted(path: tuple[object, ...]) -> str:
    """The keys of a path, without places in lists."""
    return ".".join(str(key) for key in path if not isinstance(key, int))


def _written(one: Input, tree: object) -> Input:
    is_json = one.data.lstrip()[:1] == b"{"
    text = json.dumps(tree, indent=1) if is_json else yaml.dump(tree, Dumper=NoAliases, sort_keys=False)
    return replace(one, data=text.encode())


def check_unknown(random: Random, child: Child, one: Input, ended: Ended) -> Failure | None:
    """An unknown key that may be costly is refused, in every section of an accepted file."""
    found = _accepted_tree(child, one, ended)
    if found is None:
        return None
    tree, _ = found
    sections = [(), *(path for path in paths(tree) if isinstance(at_path(tree, path), dict))]
    read = [path for path in sections if _is_read(tree, (*path, ""))]
    if not read:
        return None
    place = random.choice(read)
    at_path(tree, place)[DECISIVE_KEY] = 3  # type: ignore[index]
    changed = _written(one, tree)
    again = child.run(changed)
    if again.code and DECISIVE_KEY in again.err:
        return None
    name = f"{one.kind} accepts an unknown key in {_dotted(place)}"
    return Failure(input=changed, name=name, text=again.err)


def check_types(random: Random, child: Child, one: Input, ended: Ended) -> Failure | None:
    """A value without which the answer is another is refused where a mapping stands in its place."""
    found = _accepted_tree(child, one, ended)
    if found is None:
        return None
    tree, plain = found
    values = [path for path in paths(tree) if not isinstance(at_path(tree, path), dict)]
    if not values:
        return None
    *way, key = random.choice(values)
    section: Any = at_path(tree, way)
    value, section[key] = section[key], {"fuzz": 1}
    changed = _written(one, tree)
    again = child.run(changed)
    if again.code:
        return None
    if isinstance(section, dict):
        del section[key]
    else:
        section[key] = None
    without = child.run(_written(one, tree))
    if without.code == plain.code and _without_notes(without.out) == _without_notes(plain.out):
        return None  # nothing reads the value
    name = f"{one.kind} accepts a mapping as {_dotted((*way, key))}"
    return Failure(input=changed, name=name, text=f"instead of {value!r}: {again.out}")


def _without_notes(out: str) -> str:
    """A job or a result without its assumptions, which also tell what is ignored."""
    if not out.startswith("{\n"):
        return re.sub(r"^assumptions:\n(  - .*\n?)*", "", out, flags=re.MULTILINE)
    return json.dumps(json.loads(out) | {"assumptions": []})


def check_counts(random: Random, child: Child, one: Input, ended: Ended) -> Failure | None:
    """A count of layers, a width or a batch, doubled in an accepted file, changes what is printed."""
    found = _accepted_tree(child, one, ended)
    if found is None:
        return None
    tree, plain = found
    named = [path for path in paths(tree) if COUNTS.match(str(path[-1])) and _is_read(tree, path)]
    counts = [path for path in named if type(at_path(tree, path)) is int]
    if not counts:
        return None
    *way, key = random.choice(counts)
    at_path(tree, way)[key] *= 2  # type: ignore[index]
    changed = _written(one, tree)
    again = child.run(changed)
    if (again.code, again.out, again.err) != (plain.code, plain.out, plain.err):
        return None
    if HUGE.search(plain.out):
        return None  # a small part beside a huge one changes no printed digit
    name = f"{one.kind} ignores {_dotted((*way, key))}"
    return Failure(input=changed, name=name, text=plain.out)


def check_written(_: Random, child: Child, one: Input, ended: Ended) -> Failure | None:
    """The job that an import writes needs the memory of the file that it was made from."""
    if ended.code or not kinds()[one.kind].is_import:
        return None
    ends = (
        child.run(replace(one, kind=f"{one.kind}-memory")),
        child.run(Input(kind="memory", suffix=".yaml", data=ended.out.encode())),
    )
    needs = [json.loads(end.out).get("memory", end.err) if end.code == 0 else end.err for end in ends]
    if needs[0] == needs[1]:
        return None
    text = f"the file: {needs[0]}\nthe job: {needs[1]}\n{ended.out}"
    return Failure(input=one, name=f"{one.kind} writes another job", text=text)


CHECKS = (check_same, check_unknown, check_types, check_counts, check_written)
