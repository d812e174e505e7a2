# SPDX-License-Identifier: BSD-3-Clause
"""A set of words, as `enum.StrEnum` makes it, for modules that every rank loads: `enum` costs more than a container."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enum import StrEnum as PlainEnum
else:

    class _Words(type):
        """Makes each text of a class one of its values."""

        def __new__(cls, name, bases, members):
            made = super().__new__(cls, name, bases, members)
            made._members = {}
            for key, text in members.items():
                if isinstance(text, str) and not key.startswith("_"):
                    value = made._members[text] = str.__new__(made, text)
                    setattr(made, key, value)
            return made

        def __call__(cls, text):
            try:
                return cls._members[text]
            except KeyError:
                raise ValueError(f"{text!r} is not a valid {cls.__name__}") from None

        def __iter__(cls):
            return iter(cls._members.values())

    class PlainEnum(str, metaclass=_Words):
        """Words that are values of their class, and equal to their text."""

        __slots__ = ()

        @property
        def value(self):
            """The text."""
            return str(self)

        def __str__(self):
            return str.__str__(self)

        def __repr__(self):
            return f"{type(self).__name__}({str(self)!r})"

        def __reduce__(self):
            return type(self), (str(self),)


__all__ = ["PlainEnum"]
