"""Changes of a file that mean nothing: the order of keys, columns and flags, line ends, comments.

Answers: what else could this file have been, with the same meaning?
Elsewhere: whether flopcast answers the same (oracles.py), changes that may change the meaning (mutate.py).
"""

import csv
import io
import json
import re
import tomllib
from collections.abc import Callable
from random import Random

from fuzz.mutate import loaded

Same = Callable[[Random, bytes], bytes | None]  # None where it does not apply


def _line_ends(_: Random, data: bytes) -> bytes | None:
    return None if b"\r" in data else data.replace(b"\n", b"\r\n")


def _byte_order_mark(_: Random, data: bytes) -> bytes | None:
    return None if data[:1] > b"\x7f" else b"\xef\xbb\xbf" + data


def _comment(_: Random, data: bytes) -> bytes | None:
    return data + b"# a comment\n" if data.endswith(b"\n") and not data.endswith(b"\\\n") else None


def _json_keys(random: Random, data: bytes) -> bytes | None:
    """The keys of all mappings of a JSON file in another order, and other spaces."""
    try:
        tree = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None

    def shuffled(node: object) -> object:
        if isinstance(node, dict):
            names = random.sample(list(node), len(node))
            return {name: shuffled(node[name]) for name in names}
        return [shuffled(one) for one in node] if isinstance(node, list) else node

    made = json.dumps(shuffled(tree), indent=random.choice((None, 1, 3)), ensure_ascii=False)
    return made.encode("utf-8", "replace") if re.search(rb"\d[eE.]", data) is None else None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A mapping, none of whose keys stands twice."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _blocks(data: bytes, start: str) -> list[str] | None:
    """The parts of a text that begin with a line like `start`; None where it begins with none."""
    try:
        parts = re.split(rf"^(?={start})", data.decode(), flags=re.MULTILINE)
    except UnicodeDecodeError:
        return None
    if parts[0].strip() or not parts[-1].endswith("\n"):
        return None
    return parts[1:]


def _yaml_keys(random: Random, data: bytes) -> bytes | None:
    """The keys of the outermost mapping of a YAML file in another order."""
    parts = _blocks(data, r"[A-Za-z_\"]")
    if parts is None:
        return None
    made = "".join(random.sample(parts, len(parts))).encode()
    tree = loaded(data)
    return made if isinstance(tree, dict) and tree == loaded(made) and len(tree) == len(parts) else None


def _toml_keys(random: Random, data: bytes) -> bytes | None:
    """The tables of a TOML file in another order."""
    parts = _blocks(data, r"\[\w")
    if parts is None:
        return None
    made = "".join(random.sample(parts, len(parts))).encode()
    try:
        trees = [tomllib.loads(text.decode()) for text in (data, made)]
    except ValueError:
        return None
    return made if trees[0] == trees[1] else None


def columns(random: Random, data: bytes) -> bytes | None:
    """The columns of a table in another order, every cell in quotes."""
    try:
        rows = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
    except (csv.Error, UnicodeDecodeError):
        return None
    if not rows or len({len(row) for row in rows}) > 1 or len(set(rows[0])) < len(rows[0]):
        return None
    order = random.sample(range(len(rows[0])), len(rows[0]))
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        [row[i] for i in order] for row in rows
    )
    return text.getvalue().encode()


FLAG = re.compile(rb"^\s+(--[\w-]+)(?: [\w.@/:-]+)? \\\n$")


def _flags(random: Random, data: bytes) -> bytes | None:
    """The flags of a run of lines that hold one flag each, in another order.

    The last one stays where a stray word behind it would be taken for its value.
    """
    lines = data.splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if FLAG.match(line)]
    run = [n for n in found if n - found[0] == found.index(n)] if found else []
    flags = re.findall(rb"--[\w-]+", data)
    behind = lines[run[-1] + 1].lstrip() if run and run[-1] + 1 < len(lines) else b""
    if re.match(rb"[^\s\"'#-]", behind):
        run = run[:-1]
    if len(run) < 2 or len(set(flags)) < len(flags):
        return None
    for number, line in zip(run, random.sample([lines[n] for n in run], len(run)), strict=True):
        lines[number] = line
    return b"".join(lines)


SAME: dict[str, tuple[Same, ...]] = {  # syntax → changes that mean nothing
    "json": (_json_keys, _json_keys, _line_ends),
    "yaml": (_yaml_keys, _yaml_keys, _json_keys, _comment, _line_ends),
    "toml": (_toml_keys, _comment, _line_ends),
    "shell": (_flags, _flags, _comment),
    "csv": (columns, columns, _line_ends, _byte_order_mark),
    "text": (_line_ends,),
}
ORDERED = ("pack", "schedule")  # tables whose columns or rows have a fixed order
