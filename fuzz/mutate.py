"""Changes of inputs that know a little of what they change: lines, values, keys, cells, quotes, bytes.

Answers: what may a hostile or careless hand do to this file?
Elsewhere: which file is changed next (search.py).
"""

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from random import Random

import yaml

from fuzz.kinds import JOBS, Input, kinds

MOST_BYTES = 60_000  # of an input: limits of size have tests of their own
WORD = re.compile(rb"""[A-Za-z0-9_./+:-]*[0-9][A-Za-z0-9_./+:-]*|"[^"\n]*"|'[^'\n]*'|\b[A-Za-z_]\w*\b""")
NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
WORDS = """
0 1 -1 2 3 7 8 16 100 4096 50257 2147483648 9223372036854775808 1e9 1e18 1e308 1e400 -1e400 0.5 1.5 1e-9
1e-320 .5 5. nan .nan NaN inf .inf -Infinity true false True yes no null None ~ none auto '' [] {} [1] - _
4k 4,096 1_000 0x10 0o17 010 1e5 +8 8GB 80GiB 300TB/s 5us bf16 fp16 fp8 fp32 int8 é ١٢ ８ 🙂 \\ \\u0000 ${x}
$HOME $((1/0)) $(id) `id` !!int &a *a << ? | > # % @ 2026-01-01 1:30 12:34:56
"""
PIECES = [bytes([one]) for one in b"\0\r\n\t\x85\\\"'`${}[]#:, ="]
PIECES += [b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\x1b[31m", b"\xe2\x80\xa8", b"<<EOF\n", b"\n\n", b"-\n"]

Change = Callable[[Random, bytes, bytes], bytes]


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True) or [b""]


def _drop_lines(random: Random, data: bytes, _: bytes) -> bytes:
    lines = _lines(data)
    start = random.randrange(len(lines))
    del lines[start : start + random.choice((1, 1, 1, 2, 5))]
    return b"".join(lines)


def _repeat_line(random: Random, data: bytes, _: bytes) -> bytes:
    lines = _lines(data)
    lines.insert(random.randrange(len(lines) + 1), random.choice(lines))
    return b"".join(lines)


def _swap_lines(random: Random, data: bytes, _: bytes) -> bytes:
    lines = _lines(data)
    i, j = random.randrange(len(lines)), random.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)


def _take_line(random: Random, data: bytes, other: bytes) -> bytes:
    lines, theirs = _lines(data), _lines(other)
    start = random.randrange(len(theirs))
    at = random.randrange(len(lines) + 1)
    lines[at:at] = theirs[start : start + random.choice((1, 1, 2, 4))]
    return b"".join(lines)


def _splice(random: Random, data: bytes, other: bytes) -> bytes:
    lines, theirs = _lines(data), _lines(other)
    return b"".join(lines[: random.randrange(len(lines) + 1)] + theirs[random.randrange(len(theirs)) :])


def _word(random: Random, data: bytes, other: bytes) -> bytes:
    found = list(WORD.finditer(data))
    if not found:
        return data
    at = random.choice(found)
    theirs = WORD.findall(other)
    by = (
        random.choice(theirs) if theirs and random.random() < 0.4 else random.choice(WORDS.split()).encode()
    )
    return data[: at.start()] + by + data[at.end() :]


def _number(random: Random, data: bytes, _: bytes) -> bytes:
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    at = random.choice(found)
    text = at.group().decode()
    value = int(text) if text.isdigit() and len(text) < 30 else float(text)
    made = random.choice((value * 2, value // 2, value + 1, -value, value * 10, value * 1000, value / 3, 0))
    return data[: at.start()] + str(made).encode() + data[at.end() :]


def _swap_words(random: Random, data: bytes, _: bytes) -> bytes:
    found = list(WORD.finditer(data))
    if len(found) < 2:
        return data
    one, two = sorted(random.sample(found, 2), key=lambda at: at.start())
    return b"".join(
        (data[: one.start()], two.group(), data[one.end() : two.start()], one.group(), data[two.end() :])
    )


def _bytes(random: Random, data: bytes, _: bytes) -> bytes:
    at, more = random.randrange(len(data) + 1), random.randrange(1, 9)
    piece = random.choice(PIECES) if random.random() < 0.8 else random.randbytes(more)
    how = random.randrange(4)
    rest = b"" if how == 0 else data[at if how == 1 else at + more :]
    return data[:at] + (piece if how in (1, 2) else b"") + rest


def _line_ends(random: Random, data: bytes, _: bytes) -> bytes:
    return data.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b" \n", b"\n\t")))


def _quotes(random: Random, data: bytes, _: bytes) -> bytes:
    found = list(WORD.finditer(data))
    if not found:
        return data
    at, mark = random.choice(found), random.choice((b'"', b"'"))
    text = at.group()
    made = text.strip(b"\"'") if text[:1] in (b'"', b"'") else mark + text + mark
    return data[: at.start()] + made + data[at.end() :]


def _columns(random: Random, data: bytes, _: bytes) -> bytes:
    rows = [line.split(b",") for line in data.splitlines()]
    width = len(rows[0]) if rows else 0
    if not width:
        return data
    i, j, how = random.randrange(width), random.randrange(width), random.randrange(4)
    for row in rows if how < 3 else random.sample(rows, 1):
        if i < len(row) and j < len(row):
            if how == 0:
                row[i], row[j] = row[j], row[i]
            elif how == 1:
                del row[i]
            else:
                row.insert(j, row[i])
    return b"\n".join(b",".join(row) for row in rows) + b"\n"


def loaded(data: bytes) -> object:
    """The value of a JSON or YAML text; None for what PyYAML cannot read, and for what holds anchors."""
    try:
        return None if b"*" in data else yaml.load(data, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, LookupError, TypeError, RecursionError):
        return None


def paths(node: object, here: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where every value of nested mappings and lists stands, the outermost left out."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path for key, value in entries for path in ((*here, key), *paths(value, (*here, key)))]


def at_path(node: object, path: Sequence[object]) -> object:
    """The value at a place."""
    for key in path:
        node = node[key]  # type: ignore[index]
    return node


def _value(random: Random, value: object) -> object:
    made: list[object] = [None, True, 0, -1, 2.5, "", "4k", [], {}, "x" * 5000, 10**30]
    made += [[value], {"a": value}, str(value)]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        made += [value * 2, value // 2, value + 1, -value, float(value), value * 1024] * 2
    if isinstance(value, bool):
        made += [not value] * 6
    if isinstance(value, list) and value:
        made += [value[:-1], value * 2, value[::-1], value[0]] * 2
    if isinstance(value, dict):
        made += [dict(reversed(value.items())), {**value, **{f"{k}_": v for k, v in value.items()}}]
    return random.choice(made)


def _tree(random: Random, data: bytes, other: bytes) -> bytes:
    """Drop, change, rename, or move one value of a mapping; or take one from another file."""
    is_json = data.lstrip()[:1] in (b"{", b"[")
    tree, theirs = loaded(data), loaded(other)
    places = paths(tree)
    if not places:
        return data
    *way, key = random.choice(places)
    section, how = at_path(tree, way), random.randrange(5)
    if how == 0:
        del section[key]  # type: ignore[attr-defined]
    elif how == 1 and isinstance(section, dict):
        section[f"{key}{random.choice(('s', '_', 'x', '.y'))}"] = section.pop(key)
    elif how == 2 and isinstance(theirs, dict) and theirs and isinstance(section, dict):
        name = random.choice(list(theirs))
        section[name] = theirs[name]
    elif how == 3:
        section[key] = deepcopy(at_path(tree, random.choice(places)))  # type: ignore[index]
    else:
        section[key] = _value(random, section[key])  # type: ignore[index]
    try:
        made = json.dumps(tree, indent=1) if is_json else yaml.dump(tree, Dumper=NoAliases, sort_keys=False)
        return made.encode()
    except (TypeError, ValueError, RecursionError):
        return data


class NoAliases(yaml.SafeDumper):
    """Writes a value again where it stands twice: flopcast refuses anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """Never write an alias."""
        return True


EVERY: tuple[Change, ...] = (
    _word, _word, _number, _number, _drop_lines, _repeat_line, _swap_lines, _take_line, _take_line, _splice,
    _swap_words, _bytes, _line_ends, _quotes,
)  # fmt: skip
ALSO = {"json": (_tree,) * 14, "yaml": (_tree,) * 8, "csv": (_columns, _columns, _columns)}
OF_JOBS = (_tree, _tree, _number)  # random jobs that stay readable


def mutated(random: Random, one: Input, other: Input) -> Input:
    """Return an input with one to four changes; `other` lends parts of its own."""
    kind = kinds()[one.kind]
    changes: Sequence[Change] = (*EVERY, *ALSO.get(kind.syntax, ()))
    changes = OF_JOBS if one.kind in JOBS else changes
    data = one.data
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        data = random.choice(changes)(random, data, other.data)
    return replace(one, data=data[:MOST_BYTES])
