"""Rules of serving jobs about unequal devices and links, which serving does not support.

Answers: which descriptions of unequal devices and links does a serving job not support?
Elsewhere: other rules of serving jobs (checks.py), unequal parts in training (cost/parts.py).
"""

from collections.abc import Iterator

from flopcast.errors import Problem
from flopcast.spec.serving_job import ServingJob

BECAUSE = "serving on devices with different speeds is not supported yet"


def of_parts(job: ServingJob) -> Iterator[Problem]:
    """Yield one problem for each description of unequal parts: slow parts, several groups, measured links.

    A prediction of serving prices all instances on one kind of node. It would silently ignore these fields,
    and the latencies would be those of the fast parts.
    """
    if job.site.slow:
        words = ",".join(part.word() for part in job.site.slow)
        yield Problem("site.slow", words, "no value in a serving job", BECAUSE, "remove site.slow")
    if len(job.cluster.groups) > 1:
        value = f"{len(job.cluster.groups)} groups"
        yield Problem("cluster.groups", value, "one group", BECAUSE, "describe one group")
    for place, tier in enumerate(job.cluster.tiers):
        if tier.links is not None:
            field = f"cluster.tiers[{place}].links"
            value = f"{tier.links.size} nodes"
            yield Problem(field, value, "no value in a serving job", BECAUSE, f"remove {field}")
