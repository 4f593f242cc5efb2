"""The devices, hosts and clusters of the catalogue that stand in data centres and workstations.

Boards, phones and laptops have fewer facts, and tests of their own (tests/graph/test_edge_devices.py).
"""

from flopcast.library import catalog

EDGE_DEVICES = (
    "core-i7-1165g7",
    "jetson-agx-orin-64gb",
    "jetson-nano-4gb",
    "jetson-orin-nano-8gb",
    "raspberry-pi-4",
    "raspberry-pi-5",
    "snapdragon-865",
)
EDGE_HOSTS = ("core-i7-1165g7", "cortex-a72", "cortex-a76", "cortex-a78ae")
DEVICES = [name for name in catalog.names("devices") if name not in EDGE_DEVICES]
HOSTS = [name for name in catalog.names("hosts") if name not in EDGE_HOSTS]
CLUSTERS = [
    name for name in catalog.names("clusters") if catalog.cluster(name).node.device.name not in EDGE_DEVICES
]
