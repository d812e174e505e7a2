# SPDX-License-Identifier: BSD-3-Clause
"""Classes of named values that never change, as `dataclass(frozen=True, slots=True)` makes them, at a tenth the cost.

dataclasses compiles six functions for each class, and imports what reads source. The verbs of jobs have forty such
classes, and a build over a hundred: they paid more for them at every start than for their work. Values of which
a command makes many, such as one for each file, use dataclasses: making one of those costs a third.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import MappingProxyType
    from typing import Any, TypeVar, cast, dataclass_transform

    T = TypeVar("T")
else:
    MappingProxyType = type(type.__dict__)  # which `types` would be imported for

    def cast(kind: object, value: object) -> object:
        """Return the value, as typing's does."""
        del kind
        return value

    def dataclass_transform(**_: object) -> object:
        """Return a decorator that changes nothing: it is for type checkers alone."""
        return lambda plain: plain


NOTHING: Mapping[Any, Any] = MappingProxyType({})  # the default of a mapping


class _Fresh:
    """A default that is made anew for each value."""

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


def fresh(make: Callable[[], T]) -> T:
    """The default of a field that may change, such as a dict: each value gets one of its own."""
    default: Any = _Fresh(make)
    return cast("T", default)


@dataclass_transform(frozen_default=True)
def frozen(plain: type[T]) -> type[T]:
    """The class with slots for what it annotates, an `__init__` that fills them, and equality by value.

    A default stands behind the name, and is shared by all: it must be one that cannot change, or `fresh`.
    """
    names = tuple(name for name in plain.__annotations__ if not name.startswith("__"))
    members = {name: value for name, value in vars(plain).items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: members.pop(name) for name in names if name in members}
    for name, function in _FUNCTIONS.items():
        members.setdefault(name, function)
    members |= {"__slots__": names, "__match_args__": names, "__defaults__": defaults}
    made = cast("type[T]", type(plain.__name__, plain.__bases__, members))
    made.__init__ = _make_init(made, names, defaults)  # type: ignore[method-assign]  # it is this class's own
    return made


def list_names(kind: type) -> tuple[str, ...]:
    """The names of a frozen class, in their order."""
    names: tuple[str, ...] = kind.__slots__  # type: ignore[attr-defined]
    return names


def list_defaults(kind: type) -> dict[str, object]:
    """The names of a frozen class that have a default, and what it is."""
    defaults: dict[str, object] = kind.__defaults__  # type: ignore[attr-defined]
    return defaults


def replace(value: T, /, **changes: Any) -> T:
    """A copy with some of it changed; it takes values of dataclasses, too."""
    kind: Any = type(value)
    # a dataclass whose fields are given by name alone has no __match_args__
    names = getattr(kind, "__dataclass_fields__", None) or kind.__match_args__
    return cast("T", kind(**{name: getattr(value, name) for name in names} | changes))


class JsonValue:
    """A value that `--json` prints: all its fields by their names, unless the class says otherwise.

    `json_names` gives a field another name, or None to leave it out; `json_also` names properties that are added; what
    is empty and in `json_nulls` becomes null.
    """

    __slots__ = ()
    json_names: tuple[tuple[str, str | None], ...] = ()
    json_also: tuple[str, ...] = ()
    json_nulls: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The value as `--json` prints it."""
        return as_dict(self)


def as_dict(value: object) -> dict[str, Any]:
    """All fields by name, also in values within it; tuples become lists, sets sorted lists, paths and digests text."""
    kind = type(value)
    names: dict[str, str | None] = dict(getattr(kind, "json_names", ()))
    nulls = getattr(kind, "json_nulls", ())
    document = {}
    for field in (*kind.__match_args__, *getattr(kind, "json_also", ())):  # type: ignore[attr-defined]  # both kinds have it
        name = names.get(field, field)
        if name is not None:
            content = getattr(value, field)
            document[name] = None if field in nulls and not content else _make_plain(content)
    return document


def _make_plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float) or type(value) is str:
        return value
    from collections.abc import Mapping  # late: ranks and submissions print nothing

    if isinstance(value, Mapping):
        return {str(key): _make_plain(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(item) for item in value]
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, JsonValue):
        return value.as_dict()
    is_whole = hasattr(type(value), "__defaults__") and not getattr(type(value), "json_text", False)
    return as_dict(value) if is_whole else str(value)


def _make_init(made: type, names: tuple[str, ...], defaults: dict[str, object]) -> Callable[..., None]:
    setters = [(name, vars(made)[name].__set__) for name in names]
    anew = [(name, default.make) for name, default in defaults.items() if isinstance(default, _Fresh)]

    def initialize(self: object, /, *given: object, **named: object) -> None:
        if len(given) == len(names) and not named:
            for (_, put), value in zip(setters, given, strict=True):
                put(self, value)
            return
        values = {**defaults, **dict(zip(names, given, strict=False)), **named}
        for name, make in anew:
            if values[name] is defaults[name]:
                values[name] = make()
        if len(values) == len(names) >= len(given) and named.keys().isdisjoint(names[: len(given)]):
            try:
                for name, put in setters:
                    put(self, values[name])
                return
            except KeyError:  # one is missing, and another has no such name
                pass
        raise TypeError(f"{made.__qualname__} takes {', '.join(names)}; it got {len(given)} and {', '.join(named)}")

    return initialize


def _list_values(value: Any) -> tuple[Any, ...]:
    return tuple(getattr(value, name) for name in type(value).__slots__)


def _compare(self: Any, other: object) -> Any:
    return _list_values(self) == _list_values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_list_values(self))


def _show(self: Any) -> str:
    pairs = (f"{name}={getattr(self, name)!r}" for name in type(self).__slots__)
    return f"{type(self).__qualname__}({', '.join(pairs)})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), _list_values(self)


def _refuse(self: Any, name: str, value: object = None) -> None:
    del value
    raise AttributeError(f"{type(self).__qualname__}.{name} cannot be changed")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "__eq__": _compare,
    "__hash__": _hash,
    "__repr__": _show,
    "__reduce__": _reduce,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
}
