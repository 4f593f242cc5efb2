"""The rates at which engines copy weights and caches to devices, fitted to measured throughput.

Answers: which fraction of a link's rate do copies of an engine reach in these runs, and do they overlap?
Elsewhere: the fields (spec/streaming.py, `Streaming`), the tables (offloads.py), scores (score.py).

A run is one static batch: one pass with prompts, followed by passes that decode. The fit tries every
combination of a grid and selects the one with the smallest mean error. Only fields that are marked as
fitted in the engine's sources are changed; without any run, they have the defaults of `Streaming`.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.lab.serving_runs.rows import ServingRun
from flopcast.library.curves import load_serving_book
from flopcast.records import Record, replace
from flopcast.serving.arrivals import requests_of
from flopcast.serving.instances import times_of
from flopcast.serving.pass_copies import PassCopies
from flopcast.serving.streamed_bytes import copies_of
from flopcast.spec.engine import Engine
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.streaming import DEVICE, Streaming
from flopcast.units import Number

Rates = Mapping[str, float]  # by field of Streaming; overlapped as 0 or 1
UNPACK_FRACTION = 0.8  # an estimate: a kernel that is bound by memory
UNFITTED: Rates = {
    "weight_fraction": Streaming.model_fields["weight_fraction"].default,
    "cache_fraction": Streaming.model_fields["cache_fraction"].default,
    "storage_fraction": Streaming.model_fields["storage_fraction"].default,
    "overlapped": Streaming.model_fields["overlapped"].default,
    "unpack_fraction": UNPACK_FRACTION,
}
GRID: Mapping[str, tuple[float, ...]] = {
    "weight_fraction": (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9, 1.0),
    "cache_fraction": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0),
    "unpack_fraction": (0.05, 0.1, 0.13, 0.16, 0.2, 0.3, 0.5, 0.8),
    "overlapped": (0.0, 1.0),
}


def fitted_fields(engine: Engine) -> tuple[str, ...]:
    """Return the fields of an engine's streaming that were fitted to runs, according to its sources."""
    covered = {
        word.strip() for source in engine.source if source.fitted_on for word in source.covers.split(",")
    }
    return tuple(name for name in UNFITTED if name in covered or "streaming" in covered)


def without_rates(job: ServingJob) -> ServingJob:
    """Return a job whose engine has no fitted copy rates."""
    return _with(job, UNFITTED)


def with_rates_of(job: ServingJob, others: Sequence[ServingRun]) -> ServingJob:
    """Return a job with the copy rates that fit other runs of its engine, or with the defaults."""
    fields = fitted_fields(job.engine)
    known = [_Batch.of(run, run.job) for run in others if run.job is not None and _same(run.job, job)]
    if not known or not fields:
        return without_rates(job)
    names = [name for name in GRID if name in fields]
    tried = [dict(zip(names, values, strict=True)) for values in product(*(GRID[name] for name in names))]
    return _with(job, min(tried, key=lambda rates: float(np.mean([one.error(rates) for one in known]))))


def _same(one: ServingJob, other: ServingJob) -> bool:
    """Return whether two jobs have the same engine and the same weights or caches outside the devices."""
    return one.engine.name == other.engine.name and one.plan.streams


class _Batch(Record, eq=False):
    """One static batch that was measured: its passes, their seconds without copies, and its copies."""

    tokens: Number  # that the batch generates
    tokens_per_s: Number  # as measured
    new: Counts
    cached: Counts
    alone_s: Floats
    copies: PassCopies  # at the rates of UNFITTED

    @classmethod
    def of(cls, run: ServingRun, job: ServingJob) -> "_Batch":
        """Return the batch of a run."""
        book = load_serving_book(job.cluster)
        requests = requests_of(job.traffic, None)
        batch = float(requests.size)
        prompt, output = int(requests.prompt_tokens[0]), int(requests.output_tokens[0])
        contexts = batch * (prompt + np.arange(1.0, output))
        first = np.array([batch * prompt])
        new = np.concatenate([first, np.full(output - 1, batch)])
        cached = np.concatenate([first, contexts])
        pairs = np.concatenate([first * (prompt + 1) / 2, contexts])
        places = dict.fromkeys(("weights_on", "kv_on", "activations_on"), DEVICE)
        without_copies = job.with_part("plan", **places, weights="bf16")
        kernels = times_of(without_copies, book, prompt + output)
        return cls(
            tokens=batch * output,
            tokens_per_s=run.measured[0].value,
            new=new,
            cached=cached,
            alone_s=np.asarray(kernels(new, np.full(output, batch), cached, pairs)),
            copies=copies_of(without_rates(job), book) or PassCopies(),
        )

    def error(self, rates: Rates) -> float:
        """Return the relative error of the throughput that these rates predict.

        Seconds of copies were computed with the default rates and are inversely proportional to each rate.
        """
        weights, caches, unpack = (
            UNFITTED[name] / rates.get(name, UNFITTED[name])
            for name in ("weight_fraction", "cache_fraction", "unpack_fraction")
        )
        copies = replace(
            self.copies,
            weights_s=self.copies.weights_s * weights,
            read_s=self.copies.read_s * caches,
            write_s=self.copies.write_s * caches,
            hidden_s=self.copies.hidden_s * caches,
            unpack_s=self.copies.unpack_s * unpack,
            overlapped=bool(rates.get("overlapped", self.copies.overlapped)),
        )
        passes_s = copies.pass_s(self.alone_s, self.alone_s, self.new, self.cached)
        return abs(self.tokens / float(passes_s.sum()) / self.tokens_per_s - 1)


def _with(job: ServingJob, rates: Rates) -> ServingJob:
    streaming = job.engine.streaming
    if streaming is None:
        return job
    found = {name: value for name, value in rates.items() if name in fitted_fields(job.engine)}
    changed = {name: bool(value) if name == "overlapped" else value for name, value in found.items()}
    if streaming.unpack_fraction is None:
        changed.pop("unpack_fraction", None)
    return job.with_part("engine", streaming=streaming.model_copy(update=changed))
