"""Published checkpoints, and the constants of saving that are fitted to them.

Answers: which checkpoints does a file contain, and how fast is the software that wrote them?
Elsewhere: the meaning of the constants and their priors (cost/tier_constants.py), the time of a checkpoint
(economics/checkpoints.py), the file (catalog/constants/checkpoints.json).

DataStates-LLM (arXiv:2406.10707) saved five models with four methods on Polaris, after every step. Each
constant is a geometric mean over the models. The time for which training waited is the size divided by
the published throughput. Its sigma states how much another model would differ. Asynchronous checkpoints
of PyTorch give the share of the training speed that their writer costs. This is a single run, so its
sigma is that of the method.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, variance
from typing import Any

from flopcast.cost.constants import Constant, Fitted
from flopcast.cost.tier_constants import (
    ALLOCATED_COPIES,
    CHUNKED_COPIES,
    INTERFERENCE,
    LOG_SIGMAS,
    OPENED_FILES,
    SERIALISING,
)
from flopcast.economics.checkpoints import (
    FILE_S,
    INTERFERENCE_FRACTION,
    UNPINNED_BYTES_PER_S,
    SaveRates,
    files_time_s,
    slowest_of,
)
from flopcast.lab.offload_runs.fit import rounded_constant
from flopcast.lab.run_tables import RunBlocks
from flopcast.library.constants import shipped_levels
from flopcast.records import Record, replace
from flopcast.spec.checkpoints import METHODS

DATASTATES, DCP = "datastates_llm_polaris", "pytorch_dcp_async_1856_h200"  # entries of files
SOURCES = {DATASTATES: "DataStates-LLM", DCP: "PyTorch DCP on H200"}
SYNCHRONOUS, ASYNCHRONOUS, CHUNKED, LAZY, _ = METHODS
NODE_BYTES_PER_S = 9.7e9  # at which TorchSnapshot saves the three smaller models
OTHER_LAYERS = 3  # of which DeepSpeed writes files besides those of blocks: embedding, norm and head


class SavedModel(Record):
    """A model that four methods saved.

    Attributes
    ----------
    waits_s : seconds for which training waited with each method, in the order of METHODS
    device_bytes_per_s : the rate of the link from a device to pinned memory
    """

    blocks: int
    nodes: int
    node_devices: int
    total_bytes: float
    waits_s: tuple[float, ...]
    device_bytes_per_s: float

    @property
    def rank_bytes(self) -> float:
        """Return the bytes that each rank writes."""
        return self.total_bytes / (self.nodes * self.node_devices)

    @property
    def num_files(self) -> int:
        """Return the number of files: one per layer and tensor-parallel rank, and one per rank's states."""
        return (self.blocks + OTHER_LAYERS + self.nodes) * self.node_devices

    def waited_s(self, method: str) -> float:
        """Return the seconds for which training waited with a method."""
        return self.waits_s[list(METHODS).index(method)]


class SavingRuns(Record):
    """The checkpoints of some files.

    `lost_fractions` holds the shares of the training speed that writers in Python cost.
    """

    models: tuple[SavedModel, ...] = ()
    lost_fractions: tuple[float, ...] = ()


def read_saving_runs(paths: Sequence[Path]) -> SavingRuns:
    """Return the checkpoints of some files."""
    entries = [entry for path in paths for entry in CHECKPOINTS.read(path)]
    return SavingRuns(
        models=tuple(
            model for entry in entries if entry["id"] == DATASTATES for model in _saved_models(entry)
        ),
        lost_fractions=tuple(_lost_fraction(entry) for entry in entries if entry["id"] == DCP),
    )


def fit_saving(runs: SavingRuns) -> Fitted:
    """Return the constants fitted to the checkpoints."""
    of_methods = fitted_ratios(runs.models) if runs.models else {}
    found = [_constant(name, ratios, DATASTATES) for name, ratios in of_methods.items()]
    if runs.lost_fractions:
        lost = [fraction / INTERFERENCE_FRACTION for fraction in runs.lost_fractions]
        found.append(_constant(INTERFERENCE, lost, DCP))
    return Fitted(constants=tuple(found), noise_log_sigmas={})


def fitted_ratios(models: Sequence[SavedModel]) -> dict[str, list[float]]:
    """Return the ratio of every model for each constant of the methods.

    With each method, training waits for the handover. Lazy copies are hidden, so training then waits only
    for files. Synchronous saving also copies to pinned memory and writes. The slowest node determines the
    handover, the files and the copies.
    """
    rates = SaveRates.of(shipped_levels())
    slowest = [slowest_of(model.nodes, rates.node_log_sigma_factor) for model in models]
    files = [
        (model.waited_s(LAZY) / slow - rates.handover_s) / model.num_files / FILE_S
        for model, slow in zip(models, slowest, strict=True)
    ]
    found = replace(rates, file_s=FILE_S * math.exp(mean(map(math.log, files))))

    def copied(method: str, other_s: Callable[[SavedModel], float]) -> list[float]:
        return [
            ((model.waited_s(method) - other_s(model)) / slow - rates.handover_s)
            * UNPINNED_BYTES_PER_S
            / model.rank_bytes
            for model, slow in zip(models, slowest, strict=True)
        ]

    def opened_s(model: SavedModel) -> float:
        return files_time_s(model.num_files, model.nodes, found)

    def opened_copied_and_written_s(model: SavedModel) -> float:
        pinned_s = model.rank_bytes / (rates.pinned_fraction * model.device_bytes_per_s)
        return opened_s(model) + pinned_s + model.node_devices * model.rank_bytes / NODE_BYTES_PER_S

    return {
        OPENED_FILES: files,
        ALLOCATED_COPIES: copied(ASYNCHRONOUS, lambda _: 0.0),
        CHUNKED_COPIES: copied(CHUNKED, opened_s),
        SERIALISING: copied(SYNCHRONOUS, opened_copied_and_written_s),
    }


def _constant(name: str, ratios: Sequence[float], entry: str) -> Constant:
    """Return the geometric mean of ratios.

    Its sigma states how much another run would differ: it combines the deviation between runs and the
    uncertainty of their mean, whose prior is that of the constant.
    """
    logs = [math.log(ratio) for ratio in ratios]
    sigma = METHODS[ASYNCHRONOUS].log_sigma_factor
    if len(logs) > 1:
        of_mean = 1.0 / (LOG_SIGMAS[name] ** -2 + len(logs) / variance(logs))
        sigma = math.sqrt(variance(logs) + of_mean)
    return rounded_constant(name, math.exp(mean(logs)), sigma, len(ratios), (SOURCES[entry],), {})


def _entries(data: object) -> list[dict[str, Any]]:
    """Return the entries of a file that describe checkpoints."""
    listed = data.get("headlines") if isinstance(data, dict) else data
    entries = listed if isinstance(listed, list) else ()
    return [entry for entry in entries if isinstance(entry, dict) and entry.get("id") in SOURCES]


def _saved_models(entry: dict[str, Any]) -> Iterator[SavedModel]:
    rates = {row[0]: row[1:] for row in entry["checkpoint_throughput_GBps"]["rows"]}
    for row in entry["rows"]:
        values = dict(zip(entry["columns"], row, strict=True))
        yield SavedModel(
            blocks=values["layers"],
            nodes=values["nodes"],
            node_devices=entry["hardware"]["gpus_per_node"],
            total_bytes=values["ckpt_GB"] * 1e9,
            waits_s=tuple(values["ckpt_GB"] / rate for rate in rates[values["model_b"]]),
            device_bytes_per_s=entry["hardware"]["d2h_pinned_GBps_per_gpu"] * 1e9,
        )


def _lost_fraction(entry: dict[str, Any]) -> float:
    measured = entry["measured"]
    return 1.0 - float(measured["tokens_per_s_during_after"] / measured["tokens_per_s_full"])


CHECKPOINTS = RunBlocks(blocks_of=_entries, runs_of=iter)
"""Files whose entries describe checkpoints. Each entry is read without changes."""
