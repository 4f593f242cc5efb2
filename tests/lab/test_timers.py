"""Timers in logs: every way in which Megatron-LM, GPT-NeoX and DeepSpeed print them."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.lab.logs.timers import TimerState, parts_in


def timers_of(text):
    """The timers of a text, in which a line "step N" prints a step."""
    state, step = TimerState(), 0
    for line in text.splitlines():
        step = int(line.removeprefix("step ")) if line.startswith("step ") else step
        state.take(line, step)
    return state.timers()


def parts_of(text, steps=()):
    """The timed parts of a text in some steps, by name."""
    return parts_in(timers_of(text), np.array(steps, dtype=float))


WAYS = {
    "least and most": "(min, max) time across ranks (ms):\n"
    "    forward-compute ................................: (392.53, 412.11)\n"
    "    optimizer ......................................: (3.90, 3.93)\n",
    "most": "max time across ranks (ms):\n"
    "    forward-compute ................................: 412.11\n"
    "    optimizer ......................................: 3.93\n",
    "every rank": "times across ranks (ms):\n"
    "  forward-compute:\n     rank  0: 392.53\n     rank  1: 412.11\n"
    "  optimizer:\n     rank  0: 3.93\n     rank  1: 3.90\n",
    "a row": "time (ms) | forward: 412.11 | forward-recv: 3.00 | optimizer: 3.93 |\n",
    "a row of DeepSpeed": "[2024-05-01 10:00:00] [Rank 0] time (ms) | forward: 412.11 | optimizer: 3.93\n",
}


@all_cases("way", WAYS)
def test_every_way_to_print_timers_is_read(way):
    found = parts_of(WAYS[way])

    assert found.keys() == {"forward", "optimizer"}
    assert found["forward"].most_s == pytest.approx(0.41211)
    assert found["optimizer"].most_s == pytest.approx(0.00393)
    both = way in ("least and most", "every rank")
    assert found["forward"].least_s == pytest.approx(0.39253 if both else 0.41211)
    assert found["forward"].slowest_rank == (1 if way == "every rank" else None)


def test_the_median_leaves_out_the_first_tenth():
    text = "".join(WAYS["most"].replace("412.11", str(ms)) for ms in (9000, *[400] * 19, 5000))

    assert parts_of(text)["forward"].most_s == pytest.approx(0.4)


def test_a_timer_counts_in_the_steps_that_are_asked_for():
    block = "step {}\nmax time across ranks (ms):\n    optimizer ...: {}\n"
    text = "".join(block.format(step, 10 * step) for step in range(1, 11))

    assert parts_of(text, [3, 4, 5])["optimizer"].most_s == pytest.approx(0.04)
    assert parts_of(text, [9])["optimizer"].most_s == pytest.approx(0.09)


def test_timers_of_deepspeed_hold_the_reduction_in_the_backward_and_zeros_are_no_times():
    """DeepSpeed prints bwd, of which bwd_inner and bwd_allreduce are parts; a pipeline leaves some at 0."""
    row = "time (ms) | fwd: 55.1 | bwd: 180.8 | bwd_inner: 13.3 | bwd_allreduce: 167.0 | step: 83.6"

    found = parts_of(f"{row}\ntime (ms) | optimizer: 0.00 | batch generator: 0.00\n")

    assert {part: one.most_s for part, one in found.items()} == pytest.approx(
        {"forward": 0.0551, "reducing_backward": 0.1808, "optimizer": 0.0836}
    )


def test_of_several_timers_of_one_part_the_longest_counts():
    text = "max time across ranks (ms):\n    grads-reduce-scatter ...: 20.0\n    all-grads-sync ...: 25.0\n"

    assert parts_of(text)["gradients"].most_s == pytest.approx(0.025)


def test_lines_that_only_look_like_timers_and_impossible_numbers_are_no_timers():
    text = (
        "    optimizer ......................................: (3.90, 3.93)\n"  # without a heading
        "(min, max) time across ranks (ms):\n"
        "    optimizer ......................................: (nan, 3.93)\n"
        "    optimizer ......................................: (5.00, 3.93)\n"
        "    an-unknown-timer ...............................: (5.00, 6.00)\n"
        "something else\n"
        "    optimizer ......................................: (3.90, 3.93)\n"
    )

    assert parts_of(text) == {}
