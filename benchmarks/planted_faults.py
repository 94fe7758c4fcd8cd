"""Do the tests still find what they found? Faults are planted one by one, and the tests that reach them are run.

    python -m benchmarks.planted_faults draw OLD NEW --count 150 --seed 0   draws faults that two checkouts share
    python -m benchmarks.planted_faults map TREE                            which test files reach which function
    python -m benchmarks.planted_faults run TREE --seconds 120              plants each fault and runs those files
    python -m benchmarks.planted_faults compare OLD.csv NEW.csv             what only the old tests find

A fault is one statement of one function, written another way: a sign, a bound, a missing centring, a client that is
dropped, a wrong axis, a refusal that is skipped. It is kept by its function's name and by what the statement says, so
it is found again in another version of the package, wherever the function has moved. TREE is a checkout of its own
that nobody works in: the fault stands in it while the tests run. Only the quick tests are run, and of processes that
they start nothing is seen.
"""

import argparse
import ast
import copy
import csv
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

FAULTS = Path(__file__).with_suffix(".csv")
PLUGIN = "benchmarks.reach"


@dataclass(frozen=True)
class Fault:
    """What is planted: `old` becomes `new` in the function `name` of a file called `file`."""

    room: str
    file: str
    name: str
    kind: str
    old: str
    new: str


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


def centring(node: ast.AST) -> bool:
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


KINDS = (sign, bound, centring, drop, axis, refusal)


def literal(node: ast.BinOp) -> bool:
    """Are words put together here?"""
    return any(
        (isinstance(part, ast.JoinedStr | ast.Constant) and not isinstance(part, ast.Constant))
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in ast.walk(node)
    )


def functions(tree: Path) -> dict[tuple[str, str], list[Path]]:
    """The functions of the package by their file's name and their own, and where they are."""
    found = defaultdict(list)
    for path in sorted((tree / "flower_pca").rglob("*.py")):
        for name, _ in named(ast.parse(path.read_text())):
            found[path.name, name].append(path)
    return found


def named(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef | ast.FunctionDef):
            if isinstance(inner, ast.FunctionDef):
                yield prefix + inner.name, inner
            yield from named(inner, f"{prefix}{inner.name}.")


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
        if any(kind(node) for node in head(twin)):
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
        for name, function in named(ast.parse(path.read_text())):
            lines = [short(each) for each in statements(function)]
            for statement in statements(function):
                if lines.count(short(statement)) == 1 and "\n" not in short(statement):
                    for kind, new in mutants(statement):
                        found[name, short(statement)].append(Fault(room, path.name, name, kind, short(statement), new))
    return found


def draw(old: Path, new: Path, *, count: int, seed: int) -> list[Fault]:
    """Faults that can be planted in both: as many of each kind and room as there are, in turn."""
    before, after = texts(old), texts(new)
    drawn = {"plots", "report", "commands", "data", "names", "analysis", "base"}  # what is written, not reckoned: fewer
    both = [
        fault
        for key in sorted(before.keys() & after.keys())
        if len(after[key]) == len(before[key])
        for fault in after[key]
    ]
    rng = random.Random(seed)
    rng.shuffle(both)
    piles: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for fault in both:
        piles[fault.room, fault.kind].append(fault)
    chosen: list[Fault] = []
    turns = 0
    while len(chosen) < count and any(piles.values()):
        for (room, _), pile in piles.items():
            if pile and len(chosen) < count and (turns % 3 == 0 or room not in drawn):
                chosen.append(pile.pop())
        turns += 1
    return sorted(chosen, key=astuple)


def place(tree: Path, fault: Fault) -> tuple[Path, ast.stmt] | None:
    """Where a fault belongs: the file of this name first, else any that has the function and the statement."""
    paths = sorted((tree / "flower_pca").rglob("*.py"), key=lambda path: (path.name != fault.file, str(path)))
    for path in paths:
        text = path.read_text()
        if fault.name.rpartition(".")[2] not in text:
            continue
        for name, function in named(ast.parse(text)):
            if name == fault.name:
                for statement in statements(function):
                    if short(statement) == fault.old:
                        return path, statement
    return None


def planted(text: str, statement: ast.stmt, new: str) -> str:
    """A file's text with a statement's first line written another way."""
    lines = text.splitlines(keepends=True)
    body = getattr(statement, "body", None)
    end = body[0].lineno - 1 if body else statement.end_lineno
    indent = " " * statement.col_offset
    if body and body[0].lineno == statement.lineno:
        raise ValueError(f"a statement with its body on one line cannot be planted in: {new}")
    return "".join([*lines[: statement.lineno - 1], f"{indent}{new}\n", *lines[end:]])


def reached(tree: Path, fault: Fault, path: Path) -> list[str]:
    """The test files that enter the function, the cheapest first."""
    reach = json.loads((tree / "reach.json").read_text())
    key = f"{path.relative_to(tree)}:{fault.name}"
    return sorted(reach["files"].get(key, []), key=lambda name: reach["seconds"][name])


def batches(names: list[str]) -> Iterator[list[str]]:
    """A few files first, then more at a time."""
    size = 2
    while names:
        yield names[:size]
        names, size = names[size:], 2 * size


def tests_find(tree: Path, names: list[str], seconds: float) -> str:
    """`found by FILE`, `not found` or `not found in time`."""
    ends = time.monotonic() + seconds
    for some in batches(names):
        command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-m", "not slow", *some]
        try:
            done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=ends - time.monotonic())
        except (subprocess.TimeoutExpired, ValueError):
            return "not found in time"
        if done.returncode not in (0, 5):
            lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return f"found by {lines[0].split()[1].partition('[')[0] if lines else some[0]}"
    return "not found" if names else "not reached"


def run(tree: Path, output: Path, *, seconds: float) -> None:
    """Plants each fault of the list in turn; goes on where an earlier run ended."""
    faults = read(FAULTS)
    have = {row[0] for row in csv.reader(output.open())} if output.exists() else set()
    for number, fault in enumerate(faults):
        if str(number) in have:
            continue
        where = place(tree, fault)
        verdict = "gone"
        if where is not None:
            path, statement = where
            text = path.read_text()
            path.write_text(planted(text, statement, fault.new))
            try:
                verdict = tests_find(tree, reached(tree, fault, path), seconds)
            finally:
                path.write_text(text)
        with output.open("a", newline="") as file:
            csv.writer(file).writerow([number, f"{fault.file}:{fault.name}", fault.kind, verdict])
        print(number, fault.kind, fault.name, verdict, flush=True)


def compare(old: Path, new: Path) -> None:
    before = {row[0]: row for row in csv.reader(old.open())}
    after = {row[0]: row for row in csv.reader(new.open())}
    both = [(before[number], after[number]) for number in before if number in after]
    finds = [[row[3].startswith("found") for row in pair] for pair in both]
    print(f"{len(both)} faults: the old tests find {sum(a for a, _ in finds)}, the new ones {sum(b for _, b in finds)}")
    for (one, other), (a, b) in zip(both, finds, strict=True):
        if a and not b:
            print(f"  only the old ones: {one[1]} ({one[2]}), {one[3]}; new: {other[3]}")


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
    drawing.add_argument("--count", type=int, default=150)
    drawing.add_argument("--seed", type=int, default=0)
    mapping = commands.add_parser("map")
    mapping.add_argument("tree", type=Path)
    running = commands.add_parser("run")
    running.add_argument("tree", type=Path)
    running.add_argument("--output", type=Path, required=True)
    running.add_argument("--seconds", type=float, default=120.0)
    comparing = commands.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    options = parser.parse_args()
    if options.command == "draw":
        faults = draw(options.old, options.new, count=options.count, seed=options.seed)
        write(FAULTS, faults)
        print(f"{len(faults)} faults in {FAULTS.name}")
    elif options.command == "map":
        here = str(Path(__file__).parent)
        code = f"import sys; sys.path.insert(0, {here!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
        plain = ["-p", "reach", "-n", "0", "-q", "-m", "not slow"]
        subprocess.run([sys.executable, "-c", code, *plain], cwd=options.tree, check=False)
    elif options.command == "run":
        run(options.tree.resolve(), options.output, seconds=options.seconds)
    else:
        compare(options.old, options.new)


if __name__ == "__main__":
    main()
