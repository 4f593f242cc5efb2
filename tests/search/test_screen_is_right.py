"""The screen against programs that share nothing, whatever the family; its order against exact play."""

import math
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from all_cases import all_cases
from conftest import described_model, make_job
from possible_plans import possible_only
from single_calls import step_seconds

from flopcast.cost.deduplicate import PricedOnce
from flopcast.cost.factors import FactorBook
from flopcast.cost.item_prices import ItemPrice
from flopcast.cost.price import price
from flopcast.library.curves import load_book
from flopcast.search.exact import play_each
from flopcast.search.grid import batches, num_plans
from flopcast.search.question import Question
from flopcast.search.screen import screen
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.rows import rows_of
from flopcast.timeline.durations import durations
from flopcast.timeline.program import simulate
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

EXPERTS = {"num_experts": 8, "top_k": 2, "expert_hidden": 1024, "shared_experts": 1}
LATENT = {
    "kind": "latent_attention",
    "heads": 16,
    "kv_lora_rank": 128,
    "qk_rope_head_size": 32,
    "qk_nope_head_size": 64,
    "value_head_size": 64,
}


GPT = {"vocabulary": 32000}
LATENT_GPT = described_model(**GPT, mixer=LATENT)
MIXTURE = described_model(**GPT, **EXPERTS)
FEW_SPLITS = {"tp": "1,2", "ep": "1,2,8"}
ON_STAGES = {"base": "deepspeed-zero", "sharding": {"pipeline_zero_stages": [0, 1, 2, 3]}}
# family: parts of the job, words of the space
FAMILIES = {
    "dense": (
        {"stack": "megatron-core"},
        {"schedule": "all", "zero": "1", "pp": "1,2,4", "recompute": "none"},
    ),
    "dense, overlapped": ({"stack": "nemo"}, {"zero": "0,1"}),
    "experts": ({"stack": "megatron-core", "model": MIXTURE}, {"zero": "1"} | FEW_SPLITS),
    "experts, overlapped": ({"stack": "megatron-bridge", "model": MIXTURE}, {"zero": "1"} | FEW_SPLITS),
    "latent attention": ({"stack": "megatron-core", "model": LATENT_GPT}, {"zero": "1"}),
    "shared sequences": ({"stack": "megatron-core"}, {"cp": "1,2", "context_exchange": "all", "zero": "1"}),
    "8 bits": ({"stack": "megatron-core", "cluster": "dgx-h100:2"}, {"precision": "fp8", "zero": "1"}),
    "sharded": ({"stack": "torch-fsdp2"}, {"zero": "3", "dp_shard": "0,2,8"}),
    "sharded on stages": ({"stack": ON_STAGES}, {"zero": "2,3", "tp": "1,2", "pp": "1,2,4"}),
    "blocking transfers": ({"stack": "gpt-neox-deepspeed", "cluster": "perlmutter:4"}, {"zero": "1"}),
    "uneven stages": ({"stack": "megatron-core", "model": described_model(**GPT, count=7)}, {"zero": "1"}),
}
NORM = {"kind": "pass", "name": "norm", "inputs": ["x"], "output": "y", "moved": {"tokens": 128}}
TRACED = {
    "kind": "traced",
    "weights_of_block": [{"name": "norm", "elements": 64}],
    "operators": [NORM | {"keeps": [{"name": "x", "elements": {"tokens": 64}}]}],
}
TRACED_MODEL = {
    "hidden": 64,
    "vocabulary": 512,
    "blocks": [{"count": 8, "mixer": TRACED, "feed_forward": {"kind": "none"}}],
}
OF_NESTED_ARRAYS = {  # works whose arrays are inside tuples or other dataclasses
    "copies of tokens": ({"stack": "megatron-bridge-26.06", "model": MIXTURE}, {"zero": "1", "tp": "1,2"}),
    "tensors of a trace": ({"stack": "megatron-core", "model": TRACED_MODEL}, {"zero": "1"}),
}
WORDS = {"gbs": "32..64", "mbs": "1,2", "cp": 1, "vpp": "1,2", "recompute": "none full", "sp": [True]}


def family(name):
    parts, words = (FAMILIES | OF_NESTED_ARRAYS)[name]
    whole = {"cluster": "dgx-a100:2", "plan": f"dp=16 gbs=32 zero={words['zero'][-1]}"} | parts
    return make_job(**whole), Space(**(WORDS | words))


@cache
def possible_batches(name):
    """Every batch of a family's space, those of its plans that keep every rule."""
    return tuple(possible_only(batches(*family(name))))


@cache
def priced_batches(name):
    """The same, each with its prices and without anything that batches share."""
    return tuple((*each, priced_by(*each, load_book(each[0].cluster))) for each in possible_batches(name))


def priced_by(job, plans, book):
    programs = realise(lower(job.model, plans, job.batch), job.software)
    return price(programs, job.cluster, book, FactorBook(job.site, book.levels))


@all_cases("name", FAMILIES)
def test_programs_that_share_what_is_alike_take_as_long_as_each_by_itself(name):
    found = 0
    for _, _, priced in priced_batches(name):
        for segments in priced.programs.passes:
            slow, fast = simulate(segments, priced, attribute=False), durations(segments, priced)
            for field in ("duration_s", "tail_s", "reduction_s"):
                expected = np.broadcast_to(getattr(slow, field), getattr(fast, field).shape)
                np.testing.assert_allclose(getattr(fast, field), expected, rtol=1e-12, err_msg=field)
            found += fast.duration_s.shape[1]

    assert found > 50


@cache
def screened_batches(name):
    """Every batch of a family's space, and what a screen says of all of its plans."""
    return [(*each, screen(*each, load_book(each[0].cluster))) for each in batches(*family(name))]


@all_cases("name", FAMILIES)
def test_a_plan_is_screened_alike_in_its_space_and_alone(name):
    checked, parts = 0, screened_batches(name)
    of_each = math.ceil(6 / len(parts))
    for number, (job, plans, together) in enumerate(parts):
        book = load_book(job.cluster)
        mixed = np.random.default_rng(number).permutation(plans.size)
        few = mixed[np.argsort(~together.possible[mixed], kind="stable")][:of_each]  # possible ones first
        for row in few.tolist():
            alone = screen(job, rows_of(plans, np.array([row])), book)
            for field in ("possible", "fits"):
                assert getattr(alone, field)[0] == getattr(together, field)[row]
            for field in ("step_time_s", "device_used_bytes"):
                np.testing.assert_allclose(
                    getattr(alone, field)[0], getattr(together, field)[row], rtol=1e-12, err_msg=field
                )
            checked += bool(alone.possible[0])

    assert checked > 5


@all_cases("name", FAMILIES)
def test_batches_of_sequences_that_share_programs_take_as_long_as_programs_of_their_own(name):
    screened = [found for _, _, found in screened_batches(name) if found.possible.any()]
    for together, (_, _, priced) in zip(screened, priced_batches(name), strict=True):
        shared = together.step_time_s[together.possible]

        np.testing.assert_allclose(shared, step_seconds(priced), rtol=1e-9)


def test_the_size_of_batches_changes_no_number():
    job, space = family("dense, overlapped")
    book = load_book(job.cluster)

    def screened(size):
        parts = [screen(*pair, book) for pair in batches(job, space, rows=size)]
        return [np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(parts[0])]

    for whole, parted in zip(screened(2**18), screened(29), strict=True):
        np.testing.assert_array_equal(whole, parted)


@pytest.mark.parametrize("name", ["experts", "copies of tokens", "tensors of a trace"])
def test_items_of_equal_splits_cost_what_they_cost_plan_by_plan(monkeypatch, name):
    """The prices of a batch, against those where nothing is taken to be alike."""
    from flopcast.cost import price as pricing

    job, plans = possible_batches(name)[0]
    book = load_book(job.cluster)
    programs = realise(lower(job.model, plans, job.batch), job.software)
    once = price(programs, job.cluster, book, FactorBook(job.site, book.levels))
    real = pricing.priced_once

    def nothing_alike(items, *others):
        found: PricedOnce = real(items, *others)
        return replace(found, items=tuple(items), narrowed=(False,) * len(found.items))

    monkeypatch.setattr(pricing, "priced_once", nothing_alike)
    each = price(programs, job.cluster, book, FactorBook(job.site, book.levels))

    assert any(real(programs.items(), plans, job.cluster).narrowed)
    for item in programs.items():
        fast, slow = once.of(item), each.of(item)
        assert isinstance(fast, ItemPrice)
        assert fast.factors == slow.factors
        shape = np.broadcast_shapes(fast.alone_s.shape, slow.alone_s.shape)
        for field in ("alone_s", "host_s"):
            a, b = (np.broadcast_to(getattr(one, field), shape) for one in (fast, slow))
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=item.name)


@all_cases("name", FAMILIES)
def test_the_exact_optimum_of_a_small_space_is_among_the_best_screened(name):
    """Every feasible plan, played. A search re-ranks 256; here the first eighth of the few."""
    job, space = family(name)
    space = space.model_copy(update={"global_batch": (64,), "recompute": ("none",)})
    if num_plans(job, space) > 50:
        space = space.model_copy(update={"micro_batch": (1,)})
    question = Question(jobs=(job,), space=space)
    kept = TopCandidates(most=10_000).after_all(question, batches(job, space), load_book)

    played = dict(play_each([one.job for one in kept.best], load_book, energy=False))

    exact_s = [played[place].step_time_s for place in range(kept.feasible)]
    first = max(8, len(exact_s) // 8)
    assert len(exact_s) > 12
    assert min(exact_s[:first]) / min(exact_s) - 1.0 == 0.0  # regret
