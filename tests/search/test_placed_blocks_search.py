"""Recompute and placements of single blocks against every choice of them, as AutoHete chooses them."""

from itertools import product

import numpy as np
import pytest
from all_cases import all_cases
from test_per_layer import small

from flopcast.errors import SpecError
from flopcast.jobs import job
from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.requests.job_request import JobRequest
from flopcast.requests.layout_jobs import resolve_blocks
from flopcast.search import per_layer
from flopcast.search.block_options import options_of
from flopcast.search.per_layer import _Search, best_per_layer
from flopcast.spec.plan import Plan
from flopcast.workload.layouts import layout_of

HOST = Plan(offload="optimizer:host").offload
OPTIONS = (
    {"zero": 1, "recompute": "none", "offload": ()},
    {"zero": 1, "recompute": "none", "offload": HOST},
    {"zero": 1, "recompute": "full", "offload": ()},
)


def with_host(asked, capacity_bytes):
    (group,) = asked.cluster.groups
    memory = group.node.memory.model_copy(update={"capacity_bytes": capacity_bytes})
    node = group.node.model_copy(update={"memory": memory})
    cluster = asked.cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})
    return asked.model_copy(update={"cluster": cluster})


def placed(plan, beside, **limits):
    """A small job whose software updates after the passes, or `beside` them."""
    asked = small(plan, **limits)
    changes = {"overlaps_updates": beside, "gradient_flush": "overlapped"} if beside else {}
    offload = asked.stack.offload.model_copy(update=changes)
    return asked.model_copy(update={"stack": asked.stack.model_copy(update={"offload": offload})})


@all_cases(
    "plan, beside, blocks, device_shares, host_shares",
    [
        ("dp=2 tp=2 pp=2 mbs=2 gbs=16 zero=1", False, 4, (0.1, 1.0), (0.4,)),
        ("dp=4 tp=2 mbs=2 gbs=16 zero=2", True, 3, (0.2, 0.6), ()),
    ],
)
def test_the_regret_against_every_choice_is_at_most_a_percent(
    plan, beside, blocks, device_shares, host_shares, monkeypatch
):
    """For some limits of the devices' memory, and of the host's beside one of these."""
    options = tuple({**each, "zero": 2 if beside else 1} for each in OPTIONS)
    monkeypatch.setattr(per_layer, "options_of", lambda *_, **__: iter(options))
    whole = placed(plan, beside, blocks=blocks)
    book, kept = load_book(whole.cluster), KeptResults(16384)
    monkeypatch.setattr(per_layer, "KeptResults", lambda _: kept)  # shared by all limits of memory
    search = _Search(whole, book, options, kept)
    plans = [search.mixed(whole.plan, choice) for choice in product(range(3), repeat=blocks)]
    plans += [layout_of(whole.plan, option) for option in options]
    reports = [predict(whole.model_copy(update={"plan": one}), book, kept) for one in dict.fromkeys(plans)]
    need = np.array([one.memory.high_bytes for one in reports])
    host = np.array([max((tier.high_bytes for tier in one.memory.tiers), default=0.0) for one in reports])
    step_s = np.array([one.clean_step_time_s for one in reports])
    gains = []

    limits = [(np.quantile(need, share), 1e12) for share in device_shares]
    limits += [(np.quantile(need, 0.4), np.quantile(host, share)) for share in host_shares]
    for device_bytes, host_limit_bytes in limits:
        asked = placed(plan, beside, blocks=blocks, memory_bytes=float(device_bytes))
        found = best_per_layer(with_host(asked, float(max(host_limit_bytes, 1.0))), book, placements=True)
        fits = (need <= device_bytes) & (host <= host_limit_bytes)
        assert found.best.step_time_s <= 1.01 * step_s[fits].min()
        again = predict(found.job, book)
        assert again.memory.verdict == "fits"
        assert again.clean_step_time_s == pytest.approx(found.best.step_time_s)
        gains.append(found.speedup_ratio)

    assert max(gains) > 1.02  # a mixture beats every plan whose blocks are alike


def test_blocks_may_recompute_and_place_every_kind_of_state_that_the_stack_places_on_the_host():
    asked = job(
        "llama-2-7b", cluster="dgx-a100:1", seq=4096, stack="deepspeed-zero", plan="dp=8 gbs=8 zero=3"
    )

    options = list(options_of(asked, asked.plan, placements=True))

    kinds = {one.kind for option in options for one in option["offload"]}
    assert kinds == {"optimizer", "parameters", "activations"}
    assert {one.tier for option in options for one in option["offload"]} == {"host"}
    assert {option["recompute"] for option in options} >= {"none", "full"}


def test_a_stack_without_placements_still_recomputes_some_blocks():
    asked = small("dp=8 mbs=1 gbs=64 zero=1")
    bare = asked.stack.offload.model_copy(update={"places": ()})
    asked = asked.model_copy(update={"stack": asked.stack.model_copy(update={"offload": bare})})

    assert {option["offload"] for option in options_of(asked, asked.plan, placements=True)} == {()}


def test_jobs_that_strategies_do_not_go_with_are_refused():
    shared = small("dp=2 tp=2 cp=2 mbs=2 gbs=64")
    with pytest.raises(SpecError, match="context_parallel above 1"):
        best_per_layer(shared, load_book(shared.cluster), placements=True)


def test_fields_that_a_plan_omits_are_chosen_for_a_search_of_blocks():
    """The usual choice for the first job has several chunks, and none fits the second without offload."""
    with_chunks = JobRequest(model="llama-3-70b", gpus=32)
    assert resolve_blocks(with_chunks, placements=False).plan.virtual_stages == 1
    large = JobRequest(model="llama-2-70b", gpus=8, seq=2048, plan="tp=8 zero=1", offload="auto")
    plan = resolve_blocks(large, placements=True).plan
    assert (plan.tensor_parallel, plan.zero) == (8, 1)
    assert plan.offload
