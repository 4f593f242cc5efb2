"""DeepSpeed's settings inside a trainer's file, or the name of the file that has them.

Answers: which sharding and which stack do they ask for, and do they agree with the trainer?
Elsewhere: the keys by themselves (deepspeed.py), what trainers have in common (trainers.py).

References
----------
huggingface/transformers: src/transformers/integrations/deepspeed.py (`trainer_config_process`: values that
the Trainer says too must be equal or "auto"; an optimizer of the configuration is the engine's own).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from flopcast.files.yaml_text import Document
from flopcast.interop.configs import deepspeed
from flopcast.interop.configs.config_reader import AUTO, ConfigReader
from flopcast.interop.configs.keys import keys_of
from flopcast.spec.precision import scales_loss

STAGE = re.compile(r"(?:zero|z)[-_]?(?:stage[-_]?)?([0-3])(?![0-9])", re.IGNORECASE)
OFFLOAD = re.compile(r"offload", re.IGNORECASE)
# more than a stage
OTHERWISE = re.compile(r"autotp|alst|fp8|mics|hpz|quant|zeropp|zero\+\+", re.IGNORECASE)
PUBLISHED: Mapping[str, Mapping[str, Mapping[str, bool]]] = {  # program → its file → what its name hides
    "Axolotl": {  # axolotl-ai-cloud/axolotl, deepspeed_configs/
        "zero2.json": {"offload": True, "overlap": True},
        "zero2_torch_compile.json": {"offload": True, "overlap": True},
    },
    "LLaMA-Factory": {  # hiyouga/LLaMA-Factory, examples/deepspeed/
        name: {"overlap": False} for name in ("ds_z0_config.json", "ds_z2_config.json", "ds_z3_config.json")
    },
}


@dataclass(frozen=True, slots=True)
class TrainerBatch:
    """A trainer's batch: sequences of a device, accumulations, data-parallel ranks."""

    micro: int
    steps: int
    replicas: int


def read_inside(reader: ConfigReader, batch: TrainerBatch, precision: str) -> object:
    """Return the stack of DeepSpeed's settings in the file, or of those that another file's name implies.

    No other file is opened.

    Parameters
    ----------
    reader : of the trainer's file; its plan gets the sharding
    batch : as the trainer says it
    precision : the plan's
    """
    data = reader.document.data
    if reader.below("deepspeed") and isinstance(data, dict) and "deepspeed" in data:
        return _inline(reader, batch, precision)
    path = reader.text("deepspeed")
    name = path.replace("\\", "/").rpartition("/")[2]
    match, more = STAGE.search(name), OTHERWISE.search(name)
    if not match or more:
        because = "no other file is opened, and its name does not state a ZeRO stage"
        because = f"its name says that it sets more than a ZeRO stage: {more[0]}" if more else because
        fix = "replace the path by the file's content"
        if not reader.faulty("deepspeed"):
            reader.fault("deepspeed", "settings, or the name of a file such as zero3.json", because, fix)
        return "deepspeed-zero"
    stage, published = int(match[1]), PUBLISHED.get(reader.keys.program, {}).get(name, {})
    offloads = published.get("offload", bool(OFFLOAD.search(name)))
    moves = " and offload" if offloads else ""
    known = f", as {reader.keys.program} publishes it" if published else ""
    reader.assume(
        f"ZeRO stage {stage}{moves} from the name of {path}{known}, which flopcast does not open",
        "deepspeed",
    )
    if offloads:
        placed = "optimizer:host,parameters:host" if stage == 3 else "optimizer:host"
        reader.put(("plan", "offload"), placed, "deepspeed")
    wire = precision_bytes(precision)
    reader.put(("plan", "zero"), deepspeed.put_stage(reader, stage, wire, "deepspeed"), "deepspeed")
    gradients: dict[str, object] = {"dtype": wire, "overlap": published.get("overlap", True)}
    if stage == 0 and wire == "bf16":
        gradients = {"dtype": "fp32", "overlap": False, "collective": "all_reduce"}
    changes: dict[str, object] = {"gradients": gradients}
    return {"base": "deepspeed-zero"} | changes


def precision_bytes(precision: str) -> str:
    """Return the 16-bit type of gradients under a precision."""
    return "fp16" if scales_loss(precision) else "bf16"


def _inline(reader: ConfigReader, batch: TrainerBatch, precision: str) -> object:
    """Return DeepSpeed's settings inside the file, read as its own file is."""
    whole: Mapping[str, object] = reader.document.data if isinstance(reader.document.data, dict) else {}
    lines = {path[1:]: line for path, line in reader.document.lines.items() if path[:1] == ("deepspeed",)}
    places = {
        path[1:]: place for path, place in reader.document.places.items() if path[:1] == ("deepspeed",)
    }
    settings = Document(reader.document.name, whole["deepspeed"], lines, places)
    inner = ConfigReader(settings, keys_of("deepspeed"), reader.options)
    wire = precision_bytes(precision)
    inner.put(("plan", "data_parallel"), batch.replicas)
    stage = deepspeed.read_sharding(inner, wire)
    changes = deepspeed.stack_changes(inner, stage, wire)
    _agree(inner, batch, precision)
    kind = inner.choice("optimizer.type", deepspeed.OPTIMIZERS, "")
    if kind:  # the engine's optimizer takes the place of the trainer's
        inner.put(("plan", "optimizer"), kind, "optimizer.type")
    for key in (deepspeed.TENSOR, deepspeed.SEQUENCE):
        if inner.count(key, 1, least=0) > 1:
            inner.refuse(key, "parallelism that the trainer does not support", f"remove {key}")
    for path, value in _leaves(inner.data):
        reader.put(path, value)
    reader.lines |= inner.lines
    reader.places |= inner.places
    reader.problems += inner.problems
    reader.assumptions += inner.assumptions
    return {"base": "deepspeed-zero"} | changes


def _agree(inner: ConfigReader, batch: TrainerBatch, precision: str) -> None:
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
            inner.fault(key, f'"auto", or {text}', "the trainer's file states it too", 'write "auto"')


def _leaves(data: dict[str, object]) -> list[tuple[tuple[str, str], object]]:
    return [
        ((part, name), value)
        for part, inner in data.items()
        if isinstance(inner, dict)
        for name, value in inner.items()
    ]
