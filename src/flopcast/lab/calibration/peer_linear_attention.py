"""Tables of the kernels of linear attention over prompts, as operators on the devices of the catalogue.

Answers: which rows are the gated delta rule, which the short convolution before it?
Source: data/peers; on GitHub aiconfigurator (ai-dynamo/aiconfigurator, Apache-2.0), kernels of vLLM with
the shapes of Qwen3.5, whose heads have 128 elements. Steps of decoding are not in the table.
Elsewhere: what an entry is (peer_tables.py), attention over prompts (peer_attention.py), fitting
(peer_fit.py).
"""

from flopcast.lab.calibration.peer_operators import SYSTEMS
from flopcast.lab.calibration.peer_tables import Columns, PeerFile, column, is_word, seconds_in
from flopcast.operators.gated_delta import GatedDelta
from flopcast.operators.memory_bound import MemoryBound

PATH = "aiconfigurator/gated_deltanet_prefill.csv.gz"
HOPPER_AND_LATER = ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300")
FLASHINFER = tuple(f"system={name}" for name in HOPPER_AND_LATER)
TRITON = ("system=l40s", "system=rtx_pro_6000_server")


def _core(r: Columns) -> GatedDelta:
    """Return the delta rule of every row."""
    return GatedDelta(
        sequences=column(r["batch_size"]),
        tokens=column(r["seq_len"]),
        heads=column(r["num_v_heads"]),
        key_heads=column(r["num_k_heads"]),
        key_size=column(r["head_k_dim"]),
        value_size=column(r["head_v_dim"]),
        dtype="bf16",
    )


def _convolution(r: Columns) -> MemoryBound:
    """Return the convolution of queries, keys and values of every row."""
    channels = 2.0 * r["num_k_heads"] * r["head_k_dim"] + r["num_v_heads"] * r["head_v_dim"]
    return MemoryBound(
        kind="causal_convolution", elements=column(r["batch_size"] * r["seq_len"] * channels), dtype="bf16"
    )


def _file(kernel: str, devices: tuple[str, ...], convolves: bool) -> PeerFile:
    """Return the rows of one kernel on the devices that it was measured on."""
    return PeerFile(
        project="aiconfigurator",
        path=PATH,
        name="causal_convolution" if convolves else "gated_delta",
        devices={mark: SYSTEMS[mark] for mark in devices},
        operator=_convolution if convolves else _core,
        measured_s=seconds_in("latency_ms"),
        belongs=is_word(f"kernel_source={kernel}"),
        remark="prompts, heads of 128",
    )


LINEAR_ATTENTION_FILES: tuple[PeerFile, ...] = (
    _file("chunk_gated_delta_rule_flashinfer", FLASHINFER, convolves=False),
    _file("chunk_gated_delta_rule_triton", TRITON, convolves=False),
    _file("causal_conv1d_fn", (*FLASHINFER, *TRITON), convolves=True),
)
