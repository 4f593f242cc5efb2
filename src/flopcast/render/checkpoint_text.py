"""The checkpoints of a job as text and as JSON: size, time, interval, and the time to read them.

Answers: what do a report and `flopcast checkpoint` print about checkpoints?
Elsewhere: the numbers (economics/checkpoint_cost.py).
"""

from flopcast.economics.checkpoint_cost import CheckpointCost
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.plain_data import FORMAT_VERSION, fields_of, plain
from flopcast.render.tables import aligned, in_paragraphs
from flopcast.render.trained_text import subject_lines
from flopcast.report.checkpoint_report import CheckpointReport, Resharded
from flopcast.units import counted, nine_digits, show_memory, show_seconds

NO_PROGRESS = "none: the devices fail again before the job has restarted"


def checkpoint_lines(cost: CheckpointCost) -> list[str]:
    """Return lines about size, waiting time, background write, interval and restore of checkpoints."""
    saved, times = cost.saved, cost.times
    most, steps = show_memory(float(saved.written_bytes.max())), counted(round(cost.interval_steps), "step")
    stated = cost.checkpoint.every_steps is not None or cost.checkpoint.every_s is not None
    return [
        f"checkpoints: {cost.checkpoint.text()}",
        f"  size      {show_memory(saved.total_bytes)}{_files(cost)},"
        f" {most} from the rank that writes the most",
        f"  waiting   {show_seconds(times.blocked_s)} for each checkpoint: {_parts(cost)}",
        f"  writing   {_writing(cost)}",
        f"  interval  {show_seconds(cost.interval_s)} of training, {steps}"
        f"{'' if stated else ', the interval with the least lost time'}; saving takes"
        f" {cost.saved_share:.2%} of the"
        " time",
        f"  restore   {show_seconds(times.restore_s)} to read it on {_nodes(saved.num_nodes)}",
    ]


def _files(cost: CheckpointCost) -> str:
    """Return in how many files a checkpoint is; nothing if it stays in the memory of the hosts."""
    number = cost.saved.num_files
    files = "1 file" if number == 1 else f"{number:,} files"
    return f" in {files}" if cost.times.write_s > 0 else ""


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number:,} nodes"


def _parts(cost: CheckpointCost) -> str:
    """Return what training waits for, in words."""
    times, how = cost.times, cost.checkpoint.how
    handed = f"{show_seconds(times.handover_s)} to hand over the state"
    copy = f"{handed}, {show_seconds(times.copy_s)} of copying to the host"
    files = f"{show_seconds(times.files_s)} to open the files"
    if how.waits_for_write and times.write_s > 0:
        rest = f"{show_seconds(times.serialise_s)} to serialise, {show_seconds(times.write_s)} to write"
        return f"{copy}, {files}, {rest}"
    if not how.hides_copy:
        return f"{copy}, {files}" if times.files_s else copy
    late_s = times.blocked_s - times.handover_s - times.files_s
    waits = [handed, *([files] if times.files_s else ())]
    if late_s > 0:
        waits.append(f"{show_seconds(late_s)} of copying")
    hidden = f"{show_seconds(times.copy_s - late_s)} of copying overlaps with forward and backward"
    return f"{', '.join(waits)}; {hidden}"


def _writing(cost: CheckpointCost) -> str:
    times, to = cost.times, cost.checkpoint.to
    place = {"nvme": "NVMe"}.get(to, f"the {to.replace('_', ' ')}")
    if times.write_s == 0:
        return "nothing: the copy stays in host memory, and is lost if the node fails"
    if cost.checkpoint.how.waits_for_write:
        return f"{show_seconds(times.write_s)} to {place}, while training waits"
    slower = f"{times.background_fraction:.0%} slower during this time"
    return f"{show_seconds(times.write_s)} to {place}; training runs {slower}"


def checkpoint_as_json(cost: CheckpointCost) -> dict[str, object]:
    """Return the checkpoints as JSON data; keys may be added, never renamed.

    Sizes are bytes and times are seconds. `blocked_s` is the time that training waits for one checkpoint,
    and `background_s` the time of its write in the background. `time_share` is the share of training time
    that saving takes at the interval `interval_s`.
    """
    saved, times = cost.saved, cost.times
    parts = ("copy_s", "serialise_s", "files_s", "handover_s", "write_s", "blocked_s", "background_s")
    return {
        "checkpoint": cost.checkpoint.text(),
        "size_bytes": nine_digits(saved.total_bytes),
        "largest_rank_bytes": nine_digits(float(saved.written_bytes.max())),
        "largest_node_bytes": nine_digits(float(saved.of_nodes(saved.written_bytes).max())),
        "files": saved.num_files,
        **fields_of(times, *parts),
        "background_slowdown_fraction": nine_digits(times.background_fraction),
        **fields_of(times, "lost_s", "restore_s"),
        **fields_of(cost, "interval_s", "interval_steps"),
        "time_share": nine_digits(cost.saved_share),
    }


def marked_text(found: CheckpointReport) -> str:
    """Return the printed report: the job, its checkpoints, every method, and loading by another plan."""
    lines = [
        *subject_lines(found.job),
        f"step      {show_seconds(found.cost.step_s)}",
        "",
        *checkpoint_lines(found.cost),
        f"  goodput   {_share(found.goodput)}",
        "",
        *_methods(found),
    ]
    if found.resharded is not None:
        lines += ["", *_loading(found.resharded)]
    return in_paragraphs(lines, assumption_lines(found.assumptions))


def _share(useful_ratio: float | None) -> str:
    return NO_PROGRESS if useful_ratio is None else f"{useful_ratio:.2%} of the time is useful"


def _methods(found: CheckpointReport) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("method", "waiting", "writing", "lost per checkpoint", "interval", "goodput")
    ]
    for name, cost in found.methods.items():
        goodput = found.goodput_of(name)
        seconds = (cost.times.blocked_s, cost.times.write_s, cost.times.lost_s, cost.interval_s)
        shown = "none" if goodput is None else f"{goodput:.2%}"
        rows.append((name, *map(show_seconds, seconds), shown))
    head = "all methods, each at the interval with the least lost time"
    return [head, *(f"  {line}" for line in aligned(rows, "<>>>>>"))]


def _loading(loaded: Resharded) -> list[str]:
    """Return what the ranks of another plan read."""
    found, cluster = loaded.reads, loaded.job.cluster
    most = found.rank_bytes.argmax()
    return [
        f"loaded by {loaded.job.plan.short()}, {cluster.machine}",
        f"  reads     {show_memory(float(found.rank_bytes.sum()))} in all,"
        f" {show_memory(float(found.rank_bytes[most]))} by the rank that reads the most, from"
        f" {found.rank_parts[most]:.0f} {'rank' if found.rank_parts[most] == 1 else 'ranks'} that wrote"
        f" them",
        f"  takes     {show_seconds(loaded.restore_s)}",
    ]


def report_as_json(found: CheckpointReport) -> dict[str, object]:
    """Return the report as JSON data; keys may be added, never renamed.

    Returns
    -------
    dict
        The checkpoint, `goodput`, `methods` by name, and `loading`, which is null without another plan. A
        goodput is null if the devices fail faster than the job restarts.
    """
    loaded = found.resharded
    return {
        "format_version": FORMAT_VERSION,
        "plan": found.job.plan.short(),
        "step_time_s": nine_digits(found.cost.step_s),
        **checkpoint_as_json(found.cost),
        "goodput": plain(found.goodput),
        "methods": {
            name: checkpoint_as_json(cost) | {"goodput": plain(found.goodput_of(name))}
            for name, cost in found.methods.items()
        },
        "loading": None
        if loaded is None
        else {
            "plan": loaded.job.plan.short(),
            "read_bytes": nine_digits(float(loaded.reads.rank_bytes.sum())),
            "rank_read_bytes": [nine_digits(float(each)) for each in loaded.reads.rank_bytes],
            "rank_parts": [int(each) for each in loaded.reads.rank_parts],
            "restore_s": nine_digits(loaded.restore_s),
        },
        "assumptions": list(found.assumptions),
    }
