"""The rules about sizes: limits on devices, layers, tokens and tasks.

Answers: how many devices, layers, tokens of a sequence, and tasks of a pipeline are allowed?
Elsewhere: what a rule is (checks.py).

The limits catch typing errors (a zero too many, a wrong unit) before a prediction fills the memory.
"""

import numpy as np

from flopcast.spec.checks import Case, Rule, first

MOST_DEVICES = 2**20  # no machine of this size is known; 6144 is the largest that is compared with runs
MOST_TOKENS = 2**30  # of a sequence: a hundred times Llama 4 Scout's, the longest of the catalogue
MOST_LAYERS = 4096  # the deepest model of the catalogue has 128
MOST_TASKS = 2**20  # forward tasks of a pipeline: played in seconds and in 2 GB; large runs have 10^5


def _tasks_each(case: Case) -> np.ndarray:
    """Forward tasks of one micro-batch: one for each chunk of each stage, (plans, 1)."""
    return np.asarray(case.plans.pipeline_parallel * case.plans.virtual_stages)


def _most_micro_batches(case: Case) -> int:
    """Return micro-batches that the first plan's pipeline may have, in whole groups if interleaved."""
    most, stages = MOST_TASKS // first(_tasks_each(case)), first(case.plans.pipeline_parallel)
    return max(1, most - most % stages)


def _usual_batch(case: Case) -> int:
    """Return the sequences of a step with eight micro-batches for each stage, or fewer if necessary."""
    number = min(8 * first(case.plans.pipeline_parallel), _most_micro_batches(case))
    return number * first(case.plans.data_parallel * case.plans.micro_batch)


RULES: tuple[Rule, ...] = (
    Rule(
        field="cluster",
        holds=lambda c: c.cluster.num_devices <= MOST_DEVICES,
        value=lambda c: f"{c.cluster.num_devices:,} devices",
        allowed=f"at most {MOST_DEVICES:,} devices",
        because="no known cluster has more devices",
        fix=lambda c: (
            f"set --gpus to {MOST_DEVICES}, or choose at most "
            f"{MOST_DEVICES // c.cluster.node.devices:,} of its nodes"
        ),
    ),
    Rule(
        field="model.blocks",
        holds=lambda c: c.model.num_blocks <= MOST_LAYERS,
        value=lambda c: c.model.num_blocks,
        allowed=f"at most {MOST_LAYERS:,} layers",
        because="no known model has more layers",
        fix=f"choose a model of at most {MOST_LAYERS:,} layers",
    ),
    Rule(
        field="batch.sequence_length",
        holds=lambda c: c.batch.sequence_length <= MOST_TOKENS,
        allowed=f"at most {MOST_TOKENS:,} tokens",
        because="no known model is trained on longer sequences",
        fix={"sequence_length": MOST_TOKENS},
    ),
    Rule(
        field="plan.global_batch",
        about_steps=True,
        holds=lambda c: c.plans.num_micro_batches * _tasks_each(c) <= MOST_TASKS,
        value=lambda c: f"{first(c.plans.num_micro_batches):,} micro-batches",
        allowed=lambda c: (
            f"at most {_most_micro_batches(c):,} micro-batches, so that a step has at most {MOST_TASKS:,} "
            "tasks over all stages and chunks"
        ),
        because="flopcast simulates every task of a step, and no known training run has so many tasks",
        fix=lambda c: {"global_batch": _usual_batch(c)},
    ),
)
