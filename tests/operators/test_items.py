"""Items: names of kept tensors, streams, and what running one again means."""

import pytest
from all_cases import all_cases

from flopcast.dtypes import constant
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import EVERY_STREAM, HostWork, blocking, host_work, kernel
from flopcast.operators.matmul import BatchedMatmul, Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import AllGather, AllReduce, SendReceive
from flopcast.operators.tier_copies import LINKS

EIGHT = constant(8)


def memory_bound(kind):
    return MemoryBound(kind=kind, elements=EIGHT, dtype="bf16")


def product():
    return Matmul(m=EIGHT, n=EIGHT, k=EIGHT, dtype="bf16")


def names(item):
    return [name for name, _ in item.saved()]


def test_an_input_that_is_kept_goes_by_the_name_of_the_tensor_that_was_read():
    item = kernel("mlp.up", product(), ("mlp.in.full",), "mlp.up", component="mlp")

    assert names(item) == ["mlp.in.full"]


def test_an_output_that_is_kept_goes_by_the_name_of_the_tensor_that_was_written():
    item = kernel("attention.softmax", memory_bound("softmax"), ("scores",), "weights", component="a")

    assert names(item) == ["weights"]


def test_a_tensor_of_one_operator_alone_goes_by_the_operators_name():
    first, second = (
        kernel(name, memory_bound("dropout"), ("x",), "x", component="residual")
        for name in ("attention.drop", "mlp.drop")
    )

    assert names(first) == ["attention.drop.mask"]
    assert names(second) == ["mlp.drop.mask"]


def test_second_and_third_inputs_keep_their_own_names():
    flash = FlashAttention(
        batch=EIGHT, kv_batch=EIGHT, queries=EIGHT, head_size=EIGHT, causal=True, dtype="bf16"
    )

    item = kernel("flash", flash, ("q", "k", "v"), "context", component="attention")

    assert names(item) == ["q", "k", "v", "context", "flash.log_sum"]


def test_two_operators_that_keep_one_tensor_name_it_alike():
    relu = kernel("relu", memory_bound("relu"), ("up",), "inner", component="mlp")
    down = kernel("down", product(), ("inner",), "partial", component="mlp")

    assert names(relu) == names(down) == ["inner"]


def test_sizes_of_kept_tensors_are_those_of_the_operator():
    scores = BatchedMatmul(
        role="scores",
        batch=constant(2),
        kv_batch=constant(2),
        queries=constant(3),
        keys=constant(5),
        head_size=constant(7),
        dtype="fp16",
    )

    item = kernel("scores", scores, ("q", "k"), component="attention")

    assert {name: kept.item() for name, kept in item.saved()} == {"q": 2 * 3 * 7 * 2, "k": 2 * 5 * 7 * 2}


@pytest.mark.parametrize("message", [AllReduce, AllGather, SendReceive])
def test_messages_keep_nothing(message):
    item = blocking("leave", message(axis="tp", message_bytes=EIGHT), "partial", "sum")

    assert item.saved() == ()


def test_a_host_that_waits_keeps_nothing():
    assert host_work("synchronise", "forward").saved() == ()


def test_an_output_without_a_name_is_called_after_its_item():
    assert kernel("rope", memory_bound("rope"), ("q",), component="attention").output == "rope"


def test_operators_queue_on_the_compute_stream_behind_results_of_messages_and_the_host():
    item = kernel("rope", memory_bound("rope"), component="attention")

    assert (item.stream, item.phase, item.when, item.count.item()) == ("compute", "forward", "every", 1)
    assert set(item.waits) == {"compute", "tp", "ep", "cp", "host"}


def test_operators_wait_for_no_gradient_reduction_and_no_pipeline_transfer():
    """Else nothing could overlap: waits of a step's end are set where a step ends."""
    assert not {"dp", "pp"} & set(kernel("rope", memory_bound("rope"), component="attention").waits)


@all_cases("axis", ["tp", "ep", "dp", "pp"])
def test_a_message_queues_on_the_stream_of_its_axis_behind_what_computes_its_input(axis):
    item = blocking("leave", AllReduce(axis=axis, message_bytes=EIGHT), "partial", "sum")

    assert (item.stream, item.component) == (axis, f"{axis}_communication")
    assert "compute" in item.waits


def test_a_message_reads_its_source_and_writes_its_output():
    item = blocking("enter", AllGather(axis="tp", message_bytes=EIGHT), "in", "in.full", EIGHT / 2)

    assert (item.inputs, item.output, item.kept_bytes.item()) == (("in",), "in.full", 4.0)


def test_a_drained_device_has_finished_every_stream():
    item = host_work("synchronise", "backward")

    assert isinstance(item.work, HostWork)
    streams = {"compute", "tp", "ep", "cp", "dp", "pp", "gathered", "host", "updates", *LINKS}
    assert set(item.waits) == set(EVERY_STREAM) == streams
    assert (item.work.kind, item.stream, item.phase) == ("synchronise", "host", "backward")
    assert (item.name, item.component) == ("host.synchronise", "host")


def test_running_an_item_again_changes_its_phase_and_nothing_else():
    item = kernel("rope", memory_bound("rope"), ("q",), "q", component="attention", group="core")

    again = item.again()

    assert (item.phase, again.phase) == ("forward", "recompute")
    assert again.work is item.work
    assert (again.name, again.inputs, again.output) == (item.name, item.inputs, item.output)
    assert (again.group, again.stream, again.waits) == (item.group, item.stream, item.waits)
