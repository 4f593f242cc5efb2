"""A report of serving as JSON data.

Elsewhere: the report as text (serving_text.py), reports of training (report_json.py).
"""

from dataclasses import asdict

from flopcast.render.plain_data import FORMAT_VERSION, unrounded
from flopcast.serving.memory import ServingMemory
from flopcast.serving.serving_report import Estimate, ServingReport

RATES = ("output_tokens_per_s", "requests_per_s", "goodput_per_s")


def as_json(report: ServingReport) -> dict[str, object]:
    """Return plain data. Estimates have a value and the ends of the 90 % interval."""
    memory = report.memory
    return {
        "format_version": FORMAT_VERSION,
        "serving_job": _job(report),
        **unrounded(report.job, "devices", "replicas"),
        "latencies_s": {
            metric: {name: estimate_as_json(value) for name, value in found.items()}
            for metric, found in report.latencies.items()
        },
        **{name: estimate_as_json(rate) for name, rate in unrounded(report, *RATES).items()},
        **limits_as_json(report),
        "usd_per_million_output_tokens": estimate_as_json(report.usd_per_million_tokens),
        "device_power_w": estimate_as_json(report.device_power_w),
        "joules_per_output_token": estimate_as_json(report.joules_per_token),
        "kwh_per_million_output_tokens": estimate_as_json(report.kwh_per_million_tokens),
        "saturated": report.saturation_per_s is not None,
        "stable_if_slower": report.stable_if_slower,
        "saturation_requests_per_s": report.saturation_per_s,
        **unrounded(report, "limited_by", "iteration_s"),
        "decoding_sequences": report.decoding,
        **_shares(report),
        "memory": {
            **unrounded(memory, "capacity_bytes", "weight_bytes", "activation_bytes", "reserved_bytes"),
            **unrounded(memory, "adapter_bytes", "cache_bytes", "cache_tokens"),
            "pipeline_stage": memory.stage + 1,
            "tiers": tiers_as_json(memory),
        },
        "pools": _pools(report),
        "output_mixture": None if report.mixture is None else asdict(report.mixture),
        "factors": [
            {"name": name, "log_sigma_factor": factor.log_sigma_factor, "share": report.factor_shares[name]}
            for name, factor in report.factors.items()
            if name in report.factor_shares
        ],
        "evidence": [
            {
                "curve": each.curve.name,
                "owner": each.curve.owner,
                "source": each.curve.evidence.source,
                **unrounded(each, "calibrated", "extrapolated"),
            }
            for each in report.used
        ],
        "assumptions": list(report.job.assumptions),
    }


def limits_as_json(report: ServingReport) -> dict[str, object]:
    """Return whether the predicted latencies meet their limits, and with which probabilities."""
    return {
        "meets_slo": report.meets_slo,
        "slo_probability": report.slo_chance,
        "limits": [
            {
                **unrounded(one, "metric", "percentile", "limit_s"),
                "reached_s": estimate_as_json(found),
                "probability": chance,
            }
            for one, found, chance in report.limits
        ],
    }


def _shares(report: ServingReport) -> dict[str, object]:
    """Return fractions of the cache, of tokens and requests, and of the time of an iteration."""
    summary = report.summary
    return {
        "cache_share": summary.mean_kv_share,
        "peak_cache_share": summary.peak_kv_share,
        "prefix_hit_share": summary.hit_share,
        "preempted_share": summary.preempted_share,
        "adapter_hit_share": summary.adapter_hit_share,
        "time_shares": dict(report.shares),
    }


def tiers_as_json(memory: ServingMemory) -> list[dict[str, object]]:
    """Return the memories outside the devices that a deployment fills, each of one node."""
    return [
        {
            "name": tier.name,
            "fits": tier.room_bytes >= 0,
            **unrounded(tier, "capacity_bytes", "weight_bytes"),
            "hidden_state_bytes": tier.activation_bytes,
            **unrounded(tier, "token_bytes", "cache_tokens"),
        }
        for tier in memory.tiers
    ]


def _job(report: ServingReport) -> dict[str, object]:
    """Return the job, with the names of its model, cluster, engine and draft."""
    job, drafting = report.job, report.job.plan.drafting
    named = {name: getattr(job, name).name for name in ("model", "cluster", "engine")}
    found = job.model_dump(mode="json", exclude=set(named)) | named
    if drafting is not None and drafting.model is not None:
        found["plan"]["drafting"]["model"] = drafting.model.name
    return found


def _pools(report: ServingReport) -> dict[str, object] | None:
    """Return what is known of the pools for prompts and for decoding; None without pools."""
    pools = report.pools
    if pools is None:
        return None
    found: dict[str, object] = {
        name: {
            **unrounded(pool.job, "devices", "replicas"),
            **unrounded(pool, "busy_share", "iteration_s"),
            "time_shares": dict(pool.shares),
            "limited_by": pool.limited_by,
            **unrounded(pool.memory, "cache_tokens", "weight_bytes"),
        }
        for name, pool in (("prefill", pools.prefill), ("decode", pools.decode))
    }
    return found | {
        "transfer": {"link": pools.tier, "mean_bytes": pools.mean_bytes, "mean_s": pools.mean_transfer_s}
    }


def estimate_as_json(value: Estimate | None) -> dict[str, float] | None:
    """Return a value with the ends of its interval."""
    return None if value is None else unrounded(value, "value", "low", "high")
