"""Recipes applied to a layer: what becomes narrow, what is cast, sent and kept, by hand."""

from dataclasses import replace

import pytest
from all_cases import all_cases
from workload_cases import (
    HIDDEN,
    LENGTH,
    LLAMA,
    MEGATRON,
    MODELS,
    NEOX,
    at,
    block_of,
    flop_of,
    logical_block,
    messages,
    named,
    realised,
    stack_with,
)

from flopcast.dtypes import constant
from flopcast.layers.adapters import Adapters
from flopcast.library import catalog
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.formats import FORMATS
from flopcast.operators.item import kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.quantise import Quantise
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.precision import RECIPES, NarrowProducts
from flopcast.workload.casts import is_low_precision, weight_casts
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise
from flopcast.workload.rewrites.quantise import quantise

FFN = 2816
HOPPER = MEGATRON  # a stack needs transposes unless the job's device says otherwise
BLACKWELL = stack_with(narrow={"transposes": False})
EACH_RECIPE = pytest.mark.parametrize("recipe", RECIPES)
WEIGHTS = (
    HIDDEN * (2 * HIDDEN) + HIDDEN * HIDDEN + 3 * HIDDEN * FFN
)  # 16 heads with 8 for keys: qkv is 2 h wide


def block(recipe="fp8", plan="mbs=1 gbs=1", stack=HOPPER, model=LLAMA):
    return block_of(realised(model, stack, f"{plan} precision={recipe}"))


def casts(items):
    """Bytes that each cast moves, by the end of its name."""
    works = ((item.name, item.work) for item in items if isinstance(item.work, Quantise))
    return {name: at(work.work().moved_bytes) for name, work in works if at(work.work().moved_bytes)}


def sent(items, collective):
    """Bytes of every message of one collective, in order."""
    return [at(item.work.message_bytes) for item in messages(items, collective)]


@EACH_RECIPE
@pytest.mark.parametrize("model", MODELS)
def test_every_linear_of_a_block_becomes_narrow_and_no_flop_is_lost(model, recipe):
    wide, narrow = (block(name, model=MODELS[model]) for name in ("bf16", recipe))

    formats = {item.work.narrow for item in narrow.forward if is_low_precision(item)}

    assert formats == {RECIPES[recipe].format}
    assert flop_of(narrow.forward) == pytest.approx(flop_of(wide.forward), rel=1e-12)
    assert flop_of(narrow.backward) == pytest.approx(flop_of(wide.backward), rel=1e-12)


@EACH_RECIPE
def test_attention_core_head_and_everything_bound_by_memory_stay_in_16_bits(recipe):
    layers = realised(LLAMA, HOPPER, f"precision={recipe}").layers
    items = [item for layer in layers for item in layer.forward]

    head = named(items, "head.logits").work
    others = [item.work for item in items if isinstance(item.work, MemoryBound | FlashAttention)]

    assert (head.dtype, head.narrow) == ("bf16", "")
    assert {work.dtype for work in others} == {"bf16"}


def test_the_router_of_experts_stays_in_16_bits():
    plan = one_plan(Plan(ep=8, dp=8, gbs=8, precision="mxfp8"))
    mixtral = catalog.model("mixtral-8x7b")
    layers = realise(lower(mixtral, plan, Batch(sequence_length=LENGTH)), HOPPER).layers
    items = next(layer.forward for layer in layers if layer.kind == "block")

    assert not named(items, "experts.router").work.narrow
    assert {named(items, f"experts.{name}").work.narrow for name in ("up", "down")} == {"mxfp8"}


@pytest.mark.parametrize(("recipe", "each_bytes"), [("fp8", 1), ("mxfp8", 33 / 32), ("nvfp4", 9 / 16)])
def test_inputs_of_linears_are_kept_in_the_format_and_nothing_else_changes(recipe, each_bytes):
    """Two norms' outputs, the joined heads and the product of gate and value are inputs of linears."""
    inputs = LENGTH * (3 * HIDDEN + FFN)

    saved = at(block("bf16").kept_bytes) - at(block(recipe).kept_bytes)

    assert saved == pytest.approx(inputs * (2 - each_bytes))


@all_cases(
    ("recipe", "stack", "each_bytes"),
    [  # bytes of one element; the notes of shared/modelling, section 1.4, have 4 and 6 on Hopper
        ("fp8", HOPPER, 2 + 2),
        ("fp8", BLACKWELL, 2 + 1),
        ("fp8_current", HOPPER, 4 + 2),
        ("fp8_blockwise", BLACKWELL, 2 + 2 * (1 + 4 / 128)),
        ("mxfp8", BLACKWELL, 2 + 2 * (1 + 1 / 32)),
        ("nvfp4", BLACKWELL, 4 + 2 * (0.5 + 1 / 16)),
    ],
)
def test_a_cast_reads_16_bits_once_or_twice_and_writes_a_copy_for_each_layout(recipe, stack, each_bytes):
    found = block(recipe, stack=stack)

    assert casts(found.forward)["mlp.down_cast"] == pytest.approx(LENGTH * FFN * each_bytes)
    gradient = casts(found.backward)["mlp.up_gradient_cast.dgrad"]
    assert gradient == pytest.approx(LENGTH * 2 * FFN * each_bytes)


@all_cases(
    ("recipe", "left"),
    [
        ("fp8", 0.0),
        ("fp8_current", 2 + 2),
        ("mxfp8", 2 + 2 * 33 / 32),
        ("nvfp4", 4 + 2 * 9 / 16),  # largest values are found after a transform that no norm makes
    ],
)
def test_a_norm_that_does_part_of_a_cast_saves_passes_of_both(recipe, left):
    found = casts(block(recipe).forward)

    assert found.get("attention.qkv_cast", 0.0) == pytest.approx(LENGTH * HIDDEN * left)


@all_cases("recipe", RECIPES)
def test_rows_and_transformed_columns_in_two_kernels_cost_one_more_read_of_all_but_weights(recipe):
    """csrc/quantizer.cpp of Transformer Engine: up to 2.13 in two kernels, since 2.14 in one."""
    stacks = BLACKWELL, stack_with(BLACKWELL, narrow={"fused_transform": False})
    blocks = [block(recipe, stack=stack) for stack in stacks]
    forward, backward = (
        [casts(getattr(found, name)) for found in blocks] for name in ("forward", "backward")
    )
    more = LENGTH * HIDDEN * 2 if recipe == "nvfp4" else 0.0

    for fused, apart, name in ((*forward, "out_cast"), (*backward, "out_gradient_cast.dgrad")):
        assert apart[f"attention.{name}"] == fused[f"attention.{name}"] + more
    assert forward[0]["attention.out_weight_cast"] == forward[1]["attention.out_weight_cast"]


def test_a_norm_that_is_a_chain_of_kernels_writes_16_bits():
    chain = stack_with(rewrites=("unfused_rmsnorm",))

    found = casts(block("fp8", stack=chain).forward)

    assert found["attention.qkv_cast"] == LENGTH * HIDDEN * 4


def test_a_tensor_that_two_linears_read_is_cast_once():
    shared = NEOX.model_copy(
        update={
            "blocks": tuple(b.model_copy(update={"residual": "parallel_shared_norm"}) for b in NEOX.blocks)
        }
    )

    names = [item.name for item in block("fp8_current", model=shared).forward]

    assert "attention.qkv_cast" in names
    assert "mlp.up_cast" not in names


def test_gathers_of_sequence_parallelism_carry_narrow_elements_and_sums_wide_ones():
    """Both passes gather twice; the backward gathers each input again for its weight gradient."""
    full = LENGTH * HIDDEN
    found = block("fp8", "tp=2 sp mbs=1 gbs=1")

    assert sent(found.forward, "all_gather") == [full, full]
    assert sent(found.forward, "reduce_scatter") == [2 * full, 2 * full]
    assert sent(found.backward, "all_gather") == [full] * 4
    assert sent(found.backward, "reduce_scatter") == [2 * full, 2 * full]


def test_gradients_of_blocks_of_scales_are_gathered_along_both_dimensions():
    full = LENGTH * HIDDEN * 33 / 32

    found = sent(block("mxfp8", "tp=2 sp mbs=1 gbs=1", BLACKWELL).backward, "all_gather")

    assert sorted(found) == pytest.approx([full, full, 2 * full, 2 * full])


def test_a_stack_that_gathers_wide_elements_casts_all_of_them_on_every_rank():
    wide = stack_with(narrow={"narrow_gathers": False})
    found = block("fp8_current", "tp=2 sp mbs=1 gbs=1", wide)

    assert sent(found.forward, "all_gather") == [2 * LENGTH * HIDDEN] * 2
    assert casts(found.forward)["attention.qkv_cast"] == LENGTH * HIDDEN * 6


def test_a_rank_casts_its_share_and_turns_what_was_gathered_where_the_engine_needs_it():
    parts = "tp=2 sp mbs=1 gbs=1"
    hopper, blackwell = (block("fp8_current", parts, stack) for stack in (HOPPER, BLACKWELL))

    assert casts(hopper.forward)["mlp.up_cast"] == LENGTH / 2 * HIDDEN * (2 + 1)
    assert casts(hopper.backward)["mlp.up_transpose.dgrad"] == LENGTH * HIDDEN * 2
    assert casts(hopper.backward)["mlp.down_transpose.dgrad"] == LENGTH * HIDDEN * 2
    assert not [name for name in casts(blackwell.backward) if "transpose" in name]


def test_ranks_agree_on_the_largest_value_of_what_they_gather_in_both_passes():
    found = block("fp8_current", "tp=2 sp mbs=1 gbs=1")

    assert sent(found.forward, "all_reduce") == sent(found.backward, "all_reduce") == [4.0, 4.0]
    assert sent(block("mxfp8", "tp=2 sp mbs=1 gbs=1").forward, "all_reduce") == []


@pytest.mark.parametrize(("caching", "when"), [(True, "first"), (False, "every")])
def test_weights_are_cast_once_a_step_or_in_every_forward(caching, when):
    found = block("fp8", stack=stack_with(narrow={"weight_caching": caching})).forward

    weights = [item for item in found if item.name.endswith("_weight_cast")]

    assert {item.when for item in weights} == {when}
    assert sum(at(item.work.work().moved_bytes) for item in weights) == WEIGHTS * 4


@pytest.mark.parametrize(
    ("recipe", "transposes", "turned", "written", "kept"),
    [("fp8", True, 2, 1, 1), ("fp8", False, 0, 1, 1), ("mxfp8", False, 0, 2, 2)],
)
@pytest.mark.parametrize("plan", ["mbs=1 gbs=1", "tp=2 sp mbs=1 gbs=1"])
def test_weights_kept_in_8_bits_alone_are_turned_in_each_backward_if_no_copy_is_cached(
    plan, recipe, transposes, turned, written, kept
):
    narrow = {"narrow_parameters": True, "weight_caching": False, "transposes": transposes}
    found = block(recipe, plan, stack=stack_with(narrow=narrow))
    shares = WEIGHTS / (2 if "tp=2" in plan else 1)
    weights = [item for item in found.forward if item.name.endswith("_weight_cast")]
    size_bytes = FORMATS[RECIPES[recipe].format].size_bytes

    backward = casts(found.backward)
    assert sum(moved for name, moved in backward.items() if "weight_tra" in name) == shares * turned
    assert {item.when for item in weights} == {"first"}
    assert sum(casts(weights).values()) == pytest.approx(shares * (2 + written * size_bytes))
    assert at(found.low_precision_weight_bytes) == pytest.approx(shares * kept * size_bytes)


@pytest.mark.parametrize(
    ("recipe", "stack", "copies"), [("fp8", HOPPER, 2), ("fp8", BLACKWELL, 1), ("mxfp8", BLACKWELL, 2)]
)
def test_narrow_copies_of_weights_stand_beside_the_wide_ones(recipe, stack, copies):
    found = block(recipe, stack=stack)

    assert at(found.low_precision_weight_bytes) == pytest.approx(
        WEIGHTS * copies * FORMATS[RECIPES[recipe].format].size_bytes
    )


def test_tokens_travel_narrow_to_their_experts_only_where_the_stack_says_so():
    plan = one_plan(Plan(ep=8, dp=8, gbs=8, precision="mxfp8"))
    workload = lower(catalog.model("mixtral-8x7b"), plan, Batch(sequence_length=LENGTH))
    runs = {}
    for narrow in (False, True):
        stack = stack_with(narrow={"narrow_dispatch": narrow}, experts={"dispatcher": "deepep"})
        runs[narrow] = next(layer for layer in realise(workload, stack).layers if layer.kind == "block")

    forward, backward = (
        [sent(getattr(runs[n], p), "dispatch")[0] for n in runs] for p in ("forward", "backward")
    )

    assert forward[1] == pytest.approx(forward[0] * 33 / 64)
    assert backward[0] == backward[1] == forward[0]
    assert sent(runs[True].forward, "combine") == sent(runs[False].forward, "combine")


def test_narrow_tokens_go_to_as_many_nodes_as_wide_ones():
    plan = one_plan(Plan(ep=8, dp=8, gbs=8, precision="mxfp8"))
    workload = lower(catalog.model("mixtral-8x7b"), plan, Batch(sequence_length=LENGTH))
    sizes = []
    for narrow in (False, True):
        stack = stack_with(narrow={"narrow_dispatch": narrow}, experts={"dispatcher": "deepep"})
        layer = next(layer for layer in realise(workload, stack).layers if layer.kind == "block")
        (work,) = (item.work for item in layer.forward if item.name == "experts.dispatch")
        way_back = work.dual()
        sizes.append([at(way.bytes_to_domains(constant(2))) for way in (work, way_back, way_back.dual())])

    wide, found = sizes
    assert found == pytest.approx([wide[0] * 33 / 64, wide[1], wide[0] * 33 / 64])


def test_items_that_no_recipe_concerns_are_the_same_objects():
    norm = MemoryBound(kind="rmsnorm", elements=constant(8), dtype="bf16")
    items = (kernel("norm", norm, ("x",), "y", component="norm"),)

    assert quantise(items, RECIPES["fp8"], NarrowProducts(), constant(1)) == items


def test_a_product_marked_wide_is_left_alone():
    items = tuple(replace(item, wide=True) for item in logical_block(LLAMA, "mbs=1 gbs=1"))

    assert quantise(items, RECIPES["mxfp8"], NarrowProducts(), constant(1)) == items


def test_norms_of_cudnn_write_block_scales_themselves():
    cudnn = stack_with(narrow={"block_scaled_norms": True})

    found = casts(block("mxfp8", stack=cudnn).forward)

    assert found["attention.qkv_cast"] == pytest.approx(LENGTH * HIDDEN * (2 * 33 / 32 - 2))
    assert found["mlp.down_cast"] == pytest.approx(LENGTH * FFN * (2 + 2 * 33 / 32))


def test_around_frozen_weights_each_tensor_is_cast_in_one_layout_and_adapters_stay_in_16_bits():
    """By hand: an input is read `reads` times in bf16 and written once, whatever engines need to turn."""
    lora = LLAMA.model_copy(update={"adapters": Adapters(rank=8, targets=("qkv",))})
    stack = stack_with(narrow={"narrow_parameters": True})
    for name, recipe in RECIPES.items():
        programs = realised(lora, stack, f"mbs=1 gbs=1 precision={name}")

        items = block_of(programs).forward

        adapter = [item for item in items if ".qkv." in item.name and isinstance(item.work, Matmul)]
        frozen = [i for i in items if isinstance(i.work, Matmul) and i not in adapter]
        each_bytes = recipe.reads * 2 + FORMATS[recipe.format].size_bytes
        moved = casts(items)["mlp.down_cast"]
        assert [item.work.narrow for item in adapter] == ["", ""], name
        assert {item.work.narrow for item in frozen} == {recipe.format}, name
        assert moved == pytest.approx(LENGTH * FFN * each_bytes), name


def test_frozen_weights_that_are_kept_in_8_bits_are_not_cast_again_in_a_step():
    lora = LLAMA.model_copy(update={"adapters": Adapters(rank=8, targets=("qkv",))})
    forward = logical_block(lora, "mbs=1 gbs=1 precision=fp8")

    found = {
        kept: [
            item.name
            for item in weight_casts(forward, RECIPES["fp8"], NarrowProducts(narrow_parameters=kept))
        ]
        for kept in (False, True)
    }

    assert found[True] == []
    assert len(found[False]) == 4  # qkv, out, up and down
