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
from sims import cards, catalogue, claims, page
from sims.catalogue import ITEMS
from sims.claimed import PAGES
from sims.common import record, report
from sims.judged import AGREEMENTS, CAUSES, JUDGED, Judgement
from sims.local_power.known import MAIN, SETS, SIZES

PROGRAMS = sorted({item.program for item in ITEMS if item.program})
AVERAGED = tuple(f"local_power/fig{n}" for n in ("3b", "11", "12"))  # an order that a single draw need not have
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
    text = (page.FOLDER / f"{PAGES[item.paper].file}.md").read_text(encoding="utf-8")
    section = text.partition(f"\n{kept.title}.\n")[2].partition("</details>")[0]
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
    names -= {spec.removeprefix("program: ") for spec in kept.algorithms}  # run by the authors' program
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


@every("program", [p for p in RECORDED if any(s.startswith("per_pca(") for s in record.read(p).algorithms)])
def test_local_components_of_per_pca_begin_at_random_as_the_paper_says(program):
    runs = [make(spec) for spec in record.read(program).algorithms if spec.startswith("per_pca(")]
    assert all("random" in (run.init, run.local_init) for run in runs)


@pytest.mark.slow
def test_the_pages_are_made_from_the_records():
    for name, text in page.texts().items():
        assert (page.FOLDER / name).read_text(encoding="utf-8") == text, "run: python -m sims --page"
    assert {path.name for path in page.FOLDER.glob("*.md")} == set(page.texts())
    for program in RECORDED:
        assert (page.picture(program).is_file()) == (record.read(program).drawing is not None)
    for key, paper in PAGES.items():
        for number, card in enumerate(paper.cards, start=1):
            assert page.card_picture(key, number).is_file() == page.drawn_from(card)


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
    "local_power/fig13": {"sims.local_power.figures.COUNTS": (20, 80)},
    "robust/zeros": {"sims.robust.experiments.RANKS": (0.15, 0.2), "sims.robust.experiments.SPARSITIES": (0.2, 0.3)},
    "personal/deviations": {"sims.personal.rates.WIDTHS": (20, 40)},
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
    assert made == [(False, 1), (True, 4)]
    printed = capsys.readouterr().out
    assert "left out: no such film" in printed
    assert "1 of 2 are recorded and stay as they are." in printed
    assert record.read("local_power/table5").size == "paper"


def test_a_record_is_not_replaced_without_a_word(results, monkeypatch, capsys):
    cells = ["0.25"]

    def experiment(opts):
        return report.Found("Eta", [["data", "of", "m=20"], ["a9a", "ours", cells[-1]]])

    monkeypatch.setattr(catalogue.Item, "experiment", lambda item: ({"table5": experiment}, "table5", 4))
    command.main(["--paper", "local_power/table5"])
    first = capsys.readouterr().out
    assert "1 to run, about 3 minutes of one core" in first
    assert "[1/1] local_power/table5, about 3 minutes; 0 of 3 are done" in first
    assert "replaces" not in first
    cells.append("0.75")
    command.main(["--paper", "--again", "local_power/table5"])
    again = capsys.readouterr().out
    assert "replaces the record of local_power/table5: " in again
    assert "a9a, ours: m=20: 0.25, now 0.75" in again
    command.main(["--small", "--again", "local_power/table5"])
    assert "kept: the record is at the paper's size. To replace it, delete" in capsys.readouterr().out
    assert record.read("local_power/table5").rows[1][2] == "0.75"


def test_fresh_seeds_are_held_against_a_record_and_nothing_is_written(results, monkeypatch, capsys):
    def experiment(opts):
        drawn = [0.5 + 0.01 * np.random.default_rng(seed).standard_normal() for seed in opts.each()]
        shift = 1.0 if opts.first == 7000 else 0.0
        return report.Found("Eta", [["data", "of", "m=20"], ["a9a", "ours", f"{np.mean(drawn) + shift:.3f}"]])

    monkeypatch.setattr(catalogue.Item, "experiment", lambda item: ({"table5": experiment}, "table5", 4))
    command.main(["--paper", "local_power/table5"])
    before = record.path("local_power/table5").read_bytes()
    capsys.readouterr()
    command.main(["--check", "local_power/table5", "--first", "5000"])
    printed = capsys.readouterr().out
    assert "1 to check with seeds from 5000 on" in printed
    assert re.search(r"local_power/table5 +4 +1 +1 +0 +0\n", printed)
    command.main(["--check", "local_power/table5", "--first", "7000"])
    assert re.search(r"local_power/table5 +a9a, ours +m=20 +0\.\d+ +1\.\d+\n", capsys.readouterr().out)
    command.main(["--check", "local_power/table5", "--first", "2"])
    assert "The record of local_power/table5 has seed 2. Choose another with --first." in capsys.readouterr().out
    command.main(["--check", "local_power/table6"])
    assert "left out: local_power/table6 has no record to compare with." in capsys.readouterr().out
    assert record.path("local_power/table5").read_bytes() == before
    with pytest.raises(SystemExit):
        command.main(["--check"])
    assert "--check runs what is named." in capsys.readouterr().err


def test_whatever_is_not_the_same_has_its_cause_in_one_of_four_words():
    for program, judged in JUDGED.items():
        assert judged.agreement in AGREEMENTS
        assert judged.cause in CAUSES if judged.agreement != "same" else not judged.cause, program
        assert judged.why or judged.agreement == "same", program


def test_every_paper_has_four_to_six_claims_whose_records_are_of_items():
    assert set(PAGES) == set(catalogue.PAPERS)
    for paper in PAGES.values():
        assert 4 <= len(paper.cards) <= 6
        assert {card.program for card in paper.cards} <= set(PROGRAMS)


@every(
    ("cell", "at", "low", "high"),
    [
        ("4.0e-03 (1.0e-03)", 4e-3, 3e-3, 5e-3),
        ("4..9", 6.0, 4.0, 9.0),
        ("7", 7.0, 7.0, 7.0),
        ("1.0 (2.0)", 1.0, 0.0, 3.0),
    ],
)
def test_a_cell_is_a_number_with_its_spread(cell, at, low, high):
    found = cards.value(cell)
    np.testing.assert_allclose([found.at, found.low, found.high], [at, low, high])
    assert cards.value("-") is None


def test_a_card_has_the_ratio_of_ours_to_the_papers(results):
    rows = [
        ["data", "of", "OPT"], ["a", "paper", "1e-3 (1e-4)"], ["a", "ours", "2e-3 (1e-4)"], ["b", "paper", "1e-2 (0)"],
        ["b", "ours", "1e-2 (0)"], ["c", "ours", "5e-1 (0)"],
    ]  # fmt: skip
    card = cards.Card("It is small.", "Table 6", "local_power/table6", "It is.", cards.by_set("OPT"))
    assert (card.ratio, card.verdict) == (report.NONE, "not run yet")
    made = record.made(
        "local_power/table6",
        lambda opts: report.Found("T", rows),
        report.options([], about="", known=("a",), seeds=(1, 1)),
    )
    record.write(made)
    assert card.ratio == "1.5 (1 to 2)"
    assert card.draw(results / "card.png")
    assert (results / "card.png").is_file()


def test_a_card_that_is_not_the_same_has_its_cause(results, monkeypatch):
    card = cards.Card("It is small.", "Table 4", "local_power/table4", "It is.")
    monkeypatch.setitem(JUDGED, card.program, Judgement("in part", "Half of it.", "the data"))
    assert card.cause == ""
    made = record.made(
        card.program, lambda opts: found_table(), report.options([], about="", known=("a",), seeds=(1, 1))
    )
    record.write(made)
    assert (card.verdict, card.cause) == ("in part", "the data")
    paper = replace(PAGES["local_power"], cards=(card,))
    monkeypatch.setitem(PAGES, "local_power", paper)
    text = page.texts()["local-power.md"]
    assert "| 1. It is small. | curves | **in part**: the data |" in text
    assert "### Claim 1: in part (the data)" in text
    apart = replace(card, agreement="differs", reason="the paper")
    assert (apart.verdict, apart.cause) == ("differs", "the paper")


def test_every_claim_that_is_judged_apart_is_not_the_same_and_has_a_cause():
    apart = [card for paper in PAGES.values() for card in paper.cards if card.agreement]
    assert apart
    for card in apart:
        assert card.agreement in set(AGREEMENTS) - {"same"}
        assert card.reason in CAUSES


def test_marks_that_are_not_the_papers_numbers_give_no_ratio_and_are_named():
    text = page.texts()["over-air.md"]
    assert "| 1. […] in all the cases, the subspace error saturates" in text
    assert "sigma as hollow marks, ours as full marks" in text
    assert all(not card.ratio for card in PAGES["over_air"].cards)


@every("program", ["faps/table1", "faps/table2", "faps/table4"])
def test_a_problem_that_is_cut_to_its_leading_columns_is_not_of_the_papers_size(program):
    item = next(item for item in ITEMS if item.program == program)
    assert "leading" in record.read(program).note
    assert "size" not in page.marks(item)
    assert "leading" in page.why(item)


def test_a_table_of_a_page_has_as_many_cells_in_every_row():
    for text in page.texts().values():
        for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
            cells = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
            assert len(set(cells)) == 1, table.splitlines()[cells.index(max(cells))]


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
    assert page.agreement(item) == "same, in small size"
    record.write(replace(made, size="paper"))
    assert page.agreement(item) == "same"
    text = page.texts()["local-power.md"]
    assert "Eta." in text
    assert "| a9a | ours | 0.25 |" in text
    assert "- ✓ the more clients, the larger eta" in text
    assert "1 of 6 claims hold as in the paper." in text
    assert f": 1 *same*, {len([i for i in ITEMS if i.paper == item.paper and i.program and not i.beside]) - 1} " in text


def test_the_page_says_why_an_item_has_not_been_run_at_the_papers_size(results, monkeypatch):
    item = next(item for item in ITEMS if item.program == "faps/table3")
    words = "At the paper's size it would take about 8 minutes of one core."
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


def test_all_of_it_fits_into_ten_hours(capsys):
    minutes = catalogue.minutes()
    assert set(minutes) == set(PROGRAMS)
    assert sum(minutes.values()) <= 10 * 60
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
    assert asked[2] == ["faps/table2", "leak/fig1a", "leak/fig1b", "leak/others"]
