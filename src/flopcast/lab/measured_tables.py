"""Tables of measured quantities: serving, offloaded training, graphs, fused products.

Answers: to which kind does a table file belong, which runs does it contain, how are they scored, and which
runs can be left out of a fit?
Elsewhere: how a table is read (run_tables.py), the rows of each table (one file per table), statistics
(scores.py), tables of training runs (published/).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from flopcast.lab import fused_products
from flopcast.lab.graph_runs import diffusion, neusight, timm
from flopcast.lab.graph_runs import mlperf as graph_mlperf
from flopcast.lab.graph_runs.measured import GraphRun
from flopcast.lab.graph_runs.score import score_runs as score_graphs
from flopcast.lab.offload_runs import nvme, zero3
from flopcast.lab.offload_runs.rows import OffloadRun
from flopcast.lab.offload_runs.score import OF_DATA_SHEETS
from flopcast.lab.offload_runs.score import score_runs as score_offload
from flopcast.lab.run_tables import USUAL, ReadOptions, RunBlocks, RunTable
from flopcast.lab.scores import AnyScores, MeasuredNumber, MeasuredRun
from flopcast.lab.serving_runs import aiconfigurator, apex, deployments, mlenergy, mlperf, offloads, replays
from flopcast.lab.serving_runs.rows import ServingRun
from flopcast.lab.serving_runs.score import score_runs as score_serving
from flopcast.lab.validation.published import Constants
from flopcast.records import Record

Run = TypeVar("Run", bound=MeasuredRun[MeasuredNumber])


class MeasuredTables(Record, Generic[Run], eq=False, slots=False):
    """One kind of tables.

    Attributes
    ----------
    name
        What the tables measure.
    tables
        The tables. A file is read as the first table whose columns it has.
    score
        The function that predicts runs with the constants that one of the values in `constants` names.
    constants
        The constants for predictions: the names that options of a command use, and the names that `score`
        uses.
    because
        The reason why no other constants can be chosen.
    beside
        The constants of a second score, in addition to the score with the constants of the catalogue; ""
        if there is no second score.
    of_data_sheets
        The constants with which machines have no rates that were fitted to their runs.
    """

    name: str
    tables: Sequence[RunTable[Run] | RunBlocks[Run]]
    score: Callable[[Sequence[Run], Any], AnyScores]
    constants: Mapping[Constants, str]
    because: str
    beside: str = ""
    of_data_sheets: Sequence[str] = ()

    def holds(self, path: Path) -> bool:
        """Return whether a file is a table of this kind."""
        return self._table(path) is not None

    def read(self, path: Path, options: ReadOptions = USUAL) -> tuple[Run, ...]:
        """Return the runs of a table, in its order; no runs for a file of another kind."""
        table = self._table(path)
        return () if table is None else table.read(path, options)

    def scores(
        self, paths: Sequence[str], chosen: Constants, measured_on: object
    ) -> tuple[AnyScores, AnyScores | None]:
        """Return the scores of tables with the chosen constants, and those shown for comparison."""
        constants = self.constants[chosen]
        options = ReadOptions(fitted=constants not in self.of_data_sheets, measured_on=measured_on)
        runs = [run for path in paths for run in self.read(Path(path), options)]
        beside = self.score(runs, self.beside) if self.beside and chosen == "catalogue" else None
        return self.score(runs, constants), beside

    def _table(self, path: Path) -> RunTable[Run] | RunBlocks[Run] | None:
        return next((table for table in self.tables if table.holds(path)), None)


SERVING: MeasuredTables[ServingRun] = MeasuredTables(
    name="serving",
    tables=(
        aiconfigurator.TABLE,
        mlenergy.TABLE,
        mlperf.TABLE,
        apex.TABLE,
        replays.TABLE,
        offloads.TABLE,
        deployments.TABLE,
    ),
    score=score_serving,
    constants={"catalogue": "catalogue", "models": "model", "generations": "device", "none": "none"},
    because="only a model or a device can be left out of the fit, and --report is not supported",
)
OFFLOAD: MeasuredTables[OffloadRun] = MeasuredTables(
    name="offloaded training",
    tables=(zero3.TABLE, nvme.TABLE),
    score=score_offload,
    constants={
        "catalogue": "catalogue",
        "models": "model",
        "others": "folder",
        "generations": "generation",
        "none": "none",
    },
    because="only a model, a folder of logs or a generation can be left out, and --report is not supported",
    beside="model",
    of_data_sheets=OF_DATA_SHEETS,
)
GRAPHS: MeasuredTables[GraphRun] = MeasuredTables(
    name="models that are not decoders",
    tables=(*timm.TABLES, neusight.TABLE, diffusion.TABLE, graph_mlperf.TABLE),
    score=score_graphs,
    constants={"catalogue": "catalogue", "models": "family", "generations": "device", "none": "none"},
    because="only a family or a device can be left out of the fit, and --report is not supported",
)
FUSED_PRODUCTS: MeasuredTables[fused_products.FusedRun] = MeasuredTables(
    name="fused products",
    tables=(fused_products.TABLE,),
    score=fused_products.score_fused_products,
    constants={"catalogue": "catalogue"},
    because="nothing is fitted to these rows, and --report is not supported",
)
KINDS: tuple[MeasuredTables[Any], ...] = (SERVING, OFFLOAD, GRAPHS, FUSED_PRODUCTS)
