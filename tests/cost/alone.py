"""Items priced by themselves, and one operator of every kernel class from three sizes."""

from dataclasses import replace
from functools import cache

import numpy as np
from conftest import make_job

from flopcast.cost.factors import FactorBook
from flopcast.cost.price import price
from flopcast.dtypes import ONE
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.dequantise import Dequantise
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.fused_pass import FusedPass
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import BatchedMatmul, Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.optimizer import OptimizerUpdate
from flopcast.operators.quantise import Quantise
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.site import Site, SiteFactor
from flopcast.strict_model import FrozenMapping
from flopcast.workload.lower import lower
from flopcast.workload.program import Segment, StageTransfer
from flopcast.workload.realise import realise

EQUAL_CLOCKS = Site(clock_spread_fraction=0.0)  # so that a kernel takes what was measured
DEVICES = {  # device → a cluster of it
    "a10-24gb": "oci-bm-gpu-a10-4",
    "a10g-24gb": "aws-g5",
    "a100-pcie-40gb": "a100-pcie-40gb-8",
    "a100-pcie-80gb": "a100-pcie-80gb-8",
    "a100-sxm-64gb": "leonardo",
    "a100-sxm4-40gb": "perlmutter-40gb",
    "a100-sxm4-80gb": "dgx-a100",
    "a40-48gb": "delta-a40",
    "rtx-a6000-48gb": "rtx-a6000",
    "rtx-pro-6000-max-q-96gb": "rtx-pro-6000-max-q",
    "arc-pro-b60-24gb": "arc-pro-b60-8",
    "b200-simumax-180gb": "simumax-b200",
    "b200-sxm-180gb": "dgx-b200",
    "b300-sxm-288gb": "dgx-b300",
    "gb200-192gb": "gb200-nvl72",
    "gb300-288gb": "gb300-nvl72",
    "gh200-144gb": "gh200-nvl2",
    "gh200-96gb": "vista",
    "h100-pcie-80gb": "h100-pcie-8",
    "h100-sxm5-64gb": "marenostrum-5",
    "h100-sxm5-80gb": "dgx-h100",
    "h100-sxm5-96gb": "grand-teton-h100",
    "h20-96gb": "hgx-h20",
    "h200-sxm-141gb": "dgx-h200",
    "h200-nvl-141gb": "h200-nvl-8",
    "a800-sxm-80gb": "hgx-a800",
    "h800-sxm-80gb": "hgx-h800",
    "l4-24gb": "aws-g6",
    "l40-48gb": "l40-8",
    "l40s-48gb": "l40s-8",
    "mi250x-gcd-64gb": "frontier",
    "mi300x-192gb": "mi300x-8",
    "gaudi2-96gb": "gaudi2-8",
    "gaudi3-128gb": "gaudi3-8",
    "mi325x-256gb": "mi325x-8",
    "mi350x-288gb": "mi350x-8",
    "mi355x-288gb": "mi355x-8",
    "p100-pcie-16gb": "piz-daint",
    "rtx-2080-ti-11gb": "rtx-2080-ti-8",
    "rtx-3090-24gb": "rtx-3090-8",
    "rtx-4080-16gb": "rtx-4080-8",
    "rtx-4090-24gb": "rtx-4090-8",
    "rtx-5090-32gb": "rtx-5090-8",
    "rtx-pro-6000-96gb": "rtx-pro-6000-8",
    "t4-16gb": "aws-g4dn",
    "tpu-v5e-16gb": "gcp-v5e",
    "tpu-v4-32gb": "gcp-v4",
    "tpu-v5p-95gb": "gcp-v5p",
    "tpu-v6e-32gb": "gcp-v6e",
    "trainium1-core-16gb": "aws-trn1",
    "trainium2-core-24gb": "aws-trn2",
    "v100-pcie-16gb": "v100-pcie-16gb-4",
    "v100-sxm2-16gb": "dgx-1",
    "v100-sxm2-32gb": "aws-p3dn",
}
NO_HOP = StageTransfer(forward=(), backward=())


@cache
def realised(stack):
    """The programs of a small job; tests replace its items by their own."""
    job = make_job()
    return realise(lower(job.model, one_plan(job.plan), job.batch), catalog.stack(stack))


def programs_of(items, plans, stack="megatron-2022"):
    """Programs that hold exactly these items, under these plans."""
    whole = realised(stack)
    return replace(
        whole,
        workload=replace(whole.workload, plans=plans),
        forward=(Segment(items=tuple(items), repeat=ONE),),
        backward=(),
        hop_across=NO_HOP,
        hop_inside=NO_HOP,
        reduce=(),
        synchronise=(),
        update=(),
    )


def price_items(items, cluster, plans=None, site=None, stack="megatron-2022", book=None, levels=None):
    """Items priced with nothing beside them; by default with the catalogue's curves and no site."""
    plans = one_plan(Plan(global_batch=1)) if plans is None else plans
    book = load_book(cluster) if book is None else book
    return price(
        programs_of(items, plans, stack), cluster, book, FactorBook(site or EQUAL_CLOCKS, levels or {})
    )


def seconds_of(work, cluster):
    """Seconds of one operator alone."""
    item = kernel("work", work, component="test")
    return price_items([item], cluster).of(item).alone_s


def bound_of(work, device):
    """The roofline (Williams, Waterman, Patterson, CACM 52(4), 2009), from the data sheet.

    Where the rate of the last-level cache is known, a kernel without products may move as many bytes as
    the cache holds at this rate.
    """
    need = work.work()
    memory_s = need.moved_bytes / device.memory_bytes_per_s
    if device.cache_bytes_per_s and not np.any(need.flop):
        inside = np.minimum(need.moved_bytes, device.cache_bytes)
        memory_s -= inside * (1 / device.memory_bytes_per_s - 1 / device.cache_bytes_per_s)
    return np.maximum(need.flop / device.peak(need.unit), memory_s)


def message_item(work, name="message", phase="forward"):
    """A message on its own stream."""
    return Item(name=name, work=work, component="test", stream=work.axis[:2], phase=phase)


def site_with(**ratios):
    """A site whose named factors have these ratios; names are given with brackets, as a mapping."""
    return Site(name="here", factors=tuple(SiteFactor(name=n, ratio=r) for n, r in ratios.items()))


def changed_device(cluster, **fields):
    """The cluster with other facts about its device; mappings are frozen, as validation leaves them."""
    frozen = {
        name: FrozenMapping(each) if isinstance(each, dict) else each for name, each in fields.items()
    }
    device = cluster.node.device.model_copy(update=frozen)
    return changed_node(cluster, device=device)


def changed_node(cluster, **fields):
    """The cluster with other facts about its node."""
    node = cluster.node.model_copy(update=fields)
    group = cluster.groups[0].model_copy(update={"node": node})
    return cluster.model_copy(update={"groups": (group,)})


def _gemm(layout):
    return lambda m, n, k: Matmul(m=m, n=n, k=k, dtype="fp16", layout=layout)


def _batched(role):
    def make(tokens, head_size, batch):
        return BatchedMatmul(
            role=role,
            batch=batch,
            kv_batch=batch,
            queries=tokens,
            keys=tokens,
            head_size=head_size,
            dtype="fp16",
        )

    return make


def _flash(is_gradient, latent=False, window=False):
    """Attention; latent values have two thirds of the elements, as DeepSeek's; a window is an eighth."""

    def make(tokens, head_size, batch):
        return FlashAttention(
            batch=batch,
            kv_batch=batch,
            queries=tokens,
            head_size=head_size,
            causal=window,
            dtype="fp16",
            is_gradient=is_gradient,
            mean_keys=tokens / 8 if window else None,
            value_head_size=head_size * 2 / 3 if latent else None,
        )

    return make


def _embedding(is_gradient):
    return lambda tokens, vocabulary, hidden: EmbeddingLookup(
        tokens=tokens, vocabulary=vocabulary, hidden=hidden, dtype="fp16", is_gradient=is_gradient
    )


def _adam(dtype, each_bytes):
    return lambda rows, width, layers: OptimizerUpdate(
        parameters=rows * width * layers, bytes_per_parameter=np.array(each_bytes), dtype=dtype
    )


def _memory_bound(kind, is_gradient):
    return lambda rows, width, layers: MemoryBound(
        kind=kind, elements=rows * width * layers, width=width, dtype="fp16", is_gradient=is_gradient
    )


def _fused_pass(is_gradient):
    return lambda rows, width, layers: FusedPass(
        moved=2 * rows * width * layers,
        kept=(("x", rows * width * layers),),
        dtype="fp16",
        is_gradient=is_gradient,
    )


TOKENS, WIDTH, HEAD = (9.0, 13.0), (10.0, 14.0), (5.0, 8.0)  # log2 of the smallest, the largest
ONE_LAYER = (0.0, 0.0)
OPERATORS = {  # kernel class → operator of three sizes, and the log2 ranges of the sizes
    **{
        f"gemm.{layout}": (_gemm(layout), ((9.0, 16.0), (8.0, 17.0), (7.0, 16.0)))
        for layout in ("forward", "input_gradient", "weight_gradient")
    },
    "batched_gemm.scores": (_batched("scores"), (TOKENS, HEAD, (2.0, 10.0))),
    "batched_gemm.context": (_batched("context"), (TOKENS, HEAD, (2.0, 10.0))),
    "flash_attention": (_flash(False), (TOKENS, HEAD, (2.0, 10.0))),
    "flash_attention.backward": (_flash(True), (TOKENS, HEAD, (2.0, 10.0))),
    "flash_attention.latent": (_flash(False, latent=True), (TOKENS, HEAD, (2.0, 10.0))),
    "flash_attention.latent.backward": (_flash(True, latent=True), (TOKENS, HEAD, (2.0, 10.0))),
    "flash_attention.window": (_flash(False, window=True), (TOKENS, HEAD, (2.0, 10.0))),
    "flash_attention.window.backward": (_flash(True, window=True), (TOKENS, HEAD, (2.0, 10.0))),
    "dequantise": (
        lambda rows, width, layers: Dequantise(elements=rows * width * layers, stored="nf4", dtype="fp16"),
        (WIDTH, WIDTH, ONE_LAYER),
    ),
    "embedding": (_embedding(False), (TOKENS, (12.0, 17.0), WIDTH)),
    "embedding.backward": (_embedding(True), (TOKENS, (12.0, 17.0), WIDTH)),
    "adam": (_adam("fp32", 28.0), (WIDTH, WIDTH, (0.0, 6.0))),
    "adam.16_bits": (_adam("fp16", 14.0), (WIDTH, WIDTH, (0.0, 6.0))),
    "quantise": (
        lambda rows, width, layers: Quantise(elements=rows * width * layers, each_bytes=4.0, dtype="fp16"),
        ((10.0, 20.0), WIDTH, ONE_LAYER),
    ),
    "quantise.blocks": (
        lambda rows, width, layers: Quantise(
            elements=rows * width * layers, each_bytes=4.0, dtype="fp16", in_blocks=True
        ),
        ((10.0, 20.0), WIDTH, ONE_LAYER),
    ),
    **{
        f"fused_pass{suffix}": (_fused_pass(bool(suffix)), ((10.0, 20.0), WIDTH, ONE_LAYER))
        for suffix in ("", ".backward")
    },
    **{kind: (_memory_bound(kind, False), ((10.0, 20.0), WIDTH, ONE_LAYER)) for kind in KINDS},
    **{
        f"{kind}.backward": (_memory_bound(kind, True), ((10.0, 20.0), WIDTH, ONE_LAYER))
        for kind, facts in KINDS.items()
        if facts.backward
    },
}
