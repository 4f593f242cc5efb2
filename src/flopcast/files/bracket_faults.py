"""Missing and wrong brackets and commas in YAML and JSON.

Answers: which bracket or comma is missing where the parser stopped inside a list or mapping?
Elsewhere: all other errors in the syntax (yaml_faults.py).
"""

import re

from flopcast.files.syntax_places import Place, SyntaxFault

CLOSING = {"{": "}", "[": "]"}
NOUNS = {"{": "mapping", "[": "list"}
QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*")
BRACKET = re.compile(r"[][{}]")
QUOTES = ('"', "'")
BARE = re.compile(r"\s*([A-Za-z_][\w.-]*):\s*([^\s\"{}\[\],]+),?\s*")  # KEY: VALUE as in YAML
JSON_WORD = re.compile(r"true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?")
LISTED = re.compile(r"\[([\w.]+)\] *(?!\s*[\"']?[\w-]+[\"']?:)")  # one value in brackets
LAST_WORD = re.compile(r"[\"']?[\w.-]+[\"']?\s*$")


def in_brackets(place: Place) -> SyntaxFault:  # noqa: PLR0911 - a list of cases
    """Return the fault of a list or mapping in brackets: a missing comma, or a wrong or missing bracket."""
    opening = place.text[place.start : place.start + 1]
    closing = CLOSING[opening]
    whole = f"the {NOUNS[opening]} that begins with {opening} in line {place.line(place.start)}"
    if place.character in CLOSING.values():
        return _other_bracket(place, opening, whole)
    if place.character == "{" and place.text[place.at - 1] == "$":
        name = place.text[place.at - 1 :].partition("}")[0] + "}"
        line = place.line(place.at)
        because = f"{name} in line {line} is a variable of the shell, which flopcast does not replace"
        return SyntaxFault(line, because, f"write the value in place of {name}")
    first = place.at
    if place.character == ":":  # the parser joined the last value to the next key
        word = LAST_WORD.search(place.text[: place.at])
        first = word.start() if word else place.at
    if place.content(first).lstrip().startswith("- ") and place.line(first) > place.line(place.start):
        # the bracket ends above the entry
        first = place.text.rfind("\n", 0, first) + 1 + place.indent(first)
    end = place.end_before(first)
    if ";" in (place.text[end - 1], place.text[end : end + 1]):
        at = end - (place.text[end - 1] == ";")
        return SyntaxFault(
            place.line(at), "a comma separates two entries", f"write , in place of ; {place.named(at)}"
        )
    for listed in LISTED.finditer(place.text) if place.character != ":" else ():
        if place.at in listed.span():
            because = f"text stands beside the list {listed[0].strip()} in line {place.line(end)}"
            beside = re.split(r"[,}\]\n]", place.text[listed.end() :], maxsplit=1)[0]
            fix = f"write {listed[1]} in place of {(listed[0] + beside).strip()}"
            return SyntaxFault(place.line(end), because, fix)
    bare = BARE.fullmatch(place.content(end))
    if bare and place.text.lstrip().startswith("{"):
        return _bare_key(bare, place.line(end))
    if (
        place.text[end - 1] in QUOTES
        and place.character not in (*QUOTES, ":")
        and place.line(end) == place.line(first)
    ):
        return text_after_value(place, end)
    outside = place.line(first) > place.line(end) and place.indent(first) <= place.indent(place.start)
    if not place.text[place.at :].strip() or (outside and place.start > place.end_before(place.start)):
        return SyntaxFault(
            place.line(end), f"{whole} has no {closing}", f"add {closing} {place.named(end)}"
        )
    because = f"no comma separates two entries of {whole}"
    return SyntaxFault(place.line(end), because, f"add a comma {place.named(end)}")


def _bare_key(bare: re.Match[str], line: int) -> SyntaxFault:
    """Return the fault of a line of JSON that has a key without quotes."""
    value = bare[2] if JSON_WORD.fullmatch(bare[2]) else f'"{bare[2]}"'
    return SyntaxFault(line, f"line {line} is not JSON", f'write "{bare[1]}": {value}, in line {line}')


def text_after_value(place: Place, at: int) -> SyntaxFault:
    """Return the fault of a line in which text follows a complete value, mostly because of its quotes."""
    line, content = place.line(at), place.content(at)
    odd = [i for i, row in enumerate(place.text.split("\n")[: line - 1], 1) if row.count('"') % 2]
    if odd and content.count('"') % 2 == 0 and not place.text.lstrip().startswith("{"):
        because = f"the text in quotes that begins in line {odd[-1]} does not end there"
        return SyntaxFault(odd[-1], because, f"add the missing quotation mark in line {odd[-1]}")
    because = f"text follows a complete value in line {line}, column {place.column(at)}"
    if pair := re.search(r"[\"']([\w.-]+)[\"']\s*=\s*(?=[\w\"'\[{])", content):
        return SyntaxFault(
            line, "a colon separates a key from its value", f"write : in place of = after {pair[1]}"
        )
    if number := re.search(r"[\"']([\d.]+)[\"'] ([A-Za-z/]+)", content):
        fix = f"write {number[1]} {number[2]} in place of {number[0]}, without quotes"
        return SyntaxFault(line, because, fix)
    if max(map(content.count, QUOTES)) > 2 and "{" not in content:
        fix = f"keep only the first and the last quotation mark of the value in line {line}"
        return SyntaxFault(
            line, f"the value in line {line} has quotation marks inside quotation marks", fix
        )
    return SyntaxFault(line, because, f"put the whole value of line {line} in quotes")


def _other_bracket(place: Place, opening: str, whole: str) -> SyntaxFault:
    """Return the fault of a bracket that closes the other kind: one of both is missing or wrong."""
    closing = CLOSING[opening]
    here = place.named(place.at)
    wrong = next(one for one, other in CLOSING.items() if other == place.character)
    is_mapping = re.match(r"\s*[\"']?[\w-]+[\"']?\s*:", place.text[place.start + 1 :])
    at, right = (place.at, closing) if (opening == "{") == bool(is_mapping) else (place.start, wrong)
    because = f"{whole} is closed by {place.character}"
    fix = f"write {right} instead of {place.text[at]} {place.named(at)}"
    other = SyntaxFault(place.line(at), because, fix)
    if place.line(place.start) == place.line(place.at) and wrong not in place.content(place.at):
        return other
    lacking = place.text.count(opening) > place.text.count(closing)
    if place.text.count(wrong) < place.text.count(place.character) and not lacking:
        because = f"no {wrong} is open where {place.character} stands"
        fix = f"add {wrong} at the beginning of the {NOUNS[wrong]} that ends {here}"
        return SyntaxFault(place.line(place.at), because, fix)
    if lacking and place.text.count(wrong) == place.text.count(place.character):
        because, fix = f"{whole} has no {closing}", f"add {closing} before the {place.character} {here}"
        return SyntaxFault(place.line(place.at), because, fix)
    return other


def unopened(place: Place) -> SyntaxFault:
    """Return the fault of a closing bracket or a comma where no bracket is open."""
    line, column = place.line(place.at), place.column(place.at)
    closing = unopened_in(place.content(place.at)[column:]) if place.character == "," else ""
    rows = place.text.split("\n")
    first = line
    while place.character == "," and first > 1 and rows[first - 2].rstrip().endswith(","):
        first -= 1
    if not closing and first < line:
        because = f"lines {first} to {line} end with commas, as in JSON, but no {{ is open"
        return SyntaxFault(
            first, because, f"add {{ above line {first}, or remove an earlier }} that closes it"
        )
    if not closing:
        because = f"no bracket is open where {place.character} stands"
        return SyntaxFault(line, because, f"remove {place.character} in line {line}, column {column}")
    opening = next(one for one, other in CLOSING.items() if other == closing)
    because = f"no {opening} is open where {closing} stands in line {line}"
    return SyntaxFault(line, because, f"add the missing {opening} in line {line}, or remove the {closing}")


def unopened_by(place: Place, line: int) -> SyntaxFault:
    """Return the fault of a line that closes a bracket that `line` should open."""
    closing, here = unopened_in(place.content(place.at)), place.line(place.at)
    opening = next(one for one, other in CLOSING.items() if other == closing)
    because = f"no {opening} is open where {closing} stands in line {here}"
    return SyntaxFault(here, because, f"add the missing {opening} in line {line}")


def unopened_in(text: str) -> str:
    """Return the first closing bracket of a text that closes none of its brackets; "" if there is none."""
    depth = 0
    for bracket in map(str, BRACKET.findall(text)):
        depth += 1 if bracket in CLOSING else -1
        if depth < 0:
            return bracket
    return ""


def in_all(text: str) -> bool:
    """Return whether brackets enclose a whole text, as in JSON."""
    first = re.search(r"^\s*([^#\s])", text, re.M)
    return first is not None and first[1] in CLOSING


def by_indentation(place: Place) -> SyntaxFault | None:
    """Return the fault of the first bracket that the indentation of lines contradicts; None if none does.

    A bracket at the end of a line is closed at the beginning of a line with the same indentation.
    """
    rows, open_at = place.text.split("\n"), list[tuple[str, int, int]]()
    is_closed = place.text.lstrip().startswith("{") and place.text.rstrip().endswith("}")
    for number, row in enumerate(rows, 1):
        indent, code = len(row) - len(row.lstrip()), QUOTED.sub(lambda quoted: "x" * len(quoted[0]), row)
        if number > 1 and row.strip() and row == rows[number - 2] and row.rstrip()[-1:] in CLOSING:
            because = f"line {number} repeats line {number - 1} and opens a second bracket"
            return SyntaxFault(number, because, f"remove line {number}")
        if code.strip() and open_at and code.lstrip()[0] not in "}]" and indent <= open_at[-1][1]:
            bare = BARE.fullmatch(row) if is_closed and len(open_at) == 1 else None
            return _bare_key(bare, number) if bare else _unclosed_above(place, number, open_at[-1])
        for found in BRACKET.finditer(code):
            if found[0] in CLOSING:
                below = next((len(each) - len(each.lstrip()) for each in rows[number:] if each.strip()), 0)
                alone = not code[found.end() :].strip(" [{") and below > indent
                open_at.append((found[0], indent if alone else -1, number))
                continue
            if not open_at or CLOSING[open_at[-1][0]] != found[0]:
                return None
            opening, outer, begin = open_at.pop()
            if begin < number and outer >= 0 and code[: found.start()].strip():
                because = (
                    f"the {found[0]} closes the {opening} of line {begin}, but the two lines have "
                    "different indentation"
                )
                return SyntaxFault(
                    number, because, f"remove {found[0]} in line {number}, column {found.start() + 1}"
                )
            if begin < number and 0 <= indent < outer:
                return _unclosed_above(place, number, (opening, outer, begin))
    return None


def _unclosed_above(place: Place, number: int, opened: tuple[str, int, int]) -> SyntaxFault:
    """Return the fault of a bracket that should be closed above a line."""
    opening, _, begin = opened
    because = f"the {NOUNS[opening]} that begins with {opening} in line {begin} has no {CLOSING[opening]}"
    row, first = (place.text.split("\n")[each - 1].strip() for each in (number, begin))
    if first.endswith(2 * opening):
        return SyntaxFault(
            begin, f"line {begin} opens two brackets", f"remove one {opening} in line {begin}"
        )
    comma = "," if row[:1] not in ("}", "]") else ""
    return SyntaxFault(begin, because, f"add {CLOSING[opening]}{comma} at the end of line {number - 1}")


def last_open(text: str) -> int:
    """Return the offset of the last bracket that is not closed; -1 if none is."""
    open_at: list[int] = []
    for found in BRACKET.finditer(text):
        if found[0] in CLOSING:
            open_at.append(found.start())
        elif open_at:
            open_at.pop()
    return open_at[-1] if open_at else -1
