"""Reader of run tables: converts the rows of CSV files to runs.

Answers: which runs does this file contain, and which of its rows cannot be read?
Elsewhere: the meaning of columns (headers.py), the job of a run (job.py). A row that cannot be read is
reported with its line and reason, and the others are kept.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flopcast.errors import Problem, SpecError, collected, spec_error
from flopcast.files.field_names import same_elsewhere
from flopcast.files.field_paths import dotted
from flopcast.files.nearest_names import nearest
from flopcast.fixes import in_place, in_words
from flopcast.lab.published import headers
from flopcast.lab.published.cells import MEMORY_UNITS
from flopcast.lab.published.functional_tests import FUNCTIONAL_TESTS, HEADER
from flopcast.lab.published.headers import GIB, HEADERS, MEMORY, PUBLISHED, Column, Header, Place, header_of
from flopcast.lab.samples.columns import as_number, read_rows
from flopcast.lab.validation.run import Run
from flopcast.meant_quantities import meant_count, meant_quantity, with_unit_factor
from flopcast.quantities import parse_quantity
from flopcast.records import Record, replace
from flopcast.units import units_of

WORST_DISAGREEMENT = 3.0  # between a step time and a rate of tokens; one source prints half its own rate
MOST = 1e12  # of anything that is counted: more is no count
STEP_COLUMN = "step_time_s"
SAME_COLUMN = 0.85  # of letters in common, from which a name misspells that of a column
WORDS = {"true": True, "false": False}
TITLES = {column.to: title for title, column in PUBLISHED.columns.items()}
PARTS = ("architecture", "machine", "mapping", "software", "observed")


class RunTable(Record):
    """The runs of one file, the faults of other rows, and the ids of these rows by their place.

    `corrected` are the runs of these rows after all fixes, if their fixes correct them; a wrong measurement
    is replaced by 1.
    """

    runs: tuple[Run, ...]
    problems: tuple[Problem, ...]
    unread: Mapping[str, str]
    corrected: tuple[Run, ...] = ()


def read_tables(paths: Sequence[Path]) -> list[RunTable]:
    """Return the rows of several files.

    Raises
    ------
    SpecError
        As for `read_table`, for all files.
    """
    tables: list[RunTable] = []
    problems: list[Problem] = []
    for path in paths:
        with collected(problems):
            tables.append(read_table(path))
    if problems:
        raise SpecError(problems)
    return tables


def read_table(path: Path) -> RunTable:
    """Return every row of a file whose header is known.

    Raises
    ------
    SpecError
        The file cannot be read, or its header belongs to no known kind of table.
    """
    allowed = "a table with a row for each run"
    if path.suffix == ".json":
        fix = "compare the result of one benchmark with a prediction: flopcast predict --model NAME"
        fix = f"{fix} --engine vllm --log {path}"
        raise spec_error("--runs", str(path), allowed, "the file is JSON, not CSV or YAML", fix)
    rows = list(read_rows(path))
    if not rows:
        fix = "give a file with rows"
        raise spec_error("--runs", str(path), allowed, "the file has a header but no rows", fix)
    columns = tuple(name for name in rows[0][1] if name)
    header = header_of(columns)
    if header is None or (names := _misspelt(columns, header)):
        problem, header, names = (
            _unknown_header(path, columns)
            if header is None
            else (_of_columns(path, header, names), header, names)
        )
        faults = [problem]
        for line, row in rows:
            renamed = {names.get(name, name): text for name, text in row.items()}
            if {*header.marks} <= renamed.keys():
                faults += _run_and_faults(renamed, header, f"{path}:{line}", path.stem)[1]
            else:
                _facts(renamed, header, f"{path}:{line}", faults)
        raise SpecError(faults)
    runs: list[Run] = []
    problems: list[Problem] = []
    places: dict[str, str] = {}
    unread: dict[str, str] = {}
    corrected: list[Run] = []
    titles = [title for title, column in header.columns.items() if column.to == ("", "id")]
    for line, row in rows:
        place = f"{path}:{line}"
        run, faults = _run_and_faults(row, header, place, f"{path.stem}-{line}")
        if run is None or faults:
            problems += faults
            corrected += [run] if run else []
            unread[place] = next(filter(None, ((row.get(title) or "").strip() for title in titles)), place)
            continue
        if run.id in places:
            because = f"the row at {places[run.id]} has the same id; one of the two rows may be a copy"
            problems.append(_fault(place, "id", run.id, "a unique id", because))
            corrected.append(run)
            unread[place] = run.id
            continue
        places[run.id] = place
        runs.append(run)
    return RunTable(runs=tuple(runs), problems=tuple(problems), unread=unread, corrected=tuple(corrected))


def _run_and_faults(
    row: Mapping[str, str], header: Header, place: str, name: str
) -> tuple[Run | None, list[Problem]]:
    """Return one row as a run, after the fixes of its faults; None if these do not correct it."""
    try:
        return _run(row, header, place, name), []
    except SpecError as error:
        faults = [*error.problems]
    observed = [title for title, column in header.columns.items() if column.to[0] == "observed"]
    right = {each.field: "1" for each in faults if each.field in observed}
    right |= {each.field: in_words(*edit.values()) for each in faults for edit in each.edits}
    if len(right) < len(faults):
        return None, faults
    try:
        return _run({**row, **right}, header, place, name), faults
    except SpecError as error:
        return None, [*faults, *(each for each in error.problems if each.field not in right)]


def _run(row: Mapping[str, str], header: Header, place: str, name: str) -> Run:
    """Return one row as a run.

    Raises
    ------
    SpecError
        Cells do not contain a value for their column, or contradict each other. All faults are listed.
    """
    faults: list[Problem] = []
    facts: dict[Place, object] = {("", "id"): name, ("", "where"): place, ("", "refused"): header.refused}
    facts |= header.common
    if None in row or None in row.values():
        raise SpecError([_torn(row, place)])
    row = header.translate(row) if header.translate else row
    facts |= _facts(row, header, place, faults)
    if faults:
        raise SpecError(faults)
    unit = str(facts.get(("observed", "memory_unit"), "")).split(" ")[0]
    if MEMORY in facts and unit in MEMORY_UNITS:
        facts[MEMORY] = facts[MEMORY] / GIB * MEMORY_UNITS[unit]  # type: ignore[operator]
    read = {*header.columns, *header.derived, *header.passive}
    facts[("", "unused")] = tuple(
        f"{name} = {text}" for name, text in row.items() if name not in read and text.strip()
    )
    data: dict[str, object] = {part: {} for part in PARTS}
    for (part, field), value in facts.items():
        (data if not part else data[part])[field] = value  # type: ignore[index]
    if "micro_batches" in row:
        known = dict(data["mapping"]) if isinstance(data["mapping"], dict) else {}
        factors = [known.get(name) or 1 for name in ("global_batch", "data_parallel", "micro_batch")]
        data["mapping"] = known | {"global_batch": int(factors[0] * factors[1] * factors[2])}
    run = _built(data, place)
    _check_units(run)
    return run


def _facts(
    row: Mapping[str, str], header: Header, place: str, faults: list[Problem]
) -> dict[Place, object]:
    """Return the values of a row by their fact, and add the faults of its cells."""
    return {
        column.to: _value(text, title, column, place, faults)
        for columns in (header.derived, header.columns)  # what is printed replaces what was derived
        for title, column in columns.items()
        if (text := (row.get(title) or "").strip())
    }


def _value(text: str, name: str, column: Column, place: str, faults: list[Problem]) -> object:
    """Return a cell as text, truth value or number, by the type of its fact."""
    kind = _kind(column.to)
    if kind == "text":
        return text
    if kind == "truth":
        if text.lower() not in WORDS:
            faults.append(_fault(place, name, text, "true or false", "this column contains true or false"))
        return WORDS.get(text.lower())
    number = as_number(text)
    if number is None:
        problem = _fault(place, name, text, "a number", "this column contains numbers")
        units = units_of(column.to[1])
        right = text.replace(",", ".") if re.fullmatch(r"\d+,\d+", text) else meant_count(text)
        if units and (quantity := meant_quantity(text, units)):
            right = f"{parse_quantity(quantity, units) / column.unit_factor:.10g}"
        faults.append(replace(problem, fix=in_place(right, text)) if right else problem)
        return None
    if kind == "count":
        whole = number.is_integer() and abs(number) <= MOST
        if not whole:
            faults.append(
                _fault(
                    place,
                    name,
                    text,
                    f"a whole number up to {MOST:.0e}",
                    "this column contains whole numbers",
                )
            )
        return int(number) if whole else None
    return number * column.unit_factor


def _kind(to: Place) -> str:
    """Return the type of a fact (text, truth value, count or measure) from the type of its field."""
    part, field = to
    noun = Run.model_fields[part].annotation if part else Run
    annotation = str(noun.model_fields[field].annotation)  # type: ignore[union-attr]
    if "bool" in annotation:
        return "truth"
    if "float" in annotation:
        return "measure"
    return "count" if "int" in annotation or "0, 1" in annotation else "text"


def _built(data: dict[str, object], place: str) -> Run:
    """Return the run, or the faults of its values with the place of the row. Its numbers have no units."""
    try:
        return Run.model_validate(data)
    except ValidationError as error:
        raise SpecError(_broken_value(detail, place) for detail in error.errors()) from None


def _broken_value(detail: Mapping[str, Any], place: str) -> Problem:
    field = TITLES.get(detail["loc"], dotted(detail["loc"]))
    if detail["type"] == "missing":
        return _fault(place, field, None, "a value", "the row does not state it")
    allowed = detail["msg"].replace("Input should be ", "a value that is ")
    value = detail["input"]
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    problem = _fault(place, field, value, allowed, "the value is out of range")
    near = nearest(str(value), re.findall(r"'(\w+)'", allowed))
    return replace(problem, fix=in_place(near[0], value)) if near else problem


def _check_units(run: Run) -> None:
    """Yield a fault if step time and token rate disagree, as when milliseconds are given as seconds."""
    plan, seen = run.mapping, run.observed
    sizes = (plan.global_batch, run.sequence_length, run.machine.num_devices)
    if seen.step_time_s is None or seen.device_tokens_per_s is None or None in sizes:
        return
    tokens = (plan.global_batch or 0) * (run.sequence_length or 0) / (run.machine.num_devices or 1)
    ratio = seen.step_time_s * seen.device_tokens_per_s / tokens
    if not 1 / WORST_DISAGREEMENT < ratio < WORST_DISAGREEMENT:
        because = (
            f"the tokens/s of the row imply a step that is {ratio:.3g} times shorter, so one of the two"
            f" values may be in another unit"
        )
        allowed = "a step time in seconds that agrees with the tokens/s of the row"
        raise SpecError([_fault(run.where, STEP_COLUMN, seen.step_time_s, allowed, because)])


def _misspelt(columns: Sequence[str], header: Header) -> dict[str, str]:
    """Return the columns that are not read, but misspell one that is, each with its right name."""
    absent = [title for title in header.columns if title not in columns]
    others = {*columns} - {*header.columns, *header.derived, *header.passive}
    near = ((other, get_close_matches(other, absent, n=1, cutoff=SAME_COLUMN)) for other in sorted(others))
    return {other: right[0] for other, right in near if right}


def _of_columns(path: Path, header: Header, names: Mapping[str, str]) -> Problem:
    """Return the fault of misspelt columns, which would not be read."""
    because = f"flopcast reads no column with the name {' or '.join(names)}"
    renamed = ", ".join(f"write {right} in place of {other}" for other, right in names.items())
    fix = f"{renamed} in line 1{''.join(with_unit_factor(*each) for each in names.items())}"
    allowed = f"columns with these names: {', '.join(header.columns)}"
    return Problem("--runs", str(path), allowed, because, fix, where=f"{path}:1")


def _torn(row: Mapping[str, str], place: str) -> Problem:
    """Return the fault of a row with too few or too many cells, or of an open quote."""
    cells = [cell for cell in row.values() if isinstance(cell, str)]
    because = f"the row has {len(cells)} cells, and the header has {len(row)} columns"
    if None in row:
        because = "the row has more cells than the header has columns"
    lines = sum(cell.count("\n") for cell in cells)
    if lines:
        because += f"; the row spans {lines + 1} lines, so a closing quote may be missing"
    first = cells[0].partition("\n")[0] if cells else ""
    return _fault(place, "row", first, "as many cells as the header has", because)


def _fault(place: str, field: str, value: object, allowed: str, because: str) -> Problem:
    fix = f"write {allowed} in {field}, or remove the row"
    return Problem(field, value, allowed, because, fix, where=place)


def _unknown_header(path: Path, columns: tuple[str, ...]) -> tuple[Problem, Header, dict[str, str]]:
    """Return the fault of a table of unknown kind, with the columns that it lacks for the nearest kind.

    With it come this kind, and the columns that its own columns mean.
    """
    kinds = {name: header.marks for name, header in HEADERS.items()}
    allowed = f"a table of one of these kinds: {'; '.join(kinds)}"
    if set(HEADER) <= set(columns):
        because = f"the table has the columns of {FUNCTIONAL_TESTS}, to which flopcast fits no constants"
        fix = f"run flopcast validate --runs {path.name}"
        return Problem("--runs", str(path), allowed, because, fix, where=f"{path}:1"), PUBLISHED, {}
    missing = {name: [mark for mark in marks if mark not in columns] for name, marks in kinds.items()}
    name = min(kinds, key=lambda kind: len(missing[kind]) / len(kinds[kind]))
    has_none = len(missing[name]) == len(kinds[name])
    if len(missing[name]) > len(kinds[name]) / 2:
        name = next(iter(kinds))  # a table of one's own
    because = f"the header does not contain {', '.join(missing[name])}, which a table of {name} has"
    read = {*kinds[name], *HEADERS[name].columns, *HEADERS[name].derived, *HEADERS[name].passive}
    others = {*columns} - read
    same = {same_elsewhere(other, missing[name]): other for other in sorted(others)}
    rest = others - {*same.values()}
    near = {mark: same.get(mark) or next(iter(nearest(mark, rest)), "") for mark in missing[name]}
    known = (*columns, *(mark for mark, other in near.items() if other))
    slips = _misspelt([each for each in known if each not in near.values()], HEADERS[name])
    near |= {right: other for other, right in slips.items()}
    if has_none:
        because = "the first line contains no column of these kinds"
    fix = f"{headers.edits_of_header(near)} in line 1"
    problem = Problem("--runs", str(path), allowed, because, fix, where=f"{path}:1")
    return problem, HEADERS[name], {other: mark for mark, other in near.items() if other}
