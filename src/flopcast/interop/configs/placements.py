"""States that a file places outside the devices, as the plan writes them.

Answers: how do placements of several keys become one?
Elsewhere: what placements are (spec/offload.py), DeepSpeed's keys (deepspeed_offload.py).
"""

from flopcast.interop.configs.config_reader import ConfigReader

SHARDED_STATES = ("optimizer:host", "parameters:host")  # what the CPU offload of FSDP moves
ACTIVATIONS = ("activations:host",)
PAGEABLE = {"gradient_copies": "pageable"}


def place(reader: ConfigReader, words: tuple[str, ...], *keys: str) -> None:
    """Add placements to those of the plan; a kind of state that has a place keeps it.

    Parameters
    ----------
    words : placements, such as "optimizer:host:0.5"
    keys : the keys that say so

    Examples
    --------
    >>> from flopcast.files.yaml_text import Document
    >>> from flopcast.interop.configs.keys import Keys
    >>> reader = ConfigReader(Document("a.yaml", {}, {}), Keys(program="A trainer"))
    >>> place(reader, ("optimizer:nvme",))
    >>> place(reader, ("optimizer:host", "activations:host"))
    >>> reader.part("plan")["offload"]
    'optimizer:nvme,activations:host'
    """
    held = _placed(reader)
    added = [word for word in words if not has_place(reader, word.partition(":")[0])]
    if added:
        reader.put(("plan", "offload"), ",".join((*held, *added)), *(() if held else keys))


def has_place(reader: ConfigReader, kind: str) -> bool:
    """Return whether the plan places a kind of state, such as "optimizer", outside the devices."""
    return any(word.partition(":")[0] == kind for word in _placed(reader))


def _placed(reader: ConfigReader) -> list[str]:
    return [word for word in str(reader.part("plan").get("offload", "")).split(",") if word]
