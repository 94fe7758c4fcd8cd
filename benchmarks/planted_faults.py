"""Do the tests still find what they found? Faults are planted one by one, and the tests that come by them are run.

    python -m benchmarks.planted_faults draw OLD NEW --count 210 --seed 0   fills the list up with what both can have
    python -m benchmarks.planted_faults run TREE --output NEW.csv           plants each fault and runs those tests
    python -m benchmarks.planted_faults compare OLD.csv NEW.csv             what only the old tests find
    python -m benchmarks.planted_faults record OLD.csv NEW.csv              writes into the list what they found

A fault is one statement of one function, written another way: a sign, a bound, a missing centering, a client that is
dropped, a wrong axis, a refusal that is skipped. It is kept by its function's name and by what the statement says, so
it is found again in another version of the package, wherever the function has moved. Only the quick tests are run, and
of processes that they start nothing is seen. How a fault is planted and judged: planting.py.
"""

import argparse
import ast
import copy
import csv
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

FAULTS = Path(__file__).with_suffix(".csv")


@dataclass(frozen=True)
class Fault:
    """What is planted: `old` becomes `new` in the function `name` of a file called `file`; what tests said of it."""

    room: str
    file: str
    name: str
    kind: str
    old: str
    new: str
    before: str = ""
    after: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """The file may have another name by now."""
        return self.name, self.kind, self.old


def sign(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and not literal(node):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return True
    return False


def bound(node: ast.AST) -> bool:
    turned = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}
    if isinstance(node, ast.Compare) and type(node.ops[0]) in turned:
        node.ops[0] = turned[type(node.ops[0])]()
        return True
    return False


def centering(node: ast.AST) -> bool:
    """The mean is not taken away."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and "mean" in ast.unparse(node.right):
        node.right = ast.BinOp(ast.Constant(0), ast.Mult(), node.right)
        return True
    return False


def drop(node: ast.AST) -> bool:
    """The last one of those that are gone through is left out."""
    many = {"clients", "answers", "replies", "shards", "members", "present", "nodes", "parts", "ids"}
    if isinstance(node, ast.comprehension | ast.For) and ast.unparse(node.iter) in many:
        node.iter = ast.parse(f"list({ast.unparse(node.iter)})[:-1]", mode="eval").body
        return True
    return False


def axis(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword) and node.arg == "axis" and ast.unparse(node.value) in ("0", "1"):
        node.value = ast.Constant(1 - ast.literal_eval(node.value))
        return True
    return False


def refusal(node: ast.AST) -> bool:
    """A condition under which something is refused never holds."""
    if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise) and ast.unparse(node.test) != "False":
        node.test = ast.Constant(False)
        return True
    return False


KINDS = (sign, bound, centering, drop, axis, refusal)


def literal(node: ast.BinOp) -> bool:
    """Are words put together here?"""
    return any(
        (isinstance(part, ast.JoinedStr | ast.Constant) and not isinstance(part, ast.Constant))
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in ast.walk(node)
    )


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef | ast.FunctionDef):
            if isinstance(inner, ast.FunctionDef):
                yield prefix + inner.name, inner
            yield from functions(inner, f"{prefix}{inner.name}.")


def statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function:
            yield node


def short(statement: ast.stmt) -> str:
    """A statement's own text: of a compound one its first line."""
    return ast.unparse(statement).splitlines()[0]


def mutants(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """The ways in which a statement can be wrong: the kind, and the text."""
    for kind in KINDS:
        twin = copy.deepcopy(statement)
        if any(kind(node) for node in head(twin)) and short(twin) != short(statement):
            yield kind.__name__, short(twin)


def head(statement: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement's first line."""
    yield statement
    for name, value in ast.iter_fields(statement):
        if name not in ("body", "orelse", "finalbody", "handlers"):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield from ast.walk(part)


def texts(tree: Path) -> dict[tuple[str, str], list[Fault]]:
    """What can be planted, by function and statement; what stands twice in a function is left out."""
    found: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for path in sorted((tree / "flower_pca").rglob("*.py")):
        inside = path.relative_to(tree / "flower_pca").parts
        room = inside[0] if len(inside) > 1 else "."
        for name, function in functions(ast.parse(path.read_text())):
            lines = [short(each) for each in statements(function)]
            for statement in statements(function):
                if lines.count(short(statement)) == 1 and "\n" not in short(statement):
                    for kind, new in mutants(statement):
                        found[name, short(statement)].append(Fault(room, path.name, name, kind, short(statement), new))
    return found


def draw(old: Path, new: Path, listed: list[Fault], *, count: int, seed: int) -> list[Fault]:
    """Faults that can be planted in both, at one place only: those of the list, then as many of each kind and room."""
    both = shared(texts(old), texts(new))
    written = {"plots", "report", "commands", "data", "names", "analysis", "base"}  # rather than reckoned: fewer
    had = {fault.key: fault for fault in listed}
    chosen = [replace(fault, before=had[fault.key].before) for fault in both if fault.key in had]
    others = [fault for fault in both if fault.key not in had]
    random.Random(seed).shuffle(others)
    piles: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for fault in others:
        piles[fault.room, fault.kind].append(fault)
    turns = 0
    while len(chosen) < count and any(piles.values()):
        for (room, _), pile in piles.items():
            if pile and len(chosen) < count and (turns % 3 == 0 or room not in written):
                chosen.append(pile.pop())
        turns += 1
    return sorted(chosen, key=astuple)


def shared(before: dict[tuple[str, str], list[Fault]], after: dict[tuple[str, str], list[Fault]]) -> list[Fault]:
    found = []
    for key in sorted(before.keys() & after.keys()):
        kinds = {fault.kind for fault in after[key]}
        if len(after[key]) == len(before[key]) == len(kinds):
            found += after[key]
    return found


def place(tree: Path, fault: Fault) -> tuple[Path, ast.Module, ast.stmt] | None:
    """Where a fault belongs: the file of this name first, else any that has the function and the statement."""
    paths = sorted((tree / "flower_pca").rglob("*.py"), key=lambda path: (path.name != fault.file, str(path)))
    for path in paths:
        text = path.read_text()
        if fault.name.rpartition(".")[2] not in text:
            continue
        module = ast.parse(text)
        for name, function in functions(module):
            if name == fault.name:
                for statement in statements(function):
                    if short(statement) == fault.old:
                        return path, module, statement
    return None


def run(tree: Path, output: Path, *, seconds: float, reach: Path, marks: str, found: Path | None) -> None:
    """Judges each fault of the list by the tests of a checkout, or those that the tests of another one find."""
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path.append({here!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    chosen = ["-p", "planting", "-p", "no:cacheprovider", "-n", "0", "-q", "-m", marks]
    paths = {"FAULTS": FAULTS, "REACH": reach.resolve(), "VERDICTS": output.resolve(), "SECONDS": seconds}
    paths["FOUND"] = found.resolve() if found else ""
    environment = {**os.environ, **{name: str(value) for name, value in paths.items()}}
    subprocess.run(
        [sys.executable, "-c", code, *chosen], cwd=tree, env=environment, stdout=subprocess.DEVNULL, check=False
    )


def finds(verdict: str) -> bool:
    return verdict.startswith(("found", "hangs"))


def compare(old: Path, new: Path) -> None:
    before, after = verdicts(old), verdicts(new)
    both = sorted(before.keys() & after.keys())
    finds_it = {key: [finds(each[key]) for each in (before, after)] for key in both}
    sums = [sum(pair[side] for pair in finds_it.values()) for side in (0, 1)]
    print(f"{len(both)} faults: the old tests find {sums[0]}, the new ones {sums[1]}")
    for key, pair in finds_it.items():
        if pair == [True, False]:
            print(f"  only the old ones: {' | '.join(key)}\n    old: {before[key]}; new: {after[key]}")


def record(old: Path, new: Path) -> None:
    before, after = verdicts(old), verdicts(new)
    said = [(before.get(fault.key, fault.before), after.get(fault.key, fault.after)) for fault in read(FAULTS)]
    write(FAULTS, [replace(fault, before=b, after=a) for fault, (b, a) in zip(read(FAULTS), said, strict=True)])


def verdicts(path: Path) -> dict[tuple[str, ...], str]:
    with path.open(newline="") as file:
        return {tuple(row[1:4]): row[-1] for row in csv.reader(file)}


def read(path: Path) -> list[Fault]:
    with path.open(newline="") as file:
        return [Fault(**row) for row in csv.DictReader(file)]


def write(path: Path, faults: list[Fault]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Fault)])
        writer.writerows(astuple(fault) for fault in faults)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("old", type=Path)
    drawing.add_argument("new", type=Path)
    drawing.add_argument("--count", type=int, default=210)
    drawing.add_argument("--seed", type=int, default=0)
    running = commands.add_parser("run")
    running.add_argument("tree", type=Path)
    running.add_argument("--output", type=Path, required=True)
    running.add_argument("--seconds", type=float, default=60.0)
    running.add_argument("--reach", type=Path, default=Path("reach.jsonl"))
    running.add_argument("--marks", default="not slow and not network", help='"not slow" where tests have no other')
    running.add_argument("--found", type=Path, help="verdicts of other tests: what these do not find is left out")
    for both in ("compare", "record"):
        each = commands.add_parser(both)
        each.add_argument("old", type=Path)
        each.add_argument("new", type=Path)
    options = parser.parse_args()
    if options.command == "draw":
        faults = draw(options.old, options.new, read(FAULTS), count=options.count, seed=options.seed)
        write(FAULTS, faults)
        print(f"{len(faults)} faults in {FAULTS.name}")
    elif options.command == "run":
        settings = {name: getattr(options, name) for name in ("seconds", "reach", "marks", "found")}
        run(options.tree.resolve(), options.output, **settings)
    else:
        (record if options.command == "record" else compare)(options.old, options.new)


if __name__ == "__main__":
    main()
