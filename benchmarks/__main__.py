"""Every benchmark by its name: `python -m benchmarks NAME [ARGUMENTS]`; without a name, the list of them.

    ./dev bench predictions
    python -m benchmarks peers --calculon DIR --llm-analysis DIR
    python -m benchmarks check

Answers: which benchmarks are there, and what does each measure or check?
Elsewhere: each benchmark, in the file of its name, which `python -m benchmarks.NAME` runs too.
"""

import ast
import runpy
import sys
from pathlib import Path

NAMES = (  # the order of the list
    "predictions",
    "sweeps",
    "pages",
    "search",
    "peers",
    "check",
    "profiles",
    "laws",
    "offload_laws",
    "screen_right",
    "serving_screen_right",
    "sharded_by_layer",
    "uneven_recompute",
    "evolved_fronts",
)


def main(words: list[str]) -> int:
    """Run the benchmark that the first word names; list all of them if there is none, or no such one."""
    if words and words[0] in NAMES:
        sys.argv = [f"python -m benchmarks {words[0]}", *words[1:]]
        runpy.run_module(f"benchmarks.{words[0]}", run_name="__main__")
        return 0
    asks = not words or words[0] in ("-h", "--help")
    if not asks:
        print(f"there is no benchmark {words[0]!r}", file=sys.stderr)
    print(
        "\n".join(f"{name:20} {first_line(name)}" for name in NAMES),
        file=sys.stdout if asks else sys.stderr,
    )
    return 0 if asks else 1


def first_line(name: str) -> str:
    """Return what a benchmark measures: the first line of its file."""
    text = ast.get_docstring(ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")))
    return (text or "").split("\n")[0].split(": `python")[0].rstrip(".:")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
