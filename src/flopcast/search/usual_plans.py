"""The plans that somebody who knows a cluster would try first: a small part of a space.

Answers: which few values of each open field are tried first, and which of these plans are the fastest by
estimate?
Elsewhere: which of them is chosen (default_plan.py), the whole space (find.py, workers/search_tasks.py).

States are sharded wherever there are replicas (ZeRO-1, or what the stack has), and sequences wherever there
is tensor parallelism (unless checkpoints are cut instead), since neither costs time that the other choices
could win back; every degree and recompute mode is tried, and every spread of experts. Where nothing fits,
parameters are sharded too, then, instead of these, the embedding tables of an exported graph, and last the
tokens of each sequence, by context parallelism.
"""

from collections.abc import Callable, Sequence

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.kept_results import KeptResults
from flopcast.layers.traced import is_graph
from flopcast.search.grid import batches_on
from flopcast.search.question import Question
from flopcast.search.space import USUAL_CHUNKS, Space
from flopcast.search.top_candidates import Candidate, TopCandidates
from flopcast.spec.job import Job
from flopcast.spec.rules_shared_graphs import has_tables

MICRO_BATCHES = (1, 2, 4, 8)
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # micro-batches of an exported graph, whose samples are small
SHARDED = 3  # the ZeRO stage that shards parameters
Told = Callable[[Candidate | None], None]
CONTEXTS = (2, 4, 8, 16, 32)  # ranks that share a sequence which fits on no rank as a whole


def usual_spaces(job: Job, space: Space) -> tuple[Space, ...]:
    """Return parts of a space on the cluster of `job`, of which the first with a plan that fits counts.

    Unless the space names its values, context parallelism is tried last, and tensor parallelism of an
    exported graph, whose products it divides only in part, is not tried.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> [part.micro_batch for part in usual_spaces(job, Space(micro_batch=3, zero=1))]
    [(3,)]
    """
    of_graph = is_graph(job.model.blocks)
    traced = any(
        block.mixer.is_whole_block for block in job.model.blocks
    )  # no rank has a part of its tokens
    sequences = (False,) if traced else space.options(job)["sequence_parallel"][:1]
    first = space.model_copy(
        update={
            "micro_batch": space.micro_batch or (SAMPLES if of_graph else MICRO_BATCHES),
            "virtual_stages": space.degrees("virtual_stages", job) or USUAL_CHUNKS,
            "context_parallel": space.context_parallel or (1,),
            "data_shard": space.data_shard or (0,),
            "zero": space.zero or (usual_zero(job),),
            "sequence_parallel": sequences,
            **({"tensor_parallel": space.tensor_parallel or (1,)} if of_graph else {}),
        }
    )
    found = [first]
    if not space.zero and usual_zero(job) != SHARDED and SHARDED in job.stack.sharding.zero_stages:
        found.append(first.model_copy(update={"zero": (SHARDED,)}))
    if not space.tables and not job.plan.tables and has_tables(job.model):
        unsharded = {} if space.zero or 0 not in job.stack.sharding.zero_stages else {"zero": (0,)}
        found.append(first.model_copy(update={"tables": ("table",), **unsharded}))
    if not (space.degrees("context_parallel", job) or of_graph or traced):
        # activations decide whether such a plan fits, and the smallest micro-batch has the fewest
        least = min(first.micro_batch)
        found += [
            part.model_copy(update={"context_parallel": CONTEXTS, "micro_batch": (least,)})
            for part in found[:2]
        ]
    return tuple(found)


def usual_candidates(
    question: Question,
    job: Job,
    book: CurveBook,
    kept: KeptResults,
    most: int,
    *,
    feasible_only: bool = True,
    told: Told = lambda _: None,
) -> TopCandidates:
    """Return the best of the usual plans of a question on one cluster; counts are of these plans.

    Parameters
    ----------
    question : Question
    job : one of `Question.sized()`
    book : the curves of its cluster
    kept : as for `screen`
    most : plans that are kept for their first loss
    feasible_only : as for `TopCandidates.after_each`
    told : hears the best plan so far after every batch
    """
    found = TopCandidates(most=most)
    for space in usual_spaces(job, question.space):
        of_space, on_job = TopCandidates(most=most), batches_on(job, space)
        for after in of_space.after_each(
            question, on_job, lambda _: book, kept, feasible_only=feasible_only
        ):
            of_space = after
            if told is not None and after.best:
                told(after.best[0])
        found = found.joined(of_space)
        if found.best:
            break
    return found


def some_usual_plan_fits(question: Question, job: Job, kept: KeptResults) -> bool:
    """Return whether any usual plan of a question without limits is feasible; needs no curves.

    Parameters are as of `usual_candidates`, whose `best` then holds a plan.
    """
    return any(
        found.feasible
        for space in usual_spaces(job, question.space)
        for found in TopCandidates().after_each(question, batches_on(job, space), lambda _: None, kept)
    )


def usual_zero(job: Job) -> int:
    """Return the default ZeRO stage: the lowest above 0 that the stack has, or 0; 0 without optimizer."""
    if job.plan.tables:  # which ZeRO-3 would shard a second time
        return 0
    if job.batch.forward_only and 0 in job.stack.sharding.zero_stages:
        return 0
    stages: Sequence[int] = sorted(stage for stage in job.stack.sharding.zero_stages if stage)
    return stages[0] if stages else 0
