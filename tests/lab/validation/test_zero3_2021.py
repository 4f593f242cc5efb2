"""ZeRO-3 of April 2021 beside PTD-P: table 2 of arXiv:2104.04473, on Selene.

Nothing is fitted to the table. The time of the host at each all-gather was measured on eight A100 (issue
1069 of deepspeedai/DeepSpeed), and so was the time of copies and norms (pull request 1188). The time of a
piece is an estimate. The table was known when these times were chosen: these are scores of development.
"""

import pytest

from flopcast import job, predict
from flopcast.library import catalog

SHAPES = {"gpt3-175b": (96, 12288), "megatron-530b": (105, 20480)}
ROWS = {  # model, devices, micro-batch → sequences of a step, TFLOP/s of a device
    ("gpt3-175b", 384, 4): (1536, 144),
    ("gpt3-175b", 768, 2): (1536, 88),
    ("gpt3-175b", 1536, 1): (1536, 44),
    ("megatron-530b", 640, 4): (2560, 138),
    ("megatron-530b", 1120, 2): (2240, 98),
    ("megatron-530b", 2240, 1): (2240, 48),
}


def flop_of_a_step(model, batch, length=2048, vocabulary=51200):
    """Equation 3 of the paper, with recompute."""
    layers, hidden = SHAPES[model]
    more = length / (6 * hidden) + vocabulary / (16 * layers * hidden)
    return 96 * batch * length * layers * hidden**2 * (1 + more)


def device_tflop_per_s(model, devices, batch, plan, stack):
    words = f"{plan} gbs={batch} recompute=full precision=fp16"
    one = job(model, cluster=f"selene:{devices // 8}", seq=2048, stack=stack, plan=words)
    return flop_of_a_step(model, batch) / predict(one).step_time_s / devices / 1e12


@pytest.fixture(scope="module")
def zero3():
    return {
        (model, devices): device_tflop_per_s(
            model, devices, batch, f"dp={devices} mbs={micro} zero=3", "deepspeed-zero-2021"
        )
        for (model, devices, micro), (batch, _) in ROWS.items()
    }


def test_times_of_single_tensors_add_up_to_a_measured_forward_pass():
    """5.1B parameters in 64 blocks of six tensors on eight A100: 470 to 480 ms; ZeRO-2 needs 60 ms."""
    fetch = catalog.stack("deepspeed-zero-2021").sharding.single_tensors
    all_gather_s = fetch.message_s + 8 * fetch.piece_s
    transfers_s = 2 * 5.1e9 / 200e9

    forward_s = 0.06 + transfers_s + 64 * 6 * all_gather_s + 5.1e9 / fetch.elements_per_s

    assert all_gather_s == pytest.approx(0.38e-3)
    assert forward_s == pytest.approx(0.475, rel=0.05)


def test_all_throughputs_are_within_11_percent(zero3):
    for (model, devices, _), (_, measured) in ROWS.items():
        assert zero3[model, devices] == pytest.approx(measured, rel=0.11), (model, devices)


def test_175b_on_four_times_the_devices_loses_as_much_throughput_as_measured(zero3):
    predicted = zero3["gpt3-175b", 384] / zero3["gpt3-175b", 1536]

    assert predicted == pytest.approx(144 / 44, rel=0.05)


def test_ptd_p_is_several_times_as_fast_on_the_largest_numbers_of_devices(zero3):
    plans = {"gpt3-175b": ("dp=16 tp=8 pp=12 mbs=1", 1536, 141 / 44)}

    for model, (plan, devices, measured) in plans.items():
        fast = device_tflop_per_s(model, devices, 1536, plan, "megatron-2021")
        assert fast / zero3[model, devices] == pytest.approx(measured, rel=0.1)


def test_todays_software_is_not_slow_in_this_way(zero3):
    today = device_tflop_per_s("gpt3-175b", 1536, 1536, "dp=1536 mbs=1 zero=3", "deepspeed-zero")

    assert today > 3 * zero3["gpt3-175b", 1536]
