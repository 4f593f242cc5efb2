"""How good the curves are: errors on rows that were not fitted, coverage, and the noise below them.

Answers: how far off is each kernel class on rows like those fitted, on a model of another width, on more
work than was measured, on another device; did the nominal 90 % interval hold 90 %; which sigmas make it?
Elsewhere: who is judged (subjects.py), which rows are kept aside (splits.py), sigmas and noise
(conformal.py), tables and pages (score_text.py).

A curve is fitted to the rows that a split leaves, by the code that fits the shipped curves, and predicts
the others by the code that prices them. The sigma that judges coverage never saw what it judges:

- random: rows kept aside give the class' sigma, half of them for the other half;
- unseen: the sigma is that of the random rows;
- extrapolation, other device: a step is added in quadrature, the same for all classes, from the other
  classes; on another device, from the other devices where there are three or more.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flopcast.calibration.conformal import Judged, added_log_sigma, covered, log_sigma, noise, noise_between
from flopcast.calibration.fit import MOST_NODES, curve_of_table, rows_of
from flopcast.calibration.samples import Samples
from flopcast.calibration.splits import EXTRAPOLATION, FIRST, OTHER_DEVICE, RANDOM, Split, splits_of
from flopcast.calibration.subjects import GRADIENTS, Rejected, Subject, bound, gradients_of
from flopcast.calibration.table import Rows, fit_once, monotone
from flopcast.cost.kernels.curve import Curve, Evidence
from flopcast.cost.price import kernel_seconds
from flopcast.dtypes import Floats, Logs

MOST_SIZES = {1: 4, 2: 4, 3: 2}  # sizes left out in turn, by axes: three axes take seconds a fit
COLLECTIVE_NODES = (9, 4, 4)
Say = Callable[[str], None]
Key = tuple[str, str]  # owner, kernel class
Curves = dict[Key, dict[str, Curve]]  # by the label of the split whose test rows were left out


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One class on one owner under one split; errors are |predicted / measured - 1|.

    `coverage_share` is the share of rows inside their nominal 90 % interval, `log_sigma_factor` what that
    interval rests on.
    """

    kernel_class: str
    device: str
    precision: str
    split: str
    rows: int
    mean_error: float
    median_error: float
    p90_error: float  # nine tenths of the rows are at most so far off
    coverage_share: float
    log_sigma_factor: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """How far rows of equal shape lie apart, mean |log ratio|; `among` rows, or the means of sources."""

    kernel_class: str
    device: str
    precision: str
    rows: int
    mean_error: float
    among: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """All results; `added` holds the log-sigmas to add where a curve is used outside of its rows."""

    results: tuple[Result, ...]
    noise: tuple[Noise, ...]
    rejected: tuple[Rejected, ...]
    added: Mapping[str, float]  # by step: of kernels, of messages, to another device


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Errors:
    """log(predicted / measured) of the rows kept aside, and the sigma of the curve that predicted them."""

    subject: Subject
    split: str
    log_errors: Logs
    log_sigma_factor: float


def score(subjects: Sequence[Subject], rejected: Sequence[Rejected], say: Say) -> Score:
    """Judge every subject; those of one owner and class must be one subject.

    Parameters
    ----------
    rejected : what was left out of the subjects, handed on
    say : receives one line for each class
    """
    curves: Curves = {}
    errors: list[_Errors] = []
    for subject in sorted(subjects, key=lambda s: s.name == GRADIENTS):
        errors += _own_errors(subject, curves)
        say(f"{subject.owner} {subject.name}: {len(subject.samples.measured_s)} rows")
    errors += _foreign_errors(subjects, curves, errors)
    return Score(
        results=tuple(sorted((_result(e, errors) for e in errors), key=_order)),
        noise=tuple(n for subject in subjects for n in _noises(subject)),
        rejected=tuple(rejected),
        added={
            "extrapolated kernel": _added(errors, EXTRAPOLATION, kernels=True),
            "extrapolated message": _added(errors, EXTRAPOLATION, kernels=False),
            "other device": _added(errors, OTHER_DEVICE, kernels=True),
        },
    )


def _added(errors: Sequence[_Errors], split: str, kernels: bool) -> float:
    """The step of one split, from all kernels, or all messages."""
    alike = [e for e in errors if e.split == split and (e.subject.device is not None) == kernels]
    return added_log_sigma([_judged(e) for e in alike])


def _order(result: Result) -> Key:
    """Results by owner and class; the splits of a class stay in their order."""
    return result.device, result.kernel_class


def _own_errors(subject: Subject, curves: Curves) -> Iterator[_Errors]:
    """Errors of a subject under each kind of split that its own rows allow; curves are kept.

    All left-out sizes are one result. The random rows' sigma goes with every split.
    """
    samples = subject.samples
    by_kind: dict[str, list[Logs]] = defaultdict(list)
    for split in splits_of(samples, MOST_SIZES[min(3, len(samples.coordinates))]):
        curve = _curve_of(subject, samples, split, curves)
        if curve is not None:
            curves.setdefault((subject.owner, subject.name), {})[split.label] = curve
            by_kind[split.kind].append(log_errors(subject, samples.part(split.test), curve))
    sigma = log_sigma(np.concatenate(by_kind[RANDOM])) if RANDOM in by_kind else 0.0
    for kind, parts in by_kind.items():
        yield _Errors(subject=subject, split=kind, log_errors=np.concatenate(parts), log_sigma_factor=sigma)


def _curve_of(subject: Subject, samples: Samples, split: Split, curves: Curves) -> Curve | None:
    """The curve without the rows kept aside; for gradients, the products' curve of the same split.

    None where the products were not split in this manner.
    """
    fitted = samples.part(~split.test)
    if subject.name != GRADIENTS:
        return fit_quickly(subject, fitted)
    products = curves.get((subject.owner, "gemm"), {}).get(split.label)
    return None if products is None else with_ratio(subject, fitted, products)


def with_ratio(subject: Subject, samples: Samples, products: Curve) -> Curve:
    """A curve of products with the one ratio of gradients to forwards that these samples show."""
    plain = replace(products, layout_ratio={})
    ratio = float(np.exp(-np.median(log_errors(subject, samples, plain))))
    return replace(products, layout_ratio={"input_gradient": ratio, "weight_gradient": ratio})


def fit_quickly(subject: Subject, samples: Samples) -> Curve:
    """The curve of some rows, as fit.py makes it, without the five fits that give its error."""
    if subject.device is not None:
        rows, names = rows_of(samples, subject.device)
        return curve_of_table(samples, subject.device, fit_once(rows, MOST_NODES[len(rows.log2)]), names)
    launch_s = 0.5 * float(samples.measured_s.min()) if subject.own_latency else 0.0
    table = fit_once(_messages(samples, launch_s), COLLECTIVE_NODES)
    return Curve(
        name=samples.name,
        owner=subject.owner,
        axes=table.axes,
        table=monotone(table.log_efficiency, table.axes, (1.0, None, None)),
        launch_s=launch_s,
        evidence=Evidence(
            source=samples.source, rows=len(samples.measured_s), rejected=0, relative_error=0.0
        ),
    )


def _messages(samples: Samples, launch_s: float) -> Rows:
    """Messages as the rows of a fit: no terms, a latency taken off."""
    return Rows(
        log2=np.log2(samples.coordinates),
        log_efficiency=np.log(samples.bound_s / (samples.measured_s - launch_s)),
        terms=np.zeros((len(samples.measured_s), 0)),
    )


def log_errors(subject: Subject, samples: Samples, curve: Curve) -> Logs:
    """log(predicted / measured) of samples, (rows,), by the code that prices kernels."""
    multiprocessors = subject.device.multiprocessors if subject.device else 1
    if subject.name == GRADIENTS and subject.device is not None:
        predicted_s: Floats = np.zeros(samples.measured_s.shape)
        for part, layout in zip(gradients_of(samples), ("input_gradient", "weight_gradient"), strict=True):
            shape = tuple(axis.ravel() for axis in part.coordinates())
            bound_s = bound(part, subject.device)
            predicted_s = predicted_s + kernel_seconds(bound_s, shape, curve, multiprocessors, layout)
    else:
        shape = tuple(samples.coordinates)
        predicted_s = kernel_seconds(samples.bound_s, shape, curve, multiprocessors)
    return np.asarray(np.log(predicted_s / samples.measured_s))


def _foreign_errors(
    subjects: Sequence[Subject], curves: Curves, own: Sequence[_Errors]
) -> Iterator[_Errors]:
    """Errors of every device's rows by the curve of its nearest measured relative.

    Where no relative has the class, the first other device that has it lends its curve. The lender's
    sigma is that of its own random rows.
    """
    sigmas = {(e.subject.owner, e.subject.name): e.log_sigma_factor for e in own if e.split == RANDOM}
    for subject in subjects:
        if subject.device is None:
            continue
        others = [s.owner for s in subjects if s.device and s.owner != subject.owner]
        for owner in (*subject.device.relatives, *others):
            lent = curves.get((owner, subject.name), {}).get(FIRST)
            if lent is not None:
                found = log_errors(subject, subject.samples, lent)
                sigma = sigmas[owner, subject.name]
                yield _Errors(subject=subject, split=OTHER_DEVICE, log_errors=found, log_sigma_factor=sigma)
                break


def _judged(errors: _Errors) -> Judged:
    return Judged(log_errors=errors.log_errors, log_sigma_factor=errors.log_sigma_factor)


def _result(judged: _Errors, errors: Sequence[_Errors]) -> Result:
    """Sizes of the errors, and coverage by a sigma from other rows."""
    subject, relative = judged.subject, np.abs(np.expm1(judged.log_errors))
    coverage, sigma = _coverage(judged, errors)
    return Result(
        kernel_class=subject.name,
        device=subject.owner,
        precision=subject.precision,
        split=judged.split,
        rows=len(relative),
        mean_error=float(relative.mean()),
        median_error=float(np.median(relative)),
        p90_error=float(np.quantile(relative, 0.9)),
        coverage_share=coverage,
        log_sigma_factor=sigma,
    )


def _coverage(judged: _Errors, errors: Sequence[_Errors]) -> tuple[float, float]:
    """The share inside, and the sigma: see the head of this file."""
    own = judged.log_sigma_factor
    if judged.split == RANDOM:
        halves = judged.log_errors[::2], judged.log_errors[1::2]
        inside = [covered(one, log_sigma(other)) for one, other in (halves, halves[::-1])]
        return float(np.mean(inside)), own
    if judged.split in (EXTRAPOLATION, OTHER_DEVICE):
        own = float(np.hypot(own, added_log_sigma([_judged(e) for e in _others(judged, errors)])))
    return covered(judged.log_errors, own), own


def _others(judged: _Errors, errors: Sequence[_Errors]) -> list[_Errors]:
    """Errors of the same split and kind of owner that say nothing of the judged rows.

    Those of other classes, whatever the device; on another device, of other devices, if there are two.
    """
    alike = [
        e
        for e in errors
        if e.split == judged.split and (e.subject.device is None) == (judged.subject.device is None)
    ]
    apart = [e for e in alike if e.subject.owner != judged.subject.owner]
    if judged.split == OTHER_DEVICE and len({e.subject.owner for e in apart}) >= 2:
        return apart
    return [e for e in alike if e.subject.name != judged.subject.name]


def _noises(subject: Subject) -> Iterator[Noise]:
    """Among all rows of a class, and among its sources where it has several."""
    samples = subject.samples
    by_source: dict[str, list[Samples]] = defaultdict(list)
    for part in subject.parts:
        by_source[part.source].append(part)
    found = {"rows": noise(samples.coordinates, samples.measured_s)}
    if len(by_source) > 1:
        found["sources"] = noise_between(
            [
                (
                    np.concatenate([p.coordinates for p in parts], axis=1),
                    np.concatenate([p.measured_s for p in parts]),
                )
                for parts in by_source.values()
            ]
        )
    for among, (rows, apart) in found.items():
        if rows:
            yield Noise(
                kernel_class=subject.name,
                device=subject.owner,
                precision=subject.precision,
                rows=rows,
                mean_error=apart,
                among=among,
            )
