"""An evolutionary search on arrays: non-dominated sorting, crowding, crossover and mutation.

Answers: which rows are kept, and which rows are tried next?
Elsewhere: what a row of genes means for a plan (evolved_plans.py), fronts (pareto_front.py).

The method is NSGA-II (Deb and others, 2002). The rows of the first front survive, and then those of the
next fronts. If a front is too long, the rows in its sparsest parts survive. Rows that break a limit come
after all other rows, in the order of their excess. Random numbers come from one generator with a fixed
seed.
"""

from collections.abc import Callable, Iterator

import numpy as np

from flopcast.dtypes import Counts, Integers
from flopcast.records import Record
from flopcast.search.pareto_front import front

POPULATION = 128
PATIENCE = 20  # generations without a new plan on the front, after which a search ends
MOST_GENERATIONS = 200
SEED = 20260101
STEP_CHANCE = 0.5  # that a mutated gene moves to a neighbouring value, and not to any other


class Genes(Record, eq=False):
    """The genes of a problem.

    Attributes
    ----------
    sizes : array of int, (genes,)
        Number of values of each gene. Values are numbered from 0, and neighbouring values are similar.
    start : callable
        Takes a generator and a number of rows; returns random rows of genes.
    repaired : callable
        Takes rows of genes; returns valid rows, of which there may be fewer.
    """

    sizes: Integers
    start: Callable[[np.random.Generator, int], Integers]
    repaired: Callable[[Integers], Integers]


Evaluate = Callable[[Integers], tuple[Counts, Counts]]  # genes → losses (rows, objectives), excess (rows,)


def evolve(genes: Genes, evaluate: Evaluate, population: int = POPULATION) -> Iterator[int]:
    """Evaluate each generation, each row only once; yield the number of rows evaluated so far.

    Parameters
    ----------
    evaluate : callable
        Returns losses, and an excess: 0 for rows that keep every limit, infinite for impossible rows.
    population : int
        Number of rows that survive a generation, and largest number of rows that a generation adds.
    """
    random = np.random.default_rng(SEED)
    seen: set[bytes] = set()
    rows = _unseen(genes.repaired(genes.start(random, 2 * population)), seen, 2 * population)
    losses, excess = evaluate(rows)
    yield len(seen)
    waited, best = 0, _front_of(losses, excess)
    for _ in range(MOST_GENERATIONS):
        kept = survivors(losses, excess, population)
        rows, losses, excess = rows[kept], losses[kept], excess[kept]
        children = _unseen(genes.repaired(_children(rows, genes, random, 2 * population)), seen, population)
        if not len(children):
            children = _unseen(genes.repaired(genes.start(random, 2 * population)), seen, population)
        if not len(children):
            return
        more, over = evaluate(children)
        rows = np.concatenate([rows, children])
        losses, excess = np.concatenate([losses, more]), np.concatenate([excess, over])
        yield len(seen)
        found = _front_of(losses, excess)
        waited = waited + 1 if found <= best else 0
        best |= found
        if waited >= PATIENCE:
            return


def survivors(losses: Counts, excess: Counts, most: int) -> Integers:
    """Return the rows that survive, the best fronts first; at most `most`.

    Examples
    --------
    The ends and the sparsest parts of a front survive. A row that breaks a limit comes last:

    >>> losses = np.array([[0.0, 4.0], [1.0, 3.0], [1.1, 2.9], [4.0, 0.0], [0.0, 0.0]])
    >>> sorted(survivors(losses, np.array([0.0, 0, 0, 0, 1]), 3).tolist())
    [0, 2, 3]
    """
    kept: list[int] = []
    left = np.flatnonzero(excess <= 0)
    while len(left) and len(kept) < most:
        first = front(losses[left])
        here, left = left[first], left[~first]
        room = most - len(kept)
        kept += here.tolist() if len(here) <= room else here[_sparsest(losses[here], room)].tolist()
    over = np.flatnonzero((excess > 0) & np.isfinite(excess))
    kept += over[np.argsort(excess[over], kind="stable")].tolist()
    return np.array(kept[:most], dtype=np.intp)


def _sparsest(losses: Counts, most: int) -> Integers:
    """Return the rows of one front with the largest crowding distances: sides of the box to neighbours."""
    distance = np.zeros(len(losses))
    for column in losses.T:
        order = np.argsort(column, kind="stable")
        span = column[order[-1]] - column[order[0]]
        distance[order[[0, -1]]] = np.inf
        if span > 0:
            distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / span
    return np.argsort(-distance, kind="stable")[:most]


def _children(rows: Integers, genes: Genes, random: np.random.Generator, number: int) -> Integers:
    """Return rows of which each gene is that of one of two parents, some of them mutated."""
    if not len(rows):
        return genes.start(random, number)
    one, other = (rows[random.integers(len(rows), size=number)] for _ in range(2))
    children = np.where(random.random(one.shape) < 0.5, one, other)
    mutated = random.random(one.shape) < 1.5 / len(genes.sizes)
    step = children + random.choice([-1, 1], size=one.shape)
    anywhere = random.integers(genes.sizes, size=one.shape)
    moved = np.where(random.random(one.shape) < STEP_CHANCE, step, anywhere)
    found: Integers = np.clip(np.where(mutated, moved, children), 0, genes.sizes - 1)
    return found


def _unseen(rows: Integers, seen: set[bytes], most: int) -> Integers:
    """Return at most `most` rows that are not in `seen`, without repeats, and add them to it."""
    new = list[int]()
    for place, row in enumerate(rows):
        key = row.tobytes()
        if key not in seen and len(new) < most:
            seen.add(key)
            new.append(place)
    return rows[new]


def _front_of(losses: Counts, excess: Counts) -> set[tuple[float, ...]]:
    """Return the losses on the front of rows that keep every limit."""
    kept: Counts = losses[excess <= 0]
    return set(map(tuple, kept[front(kept)].tolist())) if len(kept) else set()
