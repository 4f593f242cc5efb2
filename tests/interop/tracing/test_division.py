"""What tensor parallelism divides in recordings that are written by hand: no torch is needed."""

from math import prod

from all_cases import all_cases

from flopcast.interop.tracing.blocks import POINTS, PROOF
from flopcast.interop.tracing.division import divide
from flopcast.interop.tracing.recorder import Call, Operand, Parameter, Recording

ROWS, WIDTH, INNER, HEADS = 128, 64, 256, 8
X, Y, UP, GATE, DOWN, SHARED = 0, 90, 91, 92, 93, 94


def tensor(storage, *shape, strides=None):
    return Operand(
        storage=storage,
        shape=shape,
        element_bytes=2,
        storage_bytes=2 * prod(shape),
        strides=strides or tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))),
    )


def call(name, reads, *writes):
    return Call(name=name, reads=tuple(reads), writes=writes, layer=0, backward=False)


def division(*calls):
    weights = {
        UP: (WIDTH, INNER),
        GATE: (WIDTH, INNER),
        DOWN: (INNER, WIDTH),
        SHARED: (WIDTH, INNER // HEADS),
    }
    return divide(
        Recording(
            calls=calls,
            kept=(),
            parameters=tuple(
                Parameter(name=f"w{s}", storage=s, shape=w, layer=0) for s, w in weights.items()
            ),
            inputs=(X,),
            outputs=(Y,),
        ),
        0,
        calls,
    )


def up(weight=UP, result=10):
    return call("mm", [tensor(X, ROWS, WIDTH), tensor(weight, WIDTH, INNER)], tensor(result, ROWS, INNER))


def down(source):
    product = tensor(60, ROWS, WIDTH)
    reads = [tensor(source, ROWS, INNER), tensor(DOWN, INNER, WIDTH)]
    return call("mm", reads, product), call(
        "add", [product, tensor(X, ROWS, WIDTH)], tensor(Y, ROWS, WIDTH)
    )


def wide(storage):
    return tensor(storage, ROWS, INNER)


def heads(storage):
    return tensor(storage, ROWS, HEADS, INNER // HEADS)


def test_a_gated_feed_forward_is_divided_by_columns_then_rows():
    found = division(
        up(UP, 10),
        up(GATE, 11),
        call("silu", [wide(11)], wide(12)),
        call("mul", [wide(10), wide(12)], wide(13)),
        *down(13),
    )

    assert found.kinds == {0: "column", 1: "column", 2: "within", 3: "within", 4: "row"}
    assert found.storages == {UP, GATE, DOWN, 10, 11, 12, 13}
    assert (found.units, found.whole) == (INNER, {})
    assert found.entering == {0: (X,), 1: (X,)}


def test_a_norm_of_each_head_leaves_whole_heads_to_a_rank():
    mean = tensor(11, ROWS, HEADS, 1)
    normed = heads(12)

    found = division(
        up(), call("mean", [heads(10)], mean), call("mul", [heads(10), mean], normed), *down(12)
    )

    assert (found.units, found.kinds[3]) == (HEADS, "row")


def test_a_tensor_that_all_heads_share_enters_and_its_gradient_is_summed():
    """Rotated keys of latent attention (arXiv:2405.04434, section 2.1.3)."""
    width = INNER // HEADS
    shared = call("mm", [tensor(X, ROWS, WIDTH), tensor(SHARED, WIDTH, width)], tensor(20, ROWS, width))
    moved = call(
        "mul", [tensor(20, ROWS, 1, width, strides=(width, width, 1))] * 2, tensor(21, ROWS, 1, width)
    )
    passed = call("topk", [tensor(21, ROWS, 1, width)], tensor(22, ROWS, 1, width))
    broadcast = tensor(22, ROWS, HEADS, width, strides=(width, 0, 1))

    found = division(shared, moved, passed, up(), call("add", [heads(10), broadcast], heads(12)), *down(12))

    assert found.entering == {3: (X,), 4: (22,)}
    assert set(found.whole) == {SHARED}


@all_cases(
    ("between", "reason"),
    [
        (call("mean", [wide(10)], tensor(11, ROWS, 1)), "the operator mean works across"),
        (call("_softmax", [wide(10)], wide(11)), "the operator _softmax works across"),
        (call("cumsum", [wide(10)], wide(11)), "the operator cumsum works across"),
        (call("sum", [heads(10)], tensor(11, ROWS, HEADS)), "the operator sum works across"),
        (call("clone", [tensor(10, ROWS, 1, strides=(INNER, 1))], tensor(11, ROWS, 1)), "a single head"),
        (call("cat", [wide(10), wide(10)], tensor(11, ROWS, 2 * INNER)), "the operator cat works across"),
    ],
)
def test_a_product_stays_whole_where_an_operator_needs_several_parts(between, reason):
    found = division(up(), between, *down(10))

    assert reason in found.whole[UP]
    assert (found.units, found.kinds, found.storages) == (1, {}, frozenset())


def test_a_product_stays_whole_where_nothing_sums_over_its_columns():
    found = division(up(), call("add", [tensor(X, ROWS, WIDTH)] * 2, tensor(Y, ROWS, WIDTH)))

    assert "row-parallel" in found.whole[UP]


def test_a_weight_of_two_products_stays_whole():
    found = division(up(UP, 10), up(UP, 11), call("mul", [wide(10), wide(11)], wide(12)), *down(12))

    assert "more than one operator" in found.whole[UP]


def test_pairs_that_are_turned_as_complex_numbers_keep_their_heads():
    """DeepSeek-V2's code of transformers views two elements of 4 bytes as one of 8."""
    pairs = INNER // HEADS // 2
    size = Operand(
        storage=10,
        shape=(ROWS, HEADS, pairs),
        element_bytes=4,
        storage_bytes=2 * ROWS * INNER,
        strides=(INNER // 2, pairs, 1),
    )

    found = division(up(), call("mul", [size, tensor(7, 1, 1, pairs)], heads(12)), *down(12))

    assert (found.units, found.kinds[1]) == (HEADS, "within")


def test_all_traced_micro_batches_have_several_sequences():
    """A batch of one sequence needs no copy of its heads (BLOOM, Falcon, GPT-J)."""
    assert min(sequences for sequences, _ in (*POINTS, PROOF)) > 1
    assert len({sequences for sequences, _ in POINTS}) == 2  # a size is linear in sequences
