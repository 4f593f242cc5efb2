"""The usual plans of a cluster: a small part of a space, which is tried first.

Answers: which few values of each open field are tried first, and which of these plans are the fastest by
estimate?
Elsewhere: the chosen plan (default_plan.py), the whole space (find.py, workers/search_tasks.py).

States are sharded if there are replicas (ZeRO-1, or the ZeRO stage of the stack), and sequences are divided
if there is tensor parallelism (unless checkpoints are partitioned instead), because both cost little time
compared with other choices. The search tries every degree, every recompute mode and every distribution of
experts. If no plan fits, the search also shards parameters; then, instead of the parameters, the embedding
tables of an exported graph; and finally each sequence, with context parallelism. If the best plan divides
tensors, plans that share sequences are tried as well.
"""

from collections.abc import Callable, Sequence

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.kept_results import KeptResults
from flopcast.layers.traced import is_graph
from flopcast.search.grid import batches_on
from flopcast.search.pruning import Incumbents
from flopcast.search.question import Question
from flopcast.search.space import USUAL_CHUNKS, Space
from flopcast.search.top_candidates import Candidate, TopCandidates
from flopcast.spec.divisors import divisors
from flopcast.spec.job import Job
from flopcast.spec.rules_shared_graphs import has_tables

MICRO_BATCHES = (1, 2, 4, 8)
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # micro-batches of an exported graph, whose samples are small
SHARDED = 3  # the ZeRO stage that shards parameters
Told = Callable[[Candidate | None], None]
CONTEXTS = (2, 4, 8, 16, 32)  # ranks that share a sequence which fits on no rank as a whole
FEW_CONTEXTS = CONTEXTS[:3]  # ranks that share a sequence instead of tensors


def usual_spaces(job: Job, space: Space) -> tuple[Space, ...]:
    """Return parts of a space on the cluster of `job`. The first part with a plan that fits is used.

    Unless the space names values, context parallelism is tried last. Tensor parallelism of an exported
    graph is not tried, because it divides only some of the products.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> [part.micro_batch for part in usual_spaces(job, Space(micro_batch=3, zero=1))]
    [(3,)]
    """
    of_graph = is_graph(job.model.blocks)
    sequences = (False,) if _is_traced(job) else space.options(job)["sequence_parallel"][:1]
    first = space.model_copy(
        update={
            "micro_batch": space.micro_batch or (SAMPLES if of_graph else MICRO_BATCHES),
            "virtual_stages": space.degrees("virtual_stages", job) or USUAL_CHUNKS,
            "context_parallel": space.context_parallel or (1,),
            "data_shard": space.data_shard or (0,),
            "zero": space.zero or _usual_stages(job),
            "sequence_parallel": sequences,
            **({"tensor_parallel": space.tensor_parallel or (1,)} if of_graph else {}),
        }
    )
    found = [first]
    if not space.zero and usual_zero(job) != SHARDED and SHARDED in job.stack.sharding.zero_stages:
        found.append(first.model_copy(update={"zero": (SHARDED,)}))
    if not space.tables and not job.plan.tables and has_tables(job.model):
        unsharded = {} if space.zero or 0 not in job.stack.sharding.zero_stages else {"zero": (0,)}
        found.append(first.model_copy(update={"tables": ("balanced",), **unsharded}))
    if _may_share_sequences(job, space):
        # activations decide whether such a plan fits, and the smallest micro-batch has the fewest
        least = min(first.micro_batch)
        found += [
            part.model_copy(update={"context_parallel": CONTEXTS, "micro_batch": (least,)})
            for part in found[:2]
        ]
    return tuple(found)


def _is_traced(job: Job) -> bool:
    """Return whether a block is a single traced layer; ranks cannot share the tokens of such a block."""
    return any(block.mixer.is_whole_block for block in job.model.blocks)


def _may_share_sequences(job: Job, space: Space) -> bool:
    """Return whether ranks can share a sequence, and the space leaves their number open."""
    return not (space.degrees("context_parallel", job) or is_graph(job.model.blocks) or _is_traced(job))


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
    """Return the best usual plans of a question on one cluster, with the numbers of usual plans.

    Parameters
    ----------
    question : Question
    job : one of `Question.sized()`
    book : the curves of the job's cluster
    kept : as for `screen`
    most : number of plans that are kept for their first loss
    feasible_only : as for `TopCandidates.after_each`
    told : called with the best plan so far after every batch
    """

    def best_of(space: Space, before: Incumbents) -> TopCandidates:
        found, on_job = TopCandidates(most=most), batches_on(job, space)
        for after in found.after_each(question, on_job, lambda _: book, kept, before, feasible_only):
            found = after
            if after.best:
                told(after.best[0])
        return found

    found = TopCandidates(most=most)
    for space in usual_spaces(job, question.space):
        found = found.joined(best_of(space, found.incumbents))
        if found.best:
            shared = _with_shared_sequences(question.space, space, [each.job for each in found.best])
            return found if shared is None else found.joined(best_of(shared, found.incumbents))
    return found


def _with_shared_sequences(asked: Space, usual: Space, best: Sequence[Job]) -> Space | None:
    """Return the part of the usual space that shares sequences and is near the best plans.

    Parameters
    ----------
    asked, usual : the space of the question, and its part with the best plans
    best : with these plans, the fastest first

    Returns
    -------
    Space or None
        Plans with context parallelism, the smallest micro-batch, at most the tensor parallelism of the best
        plan and the recompute modes of all; None if the best plan divides no tensors or shares sequences,
        or if no plan may share them.
    """
    degree = best[0].plan.tensor_parallel
    if degree == 1 or best[0].plan.context_parallel > 1 or not _may_share_sequences(best[0], asked):
        return None
    return usual.model_copy(
        update={
            "context_parallel": FEW_CONTEXTS,
            "micro_batch": (min(usual.micro_batch),),
            "tensor_parallel": asked.tensor_parallel or tuple(divisors(degree)),
            "recompute": tuple(dict.fromkeys(job.plan.recompute_word for job in best)),
        }
    )


def some_usual_plan_fits(question: Question, job: Job, kept: KeptResults) -> bool:
    """Return whether any usual plan of a question without limits is feasible; needs no curves.

    The parameters are those of `usual_candidates`.
    """
    return any(
        found.feasible
        for space in usual_spaces(job, question.space)
        for found in TopCandidates().after_each(question, batches_on(job, space), lambda _: None, kept)
    )


def _usual_stages(job: Job) -> tuple[int, ...]:
    """Return the ZeRO stages that are tried first: the usual one and, if weights are frozen, 0.

    Frozen weights have no optimizer states, so ranks often have enough memory for whole copies of them.
    """
    usual = usual_zero(job)
    keeps_whole = job.model.adapters is not None and 0 in job.stack.sharding.zero_stages
    return (usual, 0) if keeps_whole and usual == SHARDED else (usual,)


def usual_zero(job: Job) -> int:
    """Return the default ZeRO stage of the stack, or the lowest above 0; 0 without optimizer."""
    if job.plan.tables:  # which ZeRO-3 would shard a second time
        return 0
    if job.batch.forward_only and 0 in job.stack.sharding.zero_stages:
        return 0
    if job.stack.sharding.usual_zero is not None:
        return job.stack.sharding.usual_zero
    stages: Sequence[int] = sorted(stage for stage in job.stack.sharding.zero_stages if stage)
    return stages[0] if stages else 0
