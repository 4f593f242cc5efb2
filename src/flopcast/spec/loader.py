"""The stages of data loading: "decode=9ms:8,copy=602kB@link".

Answers: what does each stage do with a sample, with how many workers, and does the step wait for it?
Elsewhere: the times of stages (report/loader.py), storage and memory that stages need (rules_storage.py).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from flopcast.fixes import in_place, write
from flopcast.quantities import joined_units, parse_quantity, parse_rate
from flopcast.spec.written_lists import or_text
from flopcast.strict_model import NotAllowedError, StrictModel

Path = Literal["link", "pageable", "zero_copy", "peers", "host", "nvme", "file_system", "object_store"]
PATHS: tuple[str, ...] = get_args(Path)
OF_LINK = ("link", "pageable", "zero_copy")  # paths that use the link between host and device
OF_ROWS = ("zero_copy", "host")  # paths that read scattered rows
EXAMPLE = "decode=9ms:8,copy=602kB@link"
WORKERS = ("workers", "num_workers")  # where people write those of a stage
KEYWORDS = ("exposed", "all")  # of the short form
WORD = re.compile(
    r"[^\s,]+?(?:(?<=\d) +[a-z]{3,})?(?=[\s,]|$)"
)  # of the short form; "3 miles" is a wrong value


class LoaderStage(StrictModel):
    """One stage of an input pipeline.

    It either processes each sample for some time, or moves some bytes of each sample.

    Attributes
    ----------
    name : str
        Name of the stage in reports.
    sample_s : float or None
        Seconds that one worker needs for a sample.
    workers : int
        Workers of each data-parallel rank that share the samples, as `num_workers` of a PyTorch DataLoader.
    sample_bytes : float or None
        Bytes of a sample that the stage moves. A stage has either `sample_bytes` or `sample_s`.
    through : str
        Path of the bytes. "link": a copy from pinned memory to the device. "pageable": a copy
        from memory that is not pinned. "zero_copy": the device itself reads scattered rows from the memory
        of the host. "peers": the device reads rows that are sharded over the memories of all devices which
        the fastest network connects. "host": the host gathers rows in its own memory. "nvme", "file_system"
        or "object_store": a read from this storage.
    row_bytes : float or None
        Size of a row that "zero_copy" or "host" reads. A partly used cache line counts in full. By default,
        samples are contiguous.
    overlapped : bool
        Whether the stage prepares later batches while the devices compute. If false, every step waits for
        the stage.
    """

    name: str = Field(min_length=1)
    sample_s: float | None = Field(default=None, gt=0)
    workers: int = Field(default=1, ge=1)
    sample_bytes: float | None = Field(default=None, gt=0)
    through: Path = "link"
    row_bytes: float | None = Field(default=None, gt=0)
    overlapped: bool = True

    @model_validator(mode="after")
    def _one_kind(self) -> "LoaderStage":
        if (self.sample_s is None) == (self.sample_bytes is None):
            because = "a stage either processes a sample (sample_s) or moves its bytes (sample_bytes)"
            raise NotAllowedError("either sample_s or sample_bytes", because, "state one of them")
        if self.row_bytes is not None and (self.sample_s is not None or self.through not in OF_ROWS):
            because = "only stages with through: zero_copy or host read scattered rows"
            raise NotAllowedError("no row_bytes in this stage", because, "remove row_bytes")
        if self.sample_bytes is not None and self.workers > 1:
            because = "the rate of a memory, a link or a storage does not depend on workers"
            raise NotAllowedError("no workers in a stage with sample_bytes", because, "remove workers")
        if self.sample_s is not None and self.through != "link":
            because = "a stage with sample_s processes samples and moves no bytes"
            raise NotAllowedError("no through in a stage with sample_s", because, "remove through")
        return self

    @field_validator("name")
    @classmethod
    def _is_word(cls, name: str) -> str:
        if name in KEYWORDS or re.search(r"[\s,=+]", name):
            because = "these words and signs have a meaning in the short form of a loader"
            words = ", ".join(KEYWORDS)
            raise NotAllowedError(
                f"a name without spaces, commas, = and +, other than {words}", because, "write decode"
            )
        return name

    def text(self) -> str:
        """Return the stage in the short form.

        >>> LoaderStage(name="decode", sample_s=0.009, workers=8).text()
        'decode=0.009s:8'
        >>> LoaderStage(name="gather", sample_bytes=12e3, through="zero_copy", row_bytes=400).text()
        'gather=12000.0B@zero_copy:400.0B'
        """
        if self.sample_s is not None:
            return f"{self.name}={self.sample_s!r}s:{self.workers}"
        row = "" if self.row_bytes is None else f":{self.row_bytes!r}B"
        return f"{self.name}={self.sample_bytes!r}B@{self.through}{row}"


class Loader(StrictModel):
    """An input pipeline.

    Attributes
    ----------
    stages : tuple of LoaderStage
        The stages, in the order in which a sample passes them. Overlapped stages process different batches
        at the same time.
    """

    stages: tuple[LoaderStage, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> "Loader":
        names = [stage.name for stage in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise _named_twice(name)
        return self

    def text(self) -> str:
        """Return the short form, from which the same pipeline can be read.

        >>> decode = LoaderStage(name="decode", sample_s=0.009)
        >>> copy = LoaderStage(name="copy", sample_bytes=5e5, overlapped=False)
        >>> Loader(stages=(decode, copy)).text()
        'decode=0.009s:1,copy=500000.0B@link,exposed=copy'
        """
        words = [stage.text() for stage in self.stages]
        exposed = [stage.name for stage in self.stages if not stage.overlapped]
        return ",".join([*words, *([f"exposed={'+'.join(exposed)}"] if exposed else [])])


def _named_twice(name: str) -> NotAllowedError:
    """Return what is wrong with two stages of one name."""
    because = "each stage is identified by its name"
    fix = f"write {name}2 in place of the second {name}"
    return NotAllowedError(f"a different name for each stage, but {name!r} occurs twice", because, fix)


def _of_text(given: object) -> object:
    """Return the mapping that a short form means; anything else as it is.

    A mapping may change the stages of a short form, its `base`, as KEY=VALUE on the command line does.
    "none" describes no loader, which removes the one of a file.

    Raises
    ------
    ValueError
        A word has no meaning, or names no stage.
    """
    if given == "none":
        return None
    if isinstance(given, str):
        return {"stages": _stages(given)}
    if isinstance(given, Mapping) and given and given.keys().isdisjoint(("stages", "base")):
        words = [f"{name}={value}" for name, value in given.items() if name not in WORKERS]
        words[:1] = [
            f"{word}:{given[name]}" for name in WORKERS for word in words[:1] if name in given
        ] or words[:1]
        because = "each stage of the short form is a name with its time or size"
        raise NotAllowedError(
            f"a text such as {EXAMPLE}, or a list of stages", because, {"loader": ",".join(words)}
        )
    if not isinstance(given, Mapping) or not isinstance(base := given.get("base"), str):
        return given
    stages, changes = _stages(base), given.get("stages") or {}
    for place, stage in enumerate(stages):
        if isinstance(changes, Mapping) and isinstance(changed := changes.get(str(place)), Mapping):
            stage.update(changed)
    return {key: value for key, value in given.items() if key != "base"} | {"stages": stages}


def _stages(text: str) -> list[dict[str, object]]:
    stages: list[dict[str, object]] = []
    exposed: list[str] = []
    for word in WORD.findall(joined_units(text)):
        name, _, value = word.partition("=")
        if name in WORKERS and stages and "sample_s" in stages[-1]:
            because = "the number of workers follows the time of its stage, after a colon"
            both = re.search(rf"({stages[-1]['name']}=[^\s,]+)[\s,]+{re.escape(word)}", text)
            fix = in_place(f"{both[1]}:{value}", both[0]) if both else f"remove {word}"
            raise NotAllowedError("TIME:WORKERS", because, fix)
        if not name or not value:
            because = "a stage consists of a name and its time or size"
            fix = in_place(f"decode={word}" if word[0].isdigit() else f"{name}=9ms", word)
            if spaced := re.fullmatch(
                r"([a-z]\w*)\W+(\d[^\s,]*)(?:\s*[x×*:]\s*(\d+))?", joined_units(text.strip())
            ):
                fix = write(f"{spaced[1]}={spaced[2]}" + f":{spaced[3]}" * bool(spaced[3]))
            raise NotAllowedError("stages of the form NAME=VALUE, such as decode=9ms:8", because, fix)
        if name == "exposed":
            exposed += value.split("+")
        else:
            stages.append({"name": name} | _stage(word, value))
    names = [str(stage["name"]) for stage in stages]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise _named_twice(twice)
    for name in exposed:
        if name not in (*names, "all"):
            because = "exposed lists the stages that every step waits for"
            raise NotAllowedError(
                f"exposed={'+'.join(names)}, or only some of these stages, but no stage is called {name!r}",
                because,
                "write exposed=all",
            )
    for stage in stages:
        if "all" in exposed or stage["name"] in exposed:
            stage["overlapped"] = False
    return stages


def _stage(word: str, value: str) -> dict[str, object]:
    """Return the fields of a stage: "9ms:8", "110/s:8", "602kB@link" or "12kB@zero_copy:400B"."""
    amount, at, way = value.partition("@")
    if at:
        through, colon, row = way.partition(":")
        fields: dict[str, object] = {"sample_bytes": _quantity(word, amount, "B"), "through": through}
        if through not in PATHS:
            from difflib import get_close_matches  # only a wrong word needs it

            because = "flopcast knows only the rates of these paths"
            near = next(iter(get_close_matches(through, PATHS, n=1)), "link")
            fix = in_place(f"{amount}@{near}", value)
            raise NotAllowedError(f"one of {', '.join(PATHS)} after @ instead of {through!r}", because, fix)
        return fields | ({"row_bytes": _quantity(word, row, "B")} if colon else {})
    amount, colon, workers = value.partition(":")
    if colon and not (workers.isdecimal() and int(workers)):
        idle = workers.isdecimal()
        because = (
            "with 0 workers, no process would decode the samples"
            if idle
            else "the number after the colon is the number of workers"
        )
        allowed = "TIME:WORKERS, where WORKERS is a whole number of at least 1"
        raise NotAllowedError(allowed, because, f"write {word.replace(value, amount)}:{(1 if idle else 8)}")
    rate = "/" in amount
    fields = {"sample_s": 1 / _rate(word, amount) if rate else _quantity(word, amount, "s")}
    return fields | ({"workers": int(workers)} if colon else {})


def _rate(word: str, text: str) -> float:
    """Return samples per second, of "110/s"."""
    try:
        rate = parse_rate(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        because = "a rate is the number of samples per second of one worker"
        right = word.replace(text, "110/s")
        raise NotAllowedError(f"a rate such as 110/s, unlike that of {word!r}", because, f"write {right}")
    return rate


def _quantity(word: str, text: str, unit: str) -> float:
    try:
        found = parse_quantity(text, (unit,))
    except ValueError:
        found = 0.0
    if found <= 0:
        because = "a stage has a time (9ms), a rate (110/s) or a size (602kB@link) for each sample"
        because += f", and {word!r} has no such value"
        fix = in_place(_meant(word, text, unit), word)
        raise NotAllowedError("a number above 0 with its unit", because, fix)
    return found


def _meant(word: str, text: str, unit: str) -> str:
    """Return a stage with the time or the size that a wrong quantity probably means.

    >>> _meant("decode=9:8", "9", "s"), _meant("copy=6KB", "6KB", "s"), _meant("read=9ms@link", "9ms", "B")
    ('decode=9ms:8', 'copy=6kB@link', 'read=9ms')
    """
    if re.fullmatch(r"[\d.]+[a-z]+\*\d+", text):  # a time and its workers
        return word.replace("*", ":")
    if re.match(r"(?:num_)?workers=\d+$", word):
        return f"decode=9ms:{text}"
    plain = text.strip("-")
    from flopcast.meant_quantities import meant_quantity

    time, size = (meant_quantity(plain, units).replace(" ", "") for units in (("s", "min", "h"), ("B",)))
    if not re.search("[1-9]", plain):
        time = size = ""
    elif plain.isdecimal():
        time, size = f"{plain}ms", f"{plain}kB"
    if unit == "s":
        return word.replace(text, time or (size and f"{size}@link") or "9ms", 1)
    return word.replace(text, size, 1) if size else f"{word.partition('=')[0]}={time or '602kB@link'}"


LoaderField = Annotated[Loader | None, BeforeValidator(_of_text), Field(json_schema_extra=or_text(EXAMPLE))]
