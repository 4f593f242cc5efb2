"""flopcast beside Calculon and llm-analysis on published runs: `python -m benchmarks peers [OPTIONS]`.

    python -m benchmarks peers --calculon DIR --llm-analysis DIR

Answers: how many CPU seconds does each tool take for the same jobs, and how far is each from the
measured seconds of a step?
Elsewhere: how each tool is called (peer_programs.py).

The jobs are the eight runs of the suite `korthikanti` (arXiv:2205.05198, Table 5). DIR is a folder that
you supply: a clone of github.com/calculon-ai/calculon, and a folder with the package `llm_analysis` and
what it needs (`pip install --target DIR llm-analysis`). A tool without a folder is left out. Each tool
runs in processes of its own, one tool after another in every round. *cold*: a process that predicts one
job, from start to end; *warm*: one more job in a process that has predicted all of them before. A new
`Predictor` predicts the warm jobs of flopcast, which it makes from their options. All figures are
medians of five.

Calculon's efficiencies were fitted to these runs, llm-analysis gets half of the peak rate, and the
errors of flopcast are those without constants that were fitted to runs.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import RUNS, process_s
from flopcast.accuracy import validate_suite
from flopcast.lab.published.suite_files import load_suite
from flopcast.library.catalog import document
from flopcast.spec.job import Job

SUITE = "korthikanti"
PACKAGES = {"calculon": "calculon", "llm-analysis": "llm_analysis"}  # tool → package that its folder holds
Facts = dict[str, Any]


class PeerError(Exception):
    """A peer's folder lacks its package, or the peer failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What one tool predicted, and the CPU seconds that it took."""

    tool: str
    step_times_s: tuple[float, ...]  # per job
    cold_s: float
    warm_s: float


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; return 1 if a peer cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__.split("\n")[0])
    for tool, package in PACKAGES.items():
        parser.add_argument(f"--{tool}", type=Path, metavar="DIR", help=f"folder of the package {package}")
    given = vars(parser.parse_args(arguments))
    folders = {tool: given[tool.replace("-", "_")] for tool in PACKAGES}
    try:
        print(compared({tool: folder for tool, folder in folders.items() if folder is not None}))
    except PeerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def compared(folders: Mapping[str, Path]) -> str:
    """Return the comparison of flopcast and the peers with a folder, as text.

    Raises
    ------
    PeerError
        A folder lacks its package, or a peer failed.
    """
    for tool, folder in folders.items():
        check_folder(tool, folder)
    jobs = jobs_of_suite()
    tools = {"flopcast": Path()} | {tool: folder.resolve() for tool, folder in folders.items()}
    timed = {tool: _Timed([], []) for tool in tools}
    for _ in range(RUNS):
        for tool, folder in tools.items():
            timed[tool].add_round(tool, folder, jobs)
    results = [each.result(tool) for tool, each in timed.items()]
    measured_s = [row.measured.step_time_s or 0.0 for row in load_suite(SUITE).rows]
    return "\n".join([*error_lines(results, jobs, measured_s), "", *seconds_lines(results)])


def check_folder(tool: str, folder: Path) -> None:
    """Check that a folder holds the package of a tool.

    Raises
    ------
    PeerError
        It does not.
    """
    package = PACKAGES[tool]
    if not (folder / package).is_dir():
        because = "there is no such folder" if not folder.is_dir() else f"it has no folder {package}"
        raise PeerError(f"--{tool} {folder}: {because}; name the folder that holds the package {package}")


@dataclass(frozen=True, slots=True)
class _Timed:
    """The rounds of one tool so far."""

    cold_s: list[float]
    answers: list[Facts]

    def add_round(self, tool: str, folder: Path, jobs: list[Facts]) -> None:
        """Run the tool in two processes: one for a single job, one for all jobs and once more for all."""
        if not self.answers:
            _answer(tool, folder, jobs[:1], rounds=0)  # compiles modules, is not counted
        self.cold_s.append(_answer(tool, folder, jobs[:1], rounds=0)[0])
        self.answers.append(_answer(tool, folder, jobs, rounds=1)[1])

    def result(self, tool: str) -> Result:
        """Return the medians."""
        warm_s = [statistics.mean(answer["rounds_s"][0]) for answer in self.answers]
        return Result(
            tool=tool,
            step_times_s=tuple(self.answers[0]["step_times_s"]),
            cold_s=statistics.median(self.cold_s),
            warm_s=statistics.median(warm_s),
        )


def _answer(tool: str, folder: Path, jobs: list[Facts], *, rounds: int) -> tuple[float, Facts]:
    """Return the CPU seconds of a tool's process, and what it printed."""
    command = [sys.executable, "-m", "benchmarks.peer_programs", tool, str(folder), str(rounds)]
    try:
        seconds, printed = process_s(command, standard_input=json.dumps(jobs))
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        raise PeerError(f"{tool} in {folder} failed: {last[0]}") from None
    return seconds, json.loads(printed)


def jobs_of_suite() -> list[Facts]:
    """Return the jobs of the suite: `words`, as flopcast takes them, and facts for other tools."""
    descriptions = [row["job"] for row in document("suites", SUITE).data["rows"]]
    jobs = [row.job for row in load_suite(SUITE).rows]
    return [
        facts_of(job) | {"words": words_of(described)}
        for job, described in zip(jobs, descriptions, strict=True)
    ]


def words_of(described: Mapping[str, Any]) -> Facts:
    """Return the arguments of `flopcast.job` for a job of the suite."""
    words = {name: described[name] for name in ("model", "cluster", "stack", "plan")}
    return words | {"seq": described["batch"]["sequence_length"]}


def facts_of(job: Job) -> Facts:
    """Return what other tools ask of a job of a dense model with one kind of block."""
    (block,), plan = job.model.blocks, job.plan
    heads = block.mixer.heads
    return {
        "name": job.model.name,
        "hidden": job.model.hidden,
        "feed_forward": block.feed_forward.ffn_hidden,
        "heads": heads,
        "head_size": block.mixer.head_size or job.model.hidden // heads,
        "num_blocks": block.count,
        "vocabulary": job.model.vocabulary,
        "sequence_length": job.batch.sequence_length,
        "device": job.cluster.groups[0].node.device.name,
        "num_devices": job.cluster.num_devices,
        "data_parallel": plan.data_parallel,
        "tensor_parallel": plan.tensor_parallel,
        "sequence_parallel": plan.sequence_parallel,
        "pipeline_parallel": plan.pipeline_parallel,
        "virtual_stages": plan.virtual_stages,
        "zero": plan.zero,
        "micro_batch": plan.micro_batch,
        "global_batch": plan.global_batch,
        "recompute": plan.recompute,
    }


def error_lines(results: Sequence[Result], jobs: Sequence[Facts], measured_s: Sequence[float]) -> list[str]:
    """Return a line for each run: the measured seconds, and the error of each tool."""
    lines = [f"{'run':34} {'measured':>9}" + "".join(f" {each.tool:>13}" for each in results)]
    errors = [errors_of(each, measured_s) for each in results]
    for place, facts in enumerate(jobs):
        name = f"{facts['name']}, recompute {facts['recompute']}"
        cells = "".join(f" {tool[place]:+13.1%}" for tool in errors)
        lines.append(f"{name:34} {measured_s[place]:7.2f} s{cells}")
    means = "".join(f" {statistics.mean(map(abs, tool)):13.1%}" for tool in errors)
    return [*lines, f"{'mean absolute error':44}{means}"]


def errors_of(result: Result, measured_s: Sequence[float]) -> list[float]:
    """Return predicted over measured seconds, less 1; those of flopcast without fitted constants."""
    predicted_s: Sequence[float] = result.step_times_s
    if result.tool == "flopcast":
        predicted_s = [row.predicted_step_time_s for row in validate_suite(SUITE).rows]
    return [one / other - 1 for one, other in zip(predicted_s, measured_s, strict=True)]


def seconds_lines(results: Sequence[Result]) -> list[str]:
    """Return a line for each kind of prediction: CPU seconds, and flopcast's over each peer's."""
    lines = [f"{'CPU seconds':44}" + "".join(f" {each.tool:>13}" for each in results)]
    for name, seconds in (
        ("cold: one job, from start to end", [each.cold_s for each in results]),
        ("warm: one more job", [each.warm_s for each in results]),
    ):
        lines.append(f"{name:44}" + "".join(f" {one:13.4g}" for one in seconds))
        ratios = "".join(f" {seconds[0] / one:13.3g}" for one in seconds)
        lines.append(f"{'  flopcast / tool':44}{ratios}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
