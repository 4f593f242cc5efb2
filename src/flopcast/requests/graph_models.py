"""Models in files that other programs exported: ONNX files and archives of torch.export.

Answers: which model does such a file describe, for the sizes that a request states?
Elsewhere: the formats (interop/graphs/), how a graph becomes a model (graph/model_of_graph.py).
"""

from collections.abc import Sequence
from pathlib import Path

from flopcast.errors import spec_error
from flopcast.files.yaml_text import Document

ENDINGS = (".onnx", ".pt2")


def is_graph(path: str) -> bool:
    """Return whether a path names an exported graph.

    >>> is_graph("models/resnet50.onnx"), is_graph("job.yaml")
    (True, False)
    """
    return Path(path).suffix.lower() in ENDINGS


def graph_model(path: str, sizes: Sequence[str] = (), where: str = "") -> tuple[Document, tuple[str, ...]]:
    """Return the model of an exported graph, and notes for the reader of the report.

    Parameters
    ----------
    sizes : "NAME=NUMBER" for axes that the file leaves open
    where : line of another file that names this one

    Raises
    ------
    SpecError
        The file cannot be read, is damaged or too large, or a size is missing.
    """
    from flopcast.graph.model_of_graph import model_of_graph
    from flopcast.interop.graphs.archive import read_archive
    from flopcast.interop.graphs.onnx_file import read_onnx
    from flopcast.interop.graphs.symbols import sizes_of

    place = Path(path)
    if not place.is_file():
        allowed, because = "a file that exists", "there is no such file"
        raise spec_error("model", path, allowed, because, "check the path", where)
    read = read_onnx if place.suffix.lower() == ENDINGS[0] else read_archive
    model, notes = model_of_graph(read(place, str(place), sizes_of(sizes)))
    return Document(path, model, {}), notes


def refuse_sizes(sizes: Sequence[str]) -> None:
    """Check that no sizes are given where no exported graph is read.

    Raises
    ------
    SpecError
        Sizes are given, which would have no effect.
    """
    if sizes:
        allowed, because = "only with an exported graph", "nothing else has open sizes"
        raise spec_error("--size", sizes[0], allowed, because, f"remove --size {sizes[0]}")
