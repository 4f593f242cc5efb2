"""Is the screen right? Small spaces played whole, large ones as far as anybody will wait.

    .venv/bin/python -m benchmarks.screen_right [NAME ...]     each of 20 problems, or those that are named
    .venv/bin/python -m benchmarks.screen_right large          four large ones: the 2,000 that screen best

Every feasible plan of a problem is screened and played exactly, and the same question is searched as a
user would ask it. Printed are the place of the exact optimum in the order of the screen (a search plays the
first 32), what the answer of the search loses to it, and what the plan that screens first would; the rank
correlation (Spearman) of the screen with exact play; the error of the screen: median, lowest, highest.
"""

import sys
from dataclasses import dataclass
from itertools import chain

import numpy as np

from benchmarks.search import job_of
from flopcast.lab.validation.decisions import rank_correlation
from flopcast.library.curves import load_book
from flopcast.search.exact import play_each
from flopcast.search.find import find
from flopcast.search.grid import batches
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates

ALL = sys.maxsize
FIRST = 2000  # plans of a large space that are played


@dataclass(frozen=True)
class Problem:
    """A question in words, as the command line takes them."""

    model: str
    clusters: tuple[str, ...]
    gpus: int
    seq: int
    stack: str
    space: dict[str, object]
    precision: str = "bf16"
    objective: str = "step_time"

    def question(self) -> Question:
        """What is asked."""
        plan = f"dp={self.gpus} gbs={self.space['gbs']} precision={self.precision}"
        plan += " zero=3" if "fsdp" in self.stack else ""
        words: dict[str, object] = {"model": self.model, "gpus": self.gpus, "seq": self.seq}
        words |= {"stack": self.stack, "plan": plan}
        return Question(
            jobs=tuple(job_of(words | {"cluster": cluster}) for cluster in self.clusters),
            space=Space(**({"precision": self.precision, "refine": False} | self.space)),
            objectives=(self.objective,),
        )


PROBLEMS = {
    "one node": Problem("llama-3.1-8b", ("dgx-h100",), 8, 8192, "megatron-core", {"gbs": 32}),
    "stages of unequal blocks": Problem(
        "llama-3.2-3b", ("dgx-a100",), 32, 4096, "megatron-core", {"gbs": 128, "cp": 1, "zero": 1}
    ),
    "few micro-batches": Problem(
        "llama-2-13b", ("dgx-a100",), 64, 4096, "megatron-core", {"gbs": 64, "cp": 1, "zero": "0,1"}
    ),
    "every schedule": Problem(
        "llama-2-13b", ("dgx-h100",), 32, 4096, "megatron-core",
        {"gbs": 64, "cp": 1, "zero": 1, "schedule": "all", "recompute": "none selective"},
    ),
    "many devices": Problem("gpt3-175b", ("selene",), 256, 2048, "megatron-2022", {"gbs": 512}),
    "61 blocks, deep": Problem(
        "deepseek-v3", ("dgx-h100",), 1024, 4096, "megatron-core",
        {"gbs": 2048, "mbs": "1,2", "cp": 1, "zero": 1},
    ),
    "long sequences": Problem(
        "llama-3.1-8b", ("dgx-h100",), 32, 65536, "megatron-core",
        {"gbs": 32, "zero": 1, "context_exchange": "all", "context_order": "all"},
    ),
    "16 and 8 bits": Problem(
        "llama-3-70b", ("dgx-h100",), 64, 8192, "megatron-core",
        {"gbs": 128, "cp": "1,2", "zero": 1, "precision": "bf16 fp8"},
    ),
    "16 and 4 bits": Problem(
        "llama-3.1-8b", ("gb200-nvl72",), 72, 8192, "megatron-bridge",
        {"gbs": 288, "cp": 1, "zero": 1, "precision": "bf16 nvfp4"},
    ),
    "experts": Problem(
        "mixtral-8x7b", ("dgx-h100",), 32, 4096, "megatron-core", {"gbs": 128, "cp": 1, "zero": 1}
    ),
    "experts, overlapped": Problem(
        "qwen3-30b-a3b", ("dgx-h100",), 32, 4096, "megatron-bridge",
        {"gbs": 128, "cp": 1, "zero": 1, "recompute": "none full"},
    ),
    "experts, latent attention": Problem(
        "deepseek-v2-lite", ("dgx-h100",), 16, 4096, "megatron-core", {"gbs": 64, "cp": 1, "zero": 1}
    ),
    "blocking transfers": Problem(
        "gpt-neox-20b", ("perlmutter",), 64, 2048, "gpt-neox-deepspeed", {"gbs": 256}
    ),
    "one device per node": Problem(
        "llemma-7b-gelu", ("vista",), 32, 4096, "gpt-neox-deepspeed",
        {"gbs": 128, "tensor_in_domain": False},
    ),
    "shards of any size": Problem(
        "llama-3-8b", ("dgx-h100",), 64, 8192, "torch-fsdp2",
        {"gbs": 256, "pp": "1,2,4", "dp_shard": "0,8,16"},
    ),
    "every ZeRO stage": Problem(
        "llama-2-7b", ("dgx-a100",), 128, 4096, "deepspeed-zero",
        {"gbs": 1024, "recompute": "none selective full"},
    ),
    "old devices, a slow network": Problem(
        "megatron-3.6b", ("aws-p3dn",), 32, 1024, "megatron-2021", {"gbs": 256}, "fp16"
    ),
    "AMD devices": Problem(
        "llama-2-70b", ("azure-nd-mi300x-v5",), 64, 4096, "megatron-core",
        {"gbs": 128, "cp": 1, "zero": 1},
    ),
    "two clusters": Problem(
        "llama-2-13b", ("dgx-a100", "dgx-h100"), 32, 4096, "megatron-core",
        {"gbs": 128, "cp": 1, "zero": 1},
    ),
    "three sizes, by energy": Problem(
        "llama-3-8b", ("dgx-h100",), 32, 8192, "megatron-core",
        {"gbs": 128, "cp": 1, "zero": 1, "gpus": "8,16,32"}, "bf16", "energy",
    ),
}  # fmt: skip
LARGE = {
    "experts, large": Problem(
        "mixtral-8x7b", ("dgx-h100",), 128, 4096, "megatron-core", {"gbs": 1024, "cp": 1}
    ),
    "8 bits, large": Problem(
        "gpt3-175b", ("dgx-h100",), 512, 2048, "megatron-core",
        {"gbs": 4096, "cp": 1, "precision": "fp8"}, "fp8",
    ),
    "experts, larger": Problem(
        "mixtral-8x22b", ("dgx-h100",), 256, 4096, "megatron-core",
        {"gbs": 2048, "cp": 1, "ep": "1,2,4,8"},
    ),
    "every schedule, large": Problem(
        "llama-3-70b", ("dgx-h100",), 512, 8192, "megatron-core",
        {"gbs": 1024, "schedule": "all", "context_exchange": "all"},
    ),
}  # fmt: skip


def study(name: str, problem: Problem, most: int) -> str:
    """One line about a problem of which so many plans are played."""
    question = problem.question()
    every = chain.from_iterable(batches(job, question.space) for job in question.jobs)
    candidates_kept = TopCandidates(most=most).after_all(question, every, load_book)
    rough = np.array([one.losses[0] for one in candidates_kept.best])
    exact = np.empty(len(rough))
    for place, played in play_each([one.job for one in candidates_kept.best], load_book):
        exact[place] = question.first.exact(played, question.total_tokens).value
    known = {one.job: loss for one, loss in zip(candidates_kept.best, exact.tolist(), strict=True)}
    answer = find(question, load_book).plans
    found = min(answer, key=lambda one: one.losses[0].value)
    found_loss = known.get(found.played.job, found.losses[0].value)
    best, error = exact.min(), rough / exact - 1.0
    values = (
        name,
        candidates_kept.possible,
        candidates_kept.feasible,
        len(exact),
        int(exact.argmin()) + 1,
        f"{found_loss / best - 1:.2%}",
        f"{exact[0] / best - 1:.2%}",
        f"{rank_correlation(rough.tolist(), exact.tolist()):.4f}",
        f"{np.median(abs(error)):.2%}",
        f"{error.min():+.1%}",
        f"{error.max():+.1%}",
    )
    return f"| {' | '.join(map(str, values))} |"


if __name__ == "__main__":
    large = "large" in sys.argv
    asked = [word for word in sys.argv[1:] if word != "large"]
    known = LARGE if large else PROBLEMS
    for name in asked or known:
        print(study(name, known[name], FIRST if large else ALL), flush=True)
