"""Requests with images: the work of towers against their FLOP, and passes against their parts."""

import numpy as np
import pytest
from serving.test_request_traffic import traffic_of

from flopcast.errors import SpecError
from flopcast.layers.images import Image
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.operators.base import AbstractOperator
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.instances import price_of
from flopcast.serving.lower import VISION, lower_passes
from flopcast.serving.memory import serving_memory
from flopcast.serving.serve import serve
from flopcast.spec.deployment import Deployment
from flopcast.spec.engine import Engine
from flopcast.spec.serving_job import ServingJob

MODELS = ("qwen2.5-vl-7b", "qwen3-vl-8b", "llava-1.5-7b")
IMAGES = (Image(width=1024, height=768, count=2),)
CLUSTER = catalog.cluster("dgx-h100", 1)
BOOK = load_serving_book(CLUSTER)


def job_of(traffic, name="qwen2.5-vl-7b", **plan):
    return ServingJob(
        model=catalog.model(name), cluster=CLUSTER, engine=catalog.engine("vllm"),
        plan=Deployment(**{"tp": 1, "replicas": 1, **plan}), traffic=traffic_of(traffic),
    )  # fmt: skip


def a_pass(new, sequences):
    one = np.array([[1.0]])
    return EnginePass(
        new_tokens=new * one, sequences=sequences * one, cached_tokens=new * one, pairs=new**2 / 2 * one
    )


def tower_flop(name, tokens, share):
    layers = lower_passes(
        catalog.model(name), Deployment(), Engine(name="vllm"), a_pass(tokens, 0.0), IMAGES, share
    )
    return sum(
        float(item.work.work().flop.item()) * layer.count
        for layer in layers
        for item in layer.items
        if item.component == VISION and isinstance(item.work, AbstractOperator)
    )


def test_a_prompt_computes_the_flop_of_its_images_and_a_half_of_it_half_of_them():
    for name in MODELS:
        counted = catalog.model(name).vision.step_flop(IMAGES, adapted=False, backward=False)
        whole = tower_flop(name, 3000.0, 1 / 3000)

        # the count has every product but those of attention inside a fused kernel
        assert counted <= whole <= 1.4 * counted, name
        assert tower_flop(name, 1500.0, 1 / 3000) == pytest.approx(whole / 2), name


def test_passes_that_only_decode_are_as_long_as_without_images():
    decoding = a_pass(32.0, 32.0)
    for degree in (1, 2):
        jobs = [
            job_of(f"rate=1/s prompt=500 output=50{images}", tp=degree)
            for images in ("", " images=2x1024x768")
        ]
        plain, with_images = (price_of(job, BOOK, decoding).by_component() for job in jobs)

        assert with_images.pop(VISION).item() == 0
        assert {name: each.item() for name, each in with_images.items()} == {
            name: each.item() for name, each in plain.items()
        }


def test_a_first_token_waits_for_the_tower_and_for_the_tokens_of_images():
    load = "rate=0.01/s arrivals=constant output=50 requests=20"
    job = job_of(f"{load} prompt=500 images=1024x1024")
    tokens = job.model.vision.tokens(job.traffic.images)
    longer = job_of(f"{load} prompt={500 + tokens}")
    of_images = price_of(job, BOOK, a_pass(500.0 + tokens, 1.0)).by_component()
    ttft_s, plain_s = (serve(each, BOOK).latencies["ttft"]["mean"].value for each in (job, longer))

    assert tokens == 37 * 37
    assert ttft_s - plain_s == pytest.approx(of_images[VISION].item(), rel=0.02)


def test_every_device_holds_its_part_of_the_tower():
    job = job_of("rate=1/s prompt=500 output=50 images=1024x768")
    without = job.model_copy(update={"model": job.model.model_copy(update={"vision": None})})
    extra = serving_memory(job).weight_bytes - serving_memory(without).weight_bytes
    tower = job.model.vision.layers(adapted=False)
    split = lower_passes(job.model, job.plan, job.engine, a_pass(1.0, 1.0))[1 : 1 + len(tower)]
    elements = sum(
        layer.count * float(weight.elements.item()) for layer in split for weight in layer.weights
    )

    assert extra == pytest.approx(2 * elements, rel=1e-6)
    assert 0.6e9 < elements < 0.7e9  # Qwen2.5-VL: 0.67 billion parameters


@pytest.mark.parametrize(
    ("name", "plan", "said"),
    [
        ("llama-3.1-8b", {}, "the model has no layers that read images"),
        ("llava-1.5-7b", {"tp": 32}, "the heads and MLPs of the vision tower"),
    ],
)
def test_what_cannot_read_images_is_refused(name, plan, said):
    with pytest.raises(SpecError, match=said):
        serve(job_of("rate=1/s prompt=500 output=50 images=336x336", name, **plan), BOOK)
