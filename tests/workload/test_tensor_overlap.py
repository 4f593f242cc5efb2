"""Tensor-parallel messages in chunks under their products: nothing is lost, and what waits for what."""

import pytest
from all_cases import all_cases
from workload_cases import LLAMA, MODELS, at, block_of, messages, realised, stack_with

from flopcast.cost.host import SINGLE_CALL_S, launch_seconds
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.operators.matmul import Matmul

PLAIN = catalog.stack("megatron-core")
EVERY_SECOND = catalog.stack("torch-fsdp2-compiled")  # selective recompute runs every second product again
CHUNKS, TILES, SCATTERS = (
    stack_with(PLAIN, tensor_overlap=how) for how in ("chunks", "tiles", "scatter_tiles")
)


def passes(stack, *texts, model=LLAMA):
    layer = block_of(realised(model, stack, *texts))
    return layer.forward, layer.backward


def executed(items, quantity, plan=0):
    return sum(at(quantity(item), plan) * at(item.count, plan) for item in items)


def flop(items, plan=0):
    products = [item for item in items if hasattr(item.work, "work")]
    return executed(products, lambda item: item.work.work().flop, plan)


def sent(items, collective, plan=0):
    return executed(messages(items, collective), lambda item: item.work.message_bytes, plan)


@all_cases("model", MODELS)
@all_cases("recompute", ["none", "selective", "full"])
@all_cases("base", [PLAIN, EVERY_SECOND])
@all_cases("how", ["chunks", "tiles", "scatter_tiles"])
def test_parts_add_up_to_the_products_and_messages_that_were_cut(model, recompute, base, how):
    plan = f"tp=4 sp mbs=2 gbs=2 recompute={recompute}".replace("recompute=none", "")
    stack = stack_with(base, tensor_overlap=how)
    for whole, cut in zip(
        passes(base, plan, model=MODELS[model]), passes(stack, plan, model=MODELS[model]), strict=True
    ):
        assert flop(cut) == pytest.approx(flop(whole), rel=1e-12)
        for collective in ("all_gather", "reduce_scatter"):
            assert sent(cut, collective) == pytest.approx(sent(whole, collective), rel=1e-12)


def test_every_gather_and_scatter_of_a_block_has_a_product_beside_it():
    """Two linears behind gathers, two before scatters; backward likewise, and two inputs gathered again."""
    forward, backward = passes(CHUNKS, "tp=4 sp mbs=1 gbs=1")

    gathered = [
        item.name for item in forward if item.name.endswith(".last") and isinstance(item.work, Matmul)
    ]
    scattered = [item.name for item in forward if item.name.endswith(".rest")]
    hidden = [item.name for item in backward if item.name.endswith(".wgrad.ready")]
    assert gathered == ["attention.qkv.last", "mlp.up.last"]
    assert scattered == ["attention.out.rest", "mlp.down.rest"]
    assert hidden == ["mlp.up.wgrad.ready", "attention.qkv.wgrad.ready"]
    assert [item.name for item in backward if item.name.endswith(".dgrad.last")] == [
        "mlp.down.dgrad.last",
        "attention.out.dgrad.last",
    ]


def test_tiles_leave_products_and_messages_whole():
    """A fused kernel has the shape of the product, with one message; hardware leaves gathers alone."""
    whole = {item.name: item.work for item in passes(PLAIN, "tp=4 sp mbs=1 gbs=1")[0]}
    for stack, of_gathers in ((TILES, 2), (SCATTERS, 0)):
        forward, _ = passes(stack, "tp=4 sp mbs=1 gbs=1")
        bands = [item for item in forward if item.name.endswith(".band")]
        assert len(bands) == 2 + of_gathers
        for band in bands:
            assert at(band.work.m) == at(whole[band.name.removesuffix(".band")].m) == 2048
            assert at(band.count) == 128 / 2048
        assert all(at(item.count) == 1 for item in messages(forward))


def test_what_is_kept_does_not_depend_on_chunks():
    whole, cut = (block_of(realised(LLAMA, stack, "tp=4 sp mbs=1 gbs=1")) for stack in (PLAIN, CHUNKS))

    assert at(cut.kept_bytes) == at(whole.kept_bytes)
    assert at(cut.working_bytes) == at(whole.working_bytes)


def test_the_head_and_the_embedding_are_not_cut():
    """Megatron-LM's output layer is no linear of Transformer Engine."""
    programs = realised(LLAMA, CHUNKS, "tp=4 sp mbs=1 gbs=1")

    names = [item.name for layer in programs.layers if layer.kind != "block" for item in layer.forward]
    assert not [name for name in names if name.endswith((".last", ".rest"))]


def test_one_rank_multiplies_in_one_piece():
    """In a batch with others, too: chunks that it does not have run no times."""
    forward, _ = passes(CHUNKS, "tp=1 sp mbs=1 gbs=1", "tp=4 sp mbs=1 gbs=1")

    runs = {item.name: (at(item.work.m, 0), at(item.count, 0)) for item in forward if is_product(item)}
    assert runs["attention.qkv"][1] == runs["attention.out.rest"][1] == 0
    assert runs["attention.qkv.last"] == runs["attention.out"] == (2048, 1)


def test_one_call_launches_all_chunks_of_a_product():
    """`split_overlap_ag` and `split_overlap_rs` of Transformer Engine: one call, however many chunks."""
    whole, cut = passes(PLAIN, "tp=4 sp mbs=1 gbs=1")[0], passes(CHUNKS, "tp=4 sp mbs=1 gbs=1")[0]

    def seconds(items):
        launched = [launch_seconds(item, constant(1e-5), PLAIN) * at(item.count, 0) for item in items]
        return sum(launch_s.item() for launch_s in launched)

    chunks = sum(at(item.count, 0) for item in cut) - len(whole)
    further = sum(at(item.count, 0) for item in cut if item.is_further_chunk)

    assert chunks == further == 2 * 3 + 2 * (3 + 3)  # two products in 4 pieces, two with their scatters
    assert seconds(cut) == pytest.approx(seconds(whole) + further * SINGLE_CALL_S)


def is_product(item):
    return isinstance(item.work, Matmul)
