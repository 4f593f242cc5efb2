"""Facts of the catalogue about measured runs, as typed records.

Answers: what does a file of catalog/runs contain?
Elsewhere: lists of known names, in which texts with units stay texts (published/known_names.py).
"""

from functools import lru_cache
from typing import TypeVar

from flopcast.files.validate import build
from flopcast.library import catalog
from flopcast.strict_model import StrictModel

Facts = TypeVar("Facts", bound=StrictModel)


def catalog_facts(name: str, noun: type[Facts]) -> Facts:
    """Return a file of catalog/runs as a record with a field for each of its sections except `source`."""
    found: Facts = _built(name, noun)
    return found


@lru_cache(maxsize=16)
def _built(name: str, noun: type[Facts]) -> Facts:
    entry = catalog.document("runs", name)
    data = entry.data if isinstance(entry.data, dict) else {}
    return build(noun, entry, {key: data[key] for key in data if key not in ("name", "source")})
