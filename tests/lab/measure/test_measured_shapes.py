"""Which shapes a micro-benchmark visits: spread, deterministic, inside their ranges."""

import math

import pytest
from all_cases import all_cases

from flopcast.lab.measure.shapes import SPACES, SizeRange, halton

IDS = [f"{number}-{space.kernel}" for number, space in enumerate(SPACES)]
WITH_AXES = [space for space in SPACES if space.axes]


def points(space, count, tiny=False, seed=0):
    """The first points of a class."""
    return [space.shape(index, tiny, seed) for index in range(count)]


def test_points_are_those_of_halton():
    """Base 2: 1/2, 1/4, 3/4, 1/8; base 3: 1/3, 2/3, 1/9, 4/9 (Halton 1960)."""
    points_of_two = [halton(index, 2) for index in range(1, 5)]

    assert [p[0] for p in points_of_two] == pytest.approx([1 / 2, 1 / 4, 3 / 4, 1 / 8])
    assert [p[1] for p in points_of_two] == pytest.approx([1 / 3, 2 / 3, 1 / 9, 4 / 9])


@all_cases("layout", ["forward", "input_gradient", "weight_gradient"])
@all_cases("name", ["m", "n", "k"])
def test_products_of_one_layout_visit_every_quarter_of_every_axis_within_twelve_points(name, layout):
    axis = next(axis for axis in SPACES[0].axes if axis.name == name)
    sizes = [s.size(name) for s in points(SPACES[0], 36) if s.layout == layout]

    quarters = {int(4 * math.log(size / axis.low) / math.log(axis.high / axis.low)) for size in sizes}

    assert {0, 1, 2, 3} <= quarters
    assert len(sizes) == 12


def test_half_way_along_an_axis_is_its_geometric_middle():
    axis = SizeRange(name="k", low=128, high=32768, multiple=64)

    assert axis.at(0.5) == 2048  # sqrt(128 · 32768)


@all_cases("space", WITH_AXES)
def test_sizes_stay_inside_their_axes_in_whole_multiples(space):
    axes = {axis.name: axis for axis in space.axes}

    for shape in points(space, 100):
        for name, size in shape.sizes:
            axis = axes[name]
            if axis.choices:
                assert size in axis.choices
            else:
                assert size % axis.multiple == 0
                assert axis.low - axis.multiple / 2 <= size <= axis.high + axis.multiple / 2


@all_cases("space", SPACES)
def test_equal_seeds_give_equal_shapes(space):
    assert points(space, 10, seed=3) == points(space, 10, seed=3)


def test_other_seeds_give_other_shapes():
    gemm = SPACES[0]

    assert {s.key for s in points(gemm, 10)}.isdisjoint(s.key for s in points(gemm, 10, seed=1))


def test_products_are_sampled_in_all_three_layouts_of_a_linear_layer():
    layouts = {s.layout for space in SPACES if space.kernel == "gemm" for s in points(space, 6)}

    assert layouts == {"forward", "input_gradient", "weight_gradient"}


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8"])
def test_products_are_sampled_in_every_precision_of_training(dtype):
    found = [s for space in SPACES if space.kernel == "gemm" for s in points(space, 6)]

    assert dtype in {shape.dtype for shape in found}


def test_weight_gradients_that_accumulate_in_fp32_are_sampled():
    flags = {s.flags for space in SPACES if space.kernel == "gemm" for s in points(space, 2)}

    assert ("fp32_accumulate",) in flags


@all_cases("head_size", [64, 96, 128, 256])
def test_attention_is_sampled_with_every_usual_head_size(head_size):
    (space, *_) = [s for s in SPACES if s.kernel == "flash_attention"]

    assert head_size in {shape.size("head_size") for shape in points(space, 24)}


def test_attention_is_sampled_causal_and_not_grouped_and_not_and_with_few_heads():
    (space, *_) = [s for s in SPACES if s.kernel == "flash_attention"]

    shapes = points(space, 24)

    assert {"causal" in shape.flags for shape in shapes} == {True, False}
    assert {shape.size("group") > 1 for shape in shapes} == {True, False}
    assert min(shape.size("heads") for shape in shapes) == 2


def test_tiny_shapes_are_small_enough_for_a_processor():
    """A product of 512³ takes about 0.03 s at 10 GFLOP/s."""
    gemm = SPACES[0]

    assert max(max(dict(s.sizes).values()) for s in points(gemm, 50, tiny=True)) <= 512


def test_a_key_tells_flags_apart():
    space = next(s for s in SPACES if s.kernel == "flash_attention")

    causal, not_causal = space.shape(0, False, 0), space.shape(1, False, 0)

    assert "causal" in causal.key
    assert "causal" not in not_causal.key
