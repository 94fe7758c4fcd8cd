"""Write the tables of algorithms and of settings into the documentation, from the registry and the run-config.

Run: python .ci/tables.py

A table stands between two comments, `algorithms` and `end of algorithms`. Its texts about an algorithm are the same as
in `flower-pca list`: the first sentence of "Prefer it", and the options.
"""

from __future__ import annotations

import inspect
import pydoc
import re
import shutil
import textwrap
from pathlib import Path

from flower_pca import PersonalResult, RobustResult, TripleResult, registry, run_config
from flower_pca.base.labels import join_with_and
from flower_pca.base.settings import Setting
from flower_pca.commands.algorithms import describe
from flower_pca.core import compatible, config
from flower_pca.core.stage import Stage

ROOT = Path(__file__).parents[1]
_FEW = 4  # Above this number, the algorithms that do not work are listed.
BEGIN, END = "<!-- algorithms: written by .ci/tables.py -->", "<!-- end of algorithms -->"


def choosing() -> str:
    """Return the table of algorithms, what each finds and when to prefer it."""
    lines = ["| algorithm | finds | prefer it |", "|---|---|---|"]
    for stage in registry.public_classes().values():
        prefer = _named(_first(describe(stage)["prefer"]))
        lines.append(f"| `{stage.name}` | {_finds(stage)} | {prefer} |")
    return "\n".join(lines)


def compatibility() -> str:
    """Return which options work with which algorithms, and with which other options."""
    return "\n".join([by_option(), "", "## Options and other options", "", beside()])


def by_option() -> str:
    """Return the table of options, with the algorithms that each of them does not work with, and why."""
    stages = [stage() for stage in registry.ALGORITHMS.values()]
    basic = [stage for stage in stages if not compatible.RICH.holds(stage)]
    taken = {}
    for (option, *others), _ in compatible.NEEDS:
        takers = [f"`{stage.name}`" for stage in basic if not compatible.missing_properties(stage, option)]
        if takers and not others:
            only = f" ({join_with_and(takers)} only)" if len(takers) < len(basic) else ""
            taken[f"`{option}`{only}"] = None
    names = join_with_and([f"`{stage.name}`" for stage in basic])
    words = f"{names} take few options: the options that work with every algorithm (listed below the table), and"
    words += f" {', '.join(taken)}. They take no other option of this table. The table covers all other algorithms,"
    words += " with their default parameters."
    lines = ["| option | does not work with |", "|---|---|"]
    shown = {
        "signal": 'n_components="signal"',
        "shared": 'n_components="shared"',
        "partitioned_by": 'partitioned_by="columns"',
    }
    for named in dict.fromkeys(named for named, _ in compatible.NEEDS):
        works, groups = [], {}
        for stage in (stage for stage in stages if compatible.RICH.holds(stage)):
            briefs = [lack.brief for lack in compatible.missing_properties(stage, *named)]
            (groups.setdefault(briefs[0], []) if briefs else works).append(f"`{stage.name}`")
        if len(groups) == 1 and len(works) <= _FEW:
            ((brief, names),) = groups.items()
            cell = f"all but {', '.join(works)}: {_of_several(brief, names)}"
        else:
            cell = "; ".join(f"{', '.join(names)}: {_of_several(brief, names)}" for brief, names in groups.items())
        lines.append(f"| {' with '.join(f'`{shown.get(name, name)}`' for name in named)} | {cell} |")
    return "\n".join([*textwrap.wrap(words, 118), "", *lines])


def _of_several(brief: str, names: list[str]) -> str:
    """Return a reason in the plural, if several algorithms have it."""
    if len(names) == 1:
        return brief
    plural = re.sub(r"\bits\b", "their", brief)
    plural = plural.replace("it is ", "they are ").replace("it does ", "they do ").replace(" or uses ", " or use ")
    return re.sub(r"^it (still )?(\w+)s\b", r"they \1\2", plural)


def beside() -> str:
    """Return the options that work with every algorithm, and the table of options that exclude each other."""
    named = {option for options, _ in compatible.NEEDS for option in options}
    free = [f"`{name}`" for name in (*config._OPTIONS, "checkpoint", "answers") if name not in named | {"n_components"}]
    words = f"{join_with_and(free)} work with every algorithm, and so do clients"
    words += " that miss messages. Some pairs of options do not work together. Each pair is listed only once, so look"
    words += " for your option in both columns. One exception is not in the table: `dp` works with"
    words += ' `missing="mean"` if the ranges of'
    words += " the columns are public."
    lines = ["| if you use | you cannot use |", "|---|---|"]
    for option in dict.fromkeys(rule.beside for rule in compatible.RULES):
        rules = [rule for rule in compatible.RULES if rule.beside == option]
        cells = [f"`{rule.option}`{f' (except {rule.allowed})' if rule.allowed else ''}" for rule in rules]
        lines.append(f"| `{option}` | {', '.join(cells)} |")
    return "\n".join([*textwrap.wrap(words, 118), "", *lines])


def reference() -> str:
    """Return the table of algorithms with their Strategy and client."""
    lines = ["| name | class | Strategy | client |", "|---|---|---|---|"]
    for name, stage in registry.public_classes().items():
        lines.append(f"| `{stage.name}` | `{name}` | `strategies.{name}` | `clients.{name}Client` |")
    return "\n".join(lines)


def settings() -> str:
    """Return the tables of the run-config's keys and of its options, with their defaults."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    lines += [_setting(setting) for setting in run_config.KEYS]
    lines += ["", "The key `options` is a string that sets all other settings:", ""]
    lines += ["| option | default | meaning |", "|---|---|---|"]
    lines += [_setting(setting) for setting in run_config.OPTIONS]
    return "\n".join(lines)


def _setting(setting: Setting) -> str:
    default = str(setting.value).lower() if isinstance(setting.value, bool) else str(setting.value)
    return f"| `{setting.key}` | {f'`{default}`' if default else ''} | {setting.words} |"


_ROW = re.compile(r"^\| \[`([^`]+)`\]\(api/([\w.]+)\.md\) \| .* \|$", re.MULTILINE)
FINDS = {RobustResult: "robust PCA", PersonalResult: "personalized PCA", TripleResult: "both at once"}
TABLES = {
    "docs/choosing.md": choosing,
    "docs/compatibility.md": compatibility,
    "docs/reference.md": reference,
    "docs/flower.md": settings,
}


def written(page: str) -> str:
    """Return a page with its table generated anew."""
    text = (ROOT / page).read_text(encoding="utf-8")
    head, found, rest = text.partition(BEGIN)
    _, closed, tail = rest.partition(END)
    if not (found and closed):
        raise SystemExit(f"{page} must have a table between {BEGIN} and {END}.")
    return f"{head}{BEGIN}\n\n{TABLES[page]()}\n\n{END}{tail}"


def _finds(stage: type[Stage[object]]) -> str:
    """Return what an algorithm finds, in words."""
    if stage.name in registry.TRACKERS:
        return "a moving subspace, by `track`"
    if not stage.orthonormal:
        return "sparse PCA"
    if stage.by_medians:
        return "what most clients share"
    return FINDS.get(registry.TABLE[stage.name].result, "the PCA")


def _first(text: str) -> str:
    return re.split(r"(?<=\w)\.(?: |$)", text, maxsplit=1)[0]


def _named(text: str) -> str:
    """Replace names of classes by the names of their algorithms."""
    names = {name: stage.name for name, stage in registry.public_classes().items()}
    return re.sub(r"`(\w+)`", lambda found: f"`{names.get(found[1], found[1])}`", text)


def api() -> dict[str, str]:
    """Return the pages of the API: one for each name in the tables of docs/reference.md, these tables, and the menu."""
    paths = list[str]()

    def row(found: re.Match[str]) -> str:
        name, path = found[1], found[2]
        paths.append(path)
        about, _, _ = (inspect.getdoc(pydoc.locate(path)) or "").partition("\n\n")
        return f"| [`{name}`](api/{path}.md) | {' '.join(about.split()).replace('|', '&#124;')} |"

    pages = {"docs/reference.md": _ROW.sub(row, written("docs/reference.md"))}
    pages |= {f"docs/api/{path}.md": f"::: {path}\n    options:\n      heading_level: 1\n" for path in paths}
    listed = ", ".join(f"api/{path}.md" for path in sorted(paths, key=lambda path: path.rpartition(".")[2].lower()))
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages["mkdocs.yml"] = re.sub(r"(- Classes and functions:) .*", rf"\1 [{listed}]", menu)
    return pages


if __name__ == "__main__":
    pages = {page: written(page) for page in TABLES} | api()
    shutil.rmtree(ROOT / "docs/api", ignore_errors=True)
    (ROOT / "docs/api").mkdir()
    for page, text in pages.items():
        (ROOT / page).write_text(text, encoding="utf-8")
