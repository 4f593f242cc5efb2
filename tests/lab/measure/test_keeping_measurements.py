"""What remains of a run that is stopped, what a plan assumes of a device, what a manifest tells."""

import time

import pytest
from all_cases import all_cases

import flopcast
from flopcast.cli.measure import MeasureOptions, _keep, _manifest, _speed
from flopcast.lab.measure.device import Identity
from flopcast.lab.measure.sample_pack import Manifest, Sample
from flopcast.lab.measure.sampling_plan import QUICK, TINY, Effort
from flopcast.lab.measure.sampling_run import Unsupported
from flopcast.lab.measure.shapes import Shape
from flopcast.lab.samples.packs import open_pack, read_pack
from flopcast.library import catalog

H100 = Identity(
    name="NVIDIA H100 80GB HBM3", torch="2.9.0", memory_bytes=79e9, cache_bytes=50e6, capability="9.0"
)


def asked(device="cuda", quick=False, catalogue=""):
    """A run of a minute."""
    return MeasureOptions(device=device, budget_s=60.0, quick=quick, seed=7, catalogue=catalogue)


def copies(count):
    """Samples of as many shapes."""
    for tokens in range(1, count + 1):
        shape = Shape(kernel="copy", dtype="bf16", sizes=(("tokens", tokens), ("width", 64)))
        yield Sample(device="d", shape=shape, condition="cold", repetitions_us=(1.0,))


def interrupted_after(count):
    """A run that somebody stops with Ctrl-C."""
    yield from copies(count)
    raise KeyboardInterrupt


@pytest.fixture
def writer(tmp_path):
    """An empty pack."""
    return open_pack(tmp_path, Manifest(device="d", tool_version="1", started="now"))


@pytest.mark.parametrize("count", [1, 16, 21])
def test_an_interrupted_run_keeps_every_row_that_it_measured(writer, count):
    with pytest.raises(KeyboardInterrupt):
        _keep(interrupted_after(count), writer, time.perf_counter() + 60)

    pack = read_pack(writer.folder)
    assert len(pack.samples) == count
    assert pack.manifest.counts["samples.csv"] == count


def test_an_interrupted_run_says_how_much_it_kept(writer, capsys):
    with pytest.raises(KeyboardInterrupt):
        _keep(interrupted_after(3), writer, time.perf_counter() + 60)

    assert "3 rows added" in capsys.readouterr().err


def test_what_was_not_possible_stands_in_the_manifest(writer, capsys):
    _keep([*copies(1), Unsupported(key="gemm|fp8", why="no such type")], writer, 0.0)

    assert read_pack(writer.folder).manifest.unsupported == {"gemm|fp8": "no such type"}
    assert "1 not supported on this machine" in capsys.readouterr().err


def test_talk_goes_to_stderr_only(writer, capsys):
    _keep(copies(2), writer, 0.0)

    assert capsys.readouterr().out == ""


def test_a_plan_for_a_known_device_assumes_its_data_sheet():
    """NVIDIA H100 data sheet, SXM: 989 TFLOP/s in bf16, dense, and 3.35 TB/s."""
    speed = _speed(asked(), H100)

    assert speed.peak_flop_per_s["bf16"] == 989e12
    assert speed.memory_bytes_per_s == 3.35e12


def test_a_plan_for_a_known_device_fits_the_memory_that_is_free():
    assert _speed(asked(), H100).memory_bytes == 79e9


def test_a_plan_for_a_device_that_is_named_assumes_that_one():
    speed = _speed(asked(catalogue="b200-sxm-180gb"), None)

    assert speed.memory_bytes_per_s == catalog.device("b200-sxm-180gb").memory_bytes_per_s


@all_cases("name", catalog.names("devices"))
def test_a_plan_can_be_made_for_every_device_of_the_catalogue(name):
    speed = _speed(asked(catalogue=name), None)

    assert "fp32" in speed.peak_flop_per_s
    assert not speed.tiny


def test_a_processor_is_given_tiny_shapes_and_little_effort():
    assert _speed(asked("cpu"), None).tiny
    assert asked("cpu").effort == TINY


def test_a_quick_run_takes_less_care():
    assert asked(quick=True).effort == QUICK
    assert asked().effort == Effort()
    assert Effort().repetitions > QUICK.repetitions


def test_a_manifest_tells_versions_options_and_seed():
    manifest = _manifest(asked(quick=True), H100)

    assert manifest.device == "NVIDIA H100 80GB HBM3"
    assert (manifest.facts["torch"], manifest.facts["capability"]) == ("2.9.0", "9.0")
    assert (manifest.options["quick"], manifest.options["seconds"], manifest.seed) == (True, 60.0, 7)


def test_a_manifest_tells_this_version_of_flopcast():
    assert _manifest(asked(), H100).tool_version == flopcast.__version__


def test_a_manifest_of_a_processor_holds_no_size_that_nobody_measured():
    facts = _manifest(asked("cpu"), Identity(name="cpu", torch="2.9.0")).facts

    assert facts == {"torch": "2.9.0", "libraries": []}


def test_a_manifest_names_no_single_device_of_the_machine():
    """A pack may be published: serial numbers do not belong in it."""
    assert "uuid" not in _manifest(asked(), H100).facts
