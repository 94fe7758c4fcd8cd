"""The catalogue of the papers' tables and figures, its records, and the page made from them."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace

import numpy as np
import pytest
from cases import every

from flower_pca import DataError, make
from sims import __main__ as command
from sims import catalogue, claims, page
from sims.catalogue import ITEMS
from sims.common import record, report
from sims.judged import AGREEMENTS, JUDGED, Judgement
from sims.local_power.known import MAIN, SETS, SIZES

PROGRAMS = sorted({item.program for item in ITEMS if item.program})
AVERAGED = ("local_power/fig3b",)  # an order that a single draw need not have
RECORDED = [program for program in PROGRAMS if record.read(program)]


def found_table(title="A table"):
    drawing = report.Drawing("curves", {"panel": {"one": np.geomspace(1.0, 1e-4, 400)}}, error="sine")
    return report.Found(title, [["data", "of", "m=20"], ["a9a", "ours", 0.25]], "A note.", drawing)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_an_item_has_one_row_and_a_paper():
    names = [(item.paper, item.name) for item in ITEMS]
    assert len(set(names)) == len(names)
    assert {item.paper for item in ITEMS} == set(catalogue.PAPERS)


@every("program", PROGRAMS)
def test_a_program_is_there_and_says_its_size(program):
    for item in (item for item in ITEMS if item.program == program):
        experiments, name, seeds = item.experiment()
        assert callable(experiments[name])
        assert seeds >= 1
        assert item.size
        assert item.minutes > 0


def test_every_record_is_of_an_item():
    assert {str(path.relative_to(record.RESULTS).with_suffix("")) for path in record.RESULTS.rglob("*.json")} == set(
        RECORDED
    )
    assert set(claims.CLAIMS) <= set(PROGRAMS)


@every("program", RECORDED)
def test_a_record_says_when_by_what_and_how_it_agrees(program):
    kept = record.read(program)
    assert kept.item == program
    assert kept.size in ("paper", "small")
    assert kept.seeds == sorted(set(kept.seeds))
    assert datetime.date.fromisoformat(kept.date)
    assert set(kept.versions) == {"flower_pca", "numpy", "scipy", "python"}
    assert len(kept.rows) > 1
    assert len({len(row) for row in kept.rows}) == 1
    assert len(set(kept.rows[0])) == len(kept.rows[0])
    assert JUDGED[program].agreement in AGREEMENTS


@every("program", sorted(set(claims.CLAIMS) & set(RECORDED)))
def test_nothing_is_the_same_beside_a_cross(program):
    crossed = [claim.words for claim in claims.CLAIMS[program] if not claim.holds(record.read(program).table)]
    assert not crossed or JUDGED[program].agreement != "same"


COUNTED = re.compile(r"(\d+|one|two|three|five|ten) (?:seed|shuffle)s?\b", re.IGNORECASE)
NUMBERS = {"one": 1, "two": 2, "three": 3, "five": 5, "ten": 10}
RUN_BY = {
    "SSI": "ssi", "LocalPower": "local_power", "FAPS": "faps", "Krylov": "krylov", "UDA": "uda", "WDA": "wda",
    "DR-SVD": "dr_svd", "PerPCA": "per_pca", "ExactPerPCA": "exact_per_pca", "DCF-PCA": "dcf_pca",
    "consensus": "consensus_rpca", "NoDet": "st_miss",
}  # fmt: skip


@every("program", RECORDED)
def test_what_the_page_prints_of_a_record_is_what_the_record_counted(program):
    """Seeds, size and data sets; and of runs that noted it, the algorithms under the names in their tables."""
    kept, item = record.read(program), next(item for item in ITEMS if item.program == program)
    section = page.PAGE.read_text(encoding="utf-8").partition(f"\n{kept.title}.\n")[2].partition("\n### ")[0]
    footer = section[section.rindex("*At the paper's size" if kept.size == "paper" else "*In small size") :]
    assert f", {page.drawn(kept.seeds)}, {kept.date}, {kept.minutes:g} minutes" in footer
    # of before they were counted: fewer on one set, and its record says how many all sets have
    fewer = re.search(r"\((\d+) where there are more than 200 clients\)", kept.note)
    spelt = COUNTED.findall(f"{kept.note} {kept.title} {JUDGED[program].why}")
    counts = {int(NUMBERS.get(word.lower(), word)) for word in spelt}
    assert counts - ({10, int(fewer[1])} if fewer else set()) <= {len(kept.seeds)}, spelt
    if item.sets and len({row["data"] for row in kept.table}) < item.sets:
        assert page.why(item).startswith(f"{len({row['data'] for row in kept.table})} of {item.sets} sets.")
    names = {cell.partition(", ")[0] for row in kept.rows for cell in (*kept.rows[0], *row[:3])}
    ran = {spec.partition("(")[0] for spec in kept.algorithms}
    assert not ran or {RUN_BY[name] for name in names & set(RUN_BY)} <= ran


@every("item", [item for item in ITEMS if item.sets and item.program in RECORDED])
def test_all_that_can_be_had_is_said_only_where_no_set_at_hand_is_left_out(item):
    at_hand = set(SETS) & set(MAIN if item.sets == len(MAIN) else SIZES)
    assert item.had == len(at_hand)
    left_out = at_hand - {row["data"] for row in record.read(item.program).table}
    assert page.marked(item).startswith("all") == (not left_out and set(page.MARKS[1:]) <= set(page.marks(item)))


@every("program", [p for p in RECORDED if any(s.startswith("per_pca(") for s in record.read(p).algorithms)])
def test_per_pca_is_the_papers_algorithm_only_by_a_step_that_stays(program):
    runs = [make(spec) for spec in record.read(program).algorithms if spec.startswith("per_pca(")]
    assert JUDGED[program].algorithm or any(r.step is not None or r.eta is not None or r.choice == 2 for r in runs)


@pytest.mark.slow
def test_the_page_is_made_from_the_records():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(), "run: python -m sims --page"
    for program in RECORDED:
        assert (page.picture(program).is_file()) == (record.read(program).drawing is not None)


def dealt(path):
    """Pictures of ten kinds of thing: five directions of all, three of a kind of its own, and noise."""
    rng = np.random.default_rng(8)
    shared, own = rng.standard_normal((5, 64)), rng.standard_normal((10, 3, 64))
    y = np.repeat(np.arange(10), 900)
    scores = rng.standard_normal((len(y), 3))
    X = 3.0 * rng.standard_normal((len(y), 5)) @ shared + 2.0 * np.einsum("ij,ijk->ik", scores, own[y])
    X += 4.0 * rng.standard_normal(X.shape)
    np.savez(path, X=np.clip(128.0 + 8.0 * X, 0, 255).astype(np.uint8), y=y)
    return str(path)


# What holds in the record at the paper's size holds in small size too; on a synthetic set, where none is at hand.
# But for measured penalties of FAPS: Table 1 with 4 of its clients takes 1.6 times as many messages by them.
SMALLER = {  # of what is varied the ends, where the order is that of them too
    "over_air/lemma41": {"sims.over_air.theory.SIGMAS": (1e-2, 1e-6), "sims.over_air.theory.GAPS": (1.1, 1.5)},
    "robust/theorem1": {"sims.robust.theory.ROUNDS": (10, 30)},
    "robust/theorem2": {"sims.robust.theory.SHARES": (0.01, 1.1)},
    **{f"local_power/fig{n}": {"sims.local_power.figures.COUNTS": (20, 100)} for n in ("3b", "11", "12")},
    "personal/table5": {"sims.personal.real.CLIENTS": 40},
    "personal/theorem1": {"sims.personal.theory.ROWS": (100, 1000)},
    "personal/fig7": {"sims.personal.tables.TABLE3": (0, 3)},
}


@pytest.mark.slow
@pytest.mark.parametrize("program", sorted((set(claims.CLAIMS) & set(RECORDED)) - {"faps/penalties"}))
def test_small_sizes_keep_the_recorded_order(program, tmp_path, monkeypatch):
    for name, fewer in SMALLER.get(program, {}).items():
        monkeypatch.setattr(name, fewer)
    experiments, name, _ = next(item for item in ITEMS if item.program == program).experiment()
    data = (dealt(tmp_path / "kinds.npz"),) if program.startswith("personal/") else ()
    seeds = 2 if program in AVERAGED else 1
    small = record.made(program, experiments[name], report.Options((name,), tmp_path, data, tmp_path, seeds, False))
    for claim in claims.CLAIMS[program]:
        recorded = claim.small and claim.holds(record.read(program).table)
        assert claim.holds(small.table) or not recorded, claim.words


def test_a_record_is_read_as_it_was_written(results):
    def experiment(opts):
        assert list(opts.each(2)) == [0, 1]
        return found_table()

    made = record.made("room/name", experiment, report.options([], about="", known=("name",), seeds=(3, 9)))
    record.write(made)
    assert record.read("room/name") == made
    assert (made.seeds, made.size, made.table) == ([0, 1], "small", [{"data": "a9a", "of": "ours", "m=20": "0.25"}])
    curve = made.picture().panels["panel"]["one"]
    assert len(made.drawing["panels"]["panel"]["one"]["errors"]) == 80
    np.testing.assert_allclose(curve, np.geomspace(1.0, 1e-4, 400)[: len(curve)], rtol=1e-2)
    assert record.read("room/other") is None


def test_runs_are_kept_as_they_come_and_not_made_twice(results, monkeypatch, capsys):
    made = []

    def experiment(opts):
        made.append((opts.paper, opts.seeds))
        return found_table()

    def missing(opts):
        raise DataError("no such film")

    items = {"local_power/table5": experiment, "personal/video": missing}
    monkeypatch.setattr(
        catalogue.Item, "experiment", lambda item: ({item.program.partition("/")[2]: items[item.program]},
                                                    item.program.partition("/")[2], 4)
    )  # fmt: skip
    command.main(["--small", *items])
    command.main(["--paper", *items])
    command.main(["--paper", *items])
    command.main(["--small", "--again", "local_power/table5"])
    assert made == [(False, 1), (True, 4), (False, 1)]
    printed = capsys.readouterr().out
    assert "left out: no such film" in printed
    assert "1 of 2 are there." in printed
    assert record.read("local_power/table5").size == "small"


def test_the_list_has_every_item_and_how_it_came_out(results, capsys):
    command.main(["--list"])
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert all(line.endswith((page.UNRUN, page.NOTHING)) for line in lines[: len(ITEMS)])
    assert not lines[len(ITEMS)]


def test_the_page_says_of_each_item_what_there_is(results, monkeypatch):
    item = next(item for item in ITEMS if item.program == "local_power/table5")
    made = record.made(
        item.program, lambda opts: found_table("Eta"), report.options([], about="", known=("a",), seeds=(1, 1))
    )
    assert page.agreement(item) == page.UNRUN
    record.write(made)
    assert page.agreement(item) == "in part, in small size"
    record.write(replace(made, size="paper"))
    assert page.agreement(item) == "in part"
    text = page.text()
    assert "Eta." in text
    assert "| a9a | ours | 0.25 |" in text
    assert "- ✓ the more clients, the larger eta" in text


def test_the_page_says_why_an_item_has_not_been_run_at_the_papers_size(results, monkeypatch):
    item = next(item for item in ITEMS if item.program == "faps/fig4")
    words = "At the paper's size it would take about 69 minutes of one core."
    assert page.why(item).startswith(words)
    monkeypatch.setitem(JUDGED, item.program, Judgement("same", "As there."))
    made = record.made(
        item.program, lambda opts: found_table(), report.options([], about="", known=("a",), seeds=(1, 1))
    )
    record.write(made)
    assert page.agreement(item) == "same, in small size"
    assert page.why(item).startswith(f"As there. {words}")
    record.write(replace(made, size="paper"))
    assert page.why(item) == "As there."


@every(("cell", "value"), [("4.1e-03 (4.2e-04)", 4.1e-3), ("3..7", 3.0), ("> 40", 40.0), ("12%", 12.0), ("-", np.inf)])
def test_cells_are_read_as_numbers(cell, value):
    assert claims.number(cell) == value


def test_all_of_it_fits_into_nine_hours(capsys):
    minutes = catalogue.minutes()
    assert set(minutes) == set(PROGRAMS)
    assert sum(minutes.values()) <= 9 * 60
    command.main(["--list"])
    assert f"{len(minutes)} programs: about {sum(minutes.values()):.0f} minutes of one core." in capsys.readouterr().out


@every("program", RECORDED)
def test_the_minutes_of_the_catalogue_are_those_of_the_record(program):
    kept, said = record.read(program), {item.minutes for item in ITEMS if item.program == program}
    assert len(said) == 1
    assert kept.size != "paper" or kept.minutes <= 1.5 * said.pop() + 0.1


def test_programs_are_run_by_name_and_by_room_and_all_of_them(monkeypatch):
    asked = []
    monkeypatch.setattr(command, "run", lambda programs, **settings: asked.append(list(programs)))
    command.main(["--paper"])
    assert asked[0] == sorted(catalogue.minutes())
    command.main(["--paper", "faps"])
    assert asked[1] == [program for program in asked[0] if program.startswith("faps/")]
    command.main(["--paper", "faps/table2", "leak"])
    assert asked[2] == ["faps/table2", "leak/fig1a", "leak/fig1b"]
