"""Reports that the tests of this folder read, and their pages: each made once."""

from copy import copy
from functools import cache

from conftest import make_job
from page_reader import Page

from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.render.report_page import as_html
from flopcast.spec.site import Site, SiteFactor

JITTER = {"base": "dgx-a100", "nodes": 1, "jitter": {"ratio": 1.1, "log_sigma_factor": 0.03}}
OVERLAPPED = {"base": "megatron-2022", "gradients": {"overlap": True}}
LARGE = {
    "hidden": 8192,
    "vocabulary": 51200,
    "blocks": [{"count": 8, "mixer": {"heads": 64}, "feed_forward": {"ffn_hidden": 32768}}],
}
PARTS = {
    "one stage": {},
    "jitter": {"cluster": JITTER, "plan": "dp=4 tp=2 gbs=16 precision=fp16"},
    "batched": {"cluster": "dgx-a100:4", "plan": "tp=8 pp=4 sp gbs=16 recompute=selective precision=fp16"},
    "interleaved": {"cluster": "dgx-a100:4", "plan": "tp=8 pp=4 vpp=2 gbs=16 precision=fp16"},
    "sequential": {
        "cluster": "perlmutter:8",
        "stack": "gpt-neox-deepspeed",
        "plan": "dp=2 tp=4 pp=4 zero=1 recompute=full gbs=32 precision=fp16",
    },
    "reduced beside": {
        "cluster": "dgx-a100:4",
        "stack": OVERLAPPED,
        "plan": "dp=8 pp=4 vpp=2 gbs=64 precision=fp16",
    },
    "too large": {"model": LARGE, "plan": "dp=8 mbs=4 gbs=64 precision=fp16"},
}


@cache
def sample_report(name):
    return report_of(make_job(**PARTS[name]))


@cache
def text_of(name):
    """The page of a report, as text."""
    return as_html(sample_report(name))


@cache
def page_of(name):
    return Page(text_of(name))


def report_of(job):
    return predict(job, load_book(job.cluster))


def with_site(job, ratios, sigma=None):
    """The job on a site that sets factors by name."""
    factors = tuple(SiteFactor(name=n, ratio=r, log_sigma_factor=sigma) for n, r in ratios.items())
    return job.model_copy(update={"site": Site(name="here", factors=factors)})


def with_parts(report, **parts):
    """The report with some parts as given, whether it holds them or works them out."""
    changed = copy(report)
    vars(changed).update(parts)
    return changed
