"""Hugging Face architectures that are refused, and keys that do not affect the cost.

Answers: why is this architecture not imported, which keys mean another architecture, and which keys change
neither time nor memory?
Elsewhere: names of families and keys (unsupported.yaml), the families that are imported (families.py).
"""

from collections.abc import Mapping
from typing import Any

from flopcast.files.package_table import meanings, read_table

_TABLE = read_table(__package__, "unsupported.yaml")
EXPERTS, LATENT = (tuple(_TABLE[name].split()) for name in ("experts", "latent"))  # keys of such layers
LEFT_OUT = meanings(_TABLE["left_out"])  # a share above 0 → what is counted in spite of it
ELSEWHERE = meanings(_TABLE["families"])  # family → why it is refused
TYPES = meanings(_TABLE["types"])  # other names of a family
OF_VISION: Mapping[str, Any] = _TABLE["vision"]
NO_DECODER = tuple(name for name, because in ELSEWHERE.items() if "encoder" in because)
OTHERWISE = {  # a key that is true → why a dense decoder has it false
    "is_encoder_decoder": ELSEWHERE["marian"],
    "add_cross_attention": "cross-attention to the output of an encoder is not supported yet in this "
    "family",
    "use_bidirectional_attention": ELSEWHERE["bert"],
}
MAPPINGS = frozenset(_TABLE["mappings"].split())  # of SILENT, may hold a mapping
SILENT = frozenset(_TABLE["silent"].split())
