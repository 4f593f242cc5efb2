"""benchmarks/peers.py and benchmarks/check.py: tools of others are run, and slower figures are found."""

import itertools
import json
import sys

import pytest
from all_cases import all_cases
from children import ran
from conftest import REPOSITORY

from benchmarks import check, peers
from benchmarks.peer_programs import TOOLS, calculon_application, calculon_execution

FAKE_CALCULON = {
    "calculon/__init__.py": "",
    "calculon/system.py": "class System:\n    def __init__(self, cfg):\n        self.scale = cfg['s']\n",
    "calculon/llm/__init__.py": """
class Llm:
    class Application:
        def __init__(self, cfg):
            self.blocks = cfg["num_blocks"]

    class Execution:
        @staticmethod
        def from_json(cfg):
            return cfg["batch_size"]

    def __init__(self, app, log):
        self.app = app

    def compile(self, syst, exe):
        self.batch = exe

    def run(self, syst):
        print("a message that is no answer")
        self.total_time = syst.scale * self.app.blocks * self.batch

    def get_stats_json(self, include_layers):
        return {"total_time": self.total_time}
""",
    "systems/a100_80g.json": json.dumps({"s": 0.01}),
}


def write(folder, files):
    """Write a fake peer into a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_tool(tool, folder, jobs, rounds):
    """Run a tool in a process of its own, as `peers` does."""
    words = [sys.executable, "-m", "benchmarks.peer_programs", tool, folder, rounds]
    return ran(words, cwd=REPOSITORY, text=True, input=json.dumps(jobs))


def test_a_peer_in_a_folder_predicts_every_job_and_its_messages_are_no_answer(tmp_path):
    write(tmp_path, FAKE_CALCULON)
    jobs = peers.jobs_of_suite()

    answer = json.loads(run_tool("calculon", tmp_path, jobs, 2).stdout)

    expected = [0.01 * facts["num_blocks"] * facts["global_batch"] for facts in jobs]
    assert answer["step_times_s"] == pytest.approx(expected)
    assert [len(taken_s) for taken_s in answer["rounds_s"]] == [len(jobs)] * 2


def test_the_words_of_a_job_make_the_job_of_the_suite():
    jobs = peers.jobs_of_suite()

    answer = json.loads(run_tool("flopcast", ".", jobs[:2], 0).stdout)

    assert answer["step_times_s"] == pytest.approx([1.42, 1.10], rel=0.1)  # arXiv:2205.05198, Table 5


def test_facts_are_those_that_the_paper_prints():
    facts = peers.jobs_of_suite()[3]  # GPT-3 175B with selective recompute: arXiv:2205.05198, Table 3

    application, execution = calculon_application(facts), calculon_execution(facts)

    assert application == {
        "hidden": 12288, "feedforward": 49152, "seq_size": 2048, "attn_heads": 96, "attn_size": 128,
        "num_blocks": 96,
    }  # fmt: skip
    assert (execution["num_procs"], execution["pipeline_interleaving"], execution["batch_size"]) == (
        64,
        3,
        64,
    )
    assert (execution["tensor_par_comm_type"], execution["activation_recompute"]) == ("rs_ag", "attn_only")


@pytest.mark.parametrize(("made", "because"), [(False, "no such folder"), (True, "no folder calculon")])
def test_a_folder_without_the_package_is_reported_with_its_option(made, because, tmp_path, capsys):
    folder = tmp_path / "somewhere"
    if made:
        folder.mkdir()

    code = peers.main(["--calculon", str(folder)])

    assert code == 1
    message = capsys.readouterr().err
    assert f"--calculon {folder}" in message
    assert because in message


def test_a_peer_that_fails_is_reported_with_its_last_line(tmp_path, capsys, monkeypatch):
    jobs = peers.jobs_of_suite()[:1]
    monkeypatch.setattr(peers, "jobs_of_suite", lambda: jobs)
    write(tmp_path, {"llm_analysis/__init__.py": "", "llm_analysis/analysis.py": "import no_such_module"})

    code = peers.main(["--llm-analysis", str(tmp_path)])

    assert code == 1
    assert "No module named 'no_such_module'" in capsys.readouterr().err


def test_errors_and_ratios_follow_from_seconds():
    results = [
        peers.Result(tool=tool, step_times_s=times, cold_s=cold_s, warm_s=0.02)
        for tool, times, cold_s in (("calculon", (1.1, 0.8), 0.4), ("llm-analysis", (2.0, 1.0), 0.1))
    ]
    jobs = [{"name": "a", "recompute": "none"}, {"name": "b", "recompute": "full"}]

    *_, means = peers.error_lines(results, jobs, (1.0, 1.0))
    cold, ratios, *_ = peers.seconds_lines(results)[1:]

    assert means.split()[-2:] == ["15.0%", "50.0%"]
    assert cold.split()[-2:] == ["0.4", "0.1"]
    assert ratios.split()[-2:] == ["1", "4"]
    assert set(peers.PACKAGES) < set(TOOLS)


def measured(parent_s, tree_s):
    """A measurement that gives made-up seconds, again and again."""
    kept = {check.ROOT / "parent": itertools.cycle(parent_s), check.ROOT: itertools.cycle(tree_s)}
    return lambda _, tree: next(kept[tree])


@all_cases(
    ("parent_s", "tree_s", "ratio", "too_slow"),
    [
        ([1.0], [1.1], 1.1, False),
        ([1.0], [1.2], 1.2, True),
        ([2.0], [1.0], 0.5, False),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 9.0], [1.1], 1.1, False),  # one round that something else disturbed
        ([None], [1.0], None, False),
    ],
)
def test_a_figure_is_too_slow_above_fifteen_per_cent_of_medians(parent_s, tree_s, ratio, too_slow):
    pair = check.compared("help", check.ROOT / "parent", check.ROOT, measured(parent_s, tree_s))

    assert pair.ratio == (None if ratio is None else pytest.approx(ratio))
    assert pair.too_slow == too_slow
    assert ("above the limit" in check.line(pair)) == too_slow
    assert ("cannot run" in check.line(pair)) == (ratio is None)


def test_a_figure_above_the_limit_is_measured_again_and_all_rounds_count():
    parent_s, tree_s = [1.0] * 11, [1.0, *[1.2] * 5, *[1.0] * 5]

    pair = check.compared("help", check.ROOT / "parent", check.ROOT, measured(parent_s, tree_s))

    assert (len(pair.parent_s), len(pair.tree_s)) == (10, 10)
    assert pair.ratio == pytest.approx(1.1)
    assert not pair.too_slow


def test_a_figure_that_this_tree_cannot_run_is_an_error():
    with pytest.raises(RuntimeError, match="help"):
        check.compared("help", check.ROOT / "parent", check.ROOT, measured([1.0], [None]))


def test_the_list_of_benchmarks_names_every_program():
    printed = ran([sys.executable, "-m", "benchmarks"], cwd=REPOSITORY, text=True).stdout
    programs = {
        path.stem
        for path in (REPOSITORY / "benchmarks").glob("[a-z]*.py")
        if 'if __name__ == "__main__"' in path.read_text() and path.stem != "peer_programs"
    }

    assert {line.split()[0] for line in printed.splitlines()} == programs
    assert all(len(line.split()) > 2 for line in printed.splitlines())
