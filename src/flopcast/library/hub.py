"""Models of the Hugging Face hub that have no entry in the catalogue, by their ids.

Answers: which model is "HuggingFaceTB/SmolLM2-1.7B-Instruct"?
Elsewhere: entries of the catalogue and how their names are written (catalog.py), families of configs
(interop/hugging_face/config.py).

One table, `catalog/hub.yaml`, holds ids with the sizes of their config.json, or with the entry of the
catalogue that has the same shapes. It is read if a name is not in the catalogue. If no id matches, an id
with the same last part does, because other owners republish models under the same name. The last part may
lack the words that say how the model was tuned.
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from flopcast.files.nearest_names import nearest
from flopcast.files.package_table import read_table
from flopcast.files.yaml_text import Document
from flopcast.records import dataclass

FAMILIES = ("llama", "qwen", "mistral", "gemma", "deepseek", "mixtral", "olmo", "gpt")  # most used first

NEAR = 0.9  # of letters in common, from which an unknown name is a misspelling of a known one
TUNED = re.compile(  # parts of a model's name that change no shape: how it was tuned or stored
    r"-(instruct|chat|base|hf|it|pt|sft|dpo|fp16|bf16|bnb-4bit|unsloth|deduped|v0\.[12]|bpw|\d{4})(?=-|$)"
)
_CACHED = re.compile(r".*models--([^/]+?)--([^/]+).*")
SIZE = re.compile(r"-\d+(\.\d+)?[bm](-a\d+b)?|-a\d+b")  # of a model, at the end of its name
PUBLISHED = {  # what a publisher calls a model, letters and numbers alone → its name here
    "metallama38b": "llama-3-8b",
    "metallama370b": "llama-3-70b",
    "metallama3.18b": "llama-3.1-8b",
    "metallama3.170b": "llama-3.1-70b",
    "metallama3.1405b": "llama-3.1-405b",
    "tinystarcoder": "",
    "deepseekv3base": "deepseek-v3",
    "gemma3text1b": "gemma-3-1b",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class HubModel:
    """One id of the hub.

    Attributes
    ----------
    same_as : str
        The entry of the catalogue with the same shapes; empty if `config` describes the model.
    config : mapping
        Keys of its config.json that give its sizes.
    parameters : int
        The number that the publisher prints; 0 if `same_as` is given.
    """

    id: str
    same_as: str = ""
    config: Mapping[str, object] | None = None
    parameters: int = 0


@lru_cache(maxsize=1)
def hub_models() -> Mapping[str, HubModel]:
    """Return all models of the table, keyed by lower-case id, by its last part, and by this without tuning.

    If several ids have the same last part, the first one in the table keeps it.
    """
    models: dict[str, HubModel] = {}
    for entry in read_table("flopcast", "catalog/hub.yaml")["entries"]:
        for name in entry["ids"]:
            model = HubModel(
                id=name,
                same_as=entry.get("same_as", ""),
                config=entry.get("config"),
                parameters=round(entry.get("billions", 0) * 1e9),
            )
            models[name.lower()] = model
            models.setdefault(name.lower().rpartition("/")[2], model)
    for key, model in list(models.items()):
        if "/" not in key:
            models.setdefault(TUNED.sub("", key), model)
    return models


def without_folders(path: str) -> str:
    """Return a path without a slash at its end; of one in the hub's folder of downloads, the model's id.

    >>> without_folders("/data/hub/models--Qwen--Qwen3-8B/snapshots/851b"), without_folders("own/model/")
    ('Qwen/Qwen3-8B', 'own/model')
    """
    return _CACHED.sub(r"\1/\2", path.replace("\\", "/")).rstrip("/")


def hub_model(written: str) -> HubModel | None:
    """Return the model of an id of the hub, ignoring case and owner; None for an unknown id.

    >>> hub_model("qwen/qwq-32b").same_as, hub_model("llama-3.3-70b").same_as, hub_model("own/model")
    ('qwen2.5-32b', 'llama-3.1-70b', None)
    """
    plain = written.replace("\\", "/").rstrip("/").lower()
    last = plain.rpartition("/")[2]
    return next(filter(None, map(hub_models().get, (plain, last, TUNED.sub("", last)))), None)


def named_without_size(written: str, names: Collection[str]) -> str | None:
    """Return the only one of these names that is the written one followed by a size, if there is one.

    >>> named_without_size("qwen3-235b", ("qwen3-235b-a22b", "qwen3-32b"))
    'qwen3-235b-a22b'
    >>> named_without_size("llama-3", ("llama-3-8b", "llama-3-70b"))
    """
    start = written.lower()
    if "-" not in start:
        return None
    found = [each for each in names if each.startswith(start) and SIZE.fullmatch(each[len(start) :])]
    return found[0] if len(found) == 1 else None


def of_size(written: str, all_names: Collection[str]) -> list[str]:
    """Return the models of a size such as "7b", the most used families first; empty for another text."""
    if not re.fullmatch(r"\d+(\.\d+)?[bm]", written.lower()):
        return []
    of_size = [name for name in all_names if f"-{written.lower()}-" in f"-{name}-"]
    families = (*FAMILIES, "")  # every name begins with the last of them
    return sorted(of_size, key=lambda name: ([name.startswith(one) for one in families].index(True), name))


def misspelt(written: str, flavours: Collection[str], names: Collection[str]) -> str:
    """Return the flavour of the same family, or the model, whose name is misspelt; "" if there is none.

    >>> misspelt("Qwen/Qwen2.5-14", (), ["qwen2.5-14b"]), misspelt("llama3/405 b", ["llama3/405b"], ())
    ('qwen2.5-14b', '405b')
    """
    family = written.lower().rpartition("/")[0] + "/"
    own = [each for each in flavours if each.startswith(family)]
    near = nearest(written, own or (*names, *hub_models()), least_ratio=NEAR)
    return near[0].removeprefix(family) if near and own else next(iter(near), "")


def hub_document(model: HubModel) -> Document:
    """Return the model as an entry of the catalogue."""
    from flopcast.interop.hugging_face.config import model_from_config

    config = Document(f"config.json of {model.id}", dict(model.config or {}), {})
    mapping, _ = model_from_config(config)
    name = model.id.rpartition("/")[2].lower()
    return Document(f"catalog/hub.yaml, {model.id}", mapping | {"name": name}, {})
