"""The vision tower of a Hugging Face config: `vision_config` of models that process images.

Answers: which tower and which projections does a config with a vision part describe?
Elsewhere: its text part (config.py), the towers of all families (towers.py), the definition of a tower
(layers/vision.py).
"""

import json
from collections.abc import Iterator
from typing import Any

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.hugging_face.towers import FAMILIES, Tower
from flopcast.interop.hugging_face.unsupported import OF_VISION, SILENT
from flopcast.interop.hugging_face.values import Reader, flattened

KEY = "vision_config"
IGNORED, BESIDE = (frozenset(OF_VISION[name].split()) for name in ("inside", "beside"))
BUILT: dict[str, object] = OF_VISION["counted"]


def tower_of_config(
    document: Document, data: dict[str, Any], hidden: int
) -> tuple[Tower | None, list[str]]:
    """Return the vision tower of a config in the form of a Model, and notes; None if it has no known tower.

    Parameters
    ----------
    document, data
        The config, and its plain data.
    hidden
        Width of the decoder.
    """
    part, family = data.get(KEY), str(data.get("model_type", ""))
    if part is None or family not in FAMILIES:
        return None, []
    whole = Reader(document, flattened(data))
    if not isinstance(part, dict):
        whole.fault(KEY, "a mapping", "this key describes the vision tower", f"correct or remove {KEY}")
        raise SpecError(whole.problems.values())
    reader = Reader(document, flattened(part, (KEY,)))
    tower = FAMILIES[family](reader, whole, hidden)
    if problems := [*whole.problems.values(), *reader.problems.values()]:
        raise SpecError(problems)
    return tower, [] if tower is None else list(_notes(reader, whole, family, tower))


def _notes(read: Reader, whole: Reader, family: str, tower: Tower) -> Iterator[str]:
    """Yield the ignored values of a config with this tower, and the defaults that were used."""
    for key, built in BUILT.items():
        value = read.raw(key)
        if value not in (None, built):
            counted = json.dumps(built)
            ignored = f"{KEY}.{key} = {json.dumps(value)} is ignored"
            yield f"{ignored}: flopcast predicts the cost of {key} = {counted}"
    for key in read.unused(SILENT | IGNORED):
        yield f"{KEY}.{key} is not a known key, and was ignored"
    if whole.raw("vision_feature_select_strategy") == "full" and tower.get("class_token"):
        yield "vision_feature_select_strategy = full is ignored: the decoder gets no class token"
    for key in whole.unused(SILENT | BESIDE) if "text_config" in whole.values else ():
        yield f"{key} is not a known key of {family}, and was ignored"
    if read.defaults:
        taken = ", ".join(f"{key} {value}" for key, value in read.defaults.items())
        yield f"{KEY} does not state these values, so they have the defaults of {family}: {taken}"
    if tower.get("tiles", 1) > 1:
        yield f"images are divided into at most {tower['tiles']} tiles, which is the default"
