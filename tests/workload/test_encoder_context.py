"""Context parallelism of encoder-decoder models: FLOP and tokens are divided, keys and values gathered."""

import pytest
from test_encoder_decoder import FP16_BYTES, HIDDEN, INNER, SEQUENCES, SOURCE, flop_of, job

from flopcast.errors import SpecError
from flopcast.jobs import job as named_job
from flopcast.library.curves import load_book
from flopcast.operators.messages import AllGather, AllToAll, ReduceScatter
from flopcast.prediction import predict, programs_of

STACK = "megatron-core"


def plan(ranks, more=""):
    shared = f"cp={ranks} context_exchange=all_gather" if ranks > 1 else ""
    return f"dp={8 // ranks} mbs=4 gbs=32 precision=fp16 {shared} {more}"


def gathered(layer, phase, kind):
    return sorted(
        item.work.message_bytes.item()
        for item in getattr(layer, phase)
        if isinstance(item.work, kind) and item.work.axis == "cp" and item.name.startswith("cross.")
    )


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_all_ranks_that_share_sequences_have_the_flop_of_one_rank_alone(phase):
    alone = flop_of(programs_of(job(plan(1), stack=STACK)).layers, phase)

    for ranks in (2, 4):
        shared = flop_of(programs_of(job(plan(ranks), stack=STACK)).layers, phase)
        assert ranks * shared == pytest.approx(alone, rel=1e-9)


def test_cross_attention_gathers_keys_and_values_of_the_whole_source_and_scatters_their_gradients():
    for ranks in (2, 4):
        decoder = programs_of(job(plan(ranks), stack=STACK)).layers[3]

        whole = SEQUENCES * SOURCE * INNER * FP16_BYTES
        assert gathered(decoder, "forward", AllGather) == [whole, whole]
        assert gathered(decoder, "backward", ReduceScatter) == [whole, whole]


def test_each_rank_keeps_its_part_of_the_encoders_result():
    first, last = ({}, {})
    for ranks in (1, 2, 4):
        layers = programs_of(job(plan(ranks), stack=STACK)).layers
        first[ranks], last[ranks] = (layer.kept_bytes.item() for layer in layers[1:3])

    result = SEQUENCES * SOURCE * HIDDEN * FP16_BYTES
    for ranks in (1, 2, 4):
        assert last[ranks] - first[ranks] == pytest.approx(2 * result / ranks)


def test_ranks_that_share_sequences_need_less_memory_for_activations():
    found = [job(plan(ranks), stack=STACK) for ranks in (1, 2)]
    alone, shared = (predict(each, load_book(each.cluster)) for each in found)

    assert shared.memory.by_category["activations"] < 0.6 * alone.memory.by_category["activations"]
    assert shared.metrics.model_flop == pytest.approx(alone.metrics.model_flop)


def test_an_all_to_all_divides_the_flop_and_sends_both_sequences_once_each_way():
    alone = programs_of(job(plan(1), stack=STACK)).layers

    for ranks in (2, 4):
        shared = programs_of(job(plan(ranks).replace("all_gather", "all_to_all"), stack=STACK)).layers

        for phase in ("forward", "backward"):
            assert ranks * flop_of(shared, phase) == pytest.approx(flop_of(alone, phase), rel=1e-9)
            sent = gathered(shared[3], phase, AllToAll)
            own = SEQUENCES * SOURCE / ranks * INNER * FP16_BYTES
            assert sent.count(own) >= 2  # keys and values
            assert len(sent) == 4  # and queries and the result of the decoder's tokens


def test_relative_positions_of_t5_go_with_ranks_that_share_sequences():
    words = "dp=2 tp=4 cp=2 gbs=32 context_exchange=all_gather"
    t5 = named_job(
        "t5-11b",
        cluster="dgx-a100:2",
        seq=512,
        plan=words,
        stack=STACK,
        changes=["batch.source_length=512"],
    )

    report = predict(t5, load_book(t5.cluster))

    assert report.breakdown["cp_communication"] > 0
    with pytest.raises(SpecError, match="adds positions to its scores"):
        named_job("t5-11b", cluster="dgx-a100:2", seq=512, plan=words.replace("all_gather", "ring"))


def test_a_ring_is_refused():
    with pytest.raises(SpecError, match="ring attention is not supported yet for cross-attention"):
        job("dp=4 cp=2 mbs=4 gbs=32 precision=fp16", stack=STACK)
