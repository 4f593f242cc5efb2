"""DeepSpeed's settings inside a trainer's file, or the name of the file with these settings.

Answers: which sharding and which stack do they describe, and do they agree with the trainer?
Elsewhere: the keys of DeepSpeed (deepspeed.py), settings that trainers share (trainers.py).

References
----------
huggingface/transformers: src/transformers/integrations/deepspeed.py (`trainer_config_process`: values that
the Trainer also states must be equal or "auto"; an optimizer in the configuration is the engine's own).
"""

import re
from collections.abc import Mapping

from flopcast.files.package_table import read_table
from flopcast.files.yaml_text import Document
from flopcast.interop.configs import deepspeed
from flopcast.interop.configs.config_reader import AUTO
from flopcast.interop.configs.deepspeed_offload import CPU_CHECKPOINTING
from flopcast.interop.configs.deepspeed_shards import read_groups
from flopcast.interop.configs.job_reader import SHARDED_STATES, JobReader
from flopcast.interop.configs.keys import keys_of
from flopcast.records import Record
from flopcast.spec.precision import scales_loss

STAGES = (  # in the name of a file; that of a training may stand before ZeRO's, as in stage2_zero3.json
    re.compile(r"(?:zero|z)[-_]?(?:stage[-_]?)?([0-3])(?![0-9])", re.IGNORECASE),
    re.compile(r"(?:stage|ds)[-_]?([0-3])(?![0-9])", re.IGNORECASE),
)
OFFLOAD = re.compile(  # and of which states, if it says so; not no_offload
    r"(?<!no)(?<!no[-_])(?<!non[-_])(?<!wo[-_])(?<!without[-_])offload(?:[-_]?(opt|param))?", re.IGNORECASE
)
# more than a stage
OTHERWISE = re.compile(r"autotp|alst|fp8|mics|hpz|quant|zeropp|zero\+\+|partial|nvme", re.IGNORECASE)


class PublishedFile(Record):
    """Settings that the name of a published file does not show, such as placements and pinned copies."""

    placed: tuple[str, ...]
    pinned: bool = False
    overlap: bool = True


PUBLISHED: Mapping[str, Mapping[str, PublishedFile]] = {  # program → its file
    program: {
        name: PublishedFile(
            placed=tuple(words.split()), pinned="pinned" in shown, overlap="overlap" in shown
        )
        for name, (words, shown) in files.items()
    }
    for program, files in read_table(__package__, "tables/published_deepspeed.yaml").items()
}


class TrainerBatch(Record, kw_only=False):
    """A trainer's batch: sequences of a device, accumulations, data-parallel ranks.

    DeepSpeed's settings may repeat these numbers, and must then agree with them.
    """

    micro: int
    steps: int
    replicas: int


def read_inside(reader: JobReader, batch: TrainerBatch, precision: str) -> object:
    """Return the stack of DeepSpeed's settings in the file, or of the settings that another file's name
    implies.

    No other file is opened.

    Parameters
    ----------
    reader : the reader of the trainer's file; the sharding is added to its plan
    batch : the trainer's batch
    precision : that of the plan
    """
    data = reader.document.data
    if reader.below("deepspeed") and isinstance(data, dict) and "deepspeed" in data:
        return _inline(reader, batch, precision)
    path = reader.text("deepspeed")
    name = path.replace("\\", "/").rpartition("/")[2]
    stage, published = stage_in_name(name), PUBLISHED.get(reader.keys.program, {}).get(name)
    more = None if published else OTHERWISE.search(name)
    if stage is None or more:
        because = "flopcast does not open the file, and its name does not contain a ZeRO stage"
        if more:
            because = (
                f"flopcast does not open the file, and its name states more than a ZeRO stage ({more[0]})"
            )
        fix = "write the content of that file in place of the path"
        if reader.keys.deepspeed_name and not {"/", ".", "$"} & {*path}:
            fix = f"write {reader.keys.deepspeed_name}"
            because = f"{reader.keys.program} publishes no settings with this name"
        if reader.keys.with_file:
            fix = f"give this file, too: flopcast predict {reader.document.name} {path}"
        if not reader.faulty("deepspeed"):
            allowed = (
                "the DeepSpeed settings themselves, or a file name with the ZeRO stage, such as zero3.json"
            )
            reader.fault("deepspeed", allowed, because, fix)
        return "deepspeed-zero"
    known = f", as {reader.keys.program} publishes it" if published else ""
    published = published or PublishedFile(placed=_placed_by_name(name, stage))
    moves = f" with {' and '.join(published.placed)}" if published.placed else ""
    text = f"ZeRO stage {stage}{moves}, according to the name of {path}{known} (flopcast does not open it)"
    reader.assume(text, "deepspeed")
    reader.place(published.placed, "deepspeed")
    wire = precision_bytes(precision)
    reader.put(("plan", "zero"), deepspeed.put_stage(reader, stage, wire, "deepspeed"), "deepspeed")
    gradients: dict[str, object] = {"dtype": wire, "overlap": published.overlap}
    if stage == 0 and wire == "bf16":
        gradients = {"dtype": "fp32", "overlap": False, "collective": "all_reduce"}
    changes: dict[str, object] = {"gradients": gradients}
    if published.pinned and reader.has_place("optimizer"):
        changes["offload"] = {"gradient_copies": "pinned"}
    return {"base": "deepspeed-zero"} | changes


def stage_in_name(name: str) -> int | None:
    """Return the ZeRO stage that the name of a file states, None if it states none.

    >>> [stage_in_name(name) for name in ("ds_zero2.json", "stage2_zero3.json", "stage1.json", "ds.json")]
    [2, 3, 1, None]
    """
    found = next((match for stage in STAGES if (match := stage.search(name))), None)
    return None if found is None else int(found[1])


def _placed_by_name(name: str, stage: int) -> tuple[str, ...]:
    """Return the placements that the name of a file implies; only ZeRO-3 also moves parameters.

    >>> _placed_by_name("ds_z3_offload.json", 3), _placed_by_name("zero3_offload_optimizer.json", 3)
    (('optimizer:host', 'parameters:host'), ('optimizer:host',))
    >>> _placed_by_name("ds_zero2_no_offload.json", 2)
    ()
    """
    found = OFFLOAD.search(name)
    if not found:
        return ()
    if found[1] and stage == 3:
        return tuple(word for word in SHARDED_STATES if word.startswith(found[1].lower()))
    return SHARDED_STATES if stage == 3 else SHARDED_STATES[:1]


def precision_bytes(precision: str) -> str:
    """Return the 16-bit type of gradients with a precision."""
    return "fp16" if scales_loss(precision) else "bf16"


def _inline(reader: JobReader, batch: TrainerBatch, precision: str) -> object:
    """Return DeepSpeed's settings inside the file, read like a DeepSpeed file."""
    whole: Mapping[str, object] = reader.document.data if isinstance(reader.document.data, dict) else {}
    lines = {path[1:]: line for path, line in reader.document.lines.items() if path[:1] == ("deepspeed",)}
    places = {
        path[1:]: place for path, place in reader.document.places.items() if path[:1] == ("deepspeed",)
    }
    settings = Document(reader.document.name, whole["deepspeed"], lines, places)
    inner = JobReader(settings, keys_of("deepspeed"), reader.options)
    wire = precision_bytes(precision)
    inner.put(("plan", "data_parallel"), batch.replicas)
    stage = deepspeed.read_sharding(inner, wire)
    read_groups(inner, stage)
    changes = deepspeed.stack_changes(inner, stage, wire)
    if inner.flag(CPU_CHECKPOINTING):
        because = "the Trainer checkpoints activations itself, without DeepSpeed"
        inner.assume(f"{CPU_CHECKPOINTING} has no effect: {because}", CPU_CHECKPOINTING)
    _agree(inner, batch, precision)
    kind = inner.choice("optimizer.type", deepspeed.OPTIMIZERS, "")
    if kind:  # the engine's optimizer takes the place of the trainer's
        inner.put(("plan", "optimizer"), kind, "optimizer.type")
    for key in (deepspeed.TENSOR, deepspeed.SEQUENCE):
        if inner.count(key, 1, least=0) > 1:
            what = "this kind of parallelism for trainers based on transformers"
            inner.refuse(key, what, f"remove {key}")
    for path, value in _leaves(inner.data):
        reader.put(path, value)
    reader.lines |= inner.lines
    reader.places |= inner.places
    reader.problems += inner.problems
    reader.assumptions += inner.assumptions
    return {"base": "deepspeed-zero"} | changes


def _agree(inner: JobReader, batch: TrainerBatch, precision: str) -> None:
    """Report settings that the two files state differently; the Trainer of transformers would not start."""
    half = scales_loss(precision)
    stated = {
        deepspeed.MICRO: batch.micro,
        deepspeed.STEPS: batch.steps,
        deepspeed.TOTAL: batch.micro * batch.steps * batch.replicas,
        "fp16.enabled": half,
        "bf16.enabled": not half,
        "bfloat16.enabled": not half,
    }
    for key, value in stated.items():
        if inner.raw(key) not in (None, AUTO, value):
            text = str(value).lower()
            because = "the file of the Trainer states a different value"
            inner.fault(key, f'"auto", or {text}', because, 'write "auto"')


def _leaves(data: dict[str, object]) -> list[tuple[tuple[str, str], object]]:
    return [
        ((part, name), value)
        for part, inner in data.items()
        if isinstance(inner, dict)
        for name, value in inner.items()
    ]
