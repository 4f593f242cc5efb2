"""Bytes of an optimizer's states and of its update, per parameter, against what each paper keeps."""

from typing import get_args

import pytest
from all_cases import all_cases

from flopcast.library import catalog
from flopcast.spec.optimizers import OPTIMIZERS, moved_bytes, state_bytes
from flopcast.spec.plan import Plan
from flopcast.spec.stack import Optimizer, Stack

FP32 = Optimizer(state_bytes=12, moved_bytes=30)


@all_cases(
    ("name", "kept_bytes"),
    [
        ("adamw", 4 + 4 + 4),  # arXiv:1910.02054, section 3.1: K = 12
        ("adamw_8bit", 4 + 2 * (1 + 4 / 256)),  # arXiv:2110.02861: a byte a moment, an fp32 scale a block
        ("sgd_momentum", 4 + 4),
        ("lion", 4 + 4),  # arXiv:2302.06675, algorithm 2: one momentum
        ("lion_8bit", 4 + 1 + 4 / 256),
        ("sgd", 4),
        ("adafactor", 4),  # arXiv:1804.04235: two numbers a row and column, counted from shapes
    ],
)
def test_an_optimizer_keeps_a_master_weight_and_its_moments(name, kept_bytes):
    assert state_bytes(name, FP32) == pytest.approx(kept_bytes)


@all_cases(
    ("name", "less_bytes"),
    [("adamw", 0), ("sgd_momentum", 2 * 4), ("sgd", 2 * 8), ("adamw_8bit", 2 * (8 - 2 * (1 + 4 / 256)))],
)
def test_what_is_not_kept_is_neither_read_nor_written(name, less_bytes):
    assert moved_bytes("adamw", FP32) - moved_bytes(name, FP32) == pytest.approx(less_bytes)


@all_cases("fields", [{}, {"state_bytes": 4.0}, {"main_parameter_bytes": 2.0}])
def test_in_fp32_an_update_reads_four_tensors_and_writes_three(fields):
    """A weight, its gradient and two moments, whatever the software keeps beside 16-bit weights."""
    kept = Stack(name="mine", optimizer=Optimizer(moved_bytes=30, **fields)).computing_in("fp32").optimizer

    assert (state_bytes("adamw", kept), moved_bytes("adamw", kept)) == (2 * 4, 7 * 4)


def test_adafactor_writes_its_update_and_reads_it_twice():
    # arXiv:1804.04235, algorithm 4: RMS(U) divides U before it is applied; U is fp32
    assert moved_bytes("adafactor", FP32) - moved_bytes("sgd", FP32) == 3 * 4


@all_cases(
    ("fields", "kept_bytes"),
    [
        ({}, 12),
        ({"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}, 8),
        ({"exp_avg_dtype": "fp8", "exp_avg_sq_dtype": "fp16"}, 7),
        ({"main_parameter_bytes": 2.0}, 10),
        ({"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16", "main_parameter_bytes": 2.0}, 6),
    ],
)
def test_a_precision_aware_optimizer_keeps_each_state_in_its_own_type(fields, kept_bytes):
    kept = Optimizer(state_bytes=12, moved_bytes=30, **fields)

    assert state_bytes("adamw", kept) == kept_bytes
    assert moved_bytes("adamw", kept) == 30 - 2 * (12 - kept_bytes)


@all_cases("name", OPTIMIZERS)
def test_a_stack_whose_updates_move_nothing_leaves_them_out(name):
    assert moved_bytes(name, Optimizer(moved_bytes=0)) == 0


@all_cases("name", OPTIMIZERS)
@all_cases("stack", ["gpt-neox-deepspeed", "megatron-2021", "megatron-2022", "megatron-core"])
def test_every_optimizer_keeps_and_moves_no_more_than_adamw_in_fp32(name, stack):
    kept = catalog.stack(stack).optimizer

    assert 0 <= state_bytes(name, kept) <= state_bytes("adamw", kept) == kept.state_bytes
    assert 0 < moved_bytes(name, kept) <= moved_bytes("adamw", kept) == kept.moved_bytes


def test_a_plan_may_name_every_optimizer_that_is_built():
    assert set(get_args(Plan.model_fields["optimizer"].annotation)) == OPTIMIZERS.keys()


def test_quantised_moments_have_their_own_type_whatever_the_stack_s():
    halves = Optimizer(state_bytes=12, exp_avg_dtype="bf16", exp_avg_sq_dtype="bf16")

    assert state_bytes("adamw_8bit", halves) == state_bytes("adamw_8bit", FP32)
