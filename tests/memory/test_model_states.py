"""What is resident whatever runs, and what an end of a step adds: against ZeRO's accounting."""

import numpy as np
import pytest
from all_cases import all_cases
from memory_cases import BLOCKS, HEADS, HIDDEN, LENGTH, VOCABULARY, Kept, stack_with

from flopcast.library import catalog
from flopcast.memory.peak import fits, seen_bytes

STATES = ("parameters", "gradients", "optimizer_states")
BLOCK_PARAMETERS = 12 * HIDDEN**2 + 13 * HIDDEN
PARAMETERS = BLOCKS * BLOCK_PARAMETERS + 2 * VOCABULARY * HIDDEN + 2 * HIDDEN


@all_cases("replicas", [1, 8, 64])
@all_cases(("dtype", "gradient"), [("fp16", 2), ("fp32", 4)])
def test_states_need_4_or_6_bytes_a_parameter_and_12_more_over_the_replicas(replicas, dtype, gradient):
    stack = stack_with(gradients={"dtype": dtype})

    kept = Kept(f"dp={replicas} zero=1 gbs={replicas} precision=fp16", stack=stack)

    # arXiv:1910.02054, section 3.1 and 5.1: 2 + 2 + K / N_d with K = 12; fp32 gradients take two bytes more
    total = sum(kept.category(name)[0] for name in STATES)
    assert total == pytest.approx(PARAMETERS * (2 + gradient + 12 / replicas), rel=1e-12)


@all_cases("gradient", ["bf16", "fp32"])
def test_states_of_training_in_fp32_need_16_bytes_a_parameter(gradient):
    """A weight, its gradient and two moments, in whatever dtype a stack reduces 16-bit gradients."""
    kept = Kept("gbs=1 precision=fp32", stack=stack_with(gradients={"dtype": gradient}))

    assert sum(kept.category(name)[0] for name in STATES) == pytest.approx(16.0 * PARAMETERS, rel=1e-12)


def test_without_zero_every_replica_keeps_all_states():
    one, many = (Kept(f"dp={replicas} gbs={replicas}") for replicas in (1, 64))

    assert one.category("optimizer_states") == many.category("optimizer_states") == [12.0 * PARAMETERS]


def test_zero_1_shards_the_optimizer_s_states_alone():
    plain, sharded = (Kept(f"dp=4 zero={stage} gbs=4") for stage in (0, 1))

    for name in ("parameters", "gradients", "activations"):
        assert sharded.category(name) == plain.category(name)
    assert sharded.category("optimizer_states")[0] == plain.category("optimizer_states")[0] / 4


def test_each_stage_keeps_the_states_of_its_own_layers():
    kept = Kept("pp=4 gbs=4")

    table = VOCABULARY * HIDDEN
    blocks = BLOCKS // 4 * BLOCK_PARAMETERS
    held = [blocks + table, blocks, blocks, blocks + table + 2 * HIDDEN]
    assert kept.category("parameters") == [2.0 * number for number in held]


@all_cases("text", ["gbs=1", "dp=2 tp=2 pp=4 zero=1 gbs=16", "tp=4 sp pp=2 vpp=2 gbs=8"])
@all_cases("update_bytes", [0.0, 400.0])
def test_the_categories_add_up_to_what_is_allocated(text, update_bytes):
    kept = Kept(text, stack=stack_with(memory={"update_bytes": update_bytes, "bucket_copies": 2}))

    total = np.sum([kept.category(name) for name in kept.memory.by_category], axis=0)

    assert total.tolist() == pytest.approx(kept.allocated, rel=1e-12)
    assert kept.of(kept.memory.at_update) == [update_bytes > 0] * len(kept.allocated)


def test_at_the_end_of_a_step_activations_are_gone():
    kept = Kept("dp=2 zero=1 gbs=2", stack=stack_with(memory={"update_bytes": 1e4}))

    assert kept.of(kept.memory.at_update) == [True]
    for name in ("activations", "layer_at_work", "logits"):
        assert kept.category(name) == [0.0]
    assert kept.category("update")[0] == pytest.approx(1e4 * PARAMETERS / 2)


def test_during_a_backward_nothing_is_being_updated():
    kept = Kept("gbs=8", stack=stack_with(memory={"update_bytes": 1.0, "bucket_copies": 1}))

    assert kept.of(kept.memory.at_update) == [False]
    assert kept.category("update") == kept.category("gradient_buckets") == [0.0]


@pytest.mark.parametrize(("bucket", "copied"), [(1_000_000, 1_000_000), (10**12, PARAMETERS)])
def test_a_bucket_is_no_larger_than_all_gradients(bucket, copied):
    stack = stack_with(
        gradients={"bucket_elements": bucket, "dtype": "fp32"},
        memory={"bucket_copies": 3, "update_bytes": 1e4},
    )

    kept = Kept("gbs=1", stack=stack)

    assert kept.category("gradient_buckets") == [3.0 * 4 * copied]


def test_between_steps_gradients_and_activations_are_free():
    stack = stack_with(memory={"workspace_bytes": 5e6, "keeps_gradients": False})

    kept = Kept("dp=4 zero=1 gbs=4", stack=stack)

    assert kept.of(kept.memory.resident_bytes) == pytest.approx(
        [PARAMETERS * (2 + 12 / 4) + 5e6], rel=1e-12
    )


def test_the_gradients_of_a_single_micro_batch_replace_its_activations_layer_by_layer():
    stack = stack_with(memory={"keeps_gradients": False})

    for micro_batch in (1, 2, 4, 8, 16):  # small ones keep less than the gradients that replace them
        kept = Kept(f"mbs={micro_batch} gbs={micro_batch}", stack=stack)
        buffered = Kept(f"mbs={micro_batch} gbs={micro_batch}")

        standing = sum(kept.memory.standing.values()).item()
        layers = [  # in the order of the backward pass, one by one: their state before it, what they need
            (layer, sum(weight.elements.item() for weight in layer.weights))
            for layer in reversed(kept.programs.layers)
            for _ in range(BLOCKS if layer.kind == "block" else 1)
        ]
        left = sum(layer.kept_bytes.item() for layer, _ in layers)
        made, levels = 0.0, []
        for layer, parameters in layers:
            logits = 6.0 * micro_batch * LENGTH * VOCABULARY if layer.kind == "head" else 0.0
            levels.append(left + made + max(layer.working_bytes.item(), logits))
            left -= layer.kept_bytes.item()
            made += 2.0 * parameters
        assert kept.allocated == pytest.approx([standing + max(*levels, made)], rel=1e-3)
        assert kept.allocated < buffered.allocated


def test_a_buffer_of_gradients_stays_between_steps():
    stack = stack_with(memory={"workspace_bytes": 0.0, "keeps_gradients": True})

    kept = Kept("dp=4 zero=1 gbs=4", stack=stack)

    # Megatron-Core, param_and_grad_buffer.py: 2 + 4 bytes of weight and main gradient, 12 over the replicas
    assert kept.of(kept.memory.resident_bytes) == pytest.approx([PARAMETERS * (6 + 12 / 4)], rel=1e-12)


def test_placeholders_of_gradients_are_one_tensor_of_each_shape_on_a_stage():
    stack = stack_with(memory={"weight_gradients": "placeholder"})

    kept = Kept("tp=2 pp=2 gbs=2", stack=stack)

    shapes = {(3 * HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (4 * HIDDEN, HIDDEN)}  # the last of both linears:
    ours = [2 * rows * columns / 2 for rows, columns in shapes]  # [4 h / t, h] and [h, 4 h / t] are two
    block = sum(ours) + 2 * 4 * HIDDEN * HIDDEN / 2
    head = 2 * VOCABULARY * HIDDEN / 2
    assert kept.category("placeholder_gradients") == [block, block + head]


def test_one_square_of_scores_stays_where_the_stack_keeps_a_buffer_for_it():
    stack = stack_with(memory={"score_buffer": True})

    kept = Kept("tp=2 mbs=4 gbs=4", stack=stack)

    # Megatron-LM, DotProductAttention: [b a / t, s, s] in 16 bits
    assert kept.category("buffers") == [2 * 4 * HEADS / 2 * LENGTH**2]


def test_received_activations_stay_on_stages_of_a_pipeline_alone():
    stack = stack_with(memory={"received_activations": 2}, pipeline={"payload": "full"})

    texts = ("gbs=2", "pp=2 gbs=2", "pp=2 vpp=4 gbs=2")
    alone, piped, chunked = (Kept(text, stack=stack).category("buffers") for text in texts)

    assert alone == [0.0]
    assert piped == [(2 + 1) * 2 * LENGTH * HIDDEN] * 2
    assert chunked == [(2 * 4 + 1) * 2 * LENGTH * HIDDEN] * 2


def test_the_allocator_holds_more_than_it_gives_out_by_the_stack_s_fraction():
    kept = Kept("gbs=1", stack=stack_with(memory={"fragmentation_fraction": 0.25}))

    assert kept.of(kept.memory.reserved_bytes) == pytest.approx([1.25 * kept.allocated[0]])


@all_cases(
    ("text", "communicators"),
    [("gbs=8", 0), ("dp=2 gbs=8", 1), ("tp=2 pp=2 gbs=8", 3), ("dp=2 tp=2 pp=2 gbs=8", 4)],
)
def test_the_driver_sees_context_and_a_communicator_for_every_axis_of_more_than_one(text, communicators):
    stack = stack_with(
        memory={"context_bytes": 3e8, "communicator_bytes": 7e7, "fragmentation_fraction": 0.1}
    )

    kept = Kept(text, stack=stack)

    used, reserved = (
        kept.of(getattr(kept.memory, f"{name}_bytes")) for name in ("device_used", "reserved")
    )
    beside = [seen - held for seen, held in zip(used, reserved, strict=True)]
    assert beside == pytest.approx([3e8 + communicators * 7e7] * len(beside))


@pytest.mark.parametrize("words", ["", "sp"])  # sequence parallelism ends before the head
def test_logits_weigh_on_the_last_stage_alone(words):
    stack = stack_with(memory={"logit_bytes": 6.0})

    kept = Kept(f"tp=4 pp=4 mbs=2 gbs=8 {words}", stack=stack)

    assert kept.category("logits") == [0.0, 0.0, 0.0, 6.0 * 2 * LENGTH * VOCABULARY / 4]


def test_every_tensor_parallel_rank_may_hold_all_logits():
    stack = stack_with(memory={"logit_bytes": 6.0, "gathers_logits": True})

    assert Kept("tp=4 mbs=2 gbs=8", stack=stack).category("logits") == [6.0 * 2 * LENGTH * VOCABULARY]


def test_a_loss_over_parts_of_the_logits_may_hold_more_tensors():
    stack = stack_with(memory={"logit_bytes": 12.0, "sharded_logit_bytes": 16.0})
    held = {ranks: Kept(f"tp={ranks} mbs=2 gbs=8", stack=stack).category("logits") for ranks in (1, 4)}

    assert held[1] == [12.0 * 2 * LENGTH * VOCABULARY]
    assert held[4] == [16.0 * 2 * LENGTH * VOCABULARY / 4]


def test_deepspeed_keeps_the_output_of_every_stage_for_each_micro_batch_in_flight():
    stack = stack_with(memory={"stage_outputs": 1}, pipeline={"sends_mask": True})

    kept = Kept("pp=4 mbs=2 gbs=16", stack=stack)

    activation = 2 * LENGTH * HIDDEN * 2
    assert kept.category("stage_outputs") == [activation * flying for flying in (4, 3, 3, 1)]  # by class


def test_interleaved_stages_keep_the_outputs_of_all_their_chunks():
    kept = Kept("pp=2 vpp=2 gbs=8", stack=stack_with(memory={"stage_outputs": 1}))

    activation = LENGTH * HIDDEN * 2
    # Megatron-LM: 2 (p - s - 1) + (v - 1) p forwards to warm up, and one more
    assert kept.category("stage_outputs") == [activation * flying for flying in (2 + 2 + 1, 2 + 1)]


def test_a_kept_output_is_a_share_where_shares_are_sent():
    stack = stack_with(memory={"stage_outputs": 1}, pipeline={"payload": "scattered"})

    kept = Kept("tp=4 pp=2 gbs=8", stack=stack)

    assert kept.category("stage_outputs")[0] == 2 * LENGTH * HIDDEN * 2 / 4


def test_a_plan_fits_if_its_fullest_stage_does():
    cluster = catalog.cluster("dgx-a100", 1)
    kept = Kept("pp=4 gbs=4")
    needed = max(kept.of(kept.memory.needed_bytes))

    just, hardly = (fits(kept.memory, sized(cluster, size)) for size in (needed, needed * (1 - 1e-9)))

    assert (just.tolist(), hardly.tolist()) == ([True], [False])


def test_what_the_allocator_only_caches_is_given_back_on_a_small_device():
    """A failed allocation frees cached blocks first (c10/cuda/CUDACachingAllocator.cpp)."""
    kept = Kept("pp=4 gbs=4")
    cluster = catalog.cluster("dgx-a100", 1)
    needed, used = (
        max(kept.of(size)) for size in (kept.memory.needed_bytes, kept.memory.device_used_bytes)
    )

    large, small, too_small = (
        seen_bytes(kept.memory, sized(cluster, size)).max() for size in (2 * used, needed, needed * 0.99)
    )

    assert needed < used
    assert (large, small, too_small) == (used, needed, used)


def sized(cluster, memory_bytes):
    """The cluster with devices of this much memory."""
    (group,) = cluster.groups
    device = group.node.device.model_copy(update={"memory_bytes": memory_bytes})
    node = group.node.model_copy(update={"device": device})
    return cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})


def test_every_plan_of_a_batch_is_judged_by_itself():
    kept = Kept("mbs=1 gbs=64", "mbs=64 gbs=64")
    between = kept.memory.device_used_bytes.mean()

    judged = fits(kept.memory, sized(catalog.cluster("dgx-a100", 1), between))

    assert judged.tolist() == [True, False]


def test_the_worst_stage_is_the_one_that_needs_most():
    kept = Kept("pp=4 gbs=16")

    worst = kept.memory.worst()

    classes = kept.programs.stages.of(0).stage_class.tolist()
    used = kept.of(kept.memory.device_used_bytes)
    assert classes[used.index(max(used))] == worst


def test_stages_that_pad_a_batch_need_nothing():
    stack = stack_with(memory={"stage_outputs": 1})

    kept = Kept("pp=4 gbs=4", "pp=1 gbs=4", stack=stack)

    padded = kept.programs.stages.multiplicity[1] == 0
    assert kept.memory.allocated_bytes[1, padded].tolist() == [0.0, 0.0]


def test_the_default_model_s_states_are_counted_by_hand():
    """3.1 M parameters a block, 26 M a table: 2 + 4 + 12 bytes of each on one device."""
    kept = Kept("gbs=1", stack=stack_with(gradients={"dtype": "fp32"}))

    assert sum(kept.category(name)[0] for name in STATES) == 18.0 * PARAMETERS
    assert PARAMETERS == 16 * 3_152_384 + 2 * 26_214_400 + 1024
