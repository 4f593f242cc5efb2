"""`flopcast calibrate fit` on a sample pack of one's own."""

import json

import pytest
from command_line import flopcast

from flopcast.lab.measure.sample_pack import Manifest, Sample
from flopcast.lab.measure.shapes import Shape
from flopcast.lab.samples.packs import SAMPLES, open_pack

DEVICE = "h200-sxm-141gb"


def pack_of(folder, count):
    """A pack of `count` square products at 70 % of an H200's peak."""
    writer = open_pack(folder, Manifest(device="NVIDIA H200", tool_version="0.1.0", started="2026-11-21"))
    for number in range(count):
        side = 2048 + 256 * number
        shape = Shape(kernel="gemm", layout="forward", dtype="bf16", sizes=tuple((n, side) for n in "mnk"))
        times_us = (3 + 2e6 * side**3 / 989.4e12 / 0.7,)
        writer.add(Sample(device="NVIDIA H200", shape=shape, condition="cold", repetitions_us=times_us))
    writer.close({})
    return folder


def fit(pack, out, *words):
    """The command on a pack."""
    return flopcast("calibrate", "fit", "--data", pack, "--out", out, *words)


def test_a_pack_becomes_the_curve_file_of_its_device(tmp_path):
    ended = fit(pack_of(tmp_path / "pack", 20), tmp_path / "out", "--device", DEVICE)

    (curve,) = json.loads((tmp_path / "out" / f"{DEVICE}.json").read_text())["curves"]
    assert ended.code == 0
    assert f"{DEVICE:20} gemm" in ended.out
    assert (curve["name"], curve["evidence"]["rows"]) == ("gemm", 20)
    assert curve["evidence"]["source"] == "flopcast measure on NVIDIA H200"


def test_the_same_pack_gives_the_same_bytes(tmp_path):
    pack = pack_of(tmp_path / "pack", 20)

    for name in ("first", "second"):
        fit(pack, tmp_path / name, "--device", DEVICE)

    first, second = ((tmp_path / name / f"{DEVICE}.json").read_bytes() for name in ("first", "second"))
    assert first == second


def test_a_bad_row_is_told_and_the_good_ones_are_fitted(tmp_path):
    pack = pack_of(tmp_path / "pack", 20)
    rows = (pack / SAMPLES).read_text().splitlines()
    (pack / SAMPLES).write_text("\n".join([*rows[:5], rows[5].replace("cold", "lukewarm"), *rows[6:], ""]))

    ended = fit(pack, tmp_path / "out", "--device", DEVICE)

    assert ended.code == 0
    assert f"{SAMPLES}:6: row is ignored" in ended.err
    assert " 19 rows" in ended.out


@pytest.mark.parametrize(
    ("words", "told"),
    [((), "NVIDIA H200"), (("--device", "h200"), f"did you mean h200-nvl-141gb or {DEVICE}")],
)
def test_a_pack_needs_the_name_of_its_device(tmp_path, words, told):
    ended = fit(pack_of(tmp_path / "pack", 20), tmp_path / "out", *words)

    assert ended.code == 1
    assert told in ended.err
    assert not (tmp_path / "out").exists()


def test_a_pack_that_was_broken_off_too_early_is_told(tmp_path):
    ended = fit(pack_of(tmp_path / "pack", 2), tmp_path / "out", "--device", DEVICE)

    assert ended.code == 1
    assert "it continues existing measurements" in ended.err
