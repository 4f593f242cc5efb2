"""Plans that flopcast chooses for exported graphs have pipeline stages only if none without them fits."""

from itertools import pairwise

import pytest
from onnx_cases import model, node, value, weight

from flopcast import InfeasibleError, job

WIDTH = 30_000


def linears(path, count):
    """Write a graph of equal linear layers, each of 0.9 B parameters, without values."""
    names = [f"h{number}" for number in range(count + 1)]
    path.write_bytes(
        model(
            nodes=[
                node("Gemm", f"{x} w{number}", y, transB=1) for number, (x, y) in enumerate(pairwise(names))
            ],
            inputs=[value(names[0], "batch", WIDTH)],
            outputs=[value(names[-1], "batch", WIDTH)],
            weights=[weight(f"w{number}", WIDTH, WIDTH) for number in range(count)],
            shapes=[value(name, "batch", WIDTH) for name in names[1:-1]],
        )
    )
    return path


def chosen(path, plan):
    return job(path, cluster="dgx-a100:1", plan=plan, batch=512).plan


def test_a_graph_gets_stages_only_if_its_states_do_not_fit_without_them(tmp_path):
    """A parameter takes 16 bytes of a device without sharding, and 80 GB hold 5 B parameters."""
    small, large = (linears(tmp_path / f"{count}.onnx", count) for count in (4, 8))

    assert chosen(small, "zero=0").pipeline_parallel == 1
    assert chosen(small, "zero=0 pp=2").pipeline_parallel == 2
    assert chosen(large, "zero=0").pipeline_parallel > 1
    with pytest.raises(InfeasibleError):
        chosen(large, "zero=0 pp=1")
