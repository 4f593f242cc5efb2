"""The sigmas of factors, from the errors of rows that were left out of a fit, and the part of an error that
is noise.

Answers: which log-sigma makes a nominal 90 % interval contain 90 % of the errors, how many did it
contain, and how much do repeated measurements of one shape differ?

A factor is log-normal around 1 (cost/factors.py), so its 90 % interval extends 1.645 sigma to both sides.
Errors of curves are not normally distributed: their tails are longer. The interval must be right, so sigma
is the 90 % quantile of |log error| divided by 1.645 and not a standard deviation; a bias counts as error.

References
----------
Split conformal prediction: Lei, G'Sell, Rinaldo, Tibshirani, Wasserman, "Distribution-free predictive
inference for regression", Journal of the American Statistical Association 113(523), 2018, section 2.2.
"""

from collections.abc import Sequence

import numpy as np

from flopcast.dtypes import Counts, Floats, Logs

NOMINAL = 0.9
REACH = 1.6449  # sigmas to either side of a normal distribution that hold 90 %


def log_sigma(log_errors: Logs) -> float:
    """Return the sigma whose 90 % interval contains these errors, (rows,), and one further error.

    With n rows, this is the ceil(0.9 (n + 1))-th smallest |error|, or the largest if n is too small,
    divided by 1.645.

    >>> round(log_sigma(np.linspace(-0.1, 0.1, 19)) * REACH, 3)
    0.1
    """
    ranked = np.sort(np.abs(log_errors))
    place = int(np.ceil(NOMINAL * (len(ranked) + 1) - 1e-9))
    return float(ranked[min(place, len(ranked)) - 1]) / REACH


def covered(log_errors: Logs, log_sigma_factor: float) -> float:
    """Return the share of errors inside the nominal 90 % interval of a sigma.

    >>> covered(np.array([-0.3, 0.0, 0.1, 0.2]), 0.15)
    0.75
    """
    return float(np.mean(np.abs(log_errors) <= REACH * log_sigma_factor))


def added_log_sigma(groups: Sequence[tuple[Logs, float]]) -> float:
    """Return the sigma that must be added to the sigma of each group so that the intervals contain 90 %
    of the errors.

    Groups count equally, however many rows they have. The result is 0 if their own sigmas suffice, or
    without groups.

    Parameters
    ----------
    groups
        For each class, log(predicted / measured) of rows to which its curve was not fitted, (rows,), and
        the sigma of the curve before any sigma is added.
    """
    if not groups:
        return 0.0
    needed = [(log_errors / REACH) ** 2 - own**2 for log_errors, own in groups]
    weights = [np.full(len(n), 1.0 / len(n)) for n in needed]
    values, weight = np.concatenate(needed), np.concatenate(weights)
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order]) >= NOMINAL * weight.sum() - 1e-9
    return float(np.sqrt(max(0.0, values[order][int(np.argmax(reached))])))


def noise(coordinates: Counts, measured_s: Floats) -> tuple[int, float]:
    """Return the number of rows with repeated coordinates, (axes, rows), and how much these rows differ.

    Returns
    -------
    rows, and mean |log ratio| of a row to the geometric mean of the other rows of its shape
        No curve over these coordinates can have a smaller error; it is 0 if no coordinates occur twice.
    """
    if not len(measured_s):
        return 0, 0.0
    _, group = np.unique(np.round(np.log2(coordinates), 6), axis=1, return_inverse=True)
    group = group.ravel()
    logs = np.log(measured_s)
    count = np.bincount(group)[group]
    twins = count > 1
    others = (np.bincount(group, logs)[group] - logs)[twins] / (count[twins] - 1)
    apart = np.abs(logs[twins] - others)
    return int(twins.sum()), float(apart.mean()) if apart.size else 0.0
