"""All supported decoder families of Hugging Face transformers, and the fields of a family.

Answers: which families exist, which facts does each read from its configs, and which values are not
allowed?
Elsewhere: their tables (families.yaml), rules over several keys (derived_facts.py, experts.py, hybrids.py,
windows.py), keys of facts (values.py), the result (config.py). A new family is one entry of the table.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flopcast.files.package_table import read_table
from flopcast.interop.hugging_face import derived_facts, experts, hybrids, windows
from flopcast.interop.hugging_face.values import Reader
from flopcast.records import Record

SIZES = ("hidden", "layers", "heads", "ffn_hidden", "vocabulary", "context")


class ConfigFact(Record):
    """A fact that the config gives; `keys` are the family's own names for it, if it has any."""

    default: object
    keys: tuple[str, ...] = ()


class Must(Record):
    """A key of which only one value is supported.

    Its value must be `wanted`, or equal the fact `same_as`; missing and null keys are allowed.
    """

    key: str
    wanted: object = None
    same_as: str = ""
    because: str


Rule = ConfigFact | Callable[[Reader], object] | str | int | float | bool | None
Facts = Mapping[str, Rule]


class Family(Record):
    """The facts of a family, restrictions on its keys, keys of passes that are not counted, and keys that
    change no predicted time or have one value in this family.
    """

    facts: Facts
    musts: tuple[Must, ...] = ()
    scales: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()


def fact(default: object, *keys: str) -> ConfigFact:
    """Return a fact that the config gives, under the family's own keys if it has any."""
    return ConfigFact(default=default, keys=keys)


def _rule(written: object) -> Rule:
    """Return a fact of the table: read from the config, fixed, or computed by a rule."""
    if not isinstance(written, dict):
        return fact(*written) if isinstance(written, list) else fact(written)
    if "is" in written:
        fixed: Rule = written["is"]
        return fixed
    places = (derived_facts, experts, hybrids, windows)
    rule: Any = next(rule_here for place in places if (rule_here := getattr(place, written["rule"], None)))
    given = written.get("with")
    if isinstance(given, list):
        rule = rule(*(_rule(each) if isinstance(each, dict) else each for each in given))
    elif given:
        rule = rule(**given)
    computed: Rule = rule
    return computed


def _families() -> dict[str, Family]:
    """Return the families of the table; an entry may state its differences from an earlier one."""
    families: dict[str, Family] = {}
    for name, row in read_table(__package__, "families.yaml").items():
        base = families[row["base"]] if "base" in row else Family(facts={})
        facts = dict(base.facts)
        facts |= zip(SIZES, map(fact, row.get("sizes", ())), strict=False)
        facts |= {key: _rule(written) for key, written in row.get("facts", {}).items()}
        musts = tuple(
            Must(key=key, wanted=must.get("is"), same_as=must.get("same_as", ""), because=must["because"])
            for key, must in row.get("musts", {}).items()
        )
        unpriced = (*base.unpriced, *row.get("unpriced", "").split())
        scales = tuple(row.get("scales", "").split())
        families[name] = Family(facts=facts, musts=musts, scales=scales, unpriced=unpriced)
    return families


FAMILIES = _families()
