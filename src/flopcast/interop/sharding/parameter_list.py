"""The list of a model's parameters: a JSON file of names and shapes, or the header of a safetensors file.

Elsewhere: the rules that follow from it (rules.py). Weights are not read.
"""

import json
import re
from pathlib import Path

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.inputs import opened, too_long
from flopcast.files.unpacked import read_unpacked

MOST_BYTES = 100_000_000  # of a list, and of the header of a safetensors file, as its own library has it
LENGTH_BYTES = 8  # of the length of a header
NO_LIST = "is not a list of parameters"
REWRITE = "list the name and the shape of every parameter in a JSON file"
Shape = tuple[int, ...]


def read_parameters(path: Path) -> dict[str, Shape]:
    """Return the shape of each parameter, in the order of the file.

    Raises
    ------
    SpecError
        The file cannot be read, or it is not a list of names and shapes.
    """
    try:
        found = json.loads(_text(path))
    except OSError as error:
        raise _wrong(path, error.strerror or str(error), "cannot be read", "check the path") from None
    except (ValueError, RecursionError) as error:
        because = f"the JSON parser reports: {str(error) or type(error).__name__}"
        form = "safetensors" if path.suffix == ".safetensors" else "JSON"
        raise _wrong(path, because, f"is not a {form} file") from None
    if not isinstance(found, dict):
        raise _wrong(path, "the file does not contain a mapping from names to shapes", NO_LIST)
    found.pop("__metadata__", None)
    shapes = {
        str(name): each.get("shape") if isinstance(each, dict) else each for name, each in found.items()
    }
    if not shapes:
        raise _wrong(path, "the file contains no parameters", NO_LIST)
    result: dict[str, Shape] = {}
    problems: list[Problem] = []
    for name, shape in shapes.items():
        if not isinstance(shape, list) or not all(type(size) is int and size > 0 for size in shape):
            sizes = [int(size) for size in re.findall(r"(?<![\d.])\d+", str(shape)[:60])]
            allowed, because = "a list of whole numbers above 0", "a shape is a list of sizes"
            fix = f'write "{name[:60]}": {sizes if sizes and all(sizes) else [4096, 4096]}'
            problems.append(Problem(name[:60], shape, allowed, because, fix, where=str(path)))
        else:
            result[name] = tuple(shape)
    if problems:
        raise SpecError(problems)
    return result


def _text(path: Path) -> bytes:
    """Return the JSON of a list, or of the header of a safetensors file."""
    if path.suffix != ".safetensors":
        return read_unpacked(path, MOST_BYTES)
    with opened(path) as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if length > MOST_BYTES:
            raise OSError(too_long(MOST_BYTES))
        return file.read(length)


def _wrong(path: Path, because: str, fault: str, fix: str = REWRITE) -> SpecError:
    allowed = 'a JSON file such as {"model.embed.weight": [32000, 4096]}, or a .safetensors file'
    return spec_error(str(path), None, allowed, because, fix, fault=fault)
