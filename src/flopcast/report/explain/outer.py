"""Explanation of the part of a step that peers spend on their exchange.

Answers: how is this time computed from the bytes of a peer and the bandwidth of its links?
Elsewhere: the round itself (report/outer_round.py), the other parts of a step (steps.py).
"""

from flopcast.report.explain.explanation import Explanation, Input
from flopcast.report.explain.kernels import lasting
from flopcast.report.outer_round import OUTER_ROUND, OuterRound, link_fractions
from flopcast.spec.job import Job
from flopcast.units import show


def explain_outer(found: OuterRound, job: Job, note: str) -> Explanation:
    """Return the time that the exchange adds to each inner step. `note` states the share of the step."""
    tier, devices = job.cluster.tiers[-1], job.cluster.num_devices // found.peers
    rates = f"{tier.name}: {devices} devices send at {show(tier.bytes_per_s, 'B/s')} each"
    if tier.receive_bytes_per_s is not None:
        rates += f" and receive at {show(tier.receive_bytes_per_s, 'B/s')}"
    if (slowest := min(link_fractions(job))) < 1:
        rates += f", and the slowest peer at {slowest:.0%} of this rate"
    return Explanation(
        name=OUTER_ROUND,
        amount=found.step_time_s - found.inner_step_s,
        formula="(wait for the window + exposed exchange and outer update) / inner steps",
        inputs=(
            lasting("wait for the window", found.compute_s - found.inner_step_s * found.inner_steps),
            lasting("exposed exchange and outer update", found.exposed_s),
            lasting("exchange", found.exchange_s),
            lasting("outer update", found.update_s),
            Input(name="inner steps", text=str(found.inner_steps), number=found.inner_steps),
            Input(name="sent by a peer", text=show(found.sent_bytes, "B"), source=rates),
            Input(name="received by a peer", text=show(found.received_bytes, "B")),
        ),
        note=note,
    )
