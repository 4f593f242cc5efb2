"""The rules about offloaded states.

Answers: which offload is possible with a stack, a cluster and the rest of a plan, why, and which edit fixes
a violation?
Elsewhere: how offload is written (offload.py), whether a memory is large enough (memory/tiers.py), what a
rule is (checks.py).
"""

import re

from flopcast.fixes import Edit, Fix
from flopcast.spec.checks import Case, Rule, Ways, first
from flopcast.spec.described_tiers import FIELDS, tier_of
from flopcast.spec.node_groups import as_cluster
from flopcast.spec.offload import KINDS, OUTER_PLACES, PEER, Placement, fraction_in, offload_word, stride_of

HOST_EXAMPLE = {"capacity_bytes": "1 TB", "bytes_per_s": "200 GB/s"}
STORAGE_EXAMPLE = {"capacity_bytes": "4 TB", "read_bytes_per_s": "6 GB/s", "write_bytes_per_s": "4 GB/s"}


def _placed(case: Case) -> tuple[Placement, ...]:
    return case.structure.offload


def _unknown_to_stack(case: Case) -> list[Placement]:
    """Return the placements that the stack does not have."""
    known = (*case.stack.offload.places, *OUTER_PLACES)
    return [one for one in _placed(case) if f"{one.kind}:{one.tier}" not in known]


def _without(case: Case, wrong: list[Placement]) -> Edit:
    """Return the edit that leaves some placements out."""
    rest = tuple(one for one in _placed(case) if one not in wrong)
    return {"offload": offload_word(rest) or "none"}


def _supported(case: Case) -> Ways:
    """Return the edit that offloads to the host what the stack has no other memory for.

    States that the stack cannot offload at all are removed, because no other state stands for them.
    """
    places = [place for place in (*case.stack.offload.places, *OUTER_PLACES) if place.endswith(":host")]
    places = places if tier_of(case.cluster, "host") else []
    unknown = _unknown_to_stack(case)
    lost = tuple(one for one in unknown if f"{one.kind}:host" not in places)
    if lost:
        text = f"remove {offload_word(lost)} from offload"
        return Fix(text, (_without(case, list(lost)),)), "choose another stack"
    moved = [one.model_copy(update={"tier": "host"}) if one in unknown else one for one in _placed(case)]
    words = dict.fromkeys(offload_word((one,)) for one in moved)
    return {"offload": ",".join(words)}, "choose another stack"


def _with_optimizer(case: Case) -> Edit:
    """Return the edit that also offloads the optimizer, or no gradients if it is on peers already."""
    gradients = _only(case, "gradients")
    if _has(case, "optimizer"):
        return _without(case, gradients)
    return {"offload": f"optimizer:{gradients[0].tier},{offload_word(_placed(case))}"}


def _undescribed(case: Case) -> list[str]:
    """Return the fields of the memories that the plan uses and the cluster does not describe."""
    if _unknown_to_stack(case):
        return []  # another rule says so
    names = dict.fromkeys(one.tier for one in _placed(case))
    if any(name not in ("host", PEER) for name in names):
        names = dict.fromkeys(("host", *names))  # what goes to storage passes through the host
    clusters = [as_cluster(case.cluster, group) for group in case.cluster.groups]
    return [
        FIELDS[name].replace("[0]", f"[{place}]")
        for name in names
        for place, cluster in enumerate(clusters)
        if tier_of(cluster, name) is None
    ]


def _example(case: Case) -> str:
    """Return changes that describe the first missing memory."""
    field = _undescribed(case)[0]
    values = HOST_EXAMPLE if field.endswith(".memory") else STORAGE_EXAMPLE
    path = re.sub(r"\[(\d+)\]", r".\1", field)
    return " ".join(f'{path}.{name}="{value}"' for name, value in values.items())


def _too_much(case: Case) -> list[str]:
    """Return the kinds of state of which more than all is placed."""
    return [kind for kind in KINDS if fraction_in(_placed(case), kind) > 1 + 1e-9]


def _scaled(case: Case) -> Ways:
    """Return the edit that scales the fractions of overfull kinds to 1."""
    total = {kind: max(fraction_in(_placed(case), kind), 1.0) for kind in KINDS}
    scaled = (
        one.model_copy(update={"fraction": int(one.fraction / total[one.kind] * 1e4) / 1e4})
        for one in _placed(case)
    )
    return {"offload": offload_word(tuple(scaled))}


def _has(case: Case, kind: str, but: str = "") -> bool:
    """Return whether a kind of state is placed outside the devices, in a tier other than `but`."""
    return any(one.kind == kind and one.tier != but for one in _placed(case))


def _overlaps_updates(case: Case) -> bool:
    return case.stack.offload.overlaps_updates and _has(case, "optimizer")


def _only(case: Case, *kinds: str) -> list[Placement]:
    return [one for one in _placed(case) if one.kind in kinds]


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.offload",
        holds=lambda c: not _unknown_to_stack(c),
        allowed=lambda c: (
            f"with the stack {c.stack.name}: {', '.join((*c.stack.offload.places, *OUTER_PLACES))}"
        ),
        because="the stack can offload only these kinds of state, and only to these memories",
        fix=_supported,
    ),
    Rule(
        field=lambda c: _undescribed(c)[0],
        holds=lambda c: not _undescribed(c),
        value=lambda _: "missing",
        fault=lambda c: f"is missing, but the plan offloads states to it ({offload_word(_placed(c))})",
        allowed="a description of the memory with capacity_bytes and bandwidths",
        because="flopcast needs the size and the bandwidth of the memory to which states are offloaded",
        fix=lambda c: (
            f"describe {_undescribed(c)[0]} with the values of your machine, such as {_example(c)}, "
            "or choose another cluster"
        ),
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: not _too_much(c),
        allowed="fractions of each kind of state that add up to 1 or less",
        because="together, the fractions of a kind of state cannot exceed the whole state",
        fix=_scaled,
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: (
            c.structure.zero == 3
            or not _has(c, "parameters")
            or any(one.kind == "parameters" for one in _unknown_to_stack(c))
        ),
        allowed="no offload of parameters, because zero is not 3",
        because="only parameters that are sharded by ZeRO-3 can be offloaded",
        fix={"zero": 3},
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: _has(c, "optimizer", but=PEER) or not _has(c, "gradients"),
        allowed="no offload of gradients, because no part of the optimizer is offloaded to the host",
        because="the optimizer reads the gradients from the memory where its states are",
        fix=_with_optimizer,
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: stride_of(_placed(c)) == 0 or c.stack.offload.strides,
        allowed="no stride, because this stack does not support it",
        because="this stack updates all states on the host",
        fix=lambda c: ({"offload": offload_word(_without_strides(c))}, "choose another stack"),
    ),
    Rule(
        field="plan.zero",
        holds=lambda c: c.structure.zero >= 2 or not _overlaps_updates(c),
        allowed="2 or 3, because the stack sets offload.overlaps_updates",
        because="only sharded gradients are copied to the host layer by layer",
        fix={"zero": 2},
    ),
    Rule(
        field="plan.pipeline_parallel",
        holds=lambda c: first(c.plans.pipeline_parallel) == 1 or not _overlaps_updates(c),
        allowed="1, because the stack sets offload.overlaps_updates",
        because=(
            "with several pipeline stages, optimizer updates that overlap with passes are not supported yet"
        ),
        fix={"pipeline_parallel": 1},
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: all(one.stride == 0 or _may_have_stride(one) for one in _placed(c)),
        allowed="a stride of 2 or more, and only for an optimizer that is offloaded to the host",
        because=(
            "with a stride of k, the device updates every k-th subgroup of the optimizer, and the host "
            "updates the others"
        ),
        fix=lambda c: {"offload": offload_word(_without_strides(c))},
    ),
    Rule(
        field="plan.offload",
        holds=lambda c: not (c.structure.order_rule.splits_backward and _has(c, "activations")),
        allowed="no offload of activations, because the schedule is a zero-bubble schedule",
        because=(
            "zero-bubble schedules would fetch offloaded activations twice (in the tasks B and W), "
            "which is not supported yet"
        ),
        fix=lambda c: _without(c, _only(c, "activations")),
    ),
)


def _may_have_stride(one: Placement) -> bool:
    return one.kind == "optimizer" and one.tier == "host" and one.stride >= 2


def _without_strides(case: Case) -> tuple[Placement, ...]:
    return tuple(one.model_copy(update={"stride": 0}) for one in _placed(case))
