"""All plans of a space, as columns of arrays, in batches of plans with the same structure.

Answers: which plans does a space contain, and which plan does a row describe?
Elsewhere: the allowed values (space.py), possible plans and their step times (screen.py).

Degrees are combined axis by axis: in a table of divisions of the devices, each row is repeated for every
value of the next axis. Impossible rows are dropped immediately. Tables that are longer than a batch are
combined in parts, so that memory does not grow with the space. Plans are ordered by fields, and by the
order of values in the space.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from math import gcd

import numpy as np

from flopcast.dtypes import Counts, Flags
from flopcast.layers.experts import Experts
from flopcast.records import Record
from flopcast.schedules import resolved, schedule_of
from flopcast.schedules.custom import OwnSchedule
from flopcast.search.space import MICRO_BATCH_SEQUENCES, MICRO_BATCH_TOKENS, NEUTRAL, USUAL_CHUNKS, Space
from flopcast.search.tables import Table, column_of, each_with, in_parts, joined_with, regrouped, rows_where
from flopcast.search.usual_training import usual_batch
from flopcast.spec.divisors import divided_over_chunks, divisors
from flopcast.spec.job import Job
from flopcast.spec.offload import fraction_in
from flopcast.spec.orders import stage_layers
from flopcast.spec.plan import Plan, Plans
from flopcast.spec.plan_fields import NUMERIC
from flopcast.spec.rows import equal_rows

SHARDED = 3  # the ZeRO stage that shards parameters
EVEN_RATIO = 1.1  # of the longest chunk to the mean one of the fullest stage
BATCH_ROWS = 2**18  # of one batch, at most


def batches(job: Job, space: Space, rows: int = BATCH_ROWS) -> Iterator[tuple[Job, Plans]]:
    """Yield every plan of the space as batches of one structure on one cluster, with the cluster's job.

    Parameters
    ----------
    job : its plan gives the fields that the space does not name
    rows : largest number of rows of a batch

    Yields
    ------
    Job, Plans
        Plans use every device, but may break rules. No plan occurs twice.

    Raises
    ------
    SpecError
        A number of devices is not one of whole nodes.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> few = Space(tp=1, pp="1,2", vpp=1, mbs=1, gbs=64, zero=0, cp=1)
    >>> [(plans.structure.recompute, plans.size) for _, plans in batches(job, few)]
    [('none', 2), ('full', 2)]
    """
    for sized in space.jobs(job):
        yield from batches_on(sized, space, rows)


def batches_on(sized: Job, space: Space, rows: int = BATCH_ROWS) -> Iterator[tuple[Job, Plans]]:
    """Yield batches as `batches` does, but on the job's cluster only, ignoring the sizes of the space."""
    grid = Grid.of(sized, space)
    for structure in space.structures(sized):
        for table in grid.tables(structure, rows):
            yield sized, plans_of(sized, structure, table)


def num_plans(job: Job, space: Space) -> int:
    """Return the number of plans that `batches` yields, without creating these plans."""
    total = 0
    for sized in space.jobs(job):
        grid = Grid.of(sized, space)
        total += sum(grid.count(structure) for structure in space.structures(sized))
    return total


def plans_by_structure(sized: Job, space: Space) -> tuple[int, ...]:
    """Return the number of plans of each structure on one cluster, in the order of `batches`."""
    grid = Grid.of(sized, space)
    return tuple(grid.count(structure) for structure in space.structures(sized))


def plans_from(
    sized: Job, space: Space, structure: int, first: int, number: int, rows: int = BATCH_ROWS
) -> Iterator[Plans]:
    """Yield a part of the plans that `batches` yields on one cluster.

    Parameters
    ----------
    sized : the job on this cluster
    structure, first : index of the first structure, and number of its plans that are left out
    number : largest number of plans; after the last plan of a structure, those of the next structure follow
    rows : largest number of plans in a batch

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> few = Space(tp=1, pp="1,2", vpp=1, mbs=1, gbs=64, zero=0, cp=1)
    >>> plans_by_structure(job, few), [plans.size for plans in plans_from(job, few, 0, 1, 3)]
    ((2, 2), [1, 2])
    """
    grid = Grid.of(sized, space)
    skipped, left = first, number
    for given in space.structures(sized)[structure:]:
        for table in grid.tables(given, rows):
            length = len(table["data_parallel"])
            part = {name: column[skipped : skipped + left] for name, column in table.items()}
            taken = min(max(length - skipped, 0), left)
            skipped, left = max(skipped - length, 0), left - taken
            if taken:
                yield plans_of(sized, given, part)
            if not left:
                return


def plans_of(job: Job, structure: Plan, table: Table) -> Plans:
    """Return the plans of one structure whose degrees a table lists."""
    columns = {name: table[name][:, None] for name in NUMERIC}
    return Plans(structure=structure, uneven_blocks=job.model.num_blocks, **columns)


def plan_at(plans: Plans, row: int) -> Plan:
    """Return the plan of one row; a schedule that "auto" chooses is "auto".

    Examples
    --------
    >>> from flopcast.spec.plan import batch_plans
    >>> plans = batch_plans([Plan(dp=8, gbs=8), Plan(dp=4, tp=2, gbs=8)])
    >>> plan_at(plans, 1).short()
    'dp=4 tp=2 mbs=1 gbs=8 precision=bf16'
    """
    degrees = {name: int(getattr(plans, name)[row, 0]) for name in NUMERIC}
    listed = {"stage_layers": stage_layers(plans, row)}
    plan = plans.structure.model_copy(update=degrees | listed)
    meant = plan.model_copy(update={"schedule": "auto"})
    return meant if meant.pipeline_schedule == plan.schedule else plan


class Grid(Record, eq=False):
    """A space on one cluster: the divisions of devices and layers, and the axes that are combined last."""

    job: Job
    space: Space
    cuts: Table  # all degrees but `data_shard`
    micro_batches: Counts
    global_batches: Counts

    @classmethod
    def of(cls, job: Job, space: Space) -> "Grid":
        """Return the grid of a job on its cluster."""
        asked = space.global_batch or (usual_batch(job, space.micro_batch),)
        return cls(
            job=job,
            space=space,
            cuts=_cuts(job, space),
            micro_batches=column_of(space.micro_batch or _micro_batches(job, asked)),
            global_batches=column_of(asked),
        )

    def tables(self, structure: Plan, rows: int) -> Iterator[Table]:
        """Return the plans of a structure."""
        sharded = in_parts(self._sharded(structure), rows)
        small = regrouped(each_with(sharded, "micro_batch", self.micro_batches, rows), rows)
        step = max(1, rows // len(self.global_batches))
        return regrouped((self._whole(part) for table in small for part in in_parts(table, step)), rows)

    @property
    def shards(self) -> Counts:
        """Return the numbers of replicas that may share states; 0 means all replicas."""
        return column_of(self.space.data_shard or (0, *divisors(devices_of_peer(self.job))[1:]))

    def count(self, structure: Plan) -> int:
        """Return the number of plans of a structure: for each row of degrees, the number of batch sizes."""
        total = 0
        data, often = np.unique(self._sharded(structure)["data_parallel"], return_counts=True)
        for micro in self.micro_batches:
            fits = self.global_batches[None] % (data[:, None] * micro) == 0
            total += int((fits.sum(axis=1) * often).sum())
        return total

    def _whole(self, table: Table) -> Table:
        """Return every row with every global batch that its replicas and micro-batch divide."""
        each, code = np.unique(table["data_parallel"] * table["micro_batch"], return_inverse=True)
        fits = self.global_batches[None] % each[:, None] == 0
        valued, number = np.nonzero(fits)[1], fits.sum(axis=1)
        often, first = number[code], (number.cumsum() - number)[code]
        row = np.repeat(np.arange(len(code)), often)
        within = np.arange(len(row)) - np.repeat(often.cumsum() - often, often)
        batch = self.global_batches[valued[first[row] + within]]
        return {name: column[row] for name, column in table.items()} | {"global_batch": batch}

    def _sharded(self, structure: Plan) -> Table:
        """Return the cuts that a structure's options matter to, with every number of sharded replicas.

        One row for each of these; 0 is all replicas.
        """
        cuts = rows_where(self.cuts, self.offered(structure, self.cuts))
        if structure.zero == 0:
            table = cuts | {"data_shard": np.zeros_like(cuts["data_parallel"])}
            named = self.space.data_shard or (0,)
            return table if min(named) <= 1 else {name: column[:0] for name, column in table.items()}
        table = joined_with(cuts, "data_shard", self.shards)
        return rows_where(table, self.shares(structure, table))

    def offered(self, structure: Plan, table: Table) -> Flags:
        """Return the rows of a table, (rows,), with which the options of a structure are combined.

        Rows for which an option matters are combined with each value that the space names, and other rows
        with the neutral value.
        """
        options = self.space.options(self.job)
        kept = np.ones(table["pipeline_parallel"].shape, dtype=bool)
        outside = fraction_in(structure.offload, "parameters") > 0  # which only sharded parameters can be
        for name, matters in matters_to(table, options).items():
            value, own = getattr(structure, name), matters | (outside and name == "zero")
            kept &= (own & (value in options[name])) | (~own & (value == NEUTRAL[name]))
        return np.asarray(kept & _has_chunks_of(structure, table["virtual_stages"]))

    def shares(self, structure: Plan, table: Table) -> Flags:
        """Return the rows whose `data_shard` the replicas of a structure may have, (rows,)."""
        shard, data = table["data_shard"], table["data_parallel"]
        if structure.zero == 0:
            return np.asarray(shard == 0)
        all_named = (
            self.space.data_shard and 0 not in self.space.data_shard
        )  # one group is named by its size
        fewer = (data % np.maximum(shard, 1.0) == 0) & ((shard <= data) if all_named else (shard < data))
        if not self.space.data_shard:
            inside = shard * table["tensor_parallel"] * table["context_parallel"]
            fewer &= (structure.zero == SHARDED) & (inside == self.job.cluster.scale_up_devices)
        return np.asarray((shard == 0) | fewer)


def devices_of_peer(job: Job) -> int:
    """Return the devices of a peer; if peers do not divide the devices, a rule refuses every plan."""
    return max(1, job.cluster.num_devices // job.plan.peers)


def _cuts(job: Job, space: Space) -> Table:
    """Return ways to divide devices and blocks: every degree but the number of sharded replicas."""
    devices, blocks = devices_of_peer(job), job.model.num_blocks
    all_degrees = tuple(divisors(devices))
    table: Table = {}
    for name in ("tensor_parallel", "context_parallel", "pipeline_parallel"):
        table = joined_with(table, name, column_of(space.degrees(name, job) or all_degrees))
        used = reduce(np.multiply, table.values())
        table = rows_where(table, devices % used == 0)
    cut = space.tensor_in_domain and not space.tensor_parallel  # a degree that is named is tried
    domain = job.cluster.scale_up_devices if cut else devices
    inside = (table["tensor_parallel"] <= domain) & (table["pipeline_parallel"] <= blocks)
    table = rows_where(table, inside)
    table["data_parallel"] = devices / reduce(np.multiply, table.values())
    if space.data_parallel:
        table = rows_where(table, np.isin(table["data_parallel"], space.data_parallel))
    usual = {*divisors(blocks), *divisors(blocks + 2), *USUAL_CHUNKS}
    asked = space.degrees("virtual_stages", job) or tuple(sorted(usual))
    table = joined_with(table, "virtual_stages", column_of(asked))
    virtual, stages = table["virtual_stages"], table["pipeline_parallel"]
    equal = equal_rows([stages, virtual])
    pairs = np.stack([stages, virtual], axis=1)[equal.first].astype(int).tolist()
    even = np.array([divided_evenly(blocks, *pair) for pair in pairs], dtype=bool)[equal.group]
    table = rows_where(table, (virtual == 1) | ((stages > 1) & even))
    return _with_experts(job, space, table)


def divided_evenly(blocks: int, stages: int, virtual: int) -> bool:
    """Return whether no chunk is much longer than the mean chunk of the fullest stage.

    The embedding and the head each count as one block. Chunks of one round run at the same time. If some
    are twice as long as others, a step takes about 14 % longer than screening predicts, and better plans
    exist.

    Examples
    --------
    Llama 3 405B with one block per chunk and fewer at both ends; DeepSeek-V3 with one or two:

    >>> divided_evenly(126, 16, 8), divided_evenly(61, 16, 3)
    (True, False)
    """
    chunks = stages * virtual
    if blocks % chunks == 0 or chunks > blocks + 2:
        return blocks % chunks == 0
    held = np.array(divided_over_chunks(blocks, chunks))
    held[[0, -1]] += 1
    fullest = held.reshape(virtual, stages).sum(axis=0).max()
    return bool(held.max() * virtual <= EVEN_RATIO * fullest)


def _with_experts(job: Job, space: Space, table: Table) -> Table:
    """Return the table with every placement of experts on the ranks of a stage; unchanged if dense."""
    layers = [block.feed_forward for block in job.model.blocks]
    experts = [layer.num_experts for layer in layers if isinstance(layer, Experts)]
    tensor = table["tensor_parallel"]
    if not experts:
        is_shared = space.tables or job.plan.tables or job.plan.halo
        spread = table["data_parallel"] if is_shared else np.ones_like(tensor)
        return table | {"expert_parallel": spread, "expert_tensor_parallel": tensor}
    table = joined_with(
        table, "expert_parallel", column_of(space.expert_parallel or divisors(gcd(*experts)))
    )
    table = joined_with(table, "expert_tensor_parallel", column_of(_shared_by(space, table)))
    tensor, shared = table["tensor_parallel"], table["expert_tensor_parallel"]
    ranks = tensor * table["data_parallel"] * table["context_parallel"]
    fits = ((shared == 1) | (shared == tensor)) & (ranks % (table["expert_parallel"] * shared) == 0)
    return rows_where(table, fits)


def _shared_by(space: Space, table: Table) -> list[float]:
    """Return numbers of ranks that may share an expert: one, or all tensor-parallel ones."""
    if space.expert_tensor_parallel:
        return [float(number) for number in space.expert_tensor_parallel]
    return sorted({1.0, *table["tensor_parallel"].tolist()})


def _micro_batches(job: Job, global_batches: tuple[int, ...]) -> list[int]:
    """Return divisors of the global batches, up to the largest size that is worth a try."""
    most = max(MICRO_BATCH_SEQUENCES, MICRO_BATCH_TOKENS // job.batch.sequence_length)
    return [micro for micro in range(1, most + 1) if any(batch % micro == 0 for batch in global_batches)]


def matters_to(table: Table, options: Mapping[str, tuple[object, ...]]) -> dict[str, Flags]:
    """Return the rows of a table, (rows,), for which each option with a neutral value matters."""
    stages, replicas = table["pipeline_parallel"], table["data_parallel"] * table["context_parallel"]
    shared = table["context_parallel"] > 1
    own = any(isinstance(name, OwnSchedule) for name in options["schedule"])
    return {
        "sequence_parallel": table["tensor_parallel"] > 1,
        "zero": replicas > 1,
        "context_exchange": shared,
        "context_order": shared,
        "schedule": (stages > 1) | own,
    }


def _has_chunks_of(structure: Plan, virtual: Counts) -> np.ndarray:
    """Return the rows with as many chunks per stage as a schedule needs, (rows,)."""
    schedule = structure.schedule
    one, several = (schedule_of(resolved(schedule, chunks)).takes_chunks(virtual) for chunks in (1, 2))
    return np.where(virtual > 1, several, one)
