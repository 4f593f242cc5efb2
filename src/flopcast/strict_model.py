"""The base class of all models that users write: frozen, strict about keys and numbers, with a schema.

Answers: how does a model refuse values that are not numbers, and how does an editor know the allowed
values?
Elsewhere: the models themselves (spec/, layers/), reading them from files (files/validate.py).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, wraps
from inspect import get_annotations, signature
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    get_args,
    get_origin,
)

from annotated_types import Gt, Le
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

import flopcast
from flopcast.fixes import Edit, set_to
from flopcast.quantities import number_of
from flopcast.units import units_of

P = ParamSpec("P")
Result = TypeVar("Result")


class NotAllowedError(ValueError):
    """A value that a record does not allow. The reader of the file adds the field and its place."""

    def __init__(self, allowed: str, because: str, fix: str | Edit = "") -> None:
        """Keep what is allowed, why, and the fix; "" if the reader knows one."""
        super().__init__(f"{allowed}; because {because}")
        self.allowed: str = allowed
        self.because: str = because
        self.fix: str = fix if isinstance(fix, str) else set_to(fix)


class StrictModel(BaseModel):
    """A frozen record of scalars, tuples and other records.

    Unknown keys, infinities, and truth values instead of numbers are refused. In the JSON Schema a field
    with a unit in its name takes the text that a file holds ("80 GB"), and one with two names has both.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        defer_build=True,  # the models of serving are never used in training, for example
    )
    __slots__ = ("_known_hash",)  # pydantic neither copies nor pickles it
    if TYPE_CHECKING:
        _known_hash: int

    def __hash__(self) -> int:
        """Return the hash of the values of all fields; many keys contain a job, so it is computed once."""
        try:
            return self._known_hash
        except AttributeError:
            values = self.__dict__
            found = hash(tuple([values[name] for name in type(self).__pydantic_fields__]))
            object.__setattr__(self, "_known_hash", found)
            return found

    def __init__(self, /, *words: object, **fields: object) -> None:
        """Check the values of all fields, as pydantic does.

        Raises
        ------
        SpecError
            Values are wrong, missing, unknown or given without names.
        """
        try:
            super().__init__(*words, **fields)
        except (TypeError, ValidationError) as error:
            raise flopcast.explained(type(self), words, fields, error) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # validation needs no call

    def with_part(self, part: str, /, **changes: object) -> Self:
        """Return a copy in which fields of one part, which is a record itself, have other values."""
        return self.model_copy(update={part: getattr(self, part).model_copy(update=changes)})

    def __init_subclass__(cls) -> None:
        """Read numbers that are texts, and refuse truth values; a validator of all fields would be slow."""
        super().__init_subclass__()
        kinds = {
            name: kind for base in reversed(cls.__mro__) for name, kind in get_annotations(base).items()
        }
        numbers = [name for name, kind in kinds.items() if is_numeric(kind)]
        if numbers:
            check = field_validator(*numbers, mode="before", check_fields=False)
            cls._written_numbers = check(staticmethod(_number))  # type: ignore[attr-defined]

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema of what a file holds."""
        from flopcast.field_text import field_text, noun_text

        schema = handler.resolve_ref_schema(handler(core_schema))
        schema["description"] = noun_text(cls)
        properties = schema.get("properties", {})
        for name, field in cls.model_fields.items():
            if name in properties:
                described = properties[name] | {"description": field_text(cls, name)}
                properties[name] = _as_written(name, described)
                if isinstance(field.validation_alias, AliasChoices):
                    for alias in field.validation_alias.choices:
                        properties[str(alias)] = properties[name]
        return schema


def _number(value: object, info: ValidationInfo) -> object:
    if isinstance(value, bool):
        raise NotAllowedError("a number", "true and false are not numbers")
    return number_of(value, info.field_name or "") if isinstance(value, str) else value


_number.__signature__ = signature(_number)  # type: ignore[attr-defined]  # pydantic asks once for each field


def is_numeric(annotation: object) -> bool:
    """Return whether a field of this type holds a number, but not a truth value.

    Examples
    --------
    >>> is_numeric(int | None), is_numeric(bool), is_numeric(Literal[0, 1])
    (True, False, True)
    """
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return all(isinstance(value, int) for value in get_args(annotation))
    parts = get_args(annotation) or (annotation,)
    return bool({int, float} & set(parts)) and bool not in parts


def _as_written(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a quantity's schema in a file: a text with a unit; the bounds are those of the number."""
    units = units_of(name)
    if not units:
        return schema
    text = {"type": "string", "examples": [f"1.5 {units[0]}"]}
    kept = {key: schema[key] for key in ("description", "title", "default") if key in schema}
    if schema.get("type") == "object":
        return kept | {"type": "object", "additionalProperties": text}
    optional = any(branch.get("type") == "null" for branch in schema.get("anyOf", []))
    return kept | ({"anyOf": [text, {"type": "null"}]} if optional else text)


def words(given: object) -> object:
    """Return words separated by blanks, or one value, as a tuple."""
    if isinstance(given, str):
        return tuple(given.split())
    return given if isinstance(given, (tuple, list)) else (given,)


def nameable(*fields: str) -> Callable[[dict[str, Any]], None]:
    """Return the schema of a record whose fields may also name a catalogue entry, or change one.

    Use it as `json_schema_extra` of the record that contains the fields.
    """

    base = {"type": "string", "description": "Name of the catalogue entry."}

    def extend(schema: dict[str, Any]) -> None:
        for name in fields:
            schema["properties"][name] = {
                "anyOf": [
                    {"type": "string", "description": "Name in the catalogue, or a short form."},
                    {
                        "type": "object",
                        "description": "A catalogue entry (`base`), and the fields that differ from it.",
                        "properties": {"base": base},
                        "required": ["base"],
                    },
                    schema["properties"][name],
                ]
            }

    return extend


def cached_results(most: int, *parts: str) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Decorate a function of records so that its last `most` results are cached, as `lru_cache` does.

    `model_copy` checks nothing, so a copied record may contain a value without a hash, such as a dict. The
    result for such a record is computed again.

    Parameters
    ----------
    most : number of results
    parts : parts of the first record for which the result depends on which fields are stated; records with
        equal values are equal even if one of them states a default
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @lru_cache(maxsize=most)
        def kept(_: object, /, *args: P.args, **kwargs: P.kwargs) -> Result:
            return function(*args, **kwargs)

        @wraps(function)
        def result(*args: P.args, **kwargs: P.kwargs) -> Result:
            held = [getattr(args[0], part) for part in parts]
            stated = tuple(frozenset(part.model_fields_set) if part else None for part in held)
            try:
                return kept(stated, *args, **kwargs)  # type: ignore[arg-type]
            except TypeError:
                if _has_hash(args):
                    raise
                return function(*args, **kwargs)

        return result

    return decorate


def _has_hash(value: object) -> bool:
    """Return whether a value can be a key."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


class FrozenMapping(Mapping[str, float]):
    """A mapping that does not change and can be hashed: {"bf16": 312e12}."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, float]) -> None:
        """Keep a copy, in the order given."""
        self._items = dict(items)

    def __getitem__(self, key: str) -> float:
        """Return the value of a key; raise KeyError if there is none."""
        return self._items[key]

    def __contains__(self, key: object) -> bool:
        """Return whether a key has a value; the method of `Mapping` raises an error inside if not."""
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        """Return the keys in order."""
        return iter(self._items)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._items)

    def __hash__(self) -> int:
        """Return the hash, which does not depend on the order of keys."""
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        """Return the text of a dict."""
        return repr(dict(self._items))


PositiveByName = Annotated[
    Mapping[str, Annotated[float, Gt(0)]], AfterValidator(FrozenMapping), PlainSerializer(dict)
]
TextByName = Annotated[Mapping[str, str], AfterValidator(FrozenMapping), PlainSerializer(dict)]
FractionByName = Annotated[
    Mapping[str, Annotated[float, Gt(0), Le(1)]], AfterValidator(FrozenMapping), PlainSerializer(dict)
]


class AlwaysWithKind(StrictModel):
    """A record that is always written with its kind, because its other fields do not identify it."""

    @model_serializer(mode="wrap")
    def _with_kind(self, written: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {**written(self), "kind": type(self).model_fields["kind"].default}
