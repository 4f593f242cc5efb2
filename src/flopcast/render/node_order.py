"""The best order of nodes, as text and as plain data.

Answers: what does `flopcast search --node-order` print?
Elsewhere: the order itself (search/node_order.py).
"""

from flopcast.search.node_order import NodeOrder
from flopcast.spec.job import Job
from flopcast.units import nine_digits, show_seconds


def node_order_text(job: Job, found: NodeOrder) -> str:
    """Return the answer as text: the order, its step, and the step with the default order."""
    machine = f"{job.cluster.num_devices} × {job.cluster.node.device.name}"
    order = ",".join(map(str, found.order))
    return "\n".join(
        [
            f"{job.model.name} on {job.cluster.name}: {machine}, {job.stack.label}",
            f"plan      {job.plan.short()}  {job.batch.text()}",
            f"default   {show_seconds(found.default_step_time_s)} a step, without variation between steps",
            f"best      {show_seconds(found.step_time_s, like=found.default_step_time_s)} a step,"
            f" {found.speedup_ratio - 1.0:.2%} faster",
            f"order     {order}",
            f"set       cluster.tiers.{len(job.cluster.tiers) - 1}.links.order=[{order}]",
        ]
    )


def node_order_json(found: NodeOrder) -> dict[str, object]:
    """Return the answer as plain data, under "node_order"."""
    return {
        "node_order": {
            "order": list(found.order),
            "clean_step_time_s": nine_digits(found.step_time_s),
            "default_clean_step_time_s": nine_digits(found.default_step_time_s),
            "speedup": nine_digits(found.speedup_ratio),
        }
    }
