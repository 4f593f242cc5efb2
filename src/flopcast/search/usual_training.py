"""The default global batch and precision of a job.

Answers: which global batch and which precision do a search and a chosen plan assume?
Elsewhere: all other fields of a plan, which a search varies (space.py).
"""

from collections.abc import Sequence
from math import log2

from flopcast.spec.job import Job
from flopcast.units import show_count

# of a global batch in pretraining: arXiv:2307.09288, section 2.2; arXiv:2407.21783, 3.4
USUAL_TOKENS = 2**22
# of a global batch in fine-tuning, of all weights or of adapters: README of tatsu-lab/stanford_alpaca;
# finetune.py of tloen/alpaca-lora; Tülu 3 (arXiv:2411.15124; allenai/open-instruct, scripts/train/finetune)
USUAL_SAMPLES = 128
GRAPH_SAMPLES = 32  # of an exported graph, on each device


def usual_batch(job: Job, micro_batches: Sequence[int] = ()) -> int:
    """Return a global batch that every plan can divide: about four million tokens, or that of a fine-tune.

    It is a power of two times the number of devices, so that it is a multiple of the replicas and
    micro-batches of any candidate. If no micro-batch divides it otherwise, it is also multiplied by the odd
    factor of the micro-batches.
    """
    odd = min((size // (size & -size) for size in micro_batches), default=1)
    devices = job.cluster.num_devices * odd
    if not job.model.vocabulary:
        return devices * GRAPH_SAMPLES
    sequences = USUAL_SAMPLES if job.fine_tunes else USUAL_TOKENS / job.batch.sequence_length
    each = max(1.0, sequences / devices)
    return int(devices * 2 ** round(log2(each)))


def batch_assumed(job: Job, global_batch: int) -> str:
    """Return the assumption that a step has the usual batch, with the number of its tokens."""
    tokens = global_batch * job.batch.mean_sequence_tokens
    recipe = ", as in recipes of fine-tuning" if job.fine_tunes else ""
    return f"global_batch {global_batch} ({show_count(tokens)} {job.batch_unit}{recipe})"


def precision_assumed(job: Job, precision: str) -> str:
    """Return the assumption of a precision, with the precision of the model's published training run."""
    published = job.model.trained_precision
    differs = published is not None and published != precision
    return f"precision {precision}" + f" (the published run used {published})" * differs
