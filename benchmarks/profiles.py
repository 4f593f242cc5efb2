"""The functions that take most of the time: `python -m benchmarks profiles [PHASE ...]`.

Cold: `flopcast predict llama-3-8b --gpus 16`. Warm: a new plan of the benchmark `predictions`, by one
predictor. Answer: one of the API, as in the benchmark `pages` from any plan. Search: GPT-3 175B on 256
A100, in one process. Each list has the functions of flopcast with the largest cumulative CPU time, and all
imports together; it leaves out functions of which one callee takes 95 % of the time.
"""

import cProfile
import pstats
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import flopcast
from benchmarks.pages import one_field_at_a_time
from benchmarks.predictions import grid, predict_once
from benchmarks.search import WHOLE
from benchmarks.timing import keeping_compiled_modules, process_s, taken_s
from flopcast.ui.worker import answer

COMMANDS = {
    "cold": ("predict", "llama-3-8b", "--gpus", "16"),
    "search": ("search", *WHOLE["gpt3"], "--workers", "1"),
}
PROFILED = """import cProfile, runpy, sys, time
profile = cProfile.Profile(time.process_time)
try: profile.runcall(runpy.run_module, "flopcast", run_name="__main__")
finally: profile.dump_stats({path!r})"""
ANSWERS, SHOWN, WRAPPER_SHARE, IMPORTS = 500, 20, 0.95, "_find_and_load"
Profile = tuple[float, Any]  # CPU seconds without the profiler, statistics


def of_command(words: tuple[str, ...]) -> Profile:
    """Return the profile of a command line of flopcast."""
    seconds, _ = process_s([sys.executable, "-m", "flopcast", *words])
    with tempfile.NamedTemporaryFile(suffix=".prof") as file:
        run = [sys.executable, "-c", PROFILED.format(path=file.name), *words]
        subprocess.run(run, check=True, capture_output=True, env=keeping_compiled_modules())
        return seconds, pstats.Stats(file.name)


def of_calls(call: Callable[[], object], number: int) -> Profile:
    """Return the profile of some predictions together, and the CPU seconds of one of them."""
    call()  # reads the files of the catalogue
    seconds, profile = taken_s(call) / number, cProfile.Profile(time.process_time)
    profile.runcall(call)
    return seconds, pstats.Stats(profile)


def of_new_plans() -> Profile:
    """Return the profile of new plans."""
    jobs = [flopcast.job(**words) for words in grid()]
    return of_calls(lambda: predict_once(jobs), len(jobs))


def of_answers() -> Profile:
    """Return the profile of answers of the API, all of them different."""
    asked = one_field_at_a_time(0, back=False)

    def some() -> None:
        for words in islice(asked, ANSWERS):
            answer("api.predict", words, lambda _: None)

    return of_calls(some, ANSWERS)


def largest(found: dict[Any, Any], total_s: float) -> list[tuple[float, str]]:
    """Return the share of the largest functions in the time of a profile, and their places."""
    longest_s, root, rows = defaultdict[Any, float](float), Path(flopcast.__file__).parent, []
    for called in found.values():
        for caller, times in called[-1].items():
            longest_s[caller] = max(longest_s[caller], times[-1])
    for (file, line, name), (*_, cumulative_s, _) in found.items():
        own = Path(file).is_relative_to(root) and not name.startswith("<")
        if name == IMPORTS or (own and longest_s[file, line, name] < WRAPPER_SHARE * cumulative_s):
            place = "imports" if name == IMPORTS else f"{Path(file).relative_to(root)}:{line} {name}"
            rows.append((min(1.0, cumulative_s / total_s), place))
    return sorted(rows, reverse=True)[:SHOWN]


def main(phases: list[str]) -> None:
    """Print the list of each phase."""
    calls = {"warm": of_new_plans, "answer": of_answers}
    if wrong := [each for each in phases if each not in {*calls, *COMMANDS}]:
        sys.exit(f"{', '.join(wrong)}: no phase; the phases are cold, warm, answer and search")
    for phase in phases or ("cold", "warm", "answer", "search"):
        seconds, stats = calls[phase]() if phase in calls else of_command(COMMANDS[phase])
        print(f"{phase}: {1000 * seconds:.1f} ms")
        for share, place in largest(stats.stats, stats.total_tt):
            print(f"  {share:6.1%} {1000 * share * seconds:9.2f} ms  {place}")


if __name__ == "__main__":
    main(sys.argv[1:])
