"""The assumptions of a job as lines of text, with the option that replaces each.

Answers: which values did the user not state, and how can they be stated?
Elsewhere: where assumptions are made (requests/resolve.py, requests/missing_plan.py, interop/).
"""

from collections.abc import Iterable

HEADING = "assumed"
OPTIONS = {  # first word of an assumption → what to set on the command line
    "cluster": "--cluster",
    "gpus": "--gpus",
    "stack": "--stack",
    "sequence_length": "--seq",
    "global_batch": "gbs in --plan",
    "precision": "precision in --plan",
    "stage_layers": "stage_layers in --plan",
}


def assumption_lines(texts: Iterable[str]) -> list[str]:
    """Return a heading and a line for each assumption; nothing if there are none.

    >>> print(*assumption_lines(["stack megatron-core", "no dropout"]), sep="\\n")
    assumed
      stack megatron-core; set --stack to change it
      no dropout
    """
    lines = [f"  {with_option(text)}" for text in dict.fromkeys(texts)]
    return [HEADING, *lines] if lines else []


def with_option(text: str) -> str:
    """Return an assumption with the option that replaces it, if there is such an option."""
    option = OPTIONS.get(text.partition(" ")[0])
    return text if option is None else f"{text}; set {option} to change it"
