"""Number formats in which models were published, from `catalog/published_formats.yaml`.

Answers: in which formats does an engine load the weights of this model by default?
Elsewhere: the formats (spec/published_formats.py), the models (catalog.py), names of copies (hub.py).
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from flopcast.files.package_table import read_table
from flopcast.library.hub import stored_copy
from flopcast.spec.published_formats import PublishedFormats

_TABLE = ("flopcast", "catalog/published_formats.yaml")


def published_formats(name: str) -> PublishedFormats:
    """Return the formats of a model of the catalogue. Models that are not listed have 16 bits.

    >>> published_formats("deepseek-v3").weights, published_formats("llama-3-8b").weights
    ('fp8_block', 'bf16')
    """
    return _entries().get(name, PublishedFormats())


def published_in(name: str | None, kept: str) -> bool:
    """Return whether the weights of a model were published in a format of this kind."""
    published = published_formats(name or "")
    return kept[:3] in {published.weights[:3], (published.expert_weights or "")[:3]}


def stored_formats(written: str, name: str) -> PublishedFormats | None:
    """Return the formats of the copy or release of a model that a name states, or None if it states none.

    Parameters
    ----------
    written : the name of the copy, as a user wrote it
    name : the model of the catalogue with the same shapes

    >>> stored_formats("Qwen/Qwen3-8B-FP8", "qwen3-8b").weights
    'fp8_block'
    >>> stored_formats("RedHatAI/Qwen3-8B-FP8-dynamic", "qwen3-8b").weights
    'fp8'
    >>> stored_formats("moonshotai/Kimi-K2-Thinking", "kimi-k2").expert_weights
    'int4'
    >>> stored_formats("qwen3-8b", "qwen3-8b"), stored_formats("DeepSeek-R1-FP8", "deepseek-v3")
    (None, None)
    """
    plain = written.replace("\\", "/").rstrip("/").lower()
    kept = stored_copy(written)[1]
    if kept and re.fullmatch(read_table(*_TABLE)["copies_in_fp8_block"], plain):
        kept = "fp8_block"
    if kept:
        return None if published_in(name, kept) else PublishedFormats.model_validate({"weights": kept})
    release = plain.rpartition("/")[2]
    return _entries().get(release) if release != name else None


@lru_cache(maxsize=1)
def _entries() -> Mapping[str, PublishedFormats]:
    entries = read_table(*_TABLE)["entries"]
    return {name: PublishedFormats.model_validate(formats) for name, formats in entries.items()}
