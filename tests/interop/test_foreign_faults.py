"""Faults in files of other programs: each is told with the line and the key that are to blame."""

from collections import Counter

from all_cases import all_cases
from foreign_cases import FOREIGN, faults_in, files, replaced, rows
from megatron_cases import SCRIPTS

from flopcast.interop.configs.formats import KINDS

SAID = {"deepspeed": {"model": "llama-2-7b"}, "maxtext": {"cluster": "dgx-h100:2"}}
SAID["gpt-neox"] = {"cluster": "selene", "gpus": 96}
SAID["nemo"] = {"cluster": "dgx-h100:4"}
SAID["megatron"] = {"cluster": "dgx-h100"}
BROKEN = {  # a right file → what it has -> what is put there instead -> the field that is blamed
    f"{path.stem}/{name}": table
    for path in sorted((FOREIGN.parent / "broken").glob("*.txt"))
    for name, table in [path.read_text(encoding="utf-8").split("\n", 1)]
}
CASES = [(file, *row) for file, table in BROKEN.items() for row in rows(table)]


OF_LATER_STEPS = (
    "zero_optimization.mics_shard_size",  # depends on the degrees
    "text",
    "tag",
    "anchor",
    "alias",
    "plan.",
)  # a text that is no data; rules of the whole job
FEWEST_CONFIGS, FEWEST_BROKEN = 40, 20


def place_of(file):
    """The path of a file of a format; scripts of Megatron-LM have a folder of their own."""
    kind, _, name = file.partition("/")
    return SCRIPTS / name if kind == "megatron" else FOREIGN / file


NEEDS_OTHERS = (  # degrees whose correction also changes a degree or a batch that the file states
    "ici_tensor_parallelism",
    "sequence_parallel_size",
    "tensor_parallel.autotp_size",
    "ulysses_sequence_parallel_size",
)


@all_cases("file, old, new, field", CASES)
def test_a_fault_is_told_alone_with_its_line_and_field(file, old, new, field, tmp_path):
    old, new = (part.replace("\\n", "\n") for part in (old, new))
    text, line = replaced(place_of(file).read_text(encoding="utf-8"), old, new)
    spoiled = tmp_path / file.split("/")[1]
    spoiled.write_text(text, encoding="utf-8")

    found = faults_in(spoiled, **SAID.get(file.split("/")[0], {}))
    assert (line, field) in found
    assert len(found) == 1 or field in NEEDS_OTHERS


@all_cases("file", BROKEN)
def test_two_faults_of_a_file_are_told_together(file, tmp_path):
    text = place_of(file).read_text(encoding="utf-8")
    every = [row for row in rows(BROKEN[file]) if row[1].replace("-", "_").count(row[2]) < 2]  # no text has
    own = [row for row in every if not row[2].startswith(OF_LATER_STEPS)]  # a key twice

    half = len(own) // 2  # neighbours of the table are about one setting, where one fault hides another
    for one, other in zip(own[:half], own[half:], strict=False):
        (old, new, field), (next_old, next_new, next_field) = (
            [part.replace("\\n", "\n") for part in row] for row in (one, other)
        )
        if old in next_old or next_old in old:
            continue
        spoiled = tmp_path / file.split("/")[1]
        both, _ = replaced(replaced(text, old, new)[0], next_old, next_new)
        spoiled.write_text(both, encoding="utf-8")

        fields = {field for _, field in faults_in(spoiled, **SAID.get(file.split("/")[0], {}))}
        assert {field, next_field} <= fields


@all_cases("file", BROKEN)
def test_a_file_to_be_broken_is_right_as_it_is(file):
    assert faults_in(place_of(file), **SAID.get(file.split("/")[0], {})) == []


def test_forty_files_are_read_and_of_each_format_twenty_broken_ones_are_refused():
    formats = {*KINDS, "megatron"}
    found = Counter(file.partition("/")[0] for file in files())
    found["megatron"] = len(list(SCRIPTS.iterdir()))
    broken = {file.partition("/")[0]: len({*rows(table)}) for file, table in BROKEN.items()}

    assert found.keys() == broken.keys() == formats
    assert found.total() >= FEWEST_CONFIGS
    assert min(found.values()) >= 5
    assert {kind: number for kind, number in broken.items() if number < FEWEST_BROKEN} == {}
