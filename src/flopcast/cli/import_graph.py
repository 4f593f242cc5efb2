"""`flopcast import graph`: an exported graph becomes a model in YAML.

Elsewhere: the files (interop/graphs/), all other imports (imports.py).
"""

from pathlib import Path

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import FILE, out_option
from flopcast.cli.output_files import print_notes, print_or_write
from flopcast.errors import spec_error
from flopcast.files.yaml_text import Document

option = DocumentedOptions(__name__)


@click.command(
    "graph", short_help="Convert an exported graph (.onnx, .pt2) to a model and print it as YAML."
)
@click.argument("file", required=False, type=FILE, metavar="[MODEL.onnx|MODEL.pt2|timm:NAME|hf:NAME|…]")
@option("--module", metavar="PACKAGE:FUNCTION")
@option("--size", multiple=True, metavar="NAME=NUMBER")
@out_option("model")
def graph(file: Path | None, module: str | None, size: tuple[str, ...], out: Path | None) -> None:
    """Print the model of an exported graph as YAML.

    To read an exported file, flopcast runs no code, loads no pickles and reads no weights. It runs code
    only for --module and for names such as timm:resnet50. With --module, flopcast calls your Python
    function, which must return a model and the arguments of its forward method. For models of timm and
    transformers, it may return the model alone. During this call, PyTorch allocates no memory for tensors.

    A name such as timm:resnet50, hf:google-t5/t5-11b or diffusers:FOLDER is a model of the library timm,
    transformers or diffusers. The library creates the model without weights. For transformers and
    diffusers, the configuration of the model comes from the Hugging Face hub or from a folder. --size
    batch=8 and --size tokens=512 set the sizes of the example input.

    \b
    flopcast import graph timm:resnet50 -o resnet50.yaml
    flopcast import graph model.onnx -o model.yaml
    flopcast import graph model.pt2 --size tokens=512
    flopcast import graph --module timm.models:resnet50 -o resnet50.yaml
    flopcast predict --model resnet50.yaml --batch 2048 --cluster dgx-a100 --gpus 8
    """
    from flopcast.graph.model_of_graph import model_of_graph
    from flopcast.interop.graphs.named import is_name
    from flopcast.requests.graph_models import graph_model

    if (file is None) == (module is None):
        because = "flopcast reads a file or runs a function, not both"
        value = f"{file} and {module}" if file else "neither"
        allowed = "exactly one of a file, a name such as timm:resnet50, and --module PACKAGE:FUNCTION"
        fix = "give one of them"
        raise spec_error("graph", value, allowed, because, fix)
    traced = module or (str(file) if is_name(str(file)) else None)
    if traced is not None:
        from flopcast.interop.graphs.export import exported_graph
        from flopcast.interop.graphs.symbols import sizes_of

        mapping, notes = model_of_graph(exported_graph(traced, sizes_of(size)))
    else:
        document, notes = graph_model(str(file), size)
        mapping = dict(document.mapping)
    write_model(Document(str(file or module), mapping, {}), mapping, notes, out, (1e6, "million"))


def write_model(
    document: Document,
    mapping: dict[str, object],
    notes: tuple[str, ...],
    out: Path | None,
    unit: tuple[float, str] = (1e9, "billion"),
) -> None:
    """Write a model as YAML, to stdout or a file, and its notes and number of parameters to stderr."""
    from flopcast.files.validate import build
    from flopcast.library.model_yaml import model_text
    from flopcast.spec.model import Model

    model = build(Model, document, mapping)
    print_notes(notes)
    size, word = unit
    summary = f"{model.name}, {model.parameters() / size:.3f} {word} parameters"
    print_or_write(model_text(mapping), out, summary)
