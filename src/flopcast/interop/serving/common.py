"""What the settings of all engines say in the same way: the model, number formats, limits.

Answers: which model, which weights and which cache does an engine load?
Elsewhere: settings of one engine (vllm.py and its neighbours), the formats (spec/published_formats.py).
"""

import re
from collections.abc import Mapping

from flopcast.files.inputs import exists
from flopcast.interop.serving.settings import LaunchReader
from flopcast.library import catalog
from flopcast.library.published_formats import published_formats

PUBLISHERS = ("meta-llama", "deepseek-ai", "Qwen", "mistralai", "openai", "google", "moonshotai", "zai-org")
STORED = {  # part of a model's name → the format in which that copy of it is stored
    r"nvfp4|fp4": "nvfp4",
    r"mxfp4": "mxfp4",
    r"fp8(-dynamic|-kv|-block)?": "fp8",
    r"awq|gptq(-marlin)?(-int4)?|(quantized\.)?w4a16|int4": "int4",
}
_SUFFIX = {re.compile(rf"[-_.]({text})(?=$|[-_.])", re.IGNORECASE): kept for text, kept in STORED.items()}
CACHES = {
    "auto": "bf16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "bf16",
    "float16": "bf16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_e4m3fn": "fp8",
    "fp8_inc": "fp8",
}
DTYPES = dict.fromkeys(("auto", "half", "float16", "bfloat16", "fp16", "bf16"), "bf16")


def read_model(reader: LaunchReader, key: str) -> str | None:
    """Read the model; return its entry in the catalogue, None for a file or an unknown name.

    A suffix such as "-FP8" or "-AWQ" names a copy that is stored in another format: it becomes the weights
    of the plan, unless the model was published so.
    """
    name = reader.named_model or reader.text(key)
    if not name:
        if not reader.faulty(key):
            because, allowed = (
                "the deployment needs a model to serve",
                "the name of a model of the Hugging Face hub, or a folder",
            )
            reader.fault(key, allowed, because, "add --model NAME", "is missing")
        return None
    name = name.rstrip("/")
    entry, stored = catalog.known("models", name), ""
    if entry is None:
        for suffix, kept in _SUFFIX.items():
            plain = suffix.sub("", name)
            if plain != name and (entry := _entry(plain)) is not None:
                stored = kept
                break
    if reader.named_model is None:
        if entry is None and name[0] in "/.~" and not exists(name):
            allowed = "a folder with a config.json, or a name that `flopcast catalog models` lists"
            because = "there is no such folder here, and the catalogue has no model of this name"
            reader.fault(key, allowed, because, "add --model NAME, the model that is in this folder")
        reader.put(("model",), entry or name, key)
        if entry and entry not in name.lower():
            reader.assume(f"the model {name} is {entry} in the catalogue", key)
    if stored:
        _put_weights(reader, stored, entry, key)
        reader.assume(f"weights in {stored}, according to the name {name}", key)
    return entry


def _entry(name: str) -> str | None:
    """Return the entry of a model whose copy another publisher stores under its name."""
    last = name.rpartition("/")[2]
    tried = (name, *(f"{publisher}/{last}" for publisher in PUBLISHERS))
    return next((entry for each in tried if (entry := catalog.known("models", each))), None)


def has_experts(entry: str | None) -> bool | None:
    """Return whether a model of the catalogue has routed experts; None for a model that is not there."""
    return None if entry is None else catalog.model(entry).has_experts


def read_weights(
    reader: LaunchReader, key: str, formats: Mapping[str, str], entry: str | None, own: str = ""
) -> None:
    """Read how weights are quantised.

    Parameters
    ----------
    formats : from the words of the engine to formats; "" where the checkpoint says it
    own : what a word whose format is "" leaves to the checkpoint, for the note
    """
    if not reader.has(key):
        return
    kept = reader.choice(key, formats, "")
    if kept:
        _put_weights(reader, kept, entry, key)
    elif not reader.faulty(key) and own:
        reader.assume(f"{key} {reader.text(key)}: {own}", key)


def _put_weights(reader: LaunchReader, kept: str, entry: str | None, key: str) -> None:
    """Set the weights of the plan, unless the model was published in a format of this kind."""
    published = published_formats(entry or "")
    if kept[:3] not in {published.weights[:3], (published.expert_weights or "")[:3]}:
        reader.put(("plan", "weights"), kept, key)


def put_copies(reader: LaunchReader, *keys: str) -> None:
    """Read the copies of experts of each layer, if one of the flags states them."""
    for key in keys:
        if reader.has(key) and reader.raw(key) not in (0, "0"):
            reader.put(("plan", "redundant_experts"), reader.count(key), key)


def read_cache(reader: LaunchReader, key: str) -> None:
    """Read the number format of the KV cache."""
    if reader.has(key) and reader.choice(key, CACHES, "bf16") == "fp8":
        reader.put(("plan", "cache"), "fp8", key)


def read_dtype(reader: LaunchReader, key: str = "dtype") -> None:
    """Check that a model that is not quantised runs in 16 bits."""
    if reader.has(key):
        reader.choice(key, DTYPES, "bf16")


def put_count(reader: LaunchReader, field: str, key: str, share: int = 1) -> None:
    """Set a limit of the plan, where it is stated: the part of one of `share` equal groups."""
    if reader.has(key):
        reader.put(("plan", field), max(reader.tokens(key) // share, 1), key)


def put_memory(reader: LaunchReader, key: str) -> None:
    """Set the part of the memory that the engine uses, where it is stated."""
    value = reader.raw(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1:
        reader.put(("engine", "memory_fraction"), float(value), key)
    elif reader.has(key):
        because = "this setting is the fraction of device memory that the engine uses"
        reader.fault(key, "a number above 0, at most 1", because, "write 0.9")


def note_longest(reader: LaunchReader, key: str) -> None:
    """Report that the longest request is not a limit of the prediction."""
    if reader.has(key):
        longest = reader.tokens(key)
        reader.assume(
            f"{key} {longest} is ignored: the traffic states the lengths of requests, and the cache uses"
            " all free memory",
            key,
        )


def put_adapters(reader: LaunchReader, key: str, rank: int, slots: str) -> None:
    """Set the low-rank adapters that are loaded beside the model: their rank, and how many fit."""
    reader.put(("plan", "adapter_rank"), rank, key, "enable-lora")
    put_count(reader, "adapter_slots", slots)
    reader.assume("requests use adapters only if the traffic contains them (adapters=8)", "enable-lora")


def put_draft(reader: LaunchReader, drafter: str, drafted: int, *keys: str) -> None:
    """Set what drafts tokens, and how many; a model that drafts is named by its entry or its name."""
    reader.put(("plan", "draft"), drafter, *keys)
    reader.put(("plan", "drafted"), drafted, *keys)


def draft_model(reader: LaunchReader, key: str) -> str:
    """Return the entry of the smaller model that drafts, or its name if there is none."""
    name = reader.text(key)
    if not name and not reader.faulty(key):
        because = "a smaller model drafts the tokens"
        reader.fault(
            key, "the name of a model of the Hugging Face hub", because, f"add {key}", "is missing"
        )
    return _entry(name) or name
