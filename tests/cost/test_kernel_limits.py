"""Physics that no kernel may break: the data sheet's peaks, and time that grows with work."""

from functools import cache

import numpy as np
import pytest
from all_cases import all_cases
from alone import DEVICES, OPERATORS, bound_of, changed_device, price_items, seconds_of
from data_centre import DEVICES as OF_DATA_CENTRES
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.cost.kernels.roofline import engine_seconds
from flopcast.library import catalog
from flopcast.library.curves import load_owner
from flopcast.operators.item import kernel as item_of

JUDGED = ("a100-sxm4-80gb", "gh200-96gb")  # with every class measured; the others borrow most of theirs
MEASURED = [
    (device, kernel)
    for device in JUDGED
    for kernel in OPERATORS
    if (device, kernel.replace("gemm.forward", "gemm")) in load_owner(device)
]
ALLOWED_FALL = 0.02
FALLS = {  # (device, kernel class, size): how much less more work may take, at worst
    # heads that are no multiple of 32, and block counts, run other kernels
    ("a100-sxm4-80gb", "flash_attention", 0): 0.04,
    ("a100-sxm4-80gb", "flash_attention", 1): 0.17,
    ("a100-sxm4-80gb", "flash_attention.latent", 0): 0.06,
    ("a100-sxm4-80gb", "flash_attention.backward", 0): 0.04,
    ("a100-sxm4-80gb", "flash_attention.backward", 1): 0.07,
    ("gh200-96gb", "flash_attention", 0): 0.06,
    ("gh200-96gb", "flash_attention", 1): 0.11,
    ("gh200-96gb", "flash_attention.backward", 0): 0.06,
    ("gh200-96gb", "flash_attention.backward", 1): 0.10,
    # head sizes between tiles, and tiny batches, run other kernels
    ("a100-sxm4-80gb", "batched_gemm.scores", 1): 0.92,
    ("a100-sxm4-80gb", "batched_gemm.context", 1): 0.37,
    ("gh200-96gb", "batched_gemm.scores", 1): 0.23,
    ("gh200-96gb", "batched_gemm.context", 1): 0.09,
    # widths and sums that are no multiple of a tile run other kernels
    ("a100-sxm4-80gb", "gemm.forward", 1): 0.15,
    ("gh200-96gb", "gemm.forward", 1): 0.32,
    ("gh200-96gb", "gemm.forward", 2): 0.44,
    # widths that are no power of two
    ("a100-sxm4-80gb", "softmax", 1): 0.23,
    ("a100-sxm4-80gb", "scaled_masked_softmax", 1): 0.21,
    ("a100-sxm4-80gb", "softmax.backward", 1): 0.03,
    ("a100-sxm4-80gb", "scaled_masked_softmax.backward", 1): 0.08,
    ("gh200-96gb", "scaled_masked_softmax", 1): 0.08,
    ("gh200-96gb", "softmax.backward", 1): 0.20,
    ("gh200-96gb", "scaled_masked_softmax.backward", 1): 0.08,
    # corners of the table without measurements, and noise
    ("a100-sxm4-80gb", "embedding.backward", 0): 0.05,
    ("a100-sxm4-80gb", "cross_entropy", 1): 0.04,
    ("a100-sxm4-80gb", "layernorm", 1): 0.05,
    ("a100-sxm4-80gb", "layernorm.backward", 1): 0.17,
    ("gh200-96gb", "layernorm.backward", 1): 0.04,
    ("gh200-96gb", "cross_entropy", 1): 0.06,
}


@cache
def random_work(kernel, rows=1000, seed=0):
    """Operators of one class over its sizes, two octaves beyond them on each side."""
    make, ranges = OPERATORS[kernel]
    draw = np.random.default_rng(seed).uniform
    return make(*(np.exp2(draw(low - 2, high + 2, (rows, 1))) for low, high in ranges))


@cache
def random_seconds(device):
    """Seconds of the random work of every kernel class on a device, by class; priced in one call."""
    items = {name: item_of(name, random_work(name), component="test") for name in OPERATORS}
    priced = price_items(list(items.values()), catalog.cluster(DEVICES[device]))
    return {name: priced.of(item).alone_s for name, item in items.items()}


@cache
def worst_fall(kernel, cluster, axis):
    """How much less time more work takes, at worst, along one size; the others on a coarse grid."""
    make, ranges = OPERATORS[kernel]
    lines = [
        np.exp2(np.arange(low, high + 1e-9, 1 / 16 if index == axis else 1 / 3))
        for index, (low, high) in enumerate(ranges)
    ]
    mesh = np.meshgrid(*lines, indexing="ij")
    flat = seconds_of(make(*(part.reshape(-1, 1) for part in mesh)), cluster)
    seconds = np.moveaxis(flat.reshape(mesh[0].shape), axis, 0)
    return float((np.maximum.accumulate(seconds, axis=0) / seconds - 1).max())


def axes_of_work(kernel):
    """Sizes that add work: not the table of a look-up, which reads only the rows it needs."""
    fixed = [index for index, (low, high) in enumerate(OPERATORS[kernel][1]) if low == high]
    return [axis for axis in range(3) if axis not in fixed and (kernel, axis) != ("embedding", 1)]


def test_every_curve_of_a_device_prices_a_kernel_class_that_is_tested_here():
    for device in DEVICES:
        names = {name for _, name in load_owner(device) if "gemm." not in name}

        # the gated delta rule: tests/serving/test_linear_attention.py
        assert names - {"gemm", "grouped_gemm", "gated_delta"} <= set(OPERATORS)


def test_an_update_of_fp32_states_uses_most_of_the_bandwidth_of_every_device():
    """Apex's kernel on 16-bit states, which was measured on A100, uses 35 % of it (arXiv:2509.22832)."""
    make, parameters = OPERATORS["adam"][0], np.full((1, 1), 2e9)
    for device, name in DEVICES.items():
        cluster = catalog.cluster(name)
        update = make(parameters, 1.0, 1.0)
        rate = update.work().moved_bytes / seconds_of(update, cluster)

        assert 0.55 < rate.item() / cluster.node.device.memory_bytes_per_s < 0.96, device

    a100 = catalog.cluster(DEVICES["a100-sxm4-80gb"])
    narrow = OPERATORS["adam.16_bits"][0](parameters, 1.0, 1.0)
    rate = narrow.work().moved_bytes / seconds_of(narrow, a100)
    assert 0.3 < rate.item() / a100.node.device.memory_bytes_per_s < 0.4


@all_cases("device", OF_DATA_CENTRES)
def test_every_device_of_the_catalogue_is_tested_here(device):
    assert device in DEVICES


@all_cases("kernel", OPERATORS)
@all_cases("device", DEVICES)
def test_no_kernel_is_faster_than_the_data_sheet_allows_or_shorter_than_a_launch(device, kernel):
    owner, seconds = catalog.device(device), random_seconds(device)[kernel]

    bound_s = bound_of(random_work(kernel), owner)
    least_s = 0.9 * owner.kernel_launch_s  # gradients of products: times their ratio
    assert (seconds >= bound_s * (1 - 1e-12)).all()
    assert (seconds[bound_s > 0] >= least_s).all()


@all_cases(("device", "kernel", "axis"), [(d, k, axis) for d, k in MEASURED for axis in axes_of_work(k)])
def test_more_work_never_takes_less_time_but_where_the_measurements_say_so(device, kernel, axis):
    """On a grid of sixteenths of an octave; FALLS lists every fall of more than 2 %."""
    fall = worst_fall(kernel, catalog.cluster(DEVICES[device]), axis)

    assert fall <= FALLS.get((device, kernel, axis), ALLOWED_FALL)


@all_cases(("device", "kernel", "axis"), FALLS)
def test_a_fall_that_is_excused_exists(device, kernel, axis):
    """An excuse that nothing needs is taken off the list."""
    fall = worst_fall(kernel, catalog.cluster(DEVICES[device]), axis)

    assert fall > ALLOWED_FALL


@given(
    kernel=st.sampled_from(sorted(OPERATORS)),
    faster=st.floats(1.0, 10.0),
    what=st.sampled_from(["peak", "memory"]),
    seed=st.integers(0, 9),
)
@settings(max_examples=30, deadline=None)
def test_a_device_with_higher_peaks_is_never_slower(kernel, faster, what, seed):
    """With the same curves: efficiency is a fraction of the bound."""
    slow = catalog.cluster("dgx-a100")
    device = slow.node.device
    peaks = {name: faster * peak for name, peak in device.peak_flop_per_s.items()}
    fast = (
        changed_device(slow, peak_flop_per_s=peaks)
        if what == "peak"
        else changed_device(slow, memory_bytes_per_s=faster * device.memory_bytes_per_s)
    )
    work = random_work(kernel, rows=20, seed=seed)

    assert (seconds_of(work, fast) <= seconds_of(work, slow)).all()


@given(kernel=st.sampled_from(sorted(OPERATORS)), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_operators_priced_together_cost_what_each_costs_alone(kernel, seed):
    cluster = catalog.cluster("vista")
    make, ranges = OPERATORS[kernel]
    sizes = [np.exp2(np.random.default_rng(seed).uniform(low, high, (5, 1))) for low, high in ranges]

    together = seconds_of(make(*sizes), cluster)

    for row in range(5):
        alone = seconds_of(make(*(size[row : row + 1] for size in sizes)), cluster)
        np.testing.assert_allclose(together[row], alone[0], rtol=1e-12)


def test_attention_with_narrow_heads_uses_a_part_of_a_systolic_array():
    """All its products have the head's elements as one side: 64 of 256 rows or columns on TPU v6e."""
    device = catalog.device("tpu-v6e-32gb")
    for head, used in ((64.0, 0.25), (128.0, 0.5), (256.0, 1.0), (192.0, 0.75)):
        for is_gradient in (False, True):
            work = OPERATORS["flash_attention.backward" if is_gradient else "flash_attention"][0](
                np.full((1, 1), 4096.0), np.full((1, 1), head), np.full((1, 1), 64.0)
            ).work()
            full_s = work.flop / device.peak(work.unit)

            assert engine_seconds(work, device).item() == pytest.approx(full_s.item() / used), head
            a100 = catalog.device("a100-sxm4-80gb")
            assert engine_seconds(work, a100).item() == (work.flop / a100.peak(work.unit)).item()
