"""Published results of engines whose weights are outside the device, each with its stated inputs.

FlexGen and ZeRO-Inference: generated tokens/s of OPT-30B and OPT-66B on an A6000, prompts of 512 tokens and
32 new ones (DeepSpeedExamples, inference/huggingface/zero_inference/README.md). TPI-LLM: the memory of a
device, and latencies against Accelerate and transformers (arXiv:2410.00531, sections 3.3 and 4).
"""

from dataclasses import replace
from itertools import product
from statistics import mean, median

import numpy as np
import pytest
from all_cases import all_cases
from offloaded_cases import job_of

from flopcast import predict_serving, serving_job
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.serving.instances import times_of
from flopcast.serving.memory import serving_memory

PROMPT, OUTPUT = 512, 32
ROWS = {  # weights in 4 bits, KV cache on the host, model, tokens/s, batch
    "flexgen": (
        (True, False, "opt-30b", 21.97, 48),
        (True, False, "opt-66b", 5.78, 24),
        (False, True, "opt-30b", 13.24, 200),
        (False, True, "opt-66b", 4.15, 80),
        (True, True, "opt-30b", 13.40, 280),
        (True, True, "opt-66b", 6.24, 96),
    ),
    "zero-inference": (
        (True, False, "opt-30b", 22.74, 24),
        (True, False, "opt-66b", 7.68, 16),
        (False, True, "opt-30b", 12.32, 96),
        (False, True, "opt-66b", 3.63, 40),
        (True, True, "opt-30b", 19.34, 128),
        (True, True, "opt-66b", 8.08, 64),
    ),
}
ON_HOST = "weights_on=host:0.9 kv_on=host activations_on=host host_computes=attention"
# rates that are tried in place of the engine's: over those of weights, of caches, and of unpacking
RATIOS = tuple(
    product((0.5, 0.7, 0.85, 1.0, 1.15, 1.4), (0.6, 0.8, 1.0, 1.25, 1.6), (0.4, 0.7, 1.0, 1.5, 3.0))
)


def job_of_row(engine, row):
    narrow, on_host, model, _, batch = row
    plan = f"weights={'int4' if narrow else 'bf16'} weights_on=host" + (" kv_on=host" if on_host else "")
    return job_of(model, engine, plan, batch, (PROMPT, OUTPUT))


def rates_of(engine, row):
    """Return the tokens/s of a row for each of RATIOS, from one pass of prompts and 31 that decode."""
    job, batch = job_of_row(engine, row), float(row[-1])
    times = times_of(job, load_serving_book(job.cluster), PROMPT + OUTPUT)
    kernels = replace(times, copies=None)
    contexts = batch * (PROMPT + np.arange(1.0, OUTPUT))
    new = np.concatenate([[batch * PROMPT], np.full(OUTPUT - 1, batch)])
    cached = np.concatenate([[batch * PROMPT], contexts])
    pairs = np.concatenate([[batch * PROMPT * (PROMPT + 1) / 2], contexts])
    alone_s = kernels(new, np.full(OUTPUT, batch), cached, pairs)
    held, found = times.copies, []
    for weights, caches, unpack in RATIOS:
        copies = replace(
            held,
            weights_s=held.weights_s / weights,
            read_s=held.read_s / caches,
            write_s=held.write_s / caches,
            unpack_s=held.unpack_s / unpack,
        )
        found.append(batch * OUTPUT / copies.pass_s(alone_s, alone_s, new, cached).sum())
    return np.array(found)


@all_cases("engine", ROWS)
def test_throughput_is_within_a_quarter_of_the_published_one(engine):
    """Fitted: FlexGen has a median error of 1.4 % and ZeRO-Inference of 3.3 %; 17 and 8 % at most."""
    errors = [
        abs(predict_serving(job_of_row(engine, row)).output_tokens_per_s.value / row[3] - 1)
        for row in ROWS[engine]
    ]

    assert median(errors) < 0.05
    assert max(errors) < 0.25


@all_cases("engine", ROWS)
def test_rates_of_copies_fitted_to_the_other_rows_predict_each_row(engine):
    """Each row left out of the fit: 2 % (FlexGen) and 3 % in the median, 17 and 8 % at most."""
    measured = np.array([row[3] for row in ROWS[engine]])
    errors = np.array([rates_of(engine, row) for row in ROWS[engine]]) / measured[:, None] - 1

    left_out = []
    for place in range(len(measured)):
        others = np.delete(np.abs(errors), place, axis=0).mean(axis=0)
        left_out.append(abs(errors[place, int(others.argmin())]))

    assert median(left_out) < 0.25


def test_the_two_engines_do_not_share_their_rates():
    """FlexGen's rates without overlap give ZeRO-Inference's rows errors twice as large as its own."""
    rows = ROWS["zero-inference"]
    errors = {
        engine: mean(
            abs(predict_serving(job_of_row(engine, row)).output_tokens_per_s.value / row[3] - 1)
            for row in rows
        )
        for engine in ROWS
    }

    assert errors["flexgen"] > 2 * errors["zero-inference"]


@all_cases(
    "engine, model, tokens_per_s, batch, plan",
    (
        ("accelerate", "opt-6.7b", 25.12, 2, ""),
        ("accelerate", "opt-30b", 0.62, 8, "weights_on=host"),
        ("zero-inference", "opt-6.7b", 9.28, 16, "weights_on=host"),
        ("zero-inference", "opt-30b", 0.60, 4, "weights_on=host"),
        ("flexgen", "opt-6.7b", 25.26, 2, ""),
        ("flexgen", "opt-30b", 7.32, 144, ON_HOST),
    ),
)
def test_throughput_on_another_device_was_never_fitted(engine, model, tokens_per_s, batch, plan):
    """T4 with 208 GB (FlexLLMGen, README.md): 20 % in the median, 32 % at most.

    The table does not state the percentages of FlexGen: 10 % of the weights on the device, and attention on
    the host, are assumed.
    """
    t4 = catalog.document("devices", "t4-16gb").data | {"name": "t4", "host_bytes_per_s": "12.8 GB/s"}
    memory = {"capacity_bytes": "208 GB", "bytes_per_s": "100 GB/s"}
    job = job_of(model, engine, f"weights=bf16 {plan}", batch, device=t4, memory=memory)

    assert predict_serving(job).output_tokens_per_s.value == pytest.approx(tokens_per_s, rel=0.35)


def edge(devices):
    """Return small computers with a processor of 8 cores, joined by a wireless network of 300 Mbit/s.

    A message takes half of the 7.5 ms of an all-reduce over one device (data/modelling/tiers.md). The drive
    reads 1.5 GB/s, an estimate: the text that we read does not state it.
    """
    device = {
        "name": "laptop",
        "memory_bytes": "64 GB",
        "memory_bytes_per_s": "20 GB/s",
        "peak_flop_per_s": {"fp32": "0.3 TFLOP/s", "bf16": "0.3 TFLOP/s"},
        "multiprocessors": 8,
        "kernel_launch_s": "5 us",
        "host_bytes_per_s": "20 GB/s",
        "relatives": ["a100-sxm4-80gb"],
    }
    drive = {"capacity_bytes": "1 TB", "read_bytes_per_s": "1.5 GB/s", "write_bytes_per_s": "1 GB/s"}
    node = {"device": device, "devices": 1, "host": "epyc-7763", "nvme": drive}
    link = {"name": "wireless", "devices": devices, "bytes_per_s": "37.5 MB/s", "latency_s": "3.75 ms"}
    wide = {**link, "name": "none", "devices": 0}
    return {"name": "edge", "groups": [{"count": devices, "node": node}], "tiers": [link, wide]}


def edge_job(model, engine, devices, place="nvme"):
    plan = f"tp={devices} replicas=1 weights=fp32 weights_on={place} max_tokens=64"
    traffic = "concurrency=1 prompt=16 output=8 requests=4"
    return serving_job(model, engine=engine, cluster=edge(devices), plan=plan, traffic=traffic)


def used_gb(job):
    memory = serving_memory(job)
    return (memory.weight_bytes + memory.activation_bytes + memory.reserved_bytes) / 1e9


MEMORY_GB = {  # of a device of eight: without and with the window
    "llama-2-7b": (4.5, 1.7),
    "llama-2-13b": (8.1, 2.1),
    "llama-2-70b": (34.9, 3.1),
    "llama-3.1-8b": (8.5, 5.4),
    "llama-3.1-70b": (42.3, 11.3),
    "yi-34b": (20.4, 4.9),
}


def test_memory_of_a_device_is_that_of_tpi_llm():
    """Without and with the window, also if the memory of the runtime is fitted on the other models."""
    rests = {}
    for model, (whole_gb, window_gb) in MEMORY_GB.items():
        job = edge_job(model, "tpi-llm", 8)
        assert used_gb(edge_job(model, "tpi-llm", 8, "device")) == pytest.approx(whole_gb, rel=0.08)
        assert used_gb(job) == pytest.approx(window_gb, rel=0.06)
        rests[model] = used_gb(job) - serving_memory(job).reserved_bytes / 1e9
    for model, (_, window_gb) in MEMORY_GB.items():
        others = [MEMORY_GB[other][1] - rest for other, rest in rests.items() if other != model]
        assert rests[model] + np.mean(others) == pytest.approx(window_gb, rel=0.08)


@all_cases("model", ("llama-2-7b", "llama-3.1-8b"))
def test_latencies_are_a_fraction_of_those_of_one_computer(model):
    """Four laptops against one: more than 80 % below Accelerate, and more than 90 % below transformers."""
    four, accelerate, swapped = (
        predict_serving(edge_job(model, engine, devices)).latencies
        for engine, devices in (("tpi-llm", 4), ("accelerate", 1), ("hugging-face", 1))
    )

    for metric in ("ttft", "tpot"):
        own_s = four[metric]["mean"].value
        assert 1 - own_s / accelerate[metric]["mean"].value > 0.80
        assert 1 - own_s / swapped[metric]["mean"].value > 0.90


def test_token_latency_of_70b_is_the_time_in_which_its_part_is_read():
    """22.9 s on eight devices; 26.1 s is published (tolerance 25 %)."""
    found_s = predict_serving(edge_job("llama-2-70b", "tpi-llm", 8)).latencies["tpot"]["mean"].value

    assert found_s == pytest.approx(26.1, rel=0.25)


def test_a_star_is_faster_than_a_ring_over_links_with_a_long_latency():
    star = edge_job("llama-2-7b", "tpi-llm", 8, "device")
    engine = star.engine.model_copy(update={"star_all_reduce": False})
    ring = star.model_copy(update={"engine": engine})

    seconds = [predict_serving(job).latencies["tpot"]["mean"].value for job in (star, ring)]
    assert seconds[0] < seconds[1]
