"""The options that choose, size and price the cluster of a job: --cluster, --gpus, --price.

Answers: on how many nodes does a job with these options run, and what do its devices cost?
Elsewhere: all other options (resolve.py, training_options.py), descriptions of clusters (job_files.py).
"""

import re
from collections.abc import Mapping
from math import prod

from flopcast.errors import Problem, spec_error
from flopcast.files.field_names import ARGUMENT
from flopcast.files.nearest_names import letters
from flopcast.files.yaml_text import Document
from flopcast.fixes import Fix, set_to
from flopcast.library import catalog
from flopcast.library.edits import merged, placed
from flopcast.records import replace
from flopcast.requests.job_files import AUTO
from flopcast.requests.job_request import JobRequest
from flopcast.requests.missing_parts import USUAL, stated_plan
from flopcast.requests.sources import assuming
from flopcast.requests.usual_values import stated_cluster
from flopcast.spec.plan_fields import DEGREES


def names_cluster(document: Document, request: JobRequest) -> bool:
    """Return whether the file, an option or a change names or describes a cluster."""
    return "cluster" in document.mapping or any(change.startswith("cluster=") for change in request.changes)


def with_usual_cluster(document: Document, request: JobRequest) -> Document:
    """Return the document with the usual cluster, which is an assumption unless a change names another
    one.
    """
    document = document.with_part("cluster", USUAL["cluster"])
    renamed = any(change.startswith("cluster.base=") for change in request.changes)
    return document if renamed else assuming(document, (f"cluster {USUAL['cluster']}",))


def devices_of_plan(document: Document) -> int | None:
    """Return the product of a plan's degrees if the plan states its replicas and is complete, otherwise
    None.
    """
    plan = stated_plan(document)
    if "data_parallel" not in plan or AUTO in plan:
        return None
    given = [plan.get(name, 1) for name in DEGREES]
    degrees = [degree for degree in given if isinstance(degree, int) and degree > 0]
    return prod(degrees) if len(degrees) == len(given) else None


def in_whole_nodes(gpus: int, cluster: object) -> int:
    """Return the number of devices nearest to `gpus` that fills whole nodes, or a part of one.

    `cluster` is a name of the catalogue or, if it is None, stands for the usual cluster; a cluster of a
    file does not change the number.

    >>> [in_whole_nodes(gpus, None) for gpus in (4, 12, 60)], in_whole_nodes(12, "mine.yaml")
    ([4, 16, 64], 12)
    """
    known = catalog.known("clusters", str(cluster or USUAL["cluster"]).partition(":")[0])
    per_node = catalog.cluster(known).node.devices if known else 1
    return gpus if gpus <= per_node else round(gpus / per_node) * per_node


def with_whole_nodes(problem: Problem, cluster: object) -> Problem:
    """Return a problem; if its fix lists numbers of devices, they fill whole nodes of a cluster."""
    name, given = next(iter(problem.edits[0].items())) if problem.edits else ("", "")
    if problem.field != "gpus" or not re.fullmatch(r"\d+(,\d+)+", str(given)):
        return problem
    sizes = (str(in_whole_nodes(int(each), cluster)) for each in str(given).split(","))
    return replace(problem, fix=set_to({name: ",".join(dict.fromkeys(sizes))}))


def devices_of_cluster(document: Document) -> int | None:
    """Return the number of devices of a document's cluster if it is in the catalogue, otherwise None."""
    cluster = stated_cluster(document)
    name, _, nodes = str(cluster.get("base", "")).partition(":")
    size = str(cluster.get("nodes", nodes))
    if catalog.known("clusters", name) is None or not (size.isdecimal() or not size):
        return None
    return catalog.cluster(name, int(size or 0) or None).num_devices


def with_price(document: Document, price: object, anew: bool) -> Document:
    """Return the document with the price of a device, wherever the cluster is named.

    The price replaces that of a file (`anew`), but not that of a later KEY=VALUE.
    """
    cluster = stated_cluster(document)
    if price is None or not isinstance(document.data, dict) or not cluster:
        return document
    if "price" in cluster and not anew:
        return document
    stated = price if str(price)[:1].isalpha() else {"device_usd_per_hour": price}
    changed = document.with_part("cluster", cluster | {"price": stated})
    return placed(changed, ("cluster", "price"), "--price")


def devices_of_script(document: Document, stated: int | None) -> int | None:
    """Return the devices that a launch script states, if the cluster is named without a size."""
    cluster = stated_cluster(document)
    sized = "base" not in cluster or ":" in str(cluster["base"]) or "nodes" in cluster
    return None if sized else stated


def with_usual_size(document: Document) -> Document:
    """Return the document with the size in the catalogue as an assumption if nothing states another size.

    If the cluster was named by its device, another assumption states which cluster it is. This is because
    the number after the name counts nodes, but the user may have meant devices.
    """
    cluster = stated_cluster(document)
    base = cluster.get("base")
    named, _, nodes = base.partition(":") if isinstance(base, str) else ("", "", "")
    found = catalog.known("clusters", named) if named else None
    if found and letters(found) != letters(named):
        size = (
            f"; {nodes} is its number of nodes, with {catalog.cluster(found).node.devices} devices each"
            if nodes
            else ""
        )
        note = f"cluster {found}, the only cluster of the catalogue with this device{size}"
        document = assuming(document, (note,))
    if not isinstance(base, str) or ":" in base or cluster.keys() & {"nodes", "groups"}:
        return document
    if catalog.known("clusters", base) is None or devices_of_plan(document) is not None:
        return document
    devices = catalog.cluster(base).num_devices
    return assuming(document, (f"gpus {devices}, the number of devices of {base} in the catalogue",))


def _whole_nodes(gpus: int, per_node: int, nodes: str, plan: Mapping[str, object]) -> str:
    """Return the numbers of devices near `gpus` that are whole nodes and enough for the plan's degrees.

    If the cluster states one of them as its size, it is the only one.

    >>> [_whole_nodes(12, 8, nodes, {"tensor_parallel": tp}) for nodes, tp in (("", 1), ("2", 1), ("", 9))]
    ['8 or 16', '16', '16']
    """
    least = prod(each for name in DEGREES if isinstance(each := plan.get(name), int) and each > 0)
    first = max(gpus // per_node, -(-least // per_node)) * per_node
    sizes = [size for size in (first, first + per_node) if size - gpus < per_node] or [first]
    stated = int(nodes) * per_node if nodes.isdecimal() else 0
    return str(stated) if stated in sizes else " or ".join(map(str, sizes))


def _meant(name: str) -> str | None:
    """Return the first cluster that the fix of an unknown name proposes, if all have as large nodes."""
    meant = [str(edit[""]) for edit in catalog.unknown_name("clusters", name).edits]
    sizes = {catalog.cluster(each).node.devices for each in meant}
    return meant[0] if len(sizes) == 1 else None


def with_gpus(document: Document, gpus: object) -> Document:
    """Return the cluster with as many nodes as `gpus` need, or a part of one node.

    `gpus` overrides the number of nodes, unless a change KEY=VALUE states another. All other changes of the
    cluster stay.
    """
    if gpus is None or not isinstance(document.data, dict):
        return document
    fix: str = "remove --gpus, or choose a cluster of the catalogue with --cluster"
    if not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 1:
        because = "the value is a text" if isinstance(gpus, str) else "the value is the number of devices"
        from flopcast.slips import whole_number

        fix = f"set --gpus to {whole_number(gpus, 8)}"
        raise spec_error("--gpus", gpus, "a whole number above 0", because, fix)
    cluster = stated_cluster(document)
    if "base" not in cluster:
        because = "flopcast knows the devices of a node only for clusters of the catalogue"
        allowed = "no value, unless the cluster is from the catalogue (flopcast catalog clusters)"
        raise spec_error("--gpus", gpus, allowed, because, fix)
    name = str(cluster["base"]).partition(":")[0]
    meant = catalog.known("clusters", name) or _meant(name)
    if meant is None:
        return document  # reported with the other faults of the job
    per_node = catalog.cluster(meant).node.devices
    stated = str(cluster["base"]).partition(":")[2]
    if gpus > per_node and gpus % per_node:
        known = name if catalog.known("clusters", name) else meant
        allowed = (
            f"a multiple of {per_node} (a node of {known} has {per_node} devices), or fewer than {per_node}"
        )
        sizes = _whole_nodes(gpus, per_node, stated, stated_plan(document))
        fix = Fix(f"set --gpus to {sizes}", [{"": int(size)} for size in sizes.split(" or ")])
        raise spec_error("--gpus", gpus, allowed, "jobs on several nodes use whole nodes", fix)
    nodes, where = cluster.get("nodes"), document.where(("cluster", "nodes"))
    if where.startswith(ARGUMENT) and isinstance(nodes, int) and 0 < nodes != max(gpus // per_node, 1):
        because = f"--gpus {gpus} states another size of the cluster"
        allowed, fix = str(max(gpus // per_node, 1)), f"remove --gpus {gpus}, or cluster.nodes={nodes}"
        raise spec_error("cluster.nodes", nodes, allowed, because, fix, where)
    part = {"nodes": 1, "groups": {"0": {"node": {"devices": gpus}}}}
    size = part if gpus < per_node else {"nodes": gpus // per_node}
    changed = document.with_part("cluster", merged(cluster, {"base": name} | size))
    return replace(
        changed,
        places=document.places
        | {("cluster",): "--gpus", ("cluster", "base"): document.where(("cluster",))},
    )
