"""Random valid jobs: small models on clusters, stacks and plans of every kind.

Answers: which jobs do the metamorphic laws (laws.py) and a fuzzer try?
A job depends on its random generator alone: the same seed gives the same jobs.
"""

import math
from collections.abc import Iterator
from functools import cache
from random import Random

from pydantic import ValidationError

from flopcast.library import catalog
from flopcast.spec.batch import Batch
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan
from flopcast.spec.stack import Stack
from flopcast.workload.checks import check

CLUSTERS = (  # of several generations, with and without measured fabrics, one tier and several
    "dgx-a100",
    "dgx-h100",
    "dgx-b200",
    "gb200-nvl72",
    "perlmutter",
    "frontier",
    "vista",
    "aws-p3dn",
    "azure-nd-mi300x-v5",
    "l40s-8",
)
DEGREES = (1, 1, 2, 4, 8)
MICRO_BATCHES = (1, 2, 4, 8)


@cache
def _stack(name: str) -> Stack:
    return catalog.stack(name)


def random_jobs(seed: int) -> Iterator[Job]:
    """Valid jobs without end."""
    random = Random(seed)
    while True:
        job = _draw(random)
        if job is not None:
            yield job


def _draw(random: Random) -> Job | None:
    """A job, or None where what was drawn breaks a rule."""
    model = random_model(random)
    try:
        plan = _plan(random, model)
    except ValidationError:
        return None
    name = random.choice(CLUSTERS)
    per_node = catalog.cluster(name, 1).node.devices
    if plan.devices % per_node:
        return None
    job = Job(
        model=model,
        cluster=catalog.cluster(name, plan.devices // per_node),
        plan=plan,
        stack=_changed(random, _stack(random.choice(catalog.names("stacks")))),
        batch=Batch(sequence_length=random.choice((256, 512, 1024, 2048))),
    )
    return None if check(job) else job


def random_model(random: Random) -> Model:
    """A GPT of a few blocks: dense ones, ones with experts, or both."""
    hidden = random.choice((512, 1024, 2048, 4096))
    heads = random.choice((8, 16, 32))
    mixer = {"heads": heads, "kv_heads": random.choice((heads, heads // 4, 8))}
    dense = {"ffn_hidden": hidden * random.choice((2, 4)), "activation": random.choice(("gelu", "swiglu"))}
    experts = {"num_experts": 8, "top_k": 2, "expert_hidden": hidden}
    experts |= {"shared_experts": 1} if random.random() < 0.5 else {}
    kinds = random.choice(([dense], [dense], [experts], [dense, experts]))
    count = random.choice((4, 8, 16))
    blocks = [{"count": count, "mixer": mixer, "feed_forward": kind, "norm": "rmsnorm"} for kind in kinds]
    vocabulary = random.choice((8192, 32000, 131072))
    return Model.model_validate({"hidden": hidden, "vocabulary": vocabulary, "blocks": blocks})


def _plan(random: Random, model: Model) -> Plan:
    """Degrees whose product is a power of two up to 256."""
    degrees = {name: random.choice(DEGREES) for name in ("dp", "tp", "pp")}
    degrees["cp"] = random.choice((1, 1, 1, 2))
    has_experts = any("num_experts" in block["feed_forward"] for block in model.model_dump()["blocks"])
    ep = random.choice((1, 2, 4, 8)) if has_experts else 1
    more = {"ep": min(ep, degrees["dp"])} if has_experts else {}
    if degrees["pp"] > 1:
        more["vpp"] = random.choice((1, 1, 2))
        more["schedule"] = random.choice(("auto", "auto", "gpipe", "zb_h1"))
    micro, per_step = random.choice((1, 1, 2, 4)), random.choice(MICRO_BATCHES)
    if more.get("vpp", 1) > 1:
        per_step = math.lcm(per_step, degrees["pp"])
    return Plan.model_validate(
        degrees
        | more
        | {
            "sp": degrees["tp"] > 1 and random.random() < 0.6,
            "zero": random.choice((0, 0, 1, 1, 2, 3)),
            "mbs": micro,
            "gbs": micro * per_step * degrees["dp"],
            "recompute": random.choice(("none", "none", "selective", "full")),
            "precision": random.choice(("bf16", "bf16", "fp16", "fp8")),
        }
    )


def _changed(random: Random, stack: Stack) -> Stack:
    """A stack of the catalogue, as it is or with some ways to overlap turned round."""
    if random.random() < 0.5:
        return stack
    gradients = stack.gradients.model_copy(
        update={
            "overlap": random.random() < 0.7,
            "bucket_elements": random.choice((1_000_000, 25_000_000, 200_000_000)),
        }
    )
    pipeline = stack.pipeline.model_copy(
        update={"transfers": random.choice(("sequential", "batched", "overlapped"))}
    )
    contention = stack.contention.model_copy(update={"kernel_share": random.choice((0.0, 0.5, 1.0))})
    parts = {"gradients": gradients, "pipeline": pipeline, "contention": contention}
    return stack.model_copy(update=parts | {"tensor_overlap": random.choice(("none", "chunks"))})
