"""Is the screen right? Its order against exact play, on problems of many kinds.

    .venv/bin/python -m benchmarks.screen_right [PROBLEM ...]

For each problem a space is screened; the 60 plans that screen fastest are played exactly, and 60 more drawn
from the 4,096 behind them. Printed are the place of the exact optimum in the order of the
screen, what the first screened plan loses to it (regret), and the error of the screen.
"""

import random
import sys

import numpy as np

from benchmarks.search import job_of
from flopcast.io.curves import load_book
from flopcast.prediction import predict
from flopcast.search.shortlist import shortlist
from flopcast.search.space import Space

PLAYED = 120
PROBLEMS = (
    ("llama-3-8b", "dgx-h100", 64, 4096, "megatron-core", {}),
    ("llama-3-8b", "dgx-a100", 32, 8192, "megatron-core", {"cp": "1,2,4"}),
    ("llama-3-70b", "dgx-h100", 128, 8192, "megatron-core", {}),
    ("llama-3-70b", "dgx-h100", 512, 8192, "nemo", {"cp": "1,2"}),
    ("llama-2-70b", "dgx-a100", 256, 4096, "megatron-core", {"schedule": "all"}),
    ("gpt3-175b", "selene", 256, 2048, "megatron-2022", {}),
    ("gpt3-175b", "dgx-h100", 512, 2048, "megatron-core", {"precision": "fp8"}),
    ("megatron-1t", "selene", 512, 2048, "megatron-2022", {}),
    ("megatron-1.7b", "dgx-a100", 8, 2048, "megatron-2021", {}),
    ("gpt-neox-20b", "perlmutter", 64, 2048, "gpt-neox-deepspeed", {}),
    ("llemma-7b-gelu", "vista", 32, 4096, "gpt-neox-deepspeed", {}),
    ("mixtral-8x7b", "dgx-h100", 128, 4096, "megatron-core", {}),
    ("mixtral-8x22b", "dgx-h100", 256, 4096, "megatron-core", {"ep": "1,2,4,8"}),
    ("deepseek-v3", "dgx-h100", 1024, 4096, "megatron-core", {"cp": 1}),
    ("deepseek-v2-lite", "dgx-h100", 64, 4096, "megatron-core", {"cp": 1}),
    ("llama-3-8b", "dgx-h100", 32, 8192, "torch-fsdp2", {"zero": 3, "pp": 1}),
    ("llama-2-7b", "dgx-a100", 64, 4096, "deepspeed-zero", {"pp": 1, "tp": 1}),
    ("llama-3.1-405b", "dgx-h100", 1024, 8192, "megatron-core", {"cp": 1}),
    ("qwen3-30b-a3b", "dgx-h100", 64, 4096, "megatron-bridge", {"cp": 1}),
    ("gpt3-175b", "dgx-a100", 128, 2048, "internevo", {}),
)


def study(number: int) -> str:
    """One line about a problem."""
    model, cluster, gpus, seq, stack, words = PROBLEMS[number]
    plan = f"dp={gpus} gbs={8 * gpus} zero={3 if 'fsdp' in stack else 1}"
    job = job_of(
        {"model": model, "cluster": cluster, "gpus": gpus, "seq": seq, "stack": stack, "plan": plan}
    )
    book = load_book(job.cluster)
    found = shortlist(job, Space(**({"gbs": 8 * gpus, "cp": 1} | words)), book, 4096)
    kept = found.roomy or found.tight
    rng = random.Random(number)
    further = range(PLAYED // 2, len(kept))
    places = [*range(min(PLAYED // 2, len(kept))), *rng.sample(further, min(PLAYED // 2, len(further)))]
    exact = np.array([predict(kept[place].job, book).clean_step_time_s for place in places])
    rough = np.array([kept[place].step_time_s for place in places])
    best = int(exact.argmin())
    name = f"{model} on {gpus} × {cluster}, {stack}"
    return (
        f"| {name} | {found.possible} | {found.fitting} | {places[best] + 1}"
        f" | {exact[0] / exact[best] - 1:.2%} | {np.median(np.abs(rough / exact - 1)):.2%}"
        f" | {np.abs(rough / exact - 1).max():.1%} |"
    )


if __name__ == "__main__":
    chosen = [int(word) for word in sys.argv[1:]] or range(len(PROBLEMS))
    for number in chosen:
        print(study(number), flush=True)
