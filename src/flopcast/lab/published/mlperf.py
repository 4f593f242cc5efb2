"""Rows of MLPerf Training result tables, rewritten into the columns for published runs.

Answers: which model, machine, plan and measurement does one submitted result describe?
Elsewhere: the meaning of the columns for published runs (headers.py), defaults of the software
(catalog/runs/stacks.yaml).

The logs of a submission print the batch, the accumulation and the time of a step. They do not print the
plan, which is in the name and the settings of a configuration file. A submitter's folder often holds
several files for the same number of devices. The file must reproduce the logged batch and accumulation:
`global batch = data parallel × micro-batch × accumulation`. Files named after the system come first, and
4-bit files come before others, because a submitter with such a file uses it for the submitted result.
Without a file the plan and the precision are unknown.
"""

import json
import re
from collections.abc import Mapping

from flopcast.lab.samples.columns import as_number
from flopcast.records import Record, replace

SEQUENCE_LENGTH = "8192"  # of all three benchmarks; shorter documents are packed (training_policies)
LORA_NOTES = "LoRA rank 16 on query, key, value and output projections of packed documents"
MODELS = {  # benchmark → model, remarks
    "llama31_405b": ("Llama 3.1 405B", ""),
    "llama31_8b": ("Llama 3.1 8B", ""),
    "llama2_70b_lora": ("Llama 2 70B", LORA_NOTES),
}
_SIZES = re.compile(r"_(?P<nodes>\d+)x(?P<per_node>\d+)x(?P<samples>\d+)(?:xtp(\d+)pp(\d+)cp(\d+))?")
_PACKAGE = re.compile(r"\(([A-Z]*\d+[^)]*)\)")  # "NVIDIA Blackwell GPU (B200-SXM-180GB)"
_RELEASE = re.compile(r"NeMo\D{0,30}\b(2\d[.]\d\d)\b", re.IGNORECASE)  # of NeMo's container
AMD = re.compile(r"MI\d{3}X?")


class _Configuration(Record):
    """The contents of a configuration file's name: degrees, and whether GEMMs run in 4 bits."""

    name: str
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    four_bits: bool = False

    def as_set(self, settings: Mapping[str, str], devices: int, batch: int) -> "_Configuration":
        """Return the configuration with the tensor-parallel degree that its batch per replica implies.

        The name of a file omits this degree if a common file sets it. `MINIBS` is the number of sequences
        that a replica runs in a step: global batch = MINIBS × devices / (TP × PP × CP), according to
        megatron_gpt_peft_tuning_config.yaml.
        """
        each, others = _count(settings.get("MINIBS", "")), self.pipeline_parallel * self.context_parallel
        if not each or each * devices % (batch * others):
            return self
        return replace(self, tensor_parallel=each * devices // (batch * others))

    def micro_batch(self, devices: int, batch: int, accumulation: int) -> int | None:
        """Return the micro-batch that reproduces the logged batch, or None if no whole number does."""
        ranks = self.tensor_parallel * self.pipeline_parallel * self.context_parallel
        if devices % ranks or batch % (devices // ranks * accumulation):
            return None
        return batch // (devices // ranks * accumulation)


def published_row(row: Mapping[str, str]) -> dict[str, str]:
    """Return one MLPerf result, as cells by column, in the columns for published runs.

    Cells that the row does not determine are missing. A benchmark that is not a language model keeps its
    name as the model's name, so that the row is refused because of an unknown model.
    """
    benchmark = row.get("benchmark", "")
    model, notes = MODELS.get(benchmark, (benchmark, ""))
    accelerator = row.get("accelerator", "")
    package = _PACKAGE.search(accelerator)
    cells = {
        "id": "-".join(("mlperf-5.1", row.get("org", ""), row.get("system", ""), benchmark)),
        "source_key": "mlperf-training-5.1",
        "kind": "train",
        "model_name": model,
        "seq_len": SEQUENCE_LENGTH if benchmark in MODELS else "",
        "gpu_model": package[1] if package else accelerator,
        "gpus_per_node": row.get("per_node", ""),
        "num_gpus": row.get("devices", ""),
        "inter_node_link": row.get("network", ""),
        "global_batch": row.get("global_batch_size", ""),
        "framework": "MLPerf NeMo/Megatron-Core" + (" ROCm" if _is_amd(row) else ""),
        "software_version": " ".join(_RELEASE.findall(row.get("framework", ""))),
        "year": "2025",
        "step_time_s": row.get("med_train_step_time", ""),
        "samples_per_s": "" if row.get("med_train_step_time") else row.get("med_throughput", ""),
    }
    plan = _plan(row)
    file = plan.pop("config_file", "")
    words = (notes, f"system {row.get('system', '')}", f"plan of {file}" if file else "")
    cells["notes"] = "; ".join(filter(None, words))
    return {name: text for name, text in (cells | plan).items() if text}


def _plan(row: Mapping[str, str]) -> dict[str, str]:
    """Return the degrees, micro-batch and precision from the configuration that reproduces the batch."""
    counts = [_count(row.get(name, "")) for name in ("devices", "global_batch_size")]
    accumulation = _count(row.get("gradient_accumulation_steps", ""))
    if None in counts or not accumulation:
        return {}
    devices, batch = (count or 0 for count in counts)
    for name in _ordered(row):
        settings = _settings(row) if [name] == row["config_files"].split()[:1] else {}
        file = _configuration(name).as_set(settings, devices, batch)
        micro_batch = file.micro_batch(devices, batch, accumulation)
        if micro_batch:
            return {
                "tp": str(file.tensor_parallel),
                "pp": str(file.pipeline_parallel),
                "cp": str(file.context_parallel),
                "vpp": settings.get("INTERLEAVED_PIPELINE", "").replace("null", ""),
                "micro_batch": str(micro_batch),
                "precision": "fp4" if file.four_bits else "fp8",
                "config_file": file.name,
            }
    return {}


def _settings(row: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the first configuration file; empty if the cell is not a JSON object."""
    try:
        data = json.loads(row.get("config") or "{}")
    except json.JSONDecodeError:
        return {}
    return {name: str(value) for name, value in data.items()} if isinstance(data, dict) else {}


def _ordered(row: Mapping[str, str]) -> list[str]:
    """Return the configuration files for the row's accelerator, those of its own system first."""
    files = (row.get("config_files") or "").split()
    system = re.sub(r"^\d+x", "", row.get("system", ""))
    chip = re.search(r"(G?)[BH]\d00|MI\d+X", row.get("accelerator", ""))
    own = [name for name in files if system and system in name]
    four_bits = [name for name in files if "_fp4" in name]
    amd = [bool(AMD.search(name)) for name in files]
    same_maker = [name for name, other in zip(files, amd, strict=True) if other == _is_amd(row)]
    named = [name for name in same_maker if chip and chip[0] in name]
    ordered = dict.fromkeys((*own, *(name for name in named if name in four_bits), *named, *same_maker))
    return [name for name in ordered if name in same_maker]


def _is_amd(row: Mapping[str, str]) -> bool:
    return bool(AMD.search(row.get("accelerator", "")))


def _configuration(name: str) -> _Configuration:
    """Return the degrees in the name of a file; missing degrees are 1."""
    sizes = _SIZES.search(name)
    degrees = [int(text or 1) for text in sizes.groups()[3:]] if sizes else [1, 1, 1]
    return _Configuration(
        name=name,
        tensor_parallel=degrees[0],
        pipeline_parallel=degrees[1],
        context_parallel=degrees[2],
        four_bits="_fp4" in name,
    )


def _count(text: str) -> int | None:
    """Return a positive integer, which the text may write as "2.0"; None for any other text."""
    number = as_number(text) or 0.0
    return int(number) if number.is_integer() and number > 0 else None
