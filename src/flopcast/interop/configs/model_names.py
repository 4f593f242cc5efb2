"""Models as the files of other programs name them.

Answers: which model of the catalogue does such a file name?
Elsewhere: which entry a written name means (library/catalog.py), models that a config.json describes
(interop/hugging_face/config.py).
"""

from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.library import catalog

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


def read_model(reader: ConfigReader, key: str, written: str | None = None) -> None:
    """Read the model that a key names; report an unknown one, unless --model names it.

    Parameters
    ----------
    reader : it gets `model.base`
    key : which names the model
    written : the name, where it is not the key's own value
    """
    if reader.options.model:
        return
    name = reader.text(key) if written is None else written
    entry = catalog.known("models", FLAVOURS.get(name.lower(), name)) if name else None
    if entry:
        reader.put(("model", "base"), entry, key)
        reader.assume(f"the model {name} is {entry} in the catalogue", key)
        if catalog.model(entry).mtp:  # trained by Megatron's and DeepSeek's own programs alone
            reader.put(("model", "mtp"), 0, key)
            reader.assume(
                f"{reader.keys.program} does not train the multi-token prediction of {entry}", key
            )
        return
    if not reader.faulty(key):
        allowed = "a name that `flopcast catalog models` lists, with or without its owner"
        because = (
            "the catalogue has no model with this name, and flopcast downloads nothing"
            if name
            else "flopcast needs a model for a prediction"
        )
        fix = "download the model's config.json and add --model config.json, or add --model NAME"
        reader.fault(key, allowed, because, fix, "" if name else "is missing")
