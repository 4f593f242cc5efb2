"""What is alive while a layer runs its backward: by hand, tensor after tensor, and laws for every layer."""

from all_cases import all_cases
from workload_cases import BARE, GPT, HIDDEN, LENGTH, MODELS, at, block_of, realised, stack_with

from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.operators.item import kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan, one_plan
from flopcast.workload.backward import kept_tensors, total_bytes
from flopcast.workload.backward_memory import backward_peak
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

NOTHING_AGAIN = frozenset()


def linear(name, source, output, m, n, k):
    work = Matmul(m=constant(m), n=constant(n), k=constant(k), dtype="bf16")
    return kernel(name, work, (source,), output, component="mlp")


def bound(kind, inputs, output, elements):
    work = MemoryBound(kind=kind, elements=constant(elements), dtype="bf16")
    return kernel(output, work, inputs, output, component="mlp")


def peak(items, writes=False):
    """In elements of two bytes."""
    return at(backward_peak(tuple(items), NOTHING_AGAIN, writes)) / 2


def test_a_linear_has_its_input_and_three_gradients():
    assert peak([linear("up", "x", "y", m=8, n=4, k=3)], writes=True) == 8 * 3 + 8 * 4 + 8 * 3 + 4 * 3


def test_of_a_chain_what_has_had_its_backward_is_gone():
    items = [linear("up", "x", "inner", m=8, n=100, k=2), linear("down", "inner", "y", m=8, n=2, k=100)]

    # at the second: both inputs kept, gradients of y and inner; at the first inner is gone, dx comes
    assert peak(items) == max(16 + 800 + 16 + 800, 16 + 800 + 16)


def test_a_gated_activation_has_twice_its_gradient():
    items = [bound("swiglu", ("up",), "inner", 50)]

    assert peak(items) == 100 + 50 + 100  # input kept, gradients of output and input


def test_the_gradient_of_a_sum_is_that_of_both_summands_and_stays_for_the_second():
    items = [
        linear("inside", "x", "branch", m=10, n=6, k=6),
        bound("residual_add", ("branch", "x"), "y", 60),
    ]

    # x kept, the sum's gradient (the branch's and the residual's), the branch's gradient of x beside it
    assert peak(items) == 60 + 60 + 60


def test_llama_3_70b_s_block_is_fullest_where_its_activation_runs_backward():
    model = catalog.model("llama-3-70b")
    stack = stack_with(memory={"weight_gradients": "placeholder"}).model_copy(
        update={"attention_kernel": "flash", "rewrites": ()}
    )
    block = realise(lower(model, one_plan(Plan(gbs=1)), Batch(sequence_length=4096)), stack).layers[1]

    working = at(block.working_bytes)

    # by hand: dy of 8192 and the gradient of the 2 · 28672 columns of gate and up; that of the activation's
    # output takes the place of the output, which the linear behind has freed
    assert working == 2 * 4096 * (8192 + 2 * 28672)


@all_cases("model", MODELS)
@all_cases("text", ["gbs=1", "tp=4 sp gbs=1", "tp=2 gbs=1"])
def test_at_work_a_layer_has_what_it_kept_and_at_least_the_gradient_of_its_output(model, text):
    for layer in realised(MODELS[model], BARE, text).layers:
        kept = at(total_bytes(kept_tensors(layer.forward, NOTHING_AGAIN)))

        alive = at(backward_peak(layer.forward, NOTHING_AGAIN, False))

        assert alive > kept


def test_a_gradient_that_is_written_takes_no_more_than_the_largest_weight():
    block = block_of(realised(GPT, BARE, "gbs=1"))

    written, added = (at(backward_peak(block.forward, NOTHING_AGAIN, writes)) for writes in (True, False))

    assert 0 <= written - added <= 2 * 4 * HIDDEN * HIDDEN


def test_selective_recompute_is_at_work_no_fuller_than_a_block_that_keeps_all():
    plain, selective = (
        block_of(realised(GPT, BARE, f"gbs=1 recompute={mode}")) for mode in ("none", "selective")
    )

    totals = [at(block.kept_bytes) + at(block.working_bytes) for block in (plain, selective)]

    assert totals[1] <= totals[0]
    assert at(selective.kept_bytes) < at(plain.kept_bytes) - LENGTH**2
