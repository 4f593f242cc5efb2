"""Sample packs: written, continued, read with the faults of bad rows told."""

import json

import pytest
import yaml

from flopcast.errors import SpecError
from flopcast.lab.measure.sample_pack import ALONE, OVERLAPPED, Manifest, MessageSample, Reading, Sample
from flopcast.lab.measure.shapes import Shape
from flopcast.lab.samples import packs
from flopcast.lab.samples.sites import site_text
from flopcast.spec.site import Site, SiteFactor

DEVICE = "NVIDIA H100 80GB HBM3"
HEADER = (
    "device,kernel,layout,dtype,sizes,flags,condition,repetitions_us,median_us,clock_mhz,power_w,"
    "temperature_c\n"
)
GOOD = f"{DEVICE},gelu,,bf16,tokens=64;width=128,,cold,10;11;12,11,1980,350.5,45\n"


def manifest_of(device=DEVICE, **facts):
    """The manifest of a run."""
    return Manifest(device=device, tool_version="0.1.0", started="2026-01-01T00:00:00+00:00", **facts)


def gelu(tokens, times=(10.0, 11.0, 12.0), condition="cold", **facts):
    """A sample of one class."""
    shape = Shape(kernel="gelu", dtype="bf16", sizes=(("tokens", tokens), ("width", 128)))
    return Sample(device=DEVICE, shape=shape, condition=condition, repetitions_us=times, **facts)


def all_reduce(size=1024, **facts):
    """A sample of one collective."""
    given = {"condition": ALONE, "inside": 8, "nodes": 1, "repetitions_us": (30.0, 31.0)} | facts
    return MessageSample(device=DEVICE, collective="all_reduce", message_bytes=size, **given)


@pytest.fixture
def pack(tmp_path):
    """A folder with a manifest and one good row; more rows are appended as text."""
    (tmp_path / packs.MANIFEST).write_text(
        json.dumps({"device": DEVICE, "tool_version": "1", "started": "now"})
    )
    (tmp_path / packs.SAMPLES).write_text(HEADER + GOOD)
    return tmp_path


def with_row(pack, **changes):
    """The pack with another row: the good one, changed."""
    names = HEADER.strip().split(",")
    row = (
        dict(zip(names, GOOD.strip().split(","), strict=True)) | {"sizes": "tokens=96;width=128"} | changes
    )
    with (pack / packs.SAMPLES).open("a") as file:
        file.write(",".join(row.values()) + "\n")
    return pack


def refused(action):
    """The one fault of an action that is refused."""
    with pytest.raises(SpecError) as caught:
        action()
    (problem,) = caught.value.problems
    return problem


def test_what_is_written_is_read_again(tmp_path):
    warm = Reading(clock_mhz=1755.0, power_w=612.4, temperature_c=61.0)
    samples = (gelu(64, reading=warm), gelu(64, condition="loaded"), gelu(128, times=(0.123456,)))
    messages = (
        all_reduce(),
        all_reduce(condition=OVERLAPPED, gemm_alone_us=200.0, gemm_overlapped_us=230.0),
    )
    writer = packs.open_pack(tmp_path / "pack", manifest_of(seed=3, facts={"torch": "2.9.0"}))

    for row in (*samples, *messages):
        writer.add(row)
    writer.close({"fp8": "not here"})

    pack = packs.read_pack(tmp_path / "pack")
    assert pack.samples == samples
    assert pack.messages == messages
    assert pack.problems == ()
    assert (pack.manifest.seed, pack.manifest.facts) == (3, {"torch": "2.9.0"})
    assert pack.manifest.unsupported == {"fp8": "not here"}
    assert pack.manifest.counts == {packs.SAMPLES: 3, packs.MESSAGES: 2}


def test_a_batch_is_on_the_disk_before_the_pack_is_closed(tmp_path):
    writer = packs.open_pack(tmp_path, manifest_of())

    for tokens in range(1, packs.BATCH_ROWS + 3):
        writer.add(gelu(tokens))

    assert len(packs.read_pack(tmp_path).samples) == packs.BATCH_ROWS


def test_a_pack_is_continued_where_it_stopped(tmp_path):
    first = packs.open_pack(tmp_path, manifest_of())
    first.add(gelu(64))
    first.close({})

    second = packs.open_pack(tmp_path, manifest_of())
    second.add(gelu(128))
    second.close({})

    assert second.done == {gelu(64).key}
    assert packs.read_pack(tmp_path).samples == (gelu(64), gelu(128))
    assert packs.read_pack(tmp_path).manifest.counts[packs.SAMPLES] == 2


def test_continuing_keeps_every_byte_that_was_there(tmp_path):
    first = packs.open_pack(tmp_path, manifest_of())
    first.add(gelu(64))
    first.close({})
    before = (tmp_path / packs.SAMPLES).read_bytes()

    second = packs.open_pack(tmp_path, manifest_of())
    second.add(gelu(128))
    second.close({})

    assert (tmp_path / packs.SAMPLES).read_bytes().startswith(before)


def test_another_device_may_not_continue_a_pack(tmp_path):
    packs.open_pack(tmp_path, manifest_of()).close({})

    problem = refused(lambda: packs.open_pack(tmp_path, manifest_of(device="NVIDIA B200")))

    assert (problem.field, problem.value) == ("--out", "NVIDIA B200")
    assert DEVICE in problem.allowed


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("…")

    problem = refused(lambda: packs.open_pack(tmp_path, manifest_of()))

    assert "thesis.tex" in problem.because
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path):
    place = tmp_path / "pack"
    place.write_text("")

    assert refused(lambda: packs.open_pack(place, manifest_of())).field == "--out"


def test_half_a_row_is_measured_again(pack):
    with (pack / packs.SAMPLES).open("a") as file:
        file.write(f"{DEVICE},gelu,,bf16,tokens=96;wid")

    writer = packs.open_pack(pack, manifest_of())
    writer.add(gelu(96))
    writer.close({})

    found = packs.read_pack(pack)
    assert found.problems == ()
    assert [s.shape.size("tokens") for s in found.samples] == [64, 96]


def test_a_row_that_lacks_its_line_end_is_measured_again(pack):
    """Its last number may be cut short: 45 degrees, or 4 of them."""
    with (pack / packs.SAMPLES).open("a") as file:
        file.write(GOOD.strip().replace("tokens=64", "tokens=96"))

    writer = packs.open_pack(pack, manifest_of())
    writer.add(gelu(96))
    writer.close({})

    assert writer.done == {gelu(64).key}
    assert [s.shape.size("tokens") for s in packs.read_pack(pack).samples] == [64, 96]


def test_a_pack_of_another_device_is_left_as_it_was(pack):
    with (pack / packs.SAMPLES).open("a") as file:
        file.write("half a row")
    before = (pack / packs.SAMPLES).read_bytes()

    refused(lambda: packs.open_pack(pack, manifest_of(device="NVIDIA B200")))

    assert (pack / packs.SAMPLES).read_bytes() == before


def test_what_an_earlier_run_could_not_measure_stays_told_until_it_is_measured(tmp_path):
    packs.open_pack(tmp_path, manifest_of()).close({"fp8": "no such type", gelu(64).key: "out of memory"})

    second = packs.open_pack(tmp_path, manifest_of())
    second.add(gelu(64))
    second.close({"cudnn": "not here"})

    assert packs.read_pack(tmp_path).manifest.unsupported == {"fp8": "no such type", "cudnn": "not here"}


def test_what_was_measured_by_a_run_that_was_killed_is_not_told_as_unsupported(tmp_path):
    packs.open_pack(tmp_path, manifest_of()).close({gelu(1).key: "out of memory"})
    killed = packs.open_pack(tmp_path, manifest_of())
    for tokens in range(1, packs.BATCH_ROWS + 1):
        killed.add(gelu(tokens))

    packs.open_pack(tmp_path, manifest_of()).close({})

    assert packs.read_pack(tmp_path).manifest.unsupported == {}


@pytest.mark.parametrize("name", [packs.MANIFEST, packs.SAMPLES])
def test_a_file_that_is_larger_than_any_pack_is_refused_and_not_read_in_part(pack, name, monkeypatch):
    monkeypatch.setattr(packs, "MOST_BYTES", 1_000_000)  # a smaller limit, as 200 MB take a second to read
    with (pack / name).open("r+b") as file:
        file.truncate(packs.MOST_BYTES + 1)

    assert str(packs.MOST_BYTES) in refused(lambda: packs.read_pack(pack)).because


BROKEN = {
    "a time that is text": {"repetitions_us": "10;fast;12"},
    "a negative time": {"repetitions_us": "-10;11;12"},
    "a time of zero": {"repetitions_us": "0", "median_us": "0"},
    "a time that is no number": {"repetitions_us": "nan", "median_us": "nan"},
    "an endless time": {"repetitions_us": "inf", "median_us": "inf"},
    "no repetition": {"repetitions_us": ""},
    "a median in milliseconds": {"median_us": "0.011"},
    "repetitions in seconds": {"repetitions_us": "10e-6;11e-6;12e-6"},
    "another device": {"device": "NVIDIA B200"},
    "an unknown condition": {"condition": "warm"},
    "an unknown dtype": {"dtype": "bf17"},
    "no kernel": {"kernel": ""},
    "a size of zero": {"sizes": "tokens=0;width=128"},
    "a size that is text": {"sizes": "tokens=many;width=128"},
    "a size without a name": {"sizes": "96;width=128"},
    "a negative power": {"power_w": "-5"},
    "a clock that is text": {"clock_mhz": "fast"},
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN)
def test_a_bad_row_is_told_with_its_line_and_the_good_ones_are_kept(pack, changes):
    found = packs.read_pack(with_row(with_row(pack, **changes), sizes="tokens=256;width=128"))

    (problem,) = found.problems
    assert problem.where == f"{pack / packs.SAMPLES}:3"
    assert [s.shape.size("tokens") for s in found.samples] == [64, 256]


def test_a_row_with_a_column_too_many_is_told(pack):
    with (pack / packs.SAMPLES).open("a") as file:
        file.write(GOOD.strip() + ",more\n")

    assert len(packs.read_pack(pack).problems) == 1


def test_a_file_that_ends_in_the_middle_of_a_row_keeps_the_rows_before(pack):
    with (pack / packs.SAMPLES).open("a") as file:
        file.write(f"{DEVICE},gelu,,bf16,tok")

    found = packs.read_pack(pack)

    assert len(found.samples) == 1
    assert found.problems[0].where == f"{pack / packs.SAMPLES}:3"


def test_every_bad_row_is_told(pack):
    for changes in BROKEN.values():
        with_row(pack, **changes)

    assert len(packs.read_pack(pack).problems) == len(BROKEN)


def test_columns_of_another_unit_are_refused_by_their_name(pack):
    (pack / packs.SAMPLES).write_text((HEADER + GOOD).replace("median_us", "median_ms"))

    found = packs.read_pack(pack)

    (problem,) = found.problems
    assert problem.field == "header"
    assert "median_us" in problem.allowed
    assert found.samples == ()


def test_readings_that_are_missing_are_none(pack):
    found = packs.read_pack(with_row(pack, clock_mhz="", power_w="", temperature_c=""))

    assert found.problems == ()
    assert found.samples[1].reading == Reading()


def test_a_shape_that_was_measured_again_counts_once(pack):
    found = packs.read_pack(
        with_row(pack, sizes="tokens=64;width=128", repetitions_us="20", median_us="20")
    )

    assert [sample.repetitions_us for sample in found.samples] == [(20.0,)]


@pytest.mark.parametrize(
    "changes",
    [
        {"message_bytes": "1.5"},
        {"inside": "0"},
        {"condition": "cold"},
        {"repetitions_us": "x"},
        {"nodes": ""},
    ],
)
def test_a_bad_collective_is_told(tmp_path, changes):
    writer = packs.open_pack(tmp_path, manifest_of())
    writer.add(all_reduce())
    writer.close({})
    header, row = (tmp_path / packs.MESSAGES).read_text().splitlines()
    fields = dict(zip(header.split(","), row.split(","), strict=True)) | changes
    (tmp_path / packs.MESSAGES).write_text(f"{header}\n{row}\n{','.join(fields.values())}\n")

    found = packs.read_pack(tmp_path)

    assert len(found.messages) == 1
    assert [problem.where for problem in found.problems] == [f"{tmp_path / packs.MESSAGES}:3"]


MANIFESTS = {
    "no JSON": "device: H100",
    "a list": "[]",
    "a number": "3",
    "no device": json.dumps({"tool_version": "1", "started": "now"}),
    "a device that is a number": json.dumps({"device": 3, "tool_version": "1", "started": "now"}),
    "facts that are a list": json.dumps(
        {"device": "d", "tool_version": "1", "started": "now", "facts": []}
    ),
    "a later version": json.dumps(
        {"device": "d", "tool_version": "1", "started": "now", "format_version": 2}
    ),
    "brackets without end": "[" * 100_000,
}


@pytest.mark.parametrize("text", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_that_is_none_is_refused(tmp_path, text):
    (tmp_path / packs.MANIFEST).write_text(text)

    assert refused(lambda: packs.read_pack(tmp_path)).field == "manifest"


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    assert refused(lambda: packs.read_pack(tmp_path)).field == "file"


def test_keys_that_a_later_version_adds_are_passed_over(tmp_path):
    (tmp_path / packs.MANIFEST).write_text(
        json.dumps({"device": DEVICE, "tool_version": "9", "started": "now", "fan_speed": 3})
    )

    assert packs.read_pack(tmp_path).manifest.device == DEVICE


def test_a_site_file_holds_what_a_site_says():
    site = Site(
        name="measured", factors=(SiteFactor(name="gemm_level[h100]", ratio=1.15, log_sigma_factor=0.03),)
    )

    assert Site.model_validate(yaml.safe_load(site_text(site))) == site


@pytest.mark.parametrize("sizes", ["tokens=64", "tokens=64;tokens=8", "tokens=64;width=8;m=4", "m=1;n=1"])
def test_sizes_that_are_not_those_of_a_class_leave_a_row_out(pack, sizes):
    found = packs.read_pack(with_row(pack, sizes=sizes))

    assert len(found.samples) == 1
    assert "the sizes of gelu in the column sizes: each of tokens, width once" in found.problems[0].allowed


def test_a_mark_before_the_header_changes_nothing(pack):
    plain = packs.read_pack(pack).samples
    (pack / packs.SAMPLES).write_bytes(b"\xef\xbb\xbf" + (pack / packs.SAMPLES).read_bytes())

    assert packs.read_pack(pack).samples == plain
