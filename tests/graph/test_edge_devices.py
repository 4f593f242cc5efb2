"""Small devices, and models that are cut over a chain of them."""

import statistics
from functools import cache
from pathlib import Path

import pytest
from graph_counts import packed_graph

from flopcast import predict
from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.graph.model_of_graph import model_of_graph
from flopcast.jobs import job
from flopcast.placement import best_split_points
from flopcast.render.split_points import split_points_json, split_points_text
from flopcast.requests.job_request import JobRequest, JobSource
from flopcast.requests.layout_jobs import resolve_chain

HERE = Path(__file__).with_name("exported")
NCNN_MS = {
    # benchmark/README.md of Tencent/ncnn: Raspberry Pi 4 Model B at 1.8 GHz, 4 threads, fp32
    "timm.mobilenetv2_100": 61.88,
    "mobilenetv3_large_100": 47.53,
    "efficientnet_b0": 74.19,
    "resnet50": 262.83,
    "vgg16": 547.09,
}


@cache
def model(name):
    """An exported model as plain data."""
    return model_of_graph(packed_graph((HERE / f"{name}.json.gz").read_bytes(), name))[0]


def alone(name, cluster="raspberry-pi-4:1"):
    return predict(
        job(model=model(name), cluster=cluster, plan="mbs=1 gbs=1 precision=fp32", inference=True)
    )


@cache
def chain(mbit_per_s=1000):
    """The divisions of MobileNetV2 over two boards whose network has this bandwidth."""
    asked = job(
        model=model("timm.mobilenetv2_100"),
        cluster="raspberry-pi-4:2",
        plan="pp=2 mbs=1 gbs=1 precision=fp32 stage_layers=9,9",
        inference=True,
        changes=[f"cluster.tiers.0.bytes_per_s={mbit_per_s / 8} MB/s"],
    )
    return best_split_points(asked)


def test_published_times_of_a_raspberry_pi_lie_inside_their_intervals():
    """The efficiencies were fitted to two other processors; no time of a Raspberry Pi was used.

    ncnn computes convolutions with kernels of 3 · 3 by Winograd's algorithm, with fewer multiplications: so
    VGG-16, which has no others, takes 0.71 of the predicted time.
    """
    errors = {}
    for name, measured_ms in NCNN_MS.items():
        report = alone(name)
        assert report.step_time_low_s < measured_ms / 1e3 < report.step_time_high_s, name
        errors[name] = report.step_time_s * 1e3 / measured_ms - 1

    assert statistics.median(map(abs, errors.values())) < 0.19
    assert max(abs(error) for name, error in errors.items() if name != "vgg16") < 0.29
    assert errors["vgg16"] == pytest.approx(0.41, abs=0.05)


def test_intervals_of_processors_are_wide_and_no_clock_exceeds_the_data_sheet():
    report = alone("resnet50")

    assert 1.9 < report.step_time_high_s / report.step_time_s < 3
    assert report.metrics.mfu_ratio < 1


def test_a_chain_has_the_latency_of_its_devices_and_of_the_message():
    """Two equal boards: one board alone, 0.2 ms, and the bytes over 0.9 of the network's rate."""
    found = chain()
    single, *divided = found.points

    assert single.blocks == (18, 0)
    assert [point.blocks for point in divided] == [(k, 18 - k) for k in range(1, 18)]
    for point in divided:
        message_s = 200e-6 + point.sent_bytes / (0.9 * 125e6)
        assert point.latency_s == pytest.approx(single.latency_s + message_s, rel=0.01)
        assert single.period_s / 2 < point.period_s < point.latency_s


def test_cuts_send_the_tensors_of_the_network():
    """Bottlenecks of MobileNetV2 end with 16, 24, 32, 64, 96, 160 and 320 channels (arXiv:1801.04381)."""
    sent = {point.sent_bytes for point in chain().points[1:]}
    channels = {56 * 56: (24,), 28 * 28: (32,), 14 * 14: (64, 96), 7 * 7: (160, 320)}
    outputs = {4 * places * each for places, many in channels.items() for each in many}

    assert outputs <= sent


def test_the_front_moves_to_smaller_messages_where_the_network_is_slow():
    """ParetoPipe (arXiv:2601.08025): the best split points depend on the bandwidth."""
    fronts = [chain(bandwidth).on_front for bandwidth in (1000, 100, 20)]
    fastest = [front[-1] for front in fronts]

    assert [point.sent_bytes for point in fastest] == sorted(
        (point.sent_bytes for point in fastest), reverse=True
    )
    assert [point.period_s for point in fastest] == sorted(point.period_s for point in fastest)
    assert fastest[0].sent_bytes > fastest[-1].sent_bytes
    for front, found in zip(fronts, (chain(each) for each in (1000, 100, 20)), strict=True):
        assert front[0].latency_s == min(point.latency_s for point in found.points)
        assert front[-1].period_s == min(point.period_s for point in found.points)
        for point in found.points:
            beaten = any(
                other.latency_s <= point.latency_s and other.period_s <= point.period_s for other in front
            )
            assert beaten


def test_the_faster_device_of_a_chain_gets_more_blocks():
    groups = [
        {"count": 1, "node": {"device": device, "devices": 1, "host": "cortex-a76"}}
        for device in ("raspberry-pi-4", "raspberry-pi-5")
    ]
    asked = job(
        model=model("timm.mobilenetv2_100"),
        cluster={"base": "raspberry-pi-4", "groups": groups},
        plan="pp=2 mbs=1 gbs=1 precision=fp32 stage_layers=9,9",
        inference=True,
    )
    found = best_split_points(asked)
    first, second = found.points[:2]

    assert (first.blocks, second.blocks) == ((18, 0), (0, 18))
    assert second.latency_s < first.latency_s
    best = found.on_front[-1]
    assert best.blocks[0] < best.blocks[1]
    assert best.period_s < second.period_s


def test_the_front_is_shown_and_other_jobs_are_refused():
    found = chain()
    data = split_points_json(found)["split_points"]

    assert len(data) == len(found.points)
    assert sum(each["on_front"] for each in data) == len(found.on_front)
    assert f"front     {len(found.on_front)} of 18 divisions" in split_points_text(found)
    with pytest.raises(SpecError, match="only a forward pass"):
        best_split_points(job("megatron-1.7b", cluster="jetson-agx-orin:2", plan="pp=2 gbs=2"))


def test_predictions_and_searches_price_the_same_messages_for_every_number_of_devices():
    def asked(**request):
        return JobRequest(
            cluster="raspberry-pi-4:3",
            inference=True,
            source=JobSource(document=Document("given", {"model": model("vgg16")}, {})),
            **request,
        )

    found = best_split_points(resolve_chain(asked(plan="precision=fp32")))
    assert len(found.points) == 1 + 10 + 10 * 9 // 2
    for blocks in ((8, 3, 0), (3, 5, 3), (3, 3, 5)):
        point = next(point for point in found.points if point.blocks == blocks)
        used = [number for number in blocks if number]
        divided = job(
            model=model("vgg16"),
            cluster=f"raspberry-pi-4:{len(used)}",
            plan=f"pp={len(used)} mbs=1 gbs=1 precision=fp32 stage_layers={','.join(map(str, used))}",
            inference=True,
        )
        report = predict(divided)
        assert report.timeline.step_time_s == pytest.approx(point.latency_s)
    sent_bytes = {point.blocks: point.sent_bytes for point in found.points}
    alone_s = found.points[0].latency_s
    launch_s = (
        divided.stack.host.forward_item_s / divided.cluster.node.host.speed_ratio
    )  # of the first kernel
    messages = 0.9 * 125e6 * (report.timeline.step_time_s - alone_s - 2 * (200e-6 + launch_s))
    assert messages == pytest.approx(sent_bytes[3, 8, 0] + sent_bytes[6, 5, 0], rel=1e-6)
