"""`flopcast measure`: benchmarks this machine and writes a sample pack and a site file.

Answers: which device is measured for how long, and which results are kept after an interrupt?
Elsewhere: what is measured (lab/measure/), the files and the sensors (lab/samples).
"""

import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import click

import flopcast
from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.measured_results import HOSTS, catalogue_name, reference_s, show_memories, write_site
from flopcast.cli.options import FILE, INPUT, OUTPUT
from flopcast.errors import Problem, SpecError
from flopcast.lab.measure.collective_runs import Ranks
from flopcast.lab.measure.collectives import connect, entries, groups_of, measure_collectives, ranks_of
from flopcast.lab.measure.device import (
    Identity,
    Place,
    Torch,
    cache_bytes,
    identity,
    libraries,
    load_torch,
    open_bench,
)
from flopcast.lab.measure.kernels import make
from flopcast.lab.measure.sample_pack import Manifest
from flopcast.lab.measure.sampling_plan import QUICK, TINY, Effort, Speed, plan
from flopcast.lab.measure.sampling_run import BenchmarkDevice, Unsupported, heater, measure
from flopcast.lab.measure.site import DEVICES
from flopcast.lab.measure.tier_run import (
    QUICK_TIERS,
    TINY_TIERS,
    TierEffort,
    measure_memories,
    planned_memories,
)
from flopcast.lab.samples.packs import AnySample, PackWriter, open_pack
from flopcast.lab.samples.sensors import driver_facts, sensors
from flopcast.lab.samples.storage import measure_storage
from flopcast.library import catalog
from flopcast.records import Record
from flopcast.units import show_seconds

option = DocumentedOptions(__name__)

USUAL_HOST = "epyc-7763"  # the reference, whose speed is 1
USUAL_DEVICE = "a100-sxm4-80gb"  # a plan assumes its data sheet if the device is not known
PROCESSOR = Speed(
    peak_flop_per_s={"fp32": 5e10, "bf16": 1e10},  # an estimate, for the seconds of a plan only
    memory_bytes_per_s=5e9,
    memory_bytes=4e9,
    tiny=True,
)
SAY_EVERY_S = 2.0
AHEAD = 3.0  # plan this many times the budget: estimates may be too long, and the deadline ends the run
Minutes = float


class MeasureOptions(Record):
    """The settings of a run; `catalogue` is the device's name, or "" to recognise it by torch's name."""

    device: str
    budget_s: float
    quick: bool
    seed: int
    catalogue: str
    folder: Path | None = None

    @property
    def effort(self) -> Effort:
        """Return the number of repetitions.

        On a CPU, it is only large enough to show that the code works.
        """
        if self.device == "cpu":
            return TINY
        return QUICK if self.quick else Effort()

    @property
    def tier_effort(self) -> TierEffort:
        """Return the numbers of bytes to copy, update and store, which are small on a CPU."""
        if self.device == "cpu":
            return TINY_TIERS
        return QUICK_TIERS if self.quick else TierEffort()


def _seconds(_: click.Context, __: click.Parameter, value: Minutes | None) -> float | None:
    return None if value is None else value * 60.0


@click.command("measure")
@option("-o", "--out", type=FILE)
@option("--minutes", "budget_s", type=click.FloatRange(0, 10000, min_open=True), callback=_seconds)
@option("--quick", is_flag=True)
@option("--site", type=OUTPUT)
@option("--path", "folder", type=click.Path(path_type=Path))
@option("--as", "catalogue", default="")
@option("--reference", type=INPUT)
@click.option("--host", help=f"Name of the reference host in the catalogue. Default: {USUAL_HOST}.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@option("--seed", type=click.IntRange(0, 1000))
@option("--plan-only", is_flag=True)
def command(
    out: Path | None,
    budget_s: float | None,
    quick: bool,
    site: Path | None,
    folder: Path | None,
    catalogue: str,
    reference: Path | None,
    host: str | None,
    device: str,
    seed: int | None,
    plan_only: bool,
) -> None:
    """Benchmark the kernels and the host of a GPU, or the collectives of several GPUs.

    flopcast also measures copies between the GPU and its host, optimizer updates on the host and, with
    --path, a drive or file system. It prints the measured rates as YAML for the `cluster` of a job file. If
    triton, flash-attn or Transformer Engine are installed, flopcast also benchmarks their kernels. To
    resume an interrupted measurement, run the same command again. If you start the command with torchrun,
    it measures the collectives on every network, and how much they slow down a concurrent GEMM.

    \b
    flopcast measure --out pack --minutes 8
    flopcast measure --out quick --quick --site here.yaml --path /scratch
    torchrun --nproc-per-node 8 -m flopcast measure --out fabric
    """
    if budget_s is None:
        budget_s = 60.0 if quick else 480.0
    chosen = MeasureOptions(
        device=device, budget_s=budget_s, quick=quick, seed=seed or 0, catalogue=catalogue, folder=folder
    )
    if plan_only:
        _show(chosen)
        return
    ranks = ranks_of(os.environ)
    problems = [
        *_places(out, folder),
        *_unread(ranks is not None, catalogue, seed, site, folder, reference, host),
    ]
    if problems or out is None:
        raise SpecError(problems)
    launch_s = None if reference is None else reference_s(reference)
    speed_ratio = catalog.host(host or USUAL_HOST).speed_ratio
    torch = load_torch(device)
    if ranks is not None:
        _measure_fabric(torch, chosen, out, ranks)
        return
    who = identity(torch, device)
    named = catalogue_name(catalogue, who) if site is not None else ""
    _measure_device(torch, chosen, who, out)
    show_memories(out, catalogue, who, folder, on_gpu=device != "cpu")
    if site is not None:
        write_site(out, site, named, launch_s, speed_ratio)


def _places(out: Path | None, folder: Path | None) -> list[Problem]:
    """Return the faults of the folders that a run writes to."""
    problems = []
    if out is None:
        because = "measurements are saved in this folder, so that you can interrupt and continue them"
        fix = "add --out FOLDER, or add --plan-only to list what would be measured"
        allowed = "a folder to write the measurements to"
        problems.append(Problem("--out", None, allowed, because, fix, fault="is missing"))
    if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
        because = "flopcast writes a test file to this folder, reads it and deletes it"
        allowed = "a folder in which you may write files"
        problems.append(Problem("--path", str(folder), allowed, because, "name another folder"))
    return problems


def _show(chosen: MeasureOptions) -> None:
    """Print one line per measurement, and the sum of their times."""
    total_s = 0.0
    for kind, needed_s in planned_memories(chosen.device != "cpu", chosen.folder is not None):
        total_s += needed_s
        click.echo(f"{needed_s:7.2f} s  memory {kind}")
    left_s = max(0.0, chosen.budget_s - total_s)
    for item in plan(left_s, _speed(chosen, None), chosen.effort, chosen.seed):
        shape = item.shape
        total_s += item.needed_s
        sizes = " ".join(f"{name}={value}" for name, value in shape.sizes)
        words = " ".join(word for word in (shape.layout, *shape.flags) if word)
        label = f"{item.condition:6} {shape.kernel:26} {shape.dtype:4}"
        click.echo(f"{item.needed_s:7.2f} s  {label} {sizes} {words}".rstrip())
    click.echo(f"about {total_s:7.1f} s in total, estimated from data sheets", err=True)


def _speed(chosen: MeasureOptions, who: Identity | None) -> Speed:
    """Return the speed that a plan assumes, from the data sheet of the device or of a common one.

    Without torch (`who` is None), no optional library is assumed, so that the plan lists less than a run
    measures.
    """
    if chosen.device == "cpu":
        return PROCESSOR
    name = chosen.catalogue or (DEVICES.get(who.name, "") if who is not None else "") or USUAL_DEVICE
    device = catalog.device(name)
    return Speed(
        peak_flop_per_s={"fp32": device.peak("fp32")} | dict(device.peak_flop_per_s),
        memory_bytes_per_s=device.memory_bytes_per_s,
        memory_bytes=(who.memory_bytes if who is not None else None) or device.memory_bytes,
        libraries=libraries(chosen.device) if who is not None else frozenset({"cuda"}),
    )


def _measure_device(torch: Torch, chosen: MeasureOptions, who: Identity, out: Path) -> None:
    """Measure the kernels of one device until the time is over or the user interrupts the run."""
    manifest = _manifest(chosen, who)
    writer = open_pack(out, manifest)
    speed = _speed(chosen, who)
    planned = plan(AHEAD * chosen.budget_s, speed, chosen.effort, chosen.seed, writer.done)
    place = Place(torch=torch, device=chosen.device)
    bench = open_bench(torch, who, chosen.device, time.perf_counter, time.sleep)
    deadline_s = time.perf_counter() + chosen.budget_s
    with sensors(who.uuid) as found:
        device = BenchmarkDevice(
            name=who.name,
            bench=bench,
            make=lambda shape: make(shape, place),
            release=(lambda: None) if chosen.device == "cpu" else torch.cuda.empty_cache,
            sense=found.read,
            cache_bytes=cache_bytes(who),
            heater=heater(speed),
        )
        outside = measure_memories(place, bench, who.name, chosen.tier_effort, writer.done)
        kernels = measure(planned, device, chosen.effort, deadline_s)
        _keep(chain(outside, _storage(chosen, who, writer), kernels), writer, deadline_s)


def _storage(
    chosen: MeasureOptions, who: Identity, writer: PackWriter
) -> Iterable[AnySample | Unsupported]:
    if chosen.folder is None:
        return ()
    folder = chosen.folder.resolve()
    return measure_storage(folder, who.name, chosen.tier_effort, time.perf_counter, writer.done)


def _measure_fabric(torch: Torch, chosen: MeasureOptions, out: Path, ranks: Ranks) -> None:
    if chosen.device == "cuda":
        torch.cuda.set_device(ranks.local_rank)
    who = identity(torch, chosen.device)
    bench = open_bench(torch, who, chosen.device, time.perf_counter, time.sleep)
    writer = open_pack(out, _manifest(chosen, who)) if ranks.rank == 0 else None
    groups = groups_of(ranks.world, ranks.local_world)
    peers = connect(torch, chosen.device, ranks, groups, bench)
    listed = entries(groups, who.memory_bytes or PROCESSOR.memory_bytes)
    deadline_s = time.perf_counter() + chosen.budget_s
    done = writer.done if writer is not None else frozenset()
    messages = measure_collectives(listed, peers, who.name, chosen.effort.repetitions, deadline_s, done)
    if writer is None:
        for _ in messages:
            pass  # every rank takes part; only rank 0 has samples
    else:
        _keep(messages, writer, deadline_s)


def _keep(measured: Iterable[AnySample | Unsupported], writer: PackWriter, deadline_s: float) -> None:
    """Write the measurements and print the progress; always close the pack."""
    unsupported: dict[str, str] = {}
    count, shown_s = 0, time.perf_counter()
    try:
        for one in measured:
            if isinstance(one, Unsupported):
                unsupported[one.key] = one.why
            else:
                writer.add(one)
                count += 1
            if time.perf_counter() - shown_s > SAY_EVERY_S:
                shown_s = time.perf_counter()
                left = show_seconds(max(0.0, deadline_s - shown_s))
                click.echo(f"{count} measured, at most {left} left: {one.key}", err=True)
    finally:
        writer.close(unsupported)
        click.echo(f"{writer.folder}: {count} rows added to {len(writer.done)} existing rows", err=True)
        if unsupported:
            click.echo(f"{len(unsupported)} not supported on this machine, see manifest.json", err=True)


def _manifest(chosen: MeasureOptions, who: Identity) -> Manifest:
    """Return the manifest: device, versions, driver, options and start; omit what torch does not report."""
    known = {name: value for name, value in asdict(who).items() if value not in (None, "")}
    facts = {name: value for name, value in known.items() if name not in ("name", "uuid")}
    return Manifest(
        device=who.name,
        tool_version=flopcast.__version__,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        facts=facts | driver_facts(who.uuid) | {"libraries": sorted(libraries(chosen.device))},
        options={"seconds": chosen.budget_s, "quick": chosen.quick, **asdict(chosen.effort)},
        seed=chosen.seed,
    )


def _unread(
    peers: bool,
    catalogue: str,
    seed: int | None,
    site: Path | None,
    folder: Path | None,
    reference: Path | None,
    host: str | None,
) -> list[Problem]:
    """Return the faults of options that this run would ignore, each with a fix.

    Parameters
    ----------
    peers : whether torchrun started this process
    """
    alone, apart = "no value under torchrun", "remove it under torchrun"
    kernels = "under torchrun, only collectives are measured, but a site file needs kernels"
    one = "run flopcast measure --quick --site FILE on one device, without torchrun"
    factor = "only the host factor of a site file needs this option"
    options = (
        ("--site", site, peers, alone, kernels, one),
        ("--path", folder, peers, alone, "under torchrun, only collectives are measured", apart),
        ("--as", catalogue or None, peers, alone, "collectives do not depend on the device", apart),
        ("--seed", seed, peers, alone, "collectives have the same message sizes in every run", apart),
        ("--reference", reference, site is None, "only together with --site", factor, "add --site FILE"),
        ("--host", host, reference is None, "only with --reference", HOSTS, "add --reference PACK"),
    )
    return [
        Problem(option, str(value), allowed, because, fix)
        for option, value, idle, allowed, because, fix in options
        if value is not None and idle
    ]
