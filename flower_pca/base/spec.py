"""Spec strings, which consist of a name and parameters, such as "faps(inner_steps=5)"."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError
from flower_pca.base.shown import shown

T = TypeVar("T")


def parse(text: object, *, what: str, rule: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of a spec string.

    Raise ConfigError for an invalid string. The error names the setting (`what`) and the allowed values (`rule`).
    """
    name, first, values = _parse_call(text, what, rule)
    if first:
        raise _unreadable_spec_error(text, what, rule)
    return name, values


def with_parameter(text: str, name: str, value: Sequence[object] | str | float) -> str:
    """Return the spec with this parameter added.

    If the spec already has the parameter, a list of values is appended to its list, and any other value replaces its
    value.
    """
    call = ast.parse(text.strip(), mode="eval").body
    if isinstance(call, ast.Name):
        call = ast.Call(call, [], [])
    assert isinstance(call, ast.Call)
    there = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    if name in there and isinstance(value, Sequence) and not isinstance(value, str):
        value = [*there[name], *value]
    others = [keyword for keyword in call.keywords if keyword.arg != name]
    added = ast.parse(f"f({name}={value!r})", mode="eval").body
    assert isinstance(added, ast.Call)
    return ast.unparse(ast.Call(call.func, call.args, [*others, *added.keywords]))


def _parse_call(text: object, what: str, rule: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return the name of a spec, a tuple of its values without names (at most one), and its parameters by name.

    Raise ConfigError for an invalid spec.
    """
    try:
        if not isinstance(text, str):
            raise ValueError("not a spec")
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, (), {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) <= 1:
            first = tuple(map(ast.literal_eval, node.args))
            values = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg is not None}
            if len(values) == len(node.keywords):  # This refuses ** and repeated names.
                return node.func.id, first, values
    except (SyntaxError, TypeError, ValueError):
        pass
    raise _unreadable_spec_error(text, what, rule)


def _unreadable_spec_error(text: object, what: str, rule: str) -> ConfigError:
    remedy = "Give parameters by name, as plain values." if isinstance(text, str) else ""
    return checks.invalid_setting(what, rule, shown(text), remedy)


def bind(text: object, table: Mapping[str, Callable[..., T]], *, what: str, rule: str) -> Callable[..., T]:
    """Return the function in the table that a spec string names, with its keyword-only parameters bound.

    A value without a name belongs to the first parameter, as in "dirichlet(0.3)". Raise ConfigError if the spec is
    invalid, if the table does not have its name, or if parameters are unknown or missing.
    """
    name, first, values = _parse_call(text, what, rule)
    if name not in table:
        # If all names in the table refer to the same function, `rule` describes the choice better than the names.
        if len(set(table.values())) > 1:
            rule = labels.join_with_or(list(table))
        raise checks.invalid_setting(what, rule, shown(name), checks.did_you_mean(name, table, otherwise=""))
    parameters = [p for p in inspect.signature(table[name]).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if first:
        if not parameters or parameters[0].name in values:
            raise _unreadable_spec_error(text, what, rule)
        values = {parameters[0].name: first[0], **values}
    checks.parameters(name, values, [p.name for p in parameters])
    needed = [p.name for p in parameters if p.default is p.empty]
    missing = [n for n in needed if n not in values]
    if missing:
        remedy = f"Write {name}({', '.join(f'{n}=...' for n in needed)})."
        raise ConfigError(f"{name} needs {missing[0]}. {remedy}")
    return partial(table[name], **values)


def instance(kind: type[T], value: object, name: str, rule: str, *, what: str = "", **more: Any) -> T | None:
    """Return an instance of the class: `value` itself, or an instance made from a spec string. Return None for None.

    The error for any other value contains `rule`. `what` is the name of the setting, if it differs from `name`.
    """
    if value is None or isinstance(value, kind):
        return value
    return bind(value, {name: kind, kind.__name__: kind}, what=what or name, rule=rule)(**more)
