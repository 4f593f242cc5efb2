"""Errors for jobs with unequal devices or links, which a search over plans does not support.

Answers: why is there no search for this job, and what can the user do instead?
Elsewhere: parts of different speed (cost/parts.py), the order of nodes for one plan (node_order.py).
"""

from flopcast.errors import Problem
from flopcast.spec.job import Job
from flopcast.spec.layer_strategies import layers_word
from flopcast.spec.slow_parts import PEER_LINK

UNSUPPORTED = "a search over plans is not supported yet together with this setting"
CHOSEN = "flopcast chooses the plan as if all devices and links had equal speeds"


def of_parts(job: Job) -> Problem | None:
    """Return the error of a search for a job with unequal nodes, slow parts or measured links; None for
    other jobs.

    A search estimates many plans with the prices of equal parts. For such a job, the estimates would be
    wrong, because the ranks on a slow part differ from plan to plan.
    """
    if job.plan.layers:
        because = (
            "a search over plans uses the same strategy for all blocks; search --per-layer finds "
            "strategies of single blocks"
        )
        word = layers_word(job.plan.layers)
        return Problem(
            "plan.layers", word, "no value in a search over plans", because, "remove plan.layers"
        )
    if len(job.cluster.groups) > 1:
        fix = "give a whole plan, or describe one group"
        if job.plan.peers > 1:
            fix = "describe only the slowest peers, and then predict the best plan with all peers"
        value = f"{len(job.cluster.groups)} groups"
        return Problem("cluster.groups", value, "one group in a search over plans", UNSUPPORTED, fix)
    slow = [part for part in job.site.slow if part.kind != PEER_LINK]  # outer_round.py predicts it
    if slow:
        words = ",".join(part.word() for part in slow)
        fix = "remove site.slow (--slow), and predict the best plans with it"
        return Problem("site.slow", words, "no value in a search over plans", UNSUPPORTED, fix)
    for place, tier in enumerate(job.cluster.tiers):
        if tier.links is not None:
            field, size = f"cluster.tiers[{place}].links", f"{tier.links.size} nodes"
            fix = f"remove {field}, or give a whole plan and add --node-order"
            return Problem(field, size, "no value in a search over plans", UNSUPPORTED, fix)
    return None


def with_equal_parts(job: Job) -> Job:
    """Return the job on a machine without slow parts and measured links, on which plans are compared."""
    if of_parts(job) is None:
        return job
    tiers = tuple(tier.model_copy(update={"links": None}) for tier in job.cluster.tiers)
    return job.with_part("cluster", tiers=tiers).with_part("site", slow=())
