"""Sums over the operators of one transformer layer with its prologue and epilogue, in fp32, on eight GPUs.

Source: data/graphs/neusight_graph_totals.csv; on GitHub sitar-lab/NeuSight, scripts/asplos/label. The
operators of a torch.fx graph were measured one by one: attention is two products with a softmax between
them. A row has up to three sums: the forward pass, the backward pass, and the accumulation of gradients.
Products run in fp32 even on devices with a faster format (19.5 TFLOP/s on A100).
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from flopcast.cost.graph_kernels.kernel_rows import KernelRows
from flopcast.files.package_table import read_table
from flopcast.lab.graph_runs.gradients import backward_rows
from flopcast.lab.graph_runs.kernels import Software
from flopcast.lab.graph_runs.measured import GraphRun, MeasuredGraph, Setup
from flopcast.lab.graph_runs.sketch import Sketch
from flopcast.lab.run_tables import RunTable
from flopcast.records import Record, replace

_NAMES = read_table(__package__, "names.yaml")
DEVICES: Mapping[str, str] = _NAMES["neusight"]
ACCUMULATED = 3.0  # tensors: a gradient and the sum so far are read, the sum is written


class Layer(Record):
    """A transformer of the table. `passes`: the elementwise operators of its activation and of its scores.

    Graphs of BERT have logits only in training, and more parameters around the layer: token types, a norm
    of the embeddings, and a linear layer with a norm before the logits.
    """

    hidden: int
    heads: int
    vocabulary: int
    positions: int
    activation: int
    scores: int
    joins_qkv: bool = True  # one matrix for queries, keys and values, as in GPT-2
    is_bert: bool = False


MODELS = {name: Layer(**sizes) for name, sizes in _NAMES["models_of_neusight"].items()}
SOFTWARE = Software(precision="fp32", fuses_attention=False)


def runs_of(row: Mapping[str, str]) -> Iterator[GraphRun]:
    """Yield a run for each measured sum of a row."""
    layer = MODELS.get(row["model"])
    device = DEVICES.get(row["gpu"], "")
    reason = "" if layer and device else f"{row['gpu']} or {row['model']} is not known"
    sums = ("sum_fw_ms", "sum_bw_ms", "sum_acc_ms")
    for quantity in sums:
        value = float(row.get(quantity) or 0.0)
        if not value:
            continue
        rows = None
        if layer is not None:
            head = 0 if layer.is_bert and row["mode"] != "train" else layer.vocabulary
            rows = _rows(replace(layer, vocabulary=head), quantity, int(row["batch"]), int(row["seq"]))
        yield GraphRun(
            id=f"{row['gpu']}/{row['case']}/{quantity}",
            source="NeuSight",
            setup=Setup(device=device, software=SOFTWARE, efficiencies="operators"),
            rows=rows,
            batch=int(row["batch"]),
            measured=(MeasuredGraph(quantity=quantity, unit="ms", value=value),),
            groups={"device": device, "table": "neusight_graph_totals", "family": row["model"]},
            reason=reason,
        )


def _rows(layer: Layer, quantity: str, batch: int, length: int) -> KernelRows:
    if quantity == "sum_acc_ms":
        model = Sketch(element_bytes=4.0)
        for elements, number in Counter(_parameters(layer)).items():
            model.one_pass("optimizer", elements, tensors=ACCUMULATED, calls=number)
        return model.rows()
    forward = _forward(layer, batch, length)
    return forward if quantity == "sum_fw_ms" else backward_rows(forward)


def _parameters(layer: Layer) -> list[int]:
    """Return the elements of each parameter: those of the layer and the embedding and, if it is separate,
    the head.

    PyTorch adds the gradient of each parameter in a separate kernel (AccumulateGrad). The parameters are
    those of the models in transformers.
    """
    hidden, square, words = layer.hidden, layer.hidden**2, layer.vocabulary * layer.hidden
    attention = [3 * square, 3 * hidden] if layer.joins_qkv else [square, hidden] * 3
    block = [*attention, square, hidden, 4 * square, 4 * hidden, 4 * square, hidden, *([hidden] * 4)]
    around = [words, layer.positions * hidden, words, hidden, hidden]
    if layer.is_bert:
        around += [2 * hidden, hidden, hidden, square, hidden, layer.vocabulary]
    return block + around


def _forward(layer: Layer, batch: int, length: int) -> KernelRows:
    model = Sketch(element_bytes=4.0)
    tokens, hidden, wide = batch * length, layer.hidden, 4 * layer.hidden
    model.one_pass("gather", tokens * hidden, calls=2)
    for columns, depth in ((3 * hidden, hidden), (hidden, hidden), (wide, hidden), (hidden, wide)):
        model.product(rows=tokens, columns=columns, depth=depth)
    heads, width = batch * layer.heads, hidden // layer.heads
    model.product(batch=heads, rows=length, columns=length, depth=width)
    model.product(batch=heads, rows=length, columns=width, depth=length)
    scores = heads * length**2
    model.one_pass("elementwise", scores, calls=layer.scores)
    model.one_pass("softmax", scores, row=length)
    model.one_pass("elementwise", tokens * wide, calls=layer.activation)
    model.one_pass("elementwise", tokens * hidden, tensors=3.0, calls=3)
    model.one_pass("copy", tokens * hidden)
    model.one_pass("layer_norm", tokens * hidden, row=hidden, calls=3)
    if layer.vocabulary:
        model.product(rows=tokens, columns=layer.vocabulary, depth=hidden)
    return model.rows()


TABLE = RunTable(
    header=("gpu", "case", "sum_fw_ms", "sum_bw_ms"),
    runs_of=lambda _path, rows, _options: (run for row in rows for run in runs_of(row)),
)
