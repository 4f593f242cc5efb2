"""lab/calibration/peer_tables.py: which rows of a table are kept, and what power makes of short kernels."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.lab.calibration import peer_tables
from flopcast.lab.calibration.samples import Samples
from flopcast.library import catalog

FEW = settings(max_examples=20)
SMALLEST = 512  # rows of a product that belong to a class
PRODUCT = {"m": "m", "n": "n", "k": "k"}
H100 = catalog.cluster("dgx-h100", 1).node.device
ROWS = st.lists(
    st.tuples(st.sampled_from([256, 1024, 2048, 4096]), st.floats(0.05, 0.9), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)
EFFICIENCIES = st.lists(st.tuples(st.floats(1e-6, 1e-2), st.floats(0.05, 1.0)), min_size=1, max_size=12)


def table(rows):
    """Square products of so many rows, at this fraction of the peak, of ours or of another device."""
    size, fraction, ours, odd = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    seconds = 2 * size**3 / (fraction * H100.peak("bf16"))
    found = {"m": size, "n": size, "k": size, "latency_us": seconds * 1e6}
    return found | {"device=ours": ours, "device=other": 1 - ours, "odd": odd}


def peer(**changes):
    return replace(
        peer_tables.PeerFile(
            path="somebody/made-up.csv",
            name="gemm",
            devices={"device=ours": H100.name},
            kind="matmul",
            fields=PRODUCT | {"dtype": "=bf16"},
            seconds="latency_us * 1e-6",
            rows=f"m >= {SMALLEST}",
        ),
        **changes,
    )


def samples(rows):
    bound_s, efficiency = np.array(rows).T
    return Samples(
        name="gemm",
        coordinates=np.ones((1, len(rows))),
        bound_s=bound_s,
        measured_s=bound_s / efficiency,
        source="",
    )


@FEW
@given(ROWS)
def test_a_device_gets_its_own_rows_that_are_not_small_and_every_one_of_them(rows):
    found = peer_tables.samples_of(peer(), table(rows), "device=ours", H100)

    mine = [row for row in rows if row[2] and row[0] >= SMALLEST]
    assert len(found.measured_s) + found.rejected == len(mine)
    assert found.rejected == 0
    assert found.coordinates[0].tolist() == [row[0] for row in mine]


@FEW
@given(ROWS)
def test_rows_with_a_fault_are_left_out_counted_and_told_by_their_first_reason(rows):
    faulty = peer(faults={"odd": "odd == 1", "odd or large": "odd == 1 or m > 1024"})

    counts = peer_tables.faults_of(faulty, table(rows), "device=ours")
    found = peer_tables.samples_of(faulty, table(rows), "device=ours", H100)

    mine = [row for row in rows if row[2] and row[0] >= SMALLEST]
    odd = sum(row[3] for row in mine)
    large = sum(row[0] > 1024 and not row[3] for row in mine)
    assert counts == {name: count for name, count in (("odd", odd), ("odd or large", large)) if count}
    assert found.rejected == odd + large


@FEW
@given(ROWS)
def test_microseconds_and_milliseconds_of_one_table_are_the_same_seconds(rows):
    columns = table(rows)
    other = columns | {"latency_ms": columns["latency_us"] / 1e3}

    assert peer(seconds="latency_ms * 1e-3").measured_s(other) == pytest.approx(peer().measured_s(columns))


@FEW
@given(ROWS)
def test_a_fraction_of_a_stated_peak_is_the_seconds_that_it_was_made_of(rows):
    columns = table(rows)
    peak = H100.peak("bf16")
    told = columns | {
        "efficiency": np.array([row[1] for row in rows]),
        "peak_tflops": np.full(len(rows), peak / 1e12),
    }

    by_fraction = peer(seconds="flop / (efficiency * peak_tflops * 1e12)")
    assert by_fraction.measured_s(told) == pytest.approx(peer().measured_s(columns))


@FEW
@given(ROWS)
def test_rows_of_masks_together_are_those_of_each(rows):
    columns = table(rows)

    both = peer(rows=f'm >= {SMALLEST} and k >= {SMALLEST} and odd == 1 and device == "ours"').belongs(
        columns
    )

    assert both.tolist() == [row[0] >= SMALLEST and row[3] and row[2] for row in rows]


def test_a_word_that_a_table_does_not_hold_is_of_no_row():
    assert peer(rows='dtype == "fp8"').belongs(table([(512, 0.5, True, True)] * 3)).tolist() == [False] * 3


@pytest.mark.parametrize("is_gradient", [False, True])
def test_attention_of_a_table_multiplies_half_of_the_square_of_every_head(is_gradient):
    columns = {
        name: np.array([value], float) for name, value in zip("bshgd", (2, 4096, 32, 8, 128), strict=True)
    }

    sizes = {"batch": "b * h", "kv_batch": "b * g", "queries": "s", "head_size": "d"}
    fields = sizes | {"dtype": "=bf16", "causal": True, "is_gradient": is_gradient}
    flop = peer(kind="flash_attention", fields=fields).operator(columns).work().flop.item()

    scores_and_values = 2 * (2 * 2 * 32 * 4096**2 * 128) / 2
    assert flop == scores_and_values * (2.5 if is_gradient else 1.0)


@FEW
@given(EFFICIENCIES, st.floats(1e-6, 1e-1))
def test_under_load_nothing_is_faster_and_long_kernels_above_the_median_alone_are_slower(rows, long_s):
    cold = samples(rows)

    loaded = peer_tables.under_load(cold, long_s)

    assert (loaded.measured_s >= cold.measured_s).all()
    efficiency = cold.bound_s / cold.measured_s
    long = cold.measured_s >= long_s
    if long.any():
        most = np.median(efficiency[long])
        assert loaded.bound_s / loaded.measured_s == pytest.approx(np.minimum(efficiency, most))
    else:
        assert loaded is cold


@FEW
@given(EFFICIENCIES, st.floats(1e-6, 1e-1), st.floats(0.5, 2.0))
def test_a_device_so_many_times_as_slow_is_as_much_slower_under_load(rows, long_s, ratio):
    cold = samples(rows)
    slower = replace(cold, measured_s=ratio * cold.measured_s, bound_s=ratio * cold.bound_s)

    one, other = peer_tables.under_load(cold, long_s), peer_tables.under_load(slower, ratio * long_s)

    if ((cold.measured_s >= long_s) == (slower.measured_s >= ratio * long_s)).all():
        assert other.measured_s == pytest.approx(ratio * one.measured_s)


def test_a_row_at_a_peak_of_its_own_engine_is_possible_there_and_nowhere_else():
    """An 8-bit product, written as one of 16 bits, at 1.5 times the peak of 16 bits."""
    columns = table([(4096, 1.5, True, False)])

    plain = peer_tables.samples_of(peer(), columns, "device=ours", H100)
    narrow = peer_tables.samples_of(
        peer(fields=PRODUCT | {"dtype": "=fp8"}, peak="fp8"), columns, "device=ours", H100
    )

    assert (len(plain.measured_s), plain.rejected) == (0, 1)
    assert (len(narrow.measured_s), narrow.rejected) == (1, 0)
