"""ZeRO-3 that sends tensor by tensor: how many messages and pieces, and the same bytes as in units."""

import pytest
from workload_cases import LLAMA, at, realised

from flopcast.library import catalog

STACK = catalog.stack("deepspeed-zero-2021")
LARGE_TENSORS = 4  # of a block: projections in and out of attention and MLP; norms are too small


def of_name(segments, name):
    """Number of executions, and bytes, of the items of a name in one pass over the model."""
    found = [
        (at(item.count) * at(segment.repeat), getattr(item.work, "message_bytes", None))
        for segment in segments
        for item in segment.items
        if item.name == name
    ]
    sent_bytes = sum(count * at(size) for count, size in found if size is not None)
    return sum(count for count, _ in found), sent_bytes


def changed(**fetch):
    """The stack with other costs of single tensors; without them if `units` are messages."""
    single = None if fetch.pop("units", False) else STACK.sharding.single_tensors.model_copy(update=fetch)
    sharding = STACK.sharding.model_copy(update={"single_tensors": single})
    return STACK.model_copy(update={"sharding": sharding})


def test_each_large_tensor_is_a_message_and_all_bytes_are_sent_once():
    together = realised(LLAMA, changed(units=True), "dp=64 gbs=64 zero=3")
    apart = realised(LLAMA, STACK, "dp=64 gbs=64 zero=3")

    units, unit_bytes = of_name(together.forward, "parameters.gather")
    messages, sent_bytes = of_name(apart.forward, "parameters.gather")

    assert messages == 8 * LARGE_TENSORS + 2  # eight blocks, the embedding and the head
    assert units == 8 + 2
    assert sent_bytes == pytest.approx(unit_bytes)


def test_every_message_is_divided_into_a_piece_for_each_rank():
    for ranks in (1, 16, 64):
        programs = realised(LLAMA, STACK, f"dp={ranks} gbs=64 zero=3")
        for segments in (programs.forward, programs.backward):
            messages, _ = of_name(segments, "parameters.gather")
            summed, _ = of_name(segments, "gradients.reduce")
            sent = messages + summed if ranks > 1 else 0
            assert of_name(segments, "host.message")[0] == sent
            assert of_name(segments, "host.piece")[0] == ranks * sent


def test_the_software_passes_over_every_element_that_it_gathers():
    programs = realised(LLAMA, STACK, "dp=64 gbs=64 zero=3")

    for segments in (programs.forward, programs.backward):
        elements, _ = of_name(segments, "host.element")
        assert elements == pytest.approx(at(programs.parameters))


def test_tensors_that_are_used_again_too_late_are_gathered_again_for_their_backward_pass():
    block = [
        at(weight.elements) for weight in realised(LLAMA, STACK, "dp=64 gbs=64 zero=3").layers[1].weights
    ]
    after_first = 2 * sum(block[1:])  # both passes of all tensors that follow the first
    plain, none, first, most = (
        of_name(realised(LLAMA, changed(reuse_elements=limit), plan).backward, "host.element")[0]
        for limit, plan in (
            (1, "dp=64 gbs=64 zero=3"),
            (int(1e12), "dp=64 gbs=64 zero=3 recompute=full"),
            (int(after_first), "dp=64 gbs=64 zero=3 recompute=full"),
            (int(2 * block[-1]), "dp=64 gbs=64 zero=3 recompute=full"),
        )
    )

    assert plain == pytest.approx(none)
    assert first - none == pytest.approx(8 * block[0])
    assert most - none == pytest.approx(8 * sum(block[:-1]))  # of a block, the last tensor stays
