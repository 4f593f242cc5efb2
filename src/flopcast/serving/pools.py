"""The report of two pools of instances, one for prompts and one for decoding.

Elsewhere: their simulation (joined_pools.py), reports without pools (serving_report.py).
"""

from collections.abc import Mapping

from flopcast.dtypes import Floats
from flopcast.records import Record
from flopcast.serving.instances import Instances
from flopcast.serving.kv_transfer import KvTransfer
from flopcast.serving.memory import ServingMemory
from flopcast.serving.served import LIMITED_BY, Iterations, Served, limit_share
from flopcast.serving.time_shares import TimeShares
from flopcast.spec.serving_job import ServingJob


class PoolReport(Record, eq=False):
    """One pool: its instances as a job, their memory, and the division of the time of their iterations."""

    job: ServingJob
    memory: ServingMemory
    shares: Mapping[str, float]  # of the time of a mean iteration, by component
    iteration_s: float  # mean over all iterations
    busy_share: float  # of the time from the first arrival to the last token
    limited_by: str


class Pools(Record, eq=False):
    """Both pools, and the transfer of keys and values from the one to the other."""

    prefill: PoolReport
    decode: PoolReport
    tier: str  # name of the link between them
    mean_bytes: float  # that a prompt sends
    mean_transfer_s: float  # from the end of a prompt until its keys and values have moved


def pools_of(
    kinds: list[Instances], shares: list[TimeShares], served: Served, transfer: KvTransfer
) -> Pools:
    """Return the report of two pools whose requests were simulated.

    Parameters
    ----------
    kinds : list of Instances
        The pool of prompts and the pool that decodes.
    shares : list of TimeShares
        The division of the time of iterations, for each pool.
    served : Served
        Times of the requests and iterations of both pools.
    transfer : KvTransfer

    Returns
    -------
    Pools
        Means over transfers leave out requests with a single output token, which are never moved.
    """
    numbers = served.prefill_engines, served.engines
    span_s = served.end_s - float(served.arrival_s.min())
    prefill, decode = (
        _pool(kind, share, table, span_s * number)
        for kind, share, table, number in zip(kinds, shares, served.tables, numbers, strict=True)
    )
    moved = served.requests.output_tokens > 1
    waited_s: Floats = served.transferred_s[moved]
    return Pools(
        prefill=prefill,
        decode=decode,
        tier=transfer.tier,
        mean_bytes=float(transfer.sent_bytes[moved].mean()),
        mean_transfer_s=float(waited_s.mean()),
    )


def _pool(kind: Instances, shares: TimeShares, table: Iterations, span_s: float) -> PoolReport:
    busy_s = float(table.elapsed_s.sum())
    return PoolReport(
        job=kind.job,
        memory=kind.memory,
        shares=shares.shares,
        iteration_s=busy_s / max(float(table.passes.sum()), 1.0),
        busy_share=busy_s / span_s,
        limited_by=max(LIMITED_BY, key=lambda word: limit_share(table, LIMITED_BY.index(word))),
    )
