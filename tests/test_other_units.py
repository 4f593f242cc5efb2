"""Fixes of wrong notations keep the value: each is read as what the notation means."""

import pytest
from all_cases import all_cases

from flopcast.other_units import rewritten, rewritten_count
from flopcast.units import SUFFIXES, parse_quantity, parse_tokens, units_of


@all_cases(
    ("field", "text", "value"),
    [
        ("device_usd_per_hour", "48 USD/day", 2.0),
        ("device_usd_per_hour", "$2/h", 2.0),
        ("device_usd_per_hour", "2 dollars per hour", 2.0),
        ("device_usd_per_hour", "2.5 USD/GPU-hour", 2.5),
        ("device_usd_per_hour", "336 $/week", 2.0),
        ("restart_s", "5 minutes", 300.0),
        ("restart_s", "2 weeks", 14 * 86400.0),
        ("restart_s", "1,5 s", 1.5),
        ("restart_s", "600", 600.0),
        ("restart_s", "-5", -5.0),
        ("memory_bytes", "80 gb", 80e9),
        ("memory_bytes", "80G", 80e9),
        ("memory_bytes", "80gib", 80 * 2.0**30),
        ("memory_bytes", "1,000 GB", 1e12),
        ("memory_bytes", "85899345920", 80 * 2.0**30),
        ("link_bytes_per_s", "200 Gbps", 25e9),
        ("link_bytes_per_s", "200 Gb/s", 25e9),
        ("link_bytes_per_s", "900 GBps", 900e9),
        ("link_bytes_per_s", "900 GB per second", 900e9),
        ("peak_flop_per_s", "989 TFLOPS", 989e12),
        ("peak_flop_per_s", "989 Tflop/s", 989e12),
        ("clock_hz", "1.98 Ghz", 1.98e9),
        ("power_w", "700w", 700.0),
    ],
)
def test_a_fix_has_the_value_of_the_notation(field, text, value):
    units = units_of(field)
    with pytest.raises(ValueError, match="such as"):
        parse_quantity(text, units)

    assert parse_quantity(rewritten(text, units), units) == pytest.approx(value)


@all_cases(
    ("field", "text"),
    [
        ("device_usd_per_hour", "2 EUR/day"),  # there is no exchange rate
        ("restart_s", "soon"),
        ("restart_s", "1e999 s"),
        ("memory_bytes", "80 Gbit"),
    ],
)
def test_a_notation_without_an_exact_translation_has_no_fix(field, text):
    assert rewritten(text, units_of(field)) == ""


@all_cases("units", SUFFIXES.values())
def test_a_bare_number_gets_one_of_the_units(units):
    assert parse_quantity(rewritten("80", units), units) > 0


@all_cases(
    ("text", "value"),
    [
        ("2 trillion", 2e12), ("3 million", 3e6), ("$3m", 3e6), ("1Bn", 1e9), ("2TB", 2e12), ("2t", 2e12),
        ("52 thousand samples", 52e3), ("2 G tokens", 2e9), ("1,500 k", 1.5e6),
    ],
)  # fmt: skip
def test_a_count_keeps_its_value(text, value):
    assert parse_tokens(rewritten_count(text)) == pytest.approx(value)


@all_cases("text", ["3M EUR", "much", "", "-5B", "2 dozens"])
def test_other_counts_have_no_fix(text):
    assert rewritten_count(text) == ""
