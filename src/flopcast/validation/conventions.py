"""FLOP conventions of publications: from printed TFLOP/s back to the seconds that were measured.

Answers: which formula did a source divide by the step time?
"""

from flopcast.spec.job import Job


def step_time_of_rate(job: Job, device_flop_per_s: float) -> float:
    """Seconds of a step that ran at so many FLOP/s per device by Megatron-LM's formula of 2021.

    `F = 96 B s l h² (1 + s / 6h + V / 16 l h)`: four passes (recompute included), full attention
    (arXiv:2104.04473, equation 3).
    """
    model, length = job.model, job.batch.sequence_length
    layers, hidden = model.num_blocks, model.hidden
    correction = 1.0 + length / (6.0 * hidden) + model.vocabulary / (16.0 * layers * hidden)
    flop = 96.0 * job.plan.global_batch * length * layers * hidden**2 * correction
    return flop / (job.cluster.num_devices * device_flop_per_s)
