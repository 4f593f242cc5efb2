"""Which units are gathered and reduced, how often, over which ranks: against a count of what travels."""

import numpy as np
import pytest
from all_cases import all_cases
from workload_cases import GPT, HIDDEN, LLAMA, MEGATRON, VOCABULARY, at, realised, stack_with

from flopcast.layers.experts import Experts
from flopcast.workload.program import POSITIONS, WHEN

FREE = MEGATRON.model_copy(
    update={"sharding": stack_with(MEGATRON, sharding={"zero_stages": (0, 1, 2, 3)}).sharding}
)
FSDP = stack_with(FREE, gradients={"overlap": True, "dtype": "fp32"})
MIXTURE = LLAMA.model_copy(
    update={
        "blocks": (
            LLAMA.blocks[0].model_copy(
                update={"feed_forward": Experts(num_experts=8, top_k=2, expert_hidden=512)}
            ),
        )
    }
)


def sent(segments, name, position="middle", plan=0, chunk=0):
    """Bytes of all messages of a name, experts' included, in one pass of a chunk at a position."""
    where = POSITIONS.index(position)
    return sum(
        at(item.work.message_bytes, plan)
        * at(item.count, plan)
        * WHEN[item.when][where]
        * segment.repeat[min(plan, len(segment.repeat) - 1), chunk]
        for segment in segments
        for item in segment.items
        if item.name in (name, f"{name}_experts")
    )


def axes(segments, name):
    """Axes of messages of this name that are sent at least once."""
    return {
        item.work.axis
        for segment in segments
        for item in segment.items
        if item.name in (name, f"{name}_across_groups") and segment.repeat.any() and item.count.any()
    }


@all_cases("ends", ["own_units", "root"])
@all_cases("prefetch", [0, 1])
def test_each_pass_gathers_every_parameter_once(ends, prefetch):
    stack = stack_with(FSDP, sharding={"ends": ends, "prefetch_units": prefetch})

    programs = realised(LLAMA, stack, "dp=8 zero=3 gbs=16")

    whole_bytes = 2 * at(programs.parameters)  # in 16 bits
    root_bytes = 2 * (2 * VOCABULARY * HIDDEN + HIDDEN) if ends == "root" else 0.0  # two tables and a norm
    assert sent(programs.forward, "parameters.gather") == pytest.approx(whole_bytes)
    assert sent(programs.backward, "parameters.gather") == pytest.approx(whole_bytes - root_bytes)


def test_a_tied_table_is_gathered_again_where_it_was_freed_and_not_where_it_stayed():
    freed, stayed = (
        realised(GPT, stack_with(FSDP, sharding={"ends": ends}), "dp=8 zero=3 gbs=8")
        for ends in ("own_units", "root")
    )

    twice, once = (sent(programs.forward, "parameters.gather", "only") for programs in (freed, stayed))

    assert twice - once == pytest.approx(2 * VOCABULARY * HIDDEN)


@pytest.mark.parametrize("element_bytes", [2, 4])
def test_every_micro_batch_reduces_every_gradient_once(element_bytes):
    stack = stack_with(FSDP, gradients={"dtype": {2: "bf16", 4: "fp32"}[element_bytes]})

    programs = realised(LLAMA, stack, "dp=8 zero=3 gbs=16")

    for position in ("first", "middle", "last"):
        reduced = sent(programs.backward, "gradients.reduce", position)
        assert reduced == pytest.approx(element_bytes * at(programs.parameters))
    assert [item.name for item in programs.reduce if item.name.startswith("gradients.reduce")] == []


def test_zero_2_gathers_what_was_updated_and_zero_3_gathers_nothing_at_the_end_of_a_step():
    second, third = (realised(LLAMA, FSDP, f"dp=8 zero={stage} gbs=16") for stage in (2, 3))

    gathers = [[i for i in programs.update if "gather" in i.name] for programs in (second, third)]

    assert [len(found) for found in gathers] == [1, 0]
    assert sent(second.forward, "parameters.gather") == 0.0


@pytest.mark.parametrize(
    ("gathers", "forward", "backward"),
    [
        ("every_pass", POSITIONS, POSITIONS),
        ("every_micro_batch", POSITIONS, ()),
        ("every_step", ("first", "only"), ()),
    ],
)
def test_the_policy_says_which_passes_gather(gathers, forward, backward):
    stack = stack_with(FSDP, sharding={"gathers": gathers})

    programs = realised(LLAMA, stack, "dp=8 zero=3 gbs=24")

    for segments, wanted in ((programs.forward, forward), (programs.backward, backward)):
        found = tuple(p for p in POSITIONS if sent(segments, "parameters.gather", p) > 0)
        assert set(found) == set(wanted)


def test_a_pipeline_s_stage_gathers_in_its_first_micro_batch_and_reduces_in_its_last():
    programs = realised(LLAMA, FSDP, "dp=2 pp=2 zero=3 gbs=16")

    gathered = [p for p in POSITIONS if sent(programs.forward, "parameters.gather", p) > 0]
    reduced = [p for p in POSITIONS if sent(programs.backward, "gradients.reduce", p) > 0]

    assert gathered == ["first", "only"]
    assert reduced == ["last", "only"]
    assert sent(programs.backward, "parameters.gather") == 0.0


def test_a_batch_holds_plans_with_and_without_stages_and_each_keeps_its_own_policy():
    together = realised(LLAMA, FSDP, "dp=4 pp=1 zero=3 gbs=16", "dp=4 pp=2 zero=3 gbs=16")
    alone = [realised(LLAMA, FSDP, f"dp=4 pp={stages} zero=3 gbs=16") for stages in (1, 2)]

    for plan, programs in enumerate(alone):
        for position in POSITIONS:
            for name in ("parameters.gather", "gradients.reduce"):
                for run in ("forward", "backward"):
                    whole = [
                        sum(
                            sent(getattr(p, run), name, position, row, chunk)
                            for chunk in range(p.stages.chunk_counts.shape[1])
                        )
                        for p, row in ((together, plan), (programs, 0))
                    ]
                    assert whole[0] == pytest.approx(whole[1])


def test_shards_inside_groups_and_copies_across_them():
    """HSDP: a reduce-scatter of the whole inside the group, an all-reduce of one shard across groups."""
    programs = realised(LLAMA, FSDP, "dp=16 dp_shard=4 zero=3 gbs=16")

    scattered = sent(programs.backward, "gradients.reduce", "only")
    across = sent(programs.backward, "gradients.reduce_across_groups", "only")

    held_bytes = 4 * at(programs.parameters)
    assert scattered == pytest.approx(held_bytes)
    assert across == pytest.approx(held_bytes / 4)
    assert axes(programs.backward, "gradients.reduce") == {"dp_shard", "dp_replicate"}
    assert axes(programs.forward, "parameters.gather") == {"dp_shard"}


def test_experts_are_gathered_from_the_ranks_that_share_them():
    programs = realised(MIXTURE, FSDP, "dp=8 ep=4 zero=3 gbs=16")

    experts = sent(programs.forward, "parameters.gather_experts")

    assert experts == pytest.approx(2 * at(programs.expert_parameters))
    assert sent(programs.forward, "parameters.gather") == pytest.approx(2 * at(programs.parameters))
    assert "expert_dp_shard" in axes(programs.forward, "parameters.gather_experts")


def test_only_shards_are_accumulated_where_every_micro_batch_is_reduced():
    stack = stack_with(FSDP, gradients={"accumulate_passes": 1})

    sharded, whole = (
        realised(LLAMA, stack, f"dp=8 {words} gbs=16").layers[1].backward for words in ("zero=3", "zero=1")
    )
    elements = [
        at(item.work.elements)
        for run in (sharded, whole)
        for item in run
        if item.name.endswith("accumulate")
    ]

    assert elements[0] == pytest.approx(elements[1] / 8)


def test_a_gather_is_put_on_the_queue_before_the_unit_before_it_computes():
    """The order in which one rank launches: wait for unit i, gather unit i + 1, compute unit i."""
    programs = realised(LLAMA, FSDP, "dp=8 zero=3 gbs=8")
    block = next(s for s in programs.forward if s.repeat.max() == LLAMA.num_blocks - 1)

    names = [item.name for item in block.items]

    assert names[:3] == ["gathered.wait", "parameters.gather", "parameters.gathered"]
    assert [item.waits for item in block.items[:2]] == [("compute", "gathered"), ("compute", "host")]


def test_updated_parameters_that_arrive_under_the_forward_are_not_gathered_before_it():
    stack = stack_with(FSDP, gradients={"overlap_gather": True})

    programs = realised(LLAMA, stack, "dp=8 zero=1 gbs=16")

    assert [item.name for item in programs.update if "gather" in item.name] == []
    assert sent(programs.forward, "parameters.gather", "first") == pytest.approx(
        2 * at(programs.parameters)
    )
    assert sent(programs.forward, "parameters.gather", "middle") == 0.0


@pytest.mark.parametrize("replicas", [1, 8, 64])
def test_buckets_grow_with_the_number_of_ranks_that_share_them(replicas):
    """Megatron-Core: at least a million elements for each data-parallel rank."""
    stack = stack_with(
        MEGATRON,
        gradients={"overlap": True, "bucket_elements": 4_000_000, "bucket_elements_per_rank": 1_000_000},
    )

    programs = realised(LLAMA, stack, f"dp={replicas} gbs={replicas}")

    reduction = next(i for i in programs.layers[1].backward if i.name == "gradients.reduce")
    bucket = at(reduction.work.message_bytes) / 4
    assert bucket == pytest.approx(min(max(4e6, 1e6 * replicas), at(programs.parameters)))


def test_a_bucket_spans_layers_and_each_layer_brings_its_share_of_it():
    stack = stack_with(MEGATRON, gradients={"overlap": True, "bucket_elements": 10**12})

    programs = realised(LLAMA, stack, "dp=4 gbs=4")

    shares = [
        at(next(i for i in layer.backward if i.name == "gradients.reduce").count) * logical.count
        for layer, logical in zip(programs.layers, programs.workload.layers, strict=True)
    ]
    assert np.sum(shares) == pytest.approx(1.0)  # one bucket holds all gradients
