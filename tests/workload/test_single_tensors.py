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


def changed(**sharding):
    return STACK.model_copy(update={"sharding": STACK.sharding.model_copy(update=sharding)})


def test_each_large_tensor_is_a_message_and_all_bytes_are_sent_once():
    together = realised(LLAMA, changed(single_tensors=False), "dp=64 gbs=64 zero=3")
    apart = realised(LLAMA, STACK, "dp=64 gbs=64 zero=3")

    units, unit_bytes = of_name(together.forward, "parameters.gather")
    messages, sent_bytes = of_name(apart.forward, "parameters.gather")

    assert messages == 8 * LARGE_TENSORS + 2  # eight blocks, the embedding and the head
    assert units == 8 + 2
    assert sent_bytes == pytest.approx(unit_bytes)


def test_every_message_is_divided_into_a_piece_for_each_rank():
    for ranks in (1, 16, 64):
        programs = realised(LLAMA, STACK, f"dp={ranks} gbs=64 zero=3")
        for segments, name in ((programs.forward, "gather"), (programs.backward, "gather")):
            messages, _ = of_name(segments, f"parameters.{name}")
            pieces, _ = of_name(segments, "host.piece")
            summed, _ = of_name(segments, "gradients.reduce")
            assert pieces == (ranks * (messages + summed) if ranks > 1 else 0)


def test_a_block_above_the_limit_is_gathered_again_after_recompute():
    block = at(realised(LLAMA, STACK, "dp=64 gbs=64 zero=3").layers[1].weights[0].elements)
    small, large = (
        realised(LLAMA, changed(live_elements=limit), "dp=64 gbs=64 zero=3 recompute=full")
        for limit in (int(1e12), int(block))
    )

    once, twice = (of_name(programs.backward, "parameters.gather")[1] for programs in (small, large))

    assert of_name(large.forward, "parameters.gather") == of_name(small.forward, "parameters.gather")
    assert twice == pytest.approx(2 * once)
