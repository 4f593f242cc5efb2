"""Megatron-DeepSpeed on Frontier (arXiv:2312.12705): parts of the peak, tensor parallelism, weak scaling.

The text that we read states the parts of the peak alone. The plan of 22B is found by search. Plans and
batches of 175B (TP 4, 16 stages, 640 sequences for each replica) and of one trillion parameters (TP 4, 128
stages, 512 sequences) are those of the authors' scripts: launch_gpt175b_tflops_149.slurm in
sajal-vt/Megatron-DeepSpeed-ORNL, and launch_gpt1T_bf16.slurm, of which
yueming-yuan/Megatron-DeepSpeed-X-MoE has a copy. FLOP count recompute, as the software prints them. Nothing
is fitted: no kernel of an MI250X was measured, so that matrix products reach 0.6 of the peak of the data
sheet.
"""

import numpy as np
import pytest

from flopcast import job, predict
from flopcast.cost.collectives.collective_time import message_seconds
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.search.find import find
from flopcast.search.question import Question
from flopcast.search.space import Space

PEAK_TFLOP_PER_S = 191.5  # of a die
SHAPES = {"megatron-22b": (48, 6144), "gpt3-175b": (96, 12288), "megatron-1t": (128, 25600)}


def job_of(model, nodes, plan):
    words = f"{plan} zero=1 recompute=full precision=fp16"
    return job(model, cluster=f"frontier:{nodes}", seq=2048, stack="megatron-deepspeed", plan=words)


def part_of_peak(model, batch, dies, step_time_s, length=2048, vocabulary=51200):
    layers, hidden = SHAPES[model]
    more = length / (6 * hidden) + vocabulary / (16 * layers * hidden)
    flop = 96 * batch * length * layers * hidden**2 * (1 + more)
    return flop / step_time_s / dies / PEAK_TFLOP_PER_S / 1e12


@pytest.fixture(scope="module")
def parts():
    """Parts of the peak of the three models, with one replica and with all."""
    found = {}
    for model, stages, tensor, each, replicas in (
        ("gpt3-175b", 16, 4, 640, (1, 16)),
        ("megatron-1t", 128, 4, 512, (1, 6)),
    ):
        for data in replicas:
            dies, batch = data * tensor * stages, each * data
            one = job_of(model, dies // 8, f"dp={data} tp={tensor} pp={stages} mbs=1 gbs={batch}")
            found[model, data] = part_of_peak(model, batch, dies, predict(one).step_time_s)
    return found


def test_the_best_plan_of_22b_has_two_tensor_parallel_ranks_and_its_part_of_the_peak_is_right():
    one = job_of("megatron-22b", 8, "dp=8 tp=2 pp=4 mbs=1 gbs=512")
    few = {"tp": (2, 4, 8), "pp": (1, 2, 4), "mbs": (1, 2), "cp": 1, "sp": False, "gbs": 512, "zero": 1}
    space = Space(**few, recompute=("full",), precision="fp16", refine=False)

    (best, *_) = find(Question(jobs=(one,), space=space), load_book).plans

    assert best.played.plan.tensor_parallel == 2
    part = part_of_peak("megatron-22b", 512, 64, best.played.step_time_s)
    assert part == pytest.approx(0.3838, rel=0.15)


def test_two_tensor_parallel_ranks_are_the_fastest_and_more_than_a_node_the_slowest():
    times = [
        predict(job_of("megatron-22b", 8, f"dp={32 // tensor} tp={tensor} pp=2 mbs=1 gbs=512")).step_time_s
        for tensor in (2, 4, 8, 16)
    ]

    assert times == sorted(times)


def test_175b_and_one_trillion_parameters_reach_the_published_parts_of_the_peak(parts):
    assert parts["gpt3-175b", 16] == pytest.approx(0.3614, rel=0.15)
    assert parts["megatron-1t", 6] == pytest.approx(0.3196, rel=0.07)


def test_weak_scaling_is_98_percent_or_more(parts):
    for model, replicas in (("gpt3-175b", 16), ("megatron-1t", 6)):
        assert parts[model, replicas] / parts[model, 1] >= 0.98


def test_llama_on_the_equal_nodes_of_lumi_is_at_most_16_percent_too_fast():
    """Measured by checks/apps/megatron-lm of Lumi-supercomputer/lumi-reframe-tests; nothing was fitted."""
    for nodes, tokens_per_s in ((2, 1950), (8, 1880), (16, 1820)):
        plan = f"tp=2 dp={4 * nodes} mbs=2 gbs=256 zero=1 sp=true"
        one = job("llama-2-7b", cluster=f"frontier:{nodes}", seq=4096, stack="megatron-core", plan=plan)
        rate = 256 * 4096 / predict(one).step_time_s / (8 * nodes)
        assert 1.0 < rate / tokens_per_s < 1.16


def test_an_all_reduce_takes_as_long_as_on_two_equal_nodes_of_lumi():
    """Measured: 85 GB/s over an all-reduce of 128 MiB (checks/microbenchmarks/gpu/rccl_test.py)."""
    size, dies = np.array([2.0**27]), Group(inside=np.array([8.0]), nodes=np.array([2.0]))
    frontier, book = catalog.cluster("frontier"), CurveBook(curves={})

    seconds = message_seconds("all_reduce", size, dies, frontier, book).alone_s.item()

    assert 2 * 15 / 16 * size.item() / seconds == pytest.approx(85e9, rel=0.01)


LEVELS = {  # arXiv:2501.04266; 8 micro-batches of one sequence and no overlap are chosen (docs/accuracy)
    "zero3": "",
    "zero++": "shards=parameters:all:int8,secondary:8:int8,gradients:all:int4",
    "levels": "shards=parameters:2:int8,gradients:8:int4",
}


SINGLE = {"piece_s": "0s", "message_s": "0s", "elements_per_s": 1e18}  # costs of separate all-gathers


def time_of_20b_s(name, dies, bandwidth_fraction=1.0, **sharding):
    """Return the step time of one kind of shards, with this fraction of the bandwidth between nodes."""
    levels = ("secondary", "parameters", "gradients", "parameters:int8", "secondary:int8", "gradients:int4")
    stack = {
        "base": "deepspeed-zero",
        "gradients": {"overlap": False},
        "sharding": {"levels": levels, "prefetch_units": 0} | sharding,
    }
    plan = f"dp={dies} mbs=1 gbs={8 * dies} zero=3 recompute=full precision=fp16 {LEVELS[name]}".strip()
    one = job("gpt-neox-20b", cluster=f"frontier:{dies // 8}", seq=2048, plan=plan, stack=stack)
    *inner, network = one.cluster.tiers
    slower = network.model_copy(update={"bytes_per_s": bandwidth_fraction * network.bytes_per_s})
    cluster = one.cluster.model_copy(update={"tiers": (*inner, slower)})
    return predict(one.model_copy(update={"cluster": cluster})).step_time_s


def times_on_384_dies(bandwidth_fraction):
    """Return the step times of ZeRO-3, ZeRO++ and three levels."""
    return tuple(time_of_20b_s(name, 384, bandwidth_fraction) for name in LEVELS)


def test_levels_of_shards_for_20b_on_384_dies():
    zero3_s, two_levels_s, three_levels_s = times_on_384_dies(1.0)

    assert time_of_20b_s("levels", 64) / three_levels_s == pytest.approx(0.94, rel=0.10)
    # published 1.405 and 1.71, which no bandwidth between nodes explains (below)
    assert 1.15 < zero3_s / two_levels_s < 1.405
    assert 1.05 < two_levels_s / three_levels_s < 1.71


def test_collectives_of_single_matrices_explain_the_first_speed_up_only():
    """Each of a ring's 384 ranks adds its latency to every collective, of which ZeRO-3 has the most."""
    zero3_s, two_levels_s, three_levels_s = (
        time_of_20b_s(name, 384, single_tensors=SINGLE) for name in LEVELS
    )

    assert zero3_s / two_levels_s == pytest.approx(1.405, rel=0.1)
    assert two_levels_s / three_levels_s == pytest.approx(1.20, abs=0.02)


def test_no_bandwidth_between_nodes_gives_both_published_speed_ups_of_levels():
    """ZeRO-3 sends about four times as much as ZeRO++; if that saves little, ZeRO++ has little to lose."""
    zero3_s, two_levels_s, three_levels_s = times_on_384_dies(0.5)
    assert zero3_s / two_levels_s == pytest.approx(1.405, rel=0.1)
    assert two_levels_s / three_levels_s < 1.2

    zero3_s, two_levels_s, three_levels_s = times_on_384_dies(0.06)
    assert two_levels_s / three_levels_s == pytest.approx(1.71, rel=0.1)
    assert zero3_s / two_levels_s > 2.5


def test_published_speed_ups_of_levels_need_a_time_that_only_zero_plus_plus_has():
    """A time of both, such as that of quantisation, only lessens the speed-up of three levels."""
    zero3_s, two_levels_s, three_levels_s = times_on_384_dies(0.2)
    assert zero3_s / three_levels_s == pytest.approx(1.405 * 1.71, rel=0.02)

    more_s = 1.71 * three_levels_s - two_levels_s

    assert more_s / two_levels_s == pytest.approx(0.33, abs=0.03)
    all_to_alls = (
        8 * 44 * 4 * 2
    )  # micro-batches, blocks, matrices; values and scales apart, as in DeepSpeed
    assert more_s / all_to_alls == pytest.approx(5.5e-3, abs=0.5e-3)
    for both_s in (5.0, 20.0):
        assert (two_levels_s + both_s) / (three_levels_s + both_s) < two_levels_s / three_levels_s
