"""Number formats in which models were published, from `catalog/published_formats.yaml`.

Answers: in which formats does an engine load the weights of this model if nothing is said?
Elsewhere: the formats (spec/published_formats.py), the models (catalog.py).
"""

from collections.abc import Mapping
from functools import lru_cache

from flopcast.files.package_table import read_table
from flopcast.spec.published_formats import PublishedFormats


def published_formats(name: str) -> PublishedFormats:
    """Return the formats of a model of the catalogue; 16 bits for all that are not listed.

    >>> published_formats("deepseek-v3").weights, published_formats("llama-3-8b").weights
    ('fp8_block', 'bf16')
    """
    return _entries().get(name, PublishedFormats())


@lru_cache(maxsize=1)
def _entries() -> Mapping[str, PublishedFormats]:
    entries = read_table("flopcast", "catalog/published_formats.yaml")["entries"]
    return {name: PublishedFormats.model_validate(formats) for name, formats in entries.items()}
