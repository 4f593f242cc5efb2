"""`flopcast search --node-order`: the best order of nodes for one plan on measured links."""

from dataclasses import replace
from typing import TYPE_CHECKING

from flopcast.cli.options import print_json
from flopcast.cli.terminal import print_text
from flopcast.errors import Problem, SpecError

if TYPE_CHECKING:
    from flopcast.requests.search_request import SearchRequest


def print_node_order(asked: "SearchRequest", wants_json: bool) -> None:
    """Print the best order of nodes, and its step beside that of the default order.

    Raises
    ------
    SpecError
        Several clusters, stacks or sizes are given, or the cluster has no measured links.
    """
    from flopcast.api import best_node_order
    from flopcast.render.node_order import node_order_json, node_order_text
    from flopcast.requests.resolve import resolve

    _refuse_several(asked)
    request = asked.job
    gpus = int(str(request.gpus)) if str(request.gpus).isdecimal() else request.gpus
    cluster, stack = next(iter(asked.clusters), request.cluster), next(iter(asked.stacks), request.stack)
    job = resolve(replace(request, gpus=gpus, cluster=cluster, stack=stack))
    found = best_node_order(job)
    if wants_json:
        print_json(node_order_json(found))
    else:
        print_text(node_order_text(job, found))


def _refuse_several(asked: "SearchRequest") -> None:
    """Raise SpecError if there are several values of an option that one job has once."""
    given = {"--cluster": asked.clusters, "--stack": asked.stacks}
    written = {option: ",".join(map(str, values)) for option, values in given.items()}
    several = {option: text for option, text in written.items() if "," in text}
    if several:
        because = "the order of nodes is searched for one plan on one cluster"
        raise SpecError(
            Problem(option, text, "one value", because, f"choose one value of {option}")
            for option, text in several.items()
        )
