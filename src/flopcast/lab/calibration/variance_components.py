"""Variance components: how much constants differ from one context to another.

Answers: by how much does a constant of one device generation, precision, model family or scale differ from
the same constant in another?
Elsewhere: the constants (constant_fit.py), what a context is and how a sigma grows
(cost/constant_transfer.py).

The model is that of constant_fit.py with one more term: in a context x a constant has the logarithm u +
v(x), where v is normal with a variance s² that all constants share, one s for each kind of context. Then
gaps of the runs are normal with the covariance

    K = Σ over constants of prior² · share · shareᵀ + Σ over kinds of s² · G ∘ same context + noise²,

where G holds the products of two runs' shares, summed over constants. The likelihood of the gaps under K is
evaluated on a grid of s. The estimate is the root mean square of s under the likelihood alone, so it stays
wide where the runs say little about s.

References
----------
Searle, Casella, McCulloch, Variance Components, 1992, chapter 6 (maximum likelihood) and 9 (Bayes).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flopcast.cost.constant_transfer import DISTANCES
from flopcast.dtypes import Counts, Logs

GRID = (0.0, 0.01, 0.02, 0.03, 0.045, 0.06, 0.08)  # values of s; above 0.08 a constant explains nothing
START = 0.02
LARGE = 1e12  # more than any sum of squares of whitened gaps
ROUNDS = 1  # passes over the kinds of context; each kind is estimated with the others held fixed


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Gaps:
    """Gaps between measured and predicted steps, with the data that variance components need.

    `gaps`, (runs,), are log(measured / predicted) with all levels at 1; `shares`, (runs, constants), are d
    log(step) / d log(constant), including the constants that stacks share; `prior_log_sigmas` are those of
    the constants; `noise`, (runs,), is the variance of each gap that constants do not explain; `contexts`
    holds the context of each run by kind of context.
    """

    gaps: Logs
    shares: Counts
    prior_log_sigmas: Logs
    noise: Counts
    contexts: Mapping[str, Sequence[str]]


def component_log_sigmas(runs: Gaps) -> dict[str, float]:
    """Return the sigma of constants between contexts, by kind; kinds with one context are left out."""
    together = runs.shares @ runs.shares.T
    fixed = (runs.shares * runs.prior_log_sigmas**2) @ runs.shares.T + np.diag(runs.noise)
    kinds = [kind for kind in DISTANCES if len(set(runs.contexts[kind])) > 1]
    spread = {}
    for kind in kinds:
        label = np.unique(np.array(runs.contexts[kind]), return_inverse=True)[1]
        spread[kind] = together * (label[:, None] == label[None, :])
    log_sigmas = dict.fromkeys(kinds, START)
    for _ in range(ROUNDS):
        for kind in kinds:
            others = fixed + sum(
                (log_sigmas[name] ** 2 * spread[name] for name in kinds if name != kind),
                np.zeros_like(fixed),
            )
            logs = [_log_likelihood(others + sigma**2 * spread[kind], runs.gaps) for sigma in GRID]
            log_sigmas[kind] = _root_mean_square(np.array(logs))
    return log_sigmas


def _log_likelihood(covariance: Counts, gaps: Logs) -> float:
    """Return the log-likelihood, up to a constant, of gaps that are normal around 0.

    The last row of the Cholesky factor of [[covariance, gaps], [gapsᵀ, any large number]] holds the gaps
    whitened by the factor of the covariance, so that no triangular system is solved.
    """
    runs = len(gaps)
    bordered = np.empty((runs + 1, runs + 1))
    bordered[:runs, :runs], bordered[runs, :runs], bordered[:runs, runs] = covariance, gaps, gaps
    bordered[runs, runs] = LARGE
    root = np.linalg.cholesky(bordered)
    whitened = root[runs, :runs]
    return -float(whitened @ whitened) / 2.0 - float(np.log(np.diag(root)[:runs]).sum())


def _root_mean_square(log_likelihoods: Logs) -> float:
    """Return the root mean square of the grid's sigmas, weighted by their likelihoods.

    >>> round(_root_mean_square(np.array([0.0] + [-np.inf] * 6)), 3)
    0.0
    """
    grid = np.array(GRID)
    edges = np.concatenate([[0.0], (grid[1:] + grid[:-1]) / 2.0, grid[-1:]])
    weights = np.exp(log_likelihoods - log_likelihoods.max()) * np.diff(edges)
    return math.sqrt(float(weights @ grid**2 / weights.sum()))
