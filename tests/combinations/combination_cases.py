"""Small models of every kind of part, and plans that use several new ways of dividing work at once.

All models have heads, widths and tables that 2 and 4 ranks cut evenly, and experts with even loads, so that
what is conserved is conserved exactly.
"""

from functools import cache

import numpy as np
from hypothesis import assume

from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.matmul import BatchedMatmul, GroupedMatmul, Matmul
from flopcast.spec.batch import Batch
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, batch_plans
from flopcast.workload.checks import check
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

LENGTH = 512
PRODUCTS = (Matmul, GroupedMatmul, BatchedMatmul, FlashAttention)
DENSE = {"ffn_hidden": 1024, "activation": "swiglu"}
EXPERTS = {"num_experts": 8, "top_k": 2, "expert_hidden": 512, "load_imbalance_ratio": 1.0}
LATENT = {
    "q_lora_rank": 192,
    "kv_lora_rank": 128,
    "qk_nope_head_size": 32,
    "qk_rope_head_size": 16,
    "value_head_size": 32,
}
GROUPED = {"heads": 8, "kv_heads": 4}


def _model(blocks, **fields):
    common = {"norm": "rmsnorm"}
    return Model.model_validate(
        {"hidden": 256, "vocabulary": 4096, "blocks": [common | block for block in blocks]} | fields
    )


MODELS = {
    "dense": _model([{"count": 8, "mixer": GROUPED, "feed_forward": DENSE}]),
    "experts": _model(
        [
            {"count": 2, "mixer": GROUPED, "feed_forward": DENSE},
            {"count": 6, "mixer": GROUPED, "feed_forward": EXPERTS | {"shared_experts": 1}},
        ]
    ),
    "latent": _model([{"count": 8, "mixer": {"heads": 8} | LATENT, "feed_forward": DENSE}]),
    "windows": _model(
        [
            {"count": 6, "mixer": GROUPED | {"window": 128}, "feed_forward": DENSE},
            {"count": 2, "mixer": GROUPED, "feed_forward": DENSE},
        ],
        pattern=(0, 0, 0, 1),
    ),
    "further": _model([{"count": 8, "mixer": GROUPED, "feed_forward": EXPERTS}], mtp=1),
    "adapted": _model(
        [{"count": 8, "mixer": GROUPED, "feed_forward": DENSE}],
        adapters={"rank": 16, "targets": ["q", "v", "down"]},
    ),
}


@cache
def stack(name="megatron-core", **changes):
    """A stack of the catalogue with fields of its own changed."""
    return catalog.stack(name).model_copy(update=changes)


def programs_of(model, *plans, software=None, length=LENGTH):
    """What plans of one structure run."""
    batch = Batch(sequence_length=length)
    return realise(lower(model, batch_plans(list(plans)), batch), software or stack())


def at(array, plan=0, column=0):
    """One plan's value of an array over (plans or 1, columns or 1)."""
    return float(array[min(plan, array.shape[0] - 1), min(column, array.shape[1] - 1)])


def ranks_of_stage(plan):
    """Ranks that hold one stage."""
    return plan.data_parallel * plan.context_parallel * plan.tensor_parallel


def runs(programs, plan=0):
    """Items of all passes, each with how often it runs in a step on all ranks of one tp-cp-dp group.

    An item of the first or the last micro-batch runs once, an accumulation in all but the first, all others
    in every one.
    """
    micro = at(programs.plans.num_micro_batches, plan)
    classes = programs.stages.of(plan).chunk_class.ravel()
    for segments in programs.passes:
        for segment in segments:
            repeat = np.broadcast_to(segment.repeat, (programs.plans.size, segment.repeat.shape[1]))
            times = repeat[plan][classes].sum()
            for item in segment.items:
                often = {"every": micro, "not_first": micro - 1.0}.get(item.when, 1.0)
                yield item, times * often * at(item.count, plan)


def product_flop(programs, plan, number=0):
    """FLOP of all matrix products and attention kernels of one step, on all devices."""
    return ranks_of_stage(plan) * sum(
        times * at(item.work.work().flop, number)
        for item, times in runs(programs, number)
        if isinstance(item.work, PRODUCTS)
    )


LAYOUTS = (  # sixteen devices, divided in every way at once that the models allow
    {"data_parallel": 16},
    {"data_parallel": 4, "tensor_parallel": 4},
    {"data_parallel": 4, "context_parallel": 4},
    {"data_parallel": 4, "pipeline_parallel": 4},
    {"data_parallel": 8, "pipeline_parallel": 2, "virtual_stages": 2},
    {"data_parallel": 4, "tensor_parallel": 2, "context_parallel": 2},
    {"data_parallel": 2, "tensor_parallel": 2, "pipeline_parallel": 4},
    {"data_parallel": 2, "tensor_parallel": 2, "context_parallel": 2, "pipeline_parallel": 2},
    {"data_parallel": 2, "tensor_parallel": 4, "pipeline_parallel": 2, "virtual_stages": 4},
)
SPREADS = ({}, {"expert_parallel": 2}, {"expert_parallel": 4, "expert_tensor_parallel": 1})


def plan_of(model, *parts):
    """A plan out of groups of fields; what spreads experts is left out for a model without any."""
    fields = {name: value for part in parts for name, value in part.items()}
    has_experts = any("num_experts" in block["feed_forward"] for block in model.model_dump()["blocks"])
    if not has_experts:
        fields = {name: value for name, value in fields.items() if not name.startswith("expert_")}
    else:
        fields |= {"rank_order": "tp-cp-dp-pp"}
    windowed = bool(model.pattern)
    if windowed and fields.get("context_parallel", 1) > 1:
        fields |= {"context_exchange": "all_gather"}
    defaults = {"sequence_parallel": fields.get("tensor_parallel", 1) > 1, "global_batch": 32}
    return Plan(**defaults | fields)


def job_of(model, plan, software=None, cluster="dgx-b200"):
    """The plan as a job, on as many nodes of eight devices as it needs."""
    return Job(
        model=model,
        cluster=catalog.cluster(cluster, max(1, plan.devices // 8)),
        plan=plan,
        stack=software or stack(),
        batch=Batch(sequence_length=LENGTH),
    )


@cache
def book_of(cluster="dgx-b200"):
    """The curves of a cluster, which are those of one of its nodes and its fabric."""
    return load_book(catalog.cluster(cluster, 2))


def possible(job):
    """Whether no rule refuses the job."""
    return not check(job)


def drawn(name, layout, spread, modes, software):
    """A job that keeps every rule."""
    job = job_of(MODELS[name], plan_of(MODELS[name], layout, spread, modes), stack(software))
    assume(possible(job))
    return job
