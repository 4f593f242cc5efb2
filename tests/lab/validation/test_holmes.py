"""Holmes (arXiv:2312.03549): GPT of 3.6B parameters on nodes of 8 A100 with InfiniBand, RoCE or Ethernet.

Shape, micro-batch, stages, fp16, FlashAttention and gradients that are not accumulated in the product are
those of the published scripts. Chosen: the global batch of 768 sequences, full recompute (which the formula
of the printed TFLOP/s counts), and one card of 200, 100 and 25 Gb/s for each node.
"""

import pytest

from flopcast import predict
from flopcast.jobs import job

MODEL = {
    "name": "gpt-3.6b",
    "hidden": 3072,
    "vocabulary": 51200,
    "blocks": [
        {"count": 30, "mixer": {"heads": 32}, "feed_forward": {"ffn_hidden": 8192, "activation": "swiglu"}}
    ],
}
BATCH, LENGTH = 768, 2048
CARDS = {"InfiniBand": "200 Gb/s", "RoCE": "100 Gb/s", "Ethernet": "25 Gb/s"}  # of a node of 8 devices
SHARE = {"200 Gb/s": "3.125 GB/s", "100 Gb/s": "1.5625 GB/s", "25 Gb/s": "0.390625 GB/s"}  # of a device
LATENCY = {"InfiniBand": "10 us", "RoCE": "10 us", "Ethernet": "30 us"}
PUBLISHED = {  # TFLOP/s of a device
    (4, "InfiniBand"): 197,
    (4, "RoCE"): 160,
    (4, "Ethernet"): 122,
    (8, "InfiniBand"): 148,
    (8, "RoCE"): 145,
    (8, "Ethernet"): 83,
}
TOLERANCE = 0.12


def tier_of(network):
    """The network of a cluster whose nodes have one card of this kind."""
    return {"bytes_per_s": SHARE[CARDS[network]], "latency_s": LATENCY[network]}


def printed_tflops(step_time_s, nodes):
    """TFLOP/s by Megatron-LM's formula, which counts recompute: 96 B s l h² (1 + s / 6h + V / 16lh)."""
    layers, hidden = 30, 3072
    flop = 96 * BATCH * LENGTH * layers * hidden**2
    flop *= 1 + LENGTH / (6 * hidden) + MODEL["vocabulary"] / (16 * layers * hidden)
    return flop / step_time_s / (8 * nodes) / 1e12


def predicted(nodes, network):
    """The predicted rate on nodes with one kind of network."""
    asked = job(
        model=MODEL,
        cluster={"base": f"dgx-a100:{nodes}", "tiers": {"1": tier_of(network)}},
        stack={"base": "megatron-core", "gradients": {"accumulate_passes": 1}},
        seq=LENGTH,
        plan=f"dp={4 * nodes} pp=2 mbs=4 gbs={BATCH} zero=1 precision=fp16 recompute=full",
    )
    return printed_tflops(predict(asked).step_time_s, nodes)


def test_rates_with_three_networks_are_within_twelve_percent():
    found = {case: predicted(*case) for case in PUBLISHED}

    errors = {case: found[case] / PUBLISHED[case] - 1 for case in PUBLISHED}
    assert {case: error for case, error in errors.items() if abs(error) > TOLERANCE} == {}
    for nodes in (4, 8):
        rates = [found[nodes, network] for network in CARDS]
        assert rates == sorted(rates, reverse=True)
    assert sum(map(abs, errors.values())) / len(errors) == pytest.approx(0.05, abs=0.02)


def test_two_groups_with_their_own_networks_are_faster_than_with_ethernet_everywhere():
    node = {"device": "a100-sxm4-80gb", "devices": 8, "host": "epyc-7763"}
    nvlink = {"name": "nvlink", "devices": 8, "bytes_per_s": "300 GB/s", "latency_s": "5 us"}
    nvlink |= {"fabric": "a100-nvswitch"}

    def tiers(network):
        return [nvlink, {"name": network, "devices": 0, "attained_fraction": 0.75, **tier_of(network)}]

    asked = job(
        model=MODEL,
        cluster={
            "name": "hybrid",
            "groups": [{"count": 2, "node": node, "tiers": tiers(each)} for each in ("InfiniBand", "RoCE")],
            "tiers": tiers("Ethernet"),
        },
        stack={"base": "megatron-core", "gradients": {"accumulate_passes": 1}},
        seq=LENGTH,
        plan=f"dp=16 pp=2 mbs=4 gbs={BATCH} zero=1 precision=fp16 recompute=full",
    )
    hybrid = printed_tflops(predict(asked).step_time_s, 4)

    assert 1.2 * predicted(4, "Ethernet") < hybrid < predicted(4, "RoCE")
