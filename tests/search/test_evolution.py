"""Evolution against known fronts: of a standard problem in closed form, of a space by enumeration."""

import numpy as np
import pytest
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.evolved_fronts import hypervolume
from flopcast.kept_results import KeptResults
from flopcast.library.curves import load_book
from flopcast.render.search_json import as_json
from flopcast.render.search_text import as_text
from flopcast.search.evolution import Genes, evolve, survivors
from flopcast.search.evolved_plans import GenesOfPlans, evolved
from flopcast.search.find import find
from flopcast.search.grid import Grid, batches, plan_at, plans_of
from flopcast.search.pareto_front import front
from flopcast.search.preferences import preferred
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates

JOB = make_job(cluster="selene:4", stack="megatron-core", plan="dp=32 gbs=256")
BOOK = load_book(JOB.cluster)
SPACE = Space(
    gbs="64..1024:64",
    mbs="1,2,4",
    cp=1,
    vpp="1,2",
    sp="true",
    zero="1",
    recompute="none full",
    refine=False,
)
LOSSES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=20)


def test_of_zdt1_the_front_is_found_with_a_small_part_of_all_points():
    values = 33
    sizes = np.full(6, values)

    def zdt1(rows):
        x = rows / (values - 1)
        g = 1 + 9 * x[:, 1:].mean(axis=1)
        return np.stack([x[:, 0], g * (1 - np.sqrt(x[:, 0] / g))], axis=1), np.zeros(len(rows))

    found = []

    def evaluate(rows):
        losses, excess = zdt1(rows)
        found.append(losses)
        return losses, excess

    genes = Genes(
        sizes=sizes,
        start=lambda random, number: random.integers(sizes, size=(number, len(sizes))),
        repaired=lambda rows: rows,
    )
    *_, evaluated = evolve(genes, evaluate, population=64)
    line = np.linspace(0, 1, values)
    exact = np.stack([line, 1 - np.sqrt(line)], axis=1)
    reference = np.array([1.1, 1.1])

    assert evaluated == sum(map(len, found)) < values**6 / 50_000
    assert hypervolume(np.concatenate(found), reference) >= 0.99 * hypervolume(exact, reference)


def test_evolution_finds_the_front_of_a_space_with_fewer_predictions():
    question = Question(jobs=(JOB,), space=SPACE, objectives=("tokens_per_s", "memory"))
    every = TopCandidates().after_all(question, batches(JOB, SPACE), lambda _: BOOK)
    *_, found = evolved(question, JOB, lambda _: BOOK, KeptResults(1024), population=48)
    known, own = (np.array([one.losses for one in each.on_front]) for each in (every, found))
    reference = 1.1 * known.max(axis=0)

    assert found.candidates < every.candidates / 2
    assert 0.99 <= hypervolume(own, reference) / hypervolume(known, reference) <= 1
    assert own.min(axis=0) == pytest.approx(known.min(axis=0), rel=0.01)


def test_every_row_of_genes_becomes_a_plan_of_the_grid():
    space = Space(
        gbs="64,96", mbs="1,2", zero="0,3", dp_shard="0,8", recompute="none", schedule="auto gpipe"
    )
    listed = {plan_at(plans, row) for _, plans in batches(JOB, space) for row in range(plans.size)}
    of_plans = GenesOfPlans.of(Grid.of(JOB, space))
    genes = of_plans.genes
    random = np.random.default_rng(0)
    anything = random.integers(genes.sizes, size=(300, len(genes.sizes)))

    rows = genes.repaired(anything)
    made = [
        plan_at(plans, row)
        for _, structure, table in of_plans.plans(rows)
        for plans in [plans_of(JOB, structure, table)]
        for row in range(plans.size)
    ]

    assert len(made) == len(rows) > 100
    assert set(made) <= listed


@given(LOSSES)
def test_who_survives_is_dominated_by_nobody_who_does_not(pairs):
    losses = np.array(pairs, dtype=float)
    kept = survivors(losses, np.zeros(len(losses)), max(1, len(losses) // 2))

    gone = np.setdiff1d(np.arange(len(losses)), kept)

    assert len(kept) == max(1, len(losses) // 2)
    for row in losses[kept]:
        assert not any((other <= row).all() and (other < row).any() for other in losses[gone])


@settings(max_examples=50)
@given(LOSSES, st.floats(0.01, 0.99))
def test_the_preferred_plan_is_the_best_of_all_for_its_weights(pairs, weight):
    losses = np.array(pairs, dtype=float)
    scores = np.log(losses) @ [weight, 1 - weight]
    parts = preferred(losses)

    assert [one[1] for one in parts[:-1]] == [other[2] for other in parts[1:]]
    assert (parts[0][2], parts[-1][1]) == (1.0, 0.0)
    at = next(row for row, low, high in parts if low - 1e-3 <= weight <= high + 1e-3)
    assert scores[at] <= scores.min() + 2e-3 * np.log(9) + 1e-9


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=8))
def test_the_hypervolume_is_that_of_the_cells_that_are_dominated(points):
    losses = np.array(points, dtype=float).reshape(len(points), 3)
    cells = np.stack(np.meshgrid(*[np.arange(4)] * 3), axis=-1).reshape(-1, 3)

    dominated = sum(bool((losses <= cell).all(axis=1).any()) for cell in cells)

    assert hypervolume(losses, np.full(3, 4.0)) == dominated
    assert hypervolume(losses[front(losses)], np.full(3, 4.0)) == dominated


def test_a_whole_search_by_evolution_has_the_best_plan_and_a_front_by_preference():
    few = Space(gbs=64, mbs="1,2", vpp=1, cp=1, zero=1, dp_shard=0, recompute="none full", refine=False)
    job = make_job(cluster="selene:1", stack="megatron-core", plan="dp=8 gbs=64")
    every = find(Question(jobs=(job,), space=few), load_book)
    found = find(Question(jobs=(job,), space=few, evolve=True), load_book)
    (against,) = as_json(found, 5, 1.0, 1.0)["preferences"]

    assert found.plans[0].played.plan == every.plans[0].played.plan
    assert found.candidates <= every.candidates
    assert (against["of"], against["against"]) == ("step_time_s", "peak_memory_bytes")
    assert against["plans"][0]["high_weight"] == 1.0
    assert against["plans"][0]["objectives"]["step_time_s"] == pytest.approx(
        min(one.losses[0].value for one in every.plans), rel=1e-9
    )
    assert "by preference" in as_text(found, with_front=True)
    assert "an evolutionary algorithm chose the plans" in as_text(found)
