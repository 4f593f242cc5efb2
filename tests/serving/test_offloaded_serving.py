"""Weights, caches and hidden states in the memory of the host or on drives."""

import pytest
from all_cases import all_cases
from offloaded_cases import A6000, MEMORY, NVME, job_of, machine

from flopcast import predict_serving
from flopcast.library.curves import load_serving_book
from flopcast.serving.checks import serving_problems
from flopcast.serving.instances import times_of
from flopcast.serving.memory import block_bytes, serving_memory, token_bytes
from flopcast.spec.streaming import fractions_of, placement_text

DECODE = 48.0, 48.0, 48.0 * 530, 48.0 * 530  # a pass of 48 sequences
PLANS = (
    ("flexgen", "weights_on=host"),
    ("flexgen", "weights_on=host:0.6+nvme:0.4 kv_on=host:0.5"),
    ("flexgen", "weights_on=host kv_on=host host_computes=attention activations_on=host"),
    ("zero-inference", "weights_on=nvme kv_on=host"),
    ("accelerate", "weights_on=host:0.5"),
    ("llama.cpp", "weights_on=host:0.5"),
)


def pass_s(job, numbers=DECODE):
    return times_of(job, load_serving_book(job.cluster), 600)(*numbers)


def small(engine, plan, **given):
    return job_of("opt-6.7b", engine, plan, batch=8, **given)


def served_s(job):
    return predict_serving(job).latencies["end_to_end"]["mean"].value


@all_cases("text", ("device", "host", "host:0.8", "nvme:0.25", "host:0.5+nvme:0.3"))
def test_the_text_of_a_placement_is_what_it_was_read_from(text):
    assert placement_text(fractions_of(text)) == text


@all_cases(
    "engine, memory, rate",
    (("flexgen", "host", 0.54 * 25e9), ("accelerate", "host", 0.5 * 25e9), ("flexgen", "nvme", None)),
)
def test_copies_that_do_not_overlap_add_their_bytes_over_the_rate(engine, memory, rate):
    alone, moved = (job_of(engine=engine, plan=f"weights_on={place}") for place in ("device", memory))

    extra_s = pass_s(moved) - pass_s(alone)

    expected_s = block_bytes(moved) / (rate or 0.54 * 25e9)
    if memory == "nvme":
        expected_s += block_bytes(moved) / (0.8 * 5.6e9)
    assert extra_s == pytest.approx(expected_s)


def test_overlapped_copies_take_the_longer_of_kernels_and_copies():
    alone, moved = (
        job_of(engine="zero-inference", plan=f"weights_on={place}") for place in ("device", "host")
    )
    copied_s = block_bytes(moved) / (0.68 * 25e9)
    host_s = moved.engine.iteration.host_s

    decode_s, prompt_s = pass_s(moved), pass_s(moved, (24000.0, 47.0, 24000.0, 24000.0 * 256))

    assert decode_s - host_s == pytest.approx(copied_s)
    assert prompt_s == pytest.approx(pass_s(alone, (24000.0, 47.0, 24000.0, 24000.0 * 256)))


def test_the_cache_on_the_host_is_copied_for_each_pass_or_the_host_attends_to_it():
    plan = "weights_on=device kv_on="
    alone, copied, computed = (
        job_of(plan=plan + words) for words in ("device", "host", "host host_computes=attention")
    )
    cached, new = DECODE[2], DECODE[0]
    read_s = token_bytes(copied) * (cached - new) / (0.48 * 25e9)
    write_s = token_bytes(copied) * new / (0.48 * 25e9)
    host_s = token_bytes(computed) * cached / (0.7 * 200e9)

    assert pass_s(copied) - pass_s(alone) == pytest.approx(read_s + write_s)
    assert pass_s(computed) < pass_s(alone) + host_s + write_s  # without attention on the device
    assert pass_s(computed) > host_s + write_s


def test_layers_on_the_host_take_their_bytes_over_the_bandwidth_of_its_memory():
    """As llama.cpp: the time of a token is linear in the layers that the device does not have."""
    job = [small("llama.cpp", f"weights_on=host:{share}") for share in (0.2, 0.4, 0.6)]
    each_s = [pass_s(one, (1.0, 1.0, 500.0, 500.0)) for one in job]

    assert each_s[2] - each_s[1] == pytest.approx(each_s[1] - each_s[0])
    read_s = 0.2 * (block_bytes(job[0]) + 500 * token_bytes(job[0])) / (0.7 * 200e9)
    assert 0.7 * read_s < each_s[1] - each_s[0] < read_s  # the device no longer computes these layers


def test_four_bit_weights_are_unpacked_before_each_use():
    """FlexGen, whether or not the weights are copied before."""
    wide, narrow = (job_of(plan=f"weights={name} weights_on=device") for name in ("bf16", "int4"))
    fused = narrow.engine.streaming.model_copy(update={"unpack_fraction": None})
    reads = narrow.model_copy(update={"engine": narrow.engine.model_copy(update={"streaming": fused})})

    assert pass_s(narrow) - pass_s(reads) == pytest.approx(block_bytes(wide) / (0.13 * 768e9))


@all_cases("engine, plan", PLANS)
def test_what_is_kept_elsewhere_leaves_room_on_the_device(engine, plan):
    moved, alone = (serving_memory(small(engine, words)) for words in (plan, "weights_on=device"))
    job = small(engine, plan)
    weights, device = block_bytes(job), job.cluster.node.device.memory_bytes

    share = sum(fractions_of(job.plan.weights_on).values())
    window = job.engine.streaming.window_layers * weights / 32  # OPT-6.7B has 32 equal layers
    elsewhere = sum(tier.weight_bytes for tier in moved.tiers)
    assert elsewhere == pytest.approx(share * weights)
    assert alone.weight_bytes - moved.weight_bytes <= elsewhere
    assert alone.weight_bytes - moved.weight_bytes >= elsewhere - window * 1.001
    assert alone.tiers == ()
    assert sum(moved.parts().values()) == pytest.approx(device)


@all_cases("engine, plan", PLANS)
def test_more_bandwidth_or_capacity_is_never_slower(engine, plan):
    base = served_s(small(engine, plan))
    faster = (
        machine(host_bytes_per_s="50 GB/s"),
        machine(nvme={**NVME, "read_bytes_per_s": "9 GB/s", "write_bytes_per_s": "9 GB/s"}),
        machine(memory={**MEMORY, "bytes_per_s": "400 GB/s"}),
        machine(memory={**MEMORY, "capacity_bytes": "1 TB"}, nvme={**NVME, "capacity_bytes": "9 TB"}),
    )

    assert all(served_s(small(engine, plan, cluster=each)) <= base * (1 + 1e-9) for each in faster)


@all_cases("engine", ("flexgen", "zero-inference", "accelerate", "llama.cpp"))
def test_moving_less_is_never_slower(engine):
    shares = (1.0, 0.7, 0.4, 0.1)
    seconds = [served_s(small(engine, f"weights_on=host:{share}")) for share in shares]
    seconds.append(served_s(small(engine, "weights_on=device")))

    assert seconds == sorted(seconds, reverse=True)


@all_cases("engine, plan", PLANS[:5])
def test_infinitely_fast_memories_equal_no_offload(engine, plan):
    endless = machine(
        host_bytes_per_s="1e12 GB/s",
        memory={**MEMORY, "bytes_per_s": "1e12 GB/s"},
        nvme={**NVME, "read_bytes_per_s": "1e12 GB/s", "write_bytes_per_s": "1e12 GB/s"},
    )
    job = small(engine, plan, cluster=endless)
    alone = served_s(small(engine, "weights_on=device", cluster=endless))

    if job.host_computes == "nothing":
        assert served_s(job) == pytest.approx(alone)
    else:
        assert served_s(job) <= alone


@all_cases(
    "plan, given, field, because",
    (
        ("weights_on=host", {"memory": None}, "node.memory", "does not state the capacity"),
        ("weights_on=nvme", {"nvme": None}, "node.nvme", "does not state the capacity"),
        (
            "weights_on=host",
            {"memory": {**MEMORY, "capacity_bytes": "30 GB"}},
            "weights_on",
            "of the 27.9 GiB",
        ),
        (
            "weights_on=device",
            {"device": {**A6000, "memory_bytes": "16 GB"}},
            "tensor_parallel",
            "weights (",
        ),
        (
            "weights_on=host kv_on=host",
            {"memory": {**MEMORY, "capacity_bytes": "59.5 GB"}},
            "traffic",
            "host memory",
        ),
        ("weights_on=device host_computes=layers", {}, "host_computes", "supports no other computation"),
        ("weights_on=host host_computes=attention", {}, "host_computes", "data that is in host memory"),
    ),
)
def test_what_does_not_fit_or_is_not_described_is_refused_with_a_fix(plan, given, field, because):
    problems = serving_problems(job_of(plan=plan, **given), 544)

    assert [problem.field for problem in problems if field in problem.field]
    assert any(because in problem.because for problem in problems)
    assert all(problem.fix for problem in problems)


def test_an_engine_that_keeps_all_on_the_device_says_so():
    (problem,) = serving_problems(job_of(engine="vllm", plan="weights_on=host"), 544)

    assert problem.allowed == "device"
    assert "vllm" in problem.because


@all_cases("words", ("weights_on=disk", "weights_on=host:2", "kv_on=host+host", "kv_on=host:0.7+nvme:0.7"))
def test_a_placement_of_another_form_is_refused(words):
    with pytest.raises(ValueError, match=r"weights_on|kv_on"):
        job_of(plan=words)


def test_the_fix_of_a_full_host_moves_the_rest_to_the_drives():
    """OPT-175B: blocks of 348 GB in 252 GB of memory."""
    job = job_of("opt-175b", batch=4)
    (problem,) = serving_problems(job, 544)

    words = problem.fix.removeprefix("set plan.").split(",")[0].replace(" to ", "=")
    assert words == "weights_on=host:0.72+nvme:0.28"
    assert serving_problems(job_of("opt-175b", plan=words, batch=4), 544) == []


def test_the_fix_of_a_full_device_is_a_placement_that_fits():
    """OPT-30B on 16 GB: weights in bf16 need 60 GB."""
    device = {**A6000, "memory_bytes": "16 GB"}
    job = job_of(engine="accelerate", plan="weights_on=device", batch=1, device=device)
    (problem,) = serving_problems(job, 544)

    words = problem.fix.removeprefix("set plan.").replace(" to ", "=")
    fixed = job_of(engine="accelerate", plan=words, batch=1, device=device)
    assert words.startswith("weights_on=host:")
    assert serving_problems(fixed, 544) == []
