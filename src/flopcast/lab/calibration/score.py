"""Accuracy of the curves: errors on rows that were not fitted, coverage, and the noise of measurements.

Answers: how large is the error of each kernel class on rows like the fitted ones, on a model of another
width, on more work than was measured, and on another device? Did the nominal 90 % interval contain 90 % of
the rows, and which sigmas achieve this?
Elsewhere: the scored curves (subjects.py), the rows that are left out (splits.py), sigmas and noise
(conformal.py), tables and pages (render/kernel_scores.py).

The code that fits the shipped curves fits a curve to the rows that a split keeps. The code that prices
kernels then predicts the other rows. The sigma that determines the coverage is independent of the rows on
which it is tested:

- random: the sigma of the class comes from left-out rows; each half of them tests the sigma of the other
  half;
- unseen: the sigma of one size comes from the other sizes, or from the random rows if that sigma is larger;
- extrapolation, other source, other device: a sigma from the other devices or fabrics is added in
  quadrature; it is the same for all classes of a kind (cost/kernels/classes.py).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from flopcast.cost.kernels.curve import Curve
from flopcast.cost.kernels.curve_conversion import converted_times
from flopcast.cost.kernels.roofline import bound_seconds
from flopcast.cost.kernels.unscaled import kernel_seconds
from flopcast.dtypes import Floats, Logs
from flopcast.lab.calibration.conformal import added_log_sigma, covered, log_sigma, noise
from flopcast.lab.calibration.curve_fit import FP16_GRADIENTS, predicted_s
from flopcast.lab.calibration.samples import Samples
from flopcast.lab.calibration.source_agreement import disagreement
from flopcast.lab.calibration.splits import (
    EXTRAPOLATION,
    FIRST,
    OTHER_DEVICE,
    OTHER_SOURCE,
    RANDOM,
    UNSEEN,
    RowSplit,
    splits_of,
)
from flopcast.lab.calibration.subjects import GRADIENTS, Measured, RejectedRows, Subject, gradients_of
from flopcast.lab.calibration.watched import Watched
from flopcast.records import Record, replace

MOST_SIZES = {1: 4, 2: 4, 3: 2}  # sizes left out in turn, by axes: three axes take seconds a fit
ADDED = (EXTRAPOLATION, OTHER_SOURCE, OTHER_DEVICE)  # splits whose sigma is wider than the class' own
Say = Callable[[str], None]
Key = tuple[str, str]  # owner, kernel class
Curves = dict[Key, dict[str, Curve]]  # by the label of the split whose test rows were left out
Steps = dict[tuple[int, ...], float]  # added sigmas, by the errors that give them


class Result(Record):
    """The result of one class on one owner under one split; errors are |predicted / measured - 1|.

    `coverage_share` is the share of rows within their nominal 90 % interval, and `log_sigma_factor` is
    the sigma of this interval.
    """

    kernel_class: str
    device: str
    precision: str
    measured: Measured
    split: str
    rows: int
    mean_error: float
    median_error: float
    p90_error: float  # nine tenths of the rows are at most so far off
    coverage_share: float
    log_sigma_factor: float


class Noise(Record):
    """The noise of rows of equal shape.

    `mean_error` is the mean |log ratio| if `among` is "rows", and otherwise the median |log ratio| to the
    source that `among` names.
    """

    kernel_class: str
    device: str
    precision: str
    rows: int
    mean_error: float
    among: str


class Score(Record):
    """All results; `added` contains the log-sigmas that are added if a curve is used outside its rows."""

    results: tuple[Result, ...]
    noise: tuple[Noise, ...]
    rejected: tuple[RejectedRows, ...]
    added: Mapping[str, float]  # by split and kind


class _Errors(Record, eq=False):
    """log(predicted / measured) of the left-out rows, and the sigma of the curve that predicted them."""

    subject: Subject
    split: str
    parts: tuple[Logs, ...]  # one for each fold, size or source
    log_sigma_factor: float

    @property
    def log_errors(self) -> Logs:
        """Return the log errors of all parts, (rows,)."""
        return np.concatenate(self.parts)

    @property
    def judged(self) -> tuple[Logs, float]:
        """Return the log errors of all parts, and the sigma of their curve."""
        return self.log_errors, self.log_sigma_factor


def score(
    subjects: Sequence[Subject],
    rejected: Sequence[RejectedRows],
    say: Say,
    watched: Watched[Subject] = iter,
) -> Score:
    """Score every subject; all samples of one owner and class must be one subject.

    Parameters
    ----------
    rejected : the rows that were left out of the subjects, which the result contains
    say : receives one line for each class
    watched : wraps the iteration over the subjects; subjects that it skips are not scored
    """
    curves: Curves = {}
    errors: list[_Errors] = []
    judged: list[Subject] = []
    for subject in watched(sorted(subjects, key=lambda s: s.name == GRADIENTS)):
        errors += _own_errors(subject, curves)
        say(f"{subject.owner} {subject.name}: {len(subject.samples.measured_s)} rows")
        judged.append(subject)
    subjects = [subject for subject in subjects if subject in judged]
    errors += [*_source_errors(subjects, curves, errors), *_foreign_errors(subjects, curves, errors)]
    steps: Steps = {}
    return Score(
        results=tuple(sorted((_result(e, errors, steps) for e in errors), key=_order)),
        noise=tuple(n for subject in subjects for n in _noises(subject)),
        rejected=tuple(rejected),
        added={
            f"{split}, {kind}": _added(errors, split, kind)
            for split in ADDED
            for kind in dict.fromkeys(e.subject.kind for e in errors if e.split == split)
        },
    )


def _added(errors: Sequence[_Errors], split: str, kind: str) -> float:
    return added_log_sigma([e.judged for e in errors if (e.split, e.subject.kind) == (split, kind)])


def _order(result: Result) -> Key:
    """Return results by owner and class. The splits of a class keep their order."""
    return result.device, result.kernel_class


def _own_errors(subject: Subject, curves: Curves) -> Iterator[_Errors]:
    """Yield the errors of a subject for each kind of split that its own rows allow.

    Curves are kept for reuse.

    All left-out sizes together are one result. The sigma is the larger of those of random rows and of
    unseen sizes.
    """
    samples = subject.samples
    by_kind: dict[str, list[Logs]] = defaultdict(list)
    for split in splits_of(samples, MOST_SIZES[min(3, len(samples.coordinates))]):
        curve = _curve_of(subject, samples, split, curves)
        if curve is not None:
            curves.setdefault((subject.owner, subject.name), {})[split.label] = curve
            by_kind[split.kind].append(log_errors(subject, samples.part(split.test), curve))
    inside = [np.concatenate(by_kind[kind]) for kind in (RANDOM, UNSEEN) if kind in by_kind]
    sigma = max((log_sigma(errors) for errors in inside), default=0.0)
    for kind, parts in by_kind.items():
        yield _Errors(subject=subject, split=kind, parts=tuple(parts), log_sigma_factor=sigma)


def _curve_of(subject: Subject, samples: Samples, split: RowSplit, curves: Curves) -> Curve | None:
    """Return the curve without the left-out rows.

    For gradients, return the products' curve of the same split,

    or None if the products have no such split.
    """
    fitted = samples.part(~split.test)
    if subject.name != GRADIENTS:
        return subject.fit(fitted)
    products = curves.get((subject.owner, "gemm"), {}).get(split.label)
    return None if products is None else with_ratio(subject, fitted, products)


def with_ratio(subject: Subject, samples: Samples, products: Curve) -> Curve:
    """Return a curve of GEMMs with the measured time ratio of gradients to forward passes."""
    plain = replace(products, layout_ratio={})
    ratio = float(np.exp(-np.median(log_errors(subject, samples, plain))))
    return replace(products, layout_ratio=dict.fromkeys(FP16_GRADIENTS, ratio))


def log_errors(subject: Subject, samples: Samples, curve: Curve) -> Logs:
    """Return log(predicted / measured) of samples, (rows,), by the code that prices kernels.

    Both gradients of a linear layer were measured as one sum and are predicted as the sum of two products,
    each with the ratio of its layout.
    """
    if subject.name == GRADIENTS and subject.device is not None:
        total_s: Floats = np.zeros(samples.measured_s.shape)
        for part, layout in zip(gradients_of(samples), ("input_gradient", "weight_gradient"), strict=True):
            shape = tuple(axis.ravel() for axis in part.coordinates())
            bound_s = bound_seconds(part.work(), subject.device).ravel()
            ratio = curve.ratio_of(layout, "fp16")
            total_s = total_s + kernel_seconds(bound_s, shape, curve, subject.device, ratio)
    else:
        total_s = predicted_s(curve, samples, subject.device)
    return np.asarray(np.log(total_s / samples.measured_s))


def _source_errors(
    subjects: Sequence[Subject], curves: Curves, own: Sequence[_Errors]
) -> Iterator[_Errors]:
    """Yield the errors of the first source's curve on the rows of other sources on the same device."""
    sigmas = {(e.subject.owner, e.subject.name): e.log_sigma_factor for e in own if e.split == RANDOM}
    for subject in subjects:
        curve = curves.get((subject.owner, subject.name), {}).get(FIRST)
        if curve is not None and subject.aside:
            found = [log_errors(subject, samples, curve) for samples in subject.aside.values()]
            yield _Errors(
                subject=subject,
                split=OTHER_SOURCE,
                parts=tuple(found),
                log_sigma_factor=sigmas[subject.owner, subject.name],
            )


def _foreign_errors(
    subjects: Sequence[Subject], curves: Curves, own: Sequence[_Errors]
) -> Iterator[_Errors]:
    """Yield the errors of every device's rows, predicted by the curve of its nearest measured fallback
    device.

    If no related device has the class, the curve of the first other device with the class is used. The
    sigma comes from the random rows of the device that provides the curve.
    """
    sigmas = {(e.subject.owner, e.subject.name): e.log_sigma_factor for e in own if e.split == RANDOM}
    devices = {subject.owner: subject.device for subject in subjects if subject.device}
    for subject in subjects:
        if subject.device is None:
            continue
        others = [s.owner for s in subjects if s.device and s.owner != subject.owner]
        for owner in (*subject.device.relatives, *others):
            lent = curves.get((owner, subject.name), {}).get(FIRST)
            if lent is not None:
                lent = converted_times(lent, devices[owner], subject.device)
                found = log_errors(subject, subject.samples, lent)
                sigma = sigmas[owner, subject.name]
                yield _Errors(subject=subject, split=OTHER_DEVICE, parts=(found,), log_sigma_factor=sigma)
                break


def _result(judged: _Errors, errors: Sequence[_Errors], steps: Steps) -> Result:
    subject, relative = judged.subject, np.abs(np.expm1(judged.log_errors))
    coverage, sigma = _coverage(judged, errors, steps)
    return Result(
        kernel_class=subject.name,
        device=subject.owner,
        precision=subject.precision,
        measured=subject.measured,
        split=judged.split,
        rows=len(relative),
        mean_error=float(relative.mean()),
        median_error=float(np.median(relative)),
        p90_error=float(np.quantile(relative, 0.9)),
        coverage_share=coverage,
        log_sigma_factor=sigma,
    )


def _coverage(judged: _Errors, errors: Sequence[_Errors], steps: Steps) -> tuple[float, float]:
    """Return the share of rows within the interval, and the sigma (see the module docstring).

    All classes of one owner and kind have the same added sigma, so each is computed once.
    """
    own = judged.log_sigma_factor
    if judged.split == RANDOM:
        halves = judged.log_errors[::2], judged.log_errors[1::2]
        inside = [covered(one, log_sigma(other)) for one, other in (halves, halves[::-1])]
        return float(np.mean(inside)), own
    if judged.split == UNSEEN and len(judged.parts) > 1:
        return _coverage_of_sizes(judged, errors), own
    if judged.split in ADDED:
        others = _others(judged, errors)
        key = tuple(map(id, others))
        if key not in steps:
            steps[key] = added_log_sigma([each.judged for each in others])
        own = float(np.hypot(own, steps[key]))
    return covered(judged.log_errors, own), own


def _coverage_of_sizes(judged: _Errors, errors: Sequence[_Errors]) -> float:
    """Return the share of rows inside; each size uses the larger sigma of other sizes and random rows."""
    random = [log_sigma(e.log_errors) for e in errors if e.subject is judged.subject and e.split == RANDOM]
    coverage = []
    for number, part in enumerate(judged.parts):
        others = np.concatenate([p for place, p in enumerate(judged.parts) if place != number])
        coverage.append((covered(part, max(log_sigma(others), *random)), len(part)))
    return float(np.average([share for share, _ in coverage], weights=[rows for _, rows in coverage]))


def _others(judged: _Errors, errors: Sequence[_Errors]) -> list[_Errors]:
    """Return errors of the same split and kind that are independent of the tested rows, those of other
    owners first.

    If only one owner has the kind, errors of its other classes are returned; if it has only one class of
    the kind, errors of other kinds are returned.
    """
    alike = [e for e in errors if e.split == judged.split and e is not judged]
    kin = [e for e in alike if e.subject.kind == judged.subject.kind]
    apart = [e for e in kin if e.subject.owner != judged.subject.owner]
    return apart or kin or alike


def _noises(subject: Subject) -> Iterator[Noise]:
    samples = subject.samples
    noises = {"rows": noise(samples.coordinates, samples.measured_s)}
    for source, others in subject.aside.items():
        apart = disagreement(samples, others)
        noises[source] = apart.shared, apart.median_error
    for among, (rows, error) in noises.items():
        if rows:
            yield Noise(
                kernel_class=subject.name,
                device=subject.owner,
                precision=subject.precision,
                rows=rows,
                mean_error=error,
                among=among,
            )
