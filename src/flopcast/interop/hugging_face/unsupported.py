"""Hugging Face architectures that are refused, and keys that do not affect the cost.

Answers: why is this architecture not imported, which keys mean another architecture, and which keys change
neither time nor memory?
Elsewhere: names of families and keys (unsupported.yaml), the families that are imported (families.py).
"""

from flopcast.files.package_table import read_table

_TABLE = read_table(__package__, "unsupported.yaml")
EXPERTS = (  # keys of a mixture of experts; 0, 1 and null make a dense model
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok",
)  # fmt: skip
LATENT = ("kv_lora_rank", "q_lora_rank")
LEFT_OUT = {  # a share above 0 → what is counted in spite of it
    **dict.fromkeys(
        ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"), "flopcast computes all layers in each step"
    ),
    "activation_dropout": "dropout between the linear layers of an MLP is ignored",
}
ELSEWHERE: dict[str, str] = {  # family → why it is refused
    name: because for because, names in _TABLE["families"].items() for name in names.split()
}
NO_DECODER = tuple(name for name, because in ELSEWHERE.items() if "encoder" in because)
OTHERWISE = {  # a key that is true → why a dense decoder has it false
    "is_encoder_decoder": ELSEWHERE["marian"],
    "add_cross_attention": "cross-attention to the output of an encoder is not supported yet in this "
    "family",
    "use_bidirectional_attention": ELSEWHERE["bert"],
}
MAPPINGS = frozenset(_TABLE["mappings"].split())  # of SILENT, may hold a mapping
SILENT = frozenset(_TABLE["silent"].split())
