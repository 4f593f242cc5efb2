"""The rules about operating a cluster: what must hold between a price and what it is paid for.

Answers: which statements about money contradict the cluster, why, and which edit mends it?
Elsewhere: what can be stated (operations.py), what a rule is (checks.py).
"""

from flopcast.spec.checks import Case, Rule


def _device_for_hire(case: Case) -> str:
    """The device that the price is asked for; empty where it is a user's own, or none is known."""
    return case.cluster.price.device if case.cluster.price is not None else ""


RULES: tuple[Rule, ...] = (
    Rule(
        field="cluster.price.device",
        holds=lambda c: _device_for_hire(c) in ("", c.cluster.node.device.name),
        value=_device_for_hire,
        allowed=lambda c: c.cluster.node.device.name,
        because="a listed price is that of one device, and the cluster has another",
        fix=lambda _: (
            "change cluster.price to one of that device (flopcast catalog prices), or state your own"
        ),
    ),
)
