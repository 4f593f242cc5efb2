"""`flopcast search --node-order`, `--group-division`, `--split-points` and `--per-layer`: layouts."""

from typing import TYPE_CHECKING

from flopcast.cli.options import print_found
from flopcast.errors import Problem, SpecError
from flopcast.records import replace

if TYPE_CHECKING:
    from flopcast.requests.job_request import JobRequest
    from flopcast.requests.search_request import SearchRequest


def print_layout(asked: "SearchRequest", wants_json: bool, name: str) -> None:
    """Print the best layout of the given plan; `name` is that of the option.

    Raises
    ------
    SpecError
        Several clusters, stacks or sizes are given, or the search has no meaning for the job.
    """
    from flopcast.layout_answers import layout_answer

    placements = asked.job.offload == "auto"
    found = layout_answer(name, lambda resolve: resolve(one_request(asked)), placements=placements)
    print_found(found, wants_json, lambda each: each.data, lambda each: each.text)


def one_request(asked: "SearchRequest") -> "JobRequest":
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
