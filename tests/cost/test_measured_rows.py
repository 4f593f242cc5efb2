"""The committed curves against the measurements they stand for, row by row.

Shapes and conventions are written out from the data's README, not taken from calibration/.
"""

import csv
import gzip

import numpy as np
import pytest
from all_cases import all_cases
from alone import seconds_of

from flopcast.cost.collectives.collective_time import message_seconds
from flopcast.cost.kernels.unscaled import unscaled_times
from flopcast.cost.placement import Group
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.serving.joined_attention import joined_seconds

A100, GH200 = "perlmutter-a100-sxm4-80gb", "vista-gh200"
CLUSTERS = {A100: "perlmutter-tcp", GH200: "vista"}
VOCABULARY = 50257
LINEAR = {  # file → (N, K) of a linear layer of hidden h on one of tp ranks
    "linear_qkv": lambda h, tp: (3 * h // tp, h),
    "linear_attn_out": lambda h, tp: (h, h // tp),
    "linear_mlp_up": lambda h, tp: (4 * h // tp, h),
    "linear_mlp_down": lambda h, tp: (h, 4 * h // tp),
    "linear_lm_head": lambda h, tp: (-(-VOCABULARY // (128 * tp)) * 128, h),
}
COLLECTIVES = [  # system, file, inside a node, median error allowed; broken files are left out
    (A100, "all_reduce", True, 0.06),
    (A100, "p2p", True, 0.06),
    (A100, "all_reduce", False, 0.03),
    (A100, "all_gather", False, 0.03),
    (GH200, "all_reduce", False, 0.03),
    # one pair of nodes each; medians of 100 neighbouring sizes miss their rows by 2 and 4 %
    (A100, "p2p", False, 0.04),
    (GH200, "p2p", False, 0.04),
]


def read(path):
    """A file's rows as mappings of numbers; the name of a sweep is left out."""
    with path.open(encoding="utf-8") as text:
        rows = csv.DictReader(text)
        return [{name: float(row[name]) for name in row if name != "sweep"} for row in rows]


def column(rows, name, default=1.0):
    """One column, (rows, 1)."""
    return np.array([[row.get(name, default)] for row in rows])


def linear_rows(shared, system, count=200):
    """Random rows of the linear layers: their products, forward and backward seconds."""
    picked = []
    for file, shape in LINEAR.items():
        for row in read(shared / "data" / "operators" / system / f"{file}.csv"):
            n, k = shape(int(row["hidden"]), int(row.get("tp", 1)))
            m = row["micro_batch"] * row["seq_len"]
            picked.append((m, n, k, row["fwd_us"] * 1e-6, row["bwd_us"] * 1e-6))
    chosen = np.random.default_rng(2509).choice(len(picked), count, replace=False)
    m, n, k, forward_s, backward_s = np.array(picked)[chosen].T[:, :, None]
    return Matmul(m=m, n=n, k=k, dtype="fp16"), forward_s, backward_s


@all_cases("system", CLUSTERS)
def test_products_take_what_was_measured(shared, system):
    work, forward_s, _ = linear_rows(shared, system)

    predicted_s = seconds_of(work, catalog.cluster(CLUSTERS[system]))

    assert np.abs(predicted_s / forward_s - 1).mean() < 0.05


@all_cases("system", CLUSTERS)
def test_both_gradients_of_a_product_together_take_what_was_measured(shared, system):
    """qkv rows hold the sum of the bias gradient besides: the median is not moved by them."""
    work, _, backward_s = linear_rows(shared, system)
    cluster = catalog.cluster(CLUSTERS[system])

    predicted_s = sum(seconds_of(gradient, cluster) for _, gradient in work.gradients())

    assert np.median(np.abs(predicted_s / backward_s - 1)) < 0.06


@all_cases("system", CLUSTERS)
@all_cases(("file", "kind", "wide"), [("gelu", "gelu", 4), ("residual_add", "residual_add", 1)])
def test_streaming_kernels_take_what_was_measured(shared, system, file, kind, wide):
    rows = read(shared / "data" / "operators" / system / f"{file}.csv")
    tokens = column(rows, "micro_batch") * column(rows, "seq_len")
    elements = tokens * wide * column(rows, "hidden") / column(rows, "tp")

    predicted_s = seconds_of(
        MemoryBound(kind=kind, elements=elements, dtype="fp16"), catalog.cluster(CLUSTERS[system])
    )

    assert np.abs(predicted_s / (column(rows, "fwd_us") * 1e-6) - 1).mean() < 0.02


def flash_rows(shared, system, is_gradient=False):
    """Every row of flash attention, measured without causal mask: work and measured seconds."""
    rows = read(shared / "data" / "operators" / system / "flash_attention.csv")
    batch = column(rows, "micro_batch") * (column(rows, "heads") // column(rows, "tp"))
    work = FlashAttention(
        batch=batch,
        kv_batch=batch,
        queries=column(rows, "seq_len"),
        head_size=column(rows, "hidden") // column(rows, "heads"),
        causal=False,
        dtype="fp16",
        is_gradient=is_gradient,
    )
    return work, column(rows, "bwd_us" if is_gradient else "fwd_us") * 1e-6


@pytest.mark.parametrize(("system", "is_gradient"), [(A100, False), (A100, True), (GH200, False)])
def test_flash_attention_takes_what_was_measured(shared, system, is_gradient):
    """The A100 file holds two campaigns that differ by 13 %; the GH200 backward is broken."""
    work, measured_s = flash_rows(shared, system, is_gradient)

    predicted_s = seconds_of(work, catalog.cluster(CLUSTERS[system]))

    assert np.median(np.abs(predicted_s / measured_s - 1)) < 0.12


@all_cases(("system", "is_gradient"), [(A100, False), (A100, True), (GH200, False)])
@all_cases("head_size", [64, 128])
def test_attention_with_the_heads_that_models_have_is_at_most_a_tenth_off(
    shared, system, is_gradient, head_size
):
    """Whole tiles are faster than the heads between them, over which the curve is smooth."""
    work, measured_s = flash_rows(shared, system, is_gradient)
    rows = (work.head_size == head_size).ravel()

    predicted_s = seconds_of(work, catalog.cluster(CLUSTERS[system]))

    assert np.median(predicted_s[rows] / measured_s[rows]) == pytest.approx(1.0, abs=0.1)


@all_cases(("system", "file", "inside", "allowed"), COLLECTIVES)
def test_collectives_take_what_was_measured(shared, system, file, inside, allowed):
    """An all-gather's message is what all ranks together give; p2p is one pair on two nodes."""
    rows = read(shared / "data" / "collectives" / system / f"{file}.csv")
    rows = [row for row in rows if (row["nodes"] == 1) == inside]
    nodes, local = column(rows, "nodes"), column(rows, "gpus_per_node")
    size = column(rows, "message_bytes") * (nodes * local if file == "all_gather" else 1)
    group = Group(inside=np.ones_like(local) if file == "p2p" and not inside else local, nodes=nodes)
    name = {"p2p": "send_receive"}.get(file, file)
    cluster = catalog.cluster(CLUSTERS[system])

    cost = message_seconds(name, size, group, cluster, load_book(cluster))

    assert np.median(np.abs(cost.alone_s / (column(rows, "time_us") * 1e-6) - 1)) < allowed


@pytest.mark.parametrize(
    ("cluster", "inside", "nodes", "bus_gb_per_s"),
    [
        ("perlmutter-tcp", 1, 2, 1.2),  # data/README.md, defect 6: TCP sockets, one rank a node
        ("perlmutter-tcp", 4, 2, 4.3),  # the same, four ranks a node
        ("dgx-a100", 8, 1, 219.0),  # peers/README.md: 8 × A100, 256 MiB and more
    ],
)
def test_all_reduces_reach_the_bus_bandwidth_that_is_known_of_the_fabric(
    cluster, inside, nodes, bus_gb_per_s
):
    facts = catalog.cluster(cluster)
    size, ranks = np.array([[512e6]]), inside * nodes
    group = Group(inside=np.array([[float(inside)]]), nodes=np.array([[float(nodes)]]))

    seconds = message_seconds("all_reduce", size, group, facts, load_book(facts)).alone_s.item()

    bus = 2 * (ranks - 1) / ranks * 512e6 / seconds
    assert bus == pytest.approx(bus_gb_per_s * 1e9, rel=0.12)


@pytest.mark.parametrize(
    ("kernel", "seconds"), [("flash_attention", 2444e-6), ("layernorm", 140.7e-6 + 88.8e-6)]
)
def test_backwards_that_were_measured_wrongly_take_what_a_training_trace_shows(kernel, seconds):
    """data/README.md, defects 0 and 1: GH200, b 4; s 4096 with 16 causal heads of 128; s 2048, h 6144."""
    one = np.ones((1, 1))
    work = {
        "flash_attention": FlashAttention(
            batch=64 * one,
            kv_batch=64 * one,
            queries=4096 * one,
            head_size=128 * one,
            causal=True,
            dtype="fp16",
            is_gradient=True,
        ),
        "layernorm": MemoryBound(
            kind="layernorm",
            elements=4 * 2048 * 6144 * one,
            width=6144 * one,
            dtype="fp16",
            is_gradient=True,
        ),
    }[kernel]

    assert seconds_of(work, catalog.cluster("vista")).item() == pytest.approx(seconds, rel=0.01)


NARROW_GEMMS = {  # system of the table → cluster, and the median error allowed
    "a100_sxm": ("dgx-a100", 0.20),
    "h100_sxm": ("dgx-h100", 0.13),
    "h200_sxm": ("dgx-h200", 0.12),
    "b200_sxm": ("dgx-b200", 0.18),
    "gb300": ("gb300-nvl72", 0.16),
}


def test_gemms_with_fewer_columns_than_any_fitted_one_take_about_as_long_as_measured(shared):
    """No curve of training is fitted to GEMMs with fewer than 512 rows or columns."""
    with gzip.open(shared / "data/peers/aiconfigurator/gemm_bf16.csv.gz", "rt", encoding="utf-8") as text:
        table = [row for row in csv.DictReader(text) if row["system"] in NARROW_GEMMS]
    for system, (name, allowed) in NARROW_GEMMS.items():
        rows = np.array(
            [
                [float(row[size]) for size in ("m", "n", "k", "latency_ms")]
                for row in table
                if row["system"] == system
            ]
        )
        m, n, k, measured_ms = rows[(rows[:, 1] < 512) & (rows[:, 0] >= 512) & (rows[:, 0] % 4 == 0)].T
        long = k >= 512
        m, n, k, measured_ms = (each[long, None] for each in (m, n, k, measured_ms))
        cluster = catalog.cluster(name)
        device = cluster.node.device
        curve = load_book(cluster).exact(device.curves or device.name, "gemm")
        gemms = Matmul(m=m, n=n, k=k, dtype="bf16")
        times = unscaled_times([gemms], curve, device)

        errors = np.abs(times.curve_s / measured_ms.ravel() * 1e3 - 1.0)

        assert len(errors) > 500
        assert np.median(errors) < allowed, system


def test_a_gemm_with_more_columns_never_takes_less_time():
    columns = np.arange(8.0, 1025.0, 8.0)[:, None]
    for name in ("dgx-h100", "dgx-b200"):
        gemms = Matmul(
            m=np.full_like(columns, 4096.0), n=columns, k=np.full_like(columns, 4096.0), dtype="bf16"
        )
        seconds = seconds_of(gemms, catalog.cluster(name)).ravel()

        assert (seconds / np.maximum.accumulate(seconds) >= 1.0 - 0.12).all()
        assert (np.diff(seconds[columns.ravel() < 512]) > 0).all()


CACHED = {  # layer of vLLM → kind, elements a token of Llama 3.1 8B, and the median error allowed
    "act_fn": ("swiglu", 14336, 0.3),
    "layernorm": ("add_rmsnorm", 4096, 0.5),  # runs in place, so that more of it stays in the cache
    "rotary_emb": ("rope", 40 * 128, 0.25),
}


def test_kernels_find_what_the_kernel_before_wrote_in_a_large_cache(shared):
    """Without the cache, the predictions are 30 to 160 % too long."""
    with gzip.open(shared / "data/peers/llmservingsim/vllm_dense.csv.gz", "rt", encoding="utf-8") as text:
        table = [r for r in csv.DictReader(text) if "Llama" in r["model"] and r["tp"] == "1"]
    for gpu, cluster in (("RTX4090", "rtx-4090-8"), ("RTXPRO6000", "rtx-pro-6000-8")):
        for layer, (kind, each, allowed) in CACHED.items():
            rows = [r for r in table if r["gpu"] == gpu and r["layer"] == layer and int(r["tokens"]) >= 128]
            tokens = np.array([[float(r["tokens"])] for r in rows])
            width = np.full((1, 1), 4096.0)
            work = MemoryBound(kind=kind, elements=tokens * each, dtype="bf16", width=width)

            predicted_s = seconds_of(work, catalog.cluster(cluster)).ravel()

            measured_s = np.array([float(r["time_us"]) for r in rows]) * 1e-6
            assert np.median(np.abs(predicted_s / measured_s - 1)) < allowed, (gpu, layer)


HEADS = {"Llama-3.1-8B": (32, 8), "Qwen3-30B-A3B-Instruct-2507": (32, 4), "Qwen3-32B": (64, 8)}


def test_decoding_sequences_take_longer_in_the_kernel_of_prompts(shared):
    """Separate kernels for prompts and decoding sequences would be 30 % too fast in the median."""
    table = {}
    path = shared / "data/peers/llmservingsim/vllm_attention.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            shape = (row["gpu"], row["model"].split("/")[-1], int(row["tp"]))
            columns = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
            table[shape, *(int(row[each]) for each in columns)] = float(row["time_us"]) * 1e-6
    for gpu, cluster in (("RTX4090", "rtx-4090-8"), ("RTXPRO6000", "rtx-pro-6000-8")):
        rows = [
            (*HEADS[key[0][1]], key[0][2], key[3], key[4], table[(*key[:3], 0, 0)], table[key])
            for key in table
            if key[0][0] == gpu and key[1] and key[3] and (key[0], *key[1:3], 0, 0) in table
        ]
        heads, kv_heads, ranks, sequences, context, prompt_s, measured_s = np.array(rows).T[:, :, None]
        decode = DecodeAttention(
            sequences=sequences,
            keys=sequences * context,
            heads=heads / ranks,
            kv_heads=kv_heads / ranks,
            head_size=np.full_like(heads, 128.0),
            dtype="bf16",
        )

        added_s = joined_seconds(decode, catalog.cluster(cluster).node.device)

        assert np.median(np.abs((prompt_s + added_s) / measured_s - 1)) < 0.1, gpu
