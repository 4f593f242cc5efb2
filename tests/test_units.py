"""Quantities read and shown: SI and IEC prefixes, bits and bytes, what is refused."""

import math
import re

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.quantities import parse_quantity
from flopcast.units import SUFFIXES, show, show_memory, show_seconds, units_of

BYTES, RATE, SECONDS = ("B",), ("B/s", "bit/s"), ("s", "min", "h", "d")
ALL_UNITS = sorted({unit for units in SUFFIXES.values() for unit in units})
PLAIN = [unit for unit in ALL_UNITS if unit not in ("bit/s", "min", "h", "d", "Wh", "USD/h")]
SI = {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}  # BIPM, SI brochure, table 7
IEC = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}  # IEC 80000-13, powers of two
NUMBERS = ["80", "80.", ".5", "0.5", "1e3", "1.5E-3", "+2", "-2"]


def leading_number(text):
    return text.split()[0].lstrip("-")


@all_cases(("prefix", "power"), SI.items())
def test_decimal_prefixes_are_powers_of_ten(prefix, power):
    assert parse_quantity(f"3 {prefix}B", BYTES) == 3 * 10**power


@all_cases(("prefix", "power"), IEC.items())
def test_binary_prefixes_are_powers_of_two(prefix, power):
    assert parse_quantity(f"3 {prefix}B", BYTES) == 3 * 2**power


@all_cases(("prefix", "power"), [("m", -3), ("u", -6), ("µ", -6), ("n", -9)])
def test_small_prefixes_divide(prefix, power):
    assert parse_quantity(f"3 {prefix}s", SECONDS) == pytest.approx(3 * 10**power)


def test_a_gibibyte_is_a_twelfth_of_a_gigabyte_more():
    """A100-80GB: 80 GB of the data sheet are 74.5 GiB, 80 GiB are 85.9 GB."""
    assert parse_quantity("80 GB", BYTES) / 2**30 == pytest.approx(74.5, abs=0.01)
    assert parse_quantity("80 GiB", BYTES) / 1e9 == pytest.approx(85.9, abs=0.01)


@all_cases(
    ("bits", "in_bytes"),
    [
        ("200 Gbit/s", "25 GB/s"),
        ("400 Gbit/s", "50 GB/s"),
        ("1 bit/s", "0.125 B/s"),
        ("8 Mibit/s", "1 MiB/s"),
    ],
)
def test_eight_bits_are_a_byte(bits, in_bytes):
    assert parse_quantity(bits, RATE) == parse_quantity(in_bytes, RATE)


@all_cases(
    ("longer", "shorter"),
    [("1 min", "60 s"), ("1 h", "60 min"), ("1 d", "24 h"), ("1 s", "1000 ms"), ("1 ms", "1000 us")],
)
def test_times_convert_into_each_other(longer, shorter):
    assert parse_quantity(longer, SECONDS) == pytest.approx(parse_quantity(shorter, SECONDS), rel=1e-12)


def test_a_watt_hour_is_3600_joules():
    assert parse_quantity("1.5 kWh", ("J", "Wh")) == parse_quantity("5.4 MJ", ("J", "Wh"))


@all_cases("number", NUMBERS)
def test_numbers_are_read_as_python_reads_them(number):
    assert parse_quantity(f"{number} B", BYTES) == float(number)


@all_cases("text", ["80GB", "80 GB", "  80  GB  ", "80\tGB", "8e1 GB", "80000 MB"])
def test_blanks_and_notation_do_not_change_the_value(text):
    assert parse_quantity(text, BYTES) == 80e9


@all_cases("field", SUFFIXES)
def test_a_field_takes_each_unit_of_its_suffix(field):
    for unit in SUFFIXES[field]:
        assert parse_quantity(f"2 {unit}", units_of(f"some{field}")) > 0


@all_cases("field", SUFFIXES)
def test_a_suffix_alone_is_a_field_of_that_unit_too(field):
    assert units_of(field.removeprefix("_")) == SUFFIXES[field]


@all_cases(
    ("field", "units"),
    [
        ("memory_bytes", ("B",)),
        ("memory_bytes_per_s", ("B/s", "bit/s")),
        ("bytes_per_s", ("B/s", "bit/s")),
        ("peak_flop_per_s", ("FLOP/s",)),
        ("model_flop", ("FLOP",)),
        ("latency_s", ("s", "min", "h", "d")),
        ("power_w", ("W",)),
        ("energy_j", ("J", "Wh")),
        ("price_usd_per_hour", ("USD/h",)),
        ("s", ("s", "min", "h", "d")),
        ("hidden", ()),
        ("heads", ()),
        ("bias", ()),
        ("layers", ()),
    ],
)
def test_a_fields_name_promises_its_unit(field, units):
    assert units_of(field) == units


@pytest.mark.parametrize("field", ["tokens_per_s", "launches_per_s", "samples_per_s"])
def test_a_rate_of_things_is_not_a_time(field):
    assert "h" not in units_of(field)


@all_cases(
    "text",
    [
        "80",  # no unit
        "GB",  # no number
        "",
        "80 gb",
        "80 Gb",  # bits or bytes?
        "80 KB",  # kilo is a small k
        "80 GBps",
        "80 GB/s",  # a rate is no amount
        "80 G",
        "80 _iB",
        "80 G B",
        "1,00 GB",
        "1_000 GB",
        "0x10 GB",
        "nan GB",
        "inf GB",
        "1e999 GB",
        "80 GB 80 GB",
        "8O GB",
        "- 80 GB",
        "1..5 GB",
    ],
)
def test_anything_but_a_number_and_the_fields_unit_is_refused(text):
    with pytest.raises(ValueError, match=r"a number and a unit, such as 1\.5 GB"):
        parse_quantity(text, BYTES)


def test_a_refusal_shows_one_example_for_each_unit_that_would_pass():
    with pytest.raises(ValueError, match=r"such as 1\.5 GB/s or 1\.5 Gbit/s"):
        parse_quantity("25", RATE)


@all_cases("units", SUFFIXES.values())
def test_the_examples_of_a_refusal_would_pass(units):
    with pytest.raises(ValueError, match="such as") as caught:
        parse_quantity("1.5", units)

    examples = re.split(", | or ", str(caught.value).partition("such as ")[2])
    assert len(examples) == min(len(units), 3)
    assert all(parse_quantity(example, units) > 0 for example in examples)


@all_cases(
    ("suffix", "example"),
    [("_flop_per_s", "TFLOP/s"), ("_bytes_per_s", "GB/s"), ("_bytes", "GB"), ("_w", "W")],
)
def test_the_examples_have_the_prefix_that_people_write(suffix, example):
    with pytest.raises(ValueError, match=rf"such as 1\.5 {example}"):
        parse_quantity("1.5", SUFFIXES[suffix])


@pytest.mark.parametrize("text", ["80 mB", "80 uB", "80 nB"])
def test_a_thousandth_of_a_byte_is_refused_because_megabytes_were_meant(text):
    with pytest.raises(ValueError, match=r"such as 1\.5 GB"):
        parse_quantity(text, BYTES)


@given(value=st.floats(1e-8, 9e20, allow_nan=False), unit=st.sampled_from(PLAIN))
@settings(max_examples=60, deadline=None)
def test_what_is_shown_is_read_back_to_the_digits_shown(value, unit):
    assert parse_quantity(show(value, unit), (unit,)) == pytest.approx(value, rel=0.0051)


@given(value=st.floats(1.0, 1e18))
def test_memory_that_is_shown_is_read_back_to_the_digits_shown(value):
    shown = show_memory(value)

    assert parse_quantity(shown, BYTES) == pytest.approx(value, rel=0.0051)
    assert leading_number(shown).count("e") == 0 or value < 1000


@all_cases(("prefix", "power"), IEC.items())
def test_memory_has_the_prefix_of_its_power_of_two(prefix, power):
    assert show_memory(80 * 2**power) == f"80.0 {prefix}B"
    assert show_memory(999.6 * 2 ** (power - 10)) == f"0.976 {prefix}B"


@all_cases(
    ("value", "unit", "text"),
    [
        (312e12, "FLOP/s", "312 TFLOP/s"),
        (2.039e12, "B/s", "2.04 TB/s"),
        (1.2345e-5, "s", "12.3 µs"),
        (1000, "B", "1.00 kB"),
        (999, "B", "999 B"),
        (1e18, "FLOP", "1.00 EFLOP"),
        (400, "W", "400 W"),
        (-2.5e-3, "s", "-2.50 ms"),
        (0, "s", "0 s"),
        (1e-9, "s", "1.00 ns"),
        (0.5, "B", "0.500 B"),
    ],
)
def test_quantities_are_shown_with_three_digits_and_a_prefix(value, unit, text):
    assert show(value, unit) == text


@all_cases(("prefix", "power"), [("n", -9), ("µ", -6), ("m", -3), *SI.items()])
def test_each_prefix_is_shown_for_its_power_of_ten(prefix, power):
    assert show(3 * 10.0**power, "W") == f"3.00 {prefix}W"


@all_cases("unit", ["B", "B/s", "FLOP", "FLOP/s"])
def test_bytes_and_flop_are_never_shown_in_thousandths(unit):
    """Nobody has half a byte: a small number of them is a mean, not a unit of its own."""
    assert show(0.0025, unit) == f"0.00250 {unit}"


@pytest.mark.parametrize(
    ("value", "text"), [(5e-13, "0.000500 ns"), (1e-10, "0.100 ns"), (2.5e21, "2.50e+03 EJ")]
)
def test_beyond_the_last_prefix_the_last_one_stays(value, text):
    assert show(value, text.split()[1][1:]) == text


@pytest.mark.parametrize(("digits", "text"), [(2, "1.6 TB/s"), (4, "1.555 TB/s"), (5, "1.5550 TB/s")])
def test_as_many_digits_are_shown_as_asked_for(digits, text):
    assert show(1.5550001e12, "B/s", digits) == text


@given(value=st.floats(1e-9, 9.9e20), unit=st.sampled_from(["s", "W", "J"]))
@settings(max_examples=60, deadline=None)
def test_one_to_three_digits_stand_before_the_point(value, unit):
    number = leading_number(show(value, unit))

    assert 1 <= float(number) < 1000
    assert "e" not in number


@all_cases("power", [-6, -3, 0, 3, 6, 9, 12, 15])
def test_a_value_just_below_a_power_of_a_thousand_is_rounded_up_into_the_next_prefix(power):
    assert show(0.9999 * 10**power, "s") == show(10.0**power, "s")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_shown_without_a_prefix(value):
    assert show(value, "s") == f"{value:g} s"


@all_cases(
    ("value", "text"),
    [
        (0, "0 s"),
        (1.21e-5, "12.1 µs"),
        (0.385, "385 ms"),
        (17.4, "17.4 s"),
        (119, "119 s"),
        (120, "2.00 min"),
        (5400, "90.0 min"),
        (7200, "2.00 h"),
        (90_000, "25.0 h"),
        (172_800, "2.00 d"),
        (34.2 * 86_400, "34.2 d"),
    ],
)
def test_seconds_are_shown_in_the_unit_that_a_reader_thinks_in(value, text):
    assert show_seconds(value) == text


@given(value=st.floats(1e-8, 1e8), ratio=st.floats(1.0, 1.6))
def test_bounds_of_a_time_have_its_unit_and_are_read_back(value, ratio):
    bounds = value / ratio, value * ratio
    shown = [show_seconds(bound, like=value) for bound in bounds]

    assert {text.split()[1] for text in shown} == {show_seconds(value).split()[1]}
    assert [parse_quantity(text, SECONDS) for text in shown] == pytest.approx(bounds, rel=0.0051)


@all_cases(
    ("low", "value", "high", "text"),
    [
        (102, 134, 176, "1.70 min to 2.93 min"),
        (0.8, 1.1, 1.5, "0.800 s to 1.50 s"),
        (0.8, 0.95, 1.5, "800 ms to 1500 ms"),
        (0, 5, 9, "0 s to 9.00 s"),
    ],
)
def test_bounds_on_both_sides_of_a_limit_are_shown_alike(low, value, high, text):
    assert f"{show_seconds(low, like=value)} to {show_seconds(high, like=value)}" == text


@given(value=st.floats(1e-6, 80e6))
@settings(max_examples=60, deadline=None)
def test_seconds_shown_are_read_back(value):
    assert parse_quantity(show_seconds(value), SECONDS) == pytest.approx(value, rel=0.0051)


@given(first=st.floats(1e-6, 80e6), second=st.floats(1e-6, 80e6))
@settings(max_examples=60, deadline=None)
def test_the_longer_time_is_never_shown_as_the_shorter(first, second):
    short, long = (parse_quantity(show_seconds(value), SECONDS) for value in sorted((first, second)))

    assert short <= long * (1 + 1e-12)
