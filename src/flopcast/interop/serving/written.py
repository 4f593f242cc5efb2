"""Code that the writers of launch commands share.

Answers: which limits, formats and settings does a command state, and which need a note?
Elsewhere: the flags of each engine (`written` in vllm.py and the other files here), scripts and the check
of exported files (interop/exports/launch_commands.py).
"""

from collections.abc import Mapping

from flopcast.library.published_formats import published_formats
from flopcast.records import Record, field
from flopcast.spec.serving_job import ServingJob

MODEL = "$MODEL"  # the variable of the script that names the checkpoint
HEAD = "PATH-OF-THE-EAGLE-HEAD"
STORED = ("int4", "nvfp4", "mxfp4", "mxfp4_mxfp8", "fp8_block")  # weights that no engine makes of 16 bits


class Launch(Record, eq=False):
    """The command for one kind of instance: its flags, and the settings in its YAML file."""

    flags: tuple[str, ...]
    settings: Mapping[str, object] = field(default_factory=dict)


def unusual(flag: str, value: object, usual: object = 1) -> list[str]:
    """Return a flag with its value, or nothing if the value is the default."""
    return [] if value == usual else [f"{flag} {value}"]


def limits(job: ServingJob) -> tuple[int, int]:
    """Return the largest number of sequences and of new tokens in a pass."""
    plan, engine = job.plan, job.engine
    return plan.max_sequences or engine.max_sequences, plan.max_tokens or engine.max_tokens


def quantised(job: ServingJob) -> str:
    """Return the format for which the weights need a flag; "" if the checkpoint has this format.

    >>> from flopcast.jobs import serving_job
    >>> quantised(serving_job("llama-3.1-8b", engine="vllm", plan="tp=1 weights=fp8"))
    'fp8'
    """
    published, plan = published_formats(job.model.name), job.plan
    experts = published.expert_weights or published.weights
    same = plan.weights == published.weights and plan.format_of_experts == experts
    return "" if same else plan.weights


def notes_of(job: ServingJob) -> tuple[str, ...]:
    """Return notes on settings that the command cannot contain, for any engine."""
    notes = []
    if quantised(job) in STORED:
        notes.append(f"MODEL must be a checkpoint whose weights are stored in {job.plan.weights}")
    drafting = job.plan.drafting
    if drafting is not None and drafting.drafter == "eagle":
        notes.append(f"replace {HEAD} by the draft head that was trained for this model")
    if drafting is not None:
        notes.append(
            "the commands do not contain the number of accepted tokens; to import them again, add "
            f"plan.accepted={drafting.accepted:.4g}"
        )
    return tuple(notes)


def draft_name(job: ServingJob) -> str:
    """Return the name of the smaller model that drafts, "" if something else does."""
    drafting = job.plan.drafting
    return "" if drafting is None or drafting.model is None else drafting.model.name
