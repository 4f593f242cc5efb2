"""`flopcast checkpoint`, and --checkpoint of the other commands."""

import pytest
from command_line import JOB, data_of, flopcast

FAST = "{capacity_bytes: 1 PB, read_bytes_per_s: 1 TB/s, write_bytes_per_s: 1 TB/s}"
LAZY = ("--checkpoint", "lazy file_system every=50")


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    cluster = f'cluster: {{base: "dgx-a100:1", file_system: {FAST}}}'
    path.write_text(JOB.replace("cluster: dgx-a100:1", cluster))
    return path


def test_the_text_has_the_size_the_waiting_time_and_every_method(job):
    ended = flopcast("checkpoint", job, *LAZY)

    assert ended.code == 0
    for words in ("checkpoints: lazy file_system every=50", "size ", "waiting", "goodput", "synchronous"):
        assert words in ended.out


def test_json_has_the_same_numbers_as_the_report_of_a_step(job):
    own, step = data_of("checkpoint", job, *LAZY), data_of("predict", job, *LAZY)

    assert {name: own[name] for name in step["checkpoint"]} == step["checkpoint"]
    assert own["interval_steps"] == pytest.approx(50)
    assert own["loading"] is None
    assert data_of("predict", job)["checkpoint"] is None


def test_without_words_a_job_saves_to_what_its_cluster_describes(job):
    found = data_of("checkpoint", job)

    assert found["checkpoint"] == "asynchronous file_system"
    assert any("set --checkpoint" in text for text in found["assumptions"])


def test_another_plan_reads_what_its_ranks_hold(job):
    found = data_of("checkpoint", job, *LAZY, "--to-plan", "dp=2 tp=2")

    loading = found["loading"]
    assert len(loading["rank_read_bytes"]) == 4
    assert loading["read_bytes"] == pytest.approx(sum(loading["rank_read_bytes"]))
    assert loading["read_bytes"] == pytest.approx(2 * found["size_bytes"], rel=0.01)  # without ZeRO


def test_recompute_of_either_plan_changes_nothing_that_is_read(job):
    words = ("checkpoint", job, *LAZY, "--to-plan")
    found = [
        data_of(*words, f"dp=2 tp=2 pp=2 {recompute}")["loading"]["rank_parts"]
        for recompute in ("recompute=none", "recompute=full:block:2")
    ]

    assert found[0] == found[1]


def test_faults_of_both_plans_are_told(job):
    for words, place in (
        ("dp=3", "--to-plan: plan.global_batch"),
        ("dp=12 gbs=24", "degrees whose product"),
        ("dp", "--to-plan"),
        ("optimizer=sgd", "--to-plan"),
        ("zz=1", "zz"),
    ):
        ended = flopcast("checkpoint", job, "--to-plan", words)

        assert ended.code == 1, words
        assert place in ended.err, words


def test_a_run_saves_as_its_job_says(job):
    tokens = ("--tokens", "100B")
    slow = data_of("run", job, *tokens, "--checkpoint", "synchronous file_system every=20")
    fast = data_of("run", job, *tokens, "--checkpoint", "lazy file_system every=20")

    assert slow["goodput"] < fast["goodput"]
    assert flopcast("run", job, *tokens, "--checkpoint", "lazy nowhere").code == 1


def test_the_page_of_a_report_has_the_lines_of_the_text(job, tmp_path):
    page = tmp_path / "report.html"
    shown = flopcast("checkpoint", job, *LAZY).out

    assert flopcast("predict", job, *LAZY, "--report", page).code == 0

    restore = next(line for line in shown.splitlines() if "restore" in line).split(maxsplit=1)[1]
    assert "What saving takes" in page.read_text()
    assert restore in page.read_text()
