"""Predictions per second and core over a grid of 10,000 scenarios: `python -m benchmarks sweeps [NUMBER]`.

The scenarios are those of a sweep: five models on two kinds of machines of two sizes, with twenty
layouts, five choices of micro-batch and recompute, and five global batches, the last one varying
fastest. Each is made a job from its options, as a program does with `flopcast.job`, and predicted by
one `Predictor`; its seconds, tokens per second and verdict of memory are read. NUMBER takes about so
many scenarios, in runs of 100 neighbours that are spread evenly over the grid. Prints processor
seconds, of all and of making the jobs, and scenarios per processor second; invalid scenarios are
counted too.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

import flopcast

MODELS = ("llama-3-8b", "llama-3-70b", "gpt3-175b", "mixtral-8x7b", "llama-2-7b")
CLUSTERS, SIZES = ("dgx-h100", "dgx-a100"), (128, 256)
LAYOUTS = tuple(product((1, 2, 4, 8), (1, 2, 4, 8, 16)))  # tensor and pipeline parallel
CHOICES = ((1, "none"), (2, "none"), (1, "selective"), (2, "selective"), (1, "full"))
BATCHES = (256, 512, 1024, 2048, 4096)
RUN = 100  # neighbours that stay together where a part of the grid is taken


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What a sweep took."""

    predicted: int
    invalid: int
    cpu_s: float  # of the processor
    job_s: float  # of these, to make jobs


def grid() -> Iterator[dict[str, object]]:
    """Yield the arguments of `flopcast.job` for every scenario."""
    for model, cluster, gpus, (tp, pp), (mbs, mode), gbs in product(
        MODELS, CLUSTERS, SIZES, LAYOUTS, CHOICES, BATCHES
    ):
        layout = f"dp={gpus // tp // pp} tp={tp} pp={pp}{' sp' * (tp > 1)}"
        plan = f"{layout} mbs={mbs} gbs={gbs} zero=1 recompute={mode}"
        yield {"model": model, "cluster": cluster, "gpus": gpus, "plan": plan}


def part(number: int) -> list[dict[str, object]]:
    """Return about so many scenarios, in runs of neighbours that are evenly spread."""
    scenarios = list(grid())
    runs = [scenarios[start : start + RUN] for start in range(0, len(scenarios), RUN)]
    step = max(len(scenarios) // max(number, RUN), 1)
    return list(chain.from_iterable(runs[::step]))[:number]


def swept(scenarios: Sequence[dict[str, object]]) -> Swept:
    """Predict scenarios one after another."""
    predictor, predicted, job_s = flopcast.Predictor(), 0, 0.0
    begin_s = time.process_time()
    for words in scenarios:
        start_s = time.process_time()
        try:
            job = flopcast.job(**words)
            job_s += time.process_time() - start_s
            report = predictor.predict(job)
        except flopcast.SpecError:
            continue
        if report.step_time_s > 0 and report.metrics.tokens_per_s > 0 and report.memory.verdict:
            predicted += 1
    cpu_s = time.process_time() - begin_s
    return Swept(predicted=predicted, invalid=len(scenarios) - predicted, cpu_s=cpu_s, job_s=job_s)


def main(arguments: Sequence[str]) -> int:
    """Print what a sweep takes."""
    scenarios = part(int(arguments[0])) if arguments else list(grid())
    taken = swept(scenarios)
    print(f"scenarios          {len(scenarios)}, of them {taken.invalid} invalid")
    print(f"CPU seconds  {taken.cpu_s:.2f}, of them {taken.job_s:.2f} to make jobs")
    print(f"rate               {len(scenarios) / taken.cpu_s:.1f} per processor second")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
