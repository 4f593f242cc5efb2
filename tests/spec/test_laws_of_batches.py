"""Batches of sequences: tokens, pairs and shares, against the same counted one sequence at a time."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.spec.batch import Batch, MicroBatch, RankBatch

LAWS = settings(max_examples=80)
lengths = st.lists(st.integers(1, 4096), min_size=1, max_size=8)
micro = st.builds(
    lambda seq, count: MicroBatch(seq=seq, count=count),
    st.sampled_from([128, 512, 1024, 4096]),
    st.integers(1, 4),
)
listed = st.lists(micro, min_size=1, max_size=6).map(tuple)
by_ranks = st.lists(
    st.builds(lambda each, count: RankBatch(micro_batches=each, count=count), listed, st.integers(1, 5)),
    min_size=1,
    max_size=4,
).map(tuple)


def sequences(batch):
    """The length of the sequence of every micro-batch of every rank, one by one."""
    return [
        each.sequence_length
        for ranks in batch.lists
        for _ in range(ranks.count)
        for each in ranks.micro_batches
        for _ in range(each.count)
    ]


@LAWS
@given(documents=lengths)
def test_documents_of_the_mean_length_have_as_many_pairs_as_the_documents_themselves(documents):
    batch = Batch(seq=sum(documents), documents=documents)

    mean = batch.mean_document_tokens

    assert Batch(documents=documents) == batch
    assert batch.documents_by_kind.item() * mean**2 == pytest.approx(sum(each**2 for each in documents))
    assert min(documents) <= mean * (1 + 1e-12)
    assert mean <= max(documents) * (1 + 1e-12)


@LAWS
@given(documents=lengths, chance=st.randoms(use_true_random=False))
def test_the_order_of_documents_plays_no_part(documents, chance):
    shuffled = chance.sample(documents, len(documents))

    one, other = (Batch(seq=sum(documents), documents=each) for each in (documents, shuffled))

    assert one.mean_document_tokens == pytest.approx(other.mean_document_tokens)
    assert one.text() == other.text()


@LAWS
@given(length=st.integers(1, 10**6), parts=st.integers(1, 64))
def test_equal_documents_have_the_pairs_of_as_many_short_sequences(length, parts):
    batch = Batch(seq=length * parts, documents=(length,) * parts)

    assert batch.mean_document_tokens == length
    assert batch.documents_by_kind.item() == parts


@LAWS
@given(length=st.integers(1, 10**6))
def test_a_batch_of_one_document_is_its_only_kind(length):
    batch = Batch(seq=length)

    assert (batch.kinds, batch.rows, batch.shares, batch.lists) == ((batch,), (), (1.0,), ())
    assert batch.mean_sequence_tokens == batch.mean_document_tokens == length
    assert batch.text() == f"seq={length}"


@LAWS
@given(ranks=by_ranks)
def test_shares_of_kinds_are_those_of_all_sequences_of_all_ranks(ranks):
    batch = Batch(seq=4096, ranks=ranks)
    found = sequences(batch)

    shares = dict(zip((kind.sequence_length for kind in batch.kinds), batch.shares, strict=True))

    assert sum(batch.shares) == pytest.approx(1.0)
    assert shares == pytest.approx({length: found.count(length) / len(found) for length in set(found)})
    assert batch.mean_sequence_tokens == pytest.approx(sum(found) / len(found))


@LAWS
@given(ranks=by_ranks)
def test_rows_name_the_kind_of_every_micro_batch_in_order(ranks):
    batch = Batch(seq=4096, ranks=ranks)

    told = [[batch.kinds[row].sequence_length for row in rows] for rows in batch.rows]

    assert told == [
        [each.sequence_length for each in one.micro_batches for _ in range(each.count)] for one in ranks
    ]


@LAWS
@given(each=listed)
def test_a_list_that_repeats_means_what_its_count_says(each):
    one_by_one = tuple(MicroBatch(seq=one.sequence_length) for one in each for _ in range(one.count))

    counted, written = (Batch(seq=4096, micro_batches=few) for few in (each, one_by_one))

    assert (counted.rows, counted.kinds, counted.shares) == (written.rows, written.kinds, written.shares)
    assert counted.text() == written.text()


@LAWS
@given(each=listed)
def test_ranks_that_run_the_same_are_one_class_of_them(each):
    plain = Batch(seq=4096, micro_batches=each)
    many = Batch(seq=4096, ranks=(RankBatch(micro_batches=each, count=7),))

    assert (plain.rows, plain.kinds, plain.shares) == (many.rows, many.kinds, many.shares)
    assert plain.mean_sequence_tokens == pytest.approx(many.mean_sequence_tokens)


@LAWS
@given(ranks=by_ranks)
def test_every_kind_has_a_place_in_the_file_where_it_is_written_first(ranks):
    batch = Batch(seq=4096, ranks=ranks)

    for kind in batch.kinds:
        rank, _, entry = batch.place(kind).removeprefix("batch.ranks[").partition("].micro_batches[")
        written = ranks[int(rank)].micro_batches[int(entry.rstrip("]"))]
        assert batch.of(written) == kind


@LAWS
@given(ranks=by_ranks)
def test_tokens_of_kinds_stand_in_the_order_of_their_first_use(ranks):
    batch = Batch(seq=4096, ranks=ranks)

    assert batch.tokens_by_kind.ravel().tolist() == list(dict.fromkeys(sequences(batch)))
    assert batch.documents_by_kind.tolist() == [[1.0]] * len(batch.kinds)


@all_cases(
    ("given_", "length"),
    [
        ({"seq": 512}, 512),
        ({"documents": (100, 200)}, 300),
        ({}, 4096),
        ({"seq": 512, "documents": (512,)}, 512),
    ],
)
def test_a_micro_batch_is_as_long_as_it_says_or_its_documents_or_the_batch(given_, length):
    batch = Batch(seq=4096, micro_batches=(given_,))

    assert [kind.sequence_length for kind in batch.kinds] == [length]
    assert batch.listed


@all_cases(
    "wrong",
    [
        {"seq": 0},
        {"seq": 8, "documents": (0, 8)},
        {"seq": 8, "documents": (-1,)},
        {"seq": 8, "micro_batches": ({"count": 0},)},
        {"seq": 8, "micro_batches": ({"seq": 0},)},
        {"seq": 8, "ranks": ({"micro_batches": ()},)},
        {"seq": 8, "ranks": ({"micro_batches": ({},), "count": 0},)},
        {"seq": 8, "length": 8},
        {"seq": True},
        {"seq": 1.5},
        {},
    ],
)
def test_no_length_and_no_count_is_below_one(wrong):
    with pytest.raises(SpecError):
        Batch(**wrong)
