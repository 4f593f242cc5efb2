"""Serving refuses parts of other speeds, which it would have to ignore."""

from flopcast.api import predict_serving
from flopcast.errors import problems_of
from flopcast.jobs import serving_job

JOB = {"model": "llama-3-8b", "engine": "vllm", "traffic": "rate=1/s prompt=1000 output=100"}
NODES = [
    {"node": {"device": device, "devices": 8, "host": "epyc-7763"}, "count": 1}
    for device in ("a100-sxm4-80gb", "h100-sxm5-80gb")
]
LINKS = {"rows": [[0, 40], [40, 0]], "unit": "GB/s"}


def test_slow_parts_groups_and_measured_links_are_refused_for_serving():
    cases = {
        "site.slow": {"cluster": "dgx-h100:1", "changes": ["site.slow=device=0:0.5"]},
        "cluster.groups": {"cluster": {"base": "dgx-h100", "groups": NODES}},
        "cluster.tiers[1].links": {"cluster": {"base": "dgx-h100:2", "tiers": {"1": {"links": LINKS}}}},
    }
    for field, parts in cases.items():
        found = problems_of(lambda parts=parts: predict_serving(serving_job(**JOB, **parts)))

        assert [(each.field, each.because) for each in found] == [
            (field, "serving on devices with different speeds is not supported yet")
        ], field
