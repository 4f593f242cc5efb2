"""Variance components: how much constants differ from 1, and from one context to another.

Answers: how large are the constants, compared with their priors? By how much does a constant of one source,
device generation, precision, model family or scale differ from the same constant in another?
Elsewhere: the constants (constant_fit.py), what a context is and how a sigma grows
(cost/constant_transfer.py).

The model is that of constant_fit.py with one more term. In a context x, a constant has the logarithm u +
v(x), where v is normal with a variance s². All constants share s², and each kind of context has its own
s. The gaps of the runs are then normal with the covariance

    K = Σ over constants of prior² · share · shareᵀ + Σ over kinds of s² · G ∘ same context + noise²,

where G holds the products of two runs' shares, summed over constants. The likelihood of the gaps under K
is evaluated on a grid of s. The estimate is the root mean square of s under the likelihood alone, so it
stays large if the runs contain little information about s.

The priors state how far a constant may be from 1, each for its own reasons. The runs show whether the
priors are too wide: one factor, at most 1, multiplies all prior sigmas, and its estimate comes from the
same likelihood (empirical Bayes). A prior that is too wide lets a constant follow the errors of the few
runs that it is fitted to.

References
----------
Searle, Casella, McCulloch, Variance Components, 1992, chapter 6 (maximum likelihood) and 9 (Bayes).
Efron, Large-Scale Inference, 2010, chapter 1 (empirical Bayes).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from flopcast.cost.constant_transfer import DISTANCES
from flopcast.dtypes import Counts, Flags, Logs
from flopcast.records import Record

GRID = (0.0, 0.01, 0.02, 0.03, 0.045, 0.06, 0.08)  # values of s; above 0.08 a constant explains nothing
START = 0.02
SCALES = (0.2, 0.25, 0.35, 0.5, 0.7, 1.0)  # of the priors' sigmas, about equally spaced in logarithms
SOURCE = "source"  # the kind of context that every new run differs in
ROUNDS = 1  # passes over the kinds of context; each kind is estimated with the others held fixed


class Gaps(Record, eq=False):
    """Gaps between measured and predicted steps, with the data that variance components need.

    `gaps`, (runs,), are log(measured / predicted) with all levels at 1. `shares`, (runs, constants), are
    d log(step) / d log(constant), and include the constants that stacks share. `prior_log_sigmas` are the
    prior sigmas of the constants. `noise`, (runs,), is the variance of each gap that constants do not
    explain. `contexts` holds the context of each run by kind of context.
    """

    gaps: Logs
    shares: Counts
    prior_log_sigmas: Logs
    noise: Counts
    contexts: Mapping[str, Sequence[str]]


def prior_scale(runs: Gaps) -> float:
    """Return the factor for the prior sigmas of the constants that agrees best with the gaps of the runs.

    Parameters
    ----------
    runs : Gaps
        Gaps of the runs (log measured over predicted), the shares of their constants, and their sources.

    Notes
    -----
    The factor is the geometric mean of SCALES, weighted by the likelihoods of the gaps. Constants differ
    between sources by START, which is estimated later.
    """
    columns = [runs.shares * runs.prior_log_sigmas, within(runs.shares, runs.contexts[SOURCE])]
    free = np.arange(sum(each.shape[1] for each in columns)) < len(runs.prior_log_sigmas)
    products, sums = _whitened(np.hstack(columns), runs)
    found = _log_likelihoods(products, sums, np.full(len(free), START), free, SCALES)
    return math.exp(float(np.average(np.log(SCALES), weights=np.exp(found - found.max()))))


def component_log_sigmas(runs: Gaps) -> dict[str, float]:
    """Return the sigma of constants between contexts, by kind. Kinds with only one context are left out.

    Parameters
    ----------
    runs : Gaps
        Gaps of the runs (log measured over predicted), the shares of their constants, and their contexts.

    Notes
    -----
    Kinds are estimated in turn for a number of rounds, each with the current estimates of the others.
    """
    kinds = [kind for kind in (SOURCE, *DISTANCES) if len(set(runs.contexts.get(kind, ()))) > 1]
    effects = [runs.shares, *(within(runs.shares, runs.contexts[kind]) for kind in kinds)]
    owner = np.repeat(np.arange(len(effects)), [each.shape[1] for each in effects])  # 0: the constants
    products, sums = _whitened(np.hstack(effects), runs)
    log_sigmas = np.concatenate([runs.prior_log_sigmas, np.full(len(owner) - len(runs.shares.T), START)])
    found = {}
    for _ in range(ROUNDS):
        for number, kind in enumerate(kinds, start=1):
            likelihoods = _log_likelihoods(products, sums, log_sigmas, owner == number, GRID)
            found[kind] = _root_mean_square(likelihoods)
            log_sigmas[owner == number] = found[kind]
    return found


def within(shares: Counts, contexts: Sequence[str]) -> Counts:
    """Return shares with a column for each constant in each context that has it, (runs, columns)."""
    label = np.unique(np.array(contexts), return_inverse=True)[1]
    rows = [np.flatnonzero(label == one) for one in range(label.max() + 1)]
    used = [np.flatnonzero(shares[mine].any(axis=0)) for mine in rows]
    columns, start = np.zeros((len(shares), sum(map(len, used)))), 0
    for mine, constants in zip(rows, used, strict=True):
        columns[mine, start : start + len(constants)] = shares[np.ix_(mine, constants)]
        start += len(constants)
    return columns


def _whitened(effects: Counts, runs: Gaps) -> tuple[Counts, Logs]:
    """Return the products of effects whitened by the noise, and their products with the whitened gaps."""
    whitened = effects / np.sqrt(runs.noise)[:, None]
    return whitened.T @ whitened, whitened.T @ (runs.gaps / np.sqrt(runs.noise))


def _log_likelihoods(
    products: Counts, sums: Logs, log_sigmas: Logs, free: Flags, grid: Sequence[float]
) -> Logs:
    """Return log-likelihoods of the gaps, up to a constant, for each sigma in `grid` of the `free` effects.

    `products` are the products of all effects, whitened by the noise, and `sums` are their products with
    the whitened gaps. The covariance of whitened gaps is I + E·diag(sigma²)·Eᵀ for effects E, so its
    determinant and inverse follow from matrices of the size of the effects (Sylvester's and Woodbury's
    identities). The eigenvectors of the free effects, with all others fixed, are then used for every
    sigma of the grid.
    """
    fixed = ~free
    scale = log_sigmas[fixed]
    inner = np.eye(len(scale)) + scale[:, None] * products[np.ix_(fixed, fixed)] * scale
    beside = scale[:, None] * np.column_stack([products[np.ix_(fixed, free)], sums[fixed]])
    known = beside.T @ np.linalg.solve(inner, beside)
    left, gaps = products[np.ix_(free, free)] - known[:-1, :-1], sums[free] - known[:-1, -1]
    values, vectors = np.linalg.eigh(left)
    squares, variances = (vectors.T @ gaps) ** 2, np.array(grid)[:, None] ** 2
    grown = 1.0 + variances * np.maximum(values, 0.0)  # eigenvalues of the free effects' covariance
    found: Logs = ((variances * squares / grown) - np.log(grown)).sum(axis=1) / 2.0
    return found


def _root_mean_square(log_likelihoods: Logs) -> float:
    """Return the root mean square of the grid's sigmas, weighted by their likelihoods.

    >>> round(_root_mean_square(np.array([0.0] + [-np.inf] * 6)), 3)
    0.0
    """
    grid = np.array(GRID)
    edges = np.concatenate([[0.0], (grid[1:] + grid[:-1]) / 2.0, grid[-1:]])
    weights = np.exp(log_likelihoods - log_likelihoods.max()) * np.diff(edges)
    return math.sqrt(float(weights @ grid**2 / weights.sum()))
