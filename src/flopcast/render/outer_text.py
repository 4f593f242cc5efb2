"""The outer round of peers in reports: lines of text, and JSON.

Answers: how does a report show the exchange between peers, and the time that it adds to a step?
Elsewhere: bytes and seconds of a round (report/outer_round.py), the table of a page
(page/time_breakdown.py).
"""

from flopcast.render.plain_data import fields_of
from flopcast.render.tables import aligned
from flopcast.report.outer_round import OuterRound
from flopcast.report.stragglers import EqualPeers
from flopcast.units import show, show_seconds

OF_ROUND = (  # fields in JSON, in their order
    *("peers", "inner_steps", "inner_step_s", "compute_s", "exchange_s", "update_s", "exposed_s"),
    *("round_s", "utilisation", "sent_bytes", "received_bytes", "compression_ratio"),
)


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


def peer_rows(peers: tuple[EqualPeers, ...]) -> list[tuple[str, str, str]]:
    """Return the inner step of the peers of each speed, and how long they wait for slower peers."""
    rows = []
    for one in peers:
        wait = (
            f"wait {show_seconds(one.waits_s)} per round for slower peers" if one.waits_s > 0 else "slowest"
        )
        link = f", links at {one.link_fraction:.0%} of the usual speed" if one.link_fraction != 1 else ""
        rows.append((_name(one.peers), show_seconds(one.inner_step_s), f"{wait} ({one.device}{link})"))
    return rows


def _name(peers: tuple[int, ...]) -> str:
    """Return what to call some peers, by their numbers.

    >>> _name((3,)), _name((0, 1, 2)), _name((0, 2))
    ('peer 3', 'peers 0 to 2', 'peers 0, 2')
    """
    if len(peers) == 1:
        return f"peer {peers[0]}"
    first, last = peers[0], peers[-1]
    follow = last - first == len(peers) - 1 > 1
    return f"peers {first} to {last}" if follow else f"peers {', '.join(map(str, peers))}"


def outer_lines(found: OuterRound | None, peers: tuple[EqualPeers, ...] = ()) -> list[str]:
    """Return the outer round as text, with a line for the peers of each speed; empty for one peer."""
    if found is None:
        return []
    round_lines = aligned(outer_rows(found), "<><")
    head = ["inner steps of unequal peers"] * bool(peers)
    lines = [*(f"  {line}".rstrip() for line in round_lines), *head]
    return [outer_head(found), *lines, *(f"  {line}" for line in aligned(peer_rows(peers), "<><"))]


def outer_as_json(found: OuterRound, peers: tuple[EqualPeers, ...] = ()) -> dict[str, object]:
    """Return the round: seconds of its parts, bytes and utilisation, and the peers of each speed."""
    names = ("peers", "device", "inner_step_s", "link_fraction", "waits_s")
    return fields_of(found, *OF_ROUND) | {"unequal_peers": [fields_of(one, *names) for one in peers]}
