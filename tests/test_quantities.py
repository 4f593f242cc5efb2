"""Quantities are read with units that are spelled out; fixes of wrong notations keep the value."""

import pytest
from all_cases import all_cases

from flopcast.meant_quantities import meant_count, meant_quantity
from flopcast.quantities import (
    fraction_of,
    joined_units,
    parse_length,
    parse_quantity,
    parse_rate,
    parse_tokens,
)
from flopcast.units import SUFFIXES, units_of


@all_cases(
    ("field", "text", "value"),
    [
        ("device_usd_per_hour", "48 USD/day", 2.0),
        ("device_usd_per_hour", "$2/h", 2.0),
        ("device_usd_per_hour", "2 dollars per hour", 2.0),
        ("device_usd_per_hour", "2.5 USD/GPU-hour", 2.5),
        ("device_usd_per_hour", "336 $/week", 2.0),
        ("device_usd_per_hour", "1460 USD/month", 2.0),
        ("restart_s", "5 minutes", 300.0),
        ("restart_s", "2 weeks", 14 * 86400.0),
        ("restart_s", "20 milliseconds", 0.02),
        ("restart_s", "5 msec", 0.005),
        ("memory_bytes", "1,000 GB", 1e12),
        ("memory_bytes", "80 gibibytes", 80 * 2.0**30),
        ("link_bytes_per_s", "200 Gbps", 25e9),
        ("link_bytes_per_s", "900 GBps", 900e9),
        ("link_bytes_per_s", "900 GB per second", 900e9),
        ("link_bytes_per_s", "400 Gbits/s", 50e9),
        ("peak_flop_per_s", "989 TFLOPS", 989e12),
        ("peak_flop_per_s", "989 Tflop/s", 989e12),
        ("power_w", "0.4 kilowatts", 400.0),
        ("clock_hz", "2 gigahertz", 2e9),
    ],
)
def test_units_may_be_spelled_out(field, text, value):
    assert parse_quantity(text, units_of(field)) == pytest.approx(value)


@all_cases(
    ("field", "text", "value"),
    [
        ("restart_s", "1,5 s", 1.5),
        ("restart_s", "600", 600.0),
        ("restart_s", "-5", -5.0),
        ("restart_s", "5 m", 300.0),
        ("restart_s", "50 khours", 1.8e8),
        ("memory_bytes", "80 gb", 80e9),
        ("memory_bytes", "80G", 80e9),
        ("memory_bytes", "80gib", 80 * 2.0**30),
        ("memory_bytes", "85899345920", 80 * 2.0**30),
        ("link_bytes_per_s", "200 Gb/s", 25e9),
        ("clock_hz", "1.98 Ghz", 1.98e9),
        ("power_w", "700w", 700.0),
        ("device_usd_per_hour", "2.5 USD", 2.5),
    ],
)
def test_the_fix_of_a_quantity_has_its_value(field, text, value):
    units = units_of(field)
    with pytest.raises(ValueError, match="such as"):
        parse_quantity(text, units)

    assert parse_quantity(meant_quantity(text, units), units) == pytest.approx(value)


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
    assert meant_quantity(text, units_of(field)) == ""


@all_cases("units", SUFFIXES.values())
def test_a_bare_number_gets_one_of_the_units(units):
    assert parse_quantity(meant_quantity("80", units), units) > 0


@all_cases(
    ("text", "value"),
    [
        ("2 trillion", 2e12), ("3 million tokens", 3e6), ("1bn", 1e9), ("1,500 k", 1.5e6), ("2 Ki", 2048),
        ("1.5mil", 1.5e6), ("2t", 2e12),
    ],
)  # fmt: skip
def test_a_count_may_be_spelled_out(text, value):
    assert parse_tokens(text) == pytest.approx(value)


@all_cases(
    ("text", "value"), [("$3m", 3e6), ("2TB", 2e12), ("52 thousand samples", 52e3), ("2 G tokens", 2e9)]
)
def test_the_fix_of_a_count_has_its_value(text, value):
    with pytest.raises(ValueError, match="such as"):
        parse_tokens(text)

    assert parse_tokens(meant_count(text)) == pytest.approx(value)


@all_cases("text", ["3M EUR", "much", "", "-5B", "2 dozens"])
def test_other_counts_have_no_fix(text):
    assert meant_count(text) == ""


def test_thousands_are_binary_in_lengths_of_sequences_alone():
    """llama-3.1-8b has "128k" = 131,072 tokens; a run of "52k samples" has 52,000."""
    assert [parse_length(text) for text in ("128k", "128K tokens", "4.5k", "1m")] == [
        131072,
        131072,
        4608,
        2**20,
    ]
    assert parse_tokens("52k") == 52000
    for wrong in ("4.7", "-5", "8kb", "8 GB", "many"):
        with pytest.raises(ValueError, match="whole number of tokens"):
            parse_length(wrong)


@all_cases(
    ("text", "per_s"),
    [("4/s", 4), ("4 per second", 4), ("4 requests/s", 4), ("4qps", 4), ("240/min", 4), ("240 rpm", 4),
     ("14400/hour", 4), ("14,400 requests per hour", 4), ("86400/day", 1), ("4", 4)],
)  # fmt: skip
def test_rates_are_per_second(text, per_s):
    assert parse_rate(text) == pytest.approx(per_s)


@all_cases("text", ["fast", "4/GB", "4 GB/s/s", "4 rpx", ""])
def test_other_texts_are_no_rates(text):
    with pytest.raises(ValueError, match="a rate such as"):
        parse_rate(text)


def test_fractions_may_be_percentages():
    assert (fraction_of("80%"), fraction_of("80 %"), fraction_of("0.8")) == (0.8, 0.8, 0.8)


@all_cases(
    ("text", "joined"),
    [
        ("rate=4 requests per second prompt=2k tokens", "rate=4requests/second prompt=2ktokens"),
        ("asynchronous nvme every=10 min", "asynchronous nvme every=10min"),
        ("tp=2 sp pp=4 recompute=full", "tp=2 sp pp=4 recompute=full"),
        ("every=100 nvme", "every=100 nvme"),
        ("ttft_p99=500 ms tpot=50 ms", "ttft_p99=500ms tpot=50ms"),
        ("gbs=4M tokens mbs=1", "gbs=4Mtokens mbs=1"),
        ("decode=9 ms:8 copy=602 kB@link", "decode=9ms:8 copy=602kB@link"),
        ("rate=4 / s prompt=2000", "rate=4/s prompt=2000"),
    ],
)
def test_units_join_their_numbers_in_a_line_of_settings(text, joined):
    assert joined_units(text) == joined
