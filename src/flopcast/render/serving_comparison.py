"""Two predictions of serving side by side, as text and as JSON.

Elsewhere: ratios and their intervals (serving/versus.py), steps of training (comparison.py).
"""

from collections.abc import Callable, Mapping

from flopcast.render import serving_json
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.plain_data import FORMAT_VERSION
from flopcast.render.serving_json import estimate_as_json
from flopcast.render.serving_text import LIMITS, plan_text
from flopcast.render.tables import aligned, in_paragraphs
from flopcast.render.terminal import answer
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.serving.versus import QUANTITIES, ServingComparison
from flopcast.units import Number, show, show_memory, show_seconds, show_usd

SUBJECTS = {
    "ttft": "the mean TTFT",
    "tpot": "the mean TPOT",
    "output_tokens_per_s_per_device": "the output of a device",
    "usd_per_million_output_tokens": "the cost of output tokens",
    "joules_per_output_token": "the device energy of output tokens",
}
SHOWN: Mapping[str, tuple[str, Callable[[Number], str]]] = {
    "ttft": ("mean TTFT", show_seconds),
    "tpot": ("mean TPOT", show_seconds),
    "end_to_end": ("mean end to end", show_seconds),
    "output_tokens_per_s_per_device": ("output per device", lambda value: show(value, "tokens/s")),
    "usd_per_million_output_tokens": ("cost of 1M tokens", show_usd),
    "joules_per_output_token": ("device energy of a token", lambda value: show(value, "J")),
}


def marked_text(compared: ServingComparison, names: tuple[str, str]) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    both = (compared.first, compared.second)
    who = [
        f"{label}  {name}: {report.job.engine.name} {plan_text(report.job)}"
        for label, name, report in zip("AB", names, both, strict=True)
    ]
    ways = zip(*(_column(report) for report in both), strict=True)
    rows = [["", "A", "B"]]
    rows += [
        [f"  {name}", one, "same" if one == other and name in DESCRIBED else other]
        for (name, one), (_, other) in ways
    ]
    lines = [*who, "", *aligned(rows), "", *(answer(text) for text in verdicts(compared))]
    lines += [
        f"warning   {label} does not keep up: it serves {report.saturation_per_s:.3g} requests/s"
        for label, report in zip("AB", both, strict=True)
        if report.saturation_per_s is not None
    ]
    texts = [text for report in both for text in report.job.assumptions]
    return in_paragraphs(lines, assumption_lines(texts))


DESCRIBED = ("model", "cluster", "devices", "traffic")


def _column(report: ServingReport) -> list[tuple[str, str]]:
    """Return names and values of one job."""
    job = report.job
    found = [
        ("model", job.model.name),
        ("cluster", job.cluster.name),
        ("devices", str(job.devices)),
        ("traffic", job.traffic.text()),
    ]
    for name, quantity in QUANTITIES.items():
        value, (label, shown) = quantity(report), SHOWN[name]
        found.append((label, "unknown" if value is None else shown(value.value)))
    for metric in ("ttft", "tpot"):
        p99 = report.latencies[metric]["p99"].value
        found.append((f"{metric.upper()} p99", show_seconds(p99)))
    chance = report.slo_chance
    memory = report.memory
    return [
        *found,
        ("objectives", "no limits" if chance is None else f"met with a probability of {chance:.0%}"),
        ("KV cache", f"{memory.cache_tokens:,} tokens, {show_memory(memory.cache_bytes)}"),
        ("limit", LIMITS[report.limited_by].partition(" (")[0].partition(":")[0]),
    ]


def verdicts(compared: ServingComparison) -> list[str]:
    """Return a sentence for each number, which states how B differs from A, and whether this is certain."""
    return [
        _verdict(SUBJECTS[name], ratio, compared.settled(name))
        for name, ratio in compared.ratios.items()
        if name in SUBJECTS
    ]


def _verdict(subject: str, ratio: Estimate, settled: bool) -> str:
    """Return how a number of B differs from that of A."""
    change = ratio.value - 1
    if abs(change) < 5e-4:
        return f"{subject} of B equals that of A"
    bounds = f"90 %: {ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}"
    word = "lower" if change < 0 else "higher"
    doubt = "" if settled else "; the order is uncertain"
    return f"{subject} of B is {abs(change):.1%} {word} than that of A ({bounds}){doubt}"


def as_json(compared: ServingComparison) -> dict[str, object]:
    """Return both reports, and the ratios with their intervals."""
    return {
        "format_version": FORMAT_VERSION,
        "first": serving_json.as_json(compared.first),
        "second": serving_json.as_json(compared.second),
        "ratios": {
            f"{name}_ratio": {**(estimate_as_json(ratio) or {}), "settled": compared.settled(name)}
            for name, ratio in compared.ratios.items()
        },
    }
