"""Equal instances of an engine: the limits of one scheduler, and how long its passes take.

Answers: which limits and which pass times apply to a job, or to one of its pools?
Elsewhere: the scheduler (scheduler.py), memory (memory.py), prices (pass_prices.py).
"""

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.records import Record, replace
from flopcast.serving.adapters import load_s
from flopcast.serving.drafts import DraftedTimes, draft_of, job_of_draft, joined_inputs, layers_side_by_side
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.joined_attention import joins_attention, with_joined_attention
from flopcast.serving.lower import ServedLayer, lower_passes
from flopcast.serving.memory import ServingMemory, serving_memory
from flopcast.serving.pass_prices import PricedPasses, price_passes
from flopcast.serving.pass_times import PassTimes, pass_times, without_host
from flopcast.serving.requests import Limits
from flopcast.serving.stages import StagedTimes, by_stage, hops, staged_times
from flopcast.serving.streamed_bytes import copies_of
from flopcast.spec.serving_job import ServingJob

Times = PassTimes | StagedTimes | DraftedTimes


class Instances(Record, eq=False):
    """The instances of a job without pools, or of one pool of a job.

    Attributes
    ----------
    job : ServingJob
        The job, with the degrees of one instance of the pool in its plan.
    memory : ServingMemory
        Memory of the fullest device of an instance.
    limits : Limits
        Limits of one scheduler: sequences, tokens of an iteration, KV blocks.
    times : Times
        Function for the scheduler that returns the seconds of any pass.
    """

    job: ServingJob
    memory: ServingMemory
    limits: Limits
    times: Times


def instances_of(job: ServingJob, book: CurveBook, longest: int) -> Instances:
    """Return the instances of a job without pools; `longest` is the longest request, in tokens."""
    memory = serving_memory(job)
    return Instances(
        job=job, memory=memory, limits=_limits_of(job, memory, longest), times=times_of(job, book, longest)
    )


def times_of(job: ServingJob, book: CurveBook, longest: int) -> Times:
    """Return the seconds of every pass that a job may run.

    Parameters
    ----------
    job : ServingJob
    book : CurveBook
        Curves of kernels and collectives.
    longest : int
        Longest context of a request, in tokens; the tables extend to it.

    Returns
    -------
    PassTimes, StagedTimes or DraftedTimes
        A function of new tokens, sequences, cached tokens and pairs of a pass. With pipeline stages it
        combines the tables of all stages; with drafted tokens, it adds the passes of the draft model, whose
        first pass also computes the tokens of prompts.
    """

    def price(passes: EnginePass) -> tuple[PricedPasses, ...]:
        return by_stage(price_of(job, book, passes), job.model, job.plan, job.cluster)

    sizes = (_most_tokens(job, longest), job.most_sequences, longest)
    engine = job.engine.model_copy(update={"iteration": job.iteration})
    tables = pass_times(
        price,
        engine,
        *sizes,
        job.computed_tokens,
        job.overlap,
        hides_expert_messages=job.plan.expert_messages == "hidden",
        joins=joins_attention(engine, job.cluster.node.device),
    )
    copies = copies_of(job, book)
    tables = tuple(replace(table, copies=copies) for table in tables)
    times = staged_times(tables, job.model, job.plan, job.cluster, job.passes_in_flight)
    draft = draft_of(job)
    if draft is None or job.plan.drafting is None:
        return times
    drafter, name = job_of_draft(job, draft), draft

    def price_draft(passes: EnginePass) -> tuple[PricedPasses]:
        return (price_of(drafter, book, passes, joined_inputs(name, job.plan, passes)),)

    (drafts,) = pass_times(price_draft, without_host(engine), *sizes, overlap=job.engine.overlap)
    first, further = replace(drafts, computed_tokens=job.computed_tokens), drafts
    at_once = job.plan.drafting.layers_at_once
    if at_once > 1:

        def price_beside(passes: EnginePass) -> tuple[PricedPasses]:
            layers = layers_side_by_side(drafter, passes, at_once)
            return (_priced(drafter, book, layers, passes),)

        (further,) = pass_times(price_beside, without_host(engine), *sizes, overlap=job.engine.overlap)
    return DraftedTimes(verify=times, first=first, further=further, drafted=job.plan.drafting.drafted)


def price_of(
    job: ServingJob, book: CurveBook, passes: EnginePass, further: tuple[ServedLayer, ...] = ()
) -> PricedPasses:
    """Return the price of every item in each pass of a batch.

    Parameters
    ----------
    job : ServingJob
    book : CurveBook
    passes : EnginePass
        Arrays of shape (passes, 1).
    further : tuple of ServedLayer
        Layers in addition to those of the model, such as the product that combines the inputs of a draft
        model.

    Returns
    -------
    PricedPasses
        Layers of all pipeline stages and the messages between the stages. `by_stage` divides them.
    """
    layers = (
        *lower_passes(job.model, job.plan, job.engine, passes, job.traffic.images, job.image_token_share),
        *hops(job.model, job.plan, job.engine, job.cluster, passes),
        *further,
    )
    return _priced(job, book, layers, passes)


def _priced(
    job: ServingJob, book: CurveBook, layers: tuple[ServedLayer, ...], passes: EnginePass
) -> PricedPasses:
    size = len(passes.new_tokens)
    priced = price_passes(layers, size, job.plan, job.engine, job.cluster, book, job.site)
    return with_joined_attention(priced, passes, job.engine, job.cluster.node.device)


def _most_tokens(job: ServingJob, longest: int) -> int:
    """Return the new tokens of the largest pass: at least one for each sequence and, where prompts are not
    split, a whole prompt beside them.
    """
    sequences = job.most_sequences * job.computed_tokens
    whole = longest + sequences if job.engine.prefill == "whole" else sequences
    return max(job.plan.max_tokens or job.engine.max_tokens, whole)


def _limits_of(job: ServingJob, memory: ServingMemory, longest: int) -> Limits:
    """Return the limits of one scheduler: sequences, new tokens and KV blocks of an iteration."""
    engine, drafting, most_tokens = job.engine, job.plan.drafting, _most_tokens(job, longest)
    return Limits(
        max_sequences=max(min(job.most_sequences, memory.most_sequences), 1),
        max_tokens=most_tokens,
        kv_blocks=memory.cache_tokens // job.passes_in_flight // engine.block_tokens,
        block_tokens=engine.block_tokens,
        chunked_prefill=engine.prefill != "whole",
        prefill_first=engine.prefill == "apart",
        static_batch=engine.batching == "static",
        returns_together=engine.batching == "static",
        padding=engine.padding,
        prefix_cache=engine.prefix_cache,
        preemption=engine.preemption,
        receive_interval=engine.receive_interval,
        wait_passes=engine.wait_passes,
        wait_tokens=engine.wait_fraction * most_tokens,
        adapter_slots=job.adapter_slots,
        adapter_load_s=load_s(job),
        yielded_tokens=1.0 if drafting is None else drafting.accepted,
        computed_tokens=job.computed_tokens,
    )
