"""Whoever follows the advice of faults, one edit at a time, comes to a job that is right."""

from all_cases import all_cases
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spec_cases import edited, edits, faults, key, model, parts

DEGREES = st.integers(1, 20)
OF_DEVICES = ("plan.data_parallel", "plan.tensor_parallel")
PLANS = st.fixed_dictionaries(
    {
        "data_parallel": DEGREES,
        "tensor_parallel": DEGREES,
        "pipeline_parallel": DEGREES,
        "virtual_stages": st.integers(1, 5),
        "micro_batch": st.integers(1, 9),
        "global_batch": st.integers(1, 300),
        "zero": st.integers(0, 3),
        "sequence_parallel": st.booleans(),
        "schedule": st.sampled_from(["auto", "1f1b", "interleaved_1f1b", "gpipe", "zb_h1", "zb_v"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "partition_activations": st.booleans(),
        "precision": st.sampled_from(["fp16", "bf16", "fp8"]),
    }
)
STACKS = st.sampled_from(["megatron-2022", "gpt-neox-deepspeed"])
MODELS = st.builds(
    model,
    blocks=st.integers(1, 24),
    heads=st.sampled_from([8, 12, 16, 60]),
    ffn_hidden=st.sampled_from([4096, 6000]),
)


def mended(whole, rounds=12):
    """Return the faults that are left after repeatedly making the advised edit that leaves the fewest."""
    for _ in range(rounds):
        told = faults(whole)
        advised = [edit for problem in told for edit in edits(problem)]
        if not advised:
            return told
        whole = min((edited(whole, edit) for edit in advised), key=lambda after: len(faults(after)))
    return faults(whole)


@settings(max_examples=20, deadline=None)
@given(plan=PLANS, stack=STACKS, shape=MODELS, nodes=st.integers(1, 6))
@example(
    plan={
        "data_parallel": 3,
        "tensor_parallel": 9,
        "pipeline_parallel": 8,
        "micro_batch": 9,
        "global_batch": 1,
    },
    stack="megatron-2022",
    shape=model(blocks=9, heads=12),
    nodes=3,
)  # four broken rules, whose edits depend on one another
def test_every_edit_that_a_fault_names_mends_that_fault(plan, stack, shape, nodes):
    whole = parts(model=shape, stack=stack, cluster=f"dgx-a100:{nodes}", **plan)
    told = [problem for problem in faults(whole) if problem.field != "plan"]  # devices: the test below

    for problem in told:
        for edit in edits(problem):
            assert key(problem) not in [key(left) for left in faults(edited(whole, edit))], (problem, edit)


@all_cases(
    ("plan", "nodes"),
    [
        ({"data_parallel": 16}, 1),
        ({"data_parallel": 4, "tensor_parallel": 1, "pipeline_parallel": 1}, 1),  # half a node
        ({"data_parallel": 12}, 1),  # one and a half nodes: nodes are used whole
        ({"data_parallel": 1, "tensor_parallel": 16}, 1),  # one replica is larger than the cluster
        ({"data_parallel": 1, "tensor_parallel": 1, "pipeline_parallel": 8}, 3),
    ],
)
def test_every_edit_offered_for_a_wrong_number_of_devices_makes_it_right(plan, nodes):
    whole = parts(cluster=f"dgx-a100:{nodes}", **plan)
    (told,) = [problem for problem in faults(whole) if problem.field in OF_DEVICES]

    for edit in edits(told):
        assert "plan" not in [left.field for left in faults(edited(whole, edit))], edit


def test_whoever_follows_the_advice_arrives_at_a_valid_job():
    many_faults = parts(
        tensor_parallel=3,
        pipeline_parallel=3,
        virtual_stages=2,
        global_batch=7,
        schedule="gpipe",
        zero=2,
        offload="optimizer:host",
        precision="fp8",
        data_shard=4,
    )

    assert mended(many_faults) == ()


@settings(max_examples=20, deadline=None)
@given(
    plan=PLANS, degrees=st.tuples(*[st.sampled_from([1, 2, 4, 8])] * 3), nodes=st.sampled_from([1, 2, 4])
)
def test_a_plan_of_powers_of_two_can_always_be_mended_by_its_advice(plan, degrees, nodes):
    data, tensor, pipeline = degrees
    sizes = {"data_parallel": data, "tensor_parallel": tensor, "pipeline_parallel": pipeline}

    left = mended(parts(cluster=f"dgx-a100:{nodes}", **(plan | sizes)))

    assert left == ()


@settings(max_examples=40, deadline=None)
@given(wanted=st.integers(1, 400), micro=st.integers(1, 9), nodes=st.integers(1, 4))
def test_the_advised_global_batch_is_the_nearest_that_is_possible(wanted, micro, nodes):
    whole = parts(
        cluster=f"dgx-a100:{nodes}", data_parallel=8 * nodes, micro_batch=micro, global_batch=wanted
    )
    possible = [batch for batch in range(1, 900) if not faults_of_batch(batch, micro, nodes)]

    told = faults(whole)

    for problem in told:
        advised = int(edits(problem)[0]["global_batch"])
        assert abs(advised - wanted) == min(abs(batch - wanted) for batch in possible)
    assert bool(told) == (wanted not in possible)


def faults_of_batch(batch, micro, nodes):
    """What is left when every pipeline has taken whole micro-batches; nothing taken is a fault too."""
    pipelines = 8 * nodes
    return batch % (pipelines * micro) or batch < pipelines * micro


@settings(max_examples=40, deadline=None)
@given(heads=st.integers(1, 96), tensor=st.integers(1, 96))
@example(heads=16, tensor=13)  # the nearest divisor of the heads, 16, divides no devices
def test_the_advised_tensor_parallel_degree_is_the_nearest_that_divides_heads_and_devices(heads, tensor):
    whole = parts(
        model=model(heads=heads, ffn_hidden=4096 * tensor),
        cluster=f"dgx-a100:{tensor}",
        tensor_parallel=tensor,
    )

    advised = [int(edits(problem)[0]["tensor_parallel"]) for problem in faults(whole)]

    devices = 8 * tensor
    divisors = [degree for degree in range(1, heads + 1) if heads % degree == 0 == devices % degree]
    if tensor in divisors:
        assert advised == []
    else:
        assert abs(advised[0] - tensor) == min(abs(divisor - tensor) for divisor in divisors)


@settings(max_examples=60, deadline=None)
@given(
    blocks=st.integers(2, 40),
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=8),
    stages=st.sampled_from([1, 2, 4, 8]),
)
def test_the_advised_list_of_blocks_is_possible(blocks, sizes, stages):
    whole = parts(
        model=model(blocks=max(blocks, stages)),
        data_parallel=8 // stages,
        pipeline_parallel=stages,
        stage_layers=",".join(map(str, sizes)),
        global_batch=64,
    )

    for problem in faults(whole):
        assert problem.field == "plan.stage_layers"
        assert faults(edited(whole, edits(problem)[0])) == ()
