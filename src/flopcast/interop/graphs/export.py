"""A model from the user's own code or from a library, exported by the user's PyTorch.

Answers: which graph does a model have that a function of a module returns, or that a library provides by
name?
Elsewhere: the models of libraries (named.py), the archive that results (archive.py). Only this reader runs
code, and only code that the user names: a function of a module in the user's environment, or one of the
libraries. Tensors are on the device "meta": no weights are created, and no memory is needed.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from typing import Any

from flopcast.errors import SpecError, spec_error
from flopcast.graph.operator_graph import OperatorGraph
from flopcast.interop.graphs.archive import read_archive
from flopcast.interop.graphs.named import SIZES_OF_NAMED, is_name, named_model
from flopcast.records import Record

Torch = Any  # the module
SAMPLES = 2  # of the example batch of a model that states the shape of its input


class Example(Record, eq=False):
    """A model and the arguments of one call."""

    model: Any
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


def exported_graph(factory: str, sizes: Mapping[str, int]) -> OperatorGraph:
    """Return the graph of the model that a function returns.

    Parameters
    ----------
    factory : "PACKAGE:FUNCTION"; the function returns a model, with its arguments and named arguments or
        without; or a name such as "timm:resnet50"
    sizes : sizes of axes that the export leaves open, by name

    Raises
    ------
    SpecError
        torch is not installed, the function does not exist, or the model cannot be exported.
    """
    field = "graph" if is_name(factory) else "--module"
    torch = _torch(factory)
    make = None if is_name(factory) else _function(factory)
    try:
        with torch.device("meta"):
            example = _example(torch, make(), factory) if make else _named(factory, sizes)
            model, named = example.model.train(), dict(example.named)
            program = torch.export.export(model, example.arguments, named, strict=False)
        file = BytesIO()
        torch.export.save(program, file)
    except SpecError:
        raise
    except Exception as error:  # whatever the user's code raises
        because = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        allowed = "a model that torch.export can export"
        fix = "follow the advice of torch.export on this error"
        raise spec_error(field, factory, allowed, because, fix) from error
    left = {name: size for name, size in sizes.items() if make or name not in SIZES_OF_NAMED}
    return read_archive(file.getvalue(), factory.partition(":")[2].rpartition("/")[2], left)


def _named(name: str, sizes: Mapping[str, int]) -> Example:
    model, arguments = named_model(name, sizes)
    return Example(model=model, arguments=(), named=arguments)


def _torch(factory: str) -> Torch:
    try:
        return import_module("torch")
    except ImportError:
        allowed, because = "a Python with torch", "the PyTorch of this environment exports the model"
        needed = f"'flopcast[{factory.partition(':')[0]}]'" if is_name(factory) else "torch"
        fault, fix = "needs torch, which is not installed", f"pip install {needed}"
        field = "graph" if is_name(factory) else "--module"
        raise spec_error(field, factory, allowed, because, fix, fault=fault) from None


def _function(factory: str) -> Any:  # noqa: ANN401
    """Return the function; it is also searched in the current folder."""
    package, _, name = factory.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(import_module(package), name)
    except (ImportError, AttributeError, ValueError) as error:
        allowed, fix = "PACKAGE:FUNCTION, such as timm.models:resnet50", "correct the name"
        raise spec_error("--module", factory, allowed, str(error), fix) from None


def _example(torch: Torch, made: Any, factory: str) -> Example:  # noqa: ANN401
    """Return a model and its arguments; timm and transformers determine the arguments of their models."""
    model, *rest = made if isinstance(made, tuple) else (made,)
    if rest:
        named = rest[1] if len(rest) > 1 else {}
        return Example(model=model, arguments=tuple(rest[0]), named=named)
    if shape := getattr(model, "default_cfg", {}).get("input_size"):
        return Example(model=model, arguments=(torch.zeros(SAMPLES, *shape),), named={})
    if inputs := getattr(model, "dummy_inputs", None):
        return Example(model=model, arguments=(), named=inputs)
    because = "the model does not state the shape of its input"
    allowed, fix = "a function that returns a model and its arguments", "return (model, (input, ...))"
    raise spec_error("--module", factory, allowed, because, fix)
