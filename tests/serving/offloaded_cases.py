"""Machines and measured runs of engines whose weights and caches are outside the device.

The rates are those of data/offload/offload_inference_throughput.yaml.
"""

from flopcast import serving_job

A6000 = {
    "name": "a6000",
    "memory_bytes": "45 GiB",
    "memory_bytes_per_s": "768 GB/s",
    "peak_flop_per_s": {"fp16": "154.8 TFLOP/s", "bf16": "154.8 TFLOP/s", "fp32": "38.7 TFLOP/s"},
    "multiprocessors": 84,
    "kernel_launch_s": "3 us",
    "host_bytes_per_s": "25 GB/s",
    "relatives": ["a100-sxm4-80gb"],
}
MEMORY = {"capacity_bytes": "252 GB", "bytes_per_s": "200 GB/s"}
NVME = {"capacity_bytes": "2 TB", "read_bytes_per_s": "5.6 GB/s", "write_bytes_per_s": "4 GB/s"}
LINK = {"name": "pcie", "devices": 0, "bytes_per_s": "32 GB/s", "latency_s": "8 us"}


def machine(device=A6000, memory=MEMORY, nvme=NVME, **changes):
    """Return a cluster of one node of one device."""
    node = {"device": {**device, **changes} if isinstance(device, dict) else device, "devices": 1}
    node |= {"host": "epyc-7763", "memory": memory, "nvme": nvme}
    return {"name": "one", "groups": [{"count": 1, "node": node}], "tiers": [LINK]}


def job_of(model="opt-30b", engine="flexgen", plan="weights_on=host", batch=48, lengths=(512, 32), **given):
    """Return a job of one batch on one device."""
    prompt, output = lengths
    limits = f"tp=1 max_sequences={batch} max_tokens={batch * prompt} {plan}"
    traffic = f"concurrency={batch} prompt={prompt} output={output} requests={batch}"
    cluster = given.pop("cluster", None) or machine(**given)
    return serving_job(model, engine=engine, cluster=cluster, plan=limits, traffic=traffic)
