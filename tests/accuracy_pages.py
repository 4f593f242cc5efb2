"""Every accuracy number of the README and the documentation, out of predictions.

`python tests/accuracy_pages.py` predicts all measured runs again, writes the pages of docs/accuracy that a
command prints, and fills in the numbers between `<!--=NAME-->` and `<!--/=-->` wherever a text has them.
tests/lab/validation/test_accuracy_pages.py compares all of it.
"""

import math
import re
import statistics
import sys
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from flopcast.accuracy import holds_functional_tests, validate_memory, validate_runs, validate_suite
from flopcast.cli.calibrate_constants import as_markdown as constants_as_markdown
from flopcast.cost.unknown_site import DEVICE, FRAMEWORK, NARROW, SOFTWARE, site_log_sigmas
from flopcast.garbage import collect_rarely
from flopcast.lab.calibration.site_fit import fit_sites
from flopcast.lab.published.predictions import PublishedTables
from flopcast.lab.validation.decision_statistics import by_source as by_question
from flopcast.lab.validation.decision_statistics import of_sweeps
from flopcast.lab.validation.from_one_run import calibrated, statistics_of
from flopcast.lab.validation.published_statistics import of_rows
from flopcast.lab.validation.repeats import by_configuration, release_errors
from flopcast.lab.validation.site_residuals import levels_without
from flopcast.lab.validation.statistics import by_source
from flopcast.lab.validation.statistics import errors as error_statistics
from flopcast.lab.validation.sweeps import sweeps_of_runs, sweeps_of_suite
from flopcast.library.constants import shipped
from flopcast.render.decisions import decisions_as_markdown
from flopcast.render.from_one_run_tables import from_one_run_as_markdown
from flopcast.render.published_tables import memory_table, runs_as_markdown
from flopcast.render.suite_comparison import as_markdown as suites_as_markdown
from flopcast.render.suite_comparison import memory_as_markdown
from flopcast.render.tables import as_markdown

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
PUBLISHED = SHARED / "validation" / "published_runs.csv"
FUNCTIONAL = SHARED / "validation" / "megatron_functional_8gpu.csv"
MLPERF = SHARED / "data" / "training_mlperf" / "mlperf_training_v5.1.csv"
DEVELOPMENT = ROOT / "tests" / "lab" / "validation" / "held_out_runs.csv"
COLLECTED = [  # the tables of runs that were committed before they were predicted, oldest first
    DEVELOPMENT.with_name(f"collected_runs{suffix}.csv")
    for suffix in ("", *(f"_{number}" for number in range(2, 12)))
]
SUITES = ("paper", "sc21", "korthikanti", "headlines")
REACH = 1.6449  # sigmas of a 90 % interval
UNKNOWN = {  # what is unknown of a site → its name in a table
    (FRAMEWORK,): "framework (its library is known on the device)",
    (FRAMEWORK, DEVICE): "framework and device (the library is known on another device)",
    (FRAMEWORK, DEVICE, SOFTWARE): "framework, device and library",
}
WAYS = {  # choice of constants → its name in the README, the option of the command, the page
    "none": ("never fitted: only measured kernels and data sheets", "--no-constants", ""),
    "others": (
        "left out: constants fitted without the source of the run",
        "--leave-one-source-out",
        "[left out](left-out.md)",
    ),
    "generations": (
        "left out: constants fitted without the device generation of the run",
        "--leave-one-generation-out",
        "[generations](generations.md)",
    ),
    "catalogue": ("fitted: constants fitted to all runs (the default)", "", "[runs](runs.md)"),
}
PAGES = {"catalogue": "runs.md", "others": "left-out.md", "generations": "generations.md"}
FIRST_SCORES = {  # of 75 development runs, before anything was corrected (docs/accuracy/journal.md)
    "dense": ("55", "8.2 %", "–", "–", "67 % (dense and experts)"),
    "experts": ("20", "10.0 %", "–", "–", "67 % (dense and experts)"),
}
FIRST_SCORE_OF_HYBRIDS = "29.1 %, 27.4 %, 41.6 %", "17 %, ± 24 %"  # before anything was corrected
FIRST_SCORES_OF_COLLECTED = (  # of each table of COLLECTED
    {  # predicted on 2026-11-27 at 100f9fa7, before anything was corrected
        "dense": ("65", "6.2 %", "9.1 %", "24.8 %", "−3.2 %", "78 %", "± 12 %"),
        "experts": ("23", "19.6 %", "20.7 %", "36.9 %", "−13.3 %", "52 %", "± 22 %"),
        "hybrids": ("4", "24.4 %", "23.9 %", "25.8 %", "−23.9 %", "100 %", "± 39 %"),
    },
    {  # predicted on 2026-11-28 at 2137b2ad, before anything was corrected
        "dense": ("66", "17.4 %", "18.7 %", "37.8 %", "−14.6 %", "55 %", "± 26 %"),
        "experts": ("19", "24.0 %", "27.0 %", "67.1 %", "−0.4 %", "47 %", "± 23 %"),
    },
    {  # predicted on 2026-11-28, with 83a70afd and the table's names
        "dense": ("68", "17.3 %", "19.3 %", "40.8 %", "−12.5 %", "74 %", "± 54 %"),
        "experts": ("15", "29.2 %", "37.5 %", "66.8 %", "−32.8 %", "27 %", "± 21 %"),
    },
    {  # predicted on 2026-11-28 at 84cddedf, before anything was corrected
        "dense": ("42", "14.3 %", "22.6 %", "57.4 %", "−3.8 %", "67 %", "± 33 %"),
        "experts": ("20", "21.0 %", "20.8 %", "35.4 %", "−16.8 %", "80 %", "± 64 %"),
    },
    {  # predicted on 2026-11-29, with 1b13716c and the table
        "dense": ("29", "13.2 %", "15.7 %", "37.9 %", "−4.2 %", "90 %", "± 70 %"),
        "experts": ("10", "23.5 %", "25.0 %", "48.0 %", "8.5 %", "80 %", "± 109 %"),
    },
    {  # predicted on 2026-11-29 at 7f1f9c97, before anything was corrected
        "dense": ("29", "18.3 %", "36.5 %", "48.4 %", "9.2 %", "79 %", "± 63 %"),
        "experts": ("11", "26.7 %", "22.7 %", "34.5 %", "−15.8 %", "100 %", "± 112 %"),
    },
    {  # predicted on 2026-11-29, with b715e2ae and the table
        "dense": ("55", "60.4 %", "47.4 %", "90.8 %", "−46.3 %", "38 %", "± 25 %")
    },
    {  # predicted on 2026-11-29 at 4e49da63, before anything was corrected
        "dense": ("71", "20.5 %", "26.6 %", "62.0 %", "−23.8 %", "73 %", "± 90 %"),
        "experts": ("2", "24.5 %", "24.5 %", "29.4 %", "−24.5 %", "100 %", "± 125 %"),
    },
    {  # predicted on 2026-11-30 with b8b0ffa1, before anything was corrected
        "dense": ("51", "27.3 %", "36.6 %", "69.8 %", "−19.6 %", "33 %", "± 19 %"),
        "experts": ("4", "18.2 %", "27.6 %", "69.0 %", "−27.6 %", "75 %", "± 117 %"),
    },
    {  # predicted on 2026-11-30 with e3b3cb8b and the table, before anything was corrected
        "dense": ("66", "17.5 %", "32.4 %", "81.9 %", "−0.8 %", "61 %", "± 75 %"),
        "experts": ("3", "67.1 %", "137.7 %", "293.4 %", "102.7 %", "33 %", "± 185 %"),
    },
    {  # predicted on 2026-11-30 with c222c75a and the table, before anything was corrected
        "dense": ("28", "13.3 %", "18.5 %", "44.3 %", "2.3 %", "61 %", "± 83 %"),
        "experts": ("9", "13.6 %", "16.1 %", "33.7 %", "−1.2 %", "100 %", "± 180 %"),
    },
)
FIRST_SCORES_OF_MLPERF = {  # benchmark, maker → results and mean error, before anything was corrected
    ("Llama 3.1 405B", "NVIDIA"): "2 | 6.7 %",
    ("Llama 3.1 8B", "NVIDIA"): "17 | 22.5 %",
    ("Llama 3.1 8B", "AMD"): "5 | 11.4 %",
    ("Llama 2 70B, LoRA", "NVIDIA"): "– | not predicted",
    ("Llama 2 70B, LoRA", "AMD"): "– | not predicted",
}
BENCHMARKS = {
    "llama31_405b": "Llama 3.1 405B",
    "llama31_8b": "Llama 3.1 8B",
    "llama2_70b_lora": "Llama 2 70B, LoRA",
}
BEST_OTHERS = {  # system and reference → the best other model on the same rows, as its authors print it
    ("perlmutter-a100-sxm4-80gb", "best"): "4.98 % (the paper's)",
    ("vista-gh200", "best"): "9.38 % (the paper's)",
    ("perlmutter-a100-sxm4-80gb", "mean"): "5.7 % (the paper's)",
    ("vista-gh200", "mean"): "19.3 % (the paper's)",
    ("korthikanti", "best"): "3.65 % (Calculon, fitted to them)",
}
MARKED = re.compile(r"(<!--=([\w.-]+)-->)(.*?)(<!--/=-->)", re.DOTALL)
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


suite_of = cache(validate_suite)  # other tests judge the same suites
functional_tests = cache(lambda: validate_runs(FUNCTIONAL))  # and the same tests of Megatron-LM


class Measured:
    """All measured runs; runs are predicted once for each choice of constants."""

    def __init__(self, published=None, development=None, collected=()):
        """Tables may be shared with other tests, so that nothing is predicted twice."""
        self.published = published or PublishedTables([PUBLISHED], together=True)
        self.development = development or PublishedTables([DEVELOPMENT])
        self.collected = collected or [PublishedTables([table]) for table in COLLECTED]

    @cached_property
    def mlperf(self):
        """Errors of results of MLPerf Training, by benchmark and maker; no constant is fitted on them."""
        found = {key: [] for key in FIRST_SCORES_OF_MLPERF}
        for row in PublishedTables([MLPERF]).judged().rows:
            maker = "AMD" if row.job.cluster.node.device.name.startswith("mi") else "NVIDIA"
            found[BENCHMARKS[row.run.id.rpartition("-")[2]], maker].append(abs(row.relative_error))
        return found

    def runs_of_users(self):
        """The runs of the development set and of the first four collections; no constant changes a memory.

        The intervals of the memory were fitted to them.
        """
        tables = (self.development, *self.collected[:4])
        return [row for table in tables for row in table.judged().rows]

    @cached_property
    def suites(self):
        """Every suite, without constants."""
        return {name: suite_of(name) for name in SUITES}

    @cached_property
    def suites_left_out(self):
        """Suites that no constant was fitted on, by the constants of the catalogue."""
        return {name: suite_of(name, "others") for name in SUITES if name != "korthikanti"}

    @cached_property
    def calibrated(self):
        """Every run of a machine, predicted after a calibration with others of it."""
        return calibrated(self.published.judged("others").rows)

    @cached_property
    def sweeps(self):
        """Sweeps of plans, by way of judging; suites are judged without constants."""
        found = {
            way: sweeps_of_runs(self.published.judged(way).rows) for way in ("catalogue", "others", "none")
        }
        of_suites = [each for name in ("headlines", "paper") for each in sweeps_of_suite(self.suites[name])]
        return found | {"none": (*found["none"], *of_suites)}


def pages(measured):
    """Text by path, of every page that a command prints."""
    folder = ROOT / "docs" / "accuracy"
    found = {
        folder / page: runs_as_markdown(measured.published.judged(way)) + "\n"
        for way, page in PAGES.items()
    }
    memory = {"memory": (validate_memory("memory"), {})}
    suites = [measured.suites[name] for name in SUITES]
    return found | {
        folder / "suites.md": suites_as_markdown(suites) + memory_as_markdown(memory),
        folder / "from-run.md": from_one_run_as_markdown(measured.calibrated) + "\n",
        folder / "constants.md": constants_as_markdown(shipped()),
        folder / "decisions.md": decisions_as_markdown(measured.sweeps) + "\n",
    }


def values(measured):
    """Return the text between each pair of marks, by name: tables, and single numbers in sentences."""
    found = {
        "summary": summary_table(measured),
        "suites": suites_table(measured),
        "published": published_table(measured),
        "hybrids": hybrids_table(measured),
        "development": development_table(measured),
        "decisions": decisions_table(measured),
        "mlperf": mlperf_table(measured),
    }
    for place, (table, first) in enumerate(zip(measured.collected, FIRST_SCORES_OF_COLLECTED, strict=True)):
        found[collection_of(place)] = collected_table(table, first)
        found[f"{collection_of(place)}-rows"] = str(len(table.judged("catalogue").rows))
    numbers = (
        blind_ranges,
        published_numbers,
        calibration_numbers,
        residuals,
        decision_numbers,
        memory_numbers,
    )
    for each in numbers:
        found |= each(measured)
    return found


def collection_of(place):
    """The name of a collection's marks: collected, collected-2, …"""
    return "collected" if place == 0 else f"collected-{place + 1}"


def percent(ratio, digits=1):
    """A ratio as the documentation writes it."""
    return f"{ratio:.{digits}%}".replace("%", " %")


def errors_of(rows):
    """Median, mean and p90 in one cell."""
    found = of_rows(rows)
    return ", ".join(percent(found[key]) for key in ("median", "mape", "p90"))


def of_family(rows, *families):
    """The rows of one family, or of several."""
    return [row for row in rows if row.family in families]


def blind_scores():
    """The first scores of each set of runs, in the order in which the sets were predicted."""
    ordinals = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
    scores = (FIRST_SCORES, *FIRST_SCORES_OF_COLLECTED)
    return dict(zip(re.findall(r"\w+", ordinals), scores, strict=True))


def blind_cell(score):
    """Return the first score of one family of models in a set, as a cell of the summary."""
    if score is None:
        return "–"
    inside = (
        "" if "(" in score[-1] else f", {score[5]} inside"
    )  # not known for each family of the first set
    return f"{score[1]}, {score[0]} runs{inside}"


def blind_ranges(_):
    """Return the smallest and the largest median error of the first predictions of all blind sets."""
    found = {}
    for family in ("dense", "experts"):
        scores = [scores[family][1] for scores in blind_scores().values() if family in scores]
        ends = [f(scores, key=lambda text: float(text.split()[0])) for f in (min, max)]
        found[f"blind.{family}"] = " to ".join(ends)
    return found


def summary_table(measured):
    """Return median errors, numbers of runs and fractions of runs inside their intervals.

    Of the blind sets, the table shows the first and the three latest.
    """
    lines = ["| | dense models | MoE models |", "|---|--:|--:|"]
    first, *others = blind_scores().items()
    for ordinal, scores in (first, *others[-3:]):
        cells = [blind_cell(scores.get(family)) for family in ("dense", "experts")]
        lines.append(f"| blind, {ordinal} set | {' | '.join(cells)} |")
    for way, told in (("others", "left out"), ("none", "never fitted"), ("catalogue", "fitted")):
        cells = []
        for family in ("dense", "experts"):
            members = of_family(measured.published.judged(way).rows, family)
            found = of_rows(members)
            inside = percent(found["coverage"], 0)
            cells.append(f"{percent(found['median'])}, {len(members)} runs, {inside} inside")
        lines.append(f"| {told} | {' | '.join(cells)} |")
    return "\n" + "\n".join(lines) + "\n"


def suites_table(measured):
    """A line for every system of every suite: nothing is pooled, nothing is left out."""
    left = {
        (entry["source"], entry["system"], entry["reference"]): entry
        for compared in measured.suites_left_out.values()
        for entry in by_source(compared.rows)
    }
    lines = [
        "| suite | system | rows | never fitted | left out | best other performance model |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for name, compared in measured.suites.items():
        for entry in by_source(compared.rows):
            key = (entry["source"], entry["system"], entry["reference"])
            other = BEST_OTHERS.get(key[1:], BEST_OTHERS.get((name, entry["reference"]), "–"))
            cells = [cell_of(entry), cell_of(left[key]) if key in left else "–"]
            system = f"{entry['system']}, {entry['reference']}" if name == "paper" else entry["system"]
            lines.append(f"| `{name}` | {system} | {entry['rows']} | {' | '.join(cells)} | {other} |")
    return "\n" + "\n".join(lines) + "\n"


def cell_of(entry):
    """Mean error, and how many rows lie inside of their interval."""
    return f"{percent(entry['mape'])}, {percent(entry['coverage'], 0)} inside"


def published_table(measured):
    """A line for each way of judging, and one of the baseline."""
    rows = measured.published.judged("catalogue").rows
    sizes = [len(of_family(rows, family)) for family in ("dense", "experts")]
    lines = [
        f"| | dense ({sizes[0]}) | inside, half-width | MoE models ({sizes[1]}) | inside,"
        " half-width | page |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for way, (told, option, page) in WAYS.items():
        judged = measured.published.judged(way).rows
        cells = []
        for family in ("dense", "experts"):
            members = of_family(judged, family)
            found = of_rows(members)
            inside = f"{percent(found['coverage'], 0)}, ± {percent(found['half_width_median'], 0)}"
            cells += [errors_of(members), inside]
        name = f"{told} (`{option}`)" if option else told
        lines.append(f"| {name} | {' | '.join(cells)} | {page or '–'} |")
    baseline = []
    for family in ("dense", "experts"):
        found = of_rows(of_family(rows, family))
        baseline += [f"{percent(found['trivial_median'])}, {percent(found['trivial_mape'])}, –", "–"]
    name = "baseline: time from FLOP, the pipeline bubble and the mean efficiency of similar runs"
    lines.append(f"| {name} | {' | '.join(baseline)} | – |")
    return "\n" + "\n".join(lines) + "\n"


def hybrids_table(measured):
    """A line for each way of judging runs of hybrids, on which no constant is fitted."""
    lines = ["| hybrids | median, mean, p90 | inside, half-width |", "|---|--:|--:|"]
    lines.append(f"| blind: first score, never fitted | {' | '.join(FIRST_SCORE_OF_HYBRIDS)} |")
    for way, told in (("none", "today, never fitted"), ("catalogue", "today, left out")):
        members = of_family(measured.published.judged(way).rows, "hybrids")
        found = of_rows(members)
        inside = f"{percent(found['coverage'], 0)}, ± {percent(found['half_width_median'], 0)}"
        lines.append(f"| {told} | {errors_of(members)} | {inside} |")
    return "\n" + "\n".join(lines) + "\n"


def development_table(measured):
    """Return the first score and the score of today of the runs that were used to improve the tool."""
    lines = [
        "| development runs | rows | median | mean | p90 | inside 90 % | half-width |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for family, (number, *cells) in FIRST_SCORES.items():
        lines.append(f"| {family}, blind: first score | {number} | {' | '.join(cells)} | – |")
    for way, told in (("catalogue", "today, left out"), ("none", "today, never fitted")):
        rows = measured.development.judged(way).rows
        for family in FIRST_SCORES:
            found = of_rows(of_family(rows, family))
            cells = [percent(found[key]) for key in ("median", "mape", "p90")]
            inside = percent(found["coverage"], 0), f"± {percent(found['half_width_median'], 0)}"
            lines.append(f"| {family}, {told} | {found['rows']} | {' | '.join([*cells, *inside])} |")
    return "\n" + "\n".join(lines) + "\n"


def collected_table(collected, first_scores):
    """Return the blind score of runs that were collected and predicted at once, and that of today."""
    lines = [
        "| collected runs | rows | median | mean | p90 | bias | inside 90 % | half-width |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for family, cells in first_scores.items():
        lines.append(f"| {family}, blind: first score | {' | '.join(cells)} |")
    for way, told in (("catalogue", "today, left out"), ("none", "today, never fitted")):
        rows = collected.judged(way).rows
        for family in first_scores:
            found = of_rows(of_family(rows, family))
            cells = [percent(found[key]) for key in ("median", "mape", "p90")]
            cells.append(f"{percent(found['bias'])}".replace("-", "−"))
            inside = percent(found["coverage"], 0), f"± {percent(found['half_width_median'], 0)}"
            lines.append(f"| {family}, {told} | {found['rows']} | {' | '.join([*cells, *inside])} |")
    return "\n" + "\n".join(lines) + "\n"


def mlperf_table(measured):
    """A line for each benchmark and maker of devices: the blind score and that of today."""
    lines = [
        "| results of MLPerf | rows, blind | mean error, blind | rows, now | mean error, development |",
        "|---|--:|--:|--:|--:|",
    ]
    for (benchmark, maker), errors in measured.mlperf.items():
        first = FIRST_SCORES_OF_MLPERF[benchmark, maker]
        today = f"{len(errors)} | {percent(statistics.mean(errors))}"
        lines.append(f"| {benchmark}, {maker} | {first} | {today} |")
    return "\n" + "\n".join(lines) + "\n"


def decisions_table(measured):
    """Sweeps of plans alone, by source: regret of all sweeps, and how often intervals of ratios hold."""
    lines = [
        "| source | sweeps | plans | mean regret | worst regret | baseline: mean regret"
        " | baseline: worst regret | measured ratios inside the 90 % interval |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    of_plans = [sweep for sweep in measured.sweeps["others"] if sweep.free == "plan"]
    each = {source: sweeps for (_, source), sweeps in by_question(of_plans).items()}
    for source, sweeps in (each | {"all": of_plans}).items():
        found = of_sweeps(sweeps)
        keys = ("mean_regret", "worst_regret", "trivial_mean_regret", "trivial_worst_regret")
        cells = [percent(found[key]) for key in keys]
        inside = f"{percent(found['covered'], 0)} of {found['pairs']}"
        lines.append(
            f"| {source} | {found['sweeps']} | {found['plans']} | {' | '.join(cells)} | {inside} |"
        )
    return "\n" + "\n".join(lines) + "\n"


def published_numbers(measured):
    """Single numbers of published and development runs."""
    rows = of_family(measured.published.judged("catalogue").rows, "dense", "experts")
    found = {
        "rows": str(len(rows)),
        "constants": str(len(shipped().constants)),
        "development-rows": str(len(measured.development.judged("catalogue").rows)),
        "baseline": percent(of_rows(rows)["trivial_mape"]),
    }
    for way in WAYS:
        judged = of_family(measured.published.judged(way).rows, "dense", "experts")
        found[f"{way}.mean"] = percent(of_rows(judged)["mape"])
        for family in ("dense", "experts"):
            found[f"{way}.{family}"] = percent(of_rows(of_family(judged, family))["median"])
            found[f"{way}.{family}.mean"] = percent(of_rows(of_family(judged, family))["mape"])
    development = measured.development.judged("catalogue").rows
    for family in ("dense", "experts"):
        of_this = of_rows(of_family(development, family))
        found[f"development.{family}"] = percent(of_this["median"])
        found[f"development.{family}.inside"] = percent(of_this["coverage"], 0)
    sources = {"trainium": "aws-neuron-trn1", "torchtune": "torchtune-readme", "pax": "jax-toolbox-pax"}
    sources["dgxc"] = "dgxc-gb200"
    left = measured.published.judged("others").rows
    for name, source in sources.items():
        found[f"others.{name}.mean"] = percent(
            of_rows([row for row in left if row.run.source == source])["mape"]
        )
    for entry in by_source(measured.suites["paper"].rows):
        system = "perlmutter" if entry["system"].startswith("perlmutter") else "vista"
        found[f"paper.{system}.{entry['reference']}"] = percent(entry["mape"])
    for name, compared in (
        ("sc21", measured.suites["sc21"]),
        ("sc21.left-out", measured.suites_left_out["sc21"]),
    ):
        sizes = [abs(row.relative_error) for row in compared.rows]
        found[name] = f"{percent(statistics.mean(sizes))} (largest: {percent(max(sizes))})"
    for way, compared in (("", measured.suites), (".left-out", measured.suites_left_out)):
        for system in ("selene-schedules", "selene-tradeoffs"):
            sizes = [abs(row.relative_error) for row in compared["headlines"].rows if row.system == system]
            found[f"{system}{way}"] = f"{percent(statistics.mean(sizes))} (largest: {percent(max(sizes))})"
    return found


@cache  # jobs on equal devices share what is known of their kernels
def without_clocks(device):
    """The device, on which matrix products run as fast for seconds as for milliseconds."""
    return device.model_copy(update={"sustained": device.sustained.model_copy(update={"ratio": 1.0})})


def without_sustained(job):
    """The job on a device whose matrix products run as fast for seconds as for milliseconds."""
    (group,) = job.cluster.groups
    node = group.node.model_copy(update={"device": without_clocks(group.node.device)})
    cluster = job.cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})
    return job.model_copy(update={"cluster": cluster})


def without_contention(job):
    """The job under a stack whose messages do not slow the compute that overlaps with them."""
    contention = job.stack.contention.model_copy(update={"kernel_share": 0.0})
    return job.model_copy(update={"stack": job.stack.model_copy(update={"contention": contention})})


def with_newest_attention(job):
    """The job under a stack that runs the newest kernels of attention, whatever its age."""
    return job.model_copy(update={"stack": job.stack.model_copy(update={"attention_generation": "newest"})})


TERMS = {
    "no sustained clocks": without_sustained,
    "no slowdown by collectives": without_contention,
    "newest attention": with_newest_attention,
}


def without_term(measured, changed):
    """Rows that were never fitted, those of jobs that a term is part of predicted without it."""
    step_time_s = cache(measured.published.step_time_s)  # of some jobs are several runs
    rows = []
    for row in measured.published.judged("none").rows:
        job = row.job.model_copy(update={"assumptions": ()})
        other = changed(job)
        again = row if other == job else replace(row, predicted_step_time_s=step_time_s(other, job))
        rows.append(again)
    return rows


def log_ratios(rows):
    """Bias and spread of ln(predicted / measured), as two cells."""
    logs = [math.log1p(row.relative_error) for row in rows]
    spread = percent(statistics.stdev(logs)) if len(logs) > 1 else "–"
    return [f"{statistics.mean(logs):+.1%}".replace("%", " %"), spread]


def residuals_table(found):
    """A line for each source, dense runs before experts, and one for all of a family.

    `found` holds rows by the name of two columns, of bias and of spread.
    """
    headings = " | ".join(f"{name}, bias | {name}, spread" for name in found)
    lines = [f"| source | runs | {headings} |", "|---|--:" + "|--:|--:" * len(found) + "|"]
    for family in ("dense", "experts"):
        kept = {name: of_family(rows, family) for name, rows in found.items()}
        sources = sorted({row.run.source for rows in kept.values() for row in rows})
        for source in (*sources, None):
            of_source = {
                name: [row for row in rows if source in (None, row.run.source)]
                for name, rows in kept.items()
            }
            cells = [cell for rows in of_source.values() for cell in log_ratios(rows)]
            number = len(next(iter(of_source.values())))
            name = f"{family}: {source}" if source else f"**{family}: all**"
            lines.append(f"| {name} | {number} | {' | '.join(cells)} |")
    return "\n" + "\n".join(lines) + "\n"


def releases_table(measured):
    """A line for each family: configurations of several releases, and those of one."""
    lines = [
        "| runs | one time for each configuration | never fitted | left out | fitted |",
        "|---|--:|--:|--:|--:|",
    ]
    ways = ("none", "others", "catalogue")
    for family in ("dense", "experts"):
        by_way = {way: of_family(measured.published.judged(way).rows, family) for way in ways}
        groups = {way: by_configuration(rows) for way, rows in by_way.items()}
        errors = {way: release_errors(groups[way]) for way in ways}
        best = [first for first, _ in errors["none"]]
        cells = [error_cell(best), *(error_cell([own for _, own in errors[way]]) for way in ways)]
        lines.append(f"| {family}: {len(best)} releases of repeated configurations | {' | '.join(cells)} |")
        single = {
            way: [row for group in groups[way] if not release_errors([group]) for row in group]
            for way in ways
        }
        cells = [error_cell([row.relative_error for row in single[way]]) for way in ways]
        lines.append(
            f"| {family}: {len(single['none'])} runs of other configurations | – | {' | '.join(cells)} |"
        )
    return "\n" + "\n".join(lines) + "\n"


def error_cell(errors):
    """Median, mean and p90 of absolute errors in one cell."""
    found = error_statistics(errors)
    return ", ".join(percent(found[key]) for key in ("median", "mape", "p90"))


def sites_table(sites):
    """A line for each family and for what no fitted run shows of a site (catalog/constants/sites.json)."""
    lines = [
        "| what is unknown | sources, runs | measurements in the 90 % interval without `unknown_site` "
        "(slower, faster than the interval) | sigma of faster, slower sites | measurements in the 90 % "
        "interval with sigmas that were fitted to other sources |",
        "|---|--:|--:|--:|--:|",
    ]
    levels = {one.name: one.level for one in fit_sites(sites)}
    for kind in sorted(
        {(site.family, site.unknowns) for site in sites}, key=lambda kind: (kind[0], len(kind[1]))
    ):
        family, unknown = kind
        members = [site for site in sites if (site.family, site.unknowns) == kind]
        gaps, own = (
            np.concatenate([getattr(site, name) for site in members])
            for name in ("log_gap_factors", "log_sigma_factors")
        )
        beyond = [f"{np.mean(side * gaps > REACH * own):.0%}" for side in (1, -1)]
        inside = f"{np.mean(np.abs(gaps) <= REACH * own):.0%} ({', '.join(beyond)})"
        sides = sides_text(unknown, family, levels)
        held = np.concatenate([in_wide_interval(site, sites) for site in members])
        cells = f"{len(members)}, {gaps.size} | {inside} | {sides} | {np.mean(held):.0%}"
        lines.append(f"| {family}: {UNKNOWN[unknown]} | {cells} |".replace("%", " %"))
    return "\n" + "\n".join(lines) + "\n"


def sides_text(unknown, family, levels):
    """The sigmas of faster and slower sites, and those with narrow experts where they differ."""
    wide, narrow = (
        ", ".join(
            f"{sigma:.2g}"
            for sigma in site_log_sigmas(dict.fromkeys(unknown, 1.0) | {NARROW: fraction}, family, levels)
        )
        for fraction in (0.0, 1.0)
    )
    return wide if wide == narrow else f"{wide}; with narrow experts {narrow}"


def in_wide_interval(site, sites):
    """Whether each run of a site is in the interval with sigmas that were fitted to other sources."""
    levels = levels_without(site.source, tuple(sites))
    own = np.array(site.log_sigma_factors)
    sides = np.transpose([site_log_sigmas(run, site.family, levels) for run in site.fractions()])
    low, high = (REACH * np.hypot(own, sigma) for sigma in sides)
    gaps = np.array(site.log_gap_factors)
    return (-low <= gaps) & (gaps <= high)


def residuals(measured):
    """Tables of residuals by way of judging, and before and after each term that can be switched."""
    rows = {way: measured.published.judged(way).rows for way in ("none", "others", "catalogue")}
    by_way = {"never fitted": rows["none"], "left out": rows["others"], "fitted": rows["catalogue"]}
    by_term = {name: without_term(measured, changed) for name, changed in TERMS.items()}
    by_term["all effects"] = rows["none"]
    return {
        "residuals": residuals_table(by_way),
        "residuals.terms": residuals_table(by_term),
        "residuals.releases": releases_table(measured),
        "residuals.sites": sites_table(shipped().sites),
    }


def calibration_numbers(measured):
    """By how much the mean error of a run falls after a calibration with others of its machine."""
    guesses = measured.calibrated
    alike = [guess for guess in guesses["one"] if guess.moved_share < 0.1]
    found = {}
    for way, members in {"alike": alike, "others": guesses["others"]}.items():
        for family in ("dense", "experts"):
            told = statistics_of([guess for guess in members if guess.row.family == family])
            found[f"calibrated.{way}.{family}"] = percent(1 - told["mean_after"] / told["mean_before"], 0)
    return found


def decision_numbers(measured):
    """Single numbers of decisions: plans alone, judged by constants of the other sources."""
    sweeps = [sweep for sweep in measured.sweeps["others"] if sweep.free == "plan"]
    trivial = [sweep.trivial_regret_ratio for sweep in sweeps]
    pairs = [sweep.pairs for sweep in sweeps]
    covered = sum(pair.covered for pair in pairs) / sum(pair.number for pair in pairs)
    return {
        "sweeps": str(len(sweeps)),
        "sweeps.plans": str(sum(len(sweep.choices) for sweep in sweeps)),
        "regret.mean": percent(statistics.mean(sweep.regret_ratio for sweep in sweeps)),
        "regret.worst": percent(max(sweep.regret_ratio for sweep in sweeps)),
        "regret.baseline": percent(statistics.mean(trivial)),
        "regret.baseline.worst": percent(max(trivial)),
        "ratios.inside": percent(covered, 0),
    }


def memory_numbers(measured):
    """Single numbers of memory."""
    found = {
        "memory.peaks": percent(
            statistics.mean(abs(row.relative_error) for row in validate_memory("memory"))
        )
    }
    if FUNCTIONAL.is_file() and holds_functional_tests(FUNCTIONAL):
        compared, _ = functional_tests()
        sizes = sorted(abs(row.relative_error) for row in compared)
        found |= {
            "memory.steps": str(len(sizes)),
            "memory.steps.median": percent(statistics.median(sizes), 2),
            "memory.steps.p90": percent(sizes[int(0.9 * len(sizes))]),
        }
    printed = [row for row in measured.published.judged("none").rows if row.memory_error is not None]
    other = [abs(row.memory_error) for row in printed if row.run.source != "simumax-b200"]
    table = replace(memory_table(measured.runs_of_users()), title="", caption="")
    return found | {
        "memory.published": percent(max(other)) if other else "–",
        "memory.development": as_markdown("", {}, [table]).strip().join("\n\n"),
    }


def filled(text, found):
    """Return a text with today's values between its marks."""
    return MARKED.sub(lambda mark: f"{mark[1]}{found[mark[2]]}{mark[4]}", text)


def write(measured):
    """Write every generated page, and update the marked values in every text."""
    for path, text in pages(measured).items():
        path.write_text(text, encoding="utf-8")
    found = values(measured)
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        if MARKED.search(text):
            path.write_text(filled(text, found), encoding="utf-8")


if __name__ == "__main__":
    collect_rarely()
    write(Measured())
    sys.stdout.write("written: compare with git diff\n")
