"""A predicted step as traces: for people (Perfetto, Chrome) and for simulators of networks (Chakra).

Answers: which files show, or replay, the step of this job?
Elsewhere: the content of the files (report/events.py, rank_graph.py).
"""

import json

from flopcast.cost.ranks import place_of
from flopcast.errors import Problem, SpecError
from flopcast.files.exported import Exported
from flopcast.interop.exports.chakra import chakra, groups_of
from flopcast.interop.exports.rank_graph import group_sizes, most_nodes, stage_graph
from flopcast.interop.exports.trace_files import chrome_trace, perfetto_trace
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.spec.layer_strategies import layers_word

MOST_NODES = 1_000_000  # over all ranks: about 100 MB
SHORT = "if there are many micro-batches, the trace shows operators only in the first and the last ones"


def predicted(job: Job) -> Report:
    """Return the report of a job, predicted with the curves of the catalogue."""
    return predict(job, load_book(job.cluster))


def export_perfetto(job: Job) -> Exported:
    """Return the step as a Perfetto trace."""
    return Exported(files=(("step.pftrace", perfetto_trace(predicted(job))),), notes=(SHORT,), binary=True)


def export_chrome(job: Job) -> Exported:
    """Return the step as Chrome's trace events."""
    return Exported(files=(("step.json", chrome_trace(predicted(job))),), notes=(SHORT,))


def export_chakra(job: Job) -> Exported:
    """Return the step as a Chakra trace for each rank, and the groups that their collectives name.

    Raises
    ------
    SpecError
        Data-parallel ranks differ, blocks have strategies of their own, or there are too many nodes.
    """
    if job.batch.ranks:
        because = "the exporter writes one graph for all ranks of a stage"
        raise SpecError([_fault("batch.ranks", len(job.batch.ranks), "a batch without ranks", because)])
    if job.plan.layers:
        because = "traces with different groups of ranks for different blocks are not supported yet"
        word = layers_word(job.plan.layers)
        raise SpecError([_fault("plan.layers", word, "one strategy for all blocks", because)])
    report, plan = predicted(job), job.plan
    if (total := most_nodes(report)) > MOST_NODES:
        most = f"a step with at most about {MOST_NODES} nodes over all ranks"
        raise SpecError([_fault("plan.global_batch", plan.global_batch, most, f"the step has {total}")])
    graphs = [stage_graph(report, stage) for stage in range(plan.pipeline_parallel)]
    groups = groups_of(plan, tuple(group_sizes(report)))
    stages = [place_of(plan, rank)["pp"] for rank in range(plan.devices)]
    files = [
        (f"step.{rank}.et", chakra(graphs[stages[rank]], plan, rank, groups))
        for rank in range(plan.devices)
    ]
    listed = {str(number): list(ranks) for ranks, number in groups.items()}
    files.append(("groups.json", json.dumps(listed).encode("utf-8")))
    notes = (
        "in ASTRA-sim: --workload-configuration=FOLDER/step --comm-group-configuration=FOLDER/groups.json",
        (
            "durations are rounded to microseconds; the trace sends tokens to experts by an all-to-all"
            " over the expert-parallel ranks"
        ),
        (
            "the trace does not contain contention, jitter and kernel launch times, so the simulator must "
            "model them"
        ),
    )
    return Exported(files=tuple(files), notes=notes, binary=True)


def _fault(field: str, value: object, allowed: str, because: str) -> Problem:
    """Return the fault of a job that is too large for one file per rank."""
    return Problem(field, value, allowed, because, "export a step with fewer micro-batches")
