"""A plugin of pytest that runs tests on faulty code: in forks of one process that has collected all of them.

    FAULTS=faults.csv REACH=reach.jsonl VERDICTS=verdicts.csv SECONDS=60 python -m pytest -p planting -n 0

First all tests run once in a fork in which every statement says that it was reached: of each test its seconds, whether
it passes, and the statements that it comes by are a line of REACH; a test that does not end is passed over. Then each
fault gets a fork of its own. The code of its function is exchanged there, and the tests that come by run until one
fails, from all files in turn, those first that take little. What fails has to fail again by itself, and to pass without
the fault, so that no test is blamed for what another left behind. Nothing is written into the checkout, and what is
imported is imported once.
"""

import ast
import builtins
import csv
import functools
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from planted_faults import Fault, finds, functions, place, read, short, statements, texts, verdicts

import flower_pca

# Seconds without an end after which a test is said to hang, beside 40 times what it took. They are multiplied by the
# number of running programs per processor.
PATIENCE = 100.0
FIRST = 30.0  # likewise where nothing is known of it yet, and no fault is planted
MEMORY = 6 * 2**30  # a fault may ask for more than there is
REACHED: set[int] = set()
FAILED: list[str] = []
builtins._reached_ = REACHED.add  # type: ignore[attr-defined]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        FAILED.append(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    tree, reach = session.config.rootpath, Path(os.environ["REACH"])
    keys = sorted(texts(tree))
    load_all()
    there_now()
    while left := unnoted(session.items, reach):
        silent = noting(left, tree, keys, reach)
        if silent:  # a pool of threads, as that of polars, does not come along into a fork
            add(reach, {"test": silent, "seconds": 0.0, "passes": False, "by": []})
    judge(session.items, tree, keys, noted(reach))
    return True


def load_all() -> None:
    """What the package imports late is there from now on: a fault can be planted in it too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(flower_pca.__path__, "flower_pca."):
            importlib.import_module(module.name)


def noted(reach: Path) -> dict[str, dict]:
    """What is known of each test, by its name."""
    lines = reach.read_text().splitlines() if reach.exists() else []
    return {row["test"]: row for row in map(json.loads, lines)}


def unnoted(items: list[pytest.Item], reach: Path) -> list[pytest.Item]:
    known = noted(reach)
    return [item for item in items if item.nodeid not in known]


def add(reach: Path, row: dict) -> None:
    with reach.open("a") as file:
        file.write(json.dumps(row) + "\n")


def noting(items: list[pytest.Item], tree: Path, keys: list[tuple[str, str]], reach: Path) -> str | None:
    """Notes in a fork what these tests come by; the test that it does not get out of."""
    listening, speaking = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(listening)
        alone(lambda: note(items, tree, keys, reach, speaking), speaking)
    os.close(speaking)
    try:
        said, culprit = heard(listening, {}, FIRST)
    finally:
        end(child, listening)
    return culprit if said != "not found" else None


def end(child: int, listening: int) -> None:
    os.close(listening)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def alone(work: Callable[[], None], speaking: int) -> None:
    """A fork's whole life: its words go nowhere, and it ends without cleaning up after its parent."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        work()
    except BaseException as error:  # said to the parent: nobody reads what a fork prints
        os.write(speaking, f"broken {error!r}\n".encode())
    os._exit(0)


def note(items: list[pytest.Item], tree: Path, keys: list[tuple[str, str]], reach: Path, speaking: int) -> None:
    """Which statements each test comes by, and what it takes."""
    plant(probes(tree, {key: number for number, key in enumerate(keys)}))
    for item, following in zip(items, [*items[1:], None], strict=True):
        os.write(speaking, f"{item.nodeid}\n".encode())
        REACHED.clear()
        begun = spent()
        passes = passed(item, following)
        add(reach, {"test": item.nodeid, "seconds": spent() - begun, "passes": passes, "by": sorted(REACHED)})
    os.write(speaking, b"passed\n")


def spent() -> float:
    return sum(os.times()[:4])


def passed(item: pytest.Item, following: pytest.Item | None) -> bool:
    FAILED.clear()
    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    return not FAILED


def probes(tree: Path, numbers: dict[tuple[str, str], int]) -> dict[Path, ast.Module]:
    """The package's files, in which each of these statements says its number first."""
    found = {}
    for path in sorted((tree / "flower_pca").rglob("*.py")):
        module = ast.parse(path.read_text())
        for name, function in functions(module):
            lines = [short(each) for each in statements(function)]
            for node in ast.walk(function):
                for block in blocks(node):
                    for each in [each for each in block if isinstance(each, ast.stmt)]:
                        number = numbers.get((name, short(each)))
                        if number is not None and lines.count(short(each)) == 1:
                            block.insert(block.index(each), ast.parse(f"_reached_({number})").body[0])
        found[path] = module
    return found


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def faulty(tree: Path, fault: Fault) -> dict[Path, ast.Module]:
    """The file with a fault's statement written the other way; what follows its first line stays."""
    where = place(tree, fault)
    if where is None:
        return {}
    path, module, statement = where
    compound = isinstance(getattr(statement, "body", None), list)
    other = ast.parse(f"{fault.new}\n    pass" if compound else fault.new)
    for name in statement._fields:
        if name not in ("body", "orelse", "finalbody", "handlers"):
            setattr(statement, name, getattr(other.body[0], name))
    return {path: module}


def plant(modules: dict[Path, ast.Module]) -> None:
    """Gives every function of these files the code that it has in them."""
    codes: dict[tuple[str, str], list[types.CodeType]] = defaultdict(list)
    for path, module in modules.items():
        for code in inside(compile(ast.fix_missing_locations(module), str(path), "exec")):
            codes[str(path), code.co_qualname].append(code)
    live, caches = there_now()
    for each in caches:
        each.cache_clear()
    for key in codes.keys() & live.keys():
        found = live[key]
        lines = sorted({each.__code__.co_firstlineno for each in found})
        for each in found:  # lambdas and overloads have one name: they are told apart by their order, if all are there
            if len(codes[key]) == len(lines) or len(codes[key]) == 1:
                code = codes[key][lines.index(each.__code__.co_firstlineno) if len(codes[key]) > 1 else 0]
                if len(code.co_freevars) == len(each.__code__.co_freevars):
                    each.__code__ = code


@functools.cache
def there_now() -> tuple[dict[tuple[str, str], list[types.FunctionType]], list[functools._lru_cache_wrapper]]:
    """The package's functions by file and name, and its caches: looked for once, as a fork has them where they were."""
    live: dict[tuple[str, str], list[types.FunctionType]] = defaultdict(list)
    caches = []
    gc.unfreeze()  # what tests/conftest.py has frozen would not be found
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType) and "flower_pca" in each.__code__.co_filename:
            live[each.__code__.co_filename, each.__code__.co_qualname].append(each)
        elif isinstance(each, functools._lru_cache_wrapper) and str(each.__module__).startswith("flower_pca"):
            caches.append(each)
    gc.freeze()
    if not live:
        raise RuntimeError("none of the package's functions is found, so no fault can be planted")
    return live, caches


def inside(code: types.CodeType) -> Iterator[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from inside(each)


def judge(items: list[pytest.Item], tree: Path, keys: list[tuple[str, str]], seen: dict[str, dict]) -> None:
    """Plants each fault of the list in turn; goes on where an earlier run ended."""
    output, limit = Path(os.environ["VERDICTS"]), float(os.environ["SECONDS"])
    numbers = {key: number for number, key in enumerate(keys)}
    coming: dict[int, list[pytest.Item]] = defaultdict(list)
    for item in items:
        known = seen[item.nodeid]
        for number in known["by"] if known["passes"] else ():
            coming[number].append(item)
    have = {tuple(row[:4]) for row in csv.reader(output.open())} if output.exists() else set()
    others = Path(os.environ["FOUND"] or os.devnull)
    wanted = {key for key, verdict in verdicts(others).items() if finds(verdict)}
    for fault in read(Path(os.environ["FAULTS"])):
        key = (fault.file, *fault.key)
        if key not in have and (fault.key in wanted or not os.environ["FOUND"]):
            some = coming.get(numbers.get((fault.name, fault.old), -1), [])
            verdict = judged(fault, tree, in_turn(some, seen), seen, limit)
            with output.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow([*key, len(some), verdict])


def in_turn(items: list[pytest.Item], seen: dict[str, dict]) -> list[pytest.Item]:
    """The cheapest test of each file, then the next of each."""
    piles: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: seen[item.nodeid]["seconds"]):
        piles[item.path].append(item)
    order = [(place, seen[item.nodeid]["seconds"], item) for pile in piles.values() for place, item in enumerate(pile)]
    return [item for *_, item in sorted(order, key=lambda each: each[:2])]


def judged(fault: Fault, tree: Path, items: list[pytest.Item], seen: dict[str, dict], limit: float) -> str:
    """`found by TEST`, `hangs in TEST`, `not found`, `not found in time`, `not reached` or `gone`."""
    modules = faulty(tree, fault)
    if not modules:
        return "gone"
    if not items:
        return "not reached"
    left, begun = items, by_forks()
    while left:
        rest = limit - (by_forks() - begun)
        if rest <= 0.0:
            return "not found in time"
        verdict, culprit = forked(modules, left, seen, rest)
        if culprit is None or verdict.startswith("hangs"):
            return verdict
        number = next(number for number, item in enumerate(left) if item.nodeid == culprit)
        again, _ = forked(modules, [left[number]], seen, limit)
        if again.startswith(("found", "hangs")) and forked({}, [left[number]], seen, limit)[1] is None:
            return again
        left = left[number + 1 :]
    return "not found"


def by_forks() -> float:
    """Seconds of the processor that forks have taken which have ended."""
    took = os.times()
    return took.children_user + took.children_system


def forked(
    modules: dict[Path, ast.Module], items: list[pytest.Item], seen: dict[str, dict], limit: float
) -> tuple[str, str | None]:
    """What a fork says of faulty files, and the test that failed."""
    listening, speaking = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(listening)
        alone(lambda: stumble(modules, items, limit, speaking), speaking)
    os.close(speaking)
    try:
        return heard(listening, seen)
    finally:
        end(child, listening)


def stumble(modules: dict[Path, ast.Module], items: list[pytest.Item], limit: float, speaking: int) -> None:
    plant(modules)
    for item, following in zip(items, [*items[1:], None], strict=True):
        if spent() > limit:
            os.write(speaking, b"late\n")
            return
        os.write(speaking, f"{item.nodeid}\n".encode())
        if not passed(item, following):
            os.write(speaking, b"failed\n")
            return
    os.write(speaking, b"passed\n")


def crowded() -> float:
    """Return the number of running programs per processor: each takes about so many times longer than alone."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def heard(listening: int, seen: dict[str, dict], least: float = PATIENCE) -> tuple[str, str | None]:
    """Reads what a fork says, until it ends or is silent for too long. It may plant as long as that takes."""
    current, rest = "", b""
    while True:
        patience = crowded() * (least + 40 * seen.get(current, {"seconds": 0.0})["seconds"]) if current else None
        if not select.select([listening], [], [], patience)[0]:
            return f"hangs in {current}", current
        word = os.read(listening, 65536)
        *lines, rest = (rest + word).split(b"\n")
        for line in [line.decode() for line in lines]:
            if line == "failed" or line.startswith("broken"):
                return f"found by {current}", current
            if line == "passed":
                return "not found", None
            if line == "late":
                return "not found in time", None
            current = line
        if not word:
            return f"found by {current}", current
