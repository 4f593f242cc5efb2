"""A report of serving as text: first the answer, then latencies, rates, memory, time and uncertainty.

Answers: what does the terminal show for a serving job?
Elsewhere: the report as JSON (serving_json.py), reports of training (report_text.py).
"""

from flopcast.economics.step import ENERGY_INCLUDES
from flopcast.render.assumption_lines import assumption_lines
from flopcast.render.report_text import NO_PRICE
from flopcast.render.tables import aligned, bar, in_paragraphs, texts_of
from flopcast.render.terminal import answer
from flopcast.serving.memory import ServingMemory
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.serving.tier_memory import NAMES as NAMES_OF_MEMORIES
from flopcast.spec.deployment import Pool
from flopcast.spec.factor_kinds import in_words
from flopcast.spec.serving_job import ServingJob
from flopcast.units import show, show_memory, show_seconds, show_usd

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "end_to_end": "end to end", "inter_token": "between tokens"}
TEXTS: dict[str, dict[str, str]] = texts_of("serving")
LABELS, LIMITS = TEXTS["components"], TEXTS["limits"]
POOLS = "prefill", "decode"


def marked_text(report: ServingReport) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    job = report.job
    parts = (
        _answer(report),
        _latencies(report),
        _pools(report),
        _memory(report),
        _times(report),
        _certainty(report),
        assumption_lines(text for text in job.assumptions if text not in job.leading_assumptions),
    )
    return in_paragraphs(*parts)


def _answer(report: ServingReport) -> list[str]:
    job = report.job
    lines = [
        f"{job.model.name} on {job.cluster.name}: {job.machine}, {job.engine.label}",
        f"plan      {plan_text(job)}",
        *(f"assumed   {text}" for text in job.leading_assumptions),
        f"traffic   {job.traffic.text()}",
    ]
    for metric in ("ttft", "tpot"):
        mean = report.latencies[metric]["mean"]
        text = f"{NAMES[metric]:8}  {answer(show_seconds(mean.value))} on average   {_interval(mean)}"
        lines.append(text)
    rate = report.output_tokens_per_s
    of_one = f", {show(rate.value / job.devices, 'tokens/s')} per device" * (job.devices > 1)
    lines += [
        f"rate      {show(rate.value, 'tokens/s')} of output{of_one}",
        f"requests  {report.requests_per_s.value:.3g}/s,"
        f" {report.decoding * job.kinds[-1].passes_in_flight:.0f} decoding concurrently on each replica",
    ]
    if report.goodput_per_s is not None:
        lines.append(f"goodput   {report.goodput_per_s.value:.3g} requests/s meet {job.slo.text()}")
        lines += _limits(report)
    cost = report.usd_per_million_tokens
    priced = "" if cost is None else f"{answer(show_usd(cost.value))} for a million output tokens"
    lines.append(f"cost      {priced or NO_PRICE}")
    lines += _mixture(report)
    lines += _power(report)
    lines.append(f"bound by  {LIMITS[report.limited_by]}")
    if report.saturation_per_s is not None:
        grows = "the queue keeps growing, and the latencies depend on the length of the run"
        above = f"above {report.saturation_per_s:.3g} requests/s, {grows}"
        lines.append(f"warning   requests arrive faster than the engine can serve them: {above}")
    elif not report.stable_if_slower:
        slow = "if passes are as slow as the upper end of their 90 % interval"
        grows = "the engine cannot keep up, and the queue keeps growing"
        lines.append(f"warning   the engine is nearly saturated: {slow}, {grows}")
    return lines


def _limits(report: ServingReport) -> list[str]:
    """Return how likely it is that each limit of latency is met, and that all of them are."""
    texts = [
        f"{NAMES[one.metric]} p{one.percentile:g} {show_seconds(found.value)} {_interval(found)}, "
        f"at most {show_seconds(one.limit_s)} with a probability of {chance:.0%}"
        for one, found, chance in report.limits
    ]
    if len(texts) > 1:
        texts.append(f"all limits are met with a probability of {report.slo_chance:.0%}")
    return [f"{'' if place else 'SLO':10}{text}" for place, text in enumerate(texts)]


def _mixture(report: ServingReport) -> list[str]:
    """Return what a mixture of short and long outputs costs; empty without one."""
    if report.mixture is None:
        return []
    return [
        f"mixture   on average, a request costs {report.mixture.cost_ratio:.0%} of a request with"
        f" {max(report.mixture.tokens)} output tokens"
    ]


def _power(report: ServingReport) -> list[str]:
    """Return the power of a device and the energy of tokens; empty where they are unknown."""
    watts, joules, building = report.device_power_w, report.joules_per_token, report.kwh_per_million_tokens
    if watts is None or joules is None or building is None:
        return []
    return [
        f"power     {watts.value:.3g} W per device; the devices alone use {joules.value:.3g} J for an"
        f" output token (90 %: {joules.low:.3g} to {joules.high:.3g})",
        f"energy    {building.value:.3g} kWh for a million output tokens, {ENERGY_INCLUDES}",
    ]


def plan_text(job: ServingJob) -> str:
    """Return the plan of a job in the form of `--plan`: degrees, weights, and non-default settings.

    Degrees of pools are written as "prefill.tp=4". A draft adds its name and the numbers of drafted and
    accepted tokens. Values equal to the default of their field are left out.
    """
    plan, fields = job.plan, type(job.plan).model_fields
    words = [] if plan.pools else _degrees(plan, job.replicas)
    for name, pool in zip(POOLS, plan.pools, strict=False):
        words += [f"{name}.{word}" for word in _degrees(pool, max(pool.replicas, 1))]
    words.append(f"weights={plan.weights}")
    others = [name for name in fields if name not in {*Pool.model_fields, *POOLS, "weights", "drafting"}]
    values = [(name, getattr(plan, name)) for name in others]
    words += [f"{name}={value}" for name, value in values if value != fields[name].default]
    if plan.drafting is not None:
        drafting = plan.drafting
        name = drafting.drafter if drafting.model is None else drafting.model.name
        words += [f"draft={name}", f"drafted={drafting.drafted}", f"accepted={drafting.accepted:.4g}"]
        words += [f"draft_layers={drafting.layers_at_once}"] if drafting.layers_at_once > 1 else []
    return " ".join(words)


def _degrees(pool: Pool, replicas: int) -> list[str]:
    """Return the degrees of instances that differ from 1, their number, and limits that are stated."""
    degrees = {"dp": pool.data_parallel, "ep": pool.expert_parallel, "pp": pool.pipeline_parallel}
    words = [
        f"tp={pool.tensor_parallel}",
        *(f"{name}={size}" for name, size in degrees.items() if size > 1),
    ]
    words += [f"redundant_experts={pool.redundant_experts}"] if pool.redundant_experts else []
    words.append(f"replicas={replicas}")
    words += [f"max_sequences={pool.max_sequences}"] if pool.max_sequences else []
    return [*words, *([f"max_tokens={pool.max_tokens}"] if pool.max_tokens else [])]


def _pools(report: ServingReport) -> list[str]:
    """Return what the two pools do, and what passes between them; nothing without pools."""
    pools = report.pools
    if pools is None:
        return []
    rows = [["pools", "devices", "busy", "mean iteration", "bound by"]]
    for name, pool in (("prompts", pools.prefill), ("decoding", pools.decode)):
        busy, iteration = f"{pool.busy_share:.0%}", show_seconds(pool.iteration_s)
        rows.append([f"  {name}", str(pool.job.devices), busy, iteration, pool.limited_by])
    transfer = (
        f"a prompt sends {show_memory(pools.mean_bytes)} of keys and values over {pools.tier}; the"
        f" transfer takes {show_seconds(pools.mean_transfer_s)} on average"
    )
    return [*aligned(rows, "<>>><"), transfer]


def _interval(estimate: Estimate) -> str:
    return f"(90 %: {bounds(estimate)})"


def bounds(estimate: Estimate) -> str:
    """Return the ends of the 90 % interval of a latency."""
    low, high = (show_seconds(bound, like=estimate.value) for bound in (estimate.low, estimate.high))
    return f"{low} to {high}"


def _latencies(report: ServingReport) -> list[str]:
    """Return a table of latencies by percentile."""
    names = list(report.latencies["ttft"])
    rows = [["latency", *names, "  90 % interval of p99"]]
    for metric, found in report.latencies.items():
        values = (show_seconds(found[name].value) for name in names)
        rows.append([f"  {NAMES[metric]}", *values, f"  {bounds(found['p99'])}"])
    return aligned(rows, "<" + ">" * len(names) + "<")


def _memory(report: ServingReport) -> list[str]:
    """Return the memory of one device, and how many tokens its cache holds."""
    memory = report.memory
    caches = (
        f"the KV cache of a replica holds {memory.cache_tokens:,} tokens;"
        f" {report.summary.mean_kv_share:.0%} of it is in use on average"
    )
    pipelined = report.job.kinds[-1].plan.pipeline_parallel > 1
    of = "one decode device" if report.pools else "one device"
    of += f" of pipeline stage {memory.stage + 1}" if pipelined else ""
    found = f"{report.summary.adapter_hit_share:.0%} of requests find their adapter loaded"
    slots = [f"{report.job.kinds[-1].adapter_slots} slots of adapters: {found}"]
    return [
        *memory_lines(memory, of),
        caches,
        *hits_and_preemptions(report),
        *(slots if memory.adapter_bytes else []),
    ]


def hits_and_preemptions(report: ServingReport) -> list[str]:
    """Return how many tokens the prefix cache provides and how many requests lose their place, if any."""
    hits, preempted = report.summary.hit_share, report.summary.preempted_share
    lines = [f"{hits:.1%} of the prompt tokens are found in the prefix cache"] if hits else []
    if preempted:
        lines.append(f"{preempted:.1%} of the requests are preempted, because the KV cache is full")
    return lines


def memory_lines(memory: ServingMemory, of: str = "one device") -> list[str]:
    """Return the content of the memory of a device."""
    rows = [[f"  {name}", show_memory(max(size_bytes, 0.0))] for name, size_bytes in memory.parts().items()]
    lines = [f"memory of {of}: {show_memory(memory.capacity_bytes)}", *aligned(rows, "<>")]
    for tier in memory.tiers:
        parts = tier.parts(max(memory.cache_tokens, 0)).items()
        held = [[f"  {name}", show_memory(max(size_bytes, 0.0))] for name, size_bytes in parts]
        verdict = "fits" if tier.room_bytes >= 0 else "does not fit"
        head = f"{NAMES_OF_MEMORIES[tier.name]} of a node: {show_memory(tier.capacity_bytes)}, {verdict}"
        lines += [head, *aligned(held, "<>")]
    return lines


def _times(report: ServingReport) -> list[str]:
    """Return where the time of an iteration goes, the largest part first."""
    rows = []
    for name, share in sorted(report.shares.items(), key=lambda pair: -pair[1]):
        if share >= 0.0005:
            seconds = show_seconds(share * report.iteration_s)
            rows.append([f"  {LABELS.get(name, name)}", seconds, f"{share:.1%}", bar(share)])
    which = "an average decode iteration" if report.pools else "an average iteration"
    head = f"where the time goes in {which} ({show_seconds(report.iteration_s)})"
    return [head, *aligned(rows, "<>><")]


def _certainty(report: ServingReport) -> list[str]:
    """Return the factors that make the interval, the largest first, and the curves used."""
    rows = [[f"  {in_words(name)}", f"± {spread:.1%}"] for name, _, spread in report.spreads[:5]]
    borrowed = sorted({each.curve.name for each in report.used if not each.calibrated})
    head = (
        "what the uncertainty depends on (the 90 % interval of the mean iteration that each factor causes)"
    )
    lines = [head, *aligned(rows, "<>")]
    if borrowed:
        lines.append(f"not measured on this device, estimated from its data sheet: {', '.join(borrowed)}")
    return lines
