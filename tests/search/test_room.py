"""The room that plans may use, in closed form, and losses as they are shown."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_plans import JOB, played

from flopcast.search.memory_limit import memory_ratio, used_memory_ratio
from flopcast.search.objectives import OBJECTIVES

DEVICE_BYTES = JOB.cluster.node.device.memory_bytes
LAWS = settings(max_examples=50)
headroom = st.floats(0.5, 1.0)
used = st.lists(st.floats(1e6, 200e9), min_size=1, max_size=8)


@LAWS
@given(sizes=used, fraction=headroom)
def test_a_plan_that_fits_is_judged_by_its_bytes_over_the_headroom(sizes, fraction):
    sizes = np.array(sizes)
    room = fraction * DEVICE_BYTES

    ratio = memory_ratio(sizes, sizes, np.ones(sizes.shape, dtype=bool), DEVICE_BYTES, fraction)

    assert ratio == pytest.approx(sizes / room)
    assert ((ratio <= 1.0) == (sizes <= room)).all()


@LAWS
@given(sizes=used, fraction=headroom)
def test_a_plan_that_does_not_fit_is_over_however_little_is_seen_of_it(sizes, fraction):
    sizes = np.array(sizes)

    ratio = memory_ratio(sizes, sizes, np.zeros(sizes.shape, dtype=bool), DEVICE_BYTES, fraction)

    assert (ratio > 1.0).all()
    assert ratio == pytest.approx(np.maximum(sizes / (fraction * DEVICE_BYTES), 1.0), rel=1e-8)


@LAWS
@given(sizes=used)
def test_without_a_headroom_the_high_end_decides(sizes):
    high = np.array(sizes)

    ratio = memory_ratio(0.9 * high, high, 0.95 * high <= DEVICE_BYTES, DEVICE_BYTES, None)

    assert ((ratio <= 1.0) == (high <= DEVICE_BYTES)).all()
    assert ratio == pytest.approx(high / DEVICE_BYTES)


@LAWS
@given(sizes=used, one=headroom, other=headroom)
def test_a_smaller_headroom_never_leaves_more_room(sizes, one, other):
    sizes, flags = np.array(sizes), np.ones(len(sizes), dtype=bool)
    small, large = (memory_ratio(sizes, sizes, flags, DEVICE_BYTES, each) for each in sorted((one, other)))

    assert (small >= large).all()


@LAWS
@given(size=st.floats(1e9, 200e9), fraction=headroom | st.none())
def test_a_played_plan_is_judged_as_a_screened_one(size, fraction):
    one = played(10.0, used_bytes=size)

    sizes = (np.array([each]) for each in (size, one.high_bytes, one.fits))

    assert used_memory_ratio(one, fraction) == memory_ratio(*sizes, DEVICE_BYTES, fraction).item()


@pytest.mark.parametrize("name", OBJECTIVES)
@given(loss=st.floats(1e-12, 1e12))
@LAWS
def test_what_is_shown_of_a_loss_leads_back_to_it(name, loss):
    objective = OBJECTIVES[name]

    assert objective.shown(objective.shown(loss)) == pytest.approx(loss)
    assert (objective.shown(2 * loss) > objective.shown(loss)) is not objective.inverse
