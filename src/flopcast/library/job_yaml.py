"""A job's document as YAML text.

Answers: how is an imported job written so that people and `jobs.load_job` can read it?
Elsewhere: models without a job (model_yaml.py).
"""

from collections.abc import Mapping

from flopcast.library.model_yaml import flow, model_text

ORDER = ("model", "cluster", "site", "stack", "batch", "engine", "plan", "traffic", "slo", "assumptions")


def job_text(data: Mapping[str, object]) -> str:
    """Return the YAML of a job: one line for each part, more lines for a described model, and one for each
    assumption.

    Examples
    --------
    >>> print(job_text({"plan": {"zero": 3}, "model": {"base": "gpt2"}, "assumptions": ["a: b"]}), end="")
    model: {base: "gpt2"}
    plan: {zero: 3}
    assumptions:
      - "a: b"
    """
    lines: list[str] = []
    for key in [*(key for key in ORDER if key in data), *(key for key in data if key not in ORDER)]:
        value = data[key]
        if isinstance(value, Mapping) and "blocks" in value:
            lines += [f"{key}:", *(f"  {line}" for line in model_text(value).splitlines())]
        elif key == "assumptions" and isinstance(value, list) and value:
            lines += [f"{key}:", *(f"  - {flow(one)}" for one in value)]
        else:
            lines.append(f"{key}: {flow(value)}")
    return "\n".join(lines) + "\n"
