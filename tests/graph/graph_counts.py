"""What flopcast counts in exported graphs, beside the counts of PyTorch.

    python tests/graph/graph_counts.py FOLDER …

compares every graph that oracle.py wrote to these folders, and writes the table exported/models.csv of all
counts and ratios; needs no torch.
"""

import csv
import gzip
import io
import sys
import zipfile
from pathlib import Path

from flopcast.graph.canonical import UNKNOWN, canonical, flop_of
from flopcast.graph.lowering import lowering
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.graph.saved import saved_tensors, tensors_with_gradient, view_roots
from flopcast.interop.graphs.archive import read_archive
from flopcast.spec.model import Model


def packed_graph(data, name):
    """The graph of a packed export."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/models/model.json", gzip.decompress(data))
    return read_archive(file.getvalue(), name, {})


def forward_flop(graph):
    """FLOP of the forward pass."""
    return sum(flop_of(graph, node) for node in graph.nodes)


def flop_of_samples(graph):
    """FLOP of a forward pass in which each sample also computes what does not depend on it."""
    known = lowering(graph)
    return sum(flop_of(graph, node) * (1 if known.grows(node) else graph.samples) for node in graph.nodes)


def saved_bytes(graph):
    """Bytes that autograd keeps, each tensor once, without weights."""
    return sum(kept(graph).values())


def kept(graph):
    """Bytes that autograd keeps, by tensor or by operator and what it keeps."""
    trained, roots, found = tensors_with_gradient(graph), view_roots(graph), {}
    for node in graph.nodes:
        for saved in saved_tensors(graph, node, trained):
            root = roots.get(saved.tensor, saved.tensor)
            if not saved.tensor:
                found[node.name, saved.role] = saved.size_bytes
            elif not graph.tensors[root].is_parameter:
                found[root] = graph.tensors[root].size_bytes
    return found


def compared(row, data):
    """The counts of a graph over those of PyTorch: parameters, FLOP, FLOP of its model, saved bytes."""
    graph = packed_graph(data, row["model"])
    model = Model.model_validate(model_of_graph(graph)[0])
    unknown = sorted({node.operator for node in graph.nodes if canonical(node) is UNKNOWN})
    return {
        "parameter_ratio": model.parameters() / int(row["parameters"]),
        "flop_ratio": ratio(forward_flop(graph), float(row["forward_flop"])),
        "model_flop_ratio": ratio(graph.samples * model.forward_flop(1), flop_of_samples(graph)),
        "saved_ratio": saved_bytes(graph) / float(row["saved_bytes"]),
    }, unknown


def ratio(counted, expected):
    """One number over another; 1 if both are 0."""
    return counted / expected if expected else 1.0 + counted


def agrees(ratios):
    """Whether parameters and FLOP are within 0.5 % and saved bytes within 3 %."""
    exact = (value for name, value in ratios.items() if name != "saved_ratio")
    return all(abs(value - 1) < 0.005 for value in exact) and abs(ratios["saved_ratio"] - 1) < 0.03


def main(folders):
    """Write exported/models.csv, and print the models that differ and operators that are unknown."""
    rows = {}
    for folder in map(Path, folders):
        with (folder / "counts.csv").open() as table:
            for row in csv.DictReader(table):
                name = row["model"].replace(":", ".")
                ratios, unknown = compared(row, (folder / f"{name}.json.gz").read_bytes())
                rows[name] = row | {key: f"{value:.4f}" for key, value in ratios.items()}
                if unknown or not agrees(ratios):
                    print(*rows[name].values(), *unknown)
    with Path(__file__).with_name("exported").joinpath("models.csv").open("w", newline="") as table:
        writer = csv.DictWriter(table, list(row) + list(ratios), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in sorted(rows))
    print(len(rows), "models")


if __name__ == "__main__":
    main(sys.argv[1:])
