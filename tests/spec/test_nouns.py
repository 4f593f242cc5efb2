"""What holds for every noun that a user writes: frozen, strict, bounded, hashable, in the schema."""

import json
from typing import get_args

import pytest
from all_cases import all_cases
from conftest import make_job
from pydantic import BaseModel, ValidationError

from flopcast.errors import SpecError
from flopcast.library import catalog
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.batch import Batch, MicroBatch, RankBatch
from flopcast.spec.checkpoints import Checkpoint
from flopcast.spec.cluster import Cluster, Device, Host, Jitter, Node, NodeGroup, Sustained
from flopcast.spec.data_parallel import SingleTensors
from flopcast.spec.expert_software import ExpertSoftware
from flopcast.spec.job import Job
from flopcast.spec.layer_strategies import LayerStrategy
from flopcast.spec.length_distribution import LengthDistribution
from flopcast.spec.lengths import Lengths
from flopcast.spec.link_matrix import LinkMatrix
from flopcast.spec.loader import Loader, LoaderStage
from flopcast.spec.memory_tiers import HostMemory, Storage
from flopcast.spec.model import Model
from flopcast.spec.offload import Placement
from flopcast.spec.offload_software import OffloadSoftware
from flopcast.spec.operations import Draw, Facility, Power, Price, Reliability
from flopcast.spec.outer import Outer
from flopcast.spec.plan import Plan
from flopcast.spec.precision import CastCycles, NarrowProducts
from flopcast.spec.run_length import RunLength
from flopcast.spec.shards import ShardGroup
from flopcast.spec.site import RunShare, Site, SiteFactor, SiteRun
from flopcast.spec.slow_parts import SlowPart
from flopcast.spec.source import Source
from flopcast.spec.stack import (
    Contention,
    Derate,
    Gradients,
    HostCost,
    Memory,
    Optimizer,
    Pipeline,
    Sharding,
    Stack,
)
from flopcast.spec.switches import Switches
from flopcast.spec.tier import HashedPaths, Tier

JOB = make_job()
CLUSTER = catalog.cluster("selene", 2)
TIER, GROUP = CLUSTER.tiers[0], CLUSTER.groups[0]
EXAMPLES = {
    LayerStrategy: LayerStrategy(first=8, last=15, tensor_parallel=4),
    OwnSchedule: OwnSchedule(name="mine.csv", tasks=("F0 B0 W0",)),
    Batch: JOB.batch,
    Checkpoint: Checkpoint(method="lazy", every_steps=100),
    Cluster: CLUSTER,
    Contention: Contention(),
    Derate: Derate(),
    Device: CLUSTER.node.device,
    Draw: Draw(fraction=0.5),
    ExpertSoftware: ExpertSoftware(),
    Facility: Facility(),
    Gradients: Gradients(),
    Host: CLUSTER.node.host,
    HostCost: HostCost(),
    Jitter: Jitter(),
    Job: JOB,
    Memory: Memory(),
    MicroBatch: MicroBatch(seq=512, count=2),
    Lengths: Lengths(mean_tokens=2000.0),
    LengthDistribution: LengthDistribution(lengths="1024:3,4096:1", step_tokens=7168, rank_tokens=2048),
    Loader: Loader(stages=(LoaderStage(name="decode", sample_s=0.009),)),
    LoaderStage: LoaderStage(name="copy", sample_bytes=6e5, overlapped=False),
    Model: JOB.model,
    NarrowProducts: NarrowProducts(),
    CastCycles: CastCycles(),
    Node: CLUSTER.node,
    NodeGroup: GROUP,
    HostMemory: HostMemory(capacity_bytes=1e12, bytes_per_s=2e11),
    OffloadSoftware: OffloadSoftware(places=("optimizer:host",)),
    Outer: Outer(topk=64, bits=2, exchange="store"),
    Placement: Placement(kind="optimizer", tier="host"),
    Storage: Storage(capacity_bytes=1e13, read_bytes_per_s=1e10, write_bytes_per_s=5e9),
    Optimizer: Optimizer(),
    Pipeline: Pipeline(),
    Plan: JOB.plan,
    Power: Power(),
    Price: Price(device_usd_per_hour=2.1),
    RankBatch: RankBatch(micro_batches=(MicroBatch(documents=(24, 1000)),)),
    Reliability: Reliability(),
    RunLength: RunLength(samples=52_000, epochs=3),
    RunShare: RunShare(name="host", share=0.1, log_sigma_factor=0.2),
    Sharding: Sharding(),
    ShardGroup: ShardGroup(kind="gradients", ranks=8, messages="int4"),
    SingleTensors: SingleTensors(piece_s=1e-5),
    Site: Site(name="here", factors=(SiteFactor(name="host", ratio=1.1),)),
    SiteFactor: SiteFactor(name="host", ratio=1.1),
    SiteRun: SiteRun(ratio=1.03, log_sigma_factor=0.02),
    Source: Source(title="a data sheet"),
    Stack: JOB.stack,
    Switches: Switches(software="Megatron-LM", micro_batch="--micro-batch-size"),
    Sustained: Sustained(ratio=1.17, log_sigma_factor=0.06),
    Tier: TIER,
    SlowPart: SlowPart(kind="device", index=3, speed_fraction=0.8),
    HashedPaths: HashedPaths(devices=8, uplinks=8),
    LinkMatrix: LinkMatrix(rows=((0, 18000.0), (17000.0, 0)), order=(1, 0)),
}
NOUNS = all_cases("noun", EXAMPLES)


def as_data(value):
    """The noun as the mapping that a user would write."""
    return json.loads(value.model_dump_json())


def numbers_of(noun, kind):
    """Fields of one number."""
    return [
        name for name, field in noun.model_fields.items() if kind in (field.annotation, *get_args(field))
    ]


def refuses(noun, changes):
    try:
        noun.model_validate(as_data(EXAMPLES[noun]) | changes)
    except ValidationError:
        return True
    return False


def accepted(value):
    """Every number, of whatever noun, that takes this value."""
    return [
        f"{noun.__name__}.{name}"
        for noun in EXAMPLES
        for name in numbers_of(noun, float) + numbers_of(noun, int)
        if not refuses(noun, {name: value})
    ]


def hashes(value):
    try:
        return isinstance(hash(value), int)
    except TypeError:
        return False


def parts_of(noun):
    """A noun's class and those of its parts."""
    found = {noun}
    for field in noun.model_fields.values():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found:
                found |= parts_of(kind)
    return found


def test_every_part_of_a_job_is_looked_at_here():
    layers = {kind for kind in parts_of(Job) if kind.__module__.startswith("flopcast.layers")}

    assert parts_of(Job) - layers == set(EXAMPLES)


@NOUNS
def test_a_noun_survives_being_written_and_read(noun):
    value = EXAMPLES[noun]

    assert noun.model_validate(as_data(value)) == value


@NOUNS
def test_a_noun_refuses_a_key_that_it_does_not_know(noun):
    assert refuses(noun, {"colour": "red"})


@NOUNS
def test_a_noun_cannot_be_changed(noun):
    value = EXAMPLES[noun]
    name = next(iter(noun.model_fields))

    with pytest.raises(ValueError, match="frozen"):
        setattr(value, name, getattr(value, name))


def test_every_noun_can_be_the_key_of_a_cache():
    bare = [noun.__name__ for noun, value in EXAMPLES.items() if not hashes(value)]

    assert bare == []


@NOUNS
def test_no_number_of_a_noun_may_be_negative(noun):
    numbers = numbers_of(noun, float) + numbers_of(noun, int)

    assert [name for name in numbers if not refuses(noun, {name: -1})] == []


@pytest.mark.parametrize("endless", [float("inf"), "inf", "Infinity"], ids=repr)
def test_no_number_of_any_noun_may_be_infinite(endless):
    assert accepted(endless) == []


@pytest.mark.parametrize("hole", [float("nan"), "nan", "NaN"], ids=repr)
def test_no_number_of_any_noun_may_be_a_hole(hole):
    assert accepted(hole) == []


def test_no_number_of_any_noun_may_be_a_truth_value():
    assert accepted(True) == []


@all_cases(
    ("noun", "name"),
    [
        (Device, "memory_bytes"),
        (Device, "memory_bytes_per_s"),
        (Device, "multiprocessors"),
        (Device, "kernel_launch_s"),
        (Tier, "bytes_per_s"),
        (Tier, "attained_fraction"),
        (Host, "speed_ratio"),
        (Node, "devices"),
        (NodeGroup, "count"),
        (Gradients, "bucket_elements"),
        (Derate, "ratio"),
        (SiteFactor, "ratio"),
        (Jitter, "ratio"),  # the mean is never below the best
    ],
)
def test_what_divides_or_scales_a_time_is_not_zero(noun, name):
    assert refuses(noun, {name: 0})


def test_a_device_has_positive_finite_peaks():
    wrong = [0, -312e12, float("inf"), float("nan")]

    assert [peak for peak in wrong if not refuses(Device, {"peak_flop_per_s": {"bf16": peak}})] == []


def test_a_link_attains_no_more_than_its_bandwidth():
    assert refuses(Tier, {"attained_fraction": 1.01})


@pytest.mark.parametrize("empty", ["groups", "tiers"])
def test_a_cluster_has_nodes_and_links(empty):
    assert refuses(Cluster, {empty: []})


def test_the_devices_of_a_cluster_are_those_of_all_its_nodes():
    mixed = CLUSTER.model_copy(update={"groups": (GROUP, GROUP.model_copy(update={"count": 3}))})

    assert CLUSTER.num_devices == 2 * 8
    assert mixed.num_devices == 2 * 8 + 3 * 8


def test_the_schema_of_jobs_is_plain_json_and_knows_every_part():
    schema = json.loads(json.dumps(Job.model_json_schema()))

    assert set(schema["properties"]) == set(Job.model_fields)
    assert set(schema["required"]) == {"model", "cluster", "plan", "stack", "batch"}


def properties(schema, path=""):
    """Every property in a schema, by its path."""
    for name, each in schema.get("properties", {}).items():
        yield f"{path}.{name}", each
    for name, each in schema.items():
        for index, part in enumerate(each if isinstance(each, list) else [each]):
            if isinstance(part, dict):
                yield from properties(part, f"{path}.{name}[{index}]")


def test_every_property_of_the_schema_has_a_description():
    described = dict(properties(Job.model_json_schema()))

    assert len(described) > 400
    assert [path for path, each in described.items() if not each.get("description")] == []


def test_a_description_is_the_whole_entry_of_the_docstring_without_its_headings():
    nouns = Job.model_json_schema()["$defs"]

    assert nouns["NodeGroup"]["description"] == "A group of equal nodes."
    assert nouns["NodeGroup"]["properties"]["count"]["description"] == "Number of nodes."
    assert not any("----" in each["description"] for each in nouns.values())


def test_the_schema_lets_parts_be_named_as_job_files_do():
    parts = Job.model_json_schema()["properties"]

    deaf = [
        part
        for part in ("model", "cluster", "stack", "plan", "site")
        if "string" not in [branch.get("type") for branch in parts[part].get("anyOf", [parts[part]])]
    ]

    assert deaf == []


def test_the_schema_knows_the_short_names_of_a_plan():
    known = Job.model_json_schema()["$defs"]["Plan"]["properties"]

    assert {"dp", "tp", "pp", "vpp", "mbs", "gbs", "sp"} <= set(known)


def test_sequence_lengths_may_be_written_as_context_lengths():
    for text, tokens in (("32k", 32768), ("1.5k", 1536), ("4,096", 4096), ("1M", 2**20), ("2048", 2048)):
        assert Batch(sequence_length=text).sequence_length == tokens
    for text in ("1.5", "-4k", "0", "k", "32kB"):
        with pytest.raises(SpecError):
            Batch(sequence_length=text)
