"""The rules about slow devices, hosts and links, and about measured links.

Answers: which slow parts and which measured matrices contradict the cluster or the job, and which edit
fixes this?
Elsewhere: how slow parts are written (slow_parts.py), which matrices are invalid (link_matrix.py), what a
rule is (checks.py).
"""

from flopcast.fixes import in_place
from flopcast.spec.checks import Case, Rule
from flopcast.spec.divisors import up_to
from flopcast.spec.slow_parts import DEVICE, HOST, LINK, OF_PEERS, SlowPart

OTHER_KINDS = {"node": HOST, "cpu": HOST, "hosts": HOST, "nic": LINK, "network": LINK, "links": LINK}
HARDWARE_MARGIN_RATIO = 1.02  # over the data sheet: what the rounding of a measurement may add


def _most(part: SlowPart, case: Case) -> int:
    """Return how many devices, hosts or peers, of the kind of the given part, a job has."""
    if part.kind in OF_PEERS:
        return case.structure.peers
    per_node = case.cluster.node.devices if part.kind == HOST else 1
    return case.cluster.num_devices // per_node


def _kinds(case: Case) -> list[str]:
    """Return the kinds of parts that may be slow."""
    of_peers = OF_PEERS if case.structure.peers > 1 else ()
    return [DEVICE, HOST, LINK, *of_peers, *(tier.name for tier in case.cluster.tiers)]


def _unknown(case: Case) -> list[int]:
    """Return the places of slow parts whose kind the cluster does not have."""
    known = (*_kinds(case), *OF_PEERS)
    return [place for place, part in enumerate(case.site.slow) if part.kind not in known]


def _of_no_peer(case: Case) -> list[int]:
    """Return the places of slow peers if the plan has only one peer."""
    slow = enumerate(case.site.slow)
    return [place for place, part in slow if part.kind in OF_PEERS and case.structure.peers == 1]


def _outside(case: Case) -> list[int]:
    """Return the places of slow parts whose number is too large."""
    slow = enumerate(case.site.slow)
    return [place for place, part in slow if part.index >= _most(part, case)]


def _measured(case: Case) -> list[int]:
    """Return the tiers with a matrix of measured links."""
    return [place for place, tier in enumerate(case.cluster.tiers) if tier.links is not None]


def _size(case: Case, place: int) -> int:
    links = case.cluster.tiers[place].links
    return 0 if links is None else links.size


def _domains(case: Case) -> int:
    return -(-case.cluster.num_devices // case.cluster.scale_up_devices)


def _too_small(case: Case) -> list[int]:
    """Return the tiers whose matrix has fewer nodes than the job."""
    return [place for place in _measured(case) if _size(case, place) < _domains(case)]


def _misplaced(case: Case) -> list[int]:
    """Return the tiers with a matrix that are not the widest."""
    return [place for place in _measured(case) if place != len(case.cluster.tiers) - 1]


def _fastest(case: Case, place: int) -> float:
    """Return the highest measured bandwidth of a device over that of its hardware."""
    tier = case.cluster.tiers[place]
    if tier.links is None:
        return 0.0
    measured = tier.links.bytes_per_s
    return float(measured[measured < float("inf")].max() / tier.bytes_per_s)


def _too_fast(case: Case) -> list[int]:
    """Return the tiers whose matrix is faster than the hardware."""
    return [place for place in _measured(case) if _fastest(case, place) > HARDWARE_MARGIN_RATIO]


def _with_known_kind(part: SlowPart) -> str:
    """Return the edit that corrects the kind of a slow part."""
    return in_place(OTHER_KINDS.get(part.kind.lower(), DEVICE), part.kind)


RULES: tuple[Rule, ...] = (
    Rule(
        field=lambda c: f"site.slow[{_unknown(c)[0]}].kind",
        holds=lambda c: not _unknown(c),
        allowed=lambda c: ", ".join(_kinds(c)),
        because="a slow part is a device, a host, a link, or one of the networks of the cluster",
        fix=lambda c: _with_known_kind(c.site.slow[_unknown(c)[0]]),
    ),
    Rule(
        field=lambda c: f"site.slow[{_of_no_peer(c)[0]}].kind",
        holds=lambda c: not _of_no_peer(c),
        allowed=lambda c: ", ".join(_kinds(c)),
        because="only plans with peers can have slow peers, and the plan has only one peer",
        fix=lambda c: {f"site.slow[{_of_no_peer(c)[0]}].kind": DEVICE},
    ),
    Rule(
        field=lambda c: f"site.slow[{_outside(c)[0]}].index",
        holds=lambda c: not _outside(c),
        allowed=lambda c: up_to(0, _most(c.site.slow[_outside(c)[0]], c) - 1),
        because="devices, hosts and peers are numbered from 0",
        fix=lambda c: {f"site.slow[{_outside(c)[0]}].index": _most(c.site.slow[_outside(c)[0]], c) - 1},
    ),
    Rule(
        field="site.slow",
        about_lists=True,
        holds=lambda c: not (c.site.slow and c.batch.listed),
        value=lambda c: ",".join(part.word() for part in c.site.slow),
        allowed="no value, because micro-batches are listed",
        because="slow parts together with listed micro-batches are not supported yet",
        fix="remove site.slow, or the list of micro-batches",
    ),
    Rule(
        field=lambda c: f"cluster.tiers[{_measured(c)[0]}].links",
        about_lists=True,
        holds=lambda c: not (_measured(c) and c.batch.listed),
        value=lambda c: f"{_size(c, _measured(c)[0])} nodes",
        allowed="no value, because micro-batches are listed",
        because="measured links together with listed micro-batches are not supported yet",
        fix=lambda c: f"remove cluster.tiers[{_measured(c)[0]}].links, or the list of micro-batches",
    ),
    Rule(
        field=lambda c: f"cluster.tiers[{_misplaced(c)[0]}].links",
        holds=lambda c: not _misplaced(c),
        value=lambda c: f"{_size(c, _misplaced(c)[0])} nodes",
        allowed="a link matrix only in the last tier, which connects all nodes",
        because="measured links inside other tiers are not supported yet",
        fix=lambda c: f"remove cluster.tiers[{_misplaced(c)[0]}].links, or the tiers after it",
    ),
    Rule(
        field=lambda c: f"cluster.tiers[{_too_small(c)[0]}].links",
        holds=lambda c: not _too_small(c),
        value=lambda c: f"{_size(c, _too_small(c)[0])} nodes",
        allowed=lambda c: f"a matrix of at least {_domains(c)} nodes (the number of nodes of the cluster)",
        because="flopcast needs the bandwidth of every pair of nodes",
        fix=lambda c: f"choose at most {_size(c, _too_small(c)[0])} nodes, or measure all {_domains(c)}",
    ),
    Rule(
        field=lambda c: f"cluster.tiers[{_too_fast(c)[0]}].links",
        holds=lambda c: not _too_fast(c),
        value=lambda c: f"{_fastest(c, _too_fast(c)[0]):.2f} times the bandwidth of the hardware",
        allowed="bandwidths of at most links.devices times the bytes_per_s of the tier",
        because="a measured bandwidth cannot exceed that of the hardware",
        fix=lambda c: (
            "change links.devices (the number of devices whose network cards were used), links.unit, "
            f"or bytes_per_s of cluster.tiers[{_too_fast(c)[0]}]"
        ),
    ),
)
