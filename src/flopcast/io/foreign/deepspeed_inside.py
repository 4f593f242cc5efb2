"""DeepSpeed's settings inside a trainer's file, or the name of the file that has them.

Answers: which sharding and which stack do they ask for, and do they agree with the trainer?
Elsewhere: the keys by themselves (deepspeed.py), what trainers have in common (tuning.py).

References
----------
huggingface/transformers: src/transformers/integrations/deepspeed.py (`trainer_config_process`: values that
the Trainer says too must be equal or "auto"; an optimizer of the configuration is the engine's own).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from flopcast.io.foreign import deepspeed
from flopcast.io.foreign.keys import keys_of
from flopcast.io.foreign.sheet import AUTO, Sheet
from flopcast.io.yaml_text import Document

STAGE = re.compile(r"(?:zero|z)[-_]?(?:stage[-_]?)?([0-3])(?![0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Batch:
    """A trainer's batch: sequences of a device, accumulations, data-parallel ranks."""

    micro: int
    steps: int
    replicas: int


def read_inside(sheet: Sheet, batch: Batch, precision: str) -> object:
    """The stack of DeepSpeed's settings that stand in the file, or of what another file's name tells.

    No other file is opened.

    Parameters
    ----------
    sheet : Sheet
        Of the trainer's file; its plan gets the sharding.
    batch : Batch
        As the trainer says it.
    precision : str
        The plan's.
    """
    if sheet.below("deepspeed"):
        return _inline(sheet, batch, precision)
    path = sheet.text("deepspeed")
    found = STAGE.search(path.replace("\\", "/").rpartition("/")[2])
    if not found:
        because = "no other file is opened, and its name tells no ZeRO stage"
        fix = "put the file's content in place of its path"
        if not sheet.faulty("deepspeed"):
            sheet.fault("deepspeed", "settings, or the name of a file such as zero3.json", because, fix)
        return "deepspeed-zero"
    stage = int(found[1])
    sheet.assume(f"ZeRO stage {stage} by the name {path}, which is not opened", "deepspeed")
    sheet.put(("plan", "zero"), stage, "deepspeed")
    if "offload" in path.lower():
        sheet.put(("plan", "offload"), True, "deepspeed")
    changes: dict[str, object] = {"gradients": {"dtype": precision_bytes(precision), "overlap": True}}
    return {"base": "deepspeed-zero"} | changes


def precision_bytes(precision: str) -> str:
    """The 16-bit type of gradients under a precision."""
    return "fp16" if precision == "fp16" else "bf16"


def _inline(sheet: Sheet, batch: Batch, precision: str) -> object:
    """DeepSpeed's settings inside the file, read as its own file is."""
    whole: Mapping[str, object] = sheet.document.data if isinstance(sheet.document.data, dict) else {}
    lines = {path[1:]: line for path, line in sheet.document.lines.items() if path[:1] == ("deepspeed",)}
    inner = Sheet(
        Document(sheet.document.name, whole["deepspeed"], lines), keys_of("deepspeed"), sheet.asked
    )
    stage = deepspeed.read_sharding(inner)
    changes = deepspeed.stack_changes(inner, stage, precision_bytes(precision))
    _agree(inner, batch, precision)
    kind = inner.choice("optimizer.type", deepspeed.OPTIMIZERS, "")
    if kind:  # the engine's optimizer takes the place of the trainer's
        inner.put(("plan", "optimizer"), kind, "optimizer.type")
    for key in (deepspeed.TENSOR, deepspeed.SEQUENCE):
        if inner.count(key, 1, least=0) > 1:
            inner.refuse(key, "parallelism that the trainer's file does not know", f"remove {key}")
    for path, value in _leaves(inner.data):
        sheet.put(path, value)
    sheet.lines |= inner.lines
    sheet.problems += inner.problems
    sheet.assumptions += inner.assumptions
    return {"base": "deepspeed-zero"} | changes


def _agree(inner: Sheet, batch: Batch, precision: str) -> None:
    """The fault of what both say, and not alike: the Trainer of transformers would not start."""
    half = precision == "fp16"
    said = {
        deepspeed.MICRO: batch.micro,
        deepspeed.STEPS: batch.steps,
        deepspeed.TOTAL: batch.micro * batch.steps * batch.replicas,
        "fp16.enabled": half,
        "bf16.enabled": not half,
        "bfloat16.enabled": not half,
    }
    for key, value in said.items():
        if inner.raw(key) not in (None, AUTO, value):
            told = str(value).lower()
            inner.fault(key, f'"auto", or {told}', "the trainer says it too", 'write "auto"')


def _leaves(data: dict[str, object]) -> list[tuple[tuple[str, str], object]]:
    """Values of a document with two levels."""
    return [
        ((part, name), value)
        for part, inner in data.items()
        if isinstance(inner, dict)
        for name, value in inner.items()
    ]
