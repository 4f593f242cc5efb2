"""Kernels found in recordings that are written by hand: no torch is needed."""

from math import prod

import pytest

from flopcast.interop.tracing.fusing import kernels
from flopcast.interop.tracing.recorder import Call, Kept, Operand, Parameter, Recording

ROWS, WIDTH, INNER = 128, 64, 256
X, Y, WEIGHT = 0, 90, 91


def tensor(storage, *shape, element_bytes=2):
    size = element_bytes
    for extent in shape:
        size *= extent
    return Operand(
        storage=storage,
        shape=shape,
        element_bytes=element_bytes,
        storage_bytes=size,
        strides=tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))),
    )


def call(name, reads, *writes):
    return Call(name=name, reads=tuple(reads), writes=writes, layer=0, backward=False)


def recording(*calls, kept=()):
    sizes = {o.storage: o.storage_bytes for c in calls for o in (*c.reads, *c.writes)}
    return Recording(
        calls=calls,
        kept=tuple(Kept(storage=storage, size_bytes=sizes[storage], layer=0) for storage in kept),
        parameters=(Parameter(name="w", storage=WEIGHT, shape=(WIDTH, INNER), layer=0),),
        inputs=(X,),
        outputs=(Y,),
    )


def wide(storage):
    return tensor(storage, ROWS, WIDTH, element_bytes=4)


def narrow(storage):
    return tensor(storage, ROWS, WIDTH)


def norm(source, result):
    """A norm as a chain: cast, square, mean, divide, cast."""
    mean = tensor(12, ROWS, 1, element_bytes=4)
    return (
        call("_to_copy", [narrow(source)], wide(10)),
        call("pow", [wide(10)], wide(11)),
        call("mean", [wide(11)], mean),
        call("mul", [wide(10), mean], wide(13)),
        call("_to_copy", [wide(13)], narrow(result)),
    )


def product(source, result):
    return call("mm", [narrow(source), tensor(WEIGHT, WIDTH, INNER)], tensor(result, ROWS, INNER))


def test_a_chain_of_passes_is_one_kernel_that_reads_and_writes_once():
    (chain, linear) = kernels(recording(*norm(X, 20), product(20, Y)), 0)

    assert (chain.kind, linear.kind) == ("pass", "matmul")
    assert chain.sizes == {"moved": 2 * ROWS * WIDTH}
    assert linear.sizes == {"m": ROWS, "n": INNER, "k": WIDTH}


def test_what_autograd_kept_inside_a_kernel_is_computed_again_from_its_input():
    """The chain's fp32 tensors never leave the kernel: x is kept, in 16 bits."""
    (chain, _) = kernels(recording(*norm(X, 20), product(20, Y), kept=(10, 12, 20)), 0)

    assert chain.keeps == {"x": ROWS * WIDTH}


def test_a_pass_waits_until_a_product_needs_it():
    """silu(gate) is dispatched before the second product, and runs with the product of both halves."""
    up = [tensor(storage, ROWS, INNER) for storage in (30, 31, 32, 33)]
    down = tensor(92, INNER, WIDTH)
    calls = (
        product(X, 30),
        call("silu", [up[0]], up[2]),
        product(X, 31),
        call("mul", [up[2], up[1]], up[3]),
        call("mm", [up[3], down], narrow(Y)),
    )

    found = kernels(recording(*calls, kept=(30, 31, 32, 33)), 0)

    assert [kernel.kind for kernel in found] == ["matmul", "matmul", "pass", "matmul"]
    assert found[2].sizes == {"moved": 3 * ROWS * INNER}  # gate and value in, product out
    assert list(found[2].keeps.values()) == [ROWS * INNER, ROWS * INNER]


def test_views_are_no_kernels():
    calls = (call("view", [narrow(X)], tensor(X, ROWS * WIDTH)), product(X, Y))

    assert [kernel.kind for kernel in kernels(recording(*calls), 0)] == ["matmul"]


def test_an_operator_in_place_is_a_pass():
    calls = (product(X, 40), call("div_", [tensor(40, ROWS, INNER)], tensor(40, ROWS, INNER)))

    found = kernels(recording(*calls, call("add", [tensor(40, ROWS, INNER)], tensor(Y, ROWS, INNER))), 0)

    assert [kernel.kind for kernel in found] == ["matmul", "pass"]


@pytest.mark.parametrize(("size", "told"), [(64, {}), (32, {"value_head_size": 32})])
def test_attention_knows_values_of_another_size(size, told):
    query = tensor(X, 2, 4, ROWS, 64)
    value = tensor(50, 2, 1, ROWS, size)
    fused = call("fused_attention", [query, tensor(51, 2, 1, ROWS, 64), value], tensor(Y, 2, ROWS, 4, size))

    (kernel,) = kernels(recording(fused), 0)

    assert kernel.sizes == {"heads": 4, "kv_heads": 1, "head_size": 64} | told


def test_products_with_a_batch_of_weights_are_groups():
    weight = tensor(WEIGHT, 8, 64, 32)

    (kernel,) = kernels(recording(call("bmm", [tensor(X, 8, 16, 64), weight], tensor(Y, 8, 16, 32))), 0)

    assert (kernel.kind, kernel.sizes) == ("grouped_matmul", {"groups": 8, "rows": 128, "n": 32, "k": 64})
