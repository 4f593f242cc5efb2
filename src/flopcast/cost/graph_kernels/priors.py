"""The efficiencies of graph kernels that flopcast assumes before the fit to measured steps.

Answers: which efficiency does each class have, according to measurements of single kernels?
Elsewhere: the efficiencies that were fitted to steps of graphs (efficiencies.py), clocks (rates.py).

All priors are derived from kernels that were measured alone (catalog/curves) and from data sheets, and from
no step time of a graph. `tests/cost/test_graph_priors.py` computes the numbers again. For kernels that were
never measured alone, such as convolutions, the nearest class is used.
"""

from collections.abc import Mapping

from flopcast.units import Number

SUM, GELU = 0.87, 0.72  # of the bandwidth that a sum and a GELU of 2^28 bytes reach on A100
PRODUCT = 0.83  # of the peak that a product of 8192 · 4096 · 4096 reaches on a board with 2 W a TFLOP/s
ATTENTION = 0.69 * PRODUCT  # heads of 64 over 4096 keys: the median of seven devices, over such a product
DATA_SHEET = 0.7  # of the vector rate: an estimate
GRADIENT_OF_ATTENTION = 1.27  # times as long beyond its FLOP (cost/kernels/fallback_classes.py)
FLOP_OF_ELEMENT = 12.0
"""Instructions of a pass for each element: the additional time of a GELU in 16 bits, compared with a sum of
as many bytes, corresponds to 6 instructions on A100 and 23 on GH200 at DATA_SHEET of the fp32 rate. This is
their geometric mean.
"""
BROADCAST, CHAIN = 36.0, 51.0
"""Instructions for each element of an eager kernel that broadcasts or transposes a tensor, and of each
kernel of a rotary embedding or norm. They follow from the additional time compared with a sum of as many
bytes: of a mask (34 on A100, 38 on GH200), and of GPT-NeoX's rotary embedding (28, 80) and an RMS norm (44,
71; geometric mean).
"""
FLOP_OF_INSTRUCTION = 2.0  # at the fp32 rate of Hopper and Blackwell, which issue 128 a clock

PRODUCTS = (PRODUCT, SUM)  # efficiency at the compute bound and at the memory bound
PASSES = (DATA_SHEET, SUM)
LEVELS: Mapping[str, tuple[Number, Number]] = {  # classes with measured kernels of their own
    "attention": (ATTENTION, SUM),
    "attention.gradients": (ATTENTION / GRADIENT_OF_ATTENTION, SUM),
    "masked_attention": (ATTENTION, SUM),
    "layer_norm": (DATA_SHEET, 0.53),  # rows of 2^28 bytes in 16 bits on A100 and GH200: 0.50, 0.57
    "layer_norm.gradients": (DATA_SHEET, 0.29),  # 0.25, 0.34
    "softmax": (DATA_SHEET, 0.40),  # 0.40, 0.39
    "softmax.gradients": (DATA_SHEET, 0.38),  # 0.40, 0.36
    # cuDNN 8.1 in 16 bits over 64 channels of 16 · 64³ places on an RTX 2070 SUPER, which has fewer
    # multiprocessors than channels (xwang233/code-snippet on GitHub, batchnorm3d-channels-last)
    "planar_batch_norm.training": (DATA_SHEET, 0.46),
    "planar_batch_norm.gradients": (DATA_SHEET, 0.46),
}
_DEPTH = (-0.36, -0.36, -0.24, -0.23, -0.19, -0.17, -0.05, -0.03, 0.0)
_WIDTH = (-0.59, -0.59, -0.80, -0.65, -0.40, -0.13, -0.05, -0.01, 0.0)
TABLES: Mapping[str, tuple[Number, ...]] = {
    # logarithms over those of 8192 · 4096 · 4096: medians of ten devices, at the nodes of kernel_classes.py
    "product/compute/depth": _DEPTH,
    "product/compute/width": _WIDTH,
    "product/compute/rows": (-0.93, -0.14, 0.0, -0.05),
    # over 4096 keys and heads of 64: medians of seven devices; shorter rows were not measured
    "attention/compute/depth": (0.0, 0.0, 0.0, 0.11),
    "attention/compute/rows": (-0.28, -0.28, -0.28, -0.28, -0.28, -0.28, 0.0, 0.13),
}


def prior_efficiency(name: str, is_vector: bool) -> tuple[Number, Number]:
    """Return the efficiency of a class at its compute bound and at its memory bound.

    >>> prior_efficiency("pixel_convolution", is_vector=False), prior_efficiency("copy", is_vector=True)
    ((0.83, 0.87), (0.7, 0.87))
    """
    return LEVELS.get(name, PASSES if is_vector else PRODUCTS)
