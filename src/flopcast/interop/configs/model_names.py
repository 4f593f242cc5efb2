"""Models as the files of other programs name them.

Answers: which model of the catalogue does such a file name?
Elsewhere: which entry a written name means (library/catalog.py), models that a config.json describes
(interop/hugging_face/config.py).
"""

from flopcast.files.nearest_names import nearest
from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.library import catalog
from flopcast.library.hub import hub_models

NEAR = 0.9  # of letters in common, from which an unknown name is a misspelling of a known one

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
        fix = "download the model's config.json and add --model config.json, or add --model NAME"
        if not name:
            because = "flopcast needs a model for a prediction"
            reader.fault(key, allowed, because, fix, "is missing")
            return
        family = name.lower().rpartition("/")[0]
        same = [each for each in FLAVOURS if each.startswith(f"{family}/")]
        near = nearest(name, same or (*catalog.names("models"), *hub_models()), least_ratio=NEAR)
        right = near[0].removeprefix(f"{family}/") if near else ""
        fix = f"did you mean {right}? If not, {fix}" if right else fix
        because = "the catalogue has no model with this name, and flopcast downloads nothing"
        reader.fault(key, allowed, because, fix)
