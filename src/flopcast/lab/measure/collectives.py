"""Collectives under torchrun on every tier that the ranks span, and their effect on a concurrent product.

Answers: which groups of ranks and which sizes are measured, and in which order?
Elsewhere: definitions of message sizes (operators/messages.py), the pack (sample_pack.py).

All ranks go through the same list together: the first rank decides whether there is time for the next
entry. The time of a repetition is that of the slowest rank of the group. Rank numbers run node by node.
"""

from collections.abc import Container, Iterator, Mapping
from statistics import median

from flopcast.errors import Problem, SpecError
from flopcast.lab.measure.collective_runs import COLLECTIVES, Entry, Peers, RankGroup, Ranks
from flopcast.lab.measure.device import Torch
from flopcast.lab.measure.sample_pack import OVERLAPPED, MessageSample
from flopcast.lab.measure.sampling_run import CANNOT, Unsupported, first_line
from flopcast.lab.measure.timing import AbstractBench, Run, mean_run_s

LEAST_BYTES, MOST_BYTES = 2**10, 2**30
SIZES = tuple(LEAST_BYTES * 2 ** (2 * i) for i in range(11))  # 1 KiB … 1 GiB, each four times the last
ORDER = (0, 5, 8, 10, 3, 7, 1, 9, 6, 4, 2)  # any first few span the range
OVERLAP_BYTES = 2**26
OVERLAP_SIDE = 4096  # of the square product that runs beside a collective
OVERLAP_S = 0.02  # of each of the two
MEMORY_FRACTION = 0.3
STOP, SKIP, MEASURE = 0, 1, 2


def ranks_of(environment: Mapping[str, str]) -> Ranks | None:
    """Return the ranks from the environment that torchrun sets; None for a process without peers.

    >>> ranks_of({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"})
    Ranks(rank=9, world=16, local_rank=1, local_world=8)
    >>> ranks_of({}) is None
    True
    """
    world = environment.get("WORLD_SIZE", "1")
    if world == "1":
        return None
    words = {name: environment.get(name, "") for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    faults = [name for name, word in (words | {"WORLD_SIZE": world}).items() if not word.isdecimal()]
    if faults:
        raise SpecError([_not_torchrun(name, environment.get(name)) for name in faults])
    return Ranks(
        rank=int(words["RANK"]),
        world=int(world),
        local_rank=int(words["LOCAL_RANK"]),
        local_world=int(words["LOCAL_WORLD_SIZE"]),
    )


def groups_of(world: int, local_world: int) -> tuple[RankGroup, ...]:
    """Return groups on every tier: 2, 4, 8 … ranks of the first node; then one rank, and all ranks, of
    each of 2, 4 … nodes.

    >>> [(g.inside, g.nodes) for g in groups_of(16, 8)]
    [(8, 1), (2, 1), (4, 1), (8, 2), (1, 2)]
    """
    nodes = world // local_world
    inside = [n for n in _doubling(local_world) if n > 1]
    across = [n for n in _doubling(nodes) if n > 1]
    wide = [(local_world, n) for n in across] + [(1, n) for n in across if local_world > 1]
    return tuple(
        RankGroup(
            inside=each,
            nodes=count,
            ranks=tuple(node * local_world + i for node in range(count) for i in range(each)),
        )
        for each, count in [(n, 1) for n in inside] + wide
    )


def entries(groups: tuple[RankGroup, ...], memory_bytes: float) -> tuple[Entry, ...]:
    """Return the measurements in order: first a few sizes of everything, then overlaps.

    Every size is measured over every group before the next size, so that even a short run covers the
    latency and bandwidth of each tier. Messages that would fill a device's memory are left out.

    Transfers between two ranks are measured on groups of two.
    """
    listed: list[Entry] = []
    for position, index in enumerate(ORDER):
        size = SIZES[index]
        for group in groups:
            for name in COLLECTIVES:
                pair_fits = name != "send_receive" or len(group.ranks) == 2
                if pair_fits and 2 * size <= MEMORY_FRACTION * memory_bytes:
                    listed.append(Entry(collective=name, message_bytes=size, group=group))
        if position == 3:
            listed += [
                Entry(collective=n, message_bytes=OVERLAP_BYTES, group=g, condition=OVERLAPPED)
                for g in groups
                for n in COLLECTIVES
                if n != "send_receive"
            ]
    return tuple(listed)


def connect(
    torch: Torch, device: str, ranks: Ranks, groups: tuple[RankGroup, ...], bench: AbstractBench
) -> Peers:
    """Join the peers. Every rank creates every group in the same order, as torch requires.

    NCCL carries the messages of GPUs, and gloo those of processors. Times of gloo show that the code runs
    but not the speed of a fabric.
    """
    torch.distributed.init_process_group("gloo" if device == "cpu" else "nccl")
    handles = {group.ranks: torch.distributed.new_group(list(group.ranks)) for group in groups}
    return Peers(torch=torch, device=device, ranks=ranks, handles=handles, bench=bench)


def measure_collectives(
    listed: tuple[Entry, ...],
    peers: Peers,
    name: str,
    repetitions: int,
    deadline_s: float,
    done: Container[str] = (),
) -> Iterator[MessageSample | Unsupported]:
    """Yield samples on the first rank. Other ranks participate and yield nothing.

    `deadline_s` refers to the clock of the first rank, and `done` (the keys in a pack that is continued)
    is also that of the first rank.
    """
    distributed = peers.torch.distributed
    for entry in listed:
        choice = _choice(entry, peers, deadline_s, done)
        if choice == STOP:
            break
        if choice == SKIP:
            continue
        measured: MessageSample | Unsupported | None = None
        if peers.ranks.rank in entry.group.ranks:
            measured = _attempt(entry, peers, name, repetitions)
        distributed.barrier()
        if measured is not None and peers.ranks.rank == 0:
            yield measured
    distributed.destroy_process_group()


def _choice(entry: Entry, peers: Peers, deadline_s: float, done: Container[str]) -> int:
    """Return the first rank's decision about an entry, broadcast to all."""
    choice = SKIP if entry.key in done else MEASURE
    if peers.bench.clock_s() >= deadline_s:
        choice = STOP
    flag = peers.torch.tensor([choice], device=peers.device)
    peers.torch.distributed.broadcast(flag, 0)
    return int(flag.item())


def _attempt(entry: Entry, peers: Peers, name: str, repetitions: int) -> MessageSample | Unsupported:
    """Return the result of one entry on a rank of its group. All ranks skip an unsupported entry."""
    try:
        run = COLLECTIVES[entry.collective](entry, peers)
        for _ in range(3):
            run()
        if entry.condition == OVERLAPPED:
            return _overlapped(entry, peers, name, run, repetitions)
        times = _slowest(_times(run, peers, repetitions), entry, peers)
    except CANNOT as error:
        return Unsupported(key=entry.key, why=first_line(error))
    return _sample(entry, name, times)


def _sample(
    entry: Entry, name: str, times: tuple[float, ...], products: tuple[float, float] | None = None
) -> MessageSample:
    """Return a row from seconds; `products` holds those of a product alone and with the collective."""
    alone_s, beside_s = products or (None, None)
    return MessageSample(
        device=name,
        collective=entry.collective,
        message_bytes=entry.message_bytes,
        inside=entry.group.inside,
        nodes=entry.group.nodes,
        condition=entry.condition,
        repetitions_us=tuple(seconds_s * 1e6 for seconds_s in times),
        gemm_alone_us=None if alone_s is None else alone_s * 1e6,
        gemm_overlapped_us=None if beside_s is None else beside_s * 1e6,
    )


def _times(run: Run, peers: Peers, repetitions: int) -> tuple[float, ...]:
    """Return the seconds of each repetition on this rank.

    An untimed collective precedes each timed one. It ends on all ranks at about the same moment, so the
    timed one also begins on all of them at about the same moment.
    """
    times = []
    for _ in range(repetitions):
        run()
        times.append(mean_run_s(run, peers.bench))
    return tuple(times)


def _slowest(times: tuple[float, ...], entry: Entry, peers: Peers) -> tuple[float, ...]:
    """Return the longest time in the group for each repetition."""
    torch = peers.torch
    all_times = torch.tensor(times, device=peers.device)
    operation = torch.distributed.ReduceOp.MAX
    torch.distributed.all_reduce(all_times, operation, group=peers.handles[entry.group.ranks])
    return tuple(float(value) for value in all_times.tolist())


def _overlapped(entry: Entry, peers: Peers, name: str, run: Run, repetitions: int) -> MessageSample:
    """Return times of collectives on a separate stream while products run. Alone, each of them takes
    about OVERLAP_S.

    When one of them ends first, the other runs alone for the rest, so both measured slow-downs are lower
    bounds.
    """
    torch, bench = peers.torch, peers.bench
    if peers.device == "cpu":
        raise NotImplementedError(f"the overlap of {name} needs the streams of a GPU")
    side = torch.randn(OVERLAP_SIDE, OVERLAP_SIDE, device=peers.device, dtype=torch.bfloat16)
    out = torch.empty_like(side)
    message_s = median(_slowest(_times(run, peers, 3), entry, peers))
    product_s = mean_run_s(lambda: torch.mm(side, side, out=out), bench, 20)
    messages, products = max(1, round(OVERLAP_S / message_s)), max(1, round(OVERLAP_S / product_s))
    stream, times, beside = torch.cuda.Stream(), [], []
    for _ in range(repetitions):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            begun = bench.mark()
            for _ in range(messages):
                run()
            ended = bench.mark()
        beside.append(mean_run_s(lambda: torch.mm(side, side, out=out), bench, products))
        bench.wait(ended)
        times.append(bench.between_s(begun, ended) / messages)
    slowest = _slowest(tuple(times), entry, peers)
    return _sample(entry, name, slowest, (product_s, median(beside)))


def _doubling(most: int) -> list[int]:
    """Return the largest number first, because it matters most, then powers of two below it.

    >>> _doubling(12), _doubling(1)
    ([12, 1, 2, 4, 8], [1])
    """
    powers = [2**i for i in range(most.bit_length()) if 2**i < most]
    return [most, *powers]


def _not_torchrun(name: str, value: str | None) -> Problem:
    """Return the error for an environment that torchrun has set only in part."""
    allowed = "a whole number, as torchrun sets it"
    fix = "start with torchrun --nproc-per-node GPUS -m flopcast measure --out PACK"
    return Problem(
        name, value, allowed, "WORLD_SIZE is set, which means that there are several processes", fix
    )
