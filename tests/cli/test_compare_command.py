"""`flopcast compare`: which two jobs a line of words asks for."""

import pytest
from command_line import data_of, flopcast

JOB = """\
model: megatron-1.7b
cluster: dgx-a100:1
stack: megatron-2022
batch: {sequence_length: 2048}
plan: {dp: 8, gbs: 16, precision: fp16}
"""


@pytest.fixture
def jobs(tmp_path):
    """Two files: a job, and the same with full recomputation."""
    plain, again = tmp_path / "plain.yaml", tmp_path / "again.yaml"
    plain.write_text(JOB)
    again.write_text(JOB.replace("gbs: 16", "gbs: 16, recompute: full"))
    return plain, again


def test_a_warning_of_both_jobs_is_shown_once(jobs):
    shown = flopcast("compare", jobs[0], jobs[1], "--cluster", "dgx-h100:1").out

    assert shown.count("warning   A and B: uncalibrated") == 1
    assert "warning   A:" not in shown


def ratio_of(*words):
    """Time per token of the second job over the first's."""
    return data_of("compare", *words)["time_per_token_ratio"]


def test_recomputing_every_layer_takes_up_to_a_third_longer(jobs):
    """One forward more beside a forward and a backward of two."""
    assert 1.2 < ratio_of(*jobs) < 1.34


def test_a_change_of_one_file_is_the_second_job(jobs):
    plain, again = jobs

    assert ratio_of(plain, "plan.recompute=full") == pytest.approx(ratio_of(plain, again))


def test_a_change_of_two_files_changes_both(jobs):
    plain, again = jobs

    assert ratio_of(plain, again, "plan.recompute=full") == 1.0


def test_the_fix_of_one_job_changes_no_option_of_both(tmp_path, jobs):
    small = tmp_path / "small.yaml"
    small.write_text(JOB.replace("dp: 8", "dp: 16"))
    ended = flopcast("compare", jobs[0], small)

    assert "use --gpus" in flopcast("predict", small).err
    assert "use --gpus" not in ended.err
    assert "change its cluster to 16 devices" in ended.err


def test_options_are_a_job_without_a_file():
    words = ("--model", "megatron-1.7b", "--cluster", "dgx-a100:1", "--stack", "megatron-2022")

    ratio = ratio_of(*words, "--seq", "2048", "--plan", "dp=8 gbs=16 precision=fp16", "plan.recompute=full")

    assert 1.2 < ratio < 1.34


def test_files_are_named_by_their_names_and_changes_by_themselves(jobs):
    plain, again = jobs

    two, one = flopcast("compare", plain, again).out, flopcast("compare", plain, "plan.mbs=2").out

    assert two.startswith("A  plain.yaml: dp=8")
    assert "\nB  again.yaml: dp=8" in two
    assert "\nB  plan.mbs=2: dp=8 mbs=2" in one
