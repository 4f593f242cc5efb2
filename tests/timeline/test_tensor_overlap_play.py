"""What sticks out of tensor-parallel messages in chunks, against closed forms; invented seconds."""

import pytest
from all_cases import all_cases
from conftest import make_job
from workbench import priced_job, repriced

from flopcast.operators.matmul import Matmul
from flopcast.timeline.program import simulate
from flopcast.workload.program import MIDDLE

RANKS, LAYERS, SPLITS = 4, 8, 4
PRODUCT_S = 4.0  # whole
CASES = [0.0, 0.5, 2.0, 4.0, 9.0]  # seconds of a whole message


def in_tiles(message_s, how):
    """Products of four seconds and messages of so many, whole; all else takes no time."""
    stack = {"base": "megatron-core", "tensor_overlap": how}
    priced = priced_job(make_job(stack=stack, plan=f"dp=2 tp={RANKS} sp mbs=1 gbs=16"))

    def seconds_of(item):
        if isinstance(item.work, Matmul) and item.component != "head":
            return PRODUCT_S
        of_block = item.stream == "tp" and item.name.startswith(("attention.", "mlp."))
        return message_s if of_block else 0.0

    return repriced(priced, seconds_of)


@all_cases("message_s", CASES)
@all_cases("how", ["tiles", "scatter_tiles"])
def test_tile_by_tile_the_forward_shows_one_band_of_tiles(message_s, how):
    priced = in_tiles(message_s, how)
    block = [s for s in priced.programs.forward if any(i.name == "mlp.down.band" for i in s.items)]

    found = layer_s(block, priced)

    rows = next(i.work.m for i in block[0].items if i.name == "mlp.down.band").item()
    band_s = PRODUCT_S * 128 / rows
    hidden_s = max(PRODUCT_S - band_s, message_s) + band_s
    gathered_s = hidden_s if how == "tiles" else message_s + PRODUCT_S
    assert found == pytest.approx(2 * (gathered_s + hidden_s))


def played(message_s, kernel_share=0.0):
    """Products of four seconds in equal chunks; gathers and scatters of so many; all else takes no time."""
    stack = {
        "base": "megatron-core",
        "tensor_overlap": "chunks",
        "contention": {"kernel_share": kernel_share},
    }
    priced = priced_job(make_job(stack=stack, plan=f"dp=2 tp={RANKS} sp mbs=1 gbs=16"))

    def seconds_of(item):
        chunk = item.name.endswith((".last", ".rest"))
        if isinstance(item.work, Matmul) and item.component != "head":
            ahead = (item.count == RANKS - 1).all()
            first = item.name.removesuffix(".rest") in ("attention.out", "mlp.down")
            return PRODUCT_S / RANKS if chunk or ahead or (first and item.phase == "forward") else PRODUCT_S
        if item.stream == "tp" and item.name.startswith(("attention.", "mlp.")):
            scattered = item.name.startswith(("attention.leave", "mlp.leave")) and item.phase == "forward"
            return message_s / SPLITS if scattered else message_s
        return 0.0

    return repriced(priced, seconds_of)


def layer_s(segments, priced):
    return float(simulate(segments, priced, attribute=False).duration_s[MIDDLE, 0, 0]) / LAYERS


@all_cases("kernel_share", [0.0, 1.0])
@all_cases("message_s", CASES)
def test_the_forward_shows_one_chunk_of_product_or_of_message(message_s, kernel_share):
    """Gathers: the last chunk follows the last shard. Scatters: the last sum follows the last chunk."""
    priced = played(message_s, kernel_share)
    lost = priced.cluster.node.device.collective_slowdown_fraction * kernel_share
    block = [s for s in priced.programs.forward if any(i.name == "mlp.up.last" for i in s.items)]

    found = layer_s(block, priced)

    chunk_s, sum_s = PRODUCT_S / RANKS, message_s / SPLITS
    gathered_s = max((RANKS - 1) * chunk_s, message_s) + chunk_s
    scattered_s = chunk_s + (SPLITS - 1) * max(chunk_s + lost * sum_s, sum_s) + sum_s
    assert found == pytest.approx(2 * (gathered_s + scattered_s))


@all_cases("kernel_share", [0.0, 1.0])
@all_cases("message_s", CASES)
def test_the_backward_hides_gathers_under_input_gradients_and_scatters_under_weight_gradients(
    message_s, kernel_share
):
    priced = played(message_s, kernel_share)
    lost = priced.cluster.node.device.collective_slowdown_fraction * kernel_share
    block = [s for s in priced.programs.backward if any(i.name == "mlp.up.dgrad" for i in s.items)]

    found = layer_s(block, priced)

    chunk_s = PRODUCT_S / RANKS
    before_scatter_s = max((RANKS - 1) * chunk_s, message_s) + chunk_s + PRODUCT_S  # of down, or out
    again_s = max(PRODUCT_S, message_s)  # the input gradient beside the input's second gather
    behind_s = max(PRODUCT_S + lost * message_s, message_s)  # the weight gradient beside the scatter
    assert found == pytest.approx(2 * (before_scatter_s + again_s + behind_s))


def test_hidden_messages_make_a_step_shorter_and_never_shorter_than_its_products():
    steps = {}
    for overlap in ("none", "chunks", "tiles", "scatter_tiles"):
        stack = {"base": "megatron-core", "tensor_overlap": overlap}
        job = make_job(
            stack=stack,
            plan="dp=1 tp=8 sp mbs=4 gbs=16",
            model={
                "hidden": 8192,
                "vocabulary": 51200,
                "blocks": [{"count": 4, "mixer": {"heads": 64}, "feed_forward": {"ffn_hidden": 32768}}],
            },
            batch={"seq": 4096},
        )
        priced = priced_job(job)
        steps[overlap] = sum(layer_s(segments, priced) for segments in priced.programs.passes)
        free = repriced(
            priced, lambda i, p=priced: p.seconds(i) / float(i.count.max()) if i.stream != "tp" else 0
        )
        steps[f"{overlap}, free messages"] = sum(layer_s(s, free) for s in priced.programs.passes)

    assert steps["tiles"] < steps["chunks"] < steps["none"]  # the finer the parts, the sooner they end
    assert steps["tiles"] < steps["scatter_tiles"] < steps["none"]
    assert steps["tiles"] >= steps["none, free messages"]
