"""The transfer of keys and values from the instances that compute prompts to those that decode.

Answers: how many bytes does a prompt send, and how long does that take on the link between the pools?
Elsewhere: when transfers happen (joined_pools.py), links (spec/cluster.py).

Every rank that decodes receives the keys and values of its heads and layers. All ranks receive at the same
time, and each pair of ranks uses its own link: over the scale-up fabric if both pools fit into one domain,
otherwise over the network. A transfer begins when its prompt is computed.
"""

import numpy as np

from flopcast.cost.collectives.collective_time import message_seconds
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group
from flopcast.dtypes import Floats, Integers, constant
from flopcast.records import Record
from flopcast.serving.memory import bytes_of_prompts
from flopcast.spec.serving_job import ServingJob


class KvTransfer(Record, eq=False):
    """The transfers of prompts between pools; arrays of shape (requests,)."""

    tier: str  # name of the link
    sent_bytes: Floats  # of all ranks together
    alone_s: Floats  # with nothing else on the link


def kv_transfer(job: ServingJob, book: CurveBook, prompt_tokens: Integers) -> KvTransfer:
    """Return the transfers of prompts from the pool that computes them to the pool that decodes.

    Parameters
    ----------
    job : ServingJob
        A job with two pools, of which the first computes prompts.
    book : CurveBook
    prompt_tokens : array of shape (requests,)

    Returns
    -------
    KvTransfer
        The time is that of the busiest rank: the receiver with the most layers or, if the pool of prompts
        has fewer ranks, the sender. The link is the scale-up fabric if both pools fit into one domain.
    """
    senders, receivers = (job.of(pool) for pool in job.plan.pools)
    per_stage = bytes_of_prompts(receivers, prompt_tokens)  # (stages, requests), of each rank
    sent_bytes = per_stage.sum(axis=0) * receivers.plan.tensor_parallel
    sending = senders.plan.tensor_parallel * senders.plan.pipeline_parallel
    busiest_bytes = np.maximum(per_stage.max(axis=0), sent_bytes / sending)
    together = job.plan.devices <= job.cluster.scale_up_devices
    near, far = constant(2.0 if together else 1.0), constant(1.0 if together else 2.0)
    cost = message_seconds(
        "send_receive", busiest_bytes[:, None], Group(inside=near, nodes=far), job.cluster, book
    )
    tier = job.cluster.tiers[int(cost.tier.flat[0])].name
    return KvTransfer(tier=tier, sent_bytes=sent_bytes, alone_s=cost.alone_s[:, 0])
