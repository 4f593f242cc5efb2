"""Tables in YAML that stand in a package, beside the code that uses them: facts about other programs.

Answers: what does a table of a package say?
Elsewhere: what the tables mean (in interop: configs/keys.py, configs/formats.py, megatron/flags.py,
hugging_face/unsupported.py), the catalogue (library/catalog.py).
"""

from importlib.resources import files
from typing import Any

from flopcast.errors import InternalError
from flopcast.files.yaml_text import read_yaml


def read_table(package: str, name: str) -> dict[str, Any]:
    """Return the mapping of a YAML file of a package, such as "tables/formats.yaml".

    Raises
    ------
    InternalError
        The file holds something else.
    """
    data = read_yaml(files(package).joinpath(name).read_bytes(), name).data
    if not isinstance(data, dict):
        raise InternalError(f"{name} of {package} is no mapping")
    return data
