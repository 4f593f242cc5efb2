"""The rules about steps that are only a forward pass.

Answers: which conditions must the plan of such a step satisfy, why, and which edit fixes a violation?
Elsewhere: the program of such a step (workload/forward_only.py), all other rules (rules.py).
"""

from flopcast.spec.checks import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.recompute",
        holds=lambda c: not c.batch.forward_only or c.structure.recompute == "none",
        allowed="the value none, because the job is only a forward pass",
        because="without a backward pass, nothing is recomputed",
        fix={"recompute": "none"},
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: not (c.batch.forward_only and c.structure.order_rule.splits_backward),
        allowed="a schedule without separate tasks for weight gradients",
        because="the job is only a forward pass and has no weight gradients",
        fix={"schedule": "1f1b"},
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: not (c.batch.forward_only and c.structure.offload),
        allowed="the value none, because the job is only a forward pass",
        because="offloading is not supported yet for jobs that are only a forward pass",
        fix="remove offload from the plan",
    ),
)
