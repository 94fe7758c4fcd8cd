"""Spec strings: a name and its parameters in one string, such as "faps(inner_steps=5)"."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError

T = TypeVar("T")


def parse(text: object, *, what: str, rule: str) -> tuple[str, dict[str, Any]]:
    """The name and the parameters in a spec string; `what` and `rule` word the error about any other text."""
    name, first, values = _read(text, what, rule)
    if first:
        raise _unreadable(text, what, rule)
    return name, values


def _read(text: object, what: str, rule: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """The name, the value without a name if there is one, and the parameters by name."""
    try:
        if not isinstance(text, str):
            raise ValueError("not a spec")
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, (), {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) <= 1:
            first = tuple(map(ast.literal_eval, node.args))
            values = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg is not None}
            if len(values) == len(node.keywords):  # neither ** nor a name twice
                return node.func.id, first, values
    except (SyntaxError, TypeError, ValueError):
        pass
    raise _unreadable(text, what, rule)


def _unreadable(text: object, what: str, rule: str) -> ConfigError:
    remedy = "Give parameters by name, as plain values." if isinstance(text, str) else "Choose one of these."
    return ConfigError(what, must=rule, got=repr(text), then=remedy)


def bind(text: object, table: Mapping[str, Callable[..., T]], *, what: str, rule: str) -> Callable[..., T]:
    """The function of the table that a spec string names, with its parameters: the function's keyword-only ones.

    A value without a name is the first of them: "dirichlet(0.3)".
    """
    name, first, given = _read(text, what, rule)
    if name not in table:
        several = len(set(table.values())) > 1  # else the names are not what the choice is between
        known = f"one of {', '.join(table)}" if several else rule
        raise ConfigError(what, must=known, got=repr(name), then=checks.did_you_mean(name, table))
    own = [p for p in inspect.signature(table[name]).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if first and (not own or own[0].name in given):
        raise _unreadable(text, what, rule)
    given = {**({own[0].name: first[0]} if first else {}), **given}
    checks.parameters(name, given, [p.name for p in own])
    needed = [p.name for p in own if p.default is p.empty]
    missing = [n for n in needed if n not in given]
    if missing:
        remedy = f"Write {name}({', '.join(f'{n}=...' for n in needed)})."
        raise ConfigError(f"The parameters of {name}", must="complete", got=f"no {missing[0]}", then=remedy)
    return partial(table[name], **given)
