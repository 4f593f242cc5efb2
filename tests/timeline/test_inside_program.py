"""timeline/program_items.py: the items of one program, one by one."""

from itertools import pairwise

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from workbench import any_priced, only, priced_job, repriced

from flopcast.timeline.layer import BLOCKING
from flopcast.timeline.program_items import lay_out
from flopcast.workload.program import POSITIONS, Segment

PASSES = ("forward", "backward")
MIDDLE, LAST = POSITIONS.index("middle"), POSITIONS.index("last")


def tensor_parallel():
    return priced_job(make_job(plan="dp=2 tp=4 sp mbs=1 gbs=16 recompute=selective precision=fp16"))


def reduced_beside():
    stack = {"base": "megatron-2022", "contention": {"kernel_share": 0.0}, "gradients": {"overlap": True}}
    return priced_job(make_job(stack=stack))


@all_cases("which", PASSES)
def test_a_stream_runs_one_item_at_a_time_in_launch_order(which):
    priced = tensor_parallel()

    inside = lay_out(getattr(priced.programs, which), priced, 0, 0, MIDDLE)

    for stream in ("compute", "tp"):
        mine = [row for row, item in enumerate(inside.items) if item.stream == stream]
        assert len(mine) > 8
        assert all(inside.start_s[b] >= inside.end_s[a] for a, b in pairwise(mine))


@all_cases("which", PASSES)
def test_a_blocking_collective_starts_after_the_compute_before_it_and_ends_before_the_next(which):
    priced = tensor_parallel()

    inside = lay_out(getattr(priced.programs, which), priced, 0, 0, MIDDLE)

    for row, item in enumerate(inside.items):
        if item.stream == "tp" and not item.name.endswith(".again"):
            before = [inside.end_s[r] for r in range(row) if inside.items[r].stream == "compute"]
            after = [r for r in range(row + 1, len(inside.items)) if inside.items[r].stream == "compute"]
            assert inside.start_s[row] >= max(before, default=0.0)
            assert all(inside.start_s[r] >= inside.end_s[row] for r in after)


def test_a_gather_for_the_weight_gradient_runs_beside_the_input_gradient():
    # sequence parallelism gathers again what it did not keep, under the input gradient's GEMM
    priced = tensor_parallel()

    inside = lay_out(priced.programs.backward, priced, 0, 0, MIDDLE)

    found = {item.name: row for row, item in enumerate(inside.items)}
    gather, beside, after = (found[f"attention.{n}"] for n in ("enter.again", "qkv.dgrad", "qkv.wgrad"))
    assert inside.start_s[beside] < inside.end_s[gather]
    assert inside.start_s[after] >= max(inside.end_s[gather], inside.end_s[beside])


def test_what_takes_no_time_is_not_shown():
    priced = repriced(any_priced(), only({("mlp.up", "forward"): 2.0}))

    inside = lay_out(priced.programs.forward, priced, 0, 0, MIDDLE)

    assert [item.name for item in inside.items] == ["mlp.up"] * 8
    assert inside.start_s.tolist() == [2.0 * layer for layer in range(8)]
    assert inside.layer.tolist() == list(range(8))


def test_a_program_of_nothing_has_no_rows_and_no_length():
    priced = repriced(any_priced(), lambda _: 0.0)

    inside = lay_out(priced.programs.forward, priced, 0, 0, MIDDLE)

    assert inside.items == ()
    assert inside.start_s.shape == inside.end_s.shape == inside.layer.shape == (0,)
    assert inside.duration_s == 0.0


def test_seconds_inside_add_up_to_what_was_asked():
    priced = any_priced()

    inside = lay_out(priced.programs.backward, priced, 0, 0, MIDDLE)

    asked = sum(
        float((priced.of(item).alone_s * item.count)[0, 0] * segment.repeat[0, 0])
        for segment in priced.programs.backward
        for item in segment.items
        if item.when != "last"
    )
    assert float((inside.end_s - inside.start_s).sum()) == pytest.approx(asked, rel=1e-9)


def test_nothing_that_blocks_ends_after_the_program():
    priced = reduced_beside()

    inside = lay_out(priced.programs.backward, priced, 0, 0, LAST)

    ends = [end for item, end in zip(inside.items, inside.end_s, strict=True) if item.stream in BLOCKING]
    assert max(ends) <= inside.duration_s
    assert inside.duration_s == pytest.approx(max(ends), rel=1e-3)


def test_reductions_run_in_the_last_micro_batch_only():
    priced = reduced_beside()

    rows = {
        position: [item.stream for item in lay_out(priced.programs.backward, priced, 0, 0, number).items]
        for number, position in enumerate(POSITIONS)
    }

    found = {position: "dp" in streams for position, streams in rows.items()}
    assert found == {"first": False, "middle": False, "last": True, "only": True, "alone": False}


def test_every_plan_of_a_batch_is_laid_out_with_its_own_seconds_and_repeats():
    base = any_priced()
    item = next(i for i in base.programs.items() if i.name == "mlp.up" and i.phase == "forward")
    priced = repriced(base, lambda i: np.array([[1.0], [10.0]]) if i is item else 0.0)
    segments = [Segment(items=(item,), repeat=np.array([[2.0, 0.0], [1.0, 3.0]]))]

    lengths = [
        [lay_out(segments, priced, plan, chunk_class, MIDDLE).duration_s for chunk_class in (0, 1)]
        for plan in (0, 1)
    ]

    assert lengths == [[2.0, 0.0], [10.0, 30.0]]
