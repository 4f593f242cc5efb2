"""Encoder-decoder models (T5), against products, parameters and tensors counted by hand."""

import numpy as np
import pytest
from conftest import make_job

from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.base import AbstractOperator
from flopcast.operators.messages import AllGather, AllReduce, ReduceScatter
from flopcast.prediction import memory_of, predict, programs_of
from flopcast.search.objectives import Estimates
from flopcast.spec.batch import Batch
from flopcast.spec.run_length import RunLength

HIDDEN, HEADS, SIZE, INNER, WIDTH, VOCABULARY = 256, 8, 64, 512, 1024, 32000
SOURCE, TARGET, SEQUENCES = 512, 128, 4
FP16_BYTES = 2
PLANS = (
    "dp=8 mbs=4 gbs=32 precision=fp16",
    "dp=2 tp=4 mbs=4 gbs=8 precision=fp16",
    "dp=2 tp=4 sp mbs=4 gbs=8 precision=fp16",
    "dp=2 pp=4 mbs=4 gbs=32 precision=fp16",
)


def model(encoder=4, decoder=4):
    """A small T5 without dropout."""
    mixer = {"heads": HEADS, "head_size": SIZE, "rotary_fraction": 0.0}
    block = {"norm": "rmsnorm", "feed_forward": {"ffn_hidden": WIDTH, "activation": "relu"}}
    reads = block | {"reads": "source", "mixer": mixer | {"causal": False}}
    cross = {"heads": HEADS, "head_size": SIZE}
    return {
        "hidden": HIDDEN,
        "vocabulary": VOCABULARY,
        "tied_embeddings": True,
        "blocks": [
            reads | {"count": encoder - 1},
            reads | {"count": 1, "ends_encoder": True},
            block | {"count": decoder, "mixer": mixer, "cross": cross},
        ],
    }


def job(plan=PLANS[0], source=SOURCE, target=TARGET, stack="pytorch-ddp", **sizes):
    batch = {"sequence_length": target, "source_length": source}
    return make_job(model=model(**sizes), plan=plan, batch=batch, stack=stack)


def products(source, target, encoder=4, decoder=4):
    """FLOP of one forward pass over one sequence, as a sum of matrix products (m, n, k)."""
    shapes = []
    for _ in range(encoder):
        shapes += 3 * [(source, INNER, HIDDEN)] + [(source, HIDDEN, INNER)]
        shapes += 2 * HEADS * [(source, source, SIZE)]
        shapes += [(source, WIDTH, HIDDEN), (source, HIDDEN, WIDTH)]
    for _ in range(decoder):
        shapes += 3 * [(target, INNER, HIDDEN)] + [(target, HIDDEN, INNER)]
        shapes += 2 * HEADS * [(target, target, SIZE)]
        shapes += [(target, INNER, HIDDEN), (target, HIDDEN, INNER)] + 2 * [(source, INNER, HIDDEN)]
        shapes += 2 * HEADS * [(target, source, SIZE)]
        shapes += [(target, WIDTH, HIDDEN), (target, HIDDEN, WIDTH)]
    return sum(2.0 * m * n * k for m, n, k in [*shapes, (target, VOCABULARY, HIDDEN)])


def flop_of(layers, phase):
    """FLOP of one rank's products in one micro-batch, over all layers of the model."""
    return sum(
        layer.logical.count * float(item.work.work().flop.item()) * float(item.count.item())
        for layer in layers
        for item in getattr(layer, phase)
        if isinstance(item.work, AbstractOperator)
    )


def test_the_flop_of_a_model_are_those_of_its_products_by_hand():
    for source, target in ((SOURCE, TARGET), (64, 64), (16, 2048)):
        found = job(source=source, target=target).model.forward_flop(target, source_length=source)

        assert found == pytest.approx(products(source, target), rel=1e-12)


def test_the_items_of_all_ranks_have_the_flop_of_the_products_and_twice_as_many_backward():
    """The stack writes all scores; the padded head has more rows than the vocabulary."""
    for plan in PLANS:
        one = job(plan, stack="megatron-2021")
        padded = one.model.vocabulary_multiple * one.plan.tensor_parallel
        rows = -(-VOCABULARY // padded) * padded
        head = 2.0 * TARGET * HIDDEN * (rows - VOCABULARY)
        forward, backward = (flop_of(programs_of(one).layers, phase) for phase in ("forward", "backward"))

        expected = SEQUENCES * (products(SOURCE, TARGET) + head) / one.plan.tensor_parallel
        assert forward == pytest.approx(expected, rel=1e-9), plan
        assert backward == pytest.approx(2 * expected, rel=1e-9), plan


def test_published_models_have_the_parameters_that_their_checkpoints_have():
    """Numbers of elements of google-t5/t5-11b, google/flan-t5-xl and google/flan-t5-xxl."""
    counts = {"t5-11b": 11_307_321_344, "flan-t5-xl": 2_849_757_184, "flan-t5-xxl": 11_135_332_352}

    assert {name: catalog.model(name).parameters() for name in counts} == counts


def messages(layer, phase):
    return [
        (type(item.work), float(item.work.message_bytes.item()))
        for item in getattr(layer, phase)
        if item.stream == "tp" and item.work.collective
    ]


def test_a_decoder_block_sends_the_source_in_addition_to_what_three_halves_send():
    """Each half enters and leaves the tensor-parallel region, and keys and values enter it too."""
    own, source = (SEQUENCES * tokens * HIDDEN * FP16_BYTES for tokens in (TARGET, SOURCE))
    plain, cut = (programs_of(job(plan)).layers[3] for plan in PLANS[1:3])

    assert sorted(messages(plain, "forward"), key=str) == 3 * [(AllReduce, own)]
    assert sorted(bytes_ for _, bytes_ in messages(plain, "backward")) == [*3 * [own], source]
    forward = messages(cut, "forward")
    assert sorted(bytes_ for kind, bytes_ in forward if kind is AllGather) == [*3 * [own], source]
    assert [bytes_ for kind, bytes_ in forward if kind is ReduceScatter] == 3 * [own]
    back = messages(cut, "backward")
    assert sorted(bytes_ for kind, bytes_ in back if kind is ReduceScatter) == [*3 * [own], source]


def test_the_result_of_the_encoder_is_kept_once_and_not_by_each_block_that_reads_it():
    first, last = (layer.kept_bytes.item() for layer in programs_of(job(stack="megatron-2021")).layers[1:3])
    result = SEQUENCES * SOURCE * HIDDEN * FP16_BYTES
    assert last - first == 2 * result  # the input of the norm, and the result

    short, long = (programs_of(job(source=source)).layers[3] for source in (SOURCE, 2 * SOURCE))
    keys_and_values = 2 * SEQUENCES * SOURCE * INNER * FP16_BYTES
    assert (long.kept_bytes - short.kept_bytes).item() == keys_and_values


def step_s(one):
    return predict(one, load_book(one.cluster)).step_time_s


def test_longer_sources_and_deeper_halves_cost_time_and_memory():
    for plan in PLANS:
        base = step_s(job(plan))
        more = [step_s(each) for each in (
            job(plan, source=2 * SOURCE), job(plan, target=2 * TARGET), job(plan, encoder=8, decoder=4),
            job(plan, encoder=4, decoder=8),
        )]  # fmt: skip

        assert min(more) > base, plan
        peaks = [memory_of(job(plan, source=tokens)).allocated_bytes for tokens in (SOURCE, 2 * SOURCE)]
        assert peaks[1] > peaks[0], plan


def test_tokens_of_a_step_are_those_of_both_sequences():
    one = job()

    assert one.step_tokens == one.plan.global_batch * (SOURCE + TARGET)
    assert predict(one, load_book(one.cluster)).metrics.model_flop == pytest.approx(
        3 * one.plan.global_batch * products(SOURCE, TARGET), rel=1e-12
    )


def test_sources_are_as_long_as_the_decoder_s_sequences_unless_a_batch_says_otherwise():
    stated, open_ = job(source=TARGET), job(source=None)

    assert open_.step_tokens == stated.step_tokens
    assert step_s(open_) == step_s(stated)


def test_stages_hand_on_the_activation_and_the_result_of_the_encoder():
    sent = programs_of(job(PLANS[3])).hop_across.forward[0].work.message_bytes

    assert np.all(sent == SEQUENCES * (SOURCE + TARGET) * HIDDEN * FP16_BYTES)


def test_an_encoder_reads_as_many_tokens_as_the_decoder_if_the_job_does_not_say():
    stated = job(source=TARGET, target=TARGET)
    unstated = stated.model_copy(update={"batch": Batch(sequence_length=TARGET)})

    reports = [predict(one, load_book(one.cluster)) for one in (stated, unstated)]
    assert reports[0].step_time_s == reports[1].step_time_s
    assert reports[0].metrics.model_flop == reports[1].metrics.model_flop
    for one in (stated, unstated):
        assert one.step_tokens == one.plan.global_batch * 2 * TARGET
        run = one.model_copy(update={"run": RunLength(samples=10)})
        assert run.run_tokens == 10 * 2 * TARGET
        estimates = Estimates(
            job=one, step_s=np.ones((1, 1)), global_batch=np.full((1, 1), 32.0), used_bytes=np.ones((1, 1))
        )
        assert estimates.token_s.item() == pytest.approx(1 / (32 * 2 * TARGET), rel=1e-12)
