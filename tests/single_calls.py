"""Functions of the source, called for one stage, or for plans of any structure."""

from collections import defaultdict

import numpy as np

from flopcast.layers.multi_token import MultiTokenPrediction
from flopcast.memory.curve import memory_curves
from flopcast.memory.peak import peak_memory
from flopcast.search.screen import Screened, screen
from flopcast.spec.model import WHOLE
from flopcast.spec.plan import batch_plans, structure_of
from flopcast.timeline.closed_form import step_terms, steps_of


def memory_curve(programs, stage):
    """The memory over time of the first plan's step on one stage."""
    return next(memory_curves(programs, peak_memory(programs), [stage], [0]))


def step_seconds(priced):
    """The seconds of one step of every plan in closed form."""
    plans = priced.programs.plans
    return steps_of(step_terms(priced), plans.structure.pipeline_schedule, plans.num_micro_batches)


def screen_each(job, plans, book):
    """Plans of any structures, screened in their order."""
    groups = defaultdict(list)
    for index, plan in enumerate(plans):
        groups[structure_of(plan)].append(index)
    columns = defaultdict(lambda: np.zeros(len(plans)))
    for members in groups.values():
        part = screen(job, batch_plans([plans[index] for index in members]), book)
        for name in ("possible", "fits", "step_time_s", "device_used_bytes", "high_bytes", "outside_ratio"):
            columns[name][members] = getattr(part, name)
    masks = {name: columns.pop(name).astype(bool) for name in ("possible", "fits")}
    return Screened(**masks, **columns)


def mtp_parameters(model):
    """The weights of the modules of multi-token prediction, less the tables that they share."""
    layers = [layer for layer, _ in model.sequence() if isinstance(layer, MultiTokenPrediction)]
    return sum(weight.total for layer in layers for weight in layer.weights(model.hidden, WHOLE))
