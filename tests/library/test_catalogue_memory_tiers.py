"""Memory outside the devices in the catalogue, against the arithmetic of its channels, links and drives."""

import pytest
from all_cases import all_cases
from data_centre import CLUSTERS, DEVICES

from flopcast.library import catalog

EVERY_CLUSTER = all_cases("name", CLUSTERS)
WITH_DRIVES = [name for name in CLUSTERS if catalog.cluster(name).node.nvme is not None]

CHANNELS = {  # of a processor: channels of 64 bits, million transfers a second (data sheets)
    **dict.fromkeys(
        ("epyc-7763", "epyc-7543p", "epyc-7a53", "epyc-7r13", "epyc-7r32", "epyc-7v12"), (8, 3200)
    ),
    "epyc-9374f": (12, 4800),
    "epyc-9575f": (12, 6400),
    "xeon-e5-2698-v4": (4, 2400),
    **dict.fromkeys(("xeon-platinum-8168", "xeon-platinum-8175m"), (6, 2667)),
    **dict.fromkeys(("xeon-platinum-8259cl", "xeon-platinum-8275cl"), (6, 2933)),
    **dict.fromkeys(("xeon-platinum-8358", "xeon-platinum-8375c"), (8, 3200)),
    **dict.fromkeys(("xeon-platinum-8480", "xeon-platinum-8488c"), (8, 4800)),
    "xeon-e5-2690-v3": (4, 2133),
    "xeon-platinum-8570": (8, 5600),
    "xeon-6776p": (8, 6400),
    "grace": (8, 8000),  # LPDDR5X of 512 GB/s; with 480 GB, three quarters of it
}
OTHER_MODULES = {"dgx-1": (4, 2133), "gb200-nvl72": (8, 6000), "gb300-nvl72": (8, 6000)}
SOCKETS = {  # processors of a node; all other nodes have two
    **dict.fromkeys(("alps", "isambard-ai", "jupiter"), 4),
    **dict.fromkeys(("perlmutter", "perlmutter-40gb", "perlmutter-tcp", "polaris", "frontier", "vista"), 1),
    "leonardo": 1,
    **dict.fromkeys(("delta-a40", "gcp-n1", "rtx-a6000", "rtx-pro-6000-max-q", "piz-daint"), 1),
}


@EVERY_CLUSTER
def test_the_memory_of_a_node_is_as_fast_as_the_channels_of_its_processors(name):
    node = catalog.cluster(name).node
    channels, mega_transfers = OTHER_MODULES.get(name, CHANNELS[node.host.name])

    expected = SOCKETS.get(name, 2) * channels * mega_transfers * 1e6 * 8

    assert node.memory.bytes_per_s == pytest.approx(expected, rel=0.001)


@EVERY_CLUSTER
def test_a_node_has_at_least_half_as_much_memory_as_its_devices(name):
    """A Trainium 2 server and racks of Grace Blackwell have the least beside their devices."""
    node = catalog.cluster(name).node

    assert node.memory.capacity_bytes >= 0.5 * node.devices * node.device.memory_bytes


@EVERY_CLUSTER
def test_whole_groups_of_devices_share_a_link_to_the_host(name):
    node = catalog.cluster(name).node

    assert node.devices % node.memory.devices_per_link == 0


@EVERY_CLUSTER
def test_the_sources_of_a_cluster_cover_its_memory_outside_the_devices(name):
    cluster = catalog.cluster(name)
    covers = " ".join(source.covers for source in cluster.source)

    assert "memory" in covers
    assert cluster.node.nvme is None or "nvme" in covers
    assert cluster.file_system is None or "file_system" in covers


@all_cases("name", WITH_DRIVES)
def test_drives_are_no_faster_than_their_links_and_slower_than_the_memory_beside_them(name):
    """The fastest drives of the catalogue have four lanes of PCIe 4.0, which carry 8 GB/s."""
    node = catalog.cluster(name).node
    count = int(node.nvme.name.split(" × ")[0]) if "×" in node.nvme.name else 1

    assert node.nvme.write_bytes_per_s <= node.nvme.read_bytes_per_s <= count * 8e9
    assert node.nvme.read_bytes_per_s < node.memory.bytes_per_s


def test_a_node_that_zero_infinity_trained_one_trillion_parameters_on_holds_their_states():
    """16 bytes a parameter on the drives of one DGX-2, not in its memory (arXiv:2104.07857)."""
    node = catalog.cluster("dgx-2").node

    assert node.memory.capacity_bytes < 16e12 < node.nvme.capacity_bytes


def test_all_devices_of_a_dgx_2_together_copy_at_the_published_rate():
    """3 GB/s a device while all 16 copy, a quarter of what one of them reaches (figure 2b of the paper)."""
    node = catalog.cluster("dgx-2").node

    each = node.device.host_bytes_per_s / node.memory.devices_per_link

    assert each == pytest.approx(3.0e9, rel=0.1)


HOST_LINKS = {  # lanes of PCIe, GB/s of each in one direction; links of other kinds count as one lane
    **dict.fromkeys(("v100-pcie-16gb", "v100-sxm2-16gb", "v100-sxm2-32gb", "t4-16gb"), (16, 1)),
    **dict.fromkeys(("rtx-2080-ti-11gb", "p100-pcie-16gb"), (16, 1)),
    **dict.fromkeys(("a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb"), (16, 2)),
    **dict.fromkeys(("a800-sxm-80gb", "a100-sxm-64gb"), (16, 2)),
    **dict.fromkeys(("a10-24gb", "a10g-24gb", "a40-48gb", "l4-24gb", "l40-48gb", "l40s-48gb"), (16, 2)),
    **dict.fromkeys(("rtx-3090-24gb", "rtx-4080-16gb", "rtx-4090-24gb", "rtx-a6000-48gb"), (16, 2)),
    "gaudi2-96gb": (16, 2),
    **dict.fromkeys(("h100-sxm5-80gb", "h100-sxm5-96gb", "h100-pcie-80gb"), (16, 4)),
    **dict.fromkeys(("h200-sxm-141gb", "h200-nvl-141gb"), (16, 4)),
    **dict.fromkeys(("h20-96gb", "h800-sxm-80gb", "b200-sxm-180gb", "b200-simumax-180gb"), (16, 4)),
    **dict.fromkeys(("b300-sxm-288gb", "rtx-5090-32gb", "rtx-pro-6000-96gb", "gaudi3-128gb"), (16, 4)),
    "rtx-pro-6000-max-q-96gb": (16, 4),
    **dict.fromkeys(("mi300x-192gb", "mi325x-256gb", "mi350x-288gb", "mi355x-288gb"), (16, 4)),
    "arc-pro-b60-24gb": (8, 4),
    "h100-sxm5-64gb": (16, 4),
    **dict.fromkeys(("gh200-96gb", "gh200-144gb", "gb200-192gb", "gb300-288gb"), (1, 450)),  # NVLink-C2C
    "mi250x-gcd-64gb": (1, 36),  # Infinity Fabric (Frontier user guide)
}


@all_cases("name", HOST_LINKS)
def test_a_device_copies_from_its_host_at_four_fifths_of_its_link(name):
    """An H100 on PCIe 5.0 reaches 0.73 and 0.86 of it in its two directions (aigatech/vpbenchmarking)."""
    lanes, gb_per_s = HOST_LINKS[name]

    assert catalog.device(name).host_bytes_per_s == pytest.approx(0.8 * lanes * gb_per_s * 1e9, rel=0.03)


def test_every_gpu_has_a_link_to_its_host_here():
    other = ("tpu", "trainium")  # their links to the host are not public

    assert {name for name in DEVICES if not name.startswith(other)} == set(HOST_LINKS)
