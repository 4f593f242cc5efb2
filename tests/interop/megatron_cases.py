"""Launch scripts as text, what is told of them, and the jobs that the scripts of this folder stand for."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from flopcast.errors import problems_of
from flopcast.interop.megatron.launch_script import launch_document, ranks_of
from flopcast.library.edits import plan_words
from flopcast.requests.job_files import job_of
from flopcast.spec.plan import Plan

SCRIPTS = Path(__file__).parent / "scripts"
FLAGS = {
    "--num-layers": "24",
    "--hidden-size": "1024",
    "--num-attention-heads": "16",
    "--seq-length": "1024",
    "--max-position-embeddings": "1024",
    "--micro-batch-size": "2",
    "--global-batch-size": "16",
    "--vocab-size": "50257",
    "--bf16": "",
}
LAUNCHER = "torchrun --nproc_per_node 8 pretrain_gpt.py"


def script_of(more="", launcher=LAUNCHER, **changes):
    """A small right script, a flag a line, the first on line 2; None leaves one out."""
    named = {f"--{key.replace('_', '-')}": value for key, value in changes.items()}
    flags = [f"{flag} {value}" for flag, value in (FLAGS | named).items() if value is not None]
    return " \\\n  ".join([launcher, *flags, more]) + "\n"


def document_of(more="", devices=None, **changes):
    """The document of a small script with more flags."""
    return launch_document(script_of(more, **changes), "run.sh", devices)


def block_of(document):
    """The blocks of a document's model."""
    return document.data["model"]["blocks"][0]


def told(text, devices=None):
    """Every fault of a script."""
    return tuple(problems_of(lambda: launch_document(text, "run.sh", devices)))


def stack_of(more="", **changes):
    """The stack that a small script asks for, as a mapping with its base."""
    stack = document_of(more, **changes).data["stack"]
    return {"base": stack} if isinstance(stack, str) else stack


def job_on(document, cluster="selene"):
    """The checked job of a document on as many devices of a cluster of eight a node as it has ranks."""
    ranks = ranks_of(document)
    node = {"groups": {"0": {"node": {"devices": ranks}}}} if ranks < 8 else {}
    base = {"base": cluster, "nodes": max(ranks // 8, 1)}
    return job_of(replace(document, data=document.data | {"cluster": base | node}))


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a script of the folder asks for, read off it by hand."""

    devices: int | None = None  # given by whoever asks, where the script does not say
    ranks: int
    plan: str
    shape: tuple[int, int, int, int]  # layers, hidden, inner width, heads
    kv_heads: int | None = None
    vocabulary: int
    sequence_length: int
    positions: str  # rows of a table, or "rope" with its share, or "alibi"
    dropout: float = 0.1
    bias: bool = True
    tied: bool = True
    stack: str
    changes: dict = field(default_factory=dict)

    def as_plan(self):
        """The plan as a noun."""
        return Plan(**plan_words(self.plan))


EXPECTED = {
    name: Expected(**row | {"shape": tuple(row["shape"])})
    for name, row in yaml.load(SCRIPTS.with_suffix(".yaml").read_bytes(), yaml.CSafeLoader).items()
}
REFUSED_BY_RULES = ("llama3_8b_fp8.sh",)


def script(name):
    """The document of a script of the folder."""
    return launch_document((SCRIPTS / name).read_bytes(), name, EXPECTED[name].devices)
