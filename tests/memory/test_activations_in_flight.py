"""Activations over stages and micro-batches: Korthikanti's sums, and laws that no plan may break."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import BLOCKS, GPT, HEADS, HIDDEN, LENGTH, Kept, stack_with, with_blocks

LAWS = settings(max_examples=20, deadline=None)
IDS = 8 * LENGTH  # 64-bit token ids of one sequence, which the embedding keeps
PLANS = {
    "tensor": st.sampled_from([1, 2, 4, 8]),
    "pipeline": st.sampled_from([(1, 1), (2, 1), (4, 1), (16, 1), (2, 2), (4, 4)]),
    "sequences": st.sampled_from([1, 2, 4]),
    "micro_batches": st.sampled_from([1, 2, 4]),
    "sequence_parallel": st.booleans(),
}


def text_of(tensor, pipeline, sequences, micro_batches, sequence_parallel, replicas=1):
    """The plan's short form; `micro_batches` counts rounds of as many micro-batches as there are stages."""
    stages, virtual = pipeline
    total = replicas * micro_batches * stages * sequences
    text = f"dp={replicas} tp={tensor} pp={stages} vpp={virtual} mbs={sequences} gbs={total}"
    return text + (" sp" if sequence_parallel else "")


@LAWS
@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    stages=st.sampled_from([1, 2, 4, 8]),
    sequences=st.sampled_from([1, 3]),
)
def test_the_first_stage_keeps_korthikanti_s_sum_whatever_the_number_of_stages(tensor, stages, sequences):
    text = f"tp={tensor} sp pp={stages} mbs={sequences} gbs={8 * stages * sequences}"

    kept = Kept(text).category("activations")[0]

    # arXiv:2205.05198, equation 5: L / p layers of p micro-batches each
    layer = LENGTH * sequences * HIDDEN / tensor * (34 + 5 * HEADS * LENGTH / HIDDEN)
    ends = stages * IDS * sequences + (stages == 1) * 4 * LENGTH * sequences * HIDDEN / tensor
    assert kept == pytest.approx(BLOCKS * layer + ends, rel=1e-12)


@all_cases(("stages", "virtual"), [(2, 2), (4, 2), (4, 4), (2, 8)])
def test_interleaving_keeps_more_by_1_plus_p_minus_1_over_p_m(stages, virtual):
    text = f"tp=2 sp recompute=selective pp={stages} vpp={virtual} gbs={8 * stages}"

    kept = Kept(text, model=small_head(GPT)).category("activations")[0]

    # arXiv:2205.05198, section 4.2.3, m virtual stages; and table 2: 34 s b h / t a layer
    layers = BLOCKS * (1 + (stages - 1) / (stages * virtual)) * 34 * LENGTH * HIDDEN / 2
    # the ids of 2 p micro-batches: at its fullest the first chunk has run two rounds ahead, others less
    assert kept == pytest.approx(layers + 2 * stages * IDS, rel=1e-12)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_full_recompute_keeps_one_input_a_layer_for_each_micro_batch_in_flight(stages):
    kept = Kept(f"tp=4 pp={stages} recompute=full mbs=2 gbs={16 * stages}").category("activations")

    x_bytes = 2 * LENGTH * HIDDEN * 2
    flying = {1: [1], 2: [2, 1], 4: [4, 3, 3, 1]}[stages]  # equal stages count as the earliest of them
    blocks = [BLOCKS // stages * number * x_bytes for number in flying]
    blocks[0] += stages * 2 * IDS
    blocks[-1] += 2 * x_bytes  # of the final norm and of the head
    assert kept == pytest.approx(blocks, rel=1e-12)


@pytest.mark.parametrize("tensor", [2, 8])
def test_partitioned_activations_are_divided_over_the_ranks(tensor):
    text = f"tp={tensor} pp=2 recompute=full gbs=8"

    whole, cut = (
        Kept(f"{text}{words}").category("activations")[0] for words in ("", " partition_activations")
    )

    assert cut - 2 * IDS == pytest.approx((whole - 2 * IDS) / tensor)  # arXiv:1910.02054, section 6.1


def test_more_micro_batches_in_a_step_need_no_more_memory_once_the_pipeline_is_full():
    few, many = (Kept(f"pp=4 gbs={micro}").allocated for micro in (4, 4096))

    assert few == many


@LAWS
@given(**PLANS)
def test_a_larger_micro_batch_never_needs_less(**plan):
    small = Kept(text_of(**plan)).allocated

    large = Kept(text_of(**plan | {"sequences": 2 * plan["sequences"]})).allocated

    assert all(more >= less for more, less in zip(large, small, strict=True))


@LAWS
@given(**PLANS)
def test_longer_sequences_never_need_less(**plan):
    short, long = (Kept(text_of(**plan), length=length).allocated for length in (256, 512))

    assert all(more > less for more, less in zip(long, short, strict=True))


@LAWS
@given(**PLANS)
def test_more_tensor_parallel_ranks_never_need_more_each(**plan):
    few = Kept(text_of(**plan | {"tensor": 1})).allocated

    many = Kept(text_of(**plan)).allocated

    assert all(less <= more for less, more in zip(many, few, strict=True))


@LAWS
@given(replicas=st.sampled_from([1, 2, 16]), **PLANS)
def test_zero_1_never_needs_more(replicas, **plan):
    text = text_of(**plan, replicas=replicas)

    plain, sharded = (Kept(f"{text} zero={stage}").allocated for stage in (0, 1))

    assert all(less <= more for less, more in zip(sharded, plain, strict=True))


@LAWS
@given(
    flash=st.booleans(), **PLANS | {"pipeline": st.sampled_from([(1, 1), (2, 1), (8, 1), (2, 2), (4, 4)])}
)
def test_recompute_never_needs_more_memory_than_keeping_everything(flash, **plan):
    kernel = "flash" if flash else "materialised"
    stack = stack_with().model_copy(update={"attention_kernel": kernel})
    modes = [f"{text_of(**plan)} recompute={mode}" for mode in ("none", "selective", "full")]

    allocated = [Kept(text, stack=stack, model=small_head(GPT)).allocated for text in modes]

    for none, selective, full in zip(*allocated, strict=True):
        assert selective <= none * (1 + 1e-12)
        assert full <= none * (1 + 1e-12)


def small_head(model):
    """So few words that no head outweighs a block at work."""
    return model.model_copy(update={"vocabulary": 128})


def test_a_lone_recomputed_block_needs_what_a_plain_one_needs_and_its_output():
    """Its checkpoint is the very tensor that its first norm keeps: it exists once. Autograd's second graph
    holds what the block gives, of a plain block what comes behind it keeps that."""
    model = small_head(with_blocks(1))

    plain, full = (Kept(f"recompute={mode}", model=model).allocated[0] for mode in ("none", "full"))

    assert full - plain == 2 * LENGTH * HIDDEN


@LAWS
@given(**PLANS)
def test_every_category_of_every_stage_is_finite_and_at_least_nothing(**plan):
    kept = Kept(text_of(**plan))

    for name in kept.memory.by_category:
        assert all(0.0 <= value < 1e15 for value in kept.category(name)), name


@settings(max_examples=12, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2])),
        min_size=2,
        max_size=4,
    ),
    modes=st.sampled_from(["", "sp recompute=selective", "zero=1 recompute=full partition_activations"]),
)
def test_a_batch_of_plans_needs_what_its_members_need(shapes, modes):
    texts = [f"dp=2 tp={t} pp={p} mbs={b} gbs=64 {modes}" for t, p, b in shapes]

    together = [Kept(*texts, plan=plan) for plan in range(len(texts))]

    assert_members_agree(together, texts)


@settings(max_examples=12, deadline=None)
@given(
    shapes=st.lists(
        st.sampled_from([(2, 2), (2, 4), (4, 2), (4, 4), (8, 2), (2, 8)]), min_size=2, max_size=4
    )
)
def test_a_batch_of_unequal_interleavings_needs_what_its_members_need(shapes):
    texts = [f"tp=2 pp={p} vpp={v} gbs={4 * p}" for p, v in shapes]

    together = [Kept(*texts, plan=plan) for plan in range(len(texts))]

    assert_members_agree(together, texts)


def assert_members_agree(together, texts):
    """Every total and category of each plan, alone and among the others."""
    for ours, text in zip(together, texts, strict=True):
        alone = Kept(text)
        assert ours.allocated == pytest.approx(alone.allocated, rel=1e-12)
        for name in alone.memory.by_category:
            assert ours.category(name) == pytest.approx(alone.category(name), rel=1e-12), name
        for name in ("resident_bytes", "reserved_bytes", "device_used_bytes"):
            values = [kept.of(getattr(kept.memory, name)) for kept in (ours, alone)]
            assert values[0] == pytest.approx(values[1], rel=1e-12)


@pytest.mark.parametrize("blocks", [1, 16])
def test_the_table_of_the_head_has_its_gradient_while_all_activations_are_there(blocks):
    model = with_blocks(blocks).model_copy(update={"vocabulary": 400 * 1024})
    stack = stack_with(memory={"logit_bytes": 2.0})

    kept = Kept("gbs=2 pp=1", model=model, stack=stack)

    table = 2 * 400 * 1024 * HIDDEN  # the embedding's is as large, but blocks are freed before
    logits_and_inputs = 2 * LENGTH * 400 * 1024 + 2 * LENGTH * HIDDEN
    assert kept.category("layer_at_work")[0] + kept.category("logits")[0] == table + logits_and_inputs
    ends = 3 * 2 * LENGTH * HIDDEN + IDS
    block = LENGTH * HIDDEN * (34 + 5 * HEADS * LENGTH / HIDDEN)
    assert kept.category("activations")[0] == pytest.approx(blocks * block + ends - 2 * LENGTH * HIDDEN)


@pytest.mark.parametrize(("stages", "micro"), [(2, 3), (4, 16)])
def test_gpipe_keeps_the_activations_of_all_micro_batches(stages, micro):
    text = f"tp=2 sp recompute=selective pp={stages} gbs={micro}"

    kept = Kept(f"{text} schedule=gpipe").category("activations")[0]

    # arXiv:2205.05198, table 2: 34 s b h / t a layer; L / p layers of all m micro-batches
    layers = BLOCKS / stages * micro * 34 * LENGTH * HIDDEN / 2
    assert kept == pytest.approx(layers + micro * IDS, rel=1e-12)


@pytest.mark.parametrize(("name", "depth"), [("zb_h1", 1), ("zb_h2", 2)])
def test_zero_bubble_keeps_the_paper_s_sum_of_both_kinds_of_activations(name, depth):
    kept = Kept(f"pp=4 gbs=16 schedule={name}")

    # arXiv:2401.10241, section 2.3, stages i = 1 and 2 of p = 4: (p - i + 1) M_B + (i - 1) M_W for ZB-H1,
    # (2 p - 2 i + 1) M_B + (2 i - 2) M_W for ZB-H2; arXiv:2205.05198, equation 2: M_B; 32 s b h: M_W
    layers = BLOCKS / 4
    before = layers * (34 * LENGTH * HIDDEN + 5 * HEADS * LENGTH**2)
    waiting = layers * 32 * LENGTH * HIDDEN
    ids = (3 * depth + 1) * IDS  # the first stage's alone
    assert kept.category("activations")[:2] == pytest.approx(
        [(3 * depth + 1) * before + ids, (2 * depth + 1) * before], rel=1e-12
    )
    assert kept.category("weight_gradients_waiting")[:2] == pytest.approx([0.0, depth * waiting], rel=1e-12)


def test_without_a_split_backward_nothing_waits_for_weight_gradients():
    kept = Kept("pp=4 gbs=16 schedule=1f1b")

    assert kept.category("weight_gradients_waiting") == [0.0] * 4


def test_zb_h1_keeps_no_more_of_the_layers_than_1f1b_keeps_on_its_first_stage():
    plain, split = (Kept(f"pp=4 gbs=16 schedule={name}") for name in ("1f1b", "zb_h1"))

    held = [
        a + w
        for a, w in zip(*map(split.category, ("activations", "weight_gradients_waiting")), strict=True)
    ]

    assert (
        max(held[:-1]) <= plain.category("activations")[0]
    )  # the last stage also holds gradients of logits


def test_with_sequence_parallelism_the_latest_of_equal_stages_keeps_most_under_zb_h1():
    kept = Kept("tp=8 sp recompute=selective pp=4 gbs=16 schedule=zb_h1")

    # by hand, in s b h: M_B = 34 / 8 (arXiv:2205.05198, table 2); M_W = (14 + 6 + 8) / 8 + 2 + 2, as the
    # gradients of attention's and the feed-forward's outputs are gathered; stages i = 2 and 3 are one class
    unit = BLOCKS / 4 * LENGTH * HIDDEN
    # before a B it keeps 2 M_B and 2 M_W, after it 1 M_B and 3 M_W
    assert kept.category("activations")[1] == pytest.approx(34 / 8 * unit, rel=1e-12)
    assert kept.category("weight_gradients_waiting")[1] == pytest.approx(3 * 7.5 * unit, rel=1e-12)
