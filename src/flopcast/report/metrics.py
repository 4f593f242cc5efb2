"""Rates and utilisation: tokens per second, model FLOP, MFU, HFU.

Answers: how are MFU and HFU defined? Model FLOP are those of forward and backward pass without recompute.
They count full attention (Megatron-LM, arXiv:2104.04473, eq. 3; PaLM, arXiv:2204.02311, appendix B), both
sides of a window, and for packed documents the square of each. Hardware FLOP also include recomputed work.
Both are divided by step time, number of devices and the dense peak of the plan's precision.
Elsewhere: what other frameworks and logs count (flop_conventions.py).
"""

from functools import partial

from flopcast.records import Record
from flopcast.report.recomputed import recomputed_flop
from flopcast.spec.job import Job
from flopcast.spec.precision import product_engine
from flopcast.units import show

BACKWARD_OVER_FORWARD = 2.0  # a matrix product's two gradients


class Metrics(Record):
    """Rates of one step on the whole cluster.

    `model_flop` are the FLOP that the model needs with any plan: forward and backward pass of one global
    batch. `hardware_flop` are the FLOP that the devices compute with the plan, including recompute and
    repeated work of the vision tower. MFU and HFU are these FLOP, divided by the FLOP that `num_devices`
    devices could compute in a step at `peak_flop_per_s` (dense, at the plan's precision). MFU compares
    plans and machines; HFU shows how busy the matrix engines are.
    """

    tokens_per_s: float
    device_tokens_per_s: float
    model_flop: float  # of one step
    hardware_flop: float
    device_flop_per_s: float  # model FLOP per device
    mfu_ratio: float
    hfu_ratio: float
    peak_flop_per_s: float

    @property
    def attained(self) -> str:
        """Return the rate of a device in TFLOP/s, as in logs, or in a smaller unit if the rate is small."""
        rate = self.device_flop_per_s
        return f"{rate / 1e12:.0f} TFLOP/s" if rate >= 1e12 else show(rate, "FLOP/s")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a warning if MFU is above 1 because of the convention that counts FLOP."""
        masked = (
            "MFU is above 1, because MFU counts masked attention in full, but the kernel skips half of it"
        )
        return (masked,) if self.mfu_ratio > 1 else ()


def measure(job: Job, step_time_s: float) -> Metrics:
    """Return the metrics of a step of this duration.

    Parameters
    ----------
    step_time_s : seconds of a whole step, jitter included

    Returns
    -------
    Metrics
        Because full attention is counted (the usual convention; for others see flop_conventions.py), MFU
        can exceed 1 for long sequences if a kernel skips the masked half.

    References
    ----------
    Megatron-LM, arXiv:2104.04473, eq. 3 (FLOP of a step with recompute); PaLM, arXiv:2204.02311,
    appendix B (MFU); arXiv:2205.05198, Table 5 (published MFU and HFU; its HFU counts recomputed attention
    three times instead of once).
    """
    model_flop = sum(share * _model_flop(each) for share, each in job.by_kind)
    repeated = sum(share * _repeated_by_ranks_flop(each) for share, each in job.by_kind)
    hardware_flop = model_flop + recomputed_flop(job, causal=False) + repeated
    peak = job.cluster.mean_peak_flop_per_s(product_engine(job.plan.precision))
    capacity = step_time_s * job.cluster.num_devices
    tokens_per_s = job.step_tokens / step_time_s
    return Metrics(
        tokens_per_s=tokens_per_s,
        device_tokens_per_s=tokens_per_s / job.cluster.num_devices,
        model_flop=model_flop,
        hardware_flop=hardware_flop,
        device_flop_per_s=model_flop / capacity,
        mfu_ratio=model_flop / capacity / peak,
        hfu_ratio=hardware_flop / capacity / peak,
        peak_flop_per_s=peak,
    )


def _model_flop(job: Job) -> float:
    """Forward and backward of a global batch whose sequences are alike."""
    length = job.batch.sequence_length
    source = job.batch.source_tokens
    forward = job.model.forward_flop(length, documents=job.batch.documents, source_length=source)
    backward = 0.0 if job.batch.forward_only else BACKWARD_OVER_FORWARD
    passes = (1.0 + backward) * forward + _frozen_forward_flop(job) + vision_flop(job)
    return job.plan.step_sequences * (passes - job.model.frozen_flop(length, source))


def vision_flop(job: Job) -> float:
    """Return the FLOP of the vision tower for the images of one sequence, including the backward pass."""
    model, images = job.model, job.batch.images
    if model.vision is None:
        return 0.0
    return model.vision.step_flop(images, model.adapters is not None, not job.batch.forward_only)


def _repeated_by_ranks_flop(job: Job) -> float:
    """Return the FLOP of the vision tower in a step that ranks repeat: those of other ranks of its group.

    Ranks that share a sequence run the tower for all of its images each, and tensor-parallel ranks all
    multiply all patches.
    """
    model, plan = job.model, job.plan
    if model.vision is None:
        return 0.0
    own = model.adapters is not None, not job.batch.forward_only
    copies = model.reference_passes if model.reference != "none" else 0
    flop = 0.0
    for adapted, backward in (own, *((True, False),) * copies):
        once = partial(model.vision.step_flop, job.batch.images, adapted, backward)
        flop += plan.context_parallel * once(ranks=plan.tensor_parallel) - once()
    return plan.step_sequences * flop


def _frozen_forward_flop(job: Job) -> float:
    """Return the FLOP of the reference and the teacher, which only run forward, on one sequence."""
    model, (length, documents) = job.model, (job.batch.sequence_length, job.batch.documents)
    flop = 0.0
    if model.reference != "none":
        alone = model.model_copy(update={"adapters": None})
        flop += model.reference_passes * alone.forward_flop(length, documents=documents)
        if model.vision is not None:
            flop += model.reference_passes * model.vision.step_flop(job.batch.images, True, False)
    if model.teacher is not None:
        flop += model.teacher.forward_flop(length, documents=documents)
    return flop
