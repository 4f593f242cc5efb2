"""Megatron-LM's flags of latent attention and of multi-token prediction.

Answers: which sizes do the latents have, and how many further tokens are predicted?
Elsewhere: attention without latents (model.py). Defaults are those of Megatron-LM, core v0.12.
"""

from flopcast.files.yaml_text import Path
from flopcast.interop.megatron.job_builder import JobBuilder

MLA = ("--multi-latent-attention", "--multi-head-latent-attention")  # the other of MindSpeed-LLM, as below
SHARED_MTP = "--mtp-use-repeated-layer"
SIZES = {  # flags → field, default
    ("--kv-lora-rank",): ("kv_lora_rank", 32),
    ("--qk-head-dim", "--qk-nope-head-dim"): ("qk_nope_head_size", 128),
    ("--qk-pos-emb-head-dim", "--qk-rope-head-dim"): ("qk_rope_head_size", 64),
    ("--v-head-dim",): ("value_head_size", 128),
}
ASIDE = ("--group-query-attention", "--num-query-groups", "--kv-channels", "--add-qkv-bias")


def read_latents(args: JobBuilder, mixer: Path, heads: int) -> None:
    """Read latent attention, which replaces a mixer; queries have a latent if its rank is given.

    Only the last projection has a bias, which is left out; norms of latents are those of
    `--qk-layernorm`, and are counted even without this flag. Notes report both.
    """
    args.put((*mixer, "kind"), "latent_attention", *MLA)
    args.put((*mixer, "heads"), heads, "--num-attention-heads")
    if args.has("--q-lora-rank"):
        args.put((*mixer, "q_lora_rank"), args.count("--q-lora-rank"), "--q-lora-rank")
    for flags, (field, usual) in SIZES.items():
        flag = args.first(*flags)
        args.put((*mixer, field), args.count(flag, usual), flag)
    for flag in ASIDE:
        if args.has(flag):
            args.assume(f"{flag} has no effect, because latent attention has its own sizes", flag)
    if not args.has("--qk-layernorm"):
        args.assume("flopcast assumes norms of latents, as with --qk-layernorm", args.first(*MLA))
    if not args.has("--disable-bias-linear"):
        args.assume("the bias of the output projection of attention is ignored", args.first(*MLA))


def read_further_predictions(args: JobBuilder) -> None:
    """Read modules of multi-token prediction; there are none unless their number is given."""
    modules = args.count("--mtp-num-layers", 0, least=0)
    if modules:
        args.put(("model", "mtp"), modules, "--mtp-num-layers")
        if args.has(SHARED_MTP):
            args.put(("model", "mtp_shared"), True, SHARED_MTP)
