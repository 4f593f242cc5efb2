"""Scoring on the devices of the training: a forward pass over all answers of a step.

Answers: which job computes the log-probabilities, values and rewards of the answers once?
Elsewhere: scoring by the engine of the rollout (step.py), rules of forward passes (spec/rules_forward.py).
"""

from flopcast.spec.job import Job
from flopcast.spec.rl_plan import RlPlan


def scoring_job(training: Job, plan: RlPlan) -> Job:
    """Return the forward pass of the training job over at least all answers, in whole batches of the plan.

    References
    ----------
    The training workers compute log-probabilities in veRL (verl/trainer/ppo/ray_trainer.py), OpenRLHF
    (openrlhf/trainer/ray/ppo_actor.py) and NeMo RL (nemo_rl/algorithms/grpo.py).
    """
    whole = training.plan.global_batch
    update: dict[str, object] = {
        "global_batch": whole * max(-(-plan.answers // whole), 1),
        "recompute": "none",
        "recompute_method": "uniform",
        "recompute_layers": 1,
        "recompute_modules": (),
        "recompute_blocks": (),
        "partition_activations": False,
        "offload": (),
    }
    if training.plan.order_rule.splits_backward:
        update["schedule"] = "1f1b"
    batch = training.batch.model_copy(update={"forward_only": True})
    return training.model_copy(
        update={"plan": training.plan.model_copy(update=update), "batch": batch, "checkpoint": None}
    )
