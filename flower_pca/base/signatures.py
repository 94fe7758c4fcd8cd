"""Signatures that list every keyword of a function with the parameter `**settings: Unpack[SomeTypedDict]`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def with_signature(kind: Any, defaults: Mapping[str, Any]) -> Callable[[F], F]:
    """Return a decorator that lists all settings in the signature of a function.

    The last parameter of the function is `**settings: Unpack[kind]`. In the signature, the fields of `kind`
    replace this parameter, as keywords with their defaults. A setting without a default is required.
    """

    def decorate(function: F) -> F:
        plain = inspect.signature(function)
        own = list(plain.parameters.values())[:-1]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name, inspect.Parameter.empty),
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for name, annotation in kind.__annotations__.items()
        ]
        function.__signature__ = plain.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return function

    return decorate


def defaults(source: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of the parameters of a function or class, by name."""
    parameters = inspect.signature(source).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}
