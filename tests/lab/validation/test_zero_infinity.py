"""ZeRO-Infinity (arXiv:2104.07857) on DGX-2: what fits where, the rate of a device, and how it scales.

The text that we read states neither shapes nor micro-batches. Chosen here: one trillion parameters are 310
layers of 16384, with sequences of 1024 tokens, micro-batches of one sequence, and recomputed layers whose
inputs are on the host. Rates count 8 FLOP for each parameter and token, recompute included.

Later releases of DeepSpeed also hold 16-bit gradients on the host, for which the published sizes leave no
room: a DGX-2 has 1.5 TB of memory, and gradients of one trillion parameters have 2 TB.
"""

import pytest
from all_cases import all_cases

from flopcast.files.yaml_text import Document
from flopcast.library.curves import load_book
from flopcast.prediction import memory_of, predict
from flopcast.requests.job_files import job_of

SEQUENCE = 1024
ON_HOST = "optimizer:host,parameters:host,activations:host"
ON_DRIVES = "optimizer:nvme,parameters:nvme,activations:host"
TRILLION = {"layers": 310, "hidden": 16384, "heads": 128}
TWO_TRILLION = {"layers": 620, "hidden": 16384, "heads": 128}
STACK = {"base": "deepspeed-zero", "offload": {"buffers_gradients": False}}
FORTY_BILLION = {"layers": 50, "hidden": 8192, "heads": 64}


def job(shape, nodes, offload, devices=16):
    layers, hidden, heads = shape["layers"], shape["hidden"], shape["heads"]
    mixer = {"heads": heads, "rotary_fraction": 0.0}
    block = {"count": layers, "mixer": mixer, "feed_forward": {"ffn_hidden": 4 * hidden}}
    model = {"hidden": hidden, "vocabulary": 50257, "learned_positions": SEQUENCE, "blocks": [block]}
    cluster = f"dgx-2:{nodes}"
    if devices == 1:
        node = {"device": "v100-sxm2-32gb", "devices": 1, "host": "xeon-platinum-8168"}
        node["memory"] = {"capacity_bytes": "1.5 TB", "bytes_per_s": "256 GB/s"}
        link = {"name": "none", "devices": 0, "bytes_per_s": "150 GB/s", "latency_s": "5 us"}
        cluster = {"name": "one-v100", "groups": [{"count": 1, "node": node}], "tiers": [link]}
    ranks = nodes * devices
    plan = {"data_parallel": ranks, "zero": 3, "micro_batch": 1, "global_batch": ranks, "recompute": "full"}
    plan |= {"precision": "fp16", "offload": offload}
    data = {"model": model, "cluster": cluster, "stack": STACK, "plan": plan}
    return job_of(Document("zero-infinity", data | {"batch": {"sequence_length": SEQUENCE}}, {}))


def device_tflop_per_s(one, seconds):
    flop = 8 * one.model.parameters() * one.plan.global_batch * SEQUENCE
    return flop / seconds / one.cluster.num_devices / 1e12


def test_a_trillion_parameters_run_at_49_tflop_per_s_on_512_devices():
    one = job(TRILLION, 32, ON_HOST)
    report = predict(one, load_book(one.cluster))
    slow, fast = (device_tflop_per_s(one, s) for s in (report.step_time_high_s, report.step_time_low_s))

    assert one.model.parameters() == pytest.approx(1e12, rel=0.01)
    assert device_tflop_per_s(one, report.step_time_s) == pytest.approx(49, rel=0.15)
    assert slow < 49 < fast


def test_each_device_is_faster_on_more_nodes_with_states_on_drives():
    rates = []
    for nodes in (4, 8, 16, 32):
        one = job(TRILLION, nodes, ON_DRIVES)
        rates.append(device_tflop_per_s(one, predict(one, load_book(one.cluster)).step_time_s))

    assert rates == sorted(rates)
    assert rates[-1] > 1.5 * rates[0]


@all_cases(
    "shape, nodes, devices, offload, fits",
    [
        (TRILLION, 16, 16, ON_HOST, True),  # 256 devices, as published
        (TRILLION, 8, 16, ON_HOST, False),
        (TWO_TRILLION, 32, 16, ON_HOST, True),  # 512 devices, as published
        (TWO_TRILLION, 16, 16, ON_HOST, False),
        (TRILLION, 1, 16, ON_DRIVES, True),  # one DGX-2, as published
        (TRILLION, 1, 16, ON_HOST, False),
        (TRILLION, 32, 16, "none", False),
        (FORTY_BILLION, 1, 1, ON_HOST, True),  # one device with 1.5 TB of memory, as published
        (FORTY_BILLION, 1, 1, "none", False),
    ],
)
def test_models_fit_where_they_were_published_and_not_below(shape, nodes, devices, offload, fits):
    assert (memory_of(job(shape, nodes, offload, devices)).verdict != "does not fit") is fits
