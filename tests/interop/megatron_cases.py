"""Launch scripts as text, what is told of them, and the jobs that the scripts of this folder stand for."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from flopcast.errors import SpecError
from flopcast.interop.megatron.launch_script import launch_document, ranks_of
from flopcast.library.edits import plan_words
from flopcast.requests.job_files import job_of
from flopcast.spec.plan import Plan

SCRIPTS = Path(__file__).parent / "scripts"
FLAGS = {
    "--num-layers": "24",
    "--hidden-size": "1024",
    "--num-attention-heads": "16",
    "--seq-length": "1024",
    "--max-position-embeddings": "1024",
    "--micro-batch-size": "2",
    "--global-batch-size": "16",
    "--vocab-size": "50257",
    "--bf16": "",
}
LAUNCHER = "torchrun --nproc_per_node 8 pretrain_gpt.py"


def script_of(more="", launcher=LAUNCHER, **changes):
    """A small right script, a flag a line, the first on line 2; None leaves one out."""
    named = {f"--{key.replace('_', '-')}": value for key, value in changes.items()}
    flags = [f"{flag} {value}" for flag, value in (FLAGS | named).items() if value is not None]
    return " \\\n  ".join([launcher, *flags, more]) + "\n"


def document_of(more="", devices=None, **changes):
    """The document of a small script with more flags."""
    return launch_document(script_of(more, **changes), "run.sh", devices)


def block_of(document):
    """The blocks of a document's model."""
    return document.data["model"]["blocks"][0]


def told(text, devices=None):
    """Every fault of a script."""
    try:
        launch_document(text, "run.sh", devices)
    except SpecError as error:
        return error.problems
    return ()


def stack_of(more="", **changes):
    """The stack that a small script asks for, as a mapping with its base."""
    stack = document_of(more, **changes).data["stack"]
    return {"base": stack} if isinstance(stack, str) else stack


def job_on(document, cluster="selene"):
    """The checked job of a document on as many devices of a cluster of eight a node as it has ranks."""
    ranks = ranks_of(document)
    node = {"groups": {"0": {"node": {"devices": ranks}}}} if ranks < 8 else {}
    base = {"base": cluster, "nodes": max(ranks // 8, 1)}
    return job_of(replace(document, data=document.data | {"cluster": base | node}))


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a script of the folder asks for, read off it by hand."""

    devices: int | None = None  # given by whoever asks, where the script does not say
    ranks: int
    plan: str
    shape: tuple[int, int, int, int]  # layers, hidden, inner width, heads
    kv_heads: int | None = None
    vocabulary: int
    sequence_length: int
    positions: str  # rows of a table, or "rope" with its share, or "alibi"
    dropout: float = 0.1
    bias: bool = True
    tied: bool = True
    stack: str
    changes: dict = field(default_factory=dict)

    def as_plan(self):
        """The plan as a noun."""
        return Plan(**plan_words(self.plan))


GPT_345M = {
    "shape": (24, 1024, 4096, 16),
    "vocabulary": 50257,
    "sequence_length": 1024,
    "positions": "1024",
}
LLAMA = {"dropout": 0.0, "bias": False, "tied": False, "positions": "rope 1.0", "stack": "megatron-core"}
OVERLAPPED = {"gradients": {"overlap": True}}
IN_16_BITS = {"gradients": {"dtype": "fp16", "accumulate_passes": 1}}
FUSED = ["fused_softmax", "fused_layernorm", "bias_gelu", "bias_dropout_add", "epilogue_bias"]
UNDER_DEEPSPEED = {"rewrites": [*FUSED, "unfused_rope"]}
IN_32_BITS = {"gradients": {"dtype": "fp32", "overflow_checks": 0}}

EXPECTED = {
    "gpt_345m_one_gpu.sh": Expected(
        **GPT_345M, ranks=1, plan="mbs=4 gbs=8 precision=fp16", stack="megatron-2021"
    ),
    "gpt_345m_eight_gpus.sh": Expected(
        **GPT_345M, ranks=8, plan="dp=8 mbs=8 gbs=64 recompute=full precision=fp16", stack="megatron-2021"
    ),
    "gpt_tp2_pp2.sh": Expected(
        ranks=8,
        plan="dp=2 tp=2 pp=2 mbs=4 gbs=16 sp precision=fp16",
        shape=(24, 2048, 8192, 32),
        vocabulary=50257,
        sequence_length=2048,
        positions="2048",
        stack="megatron-2022",
        changes=IN_16_BITS,
    ),
    "gpt3_175b_srun.sh": Expected(
        ranks=1024,
        plan="dp=8 tp=8 pp=16 mbs=1 gbs=1536 recompute=full precision=fp16",
        shape=(96, 12288, 49152, 96),
        vocabulary=50257,
        sequence_length=2048,
        positions="2048",
        stack="megatron-2021",
    ),
    "weak_scaling_1t.sh": Expected(
        ranks=3072,
        plan="dp=6 tp=8 pp=64 mbs=1 gbs=3072 recompute=full precision=fp16",
        shape=(128, 25600, 102400, 160),
        vocabulary=51200,
        sequence_length=2048,
        positions="2048",
        stack="megatron-2021",
    ),
    "mt_nlg_530b_interleaved.sh": Expected(
        ranks=280,
        plan="tp=8 pp=35 vpp=3 mbs=1 gbs=280 sp recompute=selective precision=fp16",
        shape=(105, 20480, 81920, 128),
        vocabulary=51200,
        sequence_length=2048,
        positions="2048",
        stack="megatron-2022",
        changes=IN_16_BITS,
    ),
    "llama2_7b_arrays.sh": Expected(
        **LLAMA,
        ranks=64,
        plan="dp=32 tp=2 mbs=1 gbs=1024 sp zero=1 precision=bf16",
        shape=(32, 4096, 11008, 32),
        vocabulary=32000,
        sequence_length=4096,
        changes={"gradients": OVERLAPPED["gradients"] | {"overlap_gather": True}},
    ),
    "llama2_70b_torchrun.sh": Expected(
        **LLAMA,
        ranks=128,
        plan="dp=4 tp=8 pp=4 mbs=1 gbs=512 sp zero=1 recompute=full precision=bf16",
        shape=(80, 8192, 28672, 64),
        kv_heads=8,
        vocabulary=32000,
        sequence_length=4096,
    ),
    "llama3_8b_fp8.sh": Expected(
        **LLAMA,
        ranks=8,
        plan="dp=4 cp=2 mbs=1 gbs=128 zero=1 precision=fp8",
        shape=(32, 4096, 14336, 32),
        kv_heads=8,
        vocabulary=128256,
        sequence_length=8192,
        changes={
            "gradients": OVERLAPPED["gradients"] | {"dtype": "bf16", "overlap_gather": True},
            "narrow": {"narrow_parameters": True},
        },
    ),
    "llama3_70b_slurm.sh": Expected(
        **LLAMA,
        ranks=512,
        plan="dp=16 tp=8 pp=4 vpp=5 mbs=1 gbs=1024 sp zero=1 precision=bf16",
        shape=(80, 8192, 28672, 64),
        kv_heads=8,
        vocabulary=128256,
        sequence_length=8192,
        changes=OVERLAPPED | {"pipeline": {"transfers": "overlapped"}, "tensor_overlap": "chunks"},
    ),
    "ds_gpt_1p3b.sh": Expected(
        ranks=16,
        plan="dp=16 mbs=4 gbs=256 zero=1 recompute=full precision=fp16",
        shape=(24, 2048, 8192, 16),
        vocabulary=50257,
        sequence_length=2048,
        positions="2048",
        stack="gpt-neox-deepspeed",
        changes=UNDER_DEEPSPEED,
    ),
    "ds_llama_7b_pipeline.sh": Expected(
        **LLAMA | {"stack": "gpt-neox-deepspeed"},
        ranks=8,
        plan="dp=2 tp=2 pp=2 mbs=4 gbs=32 zero=1 recompute=full precision=bf16",
        shape=(32, 4096, 11008, 32),
        kv_heads=32,
        vocabulary=32000,
        sequence_length=2048,
        changes=UNDER_DEEPSPEED | IN_32_BITS,
    ),
    "bloom_176b.slurm": Expected(
        ranks=384,
        plan="dp=8 tp=4 pp=12 mbs=2 gbs=2048 zero=1 recompute=full precision=bf16",
        shape=(70, 14336, 57344, 112),
        vocabulary=250880,
        sequence_length=2048,
        positions="alibi",
        stack="gpt-neox-deepspeed",
        changes=UNDER_DEEPSPEED | IN_32_BITS,
    ),
    "patch_style_13b.sh": Expected(
        **LLAMA,
        ranks=16,
        plan="dp=2 tp=4 pp=2 mbs=1 gbs=256 sp zero=1 recompute=selective precision=bf16",
        shape=(40, 5120, 13824, 40),
        vocabulary=32000,
        sequence_length=4096,
    ),
    "nemotron_15b.sh": Expected(
        **LLAMA | {"positions": "rope 0.5"},
        ranks=384,
        plan="dp=48 tp=8 mbs=4 gbs=1152 sp zero=1 precision=bf16",
        shape=(32, 6144, 24576, 48),
        kv_heads=8,
        vocabulary=256000,
        sequence_length=4096,
        changes=OVERLAPPED,
    ),
    "mpirun_20b.sh": Expected(
        ranks=64,
        plan="dp=4 tp=4 pp=4 mbs=2 gbs=512 recompute=full precision=bf16",
        shape=(44, 6144, 24576, 64),
        vocabulary=50257,
        sequence_length=2048,
        positions="2048",
        stack="megatron-2021",
        changes=IN_32_BITS | {"rewrites": ["fused_softmax", "bias_dropout_add", "epilogue_bias"]},
    ),
    "accelerate_medium.sh": Expected(
        ranks=16,
        plan="dp=16 mbs=8 gbs=256 recompute=full:block:12 precision=fp16",
        shape=(24, 1536, 6144, 16),
        vocabulary=50257,
        sequence_length=1024,
        positions="1024",
        stack="megatron-2022",
    ),
    "multiquery_code_15b.sh": Expected(
        ranks=128,
        plan="dp=8 tp=4 pp=4 mbs=1 gbs=512 precision=bf16",
        shape=(40, 6144, 24576, 48),
        kv_heads=1,
        vocabulary=49152,
        sequence_length=8192,
        positions="8192",
        stack="megatron-core",
    ),
    "environment_13b.sh": Expected(
        ranks=32,
        plan="dp=8 tp=2 pp=2 mbs=2 gbs=256 precision=bf16",
        shape=(40, 5120, 20480, 40),
        vocabulary=50257,
        sequence_length=2048,
        positions="2048",
        stack="megatron-core",
        changes={
            "attention_kernel": "materialised",
            "rewrites": ["fused_softmax", "fused_layernorm", "bias_gelu", "epilogue_bias"],
            "gradients": {
                "accumulate_passes": 1,
                "bucket_elements": 100000000,
                "bucket_elements_per_rank": 0,
            },
        },
    ),
    "legacy_models_3b.sh": Expected(
        ranks=8,
        plan="dp=8 mbs=8 gbs=64 precision=fp16",
        shape=(30, 3072, 12288, 32),
        vocabulary=50257,
        sequence_length=2048,
        positions="2048",
        stack="megatron-2022",
        changes=IN_16_BITS,
    ),
    "benchmark_unknown_nodes.sh": Expected(
        **LLAMA | {"tied": True},
        devices=64,
        ranks=64,
        plan="dp=16 tp=4 mbs=2 gbs=256 zero=1 precision=bf16",
        shape=(32, 4096, 10880, 32),
        vocabulary=131072,
        sequence_length=4096,
        changes=OVERLAPPED,
    ),
}
REFUSED_BY_RULES = ("llama3_8b_fp8.sh",)


def script(name):
    """The document of a script of the folder."""
    return launch_document((SCRIPTS / name).read_bytes(), name, EXPECTED[name].devices)
