"""Kinds of layers written as runs or as a pattern: what is written is the layers that were read."""

from hypothesis import given
from hypothesis import strategies as st

from flopcast.interop.hugging_face.windows import runs

LAYERS = st.one_of(
    st.lists(st.integers(0, 2), min_size=1, max_size=24),
    st.builds(lambda unit, times: unit * times, st.lists(st.integers(0, 2), min_size=1, max_size=6),
              st.integers(1, 6)),
)  # fmt: skip


@given(layers=LAYERS)
def test_runs_or_a_pattern_name_every_layer_again(layers):
    kinds, pattern = runs(layers)

    if pattern:
        again = [kinds[pattern[layer % len(pattern)]][0] for layer in range(len(layers))]
    else:
        again = [kind for kind, count in kinds for _ in range(count)]
    assert again == layers


@given(layers=LAYERS)
def test_counts_are_how_often_a_kind_stands_in_the_model(layers):
    kinds, _ = runs(layers)

    for kind in set(layers):
        assert sum(count for other, count in kinds if other == kind) == layers.count(kind)


@given(unit=st.lists(st.integers(0, 2), min_size=2, max_size=6), times=st.integers(4, 9))
def test_what_repeats_is_no_longer_than_what_it_repeats(unit, times):
    kinds, pattern = runs(unit * times)

    assert len(pattern) <= len(unit)
    assert len(kinds) == len(set(unit))
