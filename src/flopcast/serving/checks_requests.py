"""Rules of serving jobs about requests: their images, their adapters, and prompts in the prefix cache.

Answers: can the model of a job read the images of its requests and have their adapters, can the plan divide
its vision tower, can the engine cache prompts, are prompts long enough for their shared prefix, and do the
model and the engine accept requests of their length?
Elsewhere: other rules of serving jobs (checks.py), images in training (spec/rules_vision.py).
"""

from collections.abc import Iterator

from flopcast.errors import Problem
from flopcast.fixes import set_to, write
from flopcast.layers.images import images_text
from flopcast.serving.adapters import adapted
from flopcast.spec.divisors import divisors, listed
from flopcast.spec.serving_job import ServingJob


def of_images(job: ServingJob) -> Iterator[Problem]:
    """Yield the reasons why the requests of a job cannot have images; nothing if they have no images."""
    if not job.traffic.images:
        return
    value, fix = images_text(job.traffic.images), "remove images from the traffic"
    if job.model.vision is None:
        because = "the model has no layers that read images"
        yield Problem("traffic.images", value, "no images, without a vision tower", because, fix)
    elif job.plan.streams:
        because = "a vision tower together with weights outside of the devices is not supported yet"
        yield Problem("traffic.images", value, "no images", because, fix)


def of_tower(job: ServingJob) -> Iterator[Problem]:
    """Yield an error if a degree does not divide the vision tower."""
    tower, ranks = job.model.vision, job.plan.tensor_parallel
    if tower is None or tower.divided % ranks == 0:
        return
    degrees = divisors(tower.divided)
    because = "tensor parallelism also divides the heads and MLPs of the vision tower"
    fix = set_to({"plan.tensor_parallel": max(each for each in degrees if each <= ranks)})
    yield Problem("plan.tensor_parallel", ranks, listed(degrees), because, fix)


def of_requests(job: ServingJob) -> Iterator[Problem]:
    """Yield errors in the cached prompts, the shared prefix and the adapters of the requests."""
    for rule in (_of_cached_prompts, _of_shared_prefix, _of_adapters):
        yield from rule(job)


def _of_cached_prompts(job: ServingJob) -> Iterator[Problem]:
    """Yield an error for each field that states cached prompts of an engine without a prefix cache."""
    for name in ("prefix_hit_share", "repeated_requests"):
        value = getattr(job.traffic, name)
        if value and not job.engine.prefix_cache:
            because = "the engine keeps no prompts, because engine.prefix_cache is false"
            fix = f"remove traffic.{name}, or set engine.prefix_cache to true"
            yield Problem(f"traffic.{name}", value, "no value without a prefix cache", because, fix)


def _of_shared_prefix(job: ServingJob) -> Iterator[Problem]:
    """Yield an error if the beginning that prompts share is longer than the longest possible prompt."""
    traffic, most = job.traffic, job.model.context_length
    prefix, prompt, output = traffic.shared_prefix_tokens, traffic.prompt_tokens, traffic.output_tokens
    if prompt is None or output is None:
        return
    longest, whole = int(prompt.longest_tokens), int(prefix + prompt.mean)
    allowed = f"at most {longest} (the number of tokens of the longest prompt)"
    because = "the shared prefix is the beginning of prompts, and prompt_tokens includes it"
    if most and output.mean < most < longest + output.mean:
        longest = int(most - output.mean)
        allowed = f"at most {longest}, so that prompt and output fit into the context length of the model"
    fix = write(longest, "shared_prefix")
    if prompt.distribution == "constant" and (not most or whole + output.mean <= most):
        fix = write(whole, "prompt")
    if prefix > longest:
        yield Problem("traffic.shared_prefix_tokens", prefix, allowed, because, fix)


def _of_adapters(job: ServingJob) -> Iterator[Problem]:
    """Yield errors in the LoRA adapters of the deployment and of the traffic."""
    plan, traffic = job.plan, job.traffic
    if traffic.adapters and plan.adapter_rank is None:
        because, fix = "the rank of adapters determines their size", set_to({"plan.adapter_rank": 16})
        yield Problem("plan.adapter_rank", None, "at least 1", because, fix, fault="is missing")
    unused = "adapter_rank" if plan.adapter_rank is not None else "adapter_slots"
    if not traffic.adapters and getattr(plan, unused) is not None:
        because = "the requests of the traffic use no adapters"
        fix = set_to({"traffic.adapters": 10}, f"remove plan.{unused}")
        yield Problem(
            f"plan.{unused}", getattr(plan, unused), "no value, because traffic.adapters is 0", because, fix
        )
    bare = [block for block in job.model.blocks if not adapted(block, job.model.hidden)]
    if traffic.adapters and bare:
        because = f"adapters on layers of kind {bare[0].mixer.kind} are not supported yet"
        yield Problem(
            "traffic.adapters", traffic.adapters, "0 for this model", because, "remove the adapters"
        )


def of_lengths(job: ServingJob, longest: int, longest_prompt: int) -> Iterator[Problem]:
    """Yield errors if requests or prompts are longer than the model or the engine accepts.

    Parameters
    ----------
    longest : tokens of the longest request, prompt and output together
    longest_prompt : tokens of the longest prompt; 0 if it is not known
    """
    stated, most = job.model.context_length, job.engine.max_prompt_tokens
    if stated and longest > stated:
        because = "prompt and output together are longer than the context length of the model"
        fix = f"shorten the prompt and the output to a total of {stated} tokens"
        if (outputs := job.traffic.output_tokens) and outputs.mean < stated:
            room = stated - int(outputs.mean)
            fix = write(min(room, most or room), "prompt")
        yield Problem("traffic", longest, f"at most {stated} tokens in a request", because, fix)
    if most and longest_prompt > most:
        because, fix = "the engine refuses longer prompts", write(most, "prompt")
        yield Problem("traffic", longest_prompt, f"at most {most} tokens in a prompt", because, fix)


def of_held_context(job: ServingJob, tokens: int) -> Iterator[Problem]:
    """Yield an error if an engine does not start, because its KV cache of `tokens` tokens holds no request
    of the context length of the model.
    """
    stated, block = job.model.context_length, job.engine.block_tokens
    if job.engine.holds_context and tokens < stated:
        fits = max(tokens // block * block, 1)
        because = (
            f"the KV cache of one instance holds {tokens:,} tokens, and the engine starts only if the cache"
            " holds a request of this length"
        )
        fix = set_to({"model.context_length": fits})
        yield Problem("model.context_length", stated, f"at most {fits}", because, fix)
