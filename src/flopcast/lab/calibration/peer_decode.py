"""Tables of attention during token generation, as operators on the devices of the catalogue.

Answers: which rows are decode attention, with or without a window, and which are absorbed latent attention?
How much of its module's time does the latter take? Sources: data/serving and data/peers; on GitHub
aiconfigurator (ai-dynamo/aiconfigurator, Apache-2.0), kernels of vLLM. Rows with 16-bit caches, heads of
128 and 128 or more tokens are in data/peers, and all others are in data/serving. A cache holds `isl` +
`step` tokens.
Elsewhere: the definition of an entry (peer_tables.py), attention over prompts (peer_attention.py), fitting
(peer_fit.py).

Latent attention was timed with launches from the host, which take 160 us or more for every shape.
Therefore only the long rows of A100 are used. On the other devices, a recorded graph of DeepSeek-V3's
whole module was timed: the products before and after, norms, rotation, the cache and the core. All parts
except the core take as long with a long cache as with a short one. The time of the core is therefore the
module's additional time over a short cache, plus the time of a core with a short cache. The latter is
LEAST_S, the time of the shortest decode attention in the same tables (6.8 to 10.6 us), plus the time to
move queries and results.
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import Floats
from flopcast.lab.calibration.peer_operators import SYSTEMS
from flopcast.lab.calibration.peer_tables import Columns, Mask, PeerFile, all_of, column, is_word
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.latent_decode import LatentDecode
from flopcast.spec.cluster import Device

CACHES = {"": "bfloat16", "fp8": "fp8"}
OLD_SYSTEM = "system=a100_sxm"  # has no table of the module
# The share of their bandwidth that long kernels reach on devices with large caches and slow memory. Shorter
# kernels were timed again and again, so that they read keys and values from the cache: L40S, with 96 MB of
# it, at twice the bandwidth of its memory. An engine reads those of other layers between two such kernels.
SUSTAINED = {"l40s-48gb": 0.8, "rtx-pro-6000-96gb": 0.93}
LEAST_S = 9e-6
SHORT_CACHE = 66.0  # tokens: as long as the shortest on every device
HOST_MS, HOST_TOKENS = 0.6, 32_768.0  # twice what the host takes on A100, and what takes longer
RANK, ROPE_SIZE = 512.0, 64.0  # DeepSeek-V3, arXiv:2412.19437, section 4.2


NOT_SUBTRACTED = "the time includes other kernels of the module, and no row of the table states their time"


def _window(r: Columns) -> Floats:
    """Return the tokens of a row's window, infinite without a window; (rows,)."""
    window = np.full_like(r["batch_size"], np.inf)
    for name in r:
        word, equals, value = name.partition("=")
        if word == "window_size" and equals and float(value) > 0:
            window[r[name] == 1] = float(value)
    return window


def _decode(cache: str, windowed: bool) -> Callable[[Columns], DecodeAttention]:
    def make(r: Columns) -> DecodeAttention:
        """Return attention to the tokens of the cache, or of the window if it has fewer."""
        sequences = column(r["batch_size"])
        tokens = np.minimum(r["isl"] + r["step"], _window(r))
        return DecodeAttention(
            sequences=sequences,
            keys=sequences * column(tokens),
            heads=column(r["num_heads"]),
            kv_heads=column(r["num_key_value_heads"]),
            head_size=column(r["head_dim"]),
            dtype="bf16",
            cache=cache,
            windowed=windowed,
        )

    return make


def _of_peers(r: Columns) -> DecodeAttention:
    """Return the operators of the table with heads of 128 and 16-bit caches."""
    names = {"step": r["kv_len"], "isl": 0.0 * r["kv_len"], "num_key_value_heads": r["num_kv_heads"]}
    return _decode("", windowed=False)({**r, **names, "head_dim": 128.0 + 0.0 * r["kv_len"]})


def _from_memory(make: Callable[[Columns], DecodeAttention]) -> Callable[[Columns, Floats, Device], Floats]:
    """Return a function that gives the seconds of rows, but at least the seconds that memory needs."""

    def on_device(r: Columns, measured_s: Floats, device: Device) -> Floats:
        sustained = SUSTAINED.get(device.name)
        if sustained is None:
            return measured_s
        moving_s = make(r).work().moved_bytes.ravel() / (device.memory_bytes_per_s * sustained)
        return np.maximum(measured_s, moving_s)

    return on_device


def _attention_file(cache: str, windowed: bool) -> PeerFile:
    def belongs(r: Columns) -> np.ndarray:
        """Return the rows of one kind that are not in the table of data/peers."""
        mine: np.ndarray = np.isfinite(_window(r)) == windowed
        if not cache and not windowed:
            mine &= (r["head_dim"] != 128.0) | (r["isl"] + r["step"] < 128.0)
        return mine

    window = ".window" if windowed else ""
    return PeerFile(
        path="kernels_generation_attention_decode.csv.gz",
        name=f"decode_attention{window}{f'.{cache}' if cache else ''}",
        devices=SYSTEMS,
        operator=_decode(cache, windowed),
        on_device=_from_memory(_decode(cache, windowed)),
        belongs=all_of(is_word(f"kv_cache_dtype={CACHES[cache]}"), belongs),
        remark=f"{CACHES[cache]} cache{', windows' if windowed else ''}",
    )


def _latent(cache: str) -> Callable[[Columns], LatentDecode]:
    def make(r: Columns) -> LatentDecode:
        """Return the core of latent attention of every row."""
        sequences = column(r["batch_size"])
        return LatentDecode(
            sequences=sequences,
            keys=sequences * column(r["isl"] + r["step"]),
            heads=column(r["num_heads"]),
            rank=RANK + 0.0 * sequences,
            rope_size=ROPE_SIZE + 0.0 * sequences,
            dtype="bf16",
            cache=cache,
        )

    return make


def shortest_s(r: Columns) -> Floats:
    """Return the seconds of each row's module with the shortest cache, (rows,), or NaN if no cache is
    short.

    Modules are compared if they have the same heads, sequences and GEMM number format.
    """
    formats = [values for name, values in r.items() if name.startswith("gemm_type=")]
    alike = np.stack([r["num_heads"], r["batch_size"], *formats])
    _, module = np.unique(alike, axis=1, return_inverse=True)
    module = module.ravel()
    short = r["isl"] + r["step"] <= SHORT_CACHE
    sums_ms = np.bincount(module[short], r["latency_ms"][short], module.max(initial=0) + 1)
    counts = np.bincount(module[short], minlength=module.max(initial=0) + 1)
    means_ms = np.divide(sums_ms, counts, out=np.full(sums_ms.shape, np.nan), where=counts > 0)
    return np.asarray(means_ms[module] * 1e-3)


def core_s(r: Columns) -> Floats:
    """Return the seconds of the core of latent attention, (rows,), from times of whole modules."""
    return np.asarray(LEAST_S + np.maximum(r["latency_ms"] * 1e-3 - shortest_s(r), 0.0))


def _with_queries(r: Columns, measured_s: Floats, device: Device) -> Floats:
    """Return the seconds of cores, including the time in which queries and results move on a device."""
    moved_bytes = 2.0 * r["batch_size"] * r["num_heads"] * (2.0 * RANK + ROPE_SIZE)
    return measured_s + moved_bytes / device.memory_bytes_per_s


def _module_file(cache: str) -> PeerFile:
    """Return modules with one format of the cache; on RTX PRO 6000, only one head was timed with 8 bits."""
    return PeerFile(
        path="kernels_mla_generation_module_decode.csv.gz",
        name=f"latent_decode{f'.{cache}' if cache else ''}",
        devices={m: d for m, d in MODULES.items() if not (cache and d.startswith("rtx"))},
        operator=_latent(cache),
        measured_s=core_s,
        on_device=_with_queries,
        belongs=is_word(f"kv_cache_dtype={CACHES[cache]}"),
        faults={NOT_SUBTRACTED: lambda r: np.isnan(shortest_s(r))},
        remark=f"{CACHES[cache]} cache, attention cores of DeepSeek-V3 modules, other parts subtracted",
    )


MODULES: dict[str, str] = {
    mark: name for mark, name in SYSTEMS.items() if mark not in (OLD_SYSTEM, "system=b60")
}
FAULTS_OF_A100: dict[str, Mask] = {
    "the launch on the host takes longer than the kernel": lambda r: (
        (r["latency_ms"] < HOST_MS) | (r["batch_size"] * r["step"] < HOST_TOKENS)
    ),
    "a single head runs another kernel, and no deployment has a single head": lambda r: (
        r["num_heads"] == 1.0
    ),
}
HEADS_OF_128 = PeerFile(
    path="aiconfigurator/attention_decode_bf16_hd128.csv.gz",
    name="decode_attention",
    devices=SYSTEMS,
    operator=_of_peers,
    on_device=_from_memory(_of_peers),
    belongs=lambda r: r["kv_len"] > 0,
    remark="heads of 128",
)
DECODE_FILES: tuple[PeerFile, ...] = (
    HEADS_OF_128,
    *(_attention_file(cache, windowed) for windowed in (False, True) for cache in CACHES),
    *(_module_file(cache) for cache in CACHES),
    PeerFile(
        path="kernels_generation_mla_decode.csv.gz",
        name="latent_decode",
        devices={OLD_SYSTEM: SYSTEMS[OLD_SYSTEM]},
        operator=_latent(""),
        belongs=is_word("kv_cache_dtype=bfloat16"),
        faults=FAULTS_OF_A100,
        remark="bfloat16 cache",
    ),
)
