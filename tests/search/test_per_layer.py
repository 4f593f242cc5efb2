"""Strategies of single blocks against every choice of them, on models small enough to try all."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.jobs import job
from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.render.layouts import per_layer_json, per_layer_text
from flopcast.search import per_layer
from flopcast.search.per_layer import _Search, best_per_layer
from flopcast.search.stage_strategies import best_of_stage
from flopcast.spec.plan import Plan
from flopcast.workload.layouts import layout_of

OPTIONS = (
    {"tensor_parallel": 2, "zero": 1, "recompute": "none"},
    {"tensor_parallel": 2, "zero": 1, "recompute": "full"},
    {"tensor_parallel": 4, "zero": 3, "recompute": "none"},
)


def small(plan, blocks=4, memory_bytes=None):
    """A job of a few blocks of two widths on devices of this memory."""
    found = job(model="llama-2-7b", cluster="dgx-a100:1", seq=4096, stack="megatron-core", plan=plan)
    (block,) = found.model.blocks
    wide = block.feed_forward.model_copy(update={"ffn_hidden": 2 * block.feed_forward.ffn_hidden})
    kinds = (
        block.model_copy(update={"count": blocks // 2}),
        block.model_copy(update={"count": blocks - blocks // 2, "feed_forward": wide}),
    )
    found = found.model_copy(update={"model": found.model.model_copy(update={"blocks": kinds})})
    if memory_bytes is None:
        return found
    (group,) = found.cluster.groups
    device = group.node.device.model_copy(update={"memory_bytes": memory_bytes})
    node = group.node.model_copy(update={"device": device})
    cluster = found.cluster.model_copy(update={"groups": (group.model_copy(update={"node": node}),)})
    return found.model_copy(update={"cluster": cluster})


@pytest.mark.parametrize(
    ("plan", "blocks"), [("dp=4 tp=2 mbs=4 gbs=64 zero=1", 3), ("dp=2 tp=2 pp=2 mbs=4 gbs=64 zero=1", 4)]
)
def test_the_regret_against_every_choice_is_at_most_a_percent(plan, blocks, monkeypatch):
    monkeypatch.setattr(per_layer, "options_of", lambda *_, **__: iter(OPTIONS))
    whole = small(plan, blocks)
    book, kept = load_book(whole.cluster), KeptResults(16384)
    monkeypatch.setattr(per_layer, "KeptResults", lambda _: kept)  # shared by all limits of memory
    search = _Search(whole, book, OPTIONS, kept)
    plans = [search.mixed(whole.plan, choice) for choice in product(range(3), repeat=blocks)]
    plans += [layout_of(whole.plan, option) for option in OPTIONS]
    reports = [predict(whole.model_copy(update={"plan": one}), book, kept) for one in dict.fromkeys(plans)]
    need = np.array([one.memory.high_bytes for one in reports])
    step_s = np.array([one.clean_step_time_s for one in reports])
    alike = [place for place, one in enumerate(reports) if not one.job.plan.layers]
    gains = []

    for cap in np.quantile(need, [0.02, 0.2, 1.0]):
        found = best_per_layer(small(plan, blocks, memory_bytes=float(cap)), book)
        best_s = step_s[need <= cap].min()
        assert found.best.step_time_s <= 1.01 * best_s
        again = predict(found.job, book)
        assert again.memory.fits
        assert again.clean_step_time_s == pytest.approx(found.best.step_time_s)
        uniform = [step_s[place] for place in alike if need[place] <= cap]
        assert found.uniform.step_time_s == pytest.approx(min(uniform, default=float("inf")))
        gains.append(found.speedup_ratio)

    assert max(gains) > 1.02  # a mixture beats every plan whose blocks are alike
    assert min(gains) >= 1.0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_the_dynamic_program_finds_the_least_time_inside_the_room(seed):
    random = np.random.default_rng(seed)
    seconds, change = (
        random.integers(0, 9, (3, 4)).astype(float),
        random.integers(0, 3, (3, 3)).astype(float),
    )
    need = random.integers(0, 5, (3, 4)).astype(float)
    np.fill_diagonal(change, 0.0)
    need[0] = 0.0
    room = float(random.choice([1, 2, 4, 8, 16]))  # whole numbers of bytes are whole numbers of buckets

    def total_s(choice):
        path = (0, *choice, 0)
        return sum(seconds[o, b] for b, o in enumerate(choice)) + sum(
            map(change.__getitem__, pairwise(path))
        )

    fit = [c for c in product(range(3), repeat=4) if sum(need[o, b] for b, o in enumerate(c)) <= room]
    found = best_of_stage(seconds, need, change, room)

    assert (found is None) == (not fit)
    if found is not None:
        assert sum(need[o, b] for b, o in enumerate(found)) <= room + 1e-9
        assert total_s(found) <= min(map(total_s, fit)) + 1e-9


def test_the_answer_names_the_plan_and_the_best_with_equal_blocks(monkeypatch):
    monkeypatch.setattr(per_layer, "options_of", lambda *_, **__: iter(OPTIONS))
    one = small("dp=4 tp=2 mbs=4 gbs=64 zero=1")
    found = best_per_layer(one, load_book(one.cluster))
    data = per_layer_json(found)["per_layer"]

    assert Plan(**data["plan"]) == found.best.plan
    assert data["clean_step_time_s"] <= data["alike_clean_step_time_s"]
    assert f'--plan "{found.best.plan.short()}"' in per_layer_text(one, found)


def test_stages_of_several_chunks_and_jobs_without_strategies_are_refused():
    with pytest.raises(SpecError, match="not supported yet"):
        best_per_layer(small("tp=4 pp=2 vpp=2 mbs=1 gbs=64"), None)
    shared = small("dp=2 tp=2 cp=2 mbs=2 gbs=64")
    with pytest.raises(SpecError, match="context_parallel above 1"):
        best_per_layer(shared, load_book(shared.cluster))
