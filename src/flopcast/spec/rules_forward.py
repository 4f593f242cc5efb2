"""The rules about steps that are a forward pass alone.

Answers: what must hold between such a step and a plan, why, and what fixes it?
Elsewhere: what is left of a program (workload/forward_only.py), all other rules (rules.py).
"""

from flopcast.spec.checks import Rule
from flopcast.spec.offload import offload_word

RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.recompute",
        holds=lambda c: not c.batch.forward_only or c.structure.recompute == "none",
        allowed="none in a forward pass alone",
        because="a forward pass alone keeps nothing that could be recomputed",
        fix="set recompute to none",
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: not (c.batch.forward_only and c.structure.order_rule.splits_backward),
        value=lambda c: c.structure.schedule,
        allowed="a schedule without separate weight gradients",
        because="a forward pass alone has no weight gradients",
        fix="set schedule to 1f1b",
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: not (c.batch.forward_only and c.structure.offload),
        value=lambda c: offload_word(c.structure.offload),
        allowed="none in a forward pass alone",
        because="offloaded parameters are not supported yet if the job is a forward pass alone",
        fix="remove offload from the plan",
    ),
)
