"""Models in files that describe graphs: ONNX files, archives of torch.export, and sampled networks.

Answers: which model does such a file describe, for the sizes that a request states?
Elsewhere: the formats (interop/graphs/), how a graph becomes a model (graph/model_of_graph.py).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.field_paths import dotted
from flopcast.files.nearest_names import choice_fix
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.library.catalog import folder
from flopcast.spec.graph_file import ENDINGS, SAMPLED, GraphFile

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from flopcast.graph.operator_graph import OperatorGraph

AUTOCAST_NOTE = "graph: under autocast, norms, softmax and sums run in fp32, and GEMMs in 16 bits"


def is_graph(path: str) -> bool:
    """Return whether a path names an exported graph.

    >>> is_graph("models/resnet50.onnx"), is_graph("job.yaml")
    (True, False)
    """
    return path.lower().endswith(ENDINGS)


def is_in_catalogue(name: str) -> bool:
    """Return whether a name is that of a sampled network in the catalogue.

    >>> is_in_catalogue("rgat-igbh-full.sampled.yaml"), is_in_catalogue("job.yaml")
    (True, False)
    """
    return name.endswith(SAMPLED) and "/" not in name and (folder("graphs") / name).is_file()


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
    from flopcast.interop.graphs.symbols import sizes_of

    place: Traversable | Path = Path(path)
    if not place.is_file() and is_in_catalogue(path):
        place = folder("graphs") / path
    if not place.is_file():
        allowed, because = "a file that exists", "there is no such file"
        raise spec_error("model", path, allowed, because, "check the path", where)
    graph = _graph(place, path, sizes_of(sizes))
    if not autocast:
        model, notes = model_of_graph(graph)
        return Document(path, model, {}), notes
    from flopcast.graph.autocast import under_autocast

    model, notes = model_of_graph(under_autocast(graph))
    return Document(path, model, {}), (*notes, AUTOCAST_NOTE)


def _graph(place: "Traversable | Path", path: str, sizes: Mapping[str, int]) -> "OperatorGraph":
    """Return the graph of operators in a file with one of the known endings."""
    if path.lower().endswith(SAMPLED):
        return sampled_graph(read_yaml(place.read_bytes(), path), sizes)
    if path.lower().endswith(ENDINGS[0]):
        from flopcast.interop.graphs.onnx_file import read_onnx

        return read_onnx(Path(path), path, sizes)
    from flopcast.interop.graphs.archive import read_archive

    return read_archive(Path(path), path, sizes)


def sampled_graph(document: Document, sizes: Mapping[str, int]) -> "OperatorGraph":
    """Return the graph of a network that samples neighbours, for a batch of seeds.

    Raises
    ------
    SpecError
        The description has errors, or a size other than `batch`, the number of seeds, is given.
    """
    from flopcast.graph.relational_attention import relational_attention
    from flopcast.graph.sampled_network import SampledNetwork
    from flopcast.interop.graphs.symbols import BATCH, Symbols

    network = build(SampledNetwork, document, document.data)
    problems = [
        Problem(
            field=dotted(path),
            value=name,
            allowed=f"a type of nodes: {', '.join(network.nodes)}",
            because="nodes states no number of nodes of this type",
            fix=choice_fix(name, {each: each for each in network.nodes}, next(iter(network.nodes))),
            where=document.where(path),
        )
        for path, name in network.unknown_types
    ]
    if problems:
        raise SpecError(problems)
    symbols = Symbols(given=sizes)
    seeds = symbols.value(BATCH, "the number of seeds that one device samples for a step")
    symbols.require(document.name)
    return relational_attention(network, seeds)


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
