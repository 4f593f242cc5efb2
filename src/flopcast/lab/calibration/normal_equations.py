"""Normal equations for the nodes of a table and its terms, for rows whose weights change repeatedly.

Answers: which values of the nodes and which coefficients of the terms fit rows best with these weights?
Elsewhere: rows, nodes and penalties (efficiency_table.py).

A row depends on the corners of its cell, which are at two neighbouring positions of the first axis.
Penalties couple nodes that are at most two positions apart. Therefore only three kinds of blocks are
stored: those of a place, those between it and the next place, and the diagonals between it and the place
after the next. Elimination place by place (Thomas' algorithm) then needs less than a hundredth of the work
of a general solver. Terms, which affect all nodes, form a border around the nodes (Schur's complement).
Rows of one cell depend on the same nodes, so their products are first summed over each cell by matrix
products. The nodes on which rows depend do not change with their weights and are determined once.
"""

from functools import cache

import numpy as np

from flopcast.dtypes import Counts, Flags, Integers, Logs
from flopcast.records import Record

LEAST_STRIDE = 30  # nodes at a place of the first axis: with fewer of them all nodes are one block
LEAST_HALVED = 56  # from this size on, a matrix is inverted faster by its blocks
NODE_RIDGE = 1e-9  # of a node: makes the equations solvable where neither rows nor penalties reach
RIDGE = 0.1  # of a coefficient: holds terms that these rows do not show

_pairs = cache(np.triu_indices)  # of the corners of a cell


class Cells(Record, eq=False):
    """Cells that contain similar numbers of rows.

    `rows` holds the indices of their rows, (cells, most rows); in cells with fewer rows, the total number
    of rows fills the remaining entries. `columns` holds the weights of the corners, the terms and the
    target of these rows, with 0 in the remaining entries: (cells, corners + terms + 1, most rows).
    """

    rows: Integers
    columns: Counts


class Equations(Record, eq=False):
    """The equations of some rows, independent of the weights of the rows.

    `cells` holds the rows, and `index` the corners of every cell, (corners, cells). For every pair of
    corners of every cell, `keys`, (pairs, cells), holds the index into an array of shape (places, 2,
    stride, stride). This array contains the blocks of each place, in which only one triangle is summed,
    and the blocks between each place and the next one. `own`, `next` and `far` are the penalties of these
    blocks and of the diagonal blocks between each place and the one after the next: (places, stride).
    """

    cells: tuple[Cells, ...]
    index: Integers
    keys: Integers
    own: Counts
    next: Counts
    far: Counts

    def solution(self, trust: Counts, used: Flags, held: Logs) -> Logs:
        """Return the values of the nodes, followed by the coefficients of the terms that are `used`,
        (terms,).

        `trust`, (rows,), is the weight of each row. The contribution of the coefficients `held`,
        (terms,), is subtracted from the target.
        """
        places, stride = self.far.shape
        size, corners = places * stride, len(self.index)
        padded = np.append(trust, 0.0)
        products = np.concatenate(
            [
                (cell.columns * padded[cell.rows][:, None]) @ cell.columns.transpose(0, 2, 1)
                for cell in self.cells
            ]
        )
        one, other = _pairs(corners)
        sums = np.bincount(self.keys.ravel(), products[:, one, other].T.ravel(), 2 * size * stride)
        blocks = sums.astype(np.float64, copy=False).reshape(places, 2, stride, stride)
        own = blocks[:, 0] + blocks[:, 0].transpose(0, 2, 1)
        own[:, np.arange(stride), np.arange(stride)] /= 2.0  # both triangles have the diagonal
        own += self.own
        beside = products[:, :, corners:]
        beside[:, :, -1] -= beside[:, :, :-1] @ held
        beside = beside[:, :, np.append(used, True)]
        sides = np.zeros((size, beside.shape[2]))
        for corner, nodes in enumerate(self.index):  # no two cells have the same first corner
            sides[nodes] += beside[:, corner]
        of_terms = beside[:, corners:-1].sum(axis=0)[used]
        border = sides[:, :-1].T.copy()
        inner = _eliminated(own, blocks[:, 1] + self.next, self.far, sides.reshape(places, stride, -1))
        inner = inner.reshape(size, -1)
        reduced = of_terms[:, :-1] + RIDGE**2 * np.eye(len(border)) - border @ inner[:, :-1]
        coefficients = np.linalg.solve(reduced, of_terms[:, -1] - border @ inner[:, -1])
        return np.concatenate([inner[:, -1] - inner[:, :-1] @ coefficients, coefficients])


def equations(
    index: Integers, weight: Counts, nodes: tuple[int, int], terms: Logs, target: Logs, penalty: Counts
) -> Equations:
    """Return the equations of rows with `target`, and the penalties of the nodes, (nodes, nodes).

    Parameters
    ----------
    index, weight : those of the corners of every row (efficiency_table.py, `corners`)
    nodes : their number, and the number of nodes at one place of the first axis
    terms : the terms of every row, (rows, terms)
    """
    size, stride = nodes
    stride = stride if stride >= LEAST_STRIDE else size
    places = size // stride
    cells = _cells(index[0], np.vstack([weight, terms.T, target]))
    index = index[:, np.concatenate([cell.rows[:, 0] for cell in cells])]
    one, other = _pairs(len(index))
    low, high = np.minimum(index[one], index[other]), np.maximum(index[one], index[other])
    place = low // stride
    block = 2 * place + (high // stride - place)
    parts = penalty.reshape(places, stride, places, stride)
    at = np.arange(places)
    later, far = np.zeros((places, stride, stride)), np.zeros((places, stride))
    later[:-1] = parts[at[:-1], :, at[1:]]
    far[:-2] = np.diagonal(parts[at[:-2], :, at[2:]], axis1=1, axis2=2)
    return Equations(
        cells=cells,
        index=index,
        keys=(block * stride + low % stride) * stride + high % stride,
        own=parts[at, :, at] + NODE_RIDGE * np.eye(stride),
        next=later,
        far=far,
    )


def _cells(first: Integers, columns: Counts) -> tuple[Cells, ...]:
    """Return the cells of rows whose first corners are `first`, (rows,), the smallest cells first.

    `columns`, (columns, rows), are as in `Cells`. Numbers of rows are rounded up to powers of two.
    """
    order = np.argsort(first, kind="stable")
    _, start, count = np.unique(first[order], return_index=True, return_counts=True)
    exponent = np.ceil(np.log2(count)).astype(np.intp)
    filled = np.append(order, len(first))
    padded = np.hstack([columns, np.zeros((len(columns), 1))])
    cells = []
    for most in np.unique(exponent):
        mine = exponent == most
        place = np.arange(2**most)
        within = place < count[mine][:, None]
        rows = filled[np.where(within, start[mine][:, None] + place, len(first))]
        cells.append(Cells(rows=rows, columns=padded[:, rows].transpose(1, 0, 2).copy()))
    return tuple(cells)


def _eliminated(own: Counts, later: Counts, far: Counts, sides: Counts) -> Counts:
    """Return the solutions of a symmetric block system, one per column of `sides`, (places, stride,
    columns).

    `own` holds the blocks of each place, and `later` the blocks between it and the next place, both
    (places, stride, stride); `far` holds the diagonals between it and the place after the next, (places,
    stride). The function changes all arguments.
    """
    places = len(far)
    known = []
    for place in range(places):
        inverse = _inverse(own[place])  # and products: faster than to solve for as many columns
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


def _inverse(matrix: Counts) -> Counts:
    """Return the inverse of a symmetric positive definite matrix.

    The inverse of a large matrix is composed of the inverses of its upper half and of Schur's complement,
    because products of matrices are faster than inverses.
    """
    size = len(matrix)
    if size < LEAST_HALVED:
        return np.asarray(np.linalg.inv(matrix))
    half = size // 2
    upper = _inverse(matrix[:half, :half])
    beside = matrix[:half, half:]
    across = upper @ beside
    lower = _inverse(matrix[half:, half:] - beside.T @ across)
    result = np.empty_like(matrix)
    result[half:, half:] = lower
    result[:half, half:] = -across @ lower
    result[half:, :half] = result[:half, half:].T
    result[:half, :half] = upper - result[:half, half:] @ across.T
    return result
