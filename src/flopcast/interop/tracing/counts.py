"""Totals of a trace: parameters, FLOP and memory of every run of equal layers, and of the ends.

Answers: how much does the model's own code compute, and how much does it keep for its backward pass?
Elsewhere: the recording (recorder.py), the same counts of flopcast's layers (layers/).

A layer's kept memory consists of the tensors that it wrote itself and its input, each counted once. Tensors
that all layers share (rotary angles, a mask) belong to the ends. Bytes are those of the traced dtype, bf16.
"""

from dataclasses import asdict
from itertools import groupby
from typing import Any

from flopcast.interop.tracing.recorder import ENDS, Recording
from flopcast.interop.tracing.weightless import Config, Libraries, attentions, run
from flopcast.records import Record


class LayerCount(Record, kw_only=False):
    """One layer of a trace, or its ends."""

    parameters: int
    forward_flop: float
    backward_flop: float
    kept_bytes: int


def layer_counts(recording: Recording) -> dict[int, LayerCount]:
    """Return the FLOP and the kept tensors of each decoder layer, by its number. The key ENDS means all
    other parts.
    """
    places = (ENDS, *range(len(recording.inputs)))
    wrote = {
        operand.storage: call.layer
        for call in recording.calls
        for operand in call.writes
        if not call.backward
    }
    kept = dict.fromkeys(places, 0)
    for memory in recording.kept:
        inside = memory.layer != ENDS and recording.inputs[memory.layer] == memory.storage
        own = inside or wrote.get(memory.storage, ENDS) == memory.layer
        kept[memory.layer if own else ENDS] += memory.size_bytes
    flop = dict.fromkeys(((place, backward) for place in places for backward in (False, True)), 0.0)
    for call in recording.calls:
        flop[call.layer, call.backward] += call.flop
    parameters = dict.fromkeys(places, 0)
    for parameter in recording.parameters:
        parameters[parameter.layer] += parameter.elements
    return {
        place: LayerCount(parameters[place], flop[place, False], flop[place, True], kept[place])
        for place in places
    }


def summed(recording: Recording) -> dict[str, Any]:
    """Return runs of equal layers, and the ends, as plain data."""
    counts = layer_counts(recording)
    layers = [counts[index] for index in range(len(recording.inputs))]
    runs = [{"layers": len(list(row)), **asdict(one)} for one, row in groupby(layers)]
    return {"runs": runs, "ends": asdict(counts[ENDS])}


def count(libraries: Libraries, config: Config, sequences: int, length: int) -> dict[str, Any]:
    """Return all counts of a model on one micro-batch, as plain data like the oracle's files.

    If its attention can be selected, there are two sets of counts: with the model's own attention and
    with one kernel. Dropout is switched off.
    """
    traces = {
        attention: summed(run(libraries, config, sequences, length, attention))
        for attention in attentions(libraries, config)
    }
    size = {"dtype": "bf16", "sequences": sequences, "length": length}
    return {"model_type": config.model_type, **libraries.versions, **size, "traces": traces}
