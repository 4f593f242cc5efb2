"""The file of fitted constants: what is written is read, what ships is sane and says who supports it."""

import json

from all_cases import all_cases

from flopcast.cost.constants import Constant, Fitted
from flopcast.cost.factors import FASTER_SIDE
from flopcast.library.constants import meaning_of, read, shipped, shipped_levels, write

TWO = Fitted(
    (
        Constant(
            name="gemm_level[a]",
            ratio=1.2,
            log_sigma_factor=0.05,
            prior_log_sigma_factor=0.1,
            rows=7,
            sources=("one", "two"),
        ),
        Constant(
            name="fabric[b]",
            ratio=0.8,
            log_sigma_factor=0.1,
            prior_log_sigma_factor=0.2,
            rows=3,
            sources=("one",),
        ),
    ),
    {"dense": 0.05},
)


def test_what_is_written_is_read(tmp_path):
    write(tmp_path / "runs.json", TWO)
    found = read((tmp_path / "runs.json").read_text(encoding="utf-8"))

    assert {one.name: one for one in found.constants} == {one.name: one for one in TWO.constants}
    assert found.noise_log_sigmas == TWO.noise_log_sigmas


def test_equal_constants_give_equal_bytes_in_whatever_order(tmp_path):
    write(tmp_path / "a.json", TWO)
    write(tmp_path / "b.json", Fitted(TWO.constants[::-1], TWO.noise_log_sigmas))

    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert len((tmp_path / "a.json").read_text(encoding="utf-8").splitlines()) == 2 + len(TWO.constants)


def test_a_constant_of_one_source_is_a_sites():
    assert [one.of_one_source for one in TWO.constants] == [False, True]


@all_cases("one", shipped().constants)
def test_a_shipped_constant_means_something_and_is_supported(one):
    assert meaning_of(one.name)
    assert 0.3 < one.ratio < 3.0
    assert (0.0 < one.log_sigma_factor < 0.6) or one.name == FASTER_SIDE
    assert one.rows >= len(one.sources) >= 1


def test_shipped_levels_are_those_of_the_constants():
    assert {name: level.ratio for name, level in shipped_levels().items()} == {
        one.name: one.ratio for one in shipped().constants
    }


def test_the_file_holds_plain_numbers(tmp_path):
    write(tmp_path / "runs.json", TWO)
    data = json.loads((tmp_path / "runs.json").read_text(encoding="utf-8"))

    assert data["format_version"] == 1
    assert {entry["name"]: entry["ratio"] for entry in data["constants"]} == {
        "gemm_level[a]": 1.2,
        "fabric[b]": 0.8,
    }
