"""Watts and joules of serving: between waiting and the limit, and energy as power over rate."""

import json

import numpy as np
import pytest
from command_line import flopcast

from flopcast import predict_serving, serving_job
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.operators.row_sort import RowSort
from flopcast.operators.served_matmul import ServedMatmul
from flopcast.serving.power import DevicePower, kernel_w
from flopcast.spec.site import Site

H100 = catalog.device("h100-sxm5-80gb")
WAIT_W = H100.power.waiting.fraction * H100.board_power_w


def predicted(traffic, *more):
    return json.loads(
        flopcast(
            "predict", "llama-3.1-8b", "--engine", "vllm", "--cluster", "dgx-h100", "--gpus", "1",
            "--plan", "tp=1", "--traffic", traffic, *more, "--json",
        ).out
    )  # fmt: skip


def product(rows, width):
    return ServedMatmul(m=rows, n=width, k=width, dtype="bf16")


def test_a_kernel_draws_more_than_waiting_and_at_most_the_limit():
    random = np.random.default_rng(0)
    rows, width = random.uniform(0, 1000, (100, 1)), random.uniform(100, 20000, (100, 1))
    watts = kernel_w(product(rows, width), constant(1e-4), H100, Site())

    assert watts.min() >= WAIT_W
    assert watts.max() <= H100.board_power_w


def test_the_same_work_in_less_time_draws_more():
    work = product(constant(16), constant(8192))
    watts = [kernel_w(work, constant(seconds), H100, Site()).item() for seconds in (1e-2, 1e-3, 1e-4)]

    assert watts == sorted(set(watts))


def test_memory_at_its_sustained_rate_draws_what_memory_bound_kernels_do():
    sort = RowSort(rows=constant(64), columns=constant(128256), dtype="fp32")
    seconds = sort.work().moved_bytes / (0.93 * H100.memory_bytes_per_s)

    assert kernel_w(sort, seconds, H100, Site()).item() == pytest.approx(
        H100.power.memory.fraction * H100.board_power_w
    )


def test_time_without_requests_draws_what_an_idle_device_does():
    power = DevicePower(running_w=500.0, standing_w=100.0, log_sigma_factor=0.1)

    assert power.mean_w(0.25) == 0.25 * 500 + 0.75 * 100


def test_energy_of_a_token_is_power_over_rate():
    found = predicted("concurrency=16 prompt=500 output=100 requests=160")
    joules = found["joules_per_output_token"]

    assert joules["value"] == pytest.approx(
        found["device_power_w"]["value"] / found["output_tokens_per_s"]["value"]
    )
    assert joules["low"] < joules["value"] < joules["high"]
    assert found["kwh_per_million_output_tokens"]["value"] > joules["value"] * 1e6 / 3.6e6


def test_fuller_batches_draw_more_watts_and_take_fewer_joules():
    one, many = (
        predicted(f"concurrency={open_at_once} prompt=500 output=100 requests=320")
        for open_at_once in (1, 64)
    )

    assert one["device_power_w"]["value"] < many["device_power_w"]["value"] <= H100.board_power_w
    assert one["joules_per_output_token"]["value"] > 5 * many["joules_per_output_token"]["value"]


def test_rare_requests_leave_the_device_idle_in_between():
    rare = predicted("rate=0.1/s arrivals=constant prompt=100 output=10 requests=40")
    idle_w = H100.power.idle.fraction * H100.board_power_w

    assert idle_w < rare["device_power_w"]["value"] < 1.1 * idle_w


def test_an_instance_without_requests_draws_what_an_idle_device_does():
    """One open request keeps one of two instances idle."""
    one, two = (
        as_watts(
            "llama-3.1-8b", gpus, f"tp=1 replicas={gpus}", "concurrency=1 prompt=100 output=50 requests=20"
        )
        for gpus in (1, 2)
    )

    assert two == pytest.approx((one + H100.power.idle.fraction * H100.board_power_w) / 2)


def as_watts(model, gpus, plan, traffic):
    job = serving_job(model, cluster="dgx-h100", gpus=gpus, plan=plan, traffic=traffic)
    return predict_serving(job).device_power_w.value
