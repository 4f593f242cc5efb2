"""Models in files that other programs exported: ONNX files and archives of torch.export.

Answers: which model does such a file describe, for the sizes that a request states?
Elsewhere: the formats (interop/graphs/), how a graph becomes a model (graph/model_of_graph.py).
"""

from collections.abc import Sequence
from pathlib import Path

from flopcast.errors import spec_error
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.spec.graph_file import ENDINGS, GraphFile

AUTOCAST_NOTE = "graph: under autocast, norms, softmax and sums run in fp32, and GEMMs in 16 bits"


def is_graph(path: str) -> bool:
    """Return whether a path names an exported graph.

    >>> is_graph("models/resnet50.onnx"), is_graph("job.yaml")
    (True, False)
    """
    return Path(path).suffix.lower() in ENDINGS


def stated_graph(document: Document) -> GraphFile | None:
    """Return the exported graph that a document describes as its model; None for any other model.

    Raises
    ------
    SpecError
        Keys next to "graph" are unknown or have wrong values.
    """
    model = document.mapping.get("model")
    if not isinstance(model, dict) or "graph" not in model:
        return None
    return build(GraphFile, document, model, ("model",))


def graph_model(
    path: str, sizes: Sequence[str] = (), where: str = "", autocast: bool = False
) -> tuple[Document, tuple[str, ...]]:
    """Return the model of an exported graph, and notes for the reader of the report.

    Parameters
    ----------
    sizes : "NAME=NUMBER" for the symbolic sizes of the file
    where : line of another file that names this one
    autocast : whether the model runs under PyTorch's automatic mixed precision

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
    graph = read(place, str(place), sizes_of(sizes))
    if not autocast:
        model, notes = model_of_graph(graph)
        return Document(path, model, {}), notes
    from flopcast.graph.autocast import under_autocast

    model, notes = model_of_graph(under_autocast(graph))
    return Document(path, model, {}), (*notes, AUTOCAST_NOTE)


def refuse_graph_options(sizes: Sequence[str], autocast: bool) -> None:
    """Check that options of exported graphs are given only with an exported graph.

    Raises
    ------
    SpecError
        Sizes or autocast are given, which would have no effect.
    """
    allowed = "no value, because the model is not an exported graph"
    if autocast:
        because = "only exported graphs need this option; for other models, the plan states the precision"
        raise spec_error("--autocast", True, allowed, because, "remove --autocast")
    if sizes:
        because = "only exported graphs have symbolic sizes"
        raise spec_error("--size", sizes[0], allowed, because, f"remove --size {sizes[0]}")
