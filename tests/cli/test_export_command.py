"""`flopcast export`: where files go, what is told, what is refused."""

from all_cases import all_cases
from command_line import PLAN, WORDS, flopcast

from flopcast.interop.exports.kinds import KINDS

JOB = (*WORDS, "--gpus", "8", "--plan", PLAN)


def test_a_script_is_printed_and_what_it_does_not_say_is_told_beside_it():
    ended = flopcast("export", "megatron", *JOB)

    assert ended.code == 0
    assert ended.out.startswith("#!/bin/bash\n")
    assert "--tensor-model-parallel-size 1" in ended.out
    assert "note: the script does not contain the cluster" in ended.err


def test_a_script_is_written_where_it_is_wanted(tmp_path):
    place = tmp_path / "mine.sh"

    ended = flopcast("export", "megatron", *JOB, "-o", place)

    assert (ended.code, ended.out) == (0, "")
    assert f"wrote {place}" in ended.err
    assert place.read_text(encoding="utf-8") == flopcast("export", "megatron", *JOB).out


def test_a_written_script_predicts_the_step_of_the_job(tmp_path):
    place = tmp_path / "run.sh"
    flopcast("export", "megatron", *JOB, "-o", place)

    found = flopcast("predict", place, "--cluster", "dgx-a100:1", "--json")
    wanted = flopcast("predict", *JOB, "--json")

    def seconds(ended):
        return next(line for line in ended.out.splitlines() if '"step_time_s"' in line)

    assert seconds(found) == seconds(wanted)


def test_an_unknown_kind_names_all_kinds():
    ended = flopcast("export", "vhdl", *JOB)

    assert ended.code == 1
    assert all(kind in ended.err for kind in KINDS)


def test_a_job_that_would_change_is_refused_and_nothing_is_written(tmp_path):
    place = tmp_path / "run.sh"

    ended = flopcast("export", "megatron", *JOB[:-1], PLAN + " zero=1 optimizer=adamw_8bit", "-o", place)

    assert ended.code == 1
    assert "plan.optimizer = 'adamw_8bit' cannot be exported to Megatron-LM's flags" in ended.err
    assert not place.exists()


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    ended = flopcast("export", "megatron", *JOB, "-o", tmp_path / "none" / "run.sh")

    assert ended.code == 1
    assert "--output" in ended.err


@all_cases("kind", KINDS)
def test_every_kind_stands_in_the_help(kind):
    assert f"\n  {kind} " in flopcast("export", "--help").out
