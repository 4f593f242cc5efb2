"""Every class runs through torch; where torch is not, the answer says how to get it."""

import time
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from flopcast.errors import SpecError
from flopcast.lab.measure.device import Place, identity, libraries, load_torch, open_bench
from flopcast.lab.measure.kernels import make
from flopcast.lab.measure.memory_bound_kernels import _extra
from flopcast.lab.measure.shapes import SPACES, Shape
from flopcast.lab.measure.timing import cold

HAS_TORCH = find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="kernels run through torch, which is not installed")
NEEDS_NOTHING = [space for space in SPACES if not space.needs and space.variants[0][1] != "fp8"]
ON_A_GPU_ONLY = ("fp32_accumulate",)


def run_of(shape):
    """One execution of a shape on the processor."""
    return make(shape, Place(torch=import_module("torch"), device="cpu"))


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed: nothing is refused")
def test_a_machine_without_torch_is_told_how_to_install_it():
    with pytest.raises(SpecError) as caught:
        load_torch("cpu")

    (problem,) = caught.value.problems
    assert problem.field == "torch"
    assert problem.because.startswith("flopcast runs kernels through torch")
    assert "pip install torch" in problem.fix


@needs_torch
@pytest.mark.parametrize("space", NEEDS_NOTHING, ids=lambda s: f"{s.kernel}-{s.variants[0]}")
def test_every_class_runs_on_a_processor(space):
    shape = space.shape(0, True, 0)

    if set(ON_A_GPU_ONLY) & set(shape.flags):
        with pytest.raises(NotImplementedError):
            run_of(shape)()
    else:
        run = run_of(shape)
        run()
        run()  # a second time: graphs and buffers are kept


@needs_torch
@pytest.mark.parametrize("layout", ["forward", "input_gradient", "weight_gradient"])
def test_every_layout_gives_rows_by_columns(layout):
    shape = Shape(kernel="gemm", layout=layout, dtype="bf16", sizes=(("m", 16), ("n", 32), ("k", 64)))

    assert tuple(run_of(shape)().shape) == (16, 32)


@needs_torch
def test_operand_orders_are_those_of_a_linear_layer():
    """cuBLAS calls them TN, NN and NT: only one operand of the first and the last is read transposed."""
    orders = []
    for layout in ("forward", "input_gradient", "weight_gradient"):
        shape = Shape(kernel="gemm", layout=layout, dtype="bf16", sizes=(("m", 4), ("n", 8), ("k", 16)))
        run = run_of(shape)
        cells = dict(zip(run.__code__.co_freevars, run.__closure__, strict=True))
        orders.append(tuple(cells[side].cell_contents.is_contiguous() for side in ("left", "right")))

    assert orders == [(True, False), (True, True), (False, True)]


@pytest.mark.parametrize("kind", ["rope", "unfused_rope"])
def test_angles_are_no_bytes_beside_what_is_turned(kind):
    """An operator counts what is read and written of its own elements: a table as large would double it."""
    shape = Shape(kernel=kind, dtype="bf16", sizes=(("tokens", 4096), ("width", 128)))
    numbers = SimpleNamespace(randn=lambda *sizes, device, dtype: np.zeros(sizes), bfloat16=None)

    angles = _extra(kind, shape, Place(torch=numbers, device="cpu"))

    assert angles.size < 0.01 * 4096 * 128
    assert angles.shape[-1] == 2 * 128  # a cosine and a sine for each column


@needs_torch
def test_times_of_a_processor_grow_with_the_work():
    """A thousand times the FLOP takes longer on any processor."""
    small, large = (
        Shape(kernel="gemm", layout="forward", dtype="fp32", sizes=(("m", n), ("n", n), ("k", n)))
        for n in (32, 320)
    )

    torch = load_torch("cpu")
    bench = open_bench(torch, identity(torch, "cpu"), "cpu", time.perf_counter, time.sleep)
    assert min(cold(run_of(large), bench, 3, 0.0)) > min(cold(run_of(small), bench, 3, 0.0))


def test_a_processor_has_no_libraries_to_measure():
    assert libraries("cpu") == frozenset()
