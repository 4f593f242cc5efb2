"""Plans as genes: in spaces that are too large for a grid, evolution chooses the plans to estimate.

Answers: which plan does a row of genes describe, and which plans of a space does a search estimate?
Elsewhere: the method (evolution.py), the whole space in order (grid.py), estimates (screen.py), which plans
are kept (top_candidates.py).

A row has one gene for each option, each degree, the replicas that share states, and the sizes of micro and
global batch. A mixture of two parents may be no valid plan. Its degrees are then replaced by the nearest
division of the devices, options without effect by their neutral value, and a micro-batch that does not
divide the work by the next smaller one. Every row is therefore a plan of the grid.
"""

from collections.abc import Callable, Iterator

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import Counts, Integers
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.records import Record
from flopcast.search.batch_losses import BatchLosses
from flopcast.search.evolution import POPULATION, Genes, evolve
from flopcast.search.grid import Grid, devices_of_peer, matters_to, plans_of
from flopcast.search.question import Question
from flopcast.search.screen import screen
from flopcast.search.space import NEUTRAL, WITHOUT_DEGREES, said
from flopcast.search.tables import Table
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan

DEGREES = (
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "virtual_stages",
    "expert_parallel",
    "expert_tensor_parallel",
)
SIZES = ("data_shard", "micro_batch", "global_batch")


class GenesOfPlans(Record, eq=False):
    """The genes of a space on one cluster.

    The values of every number are sorted, so that neighbouring values are similar. `cuts` contains the
    indices of the values of DEGREES for every division of the devices, (divisions, degrees).
    """

    grid: Grid
    options: dict[str, tuple[object, ...]]
    values: dict[str, Counts]
    cuts: Integers

    @classmethod
    def of(cls, grid: Grid) -> "GenesOfPlans":
        """Return the genes of a grid."""
        values = {name: np.unique(grid.cuts[name]) for name in DEGREES}
        sizes = (grid.shards, grid.micro_batches, grid.global_batches)
        values |= {name: np.unique(column) for name, column in zip(SIZES, sizes, strict=True)}
        cuts = np.stack([np.searchsorted(values[name], grid.cuts[name]) for name in DEGREES], axis=1)
        return cls(grid=grid, options=grid.space.offered(grid.job), values=values, cuts=cuts)

    @property
    def genes(self) -> Genes:
        """Return the genes for the search."""
        numbers = [len(values) for values in (*self.options.values(), *self.values.values())]
        sizes = np.array(numbers, dtype=np.intp)
        return Genes(sizes=sizes, start=self._start, repaired=self._repaired)

    def plans(self, rows: Integers) -> Iterator[tuple[Integers, Plan, Table]]:
        """Yield the plans of rows by structure: the rows, the structure and the degrees."""
        number = len(self.options)
        if not len(rows):
            return
        distinct, group = np.unique(rows[:, :number], axis=0, return_inverse=True)
        table = self._table(rows)
        for place, chosen in enumerate(distinct.tolist()):
            here = np.flatnonzero(group.ravel() == place)
            plan = self.grid.job.plan.model_copy(update=WITHOUT_DEGREES)
            for (name, values), at in zip(self.options.items(), chosen, strict=True):
                plan = plan.model_copy(update=said(name, values[at], plan))
            yield here, plan, {name: column[here] for name, column in table.items()}

    def _start(self, random: np.random.Generator, number: int) -> Integers:
        """Return random rows, each of a random way to cut the devices."""
        if not len(self.cuts):
            return np.zeros((0, len(self.options) + len(self.values)), dtype=np.intp)
        rows = random.integers(self.genes.sizes, size=(number, len(self.genes.sizes)))
        first = len(self.options)
        rows[:, first : first + len(DEGREES)] = self.cuts[random.integers(len(self.cuts), size=number)]
        return rows

    def _table(self, rows: Integers) -> Table:
        """Return the numbers of every row."""
        table = {
            name: values[rows[:, place]]
            for place, (name, values) in enumerate(self.values.items(), len(self.options))
        }
        used = table["tensor_parallel"] * table["context_parallel"] * table["pipeline_parallel"]
        return table | {"data_parallel": devices_of_peer(self.grid.job) / used}

    def _repaired(self, rows: Integers) -> Integers:
        """Return rows of genes as plans of the grid; rows that cannot become one are left out."""
        rows, first = rows.copy(), len(self.options)
        degrees = slice(first, first + len(DEGREES))
        for row in rows:
            row[degrees] = self.cuts[np.abs(self.cuts - row[degrees]).sum(axis=1).argmin()]
        table = self._table(rows)
        named = self.grid.space.options(self.grid.job)
        for place, (name, values) in enumerate(self.options.items()):
            if name in NEUTRAL:
                matters = matters_to(table, named)[name]
                usable = np.array([value in named[name] for value in values])
                first_usable = values.index(named[name][0])
                chosen = np.where(usable[rows[:, place]], rows[:, place], first_usable)
                rows[:, place] = np.where(matters, chosen, values.index(NEUTRAL[name]))
        micro = first + len(DEGREES) + SIZES.index("micro_batch")
        each = table["global_batch"] / table["data_parallel"]
        divides = each[:, None] % self.values["micro_batch"][None] == 0
        divides &= np.arange(divides.shape[1]) <= rows[:, micro, None]
        rows[:, micro] = divides.shape[1] - 1 - divides[:, ::-1].argmax(axis=1)
        rows = rows[divides.any(axis=1)]
        return self._shared(rows, first + len(DEGREES))

    def _shared(self, rows: Integers, gene: int) -> Integers:
        """Return rows whose states are shared as the grid offers it; all replicas share where they can."""
        zero = self.values["data_shard"] == 0
        kept = np.zeros(len(rows), dtype=bool)
        for here, structure, table in self.plans(rows):
            shares = self.grid.shares(structure, table)
            if zero.any():
                rows[here[~shares], gene] = int(zero.argmax())
            kept[here] = (shares | zero.any()) & self.grid.offered(structure, table)
        return rows[kept]


def evolved(
    question: Question,
    sized: Job,
    book_of: Callable[[Cluster], CurveBook],
    kept: KeptResults = NOTHING_KEPT,
    population: int = POPULATION,
) -> Iterator[TopCandidates]:
    """Screen the plans of a space that evolution chooses; yield the top candidates after each generation.

    Parameters
    ----------
    sized : on the cluster
    kept : layers and prices of earlier batches of few plans
    """
    grid = Grid.of(sized, question.space)
    of_plans, found, book = GenesOfPlans.of(grid), TopCandidates(), book_of(sized.cluster)

    def evaluate(rows: Integers) -> tuple[Counts, Counts]:
        """Return the losses of plans and by how much they exceed limits; store the top candidates."""
        nonlocal found
        losses = np.full((len(rows), len(question.asked)), np.inf)
        excess = np.full(len(rows), np.inf)
        for here, structure, table in of_plans.plans(rows):
            plans = plans_of(sized, structure, table)
            part = screen(sized, plans, book, kept)
            found = found.with_batch(question, sized, plans, part)
            if part.possible.any():
                each = BatchLosses.of(question, sized, plans.global_batch, part, part.step_time_s)
                losses[here[each.row]] = each.losses
                excess[here[each.row]] = np.maximum(each.over_ratio - 1.0, 0.0)
        return losses, excess

    for _ in evolve(of_plans.genes, evaluate, population):
        yield found
