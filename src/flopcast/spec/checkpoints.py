"""The checkpoints of a run, as in "lazy file_system every=100".

Answers: with which method, where, how often and in how many files does a run write checkpoints?
Elsewhere: the bytes of each rank (workload/saved_states.py), the time (economics/checkpoints.py), which
storage a cluster has (rules_storage.py), the blocks that recompute keeps (workload/checkpoints.py).
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from flopcast.fixes import anew, in_place
from flopcast.quantities import joined_units, parse_quantity, parse_tokens
from flopcast.records import Record
from flopcast.spec.written_lists import corrected, meanings, or_text
from flopcast.strict_model import NotAllowedError, StrictModel

MethodName = Literal["synchronous", "asynchronous", "chunked", "lazy", "coalesced"]
StoreName = Literal["file_system", "nvme", "object_store", "host"]
STORES: tuple[str, ...] = get_args(StoreName)
OTHER_WORDS = {
    **dict.fromkeys(("s3", "gcs"), "object_store"),
    **dict.fromkeys(("lustre", "nfs"), "file_system"),
    **dict.fromkeys(("interval", "frequency"), "every"),
    **dict.fromkeys(("sync", "blocking"), "synchronous"),
    **dict.fromkeys(("disk", "ssd", "local"), "nvme"),
    "hourly": "every=1h",
    "daily": "every=24h",
}
HOST = "host"
SETTINGS = {"files": "files", "writers": "writers", "staging": "staging"}  # words of the short form


class Method(Record):
    """The work that a method of saving does while training waits, and the work that it does in the
    background.

    Attributes
    ----------
    hides_copy : whether the copy to the host runs beside the next forward and backward passes
    writes_while_copying : whether the write to storage begins with the copy, not after it
    waits_for_write : whether training waits until everything is written
    opens_files_later : whether files are opened by the writer in the background
    writes_in_python : whether the write in the background runs in Python, beside the training program
    background_fraction : share of the training speed that is lost while the write runs in the background,
        if it does not run in Python (economics/checkpoints.py has that of writers in Python)
    log_sigma_factor : uncertainty of the time that training waits
    """

    hides_copy: bool = False
    writes_while_copying: bool = False
    waits_for_write: bool = False
    opens_files_later: bool = False
    writes_in_python: bool = False
    background_fraction: float = 0.0
    log_sigma_factor: float = 0.3


METHODS: dict[str, Method] = {
    "synchronous": Method(waits_for_write=True, log_sigma_factor=0.5),
    "asynchronous": Method(opens_files_later=True, writes_in_python=True),
    "chunked": Method(writes_while_copying=True, background_fraction=0.1),
    "lazy": Method(hides_copy=True, writes_while_copying=True, background_fraction=0.1),
    "coalesced": Method(
        hides_copy=True, writes_while_copying=True, opens_files_later=True, background_fraction=0.1
    ),
}


class Checkpoint(StrictModel):
    """How a training run writes checkpoints.

    Attributes
    ----------
    method : str
        How a checkpoint is written. "synchronous": training waits until everything is written (torch.save).
        "asynchronous": training waits only for the copy to the host, which is then written in the
        background (PyTorch's asynchronous DCP). "chunked": like "asynchronous", but writing starts as soon
        as the first part is copied (TorchSnapshot). "lazy": the copy overlaps with the next forward and
        backward passes, and must end before the optimizer step (DataStates-LLM). "coalesced": like "lazy",
        but tensors and metadata are handed over as one stream of objects, and its writer opens the files
        (DataStates-LLM with State Providers).
    to : str
        Where checkpoints are written: the cluster's "file_system" or "object_store", the "nvme" drives of
        each node, or only the memory of the "host".
    every_steps : int or None
        Steps between two checkpoints.
    every_s : float or None
        Training time in seconds between two checkpoints. If neither this field nor `every_steps` is given,
        flopcast takes the interval with which the run loses the least time.
    files : str
        How a checkpoint is divided into files. "rank": each rank writes one file with all of its tensors.
        "layer": each tensor-parallel rank writes a file for every layer, and each rank also writes a file
        with its optimizer states (DeepSpeed with pipeline stages).
    writers : str
        Which ranks write state that several ranks hold. "one_replica": only one of them. "all_ranks": each
        of them writes a part (Megatron Core's fully parallel saving).
    staging : str
        Kind of host memory that asynchronous methods copy checkpoints to. "pinned": pinned memory that is
        allocated once and reused. "allocated": memory that is allocated for each checkpoint.
    host_bytes : float or None
        Host memory of a node for copies that are not yet written, such as "64 GB". By default, all free
        memory of the host.

    References
    ----------
    Methods: arXiv:2406.10707 (DataStates-LLM, HPDC 2024), sections 3 to 5, which compares the first four;
    "coalesced": arXiv:2601.16956 and `llm/datastates/engines/engine_state.py` of github.com/DataStates/
    datastates-llm. Speed lost in the background: the writers of the last three methods do not run in
    Python, and 0.1 is an estimate.
    """

    method: MethodName = "asynchronous"
    to: StoreName = "file_system"
    every_steps: int | None = Field(default=None, ge=1)
    every_s: float | None = Field(default=None, gt=0)
    files: Literal["rank", "layer"] = "rank"
    writers: Literal["one_replica", "all_ranks"] = "one_replica"
    staging: Literal["pinned", "allocated"] = "pinned"
    host_bytes: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_period(self) -> "Checkpoint":
        if self.every_steps is not None and self.every_s is not None:
            because = "both fields set the interval between two checkpoints"
            raise NotAllowedError("either every_steps or every_s", because, "leave out every_s")
        return self

    @property
    def how(self) -> Method:
        """Return the properties of the method."""
        return METHODS[self.method]

    def text(self) -> str:
        """Return the short form, from which the same checkpoint can be read.

        >>> Checkpoint(method="lazy", every_steps=100, files="layer").text()
        'lazy file_system every=100 files=layer'
        """
        period = [f"every={self.every_steps}"] if self.every_steps else []
        period += [f"every={self.every_s!r}s".replace(".0s", "s")] if self.every_s else []
        others = [
            f"{word}={getattr(self, name)}"
            for word, name in SETTINGS.items()
            if getattr(self, name) != type(self).model_fields[name].default
        ]
        cache = [f"cache={self.host_bytes!r}B"] if self.host_bytes else []
        return " ".join([self.method, self.to, *period, *others, *cache])


def _of_text(given: object) -> object:
    """Return the mapping that a short form means; other values unchanged.

    A mapping may contain a short form as `base`, and change its settings, as KEY=VALUE on the command line
    does.

    Raises
    ------
    ValueError
        A word has no meaning, or states again what another one states.
    """
    if isinstance(given, Mapping) and isinstance(base := given.get("base"), str):
        stated = _of_text(base)
        changes = {key: value for key, value in given.items() if key != "base"}
        return {**stated, **changes} if isinstance(stated, dict) else given
    if not isinstance(given, str):
        return given
    found: dict[str, object] = {}
    text = joined_units(given.replace(",", " "))
    if (right := re.sub(r"\bevery +", "every=", text)) != text:
        because = "an equals sign joins a word and its value"
        try:
            _of_text(right)
        except NotAllowedError as error:
            right, because = corrected(right, error.fix), f"{because}; {error.because}"
        raise NotAllowedError("every=STEPS, or every=TIME such as every=10min", because, anew(right))
    words = text.split()
    for word, (key, value) in zip(words, meanings(words, _setting, given, " "), strict=True):
        if key in found:
            raise NotAllowedError(
                "each setting only once",
                f"{word} sets a field that another word already sets",
                f"leave out {word}",
            )
        found[key] = value
    return found


def _setting(word: str) -> tuple[str, object]:
    """Return the field and the value that a word of the short form sets."""
    name, equals, value = word.partition("=")
    if not equals and name in METHODS:
        return "method", name
    if not equals and name in STORES:
        return "to", name
    if name == "every":
        with suppress(ValueError):
            if (
                not re.fullmatch(r"[\d.]+m", value)
                and (steps := parse_tokens(value, r"steps?|iterations?|iters?")).is_integer()
            ):
                return "every_steps", int(steps)
        return "every_s", _quantity(word, "s", "every=STEPS, or every=TIME such as every=10min")
    if name == "cache":
        return "host_bytes", _quantity(word, "B", "cache=SIZE, such as cache=64GB")
    if equals and name in SETTINGS:
        return SETTINGS[name], value
    words = ", ".join(
        [*METHODS, *STORES, "every=100", "every=10min", *(f"{key}=…" for key in SETTINGS), "cache=64GB"]
    )
    right = f"every={word}" if word.isdecimal() else _meant(name, equals, value)
    fix = in_place(right, word) if right else f"remove {word}"
    fix = "leave out the checkpoint" if word == "none" else fix
    raise NotAllowedError(f"words of this list: {words}", f"{word!r} is none of these words", fix)


def _meant(name: str, equals: str, value: str) -> str:
    """Return the word that a word without a meaning probably stands for; "" if there is none.

    >>> _meant("asyn", "", ""), _meant("mode", "=", "async"), _meant("interval", "=", "9")
    ('asynchronous', 'asynchronous', 'every=9')
    """
    from difflib import get_close_matches  # only a wrong word needs it

    words = ("every", "cache", *SETTINGS) if equals else (*METHODS, *STORES)
    begun = [word for word in words if len(name) > 3 and word.startswith(name)]
    near = [OTHER_WORDS[name]] if name in OTHER_WORDS else begun
    near = near or get_close_matches(name, words, n=1, cutoff=0.6 if equals else 0.5)
    if not equals or near:
        return f"{near[0]}{equals}{value}" if near else ""
    return (
        value if value in (*METHODS, *STORES) else "file_system" if "/" in value else _meant(value, "", "")
    )


def _quantity(word: str, unit: str, allowed: str) -> float:
    """Return the quantity that a word of the short form states, such as "every=10min"."""
    text = word.partition("=")[2]
    try:
        return parse_quantity(text, (unit, "min", "h") if unit == "s" else (unit,))
    except ValueError:
        because = f"{text!r} is not a number with a known unit"
        from flopcast.meant_quantities import in_digits, meant_quantity

        digits, units = in_digits(text.strip("-")), (unit, "min", "h") if unit == "s" else (unit,)
        right = (
            {"s": digits, "B": f"{digits}GB"}[unit] if digits.isdecimal() else meant_quantity(digits, units)
        )
        name = word.partition("=")[0]
        if unit == "s" and (steps := re.fullmatch(r"(\d+)([a-z]+)", digits)):
            from difflib import get_close_matches

            right = steps[1] if get_close_matches(steps[2], ("steps", "iterations", "iters")) else right
        example = allowed.rpartition("such as ")[2]
        fix = in_place(f"{name}={right.replace(' ', '')}" if right else example, word)
        raise NotAllowedError(allowed, because, fix) from None


EXAMPLE = "lazy file_system every=100"
CheckpointField = Annotated[
    Checkpoint | None, BeforeValidator(_of_text), Field(json_schema_extra=or_text(EXAMPLE))
]
