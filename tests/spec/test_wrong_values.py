"""Values that no field takes, as somebody in a hurry writes them: one fault each, with place and reason."""

import copy

from all_cases import all_cases
from spec_cases import faults, mixture, model

PLAIN = {
    "model": model(),
    "cluster": "dgx-b200:1",
    "stack": "megatron-core",
    "batch": {"sequence_length": 1024},
    "plan": {"data_parallel": 8, "global_batch": 8, "precision": "bf16"},
}
LATENT = {
    "heads": 16,
    "q_lora_rank": 192,
    "kv_lora_rank": 128,
    "qk_nope_head_size": 64,
    "qk_rope_head_size": 32,
    "value_head_size": 64,
}
TIERS = [
    {"name": "inside", "devices": 8, "bytes_per_s": "900 GB/s", "latency_s": "5 us"},
    {"name": "beyond", "devices": 0, "bytes_per_s": "50 GB/s", "latency_s": "8 us"},
]
AT_LEAST = "of at least"


def blocks(part, **fields):
    """A model with fields of one part of its blocks changed."""
    whole = mixture() if part == "experts" else model()
    key = "feed_forward" if part == "experts" else "mixer"
    block = whole["blocks"][0]
    before = LATENT if part == "latent" else block[key]
    return {"model": whole | {"blocks": [block | {key: before | fields}]}}


def adapters(**fields):
    """A model with adapters."""
    return {"model": model() | {"adapters": {"rank": 8, "targets": ["q", "v"]} | fields}}


def stack(**fields):
    """A stack of its own."""
    return {"stack": {"base": "megatron-core"} | fields}


def tier(**fields):
    """A cluster whose outer tier is changed."""
    return {"cluster": {"base": "dgx-b200:1", "tiers": [TIERS[0], TIERS[1] | fields]}}


WRONG = {  # the end of the field, words of the answer, the parts of a job that hold the value
    "zero as a stage's name": ("zero", "0, 1, 2 or 3", {"plan": {"zero": "stage3"}}),
    "adapters without a rank": ("adapters.rank", AT_LEAST, adapters(rank=0)),
    "a rank in words": ("adapters.rank", "whole number", adapters(rank="eight")),
    "an adapter beside the router": ("adapters.targets[1]", "q", adapters(targets=["q", "router"])),
    "the same linear twice": ("adapters.targets", "each name only once", adapters(targets=["q", "q"])),
    "fused and parts": ("adapters.targets", "either qkv, or some of", adapters(targets=["qkv", "k"])),
    "a dropout above one": ("adapters.dropout", "1", adapters(dropout=1.5)),
    "weights in 3 bits": ("adapters.base_dtype", "nf4", adapters(base_dtype="nf3")),
    "an alpha, which changes no time": ("adapters.alpha", "rank", adapters(alpha=16)),
    "a window of no token": ("mixer.window", AT_LEAST, blocks("attention", window=0)),
    "a window in words": ("mixer.window", "whole number", blocks("attention", window="half")),
    "a window of a third kind": (
        "mixer.window_kind",
        "sliding or chunked",
        blocks("attention", window=128, window_kind="dilated"),
    ),
    "no head": ("mixer.heads", AT_LEAST, blocks("attention", heads=0)),
    "heads of no element": ("mixer.head_size", AT_LEAST, blocks("attention", head_size=0)),
    "more rotary than head": ("mixer.rotary_fraction", "1", blocks("attention", rotary_fraction=2)),
    "scaled positions that turn nothing": (
        "mixer.rotary_fraction",
        "a number above 0, if rotary_scaled",
        blocks("attention", rotary_fraction=0, rotary_scaled=True),
    ),
    "a clamp of no gate": (
        "feed_forward.activation",
        "one of swiglu, geglu",
        blocks("experts", activation="gelu", gate_clamp=True),
    ),
    "a library's share of a collective that it has not": (
        "tiers[1].library_fraction",
        "only the keys dispatch, hybrid_dispatch, combine, hybrid_combine",
        tier(library_fraction={"dispach": 0.8}),
    ),
    "a latent of nothing": ("mixer.kv_lora_rank", AT_LEAST, blocks("latent", kv_lora_rank=0)),
    "queries out of nothing": ("mixer.q_lora_rank", AT_LEAST, blocks("latent", q_lora_rank=0)),
    "values of no width": ("mixer.value_head_size", AT_LEAST, blocks("latent", value_head_size=0)),
    "no rotated part": ("mixer.qk_rope_head_size", AT_LEAST, blocks("latent", qk_rope_head_size=-1)),
    "more choices than experts": ("feed_forward.top_k", "top_k", blocks("experts", top_k=9)),
    "no expert": ("feed_forward.num_experts", AT_LEAST, blocks("experts", num_experts=0)),
    "a capacity below nothing": (
        "feed_forward.capacity_factor",
        AT_LEAST,
        blocks("experts", capacity_factor=-1),
    ),
    "less than even": (
        "feed_forward.load_imbalance_ratio",
        AT_LEAST,
        blocks("experts", load_imbalance_ratio=0.9),
    ),
    "groups of nothing": ("feed_forward.expert_groups", AT_LEAST, blocks("experts", expert_groups=0)),
    "less than no prediction": ("mtp", AT_LEAST, {"model": model() | {"mtp": -1}}),
    "half a prediction": ("mtp", "whole number", {"model": model() | {"mtp": 0.5}}),
    "a pattern without its entry": ("model", "pattern", {"model": model() | {"pattern": [0, 1]}}),
    "a pattern in letters": ("pattern[0]", "whole number", {"model": model() | {"pattern": ["local"]}}),
    "a ZeRO stage of software that nobody built": (
        "sharding.zero_stages[0]",
        "0, 1, 2 or 3",
        stack(sharding={"zero_stages": [4]}),
    ),
    "gathers once a week": ("sharding.gathers", "every_pass", stack(sharding={"gathers": "weekly"})),
    "reductions never": ("sharding.reduces", "last_micro_batch", stack(sharding={"reduces": "never"})),
    "three units ahead": ("sharding.prefetch_units", "0 or 1", stack(sharding={"prefetch_units": 3})),
    "ends as leaves": ("sharding.ends", "root", stack(sharding={"ends": "leaves"})),
    "more than all kernels": ("contention.kernel_share", "1", stack(contention={"kernel_share": 1.5})),
    "a moment in 2 bits": ("optimizer.exp_avg_dtype", "bf16", stack(optimizer={"exp_avg_dtype": "int2"})),
    "a master of more than fp32": (
        "optimizer.main_parameter_bytes",
        "4",
        stack(optimizer={"main_parameter_bytes": "8 B"}),
    ),
    "wide blocks below nothing": (
        "narrow.wide_first_blocks",
        AT_LEAST,
        stack(narrow={"wide_first_blocks": -1}),
    ),
    "overlap by magic": ("tensor_overlap", "chunks", stack(tensor_overlap="all")),
    "a field that is not there": ("sharding.bucket", "zero_stages", stack(sharding={"bucket": 1})),
    "uplinks wider than links": (
        "tiers[1].oversubscription_ratio",
        AT_LEAST,
        tier(oversubscription_ratio=0.5),
    ),
    "a bandwidth without unit": ("tiers[1].bytes_per_s", "GB/s", tier(bytes_per_s=50)),
    "a link of no width": ("tiers[1].bytes_per_s", "a quantity above 0 B/s", tier(bytes_per_s="0 GB/s")),
    "a link that goes back in time": ("tiers[1].latency_s", AT_LEAST, tier(latency_s="-1 us")),
    "more than attained": ("tiers[1].attained_fraction", "1", tier(attained_fraction=1.2)),
}


def whole(changes):
    """The plain job with these parts; a plan is changed, not replaced."""
    parts = copy.deepcopy(PLAIN)
    plan = parts["plan"] | changes.get("plan", {})
    return parts | changes | {"plan": plan}


@all_cases("name", WRONG)
def test_a_wrong_value_is_one_fault_with_its_field(name):
    field, _, changes = WRONG[name]

    told = faults(whole(changes))

    assert [problem.field for problem in told if not problem.field.endswith(field)] == []
    assert len(told) == 1


@all_cases("name", WRONG)
def test_a_wrong_value_is_told_with_what_would_be_right(name):
    _, allowed, changes = WRONG[name]

    (problem,) = faults(whole(changes))[:1]

    assert allowed in f"{problem.allowed} {problem.because} {problem.fix}"
    assert problem.fix != ""


def test_the_plain_job_of_these_cases_is_right():
    assert faults(PLAIN) == ()


def test_faults_of_all_nouns_are_told_at_once():
    changes = adapters(rank=0) | stack(sharding={"ends": "leaves"}) | {"plan": {"zero": 7}}

    fields = {problem.field.rpartition(".")[2] for problem in faults(whole(changes))}

    assert fields == {"rank", "ends", "zero"}
