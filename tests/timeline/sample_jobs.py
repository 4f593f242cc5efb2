"""Jobs that between them use every transfer style, schedule and way to reduce gradients."""

from functools import cache

from conftest import make_job
from workbench import priced_job

OVERLAPPED = {
    "base": "megatron-2022",
    "contention": {"kernel_share": 0.0},
    "gradients": {"overlap": True},
    "pipeline": {"transfers": "overlapped"},
}
SHARDED = {
    "base": "megatron-core",
    "contention": {"kernel_share": 0.0},
    "gradients": {"overlap": True},
    "sharding": {"unit_copies": ["unflatten"]},
}
WIDE = {  # large gradients: a chunk's reduction lasts longer than its backward
    "hidden": 8192,
    "vocabulary": 51200,
    "blocks": [{"count": 8, "mixer": {"heads": 64}, "feed_forward": {"ffn_hidden": 32768}}],
}
PARTS = {
    "one device a replica": {"plan": "dp=8 mbs=1 gbs=16 precision=fp16"},
    "one micro-batch": {"plan": "dp=4 tp=2 mbs=2 gbs=8 zero=1 precision=fp16", "stack": "megatron-2022"},
    "batched": {"cluster": "dgx-a100:4", "plan": "tp=8 pp=4 sp gbs=16 recompute=selective precision=fp16"},
    "batched, interleaved": {"cluster": "dgx-a100:4", "plan": "tp=8 pp=4 vpp=2 gbs=16 precision=fp16"},
    "sequential": {
        "cluster": "perlmutter:8",
        "stack": "gpt-neox-deepspeed",
        "plan": "dp=2 tp=4 pp=4 zero=1 recompute=full gbs=32 precision=fp16",
    },
    "overlapped": {
        "cluster": "dgx-a100:4",
        "stack": OVERLAPPED,
        "plan": "dp=4 tp=2 pp=4 gbs=32 precision=fp16",
    },
    "reductions that queue": {
        "model": WIDE,
        "cluster": "dgx-a100:4",
        "stack": OVERLAPPED,
        "plan": "dp=16 pp=2 vpp=4 gbs=64 precision=fp16",
    },
    "sharded": {"stack": SHARDED, "plan": "dp=8 zero=3 gbs=24 precision=bf16"},
    "sharded, in one micro-batch": {"stack": SHARDED, "plan": "dp=4 tp=2 sp zero=3 gbs=4 precision=bf16"},
    "sharded over stages": {
        "cluster": "dgx-a100:4",
        "stack": SHARDED,
        "plan": "dp=4 tp=2 pp=4 zero=3 gbs=32 precision=bf16",
    },
    "gradients sharded, nothing overlapped": {
        "stack": "megatron-core",
        "plan": "dp=8 zero=2 gbs=24 precision=bf16",
    },
    "gathered under the next forward": {
        "cluster": "dgx-a100:4",
        "stack": {
            "base": "megatron-core",
            "contention": {"kernel_share": 0.0},
            "gradients": {"overlap": True, "overlap_gather": True},
        },
        "plan": "dp=8 pp=4 zero=1 gbs=64 precision=bf16",
    },
    "overlapped, interleaved": {
        "cluster": "dgx-a100:4",
        "stack": OVERLAPPED,
        "plan": "dp=8 pp=4 vpp=2 gbs=64 precision=fp16",
    },
}


@cache
def sample_priced(name):
    return priced_job(make_job(**PARTS[name]))
