"""Number formats of weights: those that engines run, and those in which a model's weights were published.

Elsewhere: bytes of the formats (operators/formats.py), the formats of a deployment (deployment.py).
"""

from typing import Literal

from flopcast.strict_model import StrictModel

WeightFormat = Literal[
    "bf16",
    "fp32",
    "fp8",
    "fp8_block",
    "int4",
    "nvfp4",
    "mxfp4",
    "mxfp4_mxfp8",
    "w4a4",
    "sparse_70",
    "sparse_80",
    "sparse_90",
]


class PublishedFormats(StrictModel):
    """The formats of a model's weights as its authors published them, which engines load by default.

    Attributes
    ----------
    weights : str
        Number format of linear layers.
    expert_weights : str or None
        Number format of routed experts; by default that of the other weights.
    """

    weights: WeightFormat = "bf16"
    expert_weights: WeightFormat | None = None
