"""Names of models as other programs write them, and what the catalogue calls them.

Answers: which model of the catalogue is "meta-llama/Meta-Llama-3-8B-Instruct"?
Elsewhere: models that a config.json describes (hugging_face/config.py).

Only what changes no shape is dropped from a name: its owner, and words that tell how it was tuned or
stored. A release that has another vocabulary keeps its number, and is not found.
"""

import re
from functools import cache

from flopcast.io import catalog
from flopcast.io.foreign.sheet import Sheet

_TUNED = re.compile(
    r"-(instruct|chat|base|hf|it|pt|sft|dpo|fp16|bf16|bnb-4bit|unsloth|deduped|v0\.[12]|bpw|\d{4})(?=-|$)"
)
_OWN = {  # what a publisher calls a model, plain → its name here
    "metallama38b": "llama-3-8b",
    "metallama370b": "llama-3-70b",
    "metallama3.18b": "llama-3.1-8b",
    "metallama3.170b": "llama-3.1-70b",
    "metallama3.1405b": "llama-3.1-405b",
    "tinystarcoder": "",
    "deepseekv3base": "deepseek-v3",
    "gemma3text1b": "gemma-3-1b",
}
FLAVOURS = {  # torchtitan's model/flavor → a name that the catalogue knows
    **{f"llama3/{size}": f"llama-3.1-{size}" for size in ("8b", "70b", "405b")},
    **{f"llama2/{size}": f"llama-2-{size}" for size in ("7b", "13b", "70b")},
    **{f"qwen3/{size}": f"qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b")},
    "qwen3/30b-a3b": "qwen3-30b-a3b",
    "qwen3/235b-a22b": "qwen3-235b-a22b",
    "llama4/17bx16e": "llama-4-scout",
    "llama4/17bx128e": "llama-4-maverick",
    "deepseek_v3/16b": "deepseek-v2-lite",  # its sizes (torchtitan/models/deepseek_v3/__init__.py)
    "deepseek_v3/671b": "deepseek-v3",
    "gpt_oss/20b": "gpt-oss-20b",
    "gpt_oss/120b": "gpt-oss-120b",
}


@cache
def _plain_names() -> dict[str, str]:
    """Names of the catalogue by their letters and numbers alone."""
    return {_plain(name): name for name in catalog.names("models")}


def _plain(name: str) -> str:
    """Letters and numbers of a name: 1.3 is not 13."""
    return re.sub(r"[^a-z0-9.]|(?<![0-9])\.|\.(?![0-9])", "", name.lower())


def catalogue_name(told: str) -> str | None:
    """The model of the catalogue that a name stands for, None where there is none.

    Examples
    --------
    >>> catalogue_name("meta-llama/Meta-Llama-3-8B-Instruct"), catalogue_name("Qwen/Qwen2.5-7B")
    ('llama-3-8b', 'qwen2.5-7b')
    >>> catalogue_name("own/model") is None
    True
    """
    last = told.replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
    last = re.sub(r"\.(gguf|safetensors|bin)$", "", last).replace("_", "-")
    shortened = last
    while True:
        own = _OWN.get(_plain(shortened)) or _plain_names().get(_plain(shortened))
        if own:
            return own
        cut = _TUNED.sub("", shortened, count=1)
        if cut == shortened:
            return None
        shortened = cut


def read_model(sheet: Sheet, key: str, told: str | None = None) -> None:
    """The model that a key names; a fault where the catalogue has none, unless --model names it.

    Parameters
    ----------
    sheet : Sheet
        It gets `model.base`.
    key : str
        Which names the model.
    told : str or None
        The name, where it is not the key's own value.
    """
    if sheet.asked.model:
        return
    name = sheet.text(key) if told is None else told
    found = catalogue_name(FLAVOURS.get(name.lower(), name)) if name else None
    if found:
        sheet.put(("model", "base"), found, key)
        sheet.assume(f"model {found} of the catalogue for {name}", key)
        return
    if not sheet.faulty(key):
        allowed = "a name that `flopcast catalog models` lists, with or without its owner"
        because = "no weights and no other file are read" if name else "a prediction needs a model"
        fix = "add --model config.json, the model's own, or --model NAME"
        sheet.fault(key, allowed, because, fix, "" if name else "is missing")
