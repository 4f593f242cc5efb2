"""The accuracy of serving: `python tests/serving_accuracy.py` writes the tables of the page.

The page is docs/accuracy/serving.md. It takes a few minutes, and names a command for each of its lines.
With names of tables behind the command, the others stay as they are. The text of the page stays as it is.
With the word "releases", it prints the fit of the uncertainty of older releases instead, in a minute. With
the word "intervals", it prints how wide the intervals of times between tokens would have to be.
"""

import sys
import textwrap
from pathlib import Path

import numpy as np
import release_fit

from flopcast.lab.measured_tables import SERVING
from flopcast.lab.scores import statistics
from flopcast.lab.serving_runs.score import score_runs

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
PAGE = ROOT / "docs" / "accuracy" / "serving.md"
POINTS = "peers/aiconfigurator/serving_measured_ttft_tpot.csv.gz"
OFFLOADED = "offload/offload_inference_throughput.yaml"
DEPLOYMENTS = "deployments.yaml"
COLLECTED = "collected_serving.yaml"
COLLECTED_2 = "collected_serving_2.yaml"
COLLECTED_3 = "collected_serving_3.yaml"
COLLECTED_4 = "collected_serving_4.yaml"
FILES = {  # beside shared/data
    DEPLOYMENTS: ROOT / "src" / "flopcast" / "catalog" / "runs" / DEPLOYMENTS,
    **{
        name: ROOT / "tests" / "lab" / "validation" / name
        for name in (COLLECTED, COLLECTED_2, COLLECTED_3, COLLECTED_4)
    },
}
EVERY = 10  # of the points of aiconfigurator one is predicted: constants are fitted on those
FITTED = "fitted"
DEVELOPMENT = "development"
ON_H100 = "left out, but `streamed_s` was fitted on H100"
LINES = (  # file of shared/data, kind of score, option of the command, choice of constants
    (POINTS, FITTED, "", "catalogue"),
    (POINTS, "left out: constants of other models", "--leave-one-model-out", "model"),
    (POINTS, "left out: constants of other devices", "--leave-one-generation-out", "device"),
    (POINTS, "never fitted: only benchmarks of kernels", "--no-constants", "none"),
    ("serving/mlenergy_llm.csv", ON_H100, "", "catalogue"),
    ("serving/mlperf_inference_v5.1_llm.csv", DEVELOPMENT, "", "catalogue"),
    ("serving/apex_h100_mistral.csv", DEVELOPMENT, "", "catalogue"),
    ("serving/vllm_requests_RTXPRO6000_Llama-3.1-8B.csv", DEVELOPMENT, "", "catalogue"),
    ("serving/vllm_requests_RTXPRO6000_Qwen3-32B.csv", DEVELOPMENT, "", "catalogue"),
    (OFFLOADED, "fitted on A6000; never fitted on T4", "", "catalogue"),
    (OFFLOADED, "left out: copy rates of other models", "--leave-one-model-out", "model"),
    (OFFLOADED, "never fitted: default rates", "--no-constants", "none"),
    (DEPLOYMENTS, DEVELOPMENT, "", "catalogue"),
    (COLLECTED, DEVELOPMENT, "", "catalogue"),
    (COLLECTED_2, DEVELOPMENT, "", "catalogue"),
    (COLLECTED_3, DEVELOPMENT, "", "catalogue"),
    (COLLECTED_4, DEVELOPMENT, "", "catalogue"),
)
WITH_OLDER = (DEPLOYMENTS, "serving/apex_h100_mistral.csv", "serving/mlperf_inference_v5.1_llm.csv")
BETWEEN_TOKENS = ("silicon_tpot_ms", "median_itl_ms", "tpot_mean_ms", "mean_tpot_s")
WITH_INTERVALS = (
    (POINTS, "model"),
    *((path, "catalogue") for path in (*WITH_OLDER[:2], "serving/mlenergy_llm.csv")),
)
FEWEST_IN_CLASS = 10
SAME_FRACTION = 0.005  # values that are closer are copies of one measurement
SHOWN = {  # quantities of tables that have more
    "serving/mlperf_inference_v5.1_llm.csv": ("result", "ttft_mean_ms", "tpot_mean_ms")
}
PARTS = {  # group by which rows of a table are shown as well, and its names
    "serving/mlenergy_llm.csv": ("device", ("H100", "B200")),
    DEPLOYMENTS: ("engine", ("vllm", "sglang", "tensorrt-llm")),
    COLLECTED: ("engine", ("vllm", "sglang", "tensorrt-llm", "llama.cpp")),
    COLLECTED_2: ("engine", ("vllm", "sglang")),
    COLLECTED_3: ("engine", ("vllm", "sglang")),
    COLLECTED_4: ("engine", ("vllm", "sglang", "tensorrt-llm", "lmdeploy")),
}
ERRORS = ("median", "p90", "bias", "inside 90 %", "interval")
HEADINGS = ("quantity", "score", "rows", *ERRORS, "not predicted")


def table_of(path, lines):
    """Return the Markdown table of one file."""
    everything = SERVING.read(FILES.get(path, SHARED / "data" / path))
    runs = everything[::EVERY] if path == POINTS else everything
    option = "" if path != POINTS else f" (every {EVERY}th row)"
    rows = [f"## `{Path(path).name}`{option}\n", "| " + " | ".join(HEADINGS) + " |"]
    rows.append("|---|---|" + "--:|" * (len(HEADINGS) - 2))
    known = {}
    for _, kind, words, constants in lines:
        scores = score_runs(runs, constants, known)
        shown = f"{kind} (`{words}`)" if words else kind
        for quantity in dict.fromkeys(row.measured.quantity for row in scores.rows):
            if quantity not in SHOWN.get(path, (quantity,)):
                continue
            compared = [row for row in scores.rows if row.measured.quantity == quantity]
            rows.append(line_of(quantity, shown, compared, scores.left_out))
            group, names = PARTS.get(path, ("", ()))
            for name in names:
                part = [row for row in compared if row.run.groups[group] == name]
                others = [run for run in scores.left_out if run.groups[group] == name]
                if part:
                    rows.append(line_of(quantity, f"only rows with {name}", part, others))
    rows += equal_jobs(everything) if path == POINTS else []
    return "\n".join(rows) + "\n"


def equal_jobs(runs):
    """Return paragraphs about measurements of equal jobs: how far apart are they?"""
    jobs, texts = {}, []
    for run in runs:
        if run.job is not None:
            jobs.setdefault(run.job.model_dump_json(), []).append(run)
    measured = [
        [(each.quantity, each.value) for run in equal for each in run.measured] for equal in jobs.values()
    ]
    for quantity in dict.fromkeys(each.quantity for run in runs for each in run.measured):
        errors = []
        for numbers in measured:
            found = sorted(value for name, value in numbers if name == quantity)
            values = [b for a, b in zip([0.0, *found], found, strict=False) if b > a * (1 + SAME_FRACTION)]
            errors += [abs(np.median(values) / value - 1) for value in values] if len(values) > 1 else []
        median, ninth = (f"{each:.1%}".replace("%", " %") for each in np.quantile(errors, (0.5, 0.9)))
        text = (
            f"For some jobs, `{quantity}` was measured several times ({len(errors)} values). The"
            f" values of a job differ from its median by {median} (median) and {ninth} (90th percentile)."
            " No prediction can have smaller errors for these values."
        )
        texts.append("\n" + textwrap.fill(text, 108))
    return texts


def line_of(quantity, kind, compared, left_out):
    """Return a line of a table."""
    found, predicted = statistics(compared), [row.predicted for row in compared]
    half_width = np.median([np.sqrt(each.high / each.low) for each in predicted if each.low > 0])
    cells = [f"`{quantity}`", kind, f"{found['rows']:.0f}"]
    cells += [f"{found[name]:.1%}".replace("%", " %") for name in ("median", "p90")]
    cells += [f"{found['bias']:+.1%}".replace("%", " %"), f"{found['inside']:.0%}".replace("%", " %")]
    return "| " + " | ".join([*cells, f"{half_width:.2f}", f"{len(left_out)}"]) + " |"


def parts_of_page():
    """Return the text before the tables, the tables by the name of their file, and the text after them."""
    before, *parts = PAGE.read_text(encoding="utf-8").split("\n## ")
    tables = {part.split("`")[1]: f"## {part}" for part in parts if part.startswith("`")}
    after = "".join(f"\n## {part}" for part in parts if not part.startswith("`"))
    return before, tables, after


def print_release_fit():
    """Print the sigmas that fit the deviations of older releases, and a line of a table for each source."""
    runs = [run for path in WITH_OLDER for run in SERVING.read(FILES.get(path, SHARED / "data" / path))]
    everything = release_fit.deviations(runs)
    for has_experts, family in ((False, "dense"), (True, "MoE")):
        found = [each for each in everything if each.has_experts == has_experts]
        sys.stdout.write(f"{family} models: sigmas for a year {release_fit.fit(found)}\n")
        for source, others in release_fit.without_each_source(found).items():
            own = [each for each in found if each.source == source]
            cells = [f"{family}: {source}", len(own), f"{own[0].age:.2f}"]
            cells.append(f"{np.exp(np.median([each.log_ratio for each in own])):.2f}")
            cells += [f"{np.mean([each.is_inside(pair) for each in own]):.0%}" for pair in ((0, 0), others)]
            cells.append("{:.2f}, {:.2f}".format(*others))
            sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n".replace("%", " %"))


def print_interval_widths():
    """Print how wide the 90 % intervals of times between tokens are, and how wide they would have to be.

    A class is an engine, a family of models, a generation of devices, and whether one or several serve.
    """
    classes = {}
    for path, constants in WITH_INTERVALS:
        runs = SERVING.read(FILES.get(path, SHARED / "data" / path))
        for row in score_runs(runs[::EVERY] if path == POINTS else runs, constants).rows:
            if row.measured.quantity in BETWEEN_TOKENS:
                job, found = row.run.job, row.predicted
                family = "MoE" if job.model.has_experts else "dense"
                many = "several devices" if job.plan.devices > 1 else "one device"
                name = (Path(path).name, job.engine.base or job.engine.name, family)
                ratios = (row.measured.value / found.value, found.high / found.value, row.is_inside)
                key = (*name, job.cluster.node.device.generation, many)
                classes.setdefault(key, []).append(ratios)
    for name, rows in sorted(classes.items()):
        if len(rows) >= FEWEST_IN_CLASS:
            off, high, inside = (np.array(column) for column in zip(*rows, strict=True))
            needed = np.exp(np.quantile(np.abs(np.log(off)), 0.9))
            cells = [f"`{name[0]}`", ", ".join(name[1:]), len(rows), f"{inside.mean():.0%}"]
            cells += [f"{np.median(high):.2f}", f"{needed:.2f}"]
            sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n".replace("%", " %"))


if __name__ == "__main__":
    if sys.argv[1:] == ["intervals"]:
        sys.exit(print_interval_widths())
    if sys.argv[1:] == ["releases"]:
        sys.exit(print_release_fit())
    named = sys.argv[1:] or [Path(line[0]).name for line in LINES]
    paths = {Path(line[0]).name: line[0] for line in LINES}
    unknown = sorted(set(named) - set(paths))
    if unknown:
        sys.exit(f"unknown tables: {', '.join(unknown)}; the tables are {', '.join(paths)}")
    new = {
        name: table_of(path, [line for line in LINES if line[0] == path])
        for name, path in paths.items()
        if name in named
    }
    before, kept, after = parts_of_page()
    tables = kept | new
    shown = [before, *(tables[name] for name in paths)]
    PAGE.write_text("\n".join(shown) + after, encoding="utf-8")
    sys.stdout.write("written: compare with git diff\n")
