"""A score as JSON, as text, and as the page docs/accuracy/kernels.md.

Answers: how is a score shown, next to the scores of other models on the same measurements?
Elsewhere: what the numbers mean (lab/calibration/score.py), the texts of the page (texts/). For comparison,
we trained two other models on the same files (data/operators): random forests that predict the time, as in
arXiv:2509.22832, and boosted trees that predict log(time / bound). We scored both once, over 72 pairs of
operator and pass. These models and flopcast exclude different rows as broken, so small differences mean
nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

import numpy as np

from flopcast.lab.calibration.score import Result, Score
from flopcast.lab.calibration.splits import EXTRAPOLATION, RANDOM, SPLITS, UNSEEN
from flopcast.render.plain_data import FORMAT_VERSION
from flopcast.render.tables import markdown_rows, texts_of

KEYS = {"mean_error": "mape", "median_error": "median", "p90_error": "p90", "coverage_share": "coverage"}
OTHERS = {  # mean absolute percentage errors by split
    "random forests: mean error": {RANDOM: 0.060, UNSEEN: 0.115, EXTRAPOLATION: 0.442},
    "boosted trees: mean error": {RANDOM: 0.023, UNSEEN: 0.028, EXTRAPOLATION: 0.072},
}
TEXTS = texts_of("kernel_scores")


def as_json(score: Score) -> dict[str, object]:
    """Return JSON data: one object each for results, noise and rejected rows, and the added sigmas."""
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
    tables = [_classes(score, measured) for measured in TEXTS["classes"]]
    sections = (_summary(score), *tables, _sources(score), _steps(score), _left_out(score))
    return "\n".join(line for section in sections for line in section) + "\n"


def _summary(score: Score) -> Iterator[str]:
    """Yield the introduction of the page, and the mean over classes compared with published results."""
    headings = ("rows left out of the fit", "classes", "mean error", "median error", "inside 90 %", *OTHERS)
    means = mean_by_split(score.results)
    shown = {split: f"{means[split]['mape']:.1%}" if split in means else "–" for split in SPLITS}
    rows = [
        (
            f"{split}: {TEXTS['splits'][split]}",
            mean["classes"],
            *(f"{mean[key]:.1%}" for key in ("mape", "median")),
            f"{mean['coverage']:.0%}",
            *(f"{errors[split]:.1%}" if split in errors else "" for errors in OTHERS.values()),
        )
        for split, mean in means.items()
    ]
    lines = markdown_rows(headings, rows, "<>>>>" + ">" * len(OTHERS))
    yield from (TEXTS["head"].format(**shown), "", *lines, TEXTS["beside"])


def _classes(score: Score, measured: str) -> Iterator[str]:
    """Yield one line per class and device: its error in every split, coverage, and the noise floor."""
    noise = {(n.device, n.kernel_class): f"{n.mean_error:.1%}" for n in score.noise if n.among == "rows"}
    results = [result for result in score.results if result.measured == measured]
    splits = [split for split in SPLITS if any(result.split == split for result in results)]
    if not results:
        return
    rows = []
    for key in dict.fromkeys((r.device, r.kernel_class) for r in results):
        by_split = {r.split: r for r in results if (r.device, r.kernel_class) == key}
        cells = [_cell(by_split[s], measured) if s in by_split else "" for s in splits]
        rows.append((*key, max(each.rows for each in by_split.values()), noise.get(key, ""), *cells))
    headings = ("device", "class", "rows", "noise", *splits)
    yield from (TEXTS["classes"][measured], *markdown_rows(headings, rows, "<<>>" + ">" * len(splits)))


def _cell(result: Result, measured: str) -> str:
    error = result.mean_error if measured == "operators" else result.median_error
    return f"{error:.1%} ({result.coverage_share:.0%})"


def _sources(score: Score) -> Iterator[str]:
    """Yield how two sources of one device differ on equal shapes: the noise between machines."""
    apart = [n for n in score.noise if n.among != "rows"]
    if not apart:
        return
    rows = [(n.device, n.kernel_class, n.among, n.rows, f"{n.mean_error:.1%}") for n in apart]
    headings = ("device", "class", "source", "shapes", "median difference")
    yield from (TEXTS["sources"], *markdown_rows(headings, rows, "<<<>>"))


def _steps(score: Score) -> Iterator[str]:
    """Yield the sigmas that are added where a curve is used outside its measurements."""
    rows = [(name, f"{sigma:.3f}") for name, sigma in score.added.items()]
    headings = ("use of a curve, group of classes", "log-sigma")
    yield from (TEXTS["sigmas"], *markdown_rows(headings, rows, "<>"))


def _left_out(score: Score) -> Iterator[str]:
    """Yield each reason for which rows were left out, with the number of rows of each class."""
    by_reason: dict[str, dict[str, int]] = {}
    for each in score.rejected:
        classes = by_reason.setdefault(each.because, {})
        classes[each.kernel_class] = classes.get(each.kernel_class, 0) + each.rows
    rows = [
        (reason, sum(classes.values()), ", ".join(f"`{name}` {rows}" for name, rows in classes.items()))
        for reason, classes in by_reason.items()
    ]
    headings = ("reason", "rows", "rows of each class")
    yield from (TEXTS["left_out"], "", *markdown_rows(headings, rows, "<><"))
