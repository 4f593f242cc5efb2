"""`flopcast search --node-order`, `--group-division`, `--split-points` and `--per-layer`: layouts."""

from typing import TYPE_CHECKING

from flopcast.cli.options import print_found
from flopcast.errors import Problem, SpecError
from flopcast.records import replace

if TYPE_CHECKING:
    from flopcast.requests.job_request import JobRequest
    from flopcast.requests.search_request import SearchRequest
    from flopcast.spec.job import Job


def print_node_order(asked: "SearchRequest", wants_json: bool) -> None:
    """Print the best order of nodes, and its step beside that of the default order.

    Raises
    ------
    SpecError
        Several clusters, stacks or sizes are given, or the cluster has no measured links.
    """
    from flopcast.placement import best_node_order
    from flopcast.render.layouts import node_order_json, node_order_text

    job = _one_job(asked)
    found = best_node_order(job)
    print_found(found, wants_json, node_order_json, lambda each: node_order_text(job, each))


def print_group_division(asked: "SearchRequest", wants_json: bool) -> None:
    """Print the best division over groups of nodes, and its step beside that of equal parts.

    Raises
    ------
    SpecError
        As `print_node_order`, or the plan cannot be divided over the groups.
    """
    from flopcast.placement import best_group_division
    from flopcast.render.layouts import group_division_json, group_division_text

    found = best_group_division(_one_job(asked))
    print_found(found, wants_json, group_division_json, group_division_text)


def print_split_points(asked: "SearchRequest", wants_json: bool) -> None:
    """Print the divisions of a model over a chain of devices that no other one beats.

    Raises
    ------
    SpecError
        As `print_node_order`, or the job is no inference in pipeline stages.
    """
    from flopcast.placement import best_split_points
    from flopcast.render.split_points import split_points_json, split_points_text
    from flopcast.requests.layout_jobs import resolve_chain

    print_found(
        best_split_points(resolve_chain(_one_request(asked))),
        wants_json,
        split_points_json,
        split_points_text,
    )


def print_per_layer(asked: "SearchRequest", wants_json: bool) -> None:
    """Print the best strategies of blocks, and their step beside that of the best plan with equal blocks.

    With `--offload auto`, strategies are recompute and placements on the host.

    Raises
    ------
    SpecError
        As `print_node_order`, or strategies do not go with the job.
    """
    from flopcast.placement import best_strategies
    from flopcast.render.layouts import per_layer_json, per_layer_text
    from flopcast.requests.layout_jobs import resolve_blocks

    placements = asked.job.offload == "auto"
    job = resolve_blocks(_one_request(asked), placements=placements)
    found = best_strategies(job, placements=placements)
    print_found(found, wants_json, per_layer_json, lambda each: per_layer_text(job, each))


def _one_job(asked: "SearchRequest") -> "Job":
    """Return the one job of a request for a search."""
    from flopcast.requests.resolve import resolve

    return resolve(_one_request(asked))


def _one_request(asked: "SearchRequest") -> "JobRequest":
    """Return the one job that a request for a search describes."""
    _refuse_several(asked)
    request = asked.job
    gpus = int(str(request.gpus)) if str(request.gpus).isdecimal() else request.gpus
    cluster, stack = next(iter(asked.clusters), request.cluster), next(iter(asked.stacks), request.stack)
    return replace(request, gpus=gpus, cluster=cluster, stack=stack)


def _refuse_several(asked: "SearchRequest") -> None:
    """Raise SpecError if there are several values of an option that one job has once."""
    given = {"--cluster": asked.clusters, "--stack": asked.stacks}
    written = {option: ",".join(map(str, values)) for option, values in given.items()}
    several = {option: text for option, text in written.items() if "," in text}
    if several:
        because = "this search needs exactly one plan and one cluster"
        raise SpecError(
            Problem(option, text, "one value", because, f"choose one value of {option}")
            for option, text in several.items()
        )
