"""All kinds of export by name. A new kind is one file and one line here.

Answers: what can a job be exported to, and which function does it?
"""

from collections.abc import Callable
from dataclasses import dataclass

from flopcast.errors import spec_error
from flopcast.files.exported import Exported
from flopcast.interop.exports.deepspeed import export_deepspeed
from flopcast.interop.exports.megatron import export_megatron
from flopcast.interop.exports.megatron_bridge import export_megatron_bridge
from flopcast.interop.exports.torchtitan import export_torchtitan
from flopcast.interop.exports.traces import export_chakra, export_chrome, export_perfetto
from flopcast.spec.job import Job


@dataclass(frozen=True, eq=False, slots=True)
class ExportFormat:
    """One export format: its description, and the function that exports."""

    description: str
    export: Callable[[Job], Exported]


KINDS: dict[str, ExportFormat] = {
    "megatron": ExportFormat("a launch script with Megatron-LM's flags", export_megatron),
    "deepspeed": ExportFormat("a configuration of DeepSpeed's engine, JSON", export_deepspeed),
    "torchtitan": ExportFormat("settings of torchtitan, TOML with its flags", export_torchtitan),
    "megatron-bridge": ExportFormat(
        "overrides of a recipe of Megatron-Bridge, YAML", export_megatron_bridge
    ),
    "chakra": ExportFormat("a Chakra execution trace for each rank (ASTRA-sim)", export_chakra),
    "perfetto": ExportFormat("a trace of the step for ui.perfetto.dev", export_perfetto),
    "chrome": ExportFormat("the same trace as Chrome's trace events, in JSON", export_chrome),
}


def kind_named(name: str) -> ExportFormat:
    """Return the kind with this name.

    Raises
    ------
    SpecError
        There is none.
    """
    if name in KINDS:
        return KINDS[name]
    because = "; ".join(f"{known} is {kind.description}" for known, kind in KINDS.items())
    allowed, fix = ", ".join(KINDS), "choose one of them"
    raise spec_error("KIND", name, allowed, because, fix)
