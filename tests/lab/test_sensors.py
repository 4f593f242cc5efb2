"""Sensors: what the vendor's tool prints, and what happens without it."""

import time

import pytest
from all_cases import all_cases

from flopcast.lab.measure.sample_pack import Reading
from flopcast.lab.samples.sensors import Sensors, driver_facts, reading_of, sensors

UUID = "GPU-0"
FACTS = {"driver_version": "570.86.15", "clocks.max.sm": "1980 MHz", "power.limit": "700.00 W"}


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """A function that puts a program of the tool's name on the path."""

    def install(script):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return install


def test_clock_power_and_temperature_stand_in_this_order():
    reading = reading_of("1755, 612.40, 61\n")

    assert reading == Reading(clock_mhz=1755.0, power_w=612.4, temperature_c=61.0)


@all_cases("line", ["", "[N/A], [N/A], [N/A]", "No devices were found", "nan, inf, -1"])
def test_what_the_tool_does_not_know_is_none(line):
    assert reading_of(line) == Reading()


def test_the_last_line_is_the_reading():
    found = Sensors()

    found.follow(iter(["1000, 100, 40\n", "1200, 200, 50\n"]))

    assert found.read().clock_mhz == 1200.0


def test_a_device_without_a_name_has_no_sensors():
    with sensors("") as found:
        assert found.read() == Reading()


def test_a_machine_without_the_tool_has_no_sensors(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with sensors(UUID) as found:
        assert found.read() == Reading()
    assert driver_facts(UUID) == {}


def test_the_tool_is_followed_until_the_block_ends(tool):
    tool('echo "1755, 612.40, 61"; exec sleep 60')

    with sensors(UUID) as found:
        until_s = time.monotonic() + 20
        while found.read() == Reading() and time.monotonic() < until_s:
            time.sleep(0.01)
        reading = found.read()
    ended_s = time.monotonic()

    assert reading.power_w == 612.4
    assert ended_s < until_s


def test_driver_and_limits_are_told_in_the_tools_words(tool):
    tool('echo "570.86.15, 1980 MHz, 700.00 W"')

    assert driver_facts(UUID) == FACTS


def test_a_tool_that_fails_tells_nothing(tool):
    tool("exit 9")

    assert driver_facts(UUID) == {}
