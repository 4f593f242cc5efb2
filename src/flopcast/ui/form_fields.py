"""The fields that a form can have: label, meaning, choices, and how a form shows them.

Answers: what does a field of a page, and of the HTTP interface, mean?
Elsewhere: the fields themselves (tables/fields.yaml), how a form shows them (form.py), how a request is
read (request_fields.py).
"""

from collections.abc import Mapping
from typing import Any, get_args

from flopcast.files.package_table import read_table
from flopcast.library import catalog
from flopcast.requests.missing_parts import USUAL
from flopcast.search.objectives import OBJECTIVES
from flopcast.spec.deployment import CacheFormat
from flopcast.spec.precision import Precision
from flopcast.spec.published_formats import WeightFormat
from flopcast.strict_model import StrictModel

FINDS = {  # what a search may find besides plans, with the label of each
    "largest": "the largest model that fits",
    "largest_batch": "the largest micro-batch with which a plan fits",
    "largest_seq": "the longest sequence with which a plan fits",
    "largest_rank": "the largest LoRA rank with which a plan fits",
    "per_layer": "the best strategy of each block of a plan",
    "node_order": "the best order of nodes for a plan",
    "group_division": "the best division of a plan over groups of nodes",
    "split_points": "where to divide a model over a chain of devices",
}
LISTS = {  # lists of choices that the table names
    **{kind: catalog.names(kind) for kind in ("models", "clusters", "stacks", "engines")},
    "precisions": get_args(Precision),
    "objectives": tuple(OBJECTIVES),
    "finds": tuple(FINDS),
    "weight_formats": get_args(WeightFormat),
    "cache_formats": get_args(CacheFormat),
}


class Field(StrictModel):
    """One field of a form: its label, a short hint, a description, the choices, and how the form shows it.

    A field without choices accepts any text, and a field with `counts` accepts whole numbers. `several` is
    the hint of a field for which a search accepts several values, `served` is the description of a
    field of serving if it differs from `about`, and `empty` is what a list shows while
    nothing is selected.
    """

    label: str
    hint: str = ""
    several: str = ""
    about: str
    served: str = ""
    choices: tuple[str, ...] = ()
    empty: str = ""
    counts: bool = False
    wide: bool = False
    searched: bool = False
    slides: bool = False


def _field(row: Mapping[str, Any]) -> Field:
    """Return the field of an entry of the table."""
    choices, empty = row.get("choices", ()), row.get("empty", "").format(**USUAL)
    choices = LISTS[choices] if isinstance(choices, str) else choices
    return Field(**{**row, "choices": choices, "empty": empty})


FIELDS: Mapping[str, Field] = {
    name: _field(row) for name, row in read_table(__package__, "tables/fields.yaml").items()
}
SERVING_FIELDS: Mapping[str, Field] = {
    name: field.model_copy(update={"about": field.served or field.about}) for name, field in FIELDS.items()
}
