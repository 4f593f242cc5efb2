"""Limits on the size of graphs, so that flopcast rejects a malicious file within seconds."""

from flopcast.errors import SpecError, spec_error

MOST_NODES = 200_000
MOST_AXES = 64


def too_many_nodes(name: str, count: int) -> SpecError:
    """Return the error for a graph with too many operators."""
    allowed = f"at most {MOST_NODES} operators"
    because = f"the graph has {count}: loops were unrolled, or layers were exported one by one"
    fix = "export only one of the equal layers, and state how often it repeats with count in a YAML file"
    return spec_error("model", name, allowed, because, fix, fault="is too large")
