"""Which measurements belong to which fabric, by the conventions that their own notes state."""

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.lab.calibration.collective_files import FABRICS
from flopcast.lab.samples.columns import read_columns
from flopcast.library import catalog

FILES = {f"{file.fabric}:{file.collective}": file for file in FABRICS}
PAPER_ROW = {  # 2 nodes of 4: each rank passes in 1000 fp16 elements, 50 us
    "nodes": np.array([2.0]),
    "gpus_per_node": np.array([4.0]),
    "elements": np.array([1000.0]),
    "message_bytes": np.array([2000.0]),
    "time_us": np.array([50.0]),
}


def rows_of(shared, file):
    """The rows of a file that are used: size, ranks inside, nodes, seconds."""
    columns = read_columns(shared / "data" / file.path).columns
    keep = file.keep(columns)
    rows = {name: values[keep] for name, values in columns.items()}
    return file.size_bytes(rows), file.inside(rows), file.nodes(rows), file.seconds(rows)


def bus_bytes_per_s(file, size, inside, nodes, seconds):
    """Bus bandwidth by nccl-tests' definition (doc/PERFORMANCE.md)."""
    ranks = inside * nodes
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "send_receive": 1.0}.get(
        file.collective, (ranks - 1) / ranks
    )
    return factor * size / seconds


@all_cases("name", FILES)
def test_a_file_belongs_to_a_tier_that_exists_and_a_collective_that_is_priced(name):
    file = FILES[name]
    tiers = {tier.name: tier for tier in catalog.cluster(file.cluster).tiers}

    assert tiers[file.tier].fabric == file.fabric
    assert file.collective in FORMULAS


@all_cases("name", FILES)
def test_a_file_gives_rows_that_are_messages_between_ranks(shared, name):
    size, inside, nodes, seconds = rows_of(shared, FILES[name])

    assert len(size) > 50
    assert (size > 0).all()
    assert (inside * nodes >= 2).all()
    assert ((seconds > 1e-6) & (seconds < 100)).all()


@all_cases("name", FILES)
def test_rows_lie_on_the_tier_that_they_are_measured_for(shared, name):
    """Inside a node: one node. Between nodes: several."""
    file = FILES[name]
    cluster = catalog.cluster(file.cluster)
    _, inside, nodes, _ = rows_of(shared, file)

    assert (inside <= cluster.node.devices).all()
    assert ((nodes > 1) == (file.tier == cluster.tiers[-1].name)).all()


@all_cases("name", FILES)
def test_no_used_row_beats_the_links_of_its_tier(shared, name):
    """With every rank of a node on its own network card; a wrong unit or convention would."""
    file = FILES[name]
    tier = next(tier for tier in catalog.cluster(file.cluster).tiers if tier.name == file.tier)
    size, inside, nodes, seconds = rows_of(shared, file)

    bus = bus_bytes_per_s(file, size, inside, nodes, seconds)

    assert (bus <= np.where(nodes > 1, inside, 1.0) * tier.bytes_per_s).all()


def test_a_gathered_message_is_what_all_ranks_give_together():
    file = FILES["perlmutter-tcp:all_gather"]

    assert file.size_bytes(PAPER_ROW).item() == 8 * 2000.0


def test_a_reduced_message_is_what_one_rank_gives():
    assert FILES["perlmutter-tcp:all_reduce"].size_bytes(PAPER_ROW).item() == 2000.0


def test_a_transfer_between_nodes_joins_one_rank_of_each():
    """data/README.md: send from rank 0 to the last rank, however many ranks a node has."""
    file = FILES["perlmutter-tcp:send_receive"]

    assert (file.inside(PAPER_ROW).item(), file.nodes(PAPER_ROW).item()) == (1.0, 2.0)


@all_cases("name", FILES)
def test_times_are_seconds(name):
    file = FILES[name]
    row = PAPER_ROW | {"out_of_place_us": np.array([50.0])}

    assert file.seconds(row).item() == pytest.approx(50e-6)


@pytest.mark.parametrize(
    ("name", "bus_gb_per_s"),
    [  # medians of large messages; data/README.md, defect 6; peers/README.md
        ("perlmutter-tcp:all_reduce", 1.2),
        ("perlmutter-tcp:all_gather", 1.2),
        ("a100-nvswitch:all_reduce", 219.0),
    ],
)
def test_large_messages_reach_the_bus_bandwidth_that_the_notes_state(shared, name, bus_gb_per_s):
    file = FILES[name]
    size, inside, nodes, seconds = rows_of(shared, file)
    wanted = (inside == 1) if nodes.max() > 1 else (inside == 8) & (size >= 256 * 2**20)

    bus = bus_bytes_per_s(file, size, inside, nodes, seconds)[wanted]

    assert np.median(bus) == pytest.approx(bus_gb_per_s * 1e9, rel=0.12)


def test_what_is_left_out_is_not_fitted():
    """The gathers of GH200, and those of A100 inside a node."""
    used = {(file.fabric, file.collective) for file in FABRICS}

    assert ("vista-ndr", "all_gather") not in used
    assert ("perlmutter-nvlink", "all_gather") not in used
