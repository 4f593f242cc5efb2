"""An exported graph as a job file names it.

Answers: which file holds the model, which sizes are open in it, and does it run under autocast?
Elsewhere: reading the file (requests/graph_models.py).
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from flopcast.strict_model import StrictModel

SAMPLED = ".sampled.yaml"
ENDINGS = (".onnx", ".pt2", SAMPLED)


def _of_graph(path: str) -> str:
    if not path.lower().endswith(ENDINGS):
        raise ValueError(f"a path that ends in {', '.join(ENDINGS[:-1])} or {SAMPLED}")
    return path


class GraphFile(StrictModel):
    """A model that another program exported as a graph.

    Attributes
    ----------
    graph : str
        Path of an ONNX file, an archive of torch.export, or a graph network that samples neighbours.
    sizes : mapping of str to int
        Values of the symbolic sizes of the graph, by name. "batch" is the number of samples of the example
        input, or of seeds in a sampled batch.
    autocast : bool
        Whether the model runs under PyTorch's automatic mixed precision: norms, softmax and sums in fp32,
        GEMMs in 16 bits.

    Examples
    --------
    >>> GraphFile(graph="model.pt2", sizes={"tokens": 512}, autocast=True).size_words
    ('tokens=512',)
    """

    graph: Annotated[str, AfterValidator(_of_graph)]
    sizes: Mapping[str, Annotated[int, Field(ge=1, lt=10**9)]] = {}
    autocast: bool = False

    @property
    def size_words(self) -> tuple[str, ...]:
        """Return the sizes as `--size` takes them."""
        return tuple(f"{name}={number}" for name, number in self.sizes.items())
