"""The memory of a serving job as text and JSON: the contents of a device, and how many tokens fit.

Elsewhere: the bytes (serving/memory.py), memory in a whole report (serving_text.py).
"""

from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.plain_data import unrounded
from flopcast.render.serving_json import tiers_as_json
from flopcast.render.serving_text import memory_lines, plan_text
from flopcast.render.tables import in_paragraphs
from flopcast.render.terminal import answer
from flopcast.serving.memory import ServingMemory, serving_memory
from flopcast.serving.tier_memory import NAMES
from flopcast.spec.serving_job import ServingJob
from flopcast.units import show_memory

POOLS = ("pool for prompts", "pool for decoding")


def marked_text(job: ServingJob) -> str:
    """Return the contents of a device of each kind of instance, with marks for a terminal (terminal.py)."""
    device, held = job.cluster.node.device, _held(job)
    parts = [
        [
            f"{job.model.name} on {job.cluster.name}: {device.name}, {job.engine.label}",
            f"plan      {plan_text(job)}",
        ]
    ]
    names = POOLS if len(held) > 1 else ("",)
    for name, (kind, memory) in zip(names, held, strict=True):
        parts.append([*([name] if name else []), *_verdict(kind, memory), *memory_lines(memory)])
    parts.append(assumption_lines(job.assumptions))
    return in_paragraphs(*parts)


def _verdict(job: ServingJob, memory: ServingMemory) -> list[str]:
    """Return whether the weights fit, and for how many tokens and requests there is room."""
    if (full := memory.overfilled) is not None:
        missing = show_memory(-full.room_bytes)
        return [f"fits      {answer('no')}: the {NAMES[full.name]} of a node would need {missing} more"]
    if memory.cache_bytes <= 0:
        missing = show_memory(-memory.cache_bytes)
        return [f"fits      {answer('no')}: the weights and the runtime need {missing} more on each device"]
    lines = [
        f"fits      {answer('yes')}, with room for {memory.cache_tokens:,} tokens"
        f" ({show_memory(memory.token_bytes)} each on a device)"
    ]
    if longest := mean_request(job):
        number = memory.whole_requests(longest)
        lines.append(
            f"requests  up to {number:,} concurrent requests of {longest:,} tokens each (prompt and output)"
        )
    return lines


def mean_request(job: ServingJob) -> int:
    """Return the mean number of tokens of prompts and outputs, or 0 if they come from a trace."""
    lengths = [each for each in (job.traffic.prompt_tokens, job.traffic.output_tokens) if each]
    return round(sum(each.mean for each in lengths))


def _held(job: ServingJob) -> list[tuple[ServingJob, ServingMemory]]:
    """Return each kind of instance of a job with its memory."""
    return [(kind, serving_memory(kind)) for kind in job.kinds]


def as_json(job: ServingJob) -> dict[str, object]:
    """Return the memory of each kind of instance as JSON data."""
    held = _held(job)
    return {
        "format_version": 1,
        "instances": [
            {
                "pool": name,
                "fits": memory.cache_bytes > 0 and memory.overfilled is None,
                **unrounded(memory, "capacity_bytes", "usable_bytes", "weight_bytes", "activation_bytes"),
                **unrounded(memory, "reserved_bytes", "cache_bytes", "token_bytes", "state_bytes"),
                "cache_tokens": memory.cache_tokens,
                "tiers": tiers_as_json(memory),
                "mean_request_tokens": mean_request(kind),
            }
            for name, (kind, memory) in zip(
                ("prefill", "decode") if len(held) > 1 else (None,), held, strict=True
            )
        ],
        "assumptions": list(job.assumptions),
    }
