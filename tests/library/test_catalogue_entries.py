"""Every entry of the catalogue loads, names its sources and what exists, and can be predicted with."""

import math
import re

import pytest
from all_cases import all_cases
from data_centre import DEVICES
from job_cases import LINES

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.library import catalog
from flopcast.library.curves import load_owner
from flopcast.predictor import Predictor
from flopcast.requests.job_files import job_of, load_catalog_job
from flopcast.spec.model import WHOLE
from flopcast.workload.checks import check
from flopcast.workload.rewrites import REWRITES

LOAD = {
    "devices": catalog.device,
    "hosts": catalog.host,
    "clusters": catalog.cluster,
    "models": catalog.model,
    "stacks": catalog.stack,
    "engines": catalog.engine,
    "sites": catalog.site,
    "prices": catalog.price,
}
ENTRIES = [(kind, name) for kind in catalog.KINDS for name in catalog.names(kind)]
JOBS = sorted(
    f"{folder.name}/{file.name.removesuffix('.yaml')}"
    for folder in catalog.folder("jobs").iterdir()
    for file in folder.iterdir()
)
EVERY_ENTRY = all_cases(("kind", "name"), ENTRIES)


def test_every_kind_has_a_loader_and_all_but_sites_have_entries():
    assert set(LOAD) == set(catalog.KINDS)
    assert [kind for kind in catalog.KINDS if not catalog.names(kind)] in ([], ["sites"])


@EVERY_ENTRY
def test_an_entry_loads_under_the_name_of_its_file(kind, name):
    assert LOAD[kind](name).name == name


@EVERY_ENTRY
def test_an_entry_says_where_its_numbers_come_from(kind, name):
    sources = LOAD[kind](name).source

    assert sources
    assert all(source.title.strip() and source.covers.strip() for source in sources)
    assert all(source.url == "" or source.url.startswith("https://") for source in sources)


@all_cases("name", catalog.names("prices"))
def test_a_price_is_of_a_known_device_and_of_a_day(name):
    price = catalog.price(name)

    assert price.device in catalog.names("devices")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", price.date)
    assert price.terms in ("on_demand", "reserved")
    if name in catalog.names("clusters"):
        assert catalog.cluster(name).price is price
        assert catalog.cluster(name).node.device.name == price.device


@all_cases("name", DEVICES)
def test_a_board_power_is_that_of_a_card_or_module_and_has_a_source(name):
    device = catalog.device(name)

    assert device.board_power_w is None or 70 <= device.board_power_w <= 1500
    assert (device.board_power_w is None) != any(s.covers == "board_power_w" for s in device.source)


@EVERY_ENTRY
def test_a_name_is_a_lower_case_slug(kind, name):
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name)


@EVERY_ENTRY
def test_an_entry_is_loaded_once(kind, name):
    assert LOAD[kind](name) is LOAD[kind](name)


@all_cases("kind", catalog.KINDS)
def test_a_name_that_no_entry_has_is_told_with_those_that_there_are(kind):
    with pytest.raises(SpecError) as told:
        LOAD[kind]("nonesuch")

    (problem,) = told.value.problems
    assert problem.value == "nonesuch"
    named = set(problem.allowed.split(", "))
    assert len(named & set(catalog.names(kind))) >= min(24, len(catalog.names(kind)))
    assert kind in problem.fix or "did you mean" in problem.fix


@all_cases(
    ("written", "clusters"),
    [
        ("t4", ["gcp-n1", "aws-g4dn"]),
        ("t4-16gb", ["gcp-n1", "aws-g4dn"]),
        ("L4", ["aws-g6", "gcp-g2"]),
        ("b200", ["dgx-b200", "aws-p6-b200", "simumax-b200", "gcp-a4"]),
        ("gh200_144gb", ["gh200-nvl2"]),
        # words of vendors, brands and memories, and as nvidia-smi names devices
        ("tesla-t4", ["gcp-n1", "aws-g4dn"]),
        ("nvidia-l4", ["aws-g6", "gcp-g2"]),
        ("NVIDIA GeForce RTX 4090", ["rtx-4090-8"]),
        ("nvidia-rtx4090", ["rtx-4090-8"]),
        ("Tesla V100-SXM2-32GB", ["dgx-2", "aws-p3dn"]),
        # words of a cluster beside those of a device
        ("gcp-h100", ["gcp-a3-high", "gcp-a3-mega"]),
        ("aws-t4", ["aws-g4dn"]),
        ("dgx-a10", ["dgx-a100"]),
    ],
)
def test_a_device_in_the_place_of_a_cluster_is_answered_with_the_clusters_that_have_it(written, clusters):
    problem = catalog.unknown_name("clusters", written)

    first = f"{', '.join(clusters[:-1])} or " if len(clusters) > 1 else ""
    assert problem.fix == f"did you mean {first}{clusters[-1]}?"
    devices = [f"{name} ({catalog.cluster(name).node.device.name})" for name in clusters]
    assert len(clusters) == 1 or ", ".join(devices) in problem.because


def test_of_many_clusters_with_a_device_the_error_names_five():
    problem = catalog.unknown_name("clusters", "h100")
    named = problem.fix.replace(" or ", ", ").split(", ")

    assert len(named) == 5 == problem.because.count("(h100-")
    assert named[0] == "did you mean dgx-h100"
    for written in ("nvidia-h100", "h100-sxm", "NVIDIA H100 80GB HBM3"):
        assert "dgx-h100 (h100-sxm5-80gb)" in catalog.unknown_name("clusters", written).because


def test_a_vendor_before_a_device_does_not_hide_it():
    """Names of devices as nvidia-smi, vendors and people write them."""
    for written, name in (
        ("tesla-t4", "t4-16gb"),
        ("NVIDIA L40S", "l40s-48gb"),
        ("amd-mi300", "mi300x-192gb"),
    ):
        assert catalog.unknown_name("devices", written).fix.startswith(f"did you mean {name}? ")


@all_cases("name", ["../models/gpt3", "../devices/h100-pcie-80gb", "gpt3-175b.yaml", "", "."])
def test_a_name_is_no_path(name):
    with pytest.raises(SpecError):
        catalog.model(name)


@all_cases("name", catalog.names("clusters"))
def test_a_cluster_names_devices_hosts_and_fabrics_that_exist(name):
    cluster = catalog.cluster(name)

    for group in cluster.groups:
        assert group.node.device == catalog.device(group.node.device.name)
        assert group.node.host == catalog.host(group.node.host.name)
    for tier in cluster.tiers:
        assert not tier.fabric or load_owner(tier.fabric), tier.fabric


@all_cases("name", catalog.names("clusters"))
def test_the_tiers_of_a_cluster_widen_and_slow_down_until_all_devices_share_one(name):
    tiers = catalog.cluster(name).tiers
    widths = [tier.devices or math.inf for tier in tiers]

    assert widths == sorted(set(widths))
    assert widths[-1] == math.inf
    assert [tier.bytes_per_s for tier in tiers] == sorted((t.bytes_per_s for t in tiers), reverse=True)
    assert [tier.latency_s for tier in tiers] == sorted(tier.latency_s for tier in tiers)


@all_cases("name", catalog.names("clusters"))
@all_cases("nodes", [1, 7])
def test_a_part_of_a_cluster_differs_in_its_size_alone(name, nodes):
    whole, part = catalog.cluster(name), catalog.cluster(name, nodes)

    assert part.num_devices == nodes * whole.node.devices
    assert part.model_dump(exclude={"groups"}) == whole.model_dump(exclude={"groups"})
    assert part.node == whole.node


@all_cases("name", DEVICES)
def test_the_relatives_of_a_device_have_curves(name):
    device = catalog.device(name)

    assert set(device.relatives) <= set(catalog.names("devices"))
    assert all(load_owner(owner) for owner in device.relatives)


@all_cases("name", DEVICES)
def test_narrower_numbers_are_never_slower(name):
    peaks = catalog.device(name).peak_flop_per_s

    widest = max(peaks.get("fp16", 0.0), peaks.get("bf16", 0.0))
    assert peaks["fp32"] < widest <= peaks.get("fp8", math.inf)


@all_cases("name", catalog.names("stacks"))
def test_a_stack_names_rewrites_that_exist(name):
    assert set(catalog.stack(name).rewrites) <= set(REWRITES)


@all_cases("name", catalog.names("models"))
def test_a_model_has_whole_heads_and_every_weight_has_a_size(name):
    model = catalog.model(name)

    sizes = [
        weight.total
        for layer, _ in model.sequence()
        for weight in layer.weights(model.hidden, WHOLE)
        if not weight.tied
    ]

    assert min(sizes) > 0
    mixers = [block.mixer for block in model.blocks]
    assert all(mixer.is_recurrent or model.hidden % mixer.heads == 0 for mixer in mixers)


DATA_SHEETS = {  # memory bytes per s, dense bf16 FLOP/s, multiprocessors
    "a100-sxm4-80gb": (2.039e12, 312e12, 108),  # NVIDIA A100 80GB SXM data sheet
    "gh200-96gb": (4.0e12, 989e12, 132),  # NVIDIA GH200 data sheet: dense is half of the sparse 1979
}


@all_cases("name", DATA_SHEETS)
def test_a_device_is_as_fast_as_its_data_sheet_says(name):
    device = catalog.device(name)

    found = (device.memory_bytes_per_s, device.peak_flop_per_s["bf16"], device.multiprocessors)

    assert found == pytest.approx(DATA_SHEETS[name], rel=1e-12)


LINKS = {  # one direction per device: (cluster, tier) → what the maker says
    ("dgx-a100", "nvlink"): 600e9 / 2,  # NVLink 3: 600 GB/s both directions
    ("dgx-a100", "infiniband"): 200e9 / 8,  # one HDR card of 200 Gb/s for each device
    ("selene", "infiniband"): 200e9 / 8,
    ("perlmutter", "slingshot"): 200e9 / 8,  # four Slingshot 11 cards for four devices
    ("perlmutter-tcp", "slingshot"): 200e9 / 8,
    ("vista", "infiniband"): 400e9 / 8,  # NDR
}


@all_cases(("cluster", "tier"), LINKS)
def test_a_link_has_the_bandwidth_of_its_hardware(cluster, tier):
    (found,) = [each for each in catalog.cluster(cluster).tiers if each.name == tier]

    assert found.bytes_per_s == LINKS[cluster, tier]


@pytest.mark.parametrize(
    ("name", "devices"),
    [("selene", 560 * 8), ("vista", 600), ("dgx-a100", 8)],  # selene: 4480 A100, TOP500 of 2021
)
def test_a_cluster_is_as_large_as_the_machine(name, devices):
    assert catalog.cluster(name).num_devices == devices


@pytest.mark.parametrize("name", ["perlmutter", "perlmutter-tcp"])
def test_perlmutter_has_256_nodes_whose_devices_hold_80_gigabytes(name):
    cluster = catalog.cluster(name)  # docs.nersc.gov: 1794 GPU nodes, 256 of them with large memory

    assert cluster.node.device.memory_bytes > 79e9
    assert cluster.groups[0].count == 256


@all_cases("name", JOBS)
def test_a_job_of_the_catalogue_keeps_every_rule(name):
    assert check(load_catalog_job(name)) == ()


def job(model, stack, stages):
    """The model on Selene: as many ranks as share its heads, `stages` nodes in a pipeline."""
    tp, made = tensor_parallel(model), catalog.model(model)
    sparse = made.active_parameters() < made.parameters()  # experts: each rank routes tokens of its own
    plan = f"dp={8 // tp} tp={tp} pp={stages} mbs=1 gbs={16 // tp * stages} recompute=full precision=fp16"
    plan += " sp" if sparse and tp > 1 else ""
    plan += " zero=1" if catalog.stack(stack).gradients.collective == "reduce_scatter" else ""
    parts = LINES | {"model": model, "stack": stack, "cluster": f"selene:{stages}", "plan": plan}
    length = made.learned_positions or 2048
    return job_of(Document("test", parts | {"batch": {"sequence_length": min(2048, length)}}, {}))


def tensor_parallel(model):
    """The most ranks, up to eight, that hold whole heads and whole key/value heads."""
    mixers = [block.mixer for block in catalog.model(model).blocks]
    return next(
        ranks
        for ranks in (8, 4, 2, 1)
        if all(m.heads % ranks == 0 and 0 in (m.groups % ranks, ranks % m.groups) for m in mixers)
    )


def smallest_that_fits(model, stack, predictor):
    """The job with the shortest pipeline that holds the model."""
    blocks = catalog.model(model).num_blocks
    uneven = catalog.stack(stack).pipeline.partition != "even"
    stages = [
        n
        for n in range(1, blocks + 1)
        if blocks % n == 0 or (uneven and blocks // 2 < n <= blocks // 2 + 4)
    ]
    jobs = (job(model, stack, count) for count in stages)
    return next(each for each in jobs if predictor.memory(each).fits)


SERVED = ("deepseek-v3.2", "glm-5")  # no stack trains sparse attention yet
PARTS = 60
DEALT = [  # each stack predicts two models or three, and no two stacks the same ones
    (model, stack)
    for at, stack in enumerate(catalog.names("stacks"))
    for model in catalog.names("models")[7 * at % PARTS :: PARTS]
    if model not in SERVED
]


@pytest.fixture(scope="module")
def predictor():
    """Keeps what jobs have in common."""
    return Predictor()


@all_cases(("model", "stack"), DEALT)
def test_every_stack_is_predicted_where_a_model_fits(model, stack, predictor):
    made = smallest_that_fits(model, stack, predictor)

    report = predictor.predict(made)

    tokens = made.plan.global_batch * made.batch.sequence_length
    flop = 3 * 2 * tokens * catalog.model(model).active_parameters()
    fastest_s = flop / (made.cluster.num_devices * 312e12)
    assert report.memory.fits
    assert fastest_s < report.step_time_s < 1000 * fastest_s
    assert report.step_time_low_s < report.step_time_s < report.step_time_high_s
    assert 0 < report.metrics.mfu_ratio < 1


def test_software_that_runs_an_engine_of_the_catalogue_leads_to_this_engine():
    engines = {"ollama": "llama.cpp", "MLC-LLM": "vllm", "deepspeed-mii": "vllm", "nim": "vllm"}
    for name, engine in engines.items():
        problem = catalog.unknown_name("engines", name)

        assert f"{name} runs or resembles {engine}" in problem.because, name
        assert engine in problem.fix, name
