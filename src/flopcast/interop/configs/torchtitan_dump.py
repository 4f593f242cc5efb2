"""Write a Python config of torchtitan as JSON, which `flopcast import torchtitan` reads.

Run this program where torchtitan is installed, with torchtitan's own arguments. It does not need flopcast:

    python dump_torchtitan.py --module llama3 --config llama3_8b > llama3_8b.json

Answers: which values does a config of the registry have, including those of the command line?
Elsewhere: their meaning for a job (torchtitan.py). Only plain values are written, with the names of classes
and functions. No model is built and nothing is trained.
"""

import dataclasses
import importlib
import json
import sys
from enum import Enum

DEEPEST = 12
MODULES = ("torchtitan.config.manager", "torchtitan.config", "torchtitan.config_manager")


def plain(value: object, depth: int = 0) -> object:
    """Return a value as JSON data; other objects are replaced by their name.

    Parameters
    ----------
    value : a dataclass of torchtitan, or a value inside one
    depth : the nesting depth; values below the greatest depth are replaced by names

    Examples
    --------
    >>> plain({"a": (1, None), "b": max})
    {'a': [1, None], 'b': 'builtins.max'}
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Enum):
        return value.name.lower()
    if depth < DEEPEST:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            inner = {
                f.name: plain(getattr(value, f.name, None), depth + 1) for f in dataclasses.fields(value)
            }
            return {"_type_": name_of(type(value))} | inner
        if isinstance(value, dict):
            return {str(key): plain(one, depth + 1) for key, one in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [plain(one, depth + 1) for one in value]
    return name_of(value)


def name_of(value: object) -> str:
    """Return the qualified name of a class or function; for other objects, the name of their class.

    >>> name_of(json.JSONDecoder), name_of(3)
    ('json.decoder.JSONDecoder', 'builtins.int')
    """
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"


def manager() -> object:
    """Return torchtitan's own reader of configs; its module depends on the release.

    Raises
    ------
    SystemExit
        torchtitan is not installed.
    """
    for module in MODULES:
        try:
            return importlib.import_module(module).ConfigManager()
        except (ImportError, AttributeError):
            continue
    raise SystemExit(f"no ConfigManager in {', '.join(MODULES)}: run this where torchtitan is installed")


def main() -> None:
    """Read the command line as torchtitan does, and print the result."""
    config = manager().parse_args(sys.argv[1:])  # type: ignore[attr-defined]
    print(json.dumps(plain(config), indent=1))


if __name__ == "__main__":
    main()
