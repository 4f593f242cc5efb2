"""Normal equations of a table's nodes and its terms, for rows that are weighted again and again.

Answers: which values of the nodes, and which coefficients of the terms, fit rows best with these weights?
Elsewhere: rows, nodes and penalties (efficiency_table.py).

A row touches the corners of its cell, which lie at two neighbouring places of the first axis, and penalties
couple nodes up to two places apart. So only the blocks of a place, of it and the next one, and the diagonal
of it and the one after that are stored. Elimination place by place (Thomas' algorithm) then does less than
a hundredth of the work of a general solver. Terms, which touch all nodes, are a border around the nodes
(Schur's complement). What rows touch does not depend on their weights and is worked out once.
"""

from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts, Integers, Logs

LEAST_STRIDE = 30  # nodes at a place of the first axis: with fewer of them all nodes are one block
NODE_RIDGE = 1e-9  # of a node: makes the equations solvable where neither rows nor penalties reach
RIDGE = 0.1  # of a coefficient: holds terms that these rows do not show


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Equations:
    """The equations of some rows, but for the weights of the rows.

    `index` and `weight` are the corners of every row, (corners, rows); `terms` have shape (rows, terms).
    Of every pair of corners, `shares` holds the product of their weights, and `keys` the place of the pair
    in an array of shape (places, 2, stride, stride): blocks of each place, in which only one triangle is
    summed, and blocks of each place with the next one. `own`, `next` and `far` are the penalties of these
    blocks, and those of each place with the one after the next, which are diagonal: (places, stride).
    """

    index: Integers
    weight: Counts
    terms: Logs
    target: Logs
    keys: Integers
    shares: Counts
    own: Counts
    next: Counts
    far: Counts

    def solution(self, trust: Counts) -> Logs:
        """Return values of the nodes, then coefficients of the terms; `trust` weighs each row."""
        places, stride = self.far.shape
        size, terms = places * stride, self.terms.shape[1]
        sums = np.bincount(self.keys.ravel(), (self.shares * trust).ravel(), 2 * size * stride)
        blocks = sums.astype(np.float64).reshape(places, 2, stride, stride)
        own = blocks[:, 0] + np.triu(blocks[:, 0], 1).transpose(0, 2, 1) + self.own
        trusted, corners = self.terms * trust[:, None], self.index.ravel()
        border = np.stack(
            [
                np.bincount(corners, (self.weight * column).ravel(), size).astype(np.float64)
                for column in (*trusted.T, trust * self.target)
            ]
        )
        sides = border.T.reshape(places, stride, -1).copy()
        inner = _eliminated(own, blocks[:, 1] + self.next, self.far, sides).reshape(size, -1)
        border = border[:terms]
        reduced = self.terms.T @ trusted + RIDGE**2 * np.eye(terms) - border @ inner[:, :-1]
        right = trusted.T @ self.target - border @ inner[:, -1]
        coefficients = np.linalg.solve(reduced, right)
        return np.concatenate([inner[:, -1] - inner[:, :-1] @ coefficients, coefficients])


def equations(
    index: Integers, weight: Counts, nodes: tuple[int, int], terms: Logs, target: Logs, penalty: Counts
) -> Equations:
    """Return the equations of rows with `target` and the penalties, (nodes, nodes), of the nodes.

    Parameters
    ----------
    index, weight : of the corners of every row (efficiency_table.py, `corners`)
    nodes : how many there are, and how many of them lie at one place of the first axis
    """
    size, stride = nodes
    stride = stride if stride >= LEAST_STRIDE else size
    places = size // stride
    one, other = np.triu_indices(len(index))
    low, high = np.minimum(index[one], index[other]), np.maximum(index[one], index[other])
    place = low // stride
    block = 2 * place + (high // stride - place)
    parts = penalty.reshape(places, stride, places, stride)
    at = np.arange(places)
    later, far = np.zeros((places, stride, stride)), np.zeros((places, stride))
    later[:-1] = parts[at[:-1], :, at[1:]]
    far[:-2] = np.diagonal(parts[at[:-2], :, at[2:]], axis1=1, axis2=2)
    return Equations(
        index=index,
        weight=weight,
        terms=terms,
        target=target,
        keys=(block * stride + low % stride) * stride + high % stride,
        shares=weight[one] * weight[other],
        own=parts[at, :, at] + NODE_RIDGE * np.eye(stride),
        next=later,
        far=far,
    )


def _eliminated(own: Counts, later: Counts, far: Counts, sides: Counts) -> Counts:
    """Return solutions of a symmetric block system, one per column of `sides`, (places, stride, columns).

    `own` are the blocks of each place, `later` those of it and the next place, both (places, stride,
    stride); `far` are the diagonals of it and the place after the next, (places, stride). All are changed.
    """
    places = len(far)
    known = []
    for place in range(places):
        inverse = np.linalg.inv(own[place])  # and products: faster than to solve for as many columns
        of_next, of_far, rest = inverse @ later[place], inverse * far[place], inverse @ sides[place]
        if place + 1 < places:
            own[place + 1] -= later[place].T @ of_next
            sides[place + 1] -= later[place].T @ rest
        if place + 2 < places:
            later[place + 1] -= of_next.T * far[place]  # as `inverse` is symmetric
            own[place + 2] -= far[place][:, None] * of_far
            sides[place + 2] -= far[place][:, None] * rest
        known.append((of_next, of_far, rest))
    result = np.empty_like(sides)
    for place in reversed(range(places)):
        of_next, of_far, rest = known[place]
        result[place] = rest
        if place + 1 < places:
            result[place] -= of_next @ result[place + 1]
        if place + 2 < places:
            result[place] -= of_far @ result[place + 2]
    return result
