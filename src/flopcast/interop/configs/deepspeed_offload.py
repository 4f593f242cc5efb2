"""DeepSpeed's keys for states outside the devices: `offload_optimizer`, `offload_param`, checkpoints.

Answers: which states are on the host or on NVMe drives, and how are they copied there?
Elsewhere: the other keys of DeepSpeed (deepspeed.py), the cost of placements (workload/offload.py). The
settings under `aio` determine how drives are read; the rates of drives are those of the cluster.

References
----------
https://www.deepspeed.ai/docs/config-json/; deepspeed/runtime/zero/offload_config.py and config.py (names,
defaults, stages; `cpu_offload` and similar keys are the old names).
"""

from flopcast.interop.configs.job_reader import ACTIVATIONS, JobReader
from flopcast.spec.offload import Placement

ZERO = "zero_optimization"
STAGE = f"{ZERO}.stage"
OPTIMIZER, PARAMETERS = f"{ZERO}.offload_optimizer", f"{ZERO}.offload_param"
OLD_NAMES = {OPTIMIZER: f"{ZERO}.cpu_offload", PARAMETERS: f"{ZERO}.cpu_offload_params"}
OLD_PIN = f"{ZERO}.cpu_offload_use_pin_memory"
DEVICES = {"none": "", "cpu": "host", "nvme": "nvme"}
BUFFERS, BUFFER_ELEMENTS, KEPT_ELEMENTS = 5, 100_000_000, 1_000_000_000  # of offload_param
BUFFER_ELEMENT_BYTES = 2
CPU_CHECKPOINTING = "activation_checkpointing.cpu_checkpointing"


def read_placements(reader: JobReader, stage: int) -> None:
    """Put optimizer states and parameters outside the devices into the plan.

    Parameters
    ----------
    stage : the file's ZeRO stage
    """
    tier = _tier(reader, OPTIMIZER, stage)
    ratio = reader.fraction(f"{OPTIMIZER}.ratio", 1.0)
    if ratio < 1 and tier and stage < 3:
        because = "DeepSpeed can run a part of the optimizer on the device only under ZeRO stage 3"
        reader.fault(f"{OPTIMIZER}.ratio", f"1.0, because {STAGE} is {stage}", because, "write 1.0")
    if tier and ratio > 0:
        word = Placement.model_validate({"kind": "optimizer", "tier": tier, "fraction": ratio}).word()
        reader.place((word,), f"{OPTIMIZER}.device", OLD_NAMES[OPTIMIZER])
    if tier == "nvme" and not all(reader.flag(f"{OPTIMIZER}.pipeline_{way}") for way in ("read", "write")):
        text = (
            "flopcast assumes that reading and writing optimizer states on NVMe overlaps with the "
            "update on the host, as with pipeline_read and pipeline_write"
        )
        reader.assume(text, f"{OPTIMIZER}.device")
    if tier := _tier(reader, PARAMETERS, stage):
        reader.place((f"parameters:{tier}",), f"{PARAMETERS}.device", OLD_NAMES[PARAMETERS])


def _tier(reader: JobReader, part: str, stage: int) -> str:
    """Return the memory in which a state is placed, "" if it is on the device."""
    key, old = f"{part}.device", OLD_NAMES[part]
    tier = reader.choice(key, DEVICES, "")
    if reader.flag(old):
        if reader.has(key):
            because = f"{old} is the old name of {key}, so DeepSpeed accepts only one of them"
            reader.fault(old, f"no {old} together with {key}", because, f"remove {old}")
        key, tier = old, tier or "host"
    least = 3 if part == PARAMETERS or tier == "nvme" else 1
    if tier and stage < least and not reader.faulty(STAGE):
        allowed = "3" if least == 3 else "1, 2 or 3"
        because = "DeepSpeed supports this offload only if ZeRO shards the states"
        allowed = f"no value, because {STAGE} is not {allowed}"
        reader.fault(key, allowed, because, f"set {STAGE} to {least}, or remove {key}")
    return tier


def offload_changes(reader: JobReader, stage: int) -> dict[str, object]:
    """Return the file's changes to `stack.offload`; none if no state is outside the devices.

    Gradients pass through memory that is not pinned, unless `pin_memory` of `offload_optimizer` is set.
    SuperOffload updates on the host during the backward pass, only under ZeRO stage 3
    (deepspeed/runtime/superoffload/superoffload_stage3.py).
    """
    changes: dict[str, object] = {}
    pins = reader.flag(OLD_PIN)
    if reader.has_place("optimizer") and reader.flag(f"{OPTIMIZER}.pin_memory", pins):
        changes["gradient_copies"] = "pinned"
    if reader.has_place("optimizer") and reader.flag(f"{OPTIMIZER}.super_offload") and stage == 3:
        changes["gradient_flush"] = "overlapped"
        changes |= {"overlaps_updates": True, "backward_fraction": 1.0}
    if not reader.has_place("parameters"):
        return changes
    if not reader.flag(f"{PARAMETERS}.pin_memory", pins):
        text = "flopcast assumes that parameters are copied from pinned memory"
        reader.assume(text, reader.first(f"{PARAMETERS}.device", OLD_NAMES[PARAMETERS]))
    if reader.choice(f"{PARAMETERS}.device", DEVICES, "") == "nvme":
        buffers = reader.count(f"{PARAMETERS}.buffer_count", BUFFERS, least=0)
        elements = reader.count(f"{PARAMETERS}.buffer_size", BUFFER_ELEMENTS, least=0)
        changes["buffer_bytes"] = f"{buffers * elements * BUFFER_ELEMENT_BYTES} B"
        kept = reader.count(f"{PARAMETERS}.max_in_cpu", KEPT_ELEMENTS, least=0)
        if kept:
            text = (
                "flopcast assumes that all parameters are on NVMe, although DeepSpeed keeps up to "
                f"{kept} of each rank on the host"
            )
            reader.assume(text, f"{PARAMETERS}.max_in_cpu")
    return changes


def read_checkpoints(reader: JobReader) -> None:
    """Put checkpoints on the host into the plan, which then recomputes whole blocks."""
    if reader.flag(CPU_CHECKPOINTING):
        reader.put(("plan", "recompute"), "full", CPU_CHECKPOINTING)
        reader.place(ACTIVATIONS, CPU_CHECKPOINTING)
        because = "offloads activation checkpoints; the training program must enable them"
        reader.assume(f"recompute=full, because cpu_checkpointing {because}", CPU_CHECKPOINTING)
