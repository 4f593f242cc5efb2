"""Distributions of lengths: packs, shared sequences and balance, against conservation and equal plans."""

from collections import Counter

import pytest
from conftest import make_job

from flopcast.errors import SpecError
from flopcast.library.curves import load_book
from flopcast.prediction import predict

LENGTHS = {"lengths": "1024:64,4096:12,16384:3,65536:1", "step_tokens": 2**19, "rank_tokens": 4096}
PLAN = "mbs=1 zero=1 precision=bf16"


def job(batch, plan="dp=16 gbs=16", stack="megatron-core", cluster="dgx-h100:2"):
    return make_job(model="llama-3.2-1b", cluster=cluster, stack=stack, batch=batch, plan=f"{PLAN} {plan}")


def mixed(plan="dp=16 gbs=16", **changes):
    return job({"seq": 65536, "distribution": LENGTHS | changes}, plan)


def listed(one):
    """Each micro-batch with the ranks that list it and its tokens, once for each time it is listed."""
    for ranks in one.batch.ranks:
        for each in ranks.micro_batches:
            yield each, ranks.count * each.count, each.sequence_length or sum(each.documents)


def seconds(one):
    return predict(one, load_book(one.cluster)).step_time_s


def test_ranks_that_share_sequences_are_context_parallelism():
    for exchange in ("ring", "all_gather", "all_to_all"):
        plan = f"context_exchange={exchange}"
        divided = job({"seq": 8192}, f"dp=4 cp=4 gbs=8 {plan}")
        shared = job({"seq": 8192, "shared_by": 4}, f"dp=16 gbs=32 {plan}")
        one_by_one = {"micro_batches": [{"seq": 8192, "shared_by": 4, "count": 2}], "count": 16}
        in_lists = job({"seq": 8192, "ranks": [one_by_one]}, f"dp=16 gbs=32 {plan}")
        reports = [predict(one, load_book(one.cluster)) for one in (divided, shared, in_lists)]

        for report in reports[1:]:
            assert report.step_time_s == pytest.approx(reports[0].step_time_s, rel=1e-9)
            assert report.metrics.model_flop == pytest.approx(reports[0].metrics.model_flop, rel=1e-9)
            assert report.metrics.tokens_per_s == pytest.approx(reports[0].metrics.tokens_per_s, rel=1e-9)
            assert report.memory.allocated_bytes == pytest.approx(
                reports[0].memory.allocated_bytes, rel=1e-9
            )


def test_a_step_has_all_tokens_of_the_mixture_and_their_flop_whoever_shares_them():
    for one in (
        mixed(), mixed(balance="tokens"), mixed(shared_rank_tokens=8192),
        mixed("dp=1 cp=16 gbs=1", sharing="mesh"),
        mixed("dp=4 cp=4 gbs=4", sharing="mesh", rank_tokens=16384),
    ):  # fmt: skip
        tokens = sum(number * length / each.shared_by for each, number, length in listed(one))
        sequences = one_sequences(LENGTHS)
        report = predict(one, load_book(one.cluster))

        assert tokens == sum(length * number for length, number in sequences)
        assert one.step_tokens == pytest.approx(tokens)
        flop = 3 * sum(number * one.model.forward_flop(length) for length, number in sequences)
        assert report.metrics.model_flop == pytest.approx(flop)


def one_sequences(distribution):
    """Lengths and numbers of the step, from the weights."""
    pairs = [tuple(map(int, pair.split(":"))) for pair in distribution["lengths"].split(",")]
    scale = distribution["step_tokens"] / sum(length * weight for length, weight in pairs)
    return [(length, round(scale * weight)) for length, weight in pairs]


def test_a_sequence_is_shared_by_as_few_ranks_as_hold_it_and_short_ones_fill_a_rank():
    for each, _, length in listed(mixed()):
        assert length / each.shared_by <= LENGTHS["rank_tokens"]
        assert each.shared_by == max(length // LENGTHS["rank_tokens"], 1)
    numbers = Counter()
    for each, number, _ in listed(mixed()):
        numbers[each.model_copy(update={"count": 1})] += number
    assert all(number % each.shared_by == 0 for each, number in numbers.items())


def test_balance_makes_the_slowest_rank_faster_and_a_mesh_is_slower_than_either():
    flop, tokens = seconds(mixed()), seconds(mixed(balance="tokens"))
    mesh = seconds(mixed("dp=1 cp=16 gbs=1", sharing="mesh"))

    assert flop <= tokens < mesh


def test_unequal_numbers_of_micro_batches_take_as_long_as_the_longest_list():
    few, many = ([{"seq": 4096, "count": count}] for count in (2, 6))
    unequal = {
        "seq": 4096,
        "ranks": [{"count": 8, "micro_batches": few}, {"count": 8, "micro_batches": many}],
    }
    alike = {"seq": 4096, "ranks": [{"count": 16, "micro_batches": many}]}

    assert seconds(job(unequal, "dp=16 gbs=64")) == pytest.approx(seconds(job(alike, "dp=16 gbs=96")))


def test_only_shared_sequences_leave_the_device_if_the_others_are_left_out():
    plan = "dp=16 gbs=16 offload=activations:host:0.5"
    every, chosen = (
        job({"seq": 65536, "distribution": LENGTHS | {"offload_short": short}}, plan, "generic")
        for short in (True, False)
    )
    assert {(each.shared_by > 1) == each.offloads for each, _, _ in listed(chosen)} == {True}
    assert all(each.offloads for each, _, _ in listed(every))
    reports = [predict(one, load_book(one.cluster)) for one in (every, chosen)]
    assert reports[1].step_time_s <= reports[0].step_time_s
    assert reports[1].memory.tiers[0].expected_bytes <= reports[0].memory.tiers[0].expected_bytes


def test_documents_over_ranks_cost_the_square_of_each_and_the_exchange_of_all():
    """Two halves need half of the pairs of one sequence, and as many keys and values travel."""
    whole, halves = (
        predict(one, load_book(one.cluster)).metrics.model_flop
        for one in (
            job({"seq": 8192}, "dp=4 cp=4 gbs=4"),
            job({"seq": 8192, "documents": [4096, 4096]}, "dp=4 cp=4 gbs=4"),
        )
    )
    model = job({"seq": 8192}).model

    assert whole - halves == pytest.approx(
        3 * 4 * (model.attention_flop(8192) - 2 * model.attention_flop(4096))
    )


def test_a_wrong_mixture_is_told_with_its_field():
    for changes, plan, field in (
        ({"lengths": "1024:0"}, "dp=16 gbs=16", "batch.distribution.lengths"),
        ({"lengths": "lognormal(4096, 1)"}, "dp=16 gbs=16", "batch.distribution.lengths"),
        ({"step_tokens": 8192}, "dp=16 gbs=16", "batch.distribution.step_tokens"),
        ({"rank_tokens": 2048}, "dp=16 gbs=16", "batch.distribution.rank_tokens"),
        ({"sharing": "mesh"}, "dp=4 cp=4 gbs=4", "batch.distribution.rank_tokens"),
    ):
        with pytest.raises(SpecError) as told:
            mixed(plan, **changes)
        assert [problem.field for problem in told.value.problems] == [field], changes
