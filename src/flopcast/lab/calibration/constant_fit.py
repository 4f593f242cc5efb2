"""Constants that can be measured only in whole runs: the levels of factors, fitted to many measured steps
together.

Answers: by how much does each named factor differ from the prediction without constants, how certain is
this, and how many sources support it?
Elsewhere: a fit to one run of the user (lab/validation/from_run.py), the runs that are fitted and left out
(lab/validation/leave_one_out.py), the file of the catalogue (library/constants.py), the definition of
factors (cost/factors.py).

The model is that of from_run.py for many runs: log(measured / predicted) = sum of share · log(level) +
noise, where a share is d log(step) / d log(factor). The prior of log(level) is normal with mean 0 and the
sigma that the catalogue or a curve gives the factor, times a scale that the runs themselves show
(variance_components.py). A constant therefore differs from 1 only as far as the runs require. The derates
of stacks share an unknown mean, unless a stack has a derate of its own. A stack without runs uses the mean.

In each source, a constant may differ from its value elsewhere. This random effect does not affect other
sources. Many runs of one source therefore count less than equally many runs of several sources
(variance_components.py).

The noise has a sigma for each family of models, which the fit estimates, and Student's distribution with
four degrees of freedom. A run with a wrong description must not distort a constant (Lange, Little and
Taylor, Robust statistical modeling using the t distribution, 1989). Repeats of a configuration together
count once. Shares are valid for small changes, so the runs are predicted again with the fitted levels,
and the fit is repeated.

Each constant records the contexts of its runs. In another context its sigma is larger, by the amount that
constants differ between contexts (variance_components.py).
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from flopcast.cost.constant_transfer import DISTANCES, GENERATION, carried
from flopcast.cost.constants import Constant, Fitted
from flopcast.cost.factors import FAMILIES, NINETY_PERCENT, SHARED_DERATE, unexplained
from flopcast.dtypes import Counts, Flags, Logs
from flopcast.lab.calibration.observations import (
    UNBOUND,
    Levels,
    ObservedStep,
    Priors,
    constant_of,
    least_log,
    least_log_sigma,
    log_of_level,
    moved,
)
from flopcast.lab.calibration.plan_pairs import between_plans
from flopcast.lab.calibration.variance_components import (
    SOURCE,
    Gaps,
    component_log_sigmas,
    prior_scale,
    within,
)
from flopcast.records import Record, replace

SHARED_LOG_SIGMA = 0.1  # prior of the mean that derates share; the same as of one derate (spec/stack.py)
DEGREES_OF_FREEDOM = 4.0
EXPECTED_NOISE, EXPECTED_ROWS = 0.05, 5.0  # sigma of a logarithm before any run, and its weight in runs
ROUNDS, SETTLED = 50, 1e-6  # of weights and noise, until no logarithm moves any further
HELD = 1e6  # precision that keeps a level at its lower bound
SCALINGS = 3  # estimates of the scale of the priors, each with the noise of the last
FOLDS = 5  # cross-validation folds of models, for the unexplained error
FEWEST_ROWS = 8  # a source with fewer rows would distort the factors that all machines share
LEAST_SHARE = 0.02  # a run says nothing about a factor with a smaller share of its step
# A fitted factor's sigma is below 0.9 of its prior; outside of OWNED, its logarithm is 1.5 sigmas from 0.
SURER, DISTINCT_SIGMAS = 0.9, 1.5
LEVELS = ("gemm_level", "attention_level", "unfused_attention_level", "memory_level")
OF_DEVICE = (*LEVELS, "uncalibrated", "fabric")
OWNED = (*OF_DEVICE, "in_training_derate", "expert_launch")


def fit(observed: Sequence[ObservedStep], priors: Priors, at: Levels) -> Fitted:
    """Return the constants that best explain measured runs, given the measurements of kernels.

    Parameters
    ----------
    observed : runs, predicted with the levels `at`; sources with fewer than eight runs are ignored
    priors : the prior of every factor in the shares of the runs
    at : the levels of the predictions; if empty, all ratios are 1

    Returns
    -------
    Fitted
        Constants whose sigma the runs reduce by at least a tenth. All other factors keep their value in
        the catalogue during the fit, because otherwise every small factor would absorb some of the noise.
    """
    rows_of = Counter(one.source for one in observed)
    observed = [one for one in observed if rows_of[one.source] >= FEWEST_ROWS]
    if not observed:
        return Fitted((), {})
    everyone = np.ones(len(observed))
    design = _design(observed, priors, at)
    design = _informed(_scaled(design, observed))
    components = component_log_sigmas(_gaps(design, observed, _solve(design, everyone)))
    design = _informed(replace(design, source_log_sigma_factor=components.get(SOURCE, 0.0)))
    solved = _solve(design, everyone)
    sigmas = np.sqrt(np.diag(solved.covariance))
    support = [np.abs(column) >= LEAST_SHARE for column in design.factor_shares.T]
    constants = [
        _constant(name, (float(value), float(sigma)), priors[name].log_sigma_factor, observed, rows)
        for name, value, sigma, rows in zip(
            design.factor_names,
            design.mix @ solved.logs,
            _mixed(design, solved.covariance),
            support,
            strict=True,
        )
    ]
    kept = [constant for constant in constants if constant.rows]
    kept.sort(key=lambda c: (-abs(math.log(c.ratio)), c.name))
    if design.shared.any():
        rows = np.abs(design.shares[:, -1]) >= LEAST_SHARE
        common = float(solved.logs[-1]), float(sigmas[-1])
        kept.insert(0, _constant(SHARED_DERATE, common, SHARED_LOG_SIGMA, observed, rows))
    kept += [constant_of(carried(kind), observed, sigma) for kind, sigma in components.items()]
    bare = [replace(one, log_gap_factor=one.log_gap_factor + moved(one, priors, at)) for one in observed]
    kept += between_plans(bare, priors, {one.name: one.level for one in kept})
    for family, sigma in _unexplained(design).items():
        kept.append(constant_of(unexplained(family), [o for o in observed if o.family == family], sigma))
    return Fitted(constants=tuple(kept), noise_log_sigmas=solved.noise)


class _Design(Record, eq=False, kw_only=False):
    """Gaps with all levels at 1, (rows,), shares (rows, unknowns), and the meaning of the unknowns.

    The unknowns are the logarithms of the factors' own levels and, last, the common part of shared
    derates. `factor_shares` are the shares of the factors themselves; the matrix `mix` computes their
    logarithms from those of the unknowns. In each of the `sources`, logarithms of levels differ from
    these values by `source_log_sigma_factor`.
    """

    gaps: Logs
    shares: Counts
    prior_log_sigmas: Logs
    weights: Counts  # of a run among the repeats of its configuration
    folds: Counts
    families: Sequence[str]
    factor_names: tuple[str, ...]
    factor_shares: Counts
    mix: Counts
    shared: Flags  # whether a factor is a derate of no stack's own
    sources: Sequence[str]
    source_log_sigma_factor: float = 0.0


class _Solution(Record, eq=False, kw_only=False):
    """The unknowns, their covariance, each family's noise, and the noise variance of each run's gap."""

    logs: Logs
    covariance: Logs
    noise: dict[str, float]
    variances: Logs


def _design(observed: Sequence[ObservedStep], priors: Priors, at: Levels) -> _Design:
    names = tuple(sorted({name for one in observed for name in one.shares if name in priors}))
    place = {name: column for column, name in enumerate(names)}
    factor_shares = np.zeros((len(observed), len(names)))
    for row, one in enumerate(observed):
        for name, share in one.shares.items():
            if name in place:
                factor_shares[row, place[name]] = share
    stands = np.array([log_of_level(name, priors[name], at) for name in names])
    repeats = Counter(one.configuration for one in observed)
    trained = [one.configuration if one.model is None else one.model for one in observed]
    order = {model: number for number, model in enumerate(dict.fromkeys(trained))}
    shared = np.array([priors[name].shared for name in names], dtype=bool)
    mix, sigmas = _unknowns(np.array([priors[name].log_sigma_factor for name in names]), shared)
    return _Design(
        gaps=np.array([one.log_gap_factor for one in observed]) + factor_shares @ stands,
        shares=factor_shares @ mix,
        prior_log_sigmas=sigmas,
        weights=np.array([1.0 / repeats[one.configuration] for one in observed]),
        folds=np.array([order[model] % FOLDS for model in trained]),
        families=[one.family for one in observed],
        factor_names=names,
        factor_shares=factor_shares,
        mix=mix,
        shared=shared,
        sources=[one.source for one in observed],
    )


def _unknowns(log_sigmas: Logs, shared: Flags) -> tuple[Counts, Logs]:
    """Return the matrix from the unknowns' logarithms to the factors', and the unknowns' priors."""
    if not shared.any():
        return np.eye(len(log_sigmas)), log_sigmas
    mix = np.hstack([np.eye(len(log_sigmas)), shared[:, None].astype(float)])
    return mix, np.append(log_sigmas, SHARED_LOG_SIGMA)


def _informed(design: _Design) -> _Design:
    """Return the design restricted to the factors whose sigma the runs reduce; the others keep a level of
    1.

    A factor that belongs to no device, fabric or stack must also differ from 1 significantly. Otherwise
    it would transfer the error of one machine to all others. A shared derate that is left out keeps the
    common derate.
    """
    solved = _solve(design, np.ones(len(design.gaps)))
    before = _mixed(design, np.diag(design.prior_log_sigmas**2))
    after = _mixed(design, solved.covariance)
    owned = np.array([name.startswith(OWNED) for name in design.factor_names], dtype=bool)
    distinct = owned | (np.abs(design.mix @ solved.logs) >= DISTINCT_SIGMAS * after)
    kept = np.flatnonzero((after < SURER * before) & distinct)
    columns = [*kept, *([design.mix.shape[1] - 1] if design.shared.any() else [])]
    return replace(
        design,
        shares=design.shares[:, columns],
        prior_log_sigmas=design.prior_log_sigmas[columns],
        factor_names=tuple(design.factor_names[number] for number in kept),
        factor_shares=design.factor_shares[:, kept],
        mix=design.mix[np.ix_(kept, columns)],
        shared=design.shared[kept],
    )


def _scaled(design: _Design, observed: Sequence[ObservedStep]) -> _Design:
    """Return the design with prior sigmas as large as the runs show; the noise depends on this scale."""
    scaled = design
    for _ in range(SCALINGS):
        scale = prior_scale(_gaps(design, observed, _solve(scaled, np.ones(len(observed)))))
        scaled = replace(design, prior_log_sigmas=design.prior_log_sigmas * scale)
    return scaled


def _solve(design: _Design, chosen: Counts) -> _Solution:
    """Return the most probable unknowns; rows for which `chosen` is 0 do not count."""
    weights = design.weights * chosen
    shares, own, sigmas = design.shares, design.shares.shape[1], design.prior_log_sigmas
    if design.source_log_sigma_factor:
        shares = np.hstack([shares, within(design.factor_shares, design.sources)])
        sigmas = np.append(sigmas, np.full(shares.shape[1] - own, design.source_log_sigma_factor))
    diagonal = np.arange(len(sigmas))
    least = np.full(shares.shape[1], UNBOUND)
    least[: len(design.factor_names)] = [least_log(name) for name in design.factor_names]
    held = np.zeros(len(least))  # extra precision that keeps a level at its lower bound
    members = {name: np.array([f == name for f in design.families]) & (chosen > 0) for name in FAMILIES}
    noise = np.full(len(design.gaps), EXPECTED_NOISE)
    trust = np.ones(len(design.gaps))
    logs: Logs = np.zeros(len(sigmas))
    for number in range(ROUNDS):
        each = weights * trust / noise**2
        scaled = shares * np.sqrt(each)[:, None]
        known = scaled.T @ scaled  # symmetric: half of the work
        known[diagonal, diagonal] += sigmas**-2.0 + held
        sums = shares.T @ (each * design.gaps) + held * least
        before, logs = logs, np.linalg.solve(known, sums).astype(np.float64)
        held = np.where(logs < least, HELD, held)
        if number and np.abs(logs - before).max(initial=0.0) < SETTLED:
            break
        left = design.gaps - shares @ logs
        for rows in members.values():
            if rows.any():
                squares = float((weights * trust * left**2)[rows].sum()) + EXPECTED_ROWS * EXPECTED_NOISE**2
                noise[rows] = math.sqrt(squares / (float(weights[rows].sum()) + EXPECTED_ROWS))
        trust = _trust(left, noise)
    known[diagonal, diagonal] -= held  # nothing is held
    open_covariance: Logs = np.linalg.inv(known).astype(np.float64)
    return _Solution(
        logs=logs[:own],
        covariance=open_covariance[:own, :own],
        noise={name: float(noise[rows][0]) for name, rows in members.items() if rows.any()},
        variances=noise**2 / design.weights / trust,
    )


def _trust(left: Logs, noise: Counts) -> Counts:
    """Return each row's weight, (rows,), by Student's distribution, small for large errors."""
    trust: Counts = (DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + (left / noise) ** 2)
    return trust


def _mixed(design: _Design, covariance: Logs) -> Logs:
    """Return the sigmas of the factors' logarithms, computed from the covariance of the unknowns."""
    return np.asarray(np.sqrt(((design.mix @ covariance) * design.mix).sum(axis=1)))


def _unexplained(design: _Design) -> dict[str, float]:
    """Return, by family, the sigma with which 90 % intervals contain 90 % of the runs of left-out models.

    Errors depend more on the shapes of the model than on the machine. All runs of a model are therefore
    left out together, because one of them would reveal too much about the others.
    """
    left, own = np.zeros(len(design.gaps)), np.zeros(len(design.gaps))
    for fold in range(FOLDS):
        out = design.folds == fold
        if out.all() or not out.any():
            continue
        solved = _solve(design, (~out).astype(float))
        sigmas = _mixed(design, solved.covariance)
        left[out] = (design.gaps - design.shares @ solved.logs)[out]
        own[out] = np.sqrt(((design.factor_shares * sigmas) ** 2).sum(axis=1))[out]
    unexplained = {}
    for family in FAMILIES:
        rows = np.array([name == family for name in design.families])
        if rows.any():
            unexplained[family] = _added(np.abs(left[rows]), own[rows], design.weights[rows])
    return unexplained


def _gaps(design: _Design, observed: Sequence[ObservedStep], solved: _Solution) -> Gaps:
    """Return the data that variance components need."""
    kinds = DISTANCES if all(kind in one.context for one in observed for kind in DISTANCES) else ()
    return Gaps(
        gaps=design.gaps,
        shares=design.shares,
        prior_log_sigmas=design.prior_log_sigmas,
        noise=solved.variances,
        contexts={SOURCE: design.sources}
        | {kind: [one.context[kind] for one in observed] for kind in kinds},
    )


def _added(gaps: Logs, own: Logs, weights: Counts) -> float:
    def inside_share(log_sigma_factor: float) -> float:
        reach = NINETY_PERCENT * np.hypot(own, log_sigma_factor)
        return float(np.average(gaps <= reach, weights=weights))

    return least_log_sigma(inside_share, 2.0)


def _constant(
    name: str,
    found: tuple[float, float],
    prior_factor: float,
    observed: Sequence[ObservedStep],
    rows: Iterable[bool],
) -> Constant:
    behind = [one for one, holds in zip(observed, rows, strict=True) if holds]
    seen = {
        distance: tuple(sorted({one.context[distance] for one in behind if distance in one.context}))
        for distance in DISTANCES
        if not (distance == GENERATION and name.startswith(OF_DEVICE))
    }
    return constant_of(
        name,
        behind,
        found[1],
        ratio=math.exp(found[0]),
        prior_log_sigma_factor=prior_factor,
        seen={distance: contexts for distance, contexts in seen.items() if contexts},
    )
