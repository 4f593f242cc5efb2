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
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from flopcast.files.nearest_names import letters, nearest
from flopcast.files.package_table import read_table
from flopcast.files.yaml_text import Document
from flopcast.records import Record

FAMILIES = ("llama", "qwen", "mistral", "gemma", "deepseek", "mixtral", "olmo", "gpt")  # most used first

MOST = 3  # models that an error suggests
NEAR = 0.9  # of letters in common, from which an unknown name is a misspelling of a known one
TUNED = (  # parts of a model's name that change no shape: how it was tuned or stored
    r"-(instruct|chat|base|hf|it|pt|sft|dpo|fp16|bf16|bnb-4bit|unsloth|deduped|v0\.[12]|bpw|\d{4})(?=-|$)"
)
STORED = {  # part of a model's name → the format in which that copy of it is stored
    r"nvfp4|fp4": "nvfp4",
    r"mxfp4": "mxfp4",
    r"fp8(-dynamic|-kv|-block|-static-pertensor)?": "fp8",
    r"awq|gptq(-marlin)?(-int4)?|(quantized\.)?w4a16|int4|bnb-4bit": "int4",
    r"(qat-)?q4(_[01k](_[msl])?)?(-gguf)?": "int4",
}
_SUFFIX = {rf"(?i)[-_.]({text})(?=$|[-_.])": kept for text, kept in STORED.items()}
_CACHED = r".*models--([^/]+?)--([^/]+).*"
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


class HubModel(Record):
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
            models.setdefault(re.sub(TUNED, "", key), model)
    return models


def without_folders(path: str) -> str:
    """Return a path without its last slash, or the id of a model in the hub's folder of downloads.

    >>> without_folders("/data/hub/models--Qwen--Qwen3-8B/snapshots/851b"), without_folders("own/model/")
    ('Qwen/Qwen3-8B', 'own/model')
    """
    return re.sub(_CACHED, r"\1/\2", path.replace("\\", "/")).rstrip("/")


def hub_model(written: str) -> HubModel | None:
    """Return the model of an id of the hub, ignoring case and owner; None for an unknown id.

    >>> hub_model("qwen/qwq-32b").same_as, hub_model("llama-3.3-70b").same_as, hub_model("own/model")
    ('qwen2.5-32b', 'llama-3.1-70b', None)
    """
    plain = written.replace("\\", "/").rstrip("/").lower()
    last = plain.rpartition("/")[2]
    return next(filter(None, map(hub_models().get, (plain, last, re.sub(TUNED, "", last)))), None)


def stored_copy(written: str) -> tuple[str, str]:
    """Return a model's name without the format in which this copy is stored, and the format, or "".

    >>> stored_copy("nvidia/Llama-3.1-70B-Instruct-FP8"), stored_copy("meta-llama/Llama-3.1-8B")
    (('nvidia/Llama-3.1-70B-Instruct', 'fp8'), ('meta-llama/Llama-3.1-8B', ''))
    """
    for suffix, kept in _SUFFIX.items():
        if (plain := re.sub(suffix, "", written)) != written:
            return plain, kept
    return written, ""


def known_model(written: str, entries: Mapping[str, str]) -> str | None:
    """Return the entry of the catalogue, or the id of the hub, that the name of a model means, or None.

    The owner on the hub, suffixes for tuning, and formats of stored copies are ignored. A release with
    another vocabulary has another number and is another model. If no entry matches, the name may be an id
    of the hub: the result is the entry with the same shapes or, if there is none, the id itself. Words may
    be missing at the end of a name if all models whose names begin with the others have the same shapes.

    Parameters
    ----------
    written : a name, an id of the hub, or the path of a folder or file that is named so
    entries : names of the catalogue, keyed by their letters and numbers
    """
    shortened = (written := without_folders(written)).rpartition("/")[2].lower().replace("_", "-")
    shortened = re.sub(r"\.(gguf|safetensors|bin)$", "", shortened)
    while True:
        known = PUBLISHED.get(letters(shortened)) or entries.get(letters(shortened))
        cut = re.sub(TUNED, "", shortened, count=1)
        if known or cut == shortened:
            break
        shortened = cut
    on_hub = None if known else hub_model(written)
    if on_hub is None and not known and re.search("[- ]", shortened):  # one word alone means no model
        begun = with_words(written, entries.values(), begun=True)
        if len(begun) == 1:
            known, on_hub = begun[0], hub_models().get(begun[0].lower())
    if not known and on_hub is None and (copy := stored_copy(written))[1]:
        return known_model(copy[0], entries)
    return known if on_hub is None else on_hub.same_as or on_hub.id


def with_words(written: str, names: Collection[str], *, begun: bool = False) -> list[str]:
    """Return models whose names contain the given words in this order, one for each set of shapes.

    Dates are no words. A written size that a name lacks must be the number of parameters of its model.

    Parameters
    ----------
    names : models of the catalogue; the models of the hub are searched too
    begun : return only names that begin with the words, without others between them

    >>> with_words("olmo2-32b", (), begun=True), with_words("mistral-nemo-12b", (), begun=True)
    (['allenai/OLMo-2-0325-32B'], ['mistralai/Mistral-Nemo-Base-2407'])
    >>> with_words("hermes-70b", ()), with_words("hermes-70b", (), begun=True)
    (['NousResearch/Hermes-3-Llama-3.1-70B'], [])
    """
    words = _words(written)
    found = {name: name for name in names if _has(_words(name), words, begun)}
    for model in {model.id: model for model in hub_models().values()}.values():  # each has several keys
        own, billions = _words(model.id), f"{model.parameters / 1e9:.0f}b"
        asked = words if billions in own else [word for word in words if word != billions]
        if _has(own, asked, begun):
            found.setdefault(model.same_as or repr(model.config), model.id)
    return list(found.values())


def _has(own: Sequence[str], words: Sequence[str], begun: bool) -> bool:
    """Return whether a name with the words `own` begins with the others, or has them in their order."""
    if begun or not words:
        return bool(words) and own[: len(words)] == words
    left = iter(own)
    return all(word in left for word in words)


def _words(name: str) -> list[str]:
    """Return the words and numbers of a model's name, without its owner and dates.

    >>> _words("allenai/OLMo-2-0325-32B"), _words("exaone4.0")
    (['olmo', '2', '32b'], ['exaone', '4'])
    """
    last = name.replace("\\", "/").rstrip("/").lower().rpartition("/")[2]
    words = re.findall(r"\d+(?:\.\d+)?[a-z]*|[a-z]+", last)
    return [word.removesuffix(".0") for word in words if not re.fullmatch(r"\d{4}", word)]


def suggestions(written: str, names: Collection[str]) -> list[str]:
    """Return at most three models that an unknown name may mean, or all models of a size such as "7b".

    The result is the first of these groups that is not empty: models of the catalogue whose names contain
    `written`, models whose names begin with its words, models of the catalogue with similar names, and
    models whose names contain its words.

    >>> suggestions("tinyllama", ["llama-7b"]), suggestions("7b", ["opt-7b", "llama-7b", "llama-13b"])
    (['TinyLlama/TinyLlama-1.1B-Chat-v1.0'], ['llama-7b', 'opt-7b'])
    """
    if re.fullmatch(r"\d+(\.\d+)?[bm]", written.lower()):
        of_size = [name for name in names if f"-{written.lower()}-" in f"-{name}-"]
        families = (*FAMILIES, "")  # every name begins with the last of them
        return sorted(
            of_size, key=lambda name: ([name.startswith(one) for one in families].index(True), name)
        )
    found = nearest(written, names, most=MOST, least_ratio=2)  # no merely similar names
    found = found or with_words(written, names, begun=True) or nearest(written, names, most=MOST)
    return (found or with_words(written, names))[:MOST]


def misspelt(written: str, flavours: Collection[str], names: Collection[str]) -> str:
    """Return the known name that `written` probably misspells; "" if no name is similar.

    The result is a size of the same family if `flavours` contains any, and otherwise a model.

    >>> misspelt("Qwen/Qwen2.5-14", (), ["qwen2.5-14b"]), misspelt("llama3/405 b", ["llama3/405b"], ())
    ('qwen2.5-14b', '405b')
    """
    family = written.lower().rpartition("/")[0] + "/"
    own = [each for each in flavours if each.startswith(family)]
    if own:
        sizes = [each.removeprefix(family) for each in own]
        return next(iter(nearest(written.rpartition("/")[2], sizes, least_ratio=0.6)), "")
    return next(iter(nearest(written, (*names, *hub_models()), least_ratio=NEAR)), "")


def hub_document(model: HubModel) -> Document:
    """Return the model as an entry of the catalogue."""
    from flopcast.interop.hugging_face.config import model_from_config

    config = Document(f"config.json of {model.id}", dict(model.config or {}), {})
    mapping, _ = model_from_config(config)
    name = model.id.rpartition("/")[2].lower()
    return Document(f"catalog/hub.yaml, {model.id}", mapping | {"name": name}, {})
