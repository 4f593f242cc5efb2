"""What follows the backward pass: accumulated, reduced, checked, applied, gathered."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import (
    GPT,
    HIDDEN,
    LLAMA,
    MEGATRON,
    VOCABULARY,
    at,
    block_of,
    messages,
    moved_bytes_of,
    named,
    operators,
    plans_of,
    realised,
    stack_with,
)

from flopcast.dtypes import constant
from flopcast.errors import FlopcastError
from flopcast.layers.base import replicated
from flopcast.spec.data_parallel import Gradients
from flopcast.workload.gradient_reduction import (
    micro_batch_items,
    reduce_items,
    synchronise_items,
    update_items,
)
from flopcast.workload.program import POSITIONS, WHEN

OVERLAPPED = stack_with(MEGATRON, gradients={"overlap": True, "bucket_elements": 1_000_000})
SEPARATE = stack_with(MEGATRON, gradients={"accumulate_passes": 1})
GPT_TENSORS = 8 * 12 + 4  # of a block: four weights, two norms, a bias each; two tables, the last norm
BLOCK_PARAMETERS = 12 * HIDDEN**2 + 13 * HIDDEN  # of GPT: four h² and eight h², and their 13 vectors of h


def total_bytes(item, plan=0, column=0):
    """Bytes that an item sends over all of its repetitions."""
    return at(item.work.message_bytes, plan, column) * at(item.count, plan, column)


def first_stage(programs, plan=0):
    return int(programs.stages.of(plan).stage_class[0])


def last_stage(programs, plan=0):
    return int(programs.stages.of(plan).stage_class[-1])


@all_cases(
    ("dtype", "element_bytes", "precision"), [("fp32", 4, "bf16"), ("bf16", 2, "bf16"), ("fp16", 2, "fp16")]
)
@all_cases(("collective", "axis"), [("all_reduce", "dp"), ("reduce_scatter", "dp_shard")])
def test_the_reduction_carries_every_gradient_once(dtype, element_bytes, precision, collective, axis):
    stack = stack_with(MEGATRON, gradients={"dtype": dtype, "collective": collective})

    programs = realised(GPT, stack, f"dp=4 tp=2 pp=2 gbs=4 zero=1 precision={precision}")

    reduction = named(programs.reduce, "gradients.reduce")
    assert (reduction.work.collective, reduction.work.axis, reduction.stream) == (collective, axis, "dp")
    for column in (0, 1):
        gradients = at(programs.parameters, 0, column) * element_bytes
        assert total_bytes(reduction, 0, column) == pytest.approx(gradients, rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(parameters=st.floats(1.0, 5e9), bucket=st.integers(1_000, 2_000_000_000))
def test_buckets_are_equal_no_fuller_than_allowed_and_no_more_than_needed(parameters, bucket):
    buckets = {"bucket_elements": bucket, "single_bucket_after_backward": False}
    stack = stack_with(MEGATRON, gradients=buckets)

    items = reduce_items(stack, plans_of("dp=4"), constant(parameters), constant(0), constant(0))

    reduction = named(items, "gradients.reduce")
    count, bucket_bytes = at(reduction.count), at(reduction.work.message_bytes)
    assert count == int(count)
    assert bucket_bytes / 4 <= bucket * (1 + 1e-12)
    assert (count - 1) * bucket < parameters
    assert count * bucket_bytes == pytest.approx(4 * parameters, rel=1e-12)


def test_megatron_core_reduces_in_one_message_what_it_does_not_overlap():
    """distributed_data_parallel.py: bucket_size is None without overlap_grad_reduce."""
    bucketed = {"bucket_elements": 1000, "single_bucket_after_backward": True}
    plans = plans_of("dp=4 zero=1")
    for overlap, sent in ((False, 1.0), (True, 5.0)):
        stack = stack_with(
            MEGATRON, gradients=bucketed | {"overlap": overlap, "overlap_with_tensor": False}
        )

        (gather,) = [i for i in update_items(stack, plans, constant(5000)) if "gather" in i.name]

        assert at(gather.count) == sent, overlap
    reduction = named(
        reduce_items(
            stack_with(MEGATRON, gradients=bucketed), plans, constant(5000), constant(0), constant(0)
        ),
        "gradients.reduce",
    )
    assert (at(reduction.count), at(reduction.work.message_bytes)) == (1.0, 5000 * 4)


def test_the_zero_stage_and_the_stack_choose_the_collective():
    """arXiv:1910.02054, sections 5 and 7: whole sums without shards, shards of the sum in ZeRO-3."""
    chosen = {
        (word, zero): {
            item.work.collective
            for item in block_of(realised(GPT, stack, f"dp=4 gbs=4 zero={zero}")).backward
            if item.name == "gradients.reduce"
        }
        for word in ("all_reduce", "reduce_scatter")
        for stack in [
            stack_with(OVERLAPPED, gradients={"collective": word}, sharding={"zero_stages": (0, 1, 2, 3)})
        ]
        for zero in range(4)
    }

    scattered = {(word, zero) for (word, zero), sent in chosen.items() if sent == {"reduce_scatter"}}
    summed = {(word, zero) for (word, zero), sent in chosen.items() if sent == {"all_reduce"}}
    assert scattered == {("all_reduce", 3), *(("reduce_scatter", zero) for zero in (1, 2, 3))}
    assert scattered | summed == chosen.keys()


def test_an_overlapped_reduction_runs_under_the_last_micro_batch_alone():
    block = block_of(realised(GPT, OVERLAPPED, "dp=4 gbs=16"))

    reduction = named(block.backward, "gradients.reduce")
    runs = dict(zip(POSITIONS, WHEN[reduction.when], strict=True))
    assert runs == {"first": 0.0, "middle": 0.0, "last": 1.0, "only": 1.0, "alone": 0.0}
    assert reduction.stream == "dp"  # beside compute, in order behind other reductions


def test_an_overlapped_reduction_is_not_made_again_at_the_end():
    programs = realised(GPT, OVERLAPPED, "dp=4 gbs=16")

    assert [item.name for item in programs.reduce if item.name == "gradients.reduce"] == []


@pytest.mark.parametrize("bucket", [1_000, 1_000_000, 10_000_000_000])
def test_overlapped_or_not_a_layer_s_gradients_weigh_the_same(bucket):
    stack = stack_with(OVERLAPPED, gradients={"bucket_elements": bucket})

    programs = realised(GPT, stack, "dp=4 gbs=16")

    reduction = named(block_of(programs).backward, "gradients.reduce")
    assert total_bytes(reduction) == pytest.approx(4 * BLOCK_PARAMETERS, rel=1e-12)


def test_a_tied_table_s_copy_on_the_last_stage_is_reduced_over_its_replicas_too():
    programs = realised(GPT, OVERLAPPED, "dp=4 pp=4 gbs=16")

    head = programs.layers[-1]
    assert total_bytes(named(head.backward, "gradients.reduce")) == pytest.approx(4 * VOCABULARY * HIDDEN)


def test_gradients_are_accumulated_in_every_micro_batch_but_the_first():
    block = block_of(realised(GPT, SEPARATE, "gbs=4"))

    accumulation = named(block.backward, "gradients.accumulate")
    runs = dict(zip(POSITIONS, WHEN[accumulation.when], strict=True))
    assert runs == {"first": 0.0, "middle": 1.0, "last": 1.0, "only": 0.0, "alone": 1.0}


@pytest.mark.parametrize(
    ("dtype", "bytes_each"),
    [("bf16", 2 + 2 + 2), ("fp32", 4 + 2 + 4)],  # read the sum, read the gradient, write the sum
)
def test_accumulation_reads_sum_and_gradient_and_writes_the_sum(dtype, bytes_each):
    stack = stack_with(SEPARATE, gradients={"dtype": dtype})

    block = block_of(realised(GPT, stack, "gbs=4"))

    moved = moved_bytes_of([named(block.backward, "gradients.accumulate")])
    assert moved == pytest.approx(bytes_each * BLOCK_PARAMETERS)


def test_accumulation_inside_the_weight_gradient_gemm_needs_no_kernel():
    inside = stack_with(MEGATRON, gradients={"accumulate_passes": 0})

    block = block_of(realised(GPT, inside, "gbs=4"))

    assert not [item for item in block.backward if item.component == "gradients"]


@pytest.mark.parametrize("text", ["pp=1 gbs=4", "pp=4 gbs=4"])
def test_a_tied_table_s_gradient_is_added_up_like_any_other(text):
    """Either to the copy's own sum, or, on one stage, to what the embedding's look-up has left there."""
    head = realised(GPT, SEPARATE, text).layers[-1]

    moved = moved_bytes_of([named(head.backward, "gradients.accumulate")])
    assert moved == pytest.approx((4 + 2 + 4) * VOCABULARY * HIDDEN)


def test_what_follows_one_layer_s_backward_is_little_or_nothing():
    silent = Gradients(accumulate_passes=0, overlap=False)

    items = micro_batch_items(
        MEGATRON.model_copy(update={"gradients": silent}),
        plans_of("dp=2"),
        (replicated("norm", 10),),
        constant(10),
    )

    assert items == ()


def test_sequence_parallel_ranks_sum_the_gradients_of_what_they_all_hold():
    cut, whole = (realised(GPT, MEGATRON, f"tp=2 gbs=1{words}").reduce for words in (" sp", ""))

    sent = named(cut, "gradients.replicated").work
    vectors = 8 * (2 * 2 * HIDDEN + 2 * HIDDEN) + 2 * HIDDEN  # block: two norms, two biases
    positions = GPT.learned_positions * HIDDEN
    assert (sent.axis, at(sent.message_bytes)) == ("tp", 4 * (vectors + positions))
    assert "gradients.replicated" not in [item.name for item in whole]


@pytest.mark.parametrize("stages", [2, 4])
def test_tied_embeddings_are_summed_between_the_first_and_the_last_stage_alone(stages):
    programs = realised(GPT, MEGATRON, f"pp={stages} tp=2 gbs=8")

    sent = named(programs.reduce, "tied_embeddings").work
    table_bytes = 4 * VOCABULARY * HIDDEN / 2  # fp32 gradients, rows cut over two ranks
    classes = programs.stages.of(0).stage_class
    assert sent.axis == "embedding"
    assert [at(sent.message_bytes, 0, column) for column in classes] == [
        table_bytes,
        *[0.0] * (stages - 2),
        table_bytes,
    ]


@pytest.mark.parametrize(("model", "text"), [(GPT, "pp=1 gbs=8"), (LLAMA, "pp=4 gbs=8")])
def test_a_table_with_one_copy_is_summed_with_nobody(model, text):
    programs = realised(model, MEGATRON, text)

    assert float(named(programs.reduce, "tied_embeddings").work.message_bytes.max()) == 0.0


def test_zero_1_updates_one_share_and_gathers_all_parameters_once():
    plain, sharded = (realised(GPT, MEGATRON, f"dp=8 zero={stage} gbs=8") for stage in (0, 1))

    updates = [at(named(p.update, "optimizer.update").work.parameters) for p in (plain, sharded)]
    gather = named(sharded.update, "gather_parameters")
    assert updates == [at(plain.parameters), at(plain.parameters) / 8]
    assert (gather.work.collective, gather.work.axis) == ("all_gather", "dp_shard")
    assert total_bytes(gather) == pytest.approx(2 * at(plain.parameters))  # the 16-bit weights
    assert messages(plain.update) == []


@pytest.mark.parametrize(("replicas", "owners"), [(8, 8), (4096, GPT_TENSORS)])
def test_ranks_that_own_whole_tensors_broadcast_each_its_own(replicas, owners):
    dealt = stack_with(MEGATRON, gradients={"returns": "broadcasts"})

    programs = realised(GPT, dealt, f"dp={replicas} zero=1 gbs={replicas}")

    back = named(programs.update, "gather_parameters")
    assert (back.work.collective, back.work.axis) == ("broadcast", "dp_shard")
    assert at(back.count) == owners
    assert total_bytes(back) == pytest.approx(2 * at(programs.parameters))


def test_zero_1_over_one_replica_is_no_zero():
    plain, sharded = (realised(GPT, MEGATRON, f"dp=1 zero={stage} gbs=8") for stage in (0, 1))

    updates = [at(named(p.update, "optimizer.update").work.work().moved_bytes) for p in (plain, sharded)]
    assert updates[0] == updates[1]


def test_the_update_moves_the_stack_s_bytes_per_parameter():
    stack = stack_with(MEGATRON, optimizer={"moved_bytes": 30.0})

    programs = realised(GPT, stack, "dp=4 zero=1 gbs=4")

    moved = moved_bytes_of([named(programs.update, "optimizer.update")])
    assert moved == pytest.approx(30.0 * at(programs.parameters) / 4)


@pytest.mark.parametrize("checks", [0, 1, 2])
def test_every_check_and_the_norm_reads_the_shard_and_agrees_on_one_number(checks):
    stack = stack_with(MEGATRON, gradients={"overflow_checks": checks})
    programs = realised(GPT, stack, "dp=4 zero=1 gbs=4")

    norms = [item for item in operators(programs.reduce) if item.work.kind == "gradient_norm"]

    shard_bytes = 4 * at(programs.parameters) / 4
    assert [at(item.work.work().moved_bytes) for item in norms] == [shard_bytes] * (checks + 1)
    assert len(synchronise_items(stack)) == checks + 1
    assert {at(item.work.message_bytes) for item in synchronise_items(stack)} == {8.0}
    assert {item.work.axis for item in synchronise_items(stack)} == {"model"}


def test_copies_stand_around_the_reduction_as_the_stack_names_them():
    stack = stack_with(MEGATRON, gradients={"copies": ("flatten", "scale_gradient", "unflatten")})

    names = [item.name for item in realised(GPT, stack, "dp=4 gbs=4").reduce]

    place = names.index("gradients.reduce")
    assert names[place - 2 : place + 2] == [
        "gradients.flatten",
        "gradients.scale_gradient",
        "gradients.reduce",
        "gradients.unflatten",
    ]


COPYING = stack_with(OVERLAPPED, gradients={"copies": ("flatten", "scale_gradient", "unflatten")})


def test_copies_before_an_overlapped_reduction_run_in_front_of_it_in_the_last_micro_batch():
    block = block_of(realised(GPT, COPYING, "dp=4 gbs=16"))

    copies = block.backward[-3:-1]
    assert [item.name for item in block.backward[-3:]] == [
        "gradients.flatten",
        "gradients.scale_gradient",
        "gradients.reduce",
    ]
    assert {(item.phase, item.when, item.stream) for item in copies} == {("backward", "last", "compute")}
    assert "dp" not in {stream for item in copies for stream in item.waits}  # reductions run on beside them


def test_copies_after_an_overlapped_reduction_wait_for_the_end_of_the_step():
    programs = realised(GPT, COPYING, "dp=4 gbs=16")

    (copy,) = [item for item in programs.reduce if "flatten" in item.name or "scale" in item.name]
    assert (copy.name, copy.phase) == ("gradients.unflatten", "step")
    assert "dp" in copy.waits


@pytest.mark.parametrize("text", ["dp=2 pp=1 gbs=8", "dp=2 pp=4 gbs=8"])
def test_a_copy_passes_over_as_many_gradients_whether_reductions_overlap_or_not(text):
    """A gradient is read and written once: nothing that the stack copies is lost under the backward."""
    programs = realised(GPT, COPYING, text)
    after = realised(GPT, stack_with(COPYING, gradients={"overlap": False}), text)

    beneath = sum(
        moved_bytes_of([copy]) * copy.count.item() * logical.count
        for layer, logical in zip(programs.layers, programs.workload.layers, strict=True)
        for copy in [named(layer.backward, "gradients.flatten")]
    )

    at_the_end = named(after.reduce, "gradients.flatten").work.work().moved_bytes
    assert beneath == pytest.approx(float((at_the_end * after.stages.multiplicity).sum()), rel=1e-12)


def test_without_replicas_nothing_is_reduced_so_that_copies_stand_at_the_end_whatever_overlaps():
    """Megatron-Core scales a bucket only where its factor is not 1, whether it overlaps or not."""
    for text in ("tp=2 gbs=8", "pp=4 gbs=8", "dp=2 pp=2 gbs=8", "cp=2 gbs=8"):
        programs = realised(GPT, COPYING, text)
        beneath = [
            item.count.item() for item in block_of(programs).backward if item.name == "gradients.flatten"
        ]
        behind = [item for item in programs.reduce if item.name == "gradients.flatten"]
        has_replicas = "dp" in text or "cp" in text

        assert any(beneath) == has_replicas, text
        assert bool(behind) != has_replicas, text


def test_gradients_that_fsdp_reduces_in_fp32_are_cast_and_scaled_whole_in_every_micro_batch():
    """Of PyTorch: 16 bits read, fp32 written; fp32 scaled in place; then messages (`_reduce_grad`)."""
    copies = {"copies": ("cast_to_fp32", "scale_gradient"), "dtype": "fp32", "overlap": True}
    stack = stack_with(MEGATRON, gradients=copies, sharding={"zero_stages": (0, 3)})
    block = block_of(realised(GPT, stack, "dp=4 zero=3 gbs=16"))

    for kind, moved_bytes in zip(copies["copies"], (6, 8), strict=True):
        passes = [item for item in block.backward if item.name == f"gradients.{kind}" and at(item.count)]
        assert [(item.when, at(item.count)) for item in passes] == [("every", 1.0)]
        assert moved_bytes_of(passes) == moved_bytes * BLOCK_PARAMETERS


def test_a_bucket_that_spans_layers_is_copied_by_one_kernel():
    """A layer brings the share of the bucket that its gradients fill, as it does to the reduction."""
    block = block_of(realised(GPT, COPYING, "dp=4 gbs=16"))
    copy, reduced = (named(block.backward, f"gradients.{name}") for name in ("flatten", "reduce"))

    assert copy.count.item() == reduced.count.item()


def test_the_end_of_a_step_runs_in_this_order():
    programs = realised(GPT, MEGATRON, "dp=4 pp=2 zero=1 gbs=8")

    names = [i.name for part in (programs.reduce, programs.synchronise, programs.update) for i in part]

    assert names == [
        "gradients.tied_embeddings",
        "gradients.scale_gradient",
        "gradients.reduce",
        "gradients.reduce_across_groups",  # of shards, where there are several groups of them
        "gradients.overflow_check_0",
        "gradients.norm",
        "host.step",
        "gradients.overflow_0",
        "gradients.norm",
        "optimizer.unscale",
        "optimizer.update",
        "gradients.gather_parameters",
    ]


@pytest.mark.parametrize("part", ["reduce", "update"])
def test_each_stage_ends_its_step_over_its_own_parameters(part):
    programs = realised(GPT, MEGATRON, "dp=2 pp=4 zero=1 gbs=8")

    moved = [i.work.work().moved_bytes for i in operators(getattr(programs, part))]

    first, last = first_stage(programs), last_stage(programs)
    share = programs.parameters[0, first] / programs.parameters[0, last]
    assert share != 1.0  # the first stage has the positions, the last the final norm
    for bytes_of in moved:
        assert bytes_of[0, first] / bytes_of[0, last] == pytest.approx(share)


def test_stages_that_pad_a_batch_end_no_step():
    programs = realised(LLAMA, MEGATRON, "dp=2 pp=4 zero=1 gbs=8", "dp=2 pp=1 zero=1 gbs=8")

    padded = int(programs.stages.multiplicity[1].argmin())
    reduction = named(programs.reduce, "gradients.reduce")
    assert at(reduction.count, 1, padded) == 0.0
    assert at(named(programs.update, "gather_parameters").count, 1, padded) == 0.0
    assert at(named(programs.update, "optimizer.update").work.work().moved_bytes, 1, padded) == 0.0


def test_an_unknown_copy_is_refused_by_name():
    misspelt = stack_with(MEGATRON, gradients={"copies": ("flaten",)})

    with pytest.raises(FlopcastError, match="flaten"):
        realised(GPT, misspelt, "dp=2 gbs=2")


@pytest.mark.parametrize("text", ["dp=2 pp=1 gbs=8", "dp=2 pp=4 gbs=8"])
def test_reductions_in_the_order_of_compute_follow_the_backward_where_tensors_are_cut(text):
    """OneFlow: as overlapped without tensor parallelism, as one that overlaps nothing with it."""
    in_order = stack_with(COPYING, gradients={"overlap_with_tensor": False})
    never = stack_with(COPYING, gradients={"overlap": False})

    def sent(stack, plan):
        programs = realised(GPT, stack, plan)
        parts = programs.layers[1].backward, programs.reduce
        found = [[item for item in part if item.name == "gradients.reduce"] for part in parts]
        return [sum(map(total_bytes, items)) for items in found]

    assert sent(in_order, text) == sent(COPYING, text)
    assert sent(in_order, f"{text} tp=4") == sent(never, f"{text} tp=4")
