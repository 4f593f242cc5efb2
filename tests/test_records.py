"""Our dataclasses behave as those of the standard library, which are the oracle here."""

import copy
import dataclasses
import inspect
import pickle
from itertools import product

import pytest

from flopcast import records


class Base:
    """Fields of every kind, before a decorator sees them."""

    first: int
    second: str = "b"
    third: list[int] = dataclasses.field(default_factory=list, compare=False)
    unseen: int = dataclasses.field(default=3, repr=False)
    fourth: tuple[int, ...] = dataclasses.field(default=(), kw_only=True)


def both(**options):
    """The same class, made by the standard library and by us."""
    own = {name: value for name, value in vars(Base).items() if name not in ("__dict__", "__weakref__")}
    for make in (dataclasses.dataclass, records.dataclass):
        yield make(**options)(type("Made", (), dict(own)))


OPTIONS = [
    dict(zip(("frozen", "eq", "repr", "kw_only", "slots"), values, strict=True))
    for values in product((True, False), repeat=5)
]


def test_objects_are_equal_hashed_shown_and_replaced_like_those_of_the_standard_library():
    for options in OPTIONS:
        theirs, ours = both(**options)
        for make, change in (
            (lambda cls: cls(first=1), {"second": "c"}),
            (lambda cls: cls(first=2, second="x", third=[1], fourth=(4,)), {"first": 5, "third": [2]}),
        ):
            one, other = make(theirs), make(ours)
            assert dataclasses.asdict(one) == dataclasses.asdict(other)
            assert (one == make(theirs)) == (other == make(ours)) == options["eq"]
            changed, ours_changed = dataclasses.replace(one, **change), records.replace(other, **change)
            assert dataclasses.asdict(changed) == dataclasses.asdict(ours_changed)
            assert (one == changed) == (other == ours_changed) is False
            if options["repr"]:
                assert repr(one) == repr(other)
            if options["eq"]:
                assert (theirs.__hash__ is None) == (ours.__hash__ is None) == (not options["frozen"])
            if options["eq"] and options["frozen"]:
                assert hash(one) == hash(other) == hash(make(ours))
            assert dataclasses.asdict(copy.copy(other)) == dataclasses.asdict(other)
            assert dataclasses.asdict(copy.deepcopy(other)) == dataclasses.asdict(other)
        assert hasattr(theirs(first=1), "__dict__") == hasattr(ours(first=1), "__dict__")
        assert theirs.__match_args__ == ours.__match_args__


def test_signatures_and_wrong_arguments_are_those_of_the_standard_library():
    for options in OPTIONS:
        theirs, ours = both(**options)
        for arguments in ((), (1, "b", [], 3, ()), (1, 2)):
            refused = []
            for cls in (theirs, ours):
                try:
                    refused.append(dataclasses.astuple(cls(*arguments)))
                except TypeError as error:
                    refused.append(str(error).replace("Made.", ""))
            assert refused[0] == refused[1]
        shown = [inspect.signature(cls).parameters for cls in (theirs, ours)]
        assert [one.kind for one in shown[0].values()] == [one.kind for one in shown[1].values()]
        assert [*shown[0]] == [*shown[1]]


def test_a_frozen_object_refuses_changes_and_a_default_list_is_not_shared():
    for options in OPTIONS:
        _, ours = both(**options)
        one, other = ours(first=1), ours(first=1)
        one.third.append(7)
        assert other.third == []
        if options["frozen"]:
            for change, values in ((setattr, (one, "first", 2)), (delattr, (one, "first"))):
                with pytest.raises(dataclasses.FrozenInstanceError, match="field 'first'"):
                    change(*values)
        else:
            one.first = 2
        assert one.first == (1 if options["frozen"] else 2)


@records.dataclass(frozen=True, slots=True)
class Kept:
    """A class that pickle can name."""

    value: int
    doubled: int = dataclasses.field(init=False, default=0)
    told: str = dataclasses.field(init=False, default="no")

    def __post_init__(self):
        object.__setattr__(self, "doubled", 2 * self.value)


@records.dataclass(frozen=True, slots=True)
class Longer(Kept):
    """A class with the fields of another one, and its own `__hash__`."""

    name: str = "a"

    def __hash__(self):
        return 5


def test_fields_are_inherited_and_own_methods_stay():
    one = Longer(2, name="b")

    assert (one.value, one.doubled, one.told, one.name, hash(one)) == (2, 4, "no", "b", 5)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != Longer(2)
    assert Longer(2) != Kept(2)
    assert records.replace(one, value=3).doubled == 6


def test_an_object_and_its_copies_have_their_own_class_and_are_frozen():
    named = {"__annotations__": {"kind": str, "cls": int}, "cls": 2}
    made = records.dataclass(frozen=True, slots=True)(type("Made", (), named))
    below = type("Below", (made,), {})

    for cls in (made, below):
        one = cls("a")
        for each in (one, records.replace(one, cls=3)):
            assert (type(each), each.kind, each.cls) == (cls, "a", 2 if each is one else 3)
            with pytest.raises(dataclasses.FrozenInstanceError):
                each.kind = "b"


def test_a_record_is_the_dataclass_that_its_keywords_describe():
    own = {name: value for name, value in vars(Base).items() if name not in ("__dict__", "__weakref__")}
    usual = {"frozen": True, "eq": True, "repr": True, "kw_only": True, "slots": True}
    for options in OPTIONS:
        theirs, _ = both(**options)
        stated = {name: value for name, value in options.items() if value != usual[name]}
        ours = type(records.Record)("Made", (records.Record,), dict(own), **stated)

        assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
        assert ours.__match_args__ == theirs.__match_args__
        assert ours.__hash__ is None if theirs.__hash__ is None else callable(ours.__hash__)
        one, other = theirs(first=1, second="c"), ours(first=1, second="c")
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        assert (other == ours(first=1, second="c")) == (one == theirs(first=1, second="c"))
        assert not options["repr"] or repr(one) == repr(other)
        assert hasattr(one, "__dict__") == hasattr(other, "__dict__")
        if options["frozen"]:
            with pytest.raises(dataclasses.FrozenInstanceError):
                other.first = 2


def test_the_subclasses_of_a_record_are_compared_as_their_base_is():
    class Array(records.Record, eq=False):
        size: int

    class Row(Array):
        place: int = 0

    class Name(Row, eq=True):
        word: str = ""

    assert Row(size=1) != Row(size=1)
    assert Name(size=1) == Name(size=1)
    assert records.replace(Row(size=1), place=2).place == 2
