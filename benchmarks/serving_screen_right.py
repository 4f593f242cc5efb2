"""Is the screen of deployments right? Small spaces of serving simulated whole.

    .venv/bin/python -m benchmarks.serving_screen_right

Every deployment of a space is simulated, and the same question is searched with half of the usual number of
simulations. Printed is what the answer of the search loses to the best of all: its regret.
"""

import time
from functools import cache

from flopcast import serving_job
from flopcast.library.curves import load_serving_book
from flopcast.requests.serving_search import space_of
from flopcast.search.deployments.find import SIMULATED, find_deployments
from flopcast.search.deployments.question import DeploymentQuestion

ALL = 10**6
LENGTHS = "prompt=lognormal(1000,0.7) output=lognormal(200,0.7)"
CASES = (  # model, traffic, limits, space; on 8 devices of dgx-h100
    (
        "llama-3.1-70b",
        "rate=8/s prompt=1500 output=200",
        "ttft_p90=1s tpot_p90=40ms",
        "weights=bf16,fp8 max_sequences=32,256 max_tokens=2048,8192",
    ),
    (
        "llama-3.1-8b",
        f"rate=40/s {LENGTHS}",
        "ttft_p90=500ms tpot_p90=20ms",
        "max_sequences=32,256 max_tokens=2048,8192",
    ),
    (
        "mixtral-8x7b",
        "rate=20/s prompt=1500 output=200",
        "ttft_p90=1s tpot_p90=30ms",
        "max_sequences=64,256 max_tokens=8192",
    ),
    ("llama-3.1-8b", "rate=30/s prompt=3000 output=150", "ttft_p90=1s tpot_p90=9ms", "pools=yes tp=1,2"),
    (
        "llama-3.1-70b",
        "concurrency=128 prompt=1500 output=200",
        "tpot_p90=60ms",
        "weights=bf16,fp8 max_sequences=32,256 max_tokens=2048,8192",
    ),
)


def main() -> None:
    """Print one line for each case and objective."""
    book = cache(load_serving_book)
    for model, traffic, slo, space in CASES:
        job = serving_job(
            model, cluster="dgx-h100", gpus=8, traffic=f"{traffic} requests=1000", slo=slo, engine="vllm"
        )
        for objective in ("cost", "tpot", "end_to_end"):
            question = DeploymentQuestion(jobs=(job,), space=space_of(space), objectives=(objective,))
            start_s = time.process_time()
            found = find_deployments(question, book, simulated=SIMULATED // 2)
            middle_s = time.process_time()
            whole = find_deployments(question, book, simulated=ALL)
            losses = [min(each.losses[0] for each in one.deployments) for one in (found, whole)]
            print(
                f"{model:15} {objective:11} {found.simulated:3} of {whole.simulated:4} simulated,"
                f" regret {losses[0] / losses[1] - 1:.1%},"
                f" {middle_s - start_s:.1f} against {time.process_time() - middle_s:.1f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
