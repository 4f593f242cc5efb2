"""Adapters of encoder-decoder models: which matrices have them, and what they multiply, by hand."""

import pytest
from test_encoder_decoder import HIDDEN, INNER, PLANS, SEQUENCES, SOURCE, TARGET, WIDTH, flop_of, job

from flopcast.layers.adapters import Adapters
from flopcast.library.curves import load_book
from flopcast.prediction import predict, programs_of

RANK = 8
ENCODER = DECODER = 4  # blocks


def tuned(targets, plan=PLANS[0], **adapters):
    one = job(plan)
    model = one.model.model_copy(update={"adapters": Adapters(rank=RANK, targets=targets, **adapters)})
    return one.model_copy(update={"model": model})


def test_targets_of_attention_are_those_of_cross_attention_too_as_modules_of_peft():
    each = RANK * (HIDDEN + INNER)

    for targets, adapters in ((("q", "v"), 2), (("out",), 1), (("q", "k", "v", "out"), 4)):
        trained = tuned(targets).model.trained_parameters()
        assert trained == each * adapters * (ENCODER + 2 * DECODER)
    widened = RANK * (HIDDEN + WIDTH)
    assert tuned(("down",)).model.trained_parameters() == widened * (ENCODER + DECODER)


def test_fused_projections_of_cross_attention_have_one_adapter_for_queries_and_one_for_keys_and_values():
    own, queries, both = (RANK * (HIDDEN + width) for width in (3 * INNER, INNER, 2 * INNER))

    trained = tuned(("qkv",)).model.trained_parameters()

    assert trained == ENCODER * own + DECODER * (own + queries + both)


def test_keys_and_values_of_cross_attention_read_the_source_and_queries_the_decoder():
    per_token = 2.0 * RANK * (HIDDEN + INNER)

    for targets, tokens in ((("q",), ENCODER * SOURCE + 2 * DECODER * TARGET), (("v",), None)):
        wanted = tokens or (ENCODER + DECODER) * SOURCE + DECODER * TARGET
        one = tuned(targets)
        plain = job().model.forward_flop(TARGET, source_length=SOURCE)
        assert one.model.forward_flop(TARGET, source_length=SOURCE) - plain == pytest.approx(
            per_token * wanted
        )


def test_items_have_the_flop_of_the_adapters_and_frozen_weights_have_no_gradient():
    one, plain = tuned(("q", "v", "out", "down")), job()
    lengths = {"sequence_length": TARGET, "source_length": SOURCE}
    adapters = one.model.forward_flop(**lengths) - plain.model.forward_flop(**lengths)

    forward, backward = (
        flop_of(programs_of(one).layers, phase) - flop_of(programs_of(plain).layers, phase)
        for phase in ("forward", "backward")
    )

    assert forward == pytest.approx(SEQUENCES * adapters, rel=1e-9)
    assert backward == pytest.approx(
        SEQUENCES * (2 * adapters - one.model.frozen_flop(TARGET, SOURCE)), rel=1e-9
    )


def test_tensor_parallel_ranks_cut_one_of_the_two_matrices_of_each_adapter():
    """Queries and values are cut along their columns (B), outputs along their rows (A)."""
    one, cut = programs_of(tuned(("q", "v", "out"))), programs_of(tuned(("q", "v", "out"), PLANS[2]))
    attentions = ENCODER + 2 * DECODER

    whole = RANK * attentions * 3 * (HIDDEN + INNER)
    shared = RANK * attentions * 3 * (HIDDEN + INNER / 4)
    assert one.trained_parameters.max() == pytest.approx(whole)
    assert cut.trained_parameters.max() == pytest.approx(shared)


def test_a_step_with_adapters_needs_less_memory_and_time_than_one_of_all_weights():
    reports = [predict(each, load_book(each.cluster)) for each in (tuned(("q", "v")), job())]

    small, whole = reports
    assert small.memory.allocated_bytes < whole.memory.allocated_bytes
    assert small.metrics.model_flop < whole.metrics.model_flop
