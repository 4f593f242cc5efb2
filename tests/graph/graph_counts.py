"""What flopcast counts in exported graphs, beside the counts of PyTorch.

    python tests/graph/graph_counts.py FOLDER

compares every graph that oracle.py wrote to FOLDER, and prints those that differ; needs no torch.
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


def compared(folder):
    """Print the models of a folder that differ, and how many agree."""
    with (folder / "counts.csv").open() as table:
        rows = list(csv.DictReader(table))
    right = 0
    for row in rows:
        name = row["model"]
        try:
            graph = packed_graph((folder / f"{name.replace(':', '.')}.json.gz").read_bytes(), name)
            model = Model.model_validate(model_of_graph(graph)[0])
            ratios = (
                model.parameters() / int(row["parameters"]),
                forward_flop(graph) / (float(row["forward_flop"]) or 1),
                graph.samples * model.forward_flop(1) / (flop_of_samples(graph) or 1),
                saved_bytes(graph) / float(row["saved_bytes"]),
            )
        except Exception as error:
            print(name, type(error).__name__, str(error)[:400])
            continue
        unknown = sorted({node.operator for node in graph.nodes if canonical(node) is UNKNOWN})
        agrees = all(abs(each - 1) < 0.005 for each in ratios[:3]) and abs(ratios[3] - 1) < 0.03
        right += agrees
        if not agrees or unknown:
            print(name, *(f"{each:.4f}" for each in ratios), *unknown)
    print(f"{right} of {len(rows)} agree")


if __name__ == "__main__":
    compared(Path(sys.argv[1]))
