"""Releases of engines: which entry describes one, what differs, and how much wider intervals are."""

import math
import re

import numpy as np
import pytest
from release_fit import Deviation, fit, without_each_source

from flopcast import predict_serving, report_page
from flopcast.errors import SpecError
from flopcast.jobs import serving_job
from flopcast.library import catalog
from flopcast.library.engine_releases import engine_of_release
from flopcast.records import replace

TRAFFIC = "concurrency=8 prompt=500 output=100 requests=40"
OLDER = [name for name in catalog.names("engines") if catalog.engine(name).base]


def report_of(engine, model="llama-3.1-8b", traffic=TRAFFIC):
    plan = "tp=1 replicas=1 weights=bf16"
    job = serving_job(model, engine=engine, cluster="dgx-h200", gpus=1, plan=plan, traffic=traffic)
    return predict_serving(job)


def width_of(estimate):
    """Return the logarithms of the distances from an estimate to both ends of its interval."""
    return math.log(estimate.value / estimate.low), math.log(estimate.high / estimate.value)


def test_versions_and_months_select_the_entry_of_their_era():
    """Release notes state the boundaries: V1 in vLLM 0.8.0, an overlapped scheduler in SGLang 0.4."""
    cases = (
        ("vllm", "0.2.0", "vllm-0.5"),
        ("vllm", "0.5.5", "vllm-0.5"),
        ("vllm", "0.6.0", "vllm-0.6"),
        ("vllm", "v0.7.3", "vllm-0.6"),
        ("vllm", "0.8.0", "vllm-0.8"),
        ("vllm", "0.10.2", "vllm-0.8"),
        ("vllm", "0.11.0", "vllm-0.11"),
        ("vllm", "0.13.0", "vllm-0.11"),
        ("vllm", "0.14.0", "vllm"),
        ("vllm", "1.0", "vllm"),
        ("vllm", "2024-10", "vllm-0.6"),
        ("vllm", "2025-09", "vllm-0.8"),
        ("vllm", "unknown", "vllm"),
        ("vllm-0.8", "0.6.3", "vllm-0.6"),
        ("sglang", "0.3.6.post2", "sglang-0.3"),
        ("sglang", "0.4.0", "sglang-0.4"),
        ("tensorrt-llm", "0.16.0", "tensorrt-llm-0.5"),
        ("tensorrt-llm", "0.17.0.post1", "tensorrt-llm-0.17"),
        ("tensorrt-llm", "1.2.0rc6", "tensorrt-llm"),
    )
    for name, release, entry in cases:
        assert engine_of_release(name, release) == entry, (name, release)
    for text, name, release in (
        ("vllm-0.6.3", "vllm-0.6", "0.6.3"),
        ("sglang==0.4.1", "sglang-0.4", "0.4.1"),
        ("vllm-0.6", "vllm-0.6", ""),
        ({"base": "vllm", "release": "2025-08"}, "vllm-0.8", "2025-08"),
    ):
        engine = report_of(text).job.engine
        assert (engine.name, engine.release) == (name, release)


def test_other_texts_are_errors_that_say_what_a_release_is():
    for name, release, words in (
        ("vllm", "newest", "a version such as 0.6.3"),
        ("vllm", 0.1, "vllm-0.10"),  # YAML reads 0.10 as the number 0.1
        ("llama.cpp", "b4567", "does not distinguish releases"),
    ):
        with pytest.raises(SpecError, match=words):
            engine_of_release(name, release)


def test_an_entry_of_older_releases_has_the_fields_of_its_base_but_for_those_it_states():
    for name in OLDER:
        engine, data = catalog.engine(name), catalog.document("engines", name).data
        base = catalog.engine(engine.base)

        assert base.base == ""
        assert engine.first_month < engine.era < base.first_month or engine.first_month == engine.era
        assert engine.weights == base.weights
        assert data["source"][-len(base.source) :] == list(
            catalog.document("engines", base.name).data["source"]
        )


def test_each_era_of_vllm_decodes_faster_than_the_one_before():
    """The blogs of vLLM state 5 (0.6.0) and up to 1.7 times (V1) for Llama-3-8B on one H100."""
    tpot_s = [
        report_of(name).latencies["tpot"]["mean"].value
        for name in ("vllm-0.5", "vllm-0.6", "vllm-0.8", "vllm-0.11", "vllm")
    ]
    assert tpot_s == sorted(tpot_s, reverse=True)
    assert 1.2 < tpot_s[1] / tpot_s[2] < 2.0


def test_without_graphs_a_pass_takes_as_long_as_its_launches():
    """TensorRT-LLM 0.17 launches each kernel from Python, in 60 us."""
    old, new = report_of("tensorrt-llm-0.17"), report_of("tensorrt-llm")
    assert old.latencies["tpot"]["mean"].value > 60e-6 * new.decode_kernels
    assert new.latencies["tpot"]["mean"].value < 60e-6 * new.decode_kernels


def test_piecewise_graphs_cost_their_time_once_for_each_layer():
    without = {"base": "vllm-0.8", "iteration": {"decode_layer_s": "0 s"}}
    alone = "concurrency=1 prompt=8 output=100 requests=2"
    tpot_s = [
        report_of(each, traffic=alone).latencies["tpot"]["mean"].value for each in ("vllm-0.8", without)
    ]
    layer_s = catalog.engine("vllm-0.8").iteration.decode_layer_s
    assert tpot_s[0] - tpot_s[1] == pytest.approx(32 * layer_s, rel=0.01)


def test_intervals_of_older_releases_are_wider_towards_longer_times():
    """The variance grows with the age, and more for models with experts; newer releases have no doubt."""
    known = width_of(report_of("vllm").latencies["tpot"]["mean"])
    widths = [
        width_of(report_of(f"vllm-{month}").latencies["tpot"]["mean"]) for month in ("2025-06", "2025-03")
    ]
    newer = width_of(report_of("vllm-0.30").latencies["tpot"]["mean"])
    unknown = width_of(report_of({"base": "vllm", "release": "unknown"}).latencies["tpot"]["mean"])

    assert newer == pytest.approx(known)
    assert unknown[1] > known[1]
    assert all(slower > faster for faster, slower in widths)
    assert known[1] < widths[0][1] < widths[1][1]
    dense, experts = (
        report_of("vllm-2025-03", model).factors["unknown_release[vllm-0.8 (2025-03)]"]
        for model in ("llama-3.1-8b", "gpt-oss-20b")
    )
    assert experts.log_sigma_factor > dense.log_sigma_factor > dense.below


def test_a_report_of_an_older_release_names_it_and_the_measurements_of_the_fit():
    job = report_of("vllm-0.6.3").job
    assert job.engine.label == "vllm-0.6 (0.6.3, 2024-12)"
    assert any("constants were fitted to releases of 2025-10 and later" in note for note in job.assumptions)
    assert not any("constants were fitted" in note for note in report_of("vllm").job.assumptions)


def test_the_doubt_is_found_again_from_sources_that_it_made():
    """Each value has an error of its own: on each side, as many as its sigma is large."""
    random = np.random.default_rng(0)
    one = Deviation(source="", age=2.0, log_ratio=0.0, faster=0.01, slower=0.01)
    found = [
        replace(one, source=f"{sigma} {n}", log_ratio=sign * math.sqrt(2.0) * sigma * abs(random.normal()))
        for sign, sigma, number in ((-1, 0.2, 200), (1, 0.5, 500))
        for n in range(number)
    ]

    assert fit(found) == pytest.approx((0.2, 0.5), abs=0.051)
    assert set(without_each_source(found[:3])) == {each.source for each in found[:3]}


def test_the_page_names_the_release_and_its_command_selects_it():
    report = report_of({"base": "vllm", "release": "2024-10"})

    page = report_page(report)

    command = re.search(r"flopcast predict [^<]*", page)[0]
    assert "vllm-0.6 (2024-10)" in page
    assert "--engine vllm-0.6 engine.release=2024-10 " in command
