"""economics/energy.py: every kernel, message and wait is of one kind of power, capped by a site's limit."""

import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.cost.kernels.classes import KINDS as KERNEL_KINDS
from flopcast.dtypes import constant
from flopcast.economics.energy import WAITING, drawn_w, power_class
from flopcast.library import catalog
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import blocking, host_work, kernel
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.messages import AllGather, AllReduce, Broadcast, ReduceScatter
from flopcast.spec.operations import POWER_CLASSES, Power
from flopcast.spec.site import Site

FEW = settings(max_examples=40)
LIMIT_FRACTION, KIND = st.floats(0.3, 1.0), st.sampled_from([*POWER_CLASSES, "idle"])
DEVICES = catalog.names("devices")
ONE = constant(1)


def item_of(work):
    return kernel("part.kernel", work, ("x",), "y", component="mlp")


def limited(watts):
    return Site(power_limit_w=watts)


@all_cases("narrow", ["", "fp8", "mxfp8", "nvfp4"])
@all_cases("layout", ["forward", "input_gradient", "weight_gradient"])
def test_products_are_products_in_every_pass_and_width(narrow, layout):
    dense = Matmul(m=ONE, n=ONE, k=ONE, dtype="bf16", layout=layout, narrow=narrow)
    grouped = GroupedMatmul(
        groups=ONE, rows=ONE, n=ONE, k=ONE, imbalance=ONE, dtype="bf16", layout=layout, narrow=narrow
    )

    assert power_class(item_of(dense)) == power_class(item_of(grouped)) == "products"


@pytest.mark.parametrize("backward", [False, True])
def test_fused_attention_has_a_power_of_its_own(backward):
    work = FlashAttention(
        batch=ONE, kv_batch=ONE, queries=ONE, head_size=ONE, causal=True, dtype="bf16", is_gradient=backward
    )

    assert power_class(item_of(work)) == "attention"


@all_cases("kind", KINDS)
@all_cases("backward", [False, True])
def test_every_pass_over_memory_waits_for_memory(kind, backward):
    work = MemoryBound(kind=kind, elements=ONE, dtype="bf16", is_gradient=backward)

    assert power_class(item_of(work)) == "memory"


@all_cases("message", [AllGather, AllReduce, ReduceScatter, Broadcast])
@all_cases("axis", ["tp", "dp", "ep"])
def test_messages_are_communication_on_whichever_axis(message, axis):
    sent = blocking("sum", message(axis=axis, message_bytes=ONE), "x", "y")

    assert power_class(sent) == "communication"


def test_the_host_and_launches_that_are_waited_for_are_waiting():
    assert power_class(host_work("step", "step")) == power_class(None) == WAITING


def test_every_family_of_kernels_and_every_rest_is_a_class_of_power():
    assert {*(kind.power_class for kind in KERNEL_KINDS), "communication", WAITING} == set(POWER_CLASSES)
    assert {*POWER_CLASSES, "idle"} == set(Power.model_fields)


@pytest.mark.parametrize("name", DEVICES)
@FEW
@given(KIND, LIMIT_FRACTION)
def test_no_device_draws_more_than_its_board_or_its_site_allow(name, kind, limit_fraction):
    device = catalog.device(name)
    board_w = device.board_power_w or 0.0
    limit_w = limit_fraction * (board_w or 400.0)

    free_w, held_w = (drawn_w(kind, device, site) for site in (Site(), limited(limit_w)))

    assert free_w == pytest.approx(getattr(device.power, kind).fraction * board_w)
    assert held_w <= min(free_w, limit_w) * (1 + 1e-12)
    if kind not in ("products", "attention"):
        assert held_w == pytest.approx(min(free_w, limit_w))


@all_cases("name", DEVICES)
def test_harder_work_never_draws_less_and_nothing_less_than_no_work(name):
    power = catalog.device(name).power

    order = ("idle", "waiting", "communication", "memory", "attention", "products")

    fractions = [getattr(power, kind).fraction for kind in order]
    assert fractions == sorted(fractions)


@FEW
@given(LIMIT_FRACTION, LIMIT_FRACTION)
def test_a_lower_limit_never_draws_more(one, other):
    device = make_job().cluster.node.device
    limits_w = [fraction * device.board_power_w for fraction in sorted((one, other))]

    draws = [drawn_w("products", device, limited(watts)) for watts in limits_w]

    assert draws == sorted(draws)
