"""`flopcast calibrate fit`: folders of measurements in, curve files out."""

import json
from pathlib import Path

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cli.calibrate_fit import fit_folder
from flopcast.cli.measurement_folder import SYSTEMS, MeasurementFolder
from flopcast.errors import SpecError
from flopcast.lab.calibration.collective_files import FABRICS, WITH_LATENCY, WITHOUT_LATENCY
from flopcast.lab.calibration.operator_files import FILES
from flopcast.lab.calibration.peer_fit import PEER_FILES, peer_devices
from flopcast.library import catalog
from flopcast.library.curves import SERVING

DEVICES = catalog.names("devices")


def files_of(folder):
    """Names of the files in a folder of curves, with that of the subfolder."""
    return sorted(str(path.relative_to(folder)).removesuffix(".json") for path in folder.rglob("*.json"))


SERVED = ("h100-sxm5-80gb",)  # has all classes; the others are fitted alike and take minutes
DOCUMENTED = {  # owners whose curves come from a document, not from a table
    *("tpu-v5e-16gb", "tpu-v5p-95gb", "gaudi2-96gb", "gaudi3-128gb"),
    *("mi300x-192gb", "mi325x-256gb", "mi355x-288gb"),
}
OWNERS = [
    name
    for name in files_of(catalog.folder("curves"))
    if name not in DOCUMENTED
    and (not name.startswith(SERVING) or Path(name).name in SERVED or Path(name).name not in DEVICES)
]


@pytest.fixture(scope="module")
def refitted(measurements, tmp_path_factory):
    """Every curve fitted again: its folder, and the lines that were said."""
    out = tmp_path_factory.mktemp("curves")
    lines: list[str] = []
    fit_folder(measurements, out, lines.append, SERVED)
    return out, lines


def fit_all(data, out, say):
    """What the command does with a folder."""
    fit_folder(MeasurementFolder(data, say), out, say)


def write_system(folder, system, spoilt=""):
    """The least that a system's curves need: kernels that reach a fifth of their bound, as CSV."""
    device = catalog.device(SYSTEMS[system])
    place = folder / "operators" / system
    place.mkdir(parents=True)
    names = ("tp", "micro_batch", "seq_len", "hidden", "heads")
    shapes = [(1, b, 1024, h, h // 128) for b in (4, 8, 16) for h in (2048, 4096)]
    columns = dict(zip(names, np.array(shapes, dtype=np.float64).T[:, :, None], strict=True))
    for file in ("linear_mlp_up", "flash_attention", "layernorm"):
        need = FILES[file].forward(columns).work()
        bound_s = np.maximum(
            need.flop / device.peak_flop_per_s["fp16"], need.moved_bytes / device.memory_bytes_per_s
        )
        rows = [
            ",".join(map(str, (*shape, 5e6 * bound, 15e6 * bound)))
            for shape, bound in zip(shapes, bound_s.ravel(), strict=True)
        ]
        text = "\n".join([",".join((*names, "fwd_us", "bwd_us")), *rows, spoilt])
        (place / f"{file}.csv").write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def curves_of(path):
    """Curves of a file by name."""
    return {entry["name"]: entry for entry in json.loads(path.read_text(encoding="utf-8"))["curves"]}


@all_cases("owner", OWNERS)
def test_a_committed_curve_file_is_what_its_measurements_give(refitted, owner):
    out, _ = refitted

    assert (out / f"{owner}.json").read_bytes() == (catalog.folder("curves") / f"{owner}.json").read_bytes()


def test_a_refit_writes_the_committed_owners_and_nothing_else(refitted):
    out, _ = refitted

    assert files_of(out) == OWNERS


def test_owners_are_the_systems_devices_and_the_fabrics(refitted):
    out, _ = refitted

    fabrics = {file.fabric for file in (*FABRICS, *WITH_LATENCY, *WITHOUT_LATENCY)}
    devices = set(SYSTEMS.values()) | set(peer_devices({file.path for file in PEER_FILES}))
    assert {path.stem for path in out.rglob("*.json")} == devices | fabrics


def test_every_curve_is_told_with_its_rows_and_its_error(refitted):
    out, lines = refitted

    for owner in OWNERS:
        for name, entry in curves_of(out / f"{owner}.json").items():
            (told,) = [line for line in lines if line.split()[:2] == [Path(owner).name, name]]
            error = float(told.split()[-1].removesuffix("%")) / 100
            assert f"{entry['evidence']['rows']} rows" in told
            assert f"{entry['evidence']['rejected']} rejected" in told
            assert error == pytest.approx(entry["evidence"]["relative_error"], abs=6e-4)


def test_relatives_are_fitted_before_those_who_borrow_from_them():
    done = []
    for name in SYSTEMS.values():
        assert set(catalog.device(name).relatives) & set(SYSTEMS.values()) <= set(done)
        done.append(name)


def test_a_folder_without_measurements_is_refused_with_what_it_should_hold(tmp_path):
    with pytest.raises(SpecError) as caught:
        fit_all(tmp_path, tmp_path / "out", print)

    (problem,) = caught.value.problems
    assert problem.field == "--data"
    assert problem.value == str(tmp_path)
    assert "operators/" in problem.allowed
    assert not (tmp_path / "out").exists()


def test_a_folder_whose_operators_are_none_of_ours_is_refused(tmp_path):
    (tmp_path / "operators").mkdir()

    with pytest.raises(SpecError):
        fit_all(tmp_path, tmp_path / "out", print)


@pytest.mark.parametrize("system", SYSTEMS)
def test_measurements_of_one_system_alone_give_its_curves(tmp_path, system):
    """What needs another system's curves is left out."""
    write_system(tmp_path, system)

    fit_all(tmp_path, tmp_path / "out", lambda _: None)

    curves = curves_of(tmp_path / "out" / f"{SYSTEMS[system]}.json")
    assert {"gemm", "flash_attention", "layernorm"} <= set(curves)


def test_two_fits_write_the_same_bytes(tmp_path):
    for system in SYSTEMS:
        write_system(tmp_path, system)

    for out in ("first", "second"):
        fit_all(tmp_path, tmp_path / out, lambda _: None)

    for name in SYSTEMS.values():
        first, second = (tmp_path / out / f"{name}.json" for out in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


def broken_off(folder, out):
    """A fit that is interrupted while the second system's curves are told."""

    def say(line):
        if line.startswith("gh200"):
            raise KeyboardInterrupt

    for system in SYSTEMS:
        write_system(folder, system)
    with pytest.raises(KeyboardInterrupt):
        fit_all(folder, out, say)


def test_a_fit_that_was_broken_off_goes_on_where_it_stopped(tmp_path):
    broken_off(tmp_path, tmp_path / "out")
    first = tmp_path / "out" / "a100-sxm4-80gb.json"
    written_ns = first.stat().st_mtime_ns

    fit_all(tmp_path, tmp_path / "out", lambda _: None)
    fit_all(tmp_path, tmp_path / "whole", lambda _: None)

    assert first.stat().st_mtime_ns == written_ns
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "out").iterdir())
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_broken_fit_of_other_measurements_is_begun_again(tmp_path):
    broken_off(tmp_path, tmp_path / "out")
    first = tmp_path / "out" / "a100-sxm4-80gb.json"
    written_ns = first.stat().st_mtime_ns
    table = tmp_path / "operators" / "perlmutter-a100-sxm4-80gb" / "layernorm.csv"
    table.write_text(table.read_text(encoding="utf-8") + "1,4,1024,2048,16,500,900\n", encoding="utf-8")

    fit_all(tmp_path, tmp_path / "out", lambda _: None)

    assert first.stat().st_mtime_ns != written_ns


def test_a_ledger_that_cannot_be_read_counts_for_nothing(tmp_path):
    write_system(tmp_path, "vista-gh200")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "unfinished-fit.json").write_text("{", encoding="utf-8")

    fit_all(tmp_path, tmp_path / "out", lambda _: None)

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["gh200-96gb.json"]


@pytest.mark.parametrize("name", SYSTEMS.values())
def test_made_up_kernels_at_a_fifth_of_their_bound_are_found_again(tmp_path, name):
    """Launches of 2 and 3 us are taken off times of 25 us and more."""
    for system in SYSTEMS:
        write_system(tmp_path, system)

    fit_all(tmp_path, tmp_path / "out", lambda _: None)

    for kernel in ("gemm", "flash_attention", "layernorm"):
        table = curves_of(tmp_path / "out" / f"{name}.json")[kernel]["log_efficiency"]
        np.testing.assert_allclose(np.exp(np.array(table)), 0.2, rtol=0.12)


def test_a_file_without_degrees_was_measured_uncut(tmp_path):
    """The fused softmax: 16-bit scores of 2 sequences, 8 heads, 1024 squared, read and written once."""
    for system in SYSTEMS:
        write_system(tmp_path, system)
        text = "micro_batch,heads,seq_len,fwd_us,bwd_us\n" + "2,8,1024,100,200\n" * 3
        place = tmp_path / "operators" / system / "scaled_upper_triang_masked_softmax.csv"
        place.write_text(text, encoding="utf-8")

    fit_all(tmp_path, tmp_path / "out", lambda _: None)

    curve = curves_of(tmp_path / "out" / "a100-sxm4-80gb.json")["scaled_masked_softmax"]
    moved_bytes = 2 * 2 * 2 * 8 * 1024**2
    assert curve["log2_axes"][0] == [np.log2(moved_bytes)]
    assert np.exp(curve["log_efficiency"][0][0]) == pytest.approx(moved_bytes / 2.039e12 / 97e-6, rel=0.02)


def test_a_row_that_cannot_be_read_is_told_with_its_line(tmp_path):
    """8: the header, six good rows, and this one."""
    for system in SYSTEMS:
        write_system(tmp_path, system, spoilt="1,2,1024,2048,16,-5,7")
    lines: list[str] = []

    fit_all(tmp_path, tmp_path / "out", lines.append)

    assert any("linear_mlp_up.csv:8" in line for line in lines)
