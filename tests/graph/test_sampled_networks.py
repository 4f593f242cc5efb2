"""Graph networks on sampled neighbours: expected nodes and edges, the model, and R-GAT of MLPerf."""

import numpy as np
import pytest

from flopcast import job, predict
from flopcast.errors import SpecError
from flopcast.graph.sampled_network import SampledNetwork, hops_of, sampled_edges, sampled_edges_of_reached

RGAT = "rgat-igbh-full.sampled.yaml"
SEEDS = 2048
TOY = """
name: toy
nodes: {user: 30000, item: 20000}
relations: [{source: user, target: item, edges: 90000}]
seed: item
fan_out: [3, 2]
features: 64
hidden: 32
classes: 4
"""


def toy(**more):
    relation = {"source": "user", "target": "item", "edges": 90_000}
    fields = {"name": "toy", "nodes": {"user": 30_000, "item": 20_000}, "relations": [relation]}
    fields |= {"seed": "item", "fan_out": (3, 2), "features": 64, "hidden": 32, "classes": 4}
    return SampledNetwork.model_validate(fields | more)


def rgat(seeds=SEEDS, **options):
    """R-GAT on one H200 without the work of the host."""
    plan = f"mbs={seeds} gbs={seeds} precision=fp16"
    changes = ["stack.optimizer.step_host_s=0s", "stack.host.graphs=iteration"]
    size = {"batch": seeds}
    return job(model=RGAT, size=size, plan=plan, cluster="dgx-h200", gpus=1, changes=changes, **options)


def test_sampled_edges_are_sums_over_a_geometric_distribution():
    degrees = np.arange(4000.0)
    for mean in (0.3, 2.7, 29.7):
        pmf = (mean / (1 + mean)) ** degrees / (1 + mean)
        for fan_out in (1, 5, 15):
            drawn = np.minimum(degrees, fan_out)
            assert sampled_edges(mean, fan_out) == pytest.approx((drawn * pmf).sum())
            biased = (drawn * degrees * pmf).sum() / mean
            assert sampled_edges_of_reached(mean, fan_out) == pytest.approx(biased)


def test_nodes_and_edges_equal_those_of_a_simulated_graph():
    """Edges of a random graph whose nodes are popular in proportion to exponential weights."""
    random, network, seeds = np.random.default_rng(1), toy(), 400
    ends = {}
    for name, count in network.nodes.items():
        weights = random.exponential(size=count)
        ends[name] = random.choice(count, 90_000, p=weights / weights.sum())
    near = {
        name: np.split(ends[other][order := np.argsort(ends[name])], np.searchsorted(
            ends[name][order], np.arange(1, network.nodes[name])))
        for name, other in (("item", "user"), ("user", "item"))
    }  # fmt: skip
    own = set(random.choice(20_000, seeds, replace=False).tolist())
    found, new, edges = {"item": own, "user": set()}, {"item": own, "user": set()}, []
    for fan_out in network.fan_out:
        drawn = {
            name: [
                other for node in nodes for other in random.permutation(near[name][node])[:fan_out].tolist()
            ]
            for name, nodes in new.items()
        }
        new = {
            name: set(drawn[other]) - found[name] for name, other in (("item", "user"), ("user", "item"))
        }
        found = {name: found[name] | new[name] for name in found}
        edges.append(sum(map(len, drawn.values())))

    hops = hops_of(network, seeds)
    for hop, count in zip(hops[1:], edges, strict=True):
        assert sum(hop.edges.values()) == pytest.approx(count, rel=0.06)
    for name, nodes in found.items():
        assert hops[-1].nodes[name] == pytest.approx(len(nodes), rel=0.06), name


def test_a_part_of_a_graph_fixes_a_power_law_of_different_sources():
    part = {"edges": 900, "sources": 300}
    relation = {"source": "user", "target": "item", "edges": 90_000, "part": part}
    forth, _ = toy(relations=[relation]).directions

    assert forth.different(900, 30_000) == pytest.approx(300)
    assert forth.different(90_000, 30_000) == pytest.approx(30_000)
    assert forth.different(1, 30_000) == pytest.approx(1, rel=1.1)


def test_no_batch_contains_more_nodes_than_the_graph():
    for seeds in (1, 1000, 20_000):
        nodes = hops_of(toy(fan_out=(1000, 1000)), seeds)[-1].nodes
        assert all(count <= total for count, total in zip(nodes.values(), (30_000, 20_000), strict=True))


def test_parameters_of_rgat_are_those_of_the_submissions():
    """25.015 MiB in 16 bits (`model_size` in the logs of MLPerf Training 5.1).

    Seven matrices of the last two layers belong to relations that end at no node of their targets. Vectors
    of attention and the bias of the classifier are not counted: 0.3 % of all parameters.
    """
    unused = 7 * 512 * 512
    assert 2 * (rgat().model.parameters() + unused) / 2**20 == pytest.approx(25.015, rel=0.004)


def test_an_evaluation_takes_the_published_part_of_a_step():
    """On eight H200, 49 batches of an evaluation take 1.83 s, and a training step takes 72.3 ms.

    Logs of Dell's submission to MLPerf Training 5.1 (1xXE9680Lx8H200-SXM-141GB, result_0.txt).
    """
    step_s = predict(rgat()).clean_step_time_s
    evaluation_s = predict(rgat(inference=True)).clean_step_time_s

    assert evaluation_s / step_s == pytest.approx(1.829 / 49 / 0.0723, rel=0.1)


def test_features_are_read_over_the_network_of_the_node():
    """A device reads its own part from its memory, and 7/8 of the rows from the other devices."""
    plan, size = "dp=8 mbs=2048 gbs=16384", {"batch": 2048}
    options = {"plan": plan, "size": size, "gpus": 8, "cluster": "dgx-h200"}
    found = predict(job(model=RGAT, loader="gather=1500kB@peers", **options)).loader
    cluster = rgat().cluster
    rate = cluster.tiers[0].bytes_per_s * cluster.tiers[0].attained_fraction
    each_s = 1.5e6 * (7 / 8 / rate + 1 / 8 / cluster.node.device.memory_bytes_per_s)

    assert found.stages[0].step_s == pytest.approx(2048 * each_s)


def test_a_description_is_a_job_of_its_own(tmp_path):
    file = tmp_path / "toy.sampled.yaml"
    file.write_text(TOY, encoding="utf-8")
    place = tmp_path / "job.yaml"
    place.write_text(f"model: {{graph: {file}, sizes: {{batch: 64}}}}\n", encoding="utf-8")
    options = {"cluster": "dgx-a100", "gpus": 1, "plan": "mbs=64 gbs=64"}

    from_job, from_size = job(place, **options), job(model=file, size={"batch": 64}, **options)
    assert from_job.model == from_size.model
    named = {"size": {"batch": SEEDS}, "plan": f"mbs={SEEDS} gbs={SEEDS}", "cluster": "dgx-h200", "gpus": 1}
    assert job(RGAT, **named).model == rgat().model
    wrong = {
        "seed: item": ("seed: shop", "user, item"),
        "edges: 90000": ("edges: 0", "at least 1"),
        "fan_out: [3, 2]": ("fan_out: []", "at least one entry"),
    }
    for right, (text, allowed) in wrong.items():
        file.write_text(TOY.replace(right, text), encoding="utf-8")
        with pytest.raises(SpecError) as error:
            job(model=file, size={"batch": 64}, **options)
        (problem,) = error.value.problems
        assert allowed in problem.allowed
        assert problem.where.rpartition(":")[2] == str(1 + TOY[: TOY.index(right)].count("\n"))
    file.write_text(TOY, encoding="utf-8")
    with pytest.raises(SpecError, match="size batch"):
        job(model=file, **options)
