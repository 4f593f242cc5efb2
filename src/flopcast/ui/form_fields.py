"""The fields that a form can have: label, meaning, and choices.

Answers: what does a field of a page, and of the HTTP interface, mean?
Elsewhere: how a form shows them (form.py), how a request is read (request_fields.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import get_args

from flopcast.library import catalog
from flopcast.search.objectives import OBJECTIVES
from flopcast.spec.deployment import CacheFormat
from flopcast.spec.precision import RECIPES
from flopcast.spec.published_formats import WeightFormat

FINDS = {  # what a search may find besides plans, with the label of each
    "largest": "the largest model that fits",
    "per_layer": "the best strategy of each block of a plan",
    "node_order": "the best order of nodes for a plan",
    "group_division": "the best division of a plan over groups of nodes",
    "split_points": "where to divide a model over a chain of devices",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form: its label, a short hint, its meaning, and its choices.

    A field without choices accepts any text, and a field with `counts` accepts whole numbers.
    """

    label: str
    hint: str = ""
    _: KW_ONLY
    about: str
    choices: Sequence[str] = ()
    counts: bool = False


COUNTED = {
    "gpus": Field("GPUs", about="The number of devices."),
    "gbs": Field(
        "Global batch",
        "sequences",
        about="Global batch size: the number of sequences that all replicas together process in a step.",
    ),
    "seq": Field(
        "Sequence length",
        "tokens",
        about="The number of tokens in a sequence. The default is the sequence length of the pretraining.",
    ),
    "tp": Field(
        "Tensor parallel",
        "tp",
        about="Tensor-parallel degree: the number of devices over which each weight matrix is divided.",
    ),
    "pp": Field("Pipeline stages", "pp", about="The number of pipeline stages."),
    "vpp": Field(
        "Virtual stages",
        "vpp",
        about="The number of model chunks on each pipeline stage, for interleaved schedules.",
    ),
    "cp": Field(
        "Context parallel",
        "cp",
        about="Context-parallel degree: the number of devices over which each sequence is divided.",
    ),
    "ep": Field(
        "Expert parallel",
        "ep",
        about="Expert-parallel degree: the number of devices over which experts are distributed.",
    ),
    "dp": Field(
        "Data parallel",
        "dp",
        about="Data-parallel degree. The default is the number of devices divided by the other degrees.",
    ),
    "mbs": Field(
        "Micro-batch",
        "mbs",
        about="Micro-batch size: the number of sequences that a replica processes in one forward pass.",
    ),
    "lora": Field(
        "LoRA", "rank", about="The rank of LoRA adapters. If given, only the adapters are trained."
    ),
    "qlora": Field(
        "QLoRA", "rank", about="The rank of LoRA adapters that are trained on frozen 4-bit weights (QLoRA)."
    ),
    "concurrency": Field(
        "Concurrent requests", about="The number of concurrent requests. It replaces the rate."
    ),
    "requests": Field("Requests", about="The number of requests to simulate."),
    "replicas": Field("Replicas", about="The number of replicas of the engine, which share the requests."),
    "max_sequences": Field(
        "Sequences", "per pass", about="The largest number of sequences in one iteration of the engine."
    ),
    "max_tokens": Field(
        "New tokens",
        "per pass",
        about="The largest number of tokens (of prompts and outputs) in one iteration of the engine.",
    ),
}
FROM_A_LIST = {
    "model": Field("Model", about="The name of a model in the catalogue.", choices=catalog.names("models")),
    "cluster": Field(
        "Cluster",
        about="The name of a cluster in the catalogue. It determines devices, links and prices.",
        choices=catalog.names("clusters"),
    ),
    "stack": Field(
        "Software",
        about=(
            "The training software and its version. The stack determines which communication "
            "overlaps, which kernels are fused, and how much memory is used."
        ),
        choices=catalog.names("stacks"),
    ),
    "zero": Field(
        "ZeRO stage",
        about=(
            "ZeRO stage. Stage 1 shards the optimizer states, stage 2 also the gradients, stage 3 "
            "also the parameters."
        ),
        choices=("0", "1", "2", "3"),
    ),
    "recompute": Field(
        "Recompute",
        about="Which activations the backward pass recomputes: none, selective or full.",
        choices=("none", "selective", "full"),
    ),
    "precision": Field(
        "Precision", about="The number format of weights and GEMMs.", choices=tuple(RECIPES)
    ),
    "objectives": Field(
        "Objective",
        about="The objective by which plans are ranked. The Pareto front shows its trade-off with memory.",
        choices=tuple(OBJECTIVES),
    ),
    "find": Field(
        "Find",
        about=(
            "What to find instead of the best plans: the largest model that fits, or the best "
            "layout of one plan."
        ),
        choices=tuple(FINDS),
    ),
    "evolve": Field(
        "Evolutionary search",
        about="Estimate a few thousand plans, chosen by an evolutionary algorithm, instead of all plans.",
        choices=("yes",),
    ),
    "tp_beyond_domain": Field(
        "Tensor parallel across domains",
        about="Also try tensor parallelism across several scale-up (NVLink) domains.",
        choices=("yes",),
    ),
    "no_refine": Field(
        "Skip variants",
        about=(
            "Do not try variants of the best plans, such as uneven pipeline stages, partial "
            "recompute or other orders of ranks."
        ),
        choices=("yes",),
    ),
    "engine": Field("Engine", about="The serving software.", choices=catalog.names("engines")),
    "weights": Field("Weights", about="The number format of the weights.", choices=get_args(WeightFormat)),
    "cache": Field("KV cache", about="The number format of the KV cache.", choices=get_args(CacheFormat)),
}
WRITTEN = {
    "rate": Field("Rate", "such as 4/s", about="The mean rate at which requests arrive, such as 4/s."),
    "prompt": Field(
        "Prompt", "tokens", about="The number of tokens in a prompt, such as 2000 or lognormal(2000, 0.5)."
    ),
    "output": Field(
        "Output", "tokens", about="The number of tokens in an answer, such as 300 or uniform(100, 500)."
    ),
    "slo": Field(
        "Latency limits",
        "such as ttft_p99=2s tpot_p99=50ms",
        about="Latency limits (SLOs), such as ttft_p99=2s.",
    ),
    "price": Field(
        "Price of a device",
        "such as 2.10 USD/h",
        about="The price of a device per hour. The default is a list price of the catalogue.",
    ),
    "power_limit": Field(
        "Power limit of a device",
        "such as 500 W",
        about="The power limit of a device, which lowers its clocks.",
    ),
    "images": Field(
        "Images of a sequence",
        "such as 2x1024x768",
        about="The number, width and height of the images in each sequence, for vision-language models.",
    ),
    "slow": Field(
        "Slow parts",
        "such as device=3:0.8",
        about="Slow devices, hosts and links. With host=1:0.7, host 1 runs at 70 % of its normal speed.",
    ),
    "loader": Field(
        "Input pipeline",
        "such as decode=9ms:8,copy=602kB@link",
        about="Stages of data loading. With decode=9ms:8, 8 workers each need 9 ms for a sample.",
    ),
    "schedule": Field(
        "Schedule",
        "such as 1f1b",
        about="The pipeline schedule: the order of forward and backward passes on each stage.",
    ),
    "offload": Field(
        "Offload",
        "such as optimizer=host",
        about=(
            "What to offload from device memory, such as optimizer=host or activations=nvme. In a "
            "search, auto tries everything that the stack can offload."
        ),
    ),
    "plan": Field(
        "Other fields of the plan",
        "such as sp optimizer=adamw",
        about="Other settings of the plan, written as for --plan on the command line.",
    ),
    "settings": Field(
        "Other settings",
        "such as draft=eagle drafted=3",
        about='Other settings of the deployment, such as "draft=eagle drafted=3".',
    ),
    "changes": Field(
        "Other fields",
        "such as stack.attention_kernel=flash",
        about="Changes to the job, as KEY=VALUE separated by spaces, such as plan.vpp=2.",
    ),
    "samples": Field("Samples", "such as 52k", about="The number of sequences in one epoch."),
    "epochs": Field(
        "Epochs", "such as 3", about="The number of epochs: how often the run trains on each sample."
    ),
    "tokens": Field(
        "Tokens of the whole run",
        "such as 2T",
        about=(
            "The number of tokens on which the run trains. If given, the response also contains the"
            " time and cost of the whole run."
        ),
    ),
    "checkpoint": Field(
        "Checkpoints",
        "such as lazy file_system every=100",
        about="How checkpoints are saved: the method, the storage and the interval.",
    ),
    "deadline": Field("Deadline", "such as 30 d", about="The maximum time of the whole run."),
    "budget": Field("Budget", "such as 2.5M USD", about="The maximum cost of the whole run."),
    "headroom": Field(
        "Maximum memory use",
        "such as 90 %; by default, what fits",
        about=(
            "Consider only plans whose expected memory is at most this fraction of device memory. "
            "By default, the upper end of the memory interval of a plan must fit."
        ),
    ),
}
FIELDS: Mapping[str, Field] = (
    {name: replace(each, counts=True) for name, each in COUNTED.items()} | FROM_A_LIST | WRITTEN
)
