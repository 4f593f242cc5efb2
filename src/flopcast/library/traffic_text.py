"""Traffic and objectives from one line of text: "rate=4/s prompt=2000 output=300", "ttft_p99=2s".

Answers: which traffic, or which limits of latency, does a text mean?
Elsewhere: the fields and their values (spec/traffic.py), words and values (library/edits.py).
"""

import difflib
import re

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.nearest_names import alternatives
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document, resolve
from flopcast.fixes import Fix, in_place
from flopcast.library.edits import words_of
from flopcast.meant_quantities import meant_quantity
from flopcast.quantities import joined_units, parse_quantity
from flopcast.spec.traffic import Slo
from flopcast.units import units_of

_METRICS = {"ttft": "ttft", "tpot": "tpot", "end_to_end": "end_to_end", "e2e": "end_to_end"}
_OTHER_METRICS = {"latency": "end_to_end", "itl": "tpot", "tbt": "tpot", "inter": "tpot"}
_WORD = re.compile(rf"({'|'.join(_METRICS)})(?:_p(\d+(?:\.\d+)?))?=(.+)")


def traffic_words(text: str, where: str = "--traffic") -> dict[str, object]:
    """Return the fields of a text by their long names.

    Raises
    ------
    SpecError
        A name occurs twice or has no value, or the text contains no name and value.
    """
    if "=" not in text:
        allowed = "NAME=VALUE for each setting, with spaces between them"
        because = "the value contains no setting of this form"
        fix = f'write --traffic "{_meant_traffic(text)}"'
        raise spec_error("traffic", text, allowed, because, fix, where=where)
    return dict(words_of("traffic", text, where))


def _meant_traffic(text: str) -> str:
    """Return the settings that a text without equals signs means.

    >>> _meant_traffic("4 rps, 2k in, 300 out"), _meant_traffic("log.jsonl")
    ('rate=4/s prompt=2k output=300', 'trace=log.jsonl')
    """
    if re.search(r"\.(?:jsonl?|csv|parquet)(?:\.gz)?$", text):
        return f"trace={text}"
    number = re.search(r"\d+(\.\d+)?", text)
    prompt, output = (
        re.search(rf"(\d+k?)\s*(?:tokens?\s*)?{word}", text) for word in ("(?:in|prompt)", "(?:out|answer)")
    )
    words = f"prompt={prompt[1] if prompt else 2000} output={output[1] if output else 300}"
    return f"rate={number[0] if number else 4}/s {words}"


def _meant_limit(text: str) -> str:
    """Return the fix for a limit without an equals sign.

    >>> _meant_limit("p95 tpot below 20 ms")
    'write tpot_p95=20ms'
    """
    if re.fullmatch(r"(?:[a-z0-9_.]+\s*[<:]=?\s*[\d.]+(?:[mun]?s|min|h)\s*)+", text):
        words = re.findall(r"([a-z0-9]+?)(_p[\d.]+)?\s*[<:]=?\s*(\S+)", text)
        return "write " + " ".join(f"{metric}{part or '_p99'}={time}" for metric, part, time in words)
    metric = next((each for each in _METRICS if each in text.lower()), "ttft")
    percentile, time = re.search(r"\bp\d\d", text), re.search(r"(\d[\d.]*)\s*(ms|us|s|min)\b", text)
    limit = f"{time[1]}{time[2]}" if time else "2s"
    return f"write {metric}_{percentile[0] if percentile else 'p99'}={limit}"


def _meant(word: str) -> str:
    """Return the limit that a word in another notation probably means, as the fix of its fault.

    >>> _meant("tpot<50ms"), _meant("p50_tpot_ms=50")
    ('write tpot_p99=50ms in place of tpot<50ms', 'write tpot_p50=50ms in place of p50_tpot_ms=50')
    """
    name, _, time = re.sub("[<:]=?", "=", word.lower(), count=1).partition("=")
    near = [metric for part, metric in (_METRICS | _OTHER_METRICS).items() if part in name]
    near = near or difflib.get_close_matches(name.partition("_")[0], _METRICS, n=1)
    number = r"\d\d?(?:\.\d+)?(?!\d)"
    percentile = re.search(rf"(?<![\d.]){number}", name.replace("e2e", ""))
    percentile = percentile or re.search(rf"(?<=@p){number}", time)
    usual = "50" if "median" in name else "99"
    unit = re.search(r"(?<![a-z])[mu]?s$", name)
    limit = re.match(r"[\d.]+ *(?:[mu]?s|min)\b", time)
    limit_text = limit[0] if limit else f"{time}{unit[0]}" if time and unit else time or "2s"
    right = f"{near[0] if near else 'ttft'}_p{percentile[0] if percentile else usual}={limit_text}"
    return in_place(right, word)


def _with_time(word: str, metric: str, text: str) -> str:
    """Return a limit with the unit that a number without one probably has, or else with a usual time."""
    per_token = metric == "tpot"
    time = "50ms" if per_token else "2s"
    if re.fullmatch(r"\d+(\.\d+)?", text):
        is_short = float(text) >= (1 if per_token else 100)
        time = f"{text}{'ms' if is_short else 's'}" if float(text) else time
    elif right := meant_quantity(text, ("s", "min")):
        time = right.replace(" ", "")
    right = f"{word.partition('=')[0]}={time}"
    return Fix(f"write {right}", ({"": right},), word)


def slo_of(text: str, where: str = "--slo") -> Slo:
    """Return the objectives that a text states. Each word has a metric, a percentile and a time.

    Metrics are ttft, tpot and end_to_end (e2e for short). The default percentile is the 99th.

    Raises
    ------
    SpecError
        The text contains a word that is not a limit, a metric that occurs twice, or a time without a unit.
        The error lists all of them.

    Examples
    --------
    >>> slo_of("ttft_p99=2s tpot_p95=50ms e2e=1min").text()
    'ttft_p99=2s tpot_p95=50ms end_to_end_p99=60s'
    """
    data: dict[str, object] = {}
    problems = []
    text = joined_units(text.replace(",", " "))
    if text.split() and "=" not in text:
        allowed, because = "METRIC_pPERCENTILE=TIME for each limit", "the value has no equals sign"
        raise spec_error("slo", text, allowed, because, _meant_limit(text), where=where)
    for word in text.split():
        match = _WORD.fullmatch(word)
        metric = _METRICS[match[1]] if match else ""
        if match is None or f"{metric}_s" in data:
            allowed = f"METRIC_pPERCENTILE=TIME, where METRIC is {alternatives(list(_METRICS))}"
            because, fix = "the limit does not have this form", _meant(word)
            if match:
                allowed, fix = "one limit for each metric", f"remove {word}"
                because = f"the value already sets a limit for {metric}"
            problems.append(Problem("slo", word, allowed, because, fix, where=where))
            continue
        try:
            parse_quantity(match[3], units_of("limit_s"))
        except ValueError:
            because, fix = "a limit of a latency is a time", _with_time(word, metric, match[3])
            allowed = "a time with its unit, such as 2s or 50ms"
            problems.append(Problem("slo", word, allowed, because, fix, where=where))
            continue
        data[f"{metric}_s"] = match[3]
        if match[2] and not 0 < float(match[2]) < 100:
            allowed = "a percentile above 0 and below 100"
            because = f"a percentile is above 0 and below 100, and {match[2]} is outside of this range"
            digits = match[2].replace(".", "").replace("100", "999")
            meant = f"{digits[:2]}.{digits[2:]}".rstrip(".") if digits > "50" else "99"  # p999 is p99.9
            fix = Fix(f"write {metric}_p{meant}={match[3]}", ({"": f"{metric}_p{meant}={match[3]}"},), word)
            problems.append(Problem("slo", word, allowed, because, fix, where=where))
        elif match[2]:
            data[f"{metric}_percentile"] = resolve(match[2])
    if not text.split():
        allowed, because = "at least one limit", "a service-level objective needs a limit"
        problems.append(Problem("slo", text, allowed, because, "write ttft_p99=2s", where=where))
    try:
        slo = build(Slo, Document(where, data, {}), data, ("slo",))
    except SpecError as error:
        raise SpecError([*problems, *error.problems]) from None
    if problems:
        raise SpecError(problems)
    return slo
