"""The rules about peers and their exchange of pseudo-gradients.

Answers: which settings of the exchange are possible with each other, with a cluster and with the rest of a
job, and which edit fixes a violation?
Elsewhere: the settings themselves (outer.py), what a rule is (checks.py).
"""

from flopcast.spec.checks import Case, Rule
from flopcast.spec.cluster import NodeGroup
from flopcast.spec.offload import OUTER, Placement, offload_word
from flopcast.spec.outer import Outer


def _peers(case: Case) -> int:
    return case.structure.peers


def _outer(case: Case) -> Outer:
    return case.structure.outer


def _placed(case: Case) -> tuple[Placement, ...]:
    return tuple(one for one in case.structure.offload if one.kind == OUTER)


def _rest(case: Case) -> str:
    """Return the offload of a plan without the states of the outer round."""
    return offload_word(tuple(one for one in case.structure.offload if one.kind != OUTER)) or "none"


def _with(case: Case, **changes: object) -> dict[str, object]:
    """Return the edit that changes some settings of the round."""
    return {"outer": _outer(case).model_copy(update=changes).text() or "none"}


def _unequal_directions(case: Case) -> list[int]:
    """Return the tiers whose two directions differ and that more than the exchange of peers would use."""
    tiers = case.cluster.tiers
    differ = [place for place, tier in enumerate(tiers) if tier.receive_bytes_per_s is not None]
    inside = all(_inside(case, group) for group in case.cluster.groups)
    return [place for place in differ if place < len(tiers) - 1 or _peers(case) == 1 or not inside]


def _inside(case: Case, group: NodeGroup) -> bool:
    """Return whether the widest network before the last tier connects all devices of a peer."""
    tiers = group.tiers or case.cluster.tiers[:-1]
    widest = (tiers[-1].devices or group.count * group.node.devices) if tiers else 0
    return case.cluster.num_devices <= _peers(case) * widest


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.inner_steps",
        holds=lambda c: _peers(c) > 1 or c.structure.inner_steps == 1,
        allowed="1, because the plan has only one peer",
        because=(
            "inner_steps is the number of steps between two exchanges of peers, and the plan has no "
            "other peers"
        ),
        fix=({"inner_steps": 1}, "state the number of peers, such as peers=2"),
    ),
    Rule(
        field="plan.outer",
        holds=lambda c: _peers(c) > 1 or _outer(c) == Outer(),
        allowed="no value, because the plan has only one peer",
        because="these settings describe the exchange between peers",
        fix=({"outer": "none"}, "state the number of peers, such as peers=2"),
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: _peers(c) > 1 or not _placed(c),
        allowed="no offload of outer states, because the plan has only one peer",
        because="only peers keep outer parameters and their buffers",
        fix=lambda c: {"offload": _rest(c)},
    ),
    Rule(
        field="plan.outer",
        holds=lambda c: not (_outer(c).topk and _outer(c).pattern.sums),
        allowed="the exchange all_gather or store, because peers send only some values (topk)",
        because="peers send different elements of the update, which a ring all-reduce cannot add up",
        fix=lambda c: (_with(c, exchange="all_gather"), _with(c, topk=0)),
    ),
    Rule(
        field="plan.outer",
        holds=lambda c: _peers(c) == 1 or _outer(c).overlap <= c.structure.inner_steps,
        value=lambda c: f"overlap:{_outer(c).overlap}",
        allowed=lambda c: f"an overlap of at most inner_steps ({c.structure.inner_steps})",
        because="the exchange of a fragment must end before the next exchange of the same fragment begins",
        fix=lambda c: _with(c, overlap=c.structure.inner_steps),
    ),
    Rule(
        field="plan.outer",
        holds=lambda c: _peers(c) == 1 or _outer(c).fragments <= c.structure.inner_steps,
        value=lambda c: f"fragments:{_outer(c).fragments}",
        allowed=lambda c: (
            f"at most {c.structure.inner_steps} fragments, because inner_steps is {c.structure.inner_steps}"
        ),
        because="after an inner step, at most one fragment is exchanged",
        fix=lambda c: _with(c, fragments=c.structure.inner_steps),
    ),
    Rule(
        field="plan.outer",
        holds=lambda c: (
            _peers(c) == 1
            or not _outer(c).pattern.stored
            or all(tier.links is None for tier in c.cluster.tiers)
        ),
        allowed="the exchange all_reduce or all_gather, because the cluster has measured links",
        because="the links were measured between nodes, not between a node and a store",
        fix=lambda c: (_with(c, exchange=None), "remove links of the tier"),
    ),
    Rule(
        field="plan.peers",
        holds=lambda c: _peers(c) == 1 or not c.batch.forward_only,
        allowed="1, because the job is only a forward pass",
        because="without a backward pass, there are no pseudo-gradients",
        fix={"peers": 1, "inner_steps": 1},
    ),
    Rule(
        field=lambda c: f"cluster.tiers[{_unequal_directions(c)[0]}].receive_bytes_per_s",
        holds=lambda c: not _unequal_directions(c),
        allowed=(
            "a value only in the last tier (which connects the peers), and only if each peer fits inside "
            "the tier before it"
        ),
        because="inside a peer, flopcast supports only links with the same bandwidth in both directions",
        fix="remove receive_bytes_per_s, and set bytes_per_s to the slower direction",
    ),
)
