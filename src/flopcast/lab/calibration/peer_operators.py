"""Tables of dense products by other projects as operators, on the devices of the catalogue.

Answers: which products does each table time, on which device, and in which precision? Sources: data/peers;
on GitHub aiconfigurator (ai-dynamo/aiconfigurator, Apache-2.0), simumax (MooreThreads/SimuMax, Apache-2.0),
infersim (alibaba/InferSim, Apache-2.0), llmservingsim (casys-kaist/LLMServingSim, MIT), vidur
(microsoft/vidur, MIT), apex (microsoft/apex_plus, MIT). The tables time forward kernels of serving stacks,
except those of simumax, which are from training.
Elsewhere: the definition of an entry (peer_tables.py), products of experts (peer_grouped.py), attention
(peer_attention.py), fitting and differences between sources (peer_fit.py), the tables of the paper
(operator_files.py).

Sources are listed in the order of trust: sweeps over shapes before tables of one model.
"""

from collections.abc import Callable, Mapping

import numpy as np

from flopcast.dtypes import Counts
from flopcast.lab.calibration.peer_tables import (
    Columns,
    PeerFile,
    all_of,
    is_word,
    matmul,
    not_small,
    of_efficiency,
    seconds_in,
)
from flopcast.operators.base import AbstractOperator
from flopcast.records import replace

SYSTEMS = {
    "system=a100_sxm": "a100-sxm4-80gb",
    "system=h100_sxm": "h100-sxm5-80gb",
    "system=h200_sxm": "h200-sxm-141gb",
    "system=b200_sxm": "b200-sxm-180gb",
    "system=b300_sxm": "b300-sxm-288gb",
    "system=gb200": "gb200-192gb",
    "system=gb300": "gb300-288gb",
    "system=l40s": "l40s-48gb",
    "system=rtx_pro_6000_server": "rtx-pro-6000-96gb",
    "system=b60": "arc-pro-b60-24gb",
}
NARROW = {mark: name for mark, name in SYSTEMS.items() if not name.startswith("a")}
BLACKWELL = {
    mark: name for mark, name in NARROW.items() if name[:2] in ("b2", "b3", "gb") or name.startswith("rtx")
}
BLOCKED = {mark: name for mark, name in NARROW.items() if not name.startswith("rtx")}
SERVING = "serving kernels, which are slower than those of training"
ODD_ROWS = (
    "on Hopper, 8-bit GEMMs are slow if the number of rows is not a multiple of 4 (513 rows take longer"
    " than 768), but training frameworks and engines pad rows to multiples of 8"
)
SMALL_TILE = 64.0  # rows up to which products of any number of rows run the same kernel


def odd_rows(r: Columns) -> np.ndarray:
    """Return the rows on Hopper that ran a kernel which training and engines seldom use."""
    hopper = is_word("system=h100_sxm")(r) | is_word("system=h200_sxm")(r)
    return np.asarray(hopper & (r["m"] > SMALL_TILE) & (r["m"] % 4 != 0))


def _narrow(dtype: str, devices: Mapping[str, str], peak: str) -> PeerFile:
    """Return a table of 8-bit products; an element counts as one byte, although results have more."""
    return PeerFile(
        path="aiconfigurator/gemm_low_precision.csv.gz",
        name=f"gemm.{dtype}",
        devices=devices,
        operator=matmul("fp8"),
        belongs=all_of(is_word(f"dtype={dtype}"), not_small("m", "n", "k")),
        faults={ODD_ROWS: odd_rows} if dtype == "fp8" else {},
        remark=f"{dtype}, {SERVING}",
        peak=peak,
    )


AICONFIGURATOR = (
    PeerFile(
        path="aiconfigurator/gemm_bf16.csv.gz",
        name="gemm",
        devices=SYSTEMS,
        operator=matmul("bf16"),
        belongs=all_of(is_word("framework_name=vllm"), not_small("m", "n", "k")),
        faults={
            "0.72 of the peak below 2^39 multiply-adds and 0.42 above: it is not known which of them is"
            " sustained, and B200 has the same chip": lambda r: r["system=gb200"] == 1
        },
        remark="bf16",
    ),
    _narrow("fp8", NARROW, "fp8"),
    _narrow("fp8_block", BLOCKED, "fp8"),
    _narrow("nvfp4", BLACKWELL, "fp4"),
)


SIMUMAX = {"system=a100_pcie": "a100-pcie-80gb", "system=b200_bf16_ceperm": "b200-sxm-180gb"}
SIMUMAX_NODE = {"system=b200_bf16_ceperm": "b200-simumax-180gb"}  # the same rows, of that one machine alone
SUSTAINED_FROM_S = 0.7e-3  # its products: 0.35 to 0.65 of the peak before, 0.48 to 0.50 from there on
LAYOUTS = {"forward": "TN", "input_gradient": "NN", "weight_gradient": "NT"}


def _simumax_gemm(layout: str) -> PeerFile:
    """Return products of one layout. A weight gradient is added to an fp32 buffer in place."""
    make = matmul("bf16", layout)
    return PeerFile(
        path="simumax/gemm_efficiency.csv",
        name="gemm",
        devices=SIMUMAX,
        operator=make,
        measured_s=lambda r: of_efficiency(r, make(r)),
        belongs=is_word(f"layout={LAYOUTS[layout]}"),
        remark="bf16, of training",
        layout=layout,
    )


def of_simumax_node(file: PeerFile) -> PeerFile:
    """Return an entry of simumax for its B200 machine, which ran under load as in its published steps."""
    sustained_from_s = SUSTAINED_FROM_S if file.name == "gemm" else np.inf
    return replace(file, devices=SIMUMAX_NODE, sustained_from_s=sustained_from_s)


INFERSIM = {"gpu=h20": "h20-96gb", "gpu=h800": "h800-sxm-80gb"}


LLAMA_8B = {  # outputs, inputs of each linear layer: arXiv:2407.21783, table 3
    "qkv_proj": (6144.0, 4096.0),
    "o_proj": (4096.0, 4096.0),
    "gate_up_proj": (28672.0, 4096.0),
    "down_proj": (4096.0, 14336.0),
}
LLAMA_8B_ALONE = {  # the same where gates are not joined
    "o_proj": LLAMA_8B["o_proj"],
    "gate_proj": (14336.0, 4096.0),
    "up_proj": (14336.0, 4096.0),
    "down_proj": LLAMA_8B["down_proj"],
}


def _llama_layer(
    layer: str, sizes: tuple[float, float], path: str, column: str, time: str, devices: Mapping[str, str]
) -> PeerFile:
    """Return one linear layer of Llama 3.1 8B, with tokens as rows; `column` holds the names of layers."""
    n, k = sizes
    return PeerFile(
        path=path,
        name="gemm",
        devices=devices,
        operator=lambda r: matmul("bf16")(
            {"m": r["tokens"], "n": 0 * r["tokens"] + n, "k": 0 * r["tokens"] + k}
        ),
        measured_s=seconds_in(time),
        belongs=all_of(
            is_word(f"{column}={layer}"),
            is_word("model=meta-llama/Llama-3.1-8B"),
            lambda r: r["tp"] == 1,
            not_small("tokens"),
        ),
        remark="bf16, the layers of one model",
    )


CARDS = {"gpu=RTX4090": "rtx-4090-24gb", "gpu=RTXPRO6000": "rtx-pro-6000-96gb"}
LLAMA_LAYERS = (
    *(
        _llama_layer(name, sizes, "llmservingsim/vllm_dense.csv.gz", "layer", "time_us", CARDS)
        for name, sizes in LLAMA_8B.items()
    ),
    *(
        _llama_layer(
            *(name, sizes, "llmservingsim/layers_h100_tpuv6e.csv.gz", "layer_name", "latency_ns"),
            {"gpu=TPU-v6e-1": "tpu-v6e-32gb"},
        )
        for name, sizes in LLAMA_8B_ALONE.items()
    ),
)


Widths = Callable[[Columns], tuple[Counts, Counts]]
VIDUR: dict[str, Widths] = {  # column of the time → outputs and inputs of the product on one rank
    "attn_post_proj_ms": lambda r: (r["n_embd"], r["n_embd"] / r["num_tensor_parallel_workers"]),
    "mlp_down_proj_ms": lambda r: (r["n_embd"], r["n_expanded_embd"] / r["num_tensor_parallel_workers"]),
}


def _vidur_layer(name: str) -> PeerFile:
    """Return one linear layer of several models and degrees, fp16, without fused inputs."""
    shape = VIDUR[name]

    def make(r: Columns) -> AbstractOperator:
        """Return an operator with tokens as rows and the layer's input and output widths."""
        n, k = shape(r)
        return matmul("fp16")({"m": r["num_tokens"], "n": n, "k": k})

    return PeerFile(
        path="vidur/layer_ops.csv.gz",
        name="gemm",
        devices={"gpu=a40": "a40-48gb", "gpu=h100": "h100-sxm5-80gb"},
        operator=make,
        measured_s=seconds_in(name),
        belongs=not_small("num_tokens"),
        remark="fp16, layers of six models",
    )


OTHERS = (
    *(_simumax_gemm(layout) for layout in LAYOUTS),
    PeerFile(
        path="infersim/gemm.csv",
        name="gemm.fp8",
        devices=INFERSIM,
        operator=matmul("fp8"),
        measured_s=seconds_in("latency_us"),
        belongs=not_small("m"),
        remark="fp8: fractions of the FP8 peak",
    ),
    *LLAMA_LAYERS,
    *(_vidur_layer(name) for name in VIDUR),
    PeerFile(
        path="apex/gemm_v100_fp16.csv.gz",
        name="gemm",
        devices={"gpu=V100-PCIE-16GB": "v100-pcie-16gb"},
        operator=matmul("fp16"),
        measured_s=seconds_in("time_us"),
        belongs=not_small("m", "n", "k"),
        remark="fp16, times in whole microseconds",
    ),
)
PRODUCT_FILES: tuple[PeerFile, ...] = (*AICONFIGURATOR, *OTHERS)
