"""A score as JSON, as text, and as the page docs/accuracy/kernels.md.

Answers: how is a score shown, beside what others reach on the same measurements?
Elsewhere: what the numbers mean (lab/calibration/score.py). The two models beside ours learn from the same
files (data/operators): random forests on the raw time, as arXiv:2509.22832 does, and boosted trees on
log(time / bound), both measured by us once, over 72 pairs of operator and pass; their rows marked broken
are not the same as ours, so the comparison is of sizes, not of decimals.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

import numpy as np

from flopcast.lab.calibration.score import Result, Score
from flopcast.lab.calibration.splits import (
    EXTRAPOLATION,
    OTHER_DEVICE,
    OTHER_SOURCE,
    RANDOM,
    SPLITS,
    UNSEEN,
)
from flopcast.render.plain_data import FORMAT_VERSION

KEYS = {"mean_error": "mape", "median_error": "median", "p90_error": "p90", "coverage_share": "coverage"}
OTHERS = {  # mean absolute percentage errors by split
    "random forests: mean error": {RANDOM: 0.060, UNSEEN: 0.115, EXTRAPOLATION: 0.442},
    "boosted trees: mean error": {RANDOM: 0.023, UNSEEN: 0.028, EXTRAPOLATION: 0.072},
}
MEANING = {
    RANDOM: "a random fifth of the rows",
    UNSEEN: "all rows with one hidden size, for several hidden sizes in turn",
    EXTRAPOLATION: "the 30 % of the rows with the largest sizes",
    OTHER_SOURCE: "all rows of a second source for the device, predicted by the curve of the first source",
    OTHER_DEVICE: "all rows of a device, predicted by the curve of another device",
}

HEAD = """# Kernels: errors on measurements that the curves were not fitted to

This page shows how well flopcast predicts the times of single kernels and collectives. A *class* is a
kind of kernel, such as `gemm`. A *curve* is fitted to the benchmarks of one class on one device, and
predicts the time of kernels of every size. To measure the errors on this page, we left rows of the
benchmark tables out of the fit and then predicted the times in these rows. `flopcast calibrate score
--markdown` prints this page. It reads data/operators (benchmarks on A100 and GH200), data/peers
(benchmarks by other projects on 16 more devices) and tables of collectives.

The first table compares five ways to choose the rows that are left out. The error of a row is
|predicted / measured - 1|. The table shows the mean and the median of the errors in a class, averaged
over the classes and devices of data/operators. *inside 90 %* is the fraction of the measurements that lie
in their 90 % interval. The estimate of the intervals also excluded the rows that were left out."""
BESIDE = """
For comparison, we trained two other models on the same tables. The random forests predict the time, as
in arXiv:2509.22832. The boosted trees predict log(time / bound), where the bound is the time at the peak
rates of the device. The training data of both models include some rows that flopcast excludes."""
CLASSES = {
    "operators": """
## Classes of data/operators

The first table of this page explains the columns *random* to *other_device*. Each cell shows the mean
error and, in brackets, the fraction of the measurements inside the 90 % interval. *noise* is the mean
difference between repeated measurements of the same shape.
""",
    "peers": """
## Classes of data/peers

Each cell shows the median error and, in brackets, the fraction of the measurements inside the 90 %
interval. We use the median because these tables contain outliers, and shapes that never occur in
training.
""",
    "collectives": """
## Collectives

Each cell shows the median error for messages of 512 bytes to several gigabytes and, in brackets, the
fraction of the measurements inside the 90 % interval.
""",
}
SOURCES = """
## Comparison of sources

For some devices, two sources measured the same class at equal or similar shapes. The table shows the
median difference between the times of the two sources. If this difference is more than 5 %, flopcast
uses only the first source; the column *source* names the second one.

| device | class | source | shapes | median difference |
|---|---|---|--:|--:|"""
SIGMAS = """
## Sigmas

The uncertainty of a class is its *log-sigma*: the 90 % quantile of |log(predicted / measured)|, divided
by 1.645. flopcast computes the log-sigma once for the *random* and once for the *unseen* rows, and uses
the larger value. For sizes outside the measured range (*extrapolation*) and for other devices, flopcast
adds a log-sigma from the next table in quadrature. With these log-sigmas, 90 % of the measurements of a
group of classes lie inside their 90 % interval (`cost/kernels/classes.py`). The rows `other_source` state
the uncertainty of the [constant](constants.md) `in_training_derate` for frameworks to whose runs it was
not fitted (catalog/stacks/megatron-core.yaml). In the table, *products* are GEMMs: *grouped* for experts,
*narrow* in 8 or 4 bits, *served* in serving engines.
"""
LEFT_OUT = """
## Rows left out

The fit of curves excludes the rows in this table. The README of the data set (`shared/data/README.md`)
describes the numbered defects."""


def as_json(score: Score) -> dict[str, object]:
    """Return JSON data: results, noise and rejected rows, one object each; the added sigmas."""
    return {
        "format_version": FORMAT_VERSION,
        "results": [_named(asdict(result)) for result in score.results],
        "noise": [_named(asdict(noise)) for noise in score.noise],
        "rejected": [asdict(rejected) for rejected in score.rejected],
        "added_log_sigma_factors": dict(score.added),
    }


def _named(entry: Mapping[str, object]) -> dict[str, object]:
    """Return an entry under common names: mape for the mean, coverage."""
    return {KEYS.get(name, name): value for name, value in entry.items()}


def mean_by_split(results: Iterable[Result]) -> dict[str, dict[str, float]]:
    """Return errors and coverage over the classes of data/operators and their devices, weighted equally.

    Collectives and measurements of other projects are left out, because the other models were not trained
    on them.
    """
    kernels = [result for result in results if result.measured == "operators"]
    by_split = {split: [r for r in kernels if r.split == split] for split in SPLITS}
    return {
        split: {
            "classes": len(members),
            "mape": float(np.mean([r.mean_error for r in members])),
            "median": float(np.mean([r.median_error for r in members])),
            "coverage": float(np.mean([r.coverage_share for r in members])),
        }
        for split, members in by_split.items()
        if members
    }


def as_text(score: Score) -> str:
    """Return two tables as text: means by split, then every class."""
    lines = [f"{'split':16} {'classes':>7} {'error':>6} {'median':>6} {'inside':>6}"]
    for split, mean in mean_by_split(score.results).items():
        lines.append(
            f"{split:16} {mean['classes']:7} {mean['mape']:6.1%} {mean['median']:6.1%}"
            f" {mean['coverage']:6.0%}"
        )
    lines += ["", f"{'device':20} {'class':32} {'split':14} {'rows':>6}  error median    p90 inside"]
    for r in score.results:
        lines.append(
            f"{r.device:20} {r.kernel_class:32} {r.split:14} {r.rows:6} {r.mean_error:6.1%}"
            f" {r.median_error:6.1%} {r.p90_error:6.1%} {r.coverage_share:6.0%}"
        )
    return "\n".join(lines)


def as_markdown(score: Score) -> str:
    """Return the page docs/accuracy/kernels.md."""
    tables = [_classes(score, measured) for measured in CLASSES]
    sections = (_summary(score), *tables, _sources(score), _steps(score), _left_out(score))
    return "\n".join(line for section in sections for line in section) + "\n"


def _summary(score: Score) -> Iterator[str]:
    """Yield the introduction of the page, and the mean over classes compared with published results."""
    yield HEAD
    yield ""
    yield (
        "| rows left out of the fit | classes | mean error | median error | inside 90 % | "
        + " | ".join(OTHERS)
        + " |"
    )
    yield "|---|--:|--:|--:|--:|" + "--:|" * len(OTHERS)
    for split, mean in mean_by_split(score.results).items():
        theirs = [f"{errors[split]:.1%}" if split in errors else "" for errors in OTHERS.values()]
        yield (
            f"| {split}: {MEANING[split]} | {mean['classes']} | {mean['mape']:.1%} | {mean['median']:.1%} |"
            f" {mean['coverage']:.0%} | " + " | ".join(theirs) + " |"
        )
    yield BESIDE


def _classes(score: Score, measured: str) -> Iterator[str]:
    """Yield one line per class and device: its error in every split, coverage, and the noise floor."""
    noise = {(n.device, n.kernel_class): n.mean_error for n in score.noise if n.among == "rows"}
    results = [result for result in score.results if result.measured == measured]
    splits = [split for split in SPLITS if any(result.split == split for result in results)]
    if not results:
        return
    yield CLASSES[measured]
    yield "| device | class | rows | noise | " + " | ".join(splits) + " |"
    yield "|---|---|--:|--:|" + "--:|" * len(splits)
    for device, name in dict.fromkeys((r.device, r.kernel_class) for r in results):
        by_split = {r.split: r for r in results if (r.device, r.kernel_class) == (device, name)}
        cells = [_cell(by_split[s], measured) if s in by_split else "" for s in splits]
        floor = f"{noise[device, name]:.1%}" if (device, name) in noise else ""
        rows = max(result.rows for result in by_split.values())
        yield f"| {device} | {name} | {rows} | {floor} | " + " | ".join(cells) + " |"


def _cell(result: Result, measured: str) -> str:
    error = result.mean_error if measured == "operators" else result.median_error
    return f"{error:.1%} ({result.coverage_share:.0%})"


def _sources(score: Score) -> Iterator[str]:
    """Yield how two sources of one device differ on equal shapes: the noise between machines."""
    apart = [n for n in score.noise if n.among != "rows"]
    if not apart:
        return
    yield SOURCES
    for n in apart:
        yield f"| {n.device} | {n.kernel_class} | {n.among} | {n.rows} | {n.mean_error:.1%} |"


def _steps(score: Score) -> Iterator[str]:
    """Yield the sigmas that are added where a curve is used outside its measurements."""
    yield SIGMAS
    yield "| use of a curve, group of classes | log-sigma |"
    yield "|---|--:|"
    yield from (f"| {name} | {sigma:.3f} |" for name, sigma in score.added.items())


def _left_out(score: Score) -> Iterator[str]:
    """Yield broken rows with their reasons."""
    yield LEFT_OUT
    yield from ("", "| device | class | rows | reason |", "|---|---|--:|---|")
    yield from (f"| {r.device} | {r.kernel_class} | {r.rows} | {r.because} |" for r in score.rejected)
