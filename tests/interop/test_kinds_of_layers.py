"""interop/hugging_face/windows.py: which layers are of which kind, counted layer by layer."""

from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.files.yaml_text import Document
from flopcast.interop.hugging_face.values import Reader
from flopcast.interop.hugging_face.windows import (
    all_but_each,
    every,
    every_other,
    from_the_last_full_one,
    listed_as_local,
    local_layers,
    runs,
    turned_layers,
    unturned_layers,
)

FEW = settings(max_examples=50)
NUMBER = st.integers(1, 60)
KINDS = st.text("lgx", min_size=1, max_size=24)


def config(**values):
    return Reader(
        Document("config.json", {}, {}), {name: ((name,), value) for name, value in values.items()}
    )


def laid_out(pairs, pattern, number):
    """The kinds of all layers again, in order."""
    if not pattern:
        return [kind for kind, count in pairs for _ in range(count)]
    return [pairs[pattern[layer % len(pattern)]][0] for layer in range(number)]


@FEW
@given(KINDS)
def test_layers_laid_out_again_are_those_that_were_given(kinds):
    pairs, pattern = runs(kinds)

    assert laid_out(pairs, pattern, len(kinds)) == list(kinds)
    assert sum(count for _, count in pairs) == len(kinds)


@FEW
@given(st.text("lgx", min_size=2, max_size=5), st.integers(2, 9))
def test_a_pattern_that_comes_back_is_written_once_and_its_kinds_are_counted_over_the_model(unit, times):
    pairs, pattern = runs(unit * times)

    if pattern:
        assert len(unit) % len(pattern) == 0
        assert dict(pairs) == {kind: unit.count(kind) * times for kind in unit}
        assert sorted(set(pattern)) == list(range(len(pairs)))
    else:
        assert len({kind for kind, _ in pairs}) == len(pairs) == 1


@FEW
@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True), st.data())
def test_kinds_that_never_come_back_are_runs_without_a_pattern(kinds, data):
    counts = [data.draw(st.integers(1, 9)) for _ in kinds]

    found = runs("".join(kind * count for kind, count in zip(kinds, counts, strict=True)))

    assert found == (list(zip(kinds, counts, strict=True)), [])


@FEW
@given(NUMBER)
def test_rules_of_families_divide_layers_as_their_papers_count_them(number):
    read = config(num_hidden_layers=number)

    assert every(read) == tuple(range(number))
    assert every_other(read) == tuple(layer for layer in range(number) if layer % 2 == 0)
    assert all_but_each(6)(read) == tuple(layer for layer in range(number) if layer % 6 != 5)


@FEW
@given(NUMBER, st.integers(1, 12))
def test_of_gemma_3_one_layer_in_so_many_is_global(number, step):
    for key in ("sliding_window_pattern", "_sliding_window_pattern"):
        read = config(num_hidden_layers=number, **{key: step})

        near = all_but_each(6)(read)

        assert number - len(near) == number // step
        assert all((layer + 1) % step for layer in near)


@FEW
@given(NUMBER, st.integers(1, 70))
def test_layers_of_qwen_see_a_window_from_a_number_on(number, first):
    near = from_the_last_full_one(config(num_hidden_layers=number, max_window_layers=first))

    assert near == tuple(range(min(first, number), number))


@FEW
@given(st.lists(st.sampled_from(["global", "local"]), min_size=1, max_size=12), st.integers(1, 4))
def test_gpt_neo_says_its_kinds_with_their_repeats_or_one_by_one(kinds, repeats):
    number = len(kinds) * repeats
    briefly = config(num_hidden_layers=number, attention_types=[[kinds, repeats]])
    at_length = config(num_hidden_layers=number, attention_layers=kinds * repeats)

    near = listed_as_local(briefly)

    assert near == listed_as_local(at_length)
    assert len(near) == kinds.count("local") * repeats


def test_gpt_neo_alternates_global_first_where_it_says_nothing():
    assert listed_as_local(config()) == tuple(range(1, 24, 2))


@FEW
@given(NUMBER, st.integers(1, 10))
def test_layers_of_llama_4_turn_their_heads_or_do_not(number, step):
    read = config(num_hidden_layers=number, no_rope_layer_interval=step)

    turned, unturned = turned_layers(read), unturned_layers(read)

    assert sorted((*turned, *unturned)) == list(range(number))
    assert len(unturned) == number // step


@FEW
@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=48))
def test_a_list_of_llama_4_decides_whatever_the_interval_says(listed):
    read = config(num_hidden_layers=len(listed), no_rope_layers=listed, no_rope_layer_interval=2)

    assert len(turned_layers(read)) == sum(listed)
    assert all(not listed[layer] for layer in unturned_layers(read))


@FEW
@given(st.lists(st.sampled_from(["full_attention", "sliding_attention", "chunked_attention"]), min_size=1))
def test_a_list_of_kinds_decides_whatever_the_rule_of_the_family_says(kinds):
    read = config(num_hidden_layers=len(kinds), layer_types=kinds)

    near = {rule: local_layers(rule)(read) for rule in (every, every_other, all_but_each(6))}

    assert len(set(near.values())) == 1
    assert len(near[every]) == len(kinds) - kinds.count("full_attention")


@all_cases("kinds", [["full_attention"], "full_attention", 3, []])
def test_a_list_of_another_length_is_a_fault_that_says_how_many_there_are(kinds):
    read = config(num_hidden_layers=4, layer_types=kinds)

    assert local_layers(every)(read) == ()
    (problem,) = read.problems.values()
    assert problem.field == "layer_types"
    assert "a list with the kinds of 4 layers" in problem.allowed
