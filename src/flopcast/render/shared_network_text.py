"""The slowdown of jobs that share a network, as text and as JSON.

Elsewhere: the prediction itself (shared_network.py).
"""

from collections.abc import Sequence

from flopcast.render.plain_data import FORMAT_VERSION, fields_of
from flopcast.render.tables import aligned
from flopcast.render.terminal import answer, aside
from flopcast.shared_network import SharedJob
from flopcast.units import Number, nine_digits, show_seconds


def marked_text(shared: Sequence[SharedJob], names: Sequence[str], oversubscription_ratio: Number) -> str:
    """Return a table of the jobs, and a table of the slowdown of each job by each other job, with marks for
    a terminal.

    Parameters
    ----------
    shared : one entry for each job
    names : the names of the jobs, such as the paths of their files
    oversubscription_ratio : bandwidth of all devices over that of the uplinks that they share
    """
    jobs = [
        f"{place}  {name}: {each.alone.job.plan.short()} on {each.alone.job.cluster.num_devices} devices"
        for place, (name, each) in enumerate(zip(names, shared, strict=True), start=1)
    ]
    network = shared[0].alone.job.cluster.tiers[-1].name
    said = f"{network}, oversubscribed {oversubscription_ratio:g} to 1"
    rows = [["job", "alone", "with all", "slower by", "at worst", "sends"]]
    rows += [
        [
            str(place),
            show_seconds(each.alone.step_time_s),
            show_seconds(each.together.step_time_s),
            answer(_percent(each.slowdown_ratio - 1.0)),
            aside(_percent(each.always_s / each.alone.step_time_s - 1.0)),
            f"{each.busy_fraction:.0%} of the time",
        ]
        for place, each in enumerate(shared, start=1)
    ]
    return "\n".join([*jobs, f"network   {said}", "", *aligned(rows), "", *_who_slows_whom(shared)])


def _who_slows_whom(shared: Sequence[SharedJob]) -> list[str]:
    """Return the slowdown of each job beside each other job alone."""
    numbers = range(1, len(shared) + 1)
    rows = [["slowed by", *(f"job {place}" for place in numbers)]]
    for place, each in zip(numbers, shared, strict=True):
        cells = (
            "–" if other == place else _percent(ratio - 1.0)
            for other, ratio in zip(numbers, each.slowed_by, strict=True)
        )
        rows.append([f"job {place}", *cells])
    return aligned(rows)


def as_json(
    shared: Sequence[SharedJob], names: Sequence[str], oversubscription_ratio: Number
) -> dict[str, object]:
    """Return the step times of each job, alone and together with the other jobs, as plain data in
    seconds.
    """
    return {
        "format_version": FORMAT_VERSION,
        "oversubscription_ratio": oversubscription_ratio,
        "jobs": [
            {
                "name": name,
                "alone_s": nine_digits(each.alone.step_time_s),
                "together_s": nine_digits(each.together.step_time_s),
                **fields_of(each, "always_s", "slowdown_ratio", "busy_fraction", "slowed_by"),
            }
            for name, each in zip(names, shared, strict=True)
        ],
    }


def _percent(fraction: Number) -> str:
    """Return by how much a step is longer."""
    return f"{100.0 * fraction:.1f} %"
