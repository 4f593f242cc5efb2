"""Files of a package that are next to the code that uses them: tables in YAML, scripts and styles.

Answers: what does a table or a text file of a package contain?
Elsewhere: what the tables mean (in interop: configs/keys.py, configs/formats.py, megatron/flags.py,
hugging_face/unsupported.py), the catalogue (library/catalog.py).
"""

from collections.abc import Mapping
from typing import Any

from flopcast.errors import InternalError
from flopcast.files.package_files import folder_of
from flopcast.files.yaml_text import read_yaml


def read_text(package: str, name: str) -> str:
    """Return the text of a file of a package, such as "static/app.js"."""
    return folder_of(package).joinpath(name).read_text(encoding="utf-8")


def read_table(package: str, name: str) -> dict[str, Any]:
    """Return the mapping of a YAML file of a package, such as "tables/formats.yaml".

    Raises
    ------
    InternalError
        The file has other contents.
    """
    data = read_yaml(folder_of(package).joinpath(name).read_bytes(), name).data
    if not isinstance(data, dict):
        raise InternalError(f"{name} of {package} is not a mapping")
    return data


def meanings(table: Mapping[str, str]) -> dict[str, str]:
    """Return the meaning of each word in a table that maps a meaning to words, separated by blanks.

    >>> meanings({"bf16": "bf16 bfloat16", "fp16": "half"})
    {'bf16': 'bf16', 'bfloat16': 'bf16', 'half': 'fp16'}
    """
    return {word: meaning for meaning, words in table.items() for word in words.split()}
