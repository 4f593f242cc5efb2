"""A good plan where none is given: a grid of plans, screened, the best few played exactly.

Answers: which plan would somebody who knows this cluster try first, and how much is it ahead of the next?
Elsewhere: screening (search/screen.py), the exact play (prediction.py).

Greedy in what it offers, exact in how it decides: sharded states wherever there are replicas (ZeRO-1, or
what the stack has) and sequence parallelism wherever there is tensor parallelism (unless checkpoints are
cut instead), since neither costs time that the other choices could win back; every degree, micro-batch,
virtual stage and recompute mode is tried, and every spread of experts. Where nothing fits so, parameters
are sharded too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd

import numpy as np

from flopcast.cost.kernels.book import CurveBook
from flopcast.errors import InfeasibleError
from flopcast.layers.experts import Experts
from flopcast.prediction import predict
from flopcast.search.screen import Screened, screen
from flopcast.spec.divisors import dealt_out, divisors
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.units import show

HEADROOM_FRACTION = 0.95  # of the device's memory: measured peaks were 2 to 5 % above predicted ones
USUAL_TOKENS = (
    2**22
)  # of a global batch in pretraining: arXiv:2307.09288, section 2.2; arXiv:2407.21783, 3.4
MICRO_BATCHES = (1, 2, 4, 8)
VIRTUAL_STAGES = (1, 2, 3, 4, 6)
RECOMPUTE = ("none", "selective", "full")
PLAYED = 8  # of the screened plans, exactly
SHARDED = 3  # the ZeRO stage that shards parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The chosen plan, among how many, and the next best.

    `possible` plans keep every rule, `fitting` of them fit into the devices with some room to spare.
    `next_ratio` is the step time of `next_best` over that of `plan`, at least 1; both are empty where only
    one plan was played.
    """

    plan: Plan
    possible: int
    fitting: int
    next_best: Plan | None
    next_ratio: float

    def told(self) -> str:
        """One sentence: what an assumption line of a report says."""
        text = f"plan chosen: the fastest of {self.fitting} that fit, of {self.possible} possible"
        if self.next_best is None:
            return text
        return f"{text}; next is {self.next_best.short()}, {self.next_ratio - 1:.1%} slower"


def choose(job: Job, fixed: Mapping[str, object], book: CurveBook) -> Choice:
    """Choose a plan for the model, cluster, stack and batch of `job`.

    Parameters
    ----------
    job : Job
        Its own plan is not used.
    fixed : mapping
        Fields of the plan that are settled, by long name; all others are free.
    book : CurveBook
        Curves of the job's cluster.

    Returns
    -------
    Choice
        Its plan uses every device, keeps every rule and fits.

    Raises
    ------
    InfeasibleError
        No plan keeps every rule, or none fits; the message names what is nearest.
    """
    plans = list(candidates(job, fixed))
    screened = screen(job, plans, book)
    if not screened.fits.any() and SHARDED in job.stack.sharding.zero_stages and "zero" not in fixed:
        more = [plan for plan in candidates(job, fixed, SHARDED) if plan.zero == SHARDED]
        plans, screened = [*plans, *more], _both(screened, screen(job, more, book))
    if not screened.possible.any():
        raise InfeasibleError(_impossible(job, fixed, len(plans)))
    used = screened.device_used_bytes / job.cluster.node.device.memory_bytes
    roomy = screened.fits & (used <= HEADROOM_FRACTION)
    fitting = roomy if roomy.any() else screened.fits
    if not fitting.any():
        raise InfeasibleError(_too_large(job, plans, screened))
    order = np.argsort(np.where(fitting, screened.step_time_s, np.inf), kind="stable")
    best = [plans[index] for index in order[: min(PLAYED, int(fitting.sum()))]]
    steps_s = [predict(job.model_copy(update={"plan": plan}), book).step_time_s for plan in best]
    ranked = [best[index] for index in np.argsort(steps_s, kind="stable")]
    fastest_s, next_s = (sorted(steps_s) * 2)[:2]
    return Choice(
        plan=ranked[0],
        possible=int(screened.possible.sum()),
        fitting=int(fitting.sum()),
        next_best=ranked[1] if len(ranked) > 1 else None,
        next_ratio=next_s / fastest_s,
    )


def candidates(job: Job, fixed: Mapping[str, object], zero: int | None = None) -> Iterator[Plan]:
    """Plans that use every device of the job's cluster, rules not yet applied.

    `zero` is what replicas share, where there are several; by default the least that the stack shards.

    Tensor parallelism stays inside a scale-up domain: beyond it every layer's messages would cross the
    network. Ranks share sequences where that is settled, and not otherwise.

    Examples
    --------
    >>> from flopcast.io.jobs import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> {plan.devices for plan in candidates(job, {"recompute": "full"})}
    {16}
    """
    context = int(str(fixed.get("context_parallel", 1)))
    devices, blocks = job.cluster.num_devices // context, job.model.num_blocks
    precision = fixed.get("precision", _precision(job))
    batch = fixed.get("global_batch", usual_batch(job))
    shared = _zero(job) if zero is None else zero
    for tensor in divisors(devices):
        if tensor > job.cluster.scale_up_devices:
            continue
        for pipeline in divisors(devices // tensor):
            data = devices // tensor // pipeline
            free = product(
                MICRO_BATCHES,
                _virtual_stages(pipeline, blocks),
                RECOMPUTE,
                _spreads(job, tensor, data * context),
            )
            for micro, virtual, recompute, experts in free if pipeline <= blocks else ():
                plan = {
                    "data_parallel": data,
                    "tensor_parallel": tensor,
                    "pipeline_parallel": pipeline,
                    "virtual_stages": virtual,
                    "micro_batch": micro,
                    "global_batch": batch,
                    "sequence_parallel": tensor > 1 and not fixed.get("partition_activations", False),
                    "zero": shared if data * context > 1 else 0,
                    "recompute": recompute,
                    "precision": precision,
                    "stage_layers": dealt_out(blocks, pipeline) if blocks % pipeline else (),
                    **experts,
                }
                if all(plan.get(name, value) == value for name, value in fixed.items() if name in SEARCHED):
                    yield Plan(**(plan | dict(fixed)))


SEARCHED = (
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_stages",
    "micro_batch",
    "recompute",
    "expert_parallel",
    "expert_tensor_parallel",
)


def _virtual_stages(pipeline: int, blocks: int) -> tuple[int, ...]:
    """Chunks of a stage that are tried: one, where stages are uneven."""
    return VIRTUAL_STAGES if pipeline > 1 and blocks % pipeline == 0 else (1,)


def _spreads(job: Job, tensor: int, replicas: int) -> list[dict[str, int]]:
    """Ways to spread experts over the ranks of a stage: whole, or cut as other weights where they stay."""
    layers = [block.feed_forward for block in job.model.blocks]
    experts = [layer.num_experts for layer in layers if isinstance(layer, Experts)]
    if not experts:
        return [{}]
    common = gcd(*experts, tensor * replicas)
    whole = [{"expert_parallel": e, "expert_tensor_parallel": 1} for e in divisors(common)]
    cut = [{"expert_parallel": 1, "expert_tensor_parallel": tensor}] if tensor > 1 else []
    return [*whole, *cut]


def _zero(job: Job) -> int:
    """What replicas share where nothing is said: states alone, or the least that the stack shards."""
    stages = sorted(stage for stage in job.stack.sharding.zero_stages if stage)
    return stages[0] if stages else 0


def _both(first: Screened, second: Screened) -> Screened:
    """Results of two lists of plans, one behind the other."""
    return Screened(
        possible=np.concatenate([first.possible, second.possible]),
        fits=np.concatenate([first.fits, second.fits]),
        step_time_s=np.concatenate([first.step_time_s, second.step_time_s]),
        device_used_bytes=np.concatenate([first.device_used_bytes, second.device_used_bytes]),
    )


def usual_batch(job: Job) -> int:
    """A global batch of about four million tokens that every plan can divide.

    A power of two times the number of devices, so that replicas and micro-batches of any candidate go
    into it.
    """
    devices = job.cluster.num_devices
    each = max(1.0, USUAL_TOKENS / job.batch.sequence_length / devices)
    return int(devices * 2 ** round(np.log2(each)))


def _precision(job: Job) -> str:
    """bf16 where the device computes in it, or else fp16."""
    return "bf16" if "bf16" in job.cluster.node.device.peak_flop_per_s else "fp16"


def _impossible(job: Job, fixed: Mapping[str, object], tried: int) -> str:
    """Why no plan keeps every rule, as far as that can be said of all of them at once."""
    settled = ", ".join(f"{name} = {value}" for name, value in fixed.items()) or "nothing"
    return (
        f"no plan is possible: each of {tried} plans for {job.model.name} on {job.cluster.num_devices}"
        f" devices breaks a rule; fixed was {settled}.\nA plan named with --plan is told which it breaks."
    )


def _too_large(job: Job, plans: Sequence[Plan], screened: Screened) -> str:
    """Which plan needs least, and how much is missing."""
    index = int(np.nanargmin(screened.device_used_bytes))
    needed, there = float(screened.device_used_bytes[index]), job.cluster.node.device.memory_bytes
    return (
        f"no plan fits: of {int(screened.possible.sum())} possible plans for {job.model.name} on"
        f" {job.cluster.num_devices} × {job.cluster.node.device.name}, the smallest is\n"
        f"  {plans[index].short()}\nwhich needs {show(needed, 'B')} of {show(there, 'B')} on its fullest"
        f" stage.\nUse about {np.ceil(needed / there):.0f} times the devices, larger ones, a shorter"
        " sequence, or a smaller model."
    )
