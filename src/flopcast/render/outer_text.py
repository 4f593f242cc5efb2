"""The outer round of peers in reports: lines of text, and JSON.

Answers: how does a report show what peers exchange, and what it adds to a step?
Elsewhere: bytes and seconds of a round (report/outer_round.py), the table of a page
(page/time_breakdown.py).
"""

from flopcast.render.plain_data import fields_of
from flopcast.render.tables import aligned
from flopcast.report.outer_round import OuterRound
from flopcast.units import show, show_seconds


def outer_head(found: OuterRound) -> str:
    """Return the round in one sentence: its steps, its duration and the utilisation."""
    steps = f"{found.inner_steps} inner steps" if found.inner_steps > 1 else "1 inner step"
    return (
        f"a round of {found.peers} peers takes {show_seconds(found.round_s)}: {steps} and an exchange of"
        f" pseudo-gradients; peers train {found.utilisation:.1%} of the time"
    )


def outer_rows(found: OuterRound) -> list[tuple[str, str, str]]:
    """Return the parts of a round: name, time or size, and details."""
    hidden_s = found.exchange_s + found.update_s - found.exposed_s
    overlaps = f"{show_seconds(hidden_s)} of it overlaps with inner steps" if hidden_s > 0 else "exposed"
    window_s = found.compute_s - found.inner_step_s * found.inner_steps
    waits = f", and a wait of {show_seconds(window_s)}" if window_s > 0 else ""
    each = f"{show_seconds(found.inner_step_s)} each{waits}"
    ratio = f"1/{found.compression_ratio:.3g} of the fp32 values" if found.compression_ratio > 1 else ""
    return [
        ("inner steps", show_seconds(found.compute_s), each),
        ("exchange", show_seconds(found.exchange_s), overlaps),
        ("outer update", show_seconds(found.update_s), ""),
        ("sent by a peer", show(found.sent_bytes, "B"), ratio),
        ("received by a peer", show(found.received_bytes, "B"), ""),
    ]


def outer_lines(found: OuterRound | None) -> list[str]:
    """Return the outer round as text; empty if the plan has one peer."""
    if found is None:
        return []
    return [outer_head(found), *(f"  {line}".rstrip() for line in aligned(outer_rows(found), "<><"))]


def outer_as_json(found: OuterRound) -> dict[str, object]:
    """Return the round: seconds of its parts, the bytes of a peer, and the utilisation."""
    return fields_of(
        found,
        "peers",
        "inner_steps",
        "inner_step_s",
        "compute_s",
        "exchange_s",
        "update_s",
        "exposed_s",
        "round_s",
        "utilisation",
        "sent_bytes",
        "received_bytes",
        "compression_ratio",
    )
