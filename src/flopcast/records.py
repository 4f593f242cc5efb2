"""Records: dataclasses that are frozen and have slots, and whose methods are written when first needed.

Answers: what does a class get from `Record`, and why do `field` and `replace` come from this module?
Elsewhere: the pydantic models that users write (strict_model.py).

`dataclasses.dataclass` writes and compiles six functions for each class. flopcast has hundreds of classes,
and a prediction makes objects of a third of them, so this took a sixth of the time of `flopcast predict`.
A record has one compiled function, which is written when its first object is made.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from dataclasses import field as field  # noqa: PLC0414 - exported
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar
from typing import dataclass_transform as checked_with  # type checkers read these decorators

if TYPE_CHECKING:
    from inspect import Signature

Kind = TypeVar("Kind")


class RecordType(type):
    """The class of the classes of records, which makes a dataclass of each of them."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        own: dict[str, Any],
        *,
        frozen: bool = True,
        eq: bool | None = None,
        repr: bool = True,
        kw_only: bool = True,
        slots: bool = True,
    ) -> "RecordType":
        """Return a new class; `eq` is by default that of its base."""
        kind: Any = super().__new__(cls, name, bases, own)
        base = next((each for each in bases if isinstance(each, RecordType)), None)
        if base is not None and "__slots__" not in own:  # a dataclass with slots is made of another class
            eq = vars(base).get("_has_eq", True) if eq is None else eq
            kind = dataclass(frozen=frozen, eq=eq, repr=repr, kw_only=kw_only, slots=slots)(kind)
            kind._has_eq = eq
        made: RecordType = kind
        return made


@checked_with(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Record(metaclass=RecordType):
    """Base of the classes that only hold values: each subclass is a frozen dataclass with slots.

    The arguments of `dataclasses.dataclass` can be given as keywords of the class, such as `kw_only=False`.
    Records of arrays have `eq=False`: comparing arrays gives no truth value, so each object equals only
    itself.

    Examples
    --------
    >>> class Point(Record):
    ...     x: int
    ...     y: int = 0
    >>> Point(x=1), Point(x=1) == Point(x=1, y=0), replace(Point(x=1), y=2)
    (Point(x=1, y=0), True, Point(x=1, y=2))
    """

    __slots__ = ()


@checked_with(field_specifiers=(field,))
def dataclass(
    *, frozen: bool = False, eq: bool = True, repr: bool = True, kw_only: bool = False, slots: bool = False
) -> Callable[[type[Kind]], type[Kind]]:
    """Return a decorator that makes a dataclass, like `dataclasses.dataclass`.

    It is for classes whose base is no record. The arguments are those of `dataclasses.dataclass`.
    """

    def made(kind: type[Kind]) -> type[Kind]:
        own = vars(kind).copy()
        cls: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(
            kind
        )
        if "__init__" not in own:
            cls.__init__ = _first_init(cls, frozen)
            cls.__signature__ = _SignatureOfFields()
        cls._only_stores_fields = frozen and "__init__" not in own
        if repr and "__repr__" not in own:
            cls.__repr__ = _repr
        if eq and "__eq__" not in own:
            cls.__eq__ = _equal(cls)
        if eq and own.get("__hash__") is None:
            cls.__hash__ = _hash(cls) if frozen else None
        if frozen:
            cls.__setattr__ = cls.__delattr__ = _refuse
            cls.__getstate__, cls.__setstate__ = _state, _restore
        made_kind: type[Kind] = cls
        return made_kind

    return made


if TYPE_CHECKING:
    from dataclasses import replace as replace  # noqa: PLC0414 - type checkers know its arguments
else:

    def replace(record, /, **changes):  # noqa: ANN001, ANN003, ANN201
        """Return a copy of a record with other values of some fields, like `dataclasses.replace`."""
        return _copier(type(record))(record, changes)


@cache
def _copier(cls: Any) -> Callable[[Any, dict[str, Any]], Any]:  # noqa: ANN401
    """Return the function that copies a record of a class with other values of some fields."""
    unfrozen = _unfrozen(cls) if vars(cls).get("_only_stores_fields") else None
    kept = [one.name for one in fields(cls) if one.init]
    if unfrozen is None:
        return lambda record, changes: cls(**{name: getattr(record, name) for name in kept} | changes)
    known: dict[str, Any] = {"new": object.__new__, "cls": cls, "Unfrozen": unfrozen}
    body = [f"copy.{name} = record.{name}" for name in kept]
    for one in fields(cls):
        if not one.init:
            body += [f"copy.{one.name} = {value}" for value in _default(one, known)]
    body.append("for name, value in changes.items(): setattr(copy, name, value)")
    body.append("copy.__class__ = cls")
    body += ["copy.__post_init__()"] if hasattr(cls, "__post_init__") else []
    lines = "\n    ".join(["copy = new(Unfrozen)", *body, "return copy"])
    exec(f"def copier(record, changes):\n    {lines}", known)
    copier: Callable[[Any, dict[str, Any]], Any] = known["copier"]
    return copier


@cache
def _unfrozen(cls: Any) -> type | None:  # noqa: ANN401
    """Return a class for the objects of a frozen class while their fields are set.

    Attributes of its objects can be set by statements, which take a tenth of the time of calls; then the
    class of the object is set. The result is None if fields are not in slots.
    """
    if not all(isinstance(getattr(cls, one.name, None), MemberDescriptorType) for one in fields(cls)):
        return None
    open_again = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    own = {"__slots__": (), "__module__": cls.__module__, **open_again}
    unfrozen: type = type(cls)(cls.__name__, (cls,), own)
    return unfrozen


def _default(one: "Field[Any]", known: dict[str, Any]) -> list[str]:
    """Return a list with the expression for the default of a field, empty if it has none.

    The names in the expression are added to `known`.
    """
    if one.default_factory is not MISSING:
        known[f"new_{one.name}"] = one.default_factory
        return [f"new_{one.name}()"]
    known[f"default_{one.name}"] = one.default
    return [] if one.default is MISSING else [f"default_{one.name}"]


def _getter(names: tuple[str, ...]) -> Callable[[object], tuple[object, ...]]:
    """Return the function that returns the values of attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple([getattr(record, name) for name in names])


def _arguments(cls: Any) -> list["Field[Any]"]:  # noqa: ANN401
    """Return the fields that `__init__` takes, those that may have a position first."""
    return sorted((one for one in fields(cls) if one.init), key=lambda one: bool(one.kw_only))


class _SignatureOfFields:
    """The signature of a class: what `inspect.signature` and `help` show."""

    def __get__(self, record: object, cls: Any) -> "Signature":  # noqa: ANN401
        """Return the signature of a class."""
        from inspect import Parameter, Signature

        return Signature(
            [
                Parameter(
                    one.name,
                    Parameter.KEYWORD_ONLY if one.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
                    default=Parameter.empty if _is_needed(one) else one.default,
                    annotation=one.type,
                )
                for one in _arguments(cls)
            ]
        )


def _is_needed(one: "Field[Any]") -> bool:
    """Return whether a field has no default."""
    return one.default is MISSING and one.default_factory is MISSING


def _first_init(cls: Any, frozen: bool) -> Callable[..., None]:  # noqa: ANN401
    """Return the `__init__` that the first object of a class replaces by a compiled one."""

    def __init__(self: object, *values: object, **named: object) -> None:  # noqa: N807
        cls.__init__ = _compiled_init(cls, frozen)
        cls.__init__(self, *values, **named)

    return __init__


def _compiled_init(cls: Any, frozen: bool) -> Callable[..., None]:  # noqa: ANN401
    """Return the `__init__` of a class."""
    known: dict[str, Any] = {"put": object.__setattr__, "MISSING": MISSING}
    head, body = ["self"], []
    for one in _arguments(cls):
        if one.kw_only and "*" not in head:
            head.append("*")
        known[f"default_{one.name}"] = one.default
        head.append(one.name if _is_needed(one) else f"{one.name}=default_{one.name}")
    for one in fields(cls):
        name, default = one.name, _default(one, known)
        if not one.init and not default:
            continue
        value = name if one.init else default[0]
        if one.init and one.default_factory is not MISSING:
            value = f"{default[0]} if {name} is MISSING else {name}"
        slot = getattr(cls, name, None)
        if isinstance(slot, MemberDescriptorType):  # a third faster than object.__setattr__
            known[f"put_{name}"] = slot.__set__
            body.append(f"put_{name}(self, {value})")
        else:
            body.append(f"put(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    lines = "\n    ".join(body or ["pass"])
    exec(f"def __init__({', '.join(head)}):\n    {lines}", known)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    init: Callable[..., None] = known["__init__"]
    return init


def _equal(cls: Any) -> Callable[[object, object], bool]:  # noqa: ANN401
    """Return the `__eq__` of a class: objects are equal if the values of their compared fields are."""
    values = _getter(tuple(one.name for one in fields(cls) if one.compare))

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(cls: Any) -> Callable[[object], int]:  # noqa: ANN401
    """Return the `__hash__` of a class, of the fields that are compared."""
    names = (one.name for one in fields(cls) if (one.compare if one.hash is None else one.hash))
    values = _getter(tuple(names))
    return lambda self: hash(values(self))


@recursive_repr()
def _repr(self: Any) -> str:  # noqa: ANN401
    """Return the call that would make the object."""
    values = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({values})"


def _refuse(_record: object, name: str, *_: object) -> None:
    """Refuse to change a frozen object."""
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(self: Any) -> list[object]:  # noqa: ANN401
    """Return the values of a frozen object, for a copy."""
    return [getattr(self, one.name) for one in fields(self)]


def _restore(self: Any, state: list[object]) -> None:  # noqa: ANN401
    """Set the values of a copied object."""
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
