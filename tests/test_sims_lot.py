"""How far seeds swing, and items drawn by lot and run again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from cases import every

from flower_pca import DataError
from sims import __main__ as command
from sims import catalogue, lot
from sims.catalogue import ITEMS
from sims.common import record, report, spread
from sims.common.report import mean_std


@every(
    ("a", "b", "by"),
    [
        ("3.4e-03", "3.4e-03", 1.0),
        ("3.4e-03", "3.5e-03", 1.0),  # a last digit apart
        ("2.0e-03", "4.0e-03", 2.0),
        ("4e-16", "9e-13", 1.0),  # rounding
        ("0.00", "0.05", 5.0),
        ("-0.50", "-1.00", 2.0),
        ("-0.50", "1.00", np.inf),
        ("-", "12", np.inf),
        ("7", "8", 1.0),
    ],
)
def test_two_printed_numbers_are_apart_by_a_factor(a, b, by):
    assert spread.factor(a, b) == pytest.approx(by)
    assert spread.factor(b, a) == pytest.approx(by)


HEADER = ["method", "error", "mean", "span", "s"]


def test_the_swing_of_a_row_is_that_of_its_numbers_alone():
    table = [HEADER, ["a", "2.0e-03", "1.0 (0.5)", "3..9", "1.0"], ["b", "5.0e-01", "1.0 (0.5)", "3..9", "7.5"]]
    one = [HEADER, ["a", "1.0e-03", "7.0", "3", "9.9"], ["b", "5.0e-01", "3.0", "5", "0.1"]]
    two = [HEADER, ["a", "8.0e-03", "0.1", "9", "4.1"], ["b", "5.1e-01", "9.0", "5", "0.1"]]
    assert spread.swings(table, [one, two]) == ["4", "-"]
    assert spread.swings(table, [one[:2], two[:2]]) == []
    skewed = [[HEADER[0], "mean"], ["a", "5.0e-10 (1.3e-09)"]]
    singles = [[skewed[0], ["a", cell]] for cell in ("2.0e-11 (0.0e+00)", "4.2e-09")]
    assert spread.swings(skewed, singles) == ["25"]
    assert spread.swings(skewed, [[skewed[0], ["a", "-"]]]) == ["any"]
    assert spread.swings([HEADER[:2], ["a", "12"]], [[HEADER[:2], ["a", "-"]]]) == ["any"]


def test_the_swing_of_means_is_told_by_their_draws():
    header = ["data", "p", "mean", "other"]
    table = [header, ["a", "p=1", "5.0e-10 (1.3e-09)", "1.0 (0.1)"], ["paper", "p=1", "3.0e-10", "-"]]
    draws = [{"mean": [2.0e-11, 4.2e-9], "other": [0.9, 1.1]}, {}]
    assert spread.swings_of_draws(table, draws) == ["25", "-"]


def off(printed, again, swing, seeds=10):
    table = ([["of", "m"], ["a", cell]] for cell in (printed, again))
    found = spread.compared(*table, seeds, swing)
    return [(o.printed, o.again) for o in found.off], found.numbers, found.unstated


@every(
    ("printed", "again", "swing", "inside"),
    [
        ("2.0e-03", "5.0e-03", ["3"], True),
        ("2.0e-03", "8.0e-03", ["3"], False),
        ("2.0e-03", "2.1e-03", ["-"], True),
        ("2.0e-03", "2.9e-03", ["-"], False),
        ("2.0e-03", "9.0e+03", ["any"], True),
        ("1.0e-02 (2.0e-03)", "1.2e-02 (2.5e-03)", None, True),
        ("1.0e-02 (2.0e-03)", "1.9e-02 (2.0e-03)", None, False),
        ("6.0e-04 (1.8e-05)", "6.3e-04 (8.9e-04)", None, False),  # a deviation of two seeds, called one of ten
        ("5.0e-10 (1.3e-09)", "2.6e-11 (2.7e-11)", None, False),
        ("5.0e-10 (1.3e-09)", "2.6e-11 (2.7e-11)", ["-"], False),
        ("5.0e-10 (1.3e-09)", "2.6e-11 (2.7e-11)", ["10"], False),
        ("5.0e-10 (1.3e-09)", "2.6e-11 (2.7e-11)", ["25"], True),
        ("5.0e-10 (1.3e-10)", "2.6e-11 (2.7e-11)", ["25"], False),  # a deviation that says how far draws lie
        ("8.4e-14 (2.3e-14)", "3.4e-13 (9.3e-13)", None, True),
        ("30..60", "25..70", None, True),
        ("30..60", "25..130", None, False),
        ("30..-", "25..900", None, True),
        ("30..60", "-..-", None, False),
    ],
)
def test_a_second_run_is_held_against_the_spread_that_is_stated(printed, again, swing, inside):
    assert off(printed, again, swing) == ([] if inside else [(printed, again)], 1, 0)


def test_what_has_no_spread_is_counted_as_that():
    assert off("2.0e-03", "8.0e-03", None) == ([], 1, 1)
    assert off("2.0e-03", "2.0e-03", ["-"]) == ([], 0, 0)


@pytest.mark.slow
def test_means_and_deviations_agree_in_nearly_all_draws_and_not_when_they_are_others():
    rng, header = np.random.default_rng(5), ["of", *map(str, range(400))]

    def run(mean, deviation):
        drawn = rng.normal(mean, deviation, (400, 10))
        return [header, ["a", *(f"{x.mean():.3e} ({x.std(ddof=1):.3e})" for x in drawn)]]

    assert len(spread.compared(run(1.0, 0.1), run(1.0, 0.1), 10, None).off) <= 4
    assert len(spread.compared(run(1.0, 0.1), run(1.3, 0.1), 10, None).off) >= 380
    assert len(spread.compared(run(1.0, 0.1), run(1.0, 0.9), 10, None).off) >= 380


def test_rows_of_single_seeds_are_held_against_their_column():
    table = [["draw", "messages", "error"], ["paper", "55", "-"], ["0", "40..60", "1.0e-03"], ["1", "50", "2.0e-03"]]
    near = [*table[:2], ["7", "35..80", "3.0e-03"], ["8", "44", "1.1e-03"]]
    far = [*table[:2], ["7", "35..200", "3.0e-03"], ["8", "44", "1.0e-05"]]
    assert not spread.compared(table, near, 2, []).off
    assert [o.again for o in spread.compared(table, far, 2, []).off] == ["35..200", "1.0e-05"]


@pytest.fixture
def drawing(tmp_path, monkeypatch):
    """Three programs of which each draws its numbers from its seeds, and their records."""
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(lot, "KEPT", tmp_path / "lot.json")

    def experiment(opts):
        drawn = [np.random.default_rng(seed).normal(5.0, 0.5) for seed in opts.each()]
        return report.Found("A table", [["of", "mean"], ["all", f"{np.mean(drawn):.2f}"]])

    def named(item):
        name = item.program.partition("/")[2]
        return {name: experiment}, name, 5

    monkeypatch.setattr(catalogue.Item, "experiment", named)
    programs = ["personal/fig3", "personal/fig8", "robust/fig4"]
    command.main(["--paper", *programs])
    return programs


def test_a_record_says_how_far_single_seeds_swing(drawing):
    for program in drawing:
        kept = record.read(program)
        singles = [np.random.default_rng(seed).normal(5.0, 0.5) for seed in range(5)]
        most = max(max(x / np.mean(singles), np.mean(singles) / x) for x in singles)
        assert kept.swings == [f"{most:.2g}"]
        assert kept.seeds == [0, 1, 2, 3, 4]


def test_items_are_drawn_by_lot_and_run_with_other_seeds(drawing, capsys):
    assert lot.eligible() == drawing
    draws = [tuple(lot.drawn(2, seed)) for seed in range(40)]
    assert len(set(draws)) == 3
    assert lot.drawn(9, 0) == drawing
    command.main(["--lot", "2", "--seed", "3"])
    kept = lot.read()
    assert [again.program for again in kept.runs] == lot.drawn(2, 3)
    assert {tuple(again.seeds) for again in kept.runs} == {(1000, 1001, 1002, 1003, 1004)}
    assert all((again.numbers, again.unstated, again.off) == (1, 0, []) for again in kept.runs)
    assert "1 of 1 numbers within the spread stated" in capsys.readouterr().out
    assert "we drew 2 of the 3 programs that take at most 5 minutes (seed 3) and ran them" in lot.section()
    command.main(["--lot", "1", "--first", "6000"])
    assert [again.seeds for again in lot.read().runs] == [[6000, 6001, 6002, 6003, 6004]]


def test_the_page_names_what_was_drawn_and_not_run(drawing, monkeypatch):
    def again(program, first, data_dir):
        if program == drawing[0]:
            raise DataError("no data")
        return lot.Again(program, [first], 1, 0, [])

    monkeypatch.setattr(lot, "again", again)
    kept = lot.run(3, 0, Path("data"))
    assert kept.left == drawing[:1]
    lot.write(kept)
    words = "we drew 3 of the 3 programs that take at most 5 minutes (seed 0) and ran them with new seeds, except "
    assert f"{words}{drawing[0]}." in lot.section()


def test_every_program_in_the_lot_is_of_an_item():
    kept = lot.read()
    assert kept is None or {again.program for again in kept.runs} <= {item.program for item in ITEMS}


def counting(ran, *, fewer=False):
    """An experiment that notes which seeds really run, with one row of the first seed alone if `fewer`."""

    def run(seed):
        ran.append(seed)
        report.ran("ssi")
        return float(np.random.default_rng(seed).normal(5.0, 0.5))

    def experiment(opts):
        rows = [["of", "seeds", "mean"]]
        for name, most in (("all", None), ("one", 1)) if fewer else (("all", None),):
            drawn = [opts.once(f"{name}, seed {seed}", partial(run, seed)) for seed in opts.each(most)]
            rows.append([name, len(drawn), f"{np.mean(drawn):.2f}"])
        return report.Found("A table", rows)

    return experiment


def options(**given):
    return report.Options(("a",), Path("out"), (), Path("data"), 5, True, **given)


def test_the_tables_of_single_seeds_take_no_run_twice():
    ran = []
    experiment, opts = counting(ran), options()
    made = record.swung(record.made("room/a", experiment, opts), experiment, opts)
    assert ran == [0, 1, 2, 3, 4]
    assert made.algorithms == ["ssi"]
    assert float(made.swings[0]) > spread.SIMILAR


def test_a_row_of_one_seed_says_so_instead_of_a_swing():
    ran = []
    experiment, opts = counting(ran, fewer=True), options()
    made = record.swung(record.made("room/a", experiment, opts), experiment, opts)
    assert sorted(ran) == [0, 0, 1, 2, 3, 4]
    assert made.swings[1] == spread.ONE
    other = [made.rows[0], made.rows[1], ["one", "1", "9.99"]]
    assert spread.compared(made.rows, other, 5, made.swings) == spread.Checked(1, 1, [])


def test_numbers_that_state_their_own_spread_need_no_tables_of_single_seeds():
    asked = []

    def experiment(opts):
        asked.append(list(opts.each()))
        return report.Found("A table", [["of", "messages"], ["all", "3..7"]], stated=True)

    made = record.swung(record.made("room/a", experiment, options()), experiment, options())
    assert made.swings == ["-"]
    assert asked == [[0, 1, 2, 3, 4]]


def test_a_program_that_was_stopped_goes_on_from_what_it_has_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    ran, broken = [], [True]

    def run(seed):
        if broken and seed == 3:
            raise KeyboardInterrupt
        ran.append(seed)
        report.ran("ssi")
        return float(seed)

    def experiment(opts):
        drawn = [opts.once(f"seed {seed}", partial(run, seed)) for seed in opts.each()]
        return report.Found("A table", [["of", "mean"], ["all", f"{np.mean(drawn):.2f}"]])

    monkeypatch.setattr(catalogue.Item, "experiment", lambda item: ({"fig3": experiment}, "fig3", 5))
    arguments = ["--paper", "personal/fig3", "--points", str(tmp_path / "points")]
    with pytest.raises(KeyboardInterrupt):
        command.main(arguments)
    assert record.read("personal/fig3") is None
    broken.clear()
    command.main(arguments)
    assert ran == [0, 1, 2, 3, 4]
    kept = record.read("personal/fig3")
    assert (kept.seeds, kept.algorithms, kept.rows[1]) == ([0, 1, 2, 3, 4], ["ssi"], ["all", "2.00"])


def test_a_program_whose_work_another_one_did_is_drawn_only_if_it_is_quick_by_itself(drawing):
    left = record.read("personal/fig3")
    record.write(replace(left, item="local_power/fig5", minutes=0.0))  # six minutes by itself
    record.write(replace(left, item="local_power/fig8", minutes=0.0))  # two
    assert lot.eligible() == ["local_power/fig8", *drawing]
    assert lot.alone(record.read("local_power/fig5")) == 6
    assert lot.alone(replace(left, minutes=9.0)) == 9.0


@every(
    ("cell", "other", "both"),
    [
        ("3..7", "5..9", "3..9"),
        ("3..7", "4", "3..7"),
        ("1.0e-02", "9.0e-03", "9.0e-03..1.0e-02"),
        ("30..-", "25..900", "25..-"),
        ("-", "12", "12..-"),
        ("> 40", "> 38", "> 38"),
        ("paper", "paper", "paper"),
    ],
)
def test_the_spans_of_two_runs_are_one_of_all_their_seeds(cell, other, both):
    header = ["of", "messages"]
    assert spread.joined([header, ["a", cell]], [header, ["a", other]]) == [header, ["a", both]]


@every(("cell", "other"), [("1.0 (0.1)", "1.1 (0.1)"), ("> 40", "12"), ("words", "others")])
def test_what_is_no_span_is_not_joined(cell, other):
    header = ["of", "messages"]
    with pytest.raises(ValueError, match=r"a, .*: messages: no span"):
        spread.joined([header, ["a", cell]], [header, ["a", other]])
    with pytest.raises(ValueError, match="other rows or columns"):
        spread.joined([header, ["a", cell]], [header])


def test_further_seeds_are_joined_to_a_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    asked = []

    def experiment(opts):
        seeds = list(opts.each())
        asked.append(seeds)
        rows = [["of", "messages"], ["all", report.span([s % 4 for s in seeds])]]
        return report.Found("A table", rows, f"Of {opts.seeds} seeds, d=13 seedlings.", stated=True)

    monkeypatch.setattr(catalogue.Item, "experiment", lambda item: ({"fig3": experiment}, "fig3", 2))
    command.main(["--paper", "personal/fig3"])
    command.main(["--paper", "personal/fig3", "--more", "3"])
    kept = record.read("personal/fig3")
    assert asked == [[0, 1], [2, 3, 4]]
    assert (kept.seeds, kept.rows[1], kept.swings) == ([0, 1, 2, 3, 4], ["all", "0..3"], ["-"])
    assert kept.note == "Of 5 seeds, d=13 seedlings."
    assert "personal/fig3, 3 seeds from 2 on" in (printed := capsys.readouterr().out)
    assert "all, 0..1: messages: 0..1, now 0..3" in printed
    more = replace(kept, seeds=[7], minutes=2.0)
    both = record.joined(replace(kept, minutes=1.5), more)
    assert (both.seeds, both.minutes) == ([0, 1, 2, 3, 4, 7], 3.5)
    for other in (kept, replace(more, size="small"), replace(more, swings=None), replace(more, draws=[{}])):
        with pytest.raises(ValueError, match=r"^(the same seeds, or other sizes|means, which are no spans)$"):
            record.joined(kept, other)
    command.main(["--paper", "personal/fig1", "--more", "3"])
    assert "left out: personal/fig1 has no record of seeds at the paper's size." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--paper", "--more", "3"])
    assert "--more joins further seeds to what is recorded." in capsys.readouterr().err


def test_a_record_of_means_is_not_joined(drawing, capsys):
    before = record.path(drawing[0]).read_bytes()
    command.main(["--paper", drawing[0], "--more", "2"])
    printed = capsys.readouterr().out
    assert f"not all numbers of {drawing[0]} are spans. To run all seeds anew, use --again, not --more." in printed
    assert "about" not in printed  # nothing has been run for it
    assert record.path(drawing[0]).read_bytes() == before


def called_different(first, second):
    return np.mean([not spread.alike_in_logs(a, b) for a, b in zip(np.exp(first), np.exp(second), strict=True)])


@every("seeds", [5, 10])
@every("deviation", [0.03, 0.3, 1.0, 2.0])
def test_two_runs_are_called_different_as_seldom_as_is_stated(seeds, deviation):
    """Numbers over powers of ten: of runs that are alike 2 in 1000 pairs, and nearly all that are far apart."""
    rng, shape = np.random.default_rng(seeds), (1000, seeds)
    first, second = (rng.normal(-8.0, deviation, shape) for _ in range(2))
    stated = 2.0 * (1.0 - spread.LEVEL)
    assert called_different(first, second) <= stated + 3.0 * np.sqrt(stated / shape[0])
    assert called_different(first, second + 8.0 * deviation) >= 0.99
    assert called_different(first, 100.0 * second) >= 0.99


@every("seeds", [5, 10])
def test_one_rare_seed_seldom_makes_a_run_a_different_one(seeds):
    """Every twentieth seed is seven times larger: an F-test of deviations would call many pairs different."""
    rng, shape = np.random.default_rng(1), (500, seeds)
    first, second = (rng.normal(-8.0, 0.3, shape) + 2.0 * (rng.random(shape) < 0.05) for _ in range(2))
    assert called_different(first, second) <= 0.02


@every(("seeds", "stated"), [(5, 0.9), (10, 0.98)])
def test_a_span_holds_as_often_as_the_page_says(seeds, stated):
    rng = np.random.default_rng(seeds)
    ends = [(min(x), max(x)) for x in np.exp(rng.normal(-8.0, 0.5, (4000, seeds)))]
    assert np.mean([spread._widened(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True)]) == pytest.approx(
        stated, abs=0.015
    )


def test_means_whose_draws_are_kept_are_held_against_each_other_by_logarithms():
    """One seed of five has made the second run's mean; their deviations are ten times apart, and their logs are not."""
    table, again = ([["of", "m"], ["a", cell]] for cell in ("8.0e-03 (3.6e-03)", "4.1e-02 (7.1e-02)"))
    draws = [{"m": [4e-3, 6e-3, 8e-3, 9e-3, 1.3e-2]}], [{"m": [3e-3, 8e-3, 1.1e-2, 1.6e-2, 0.168]}]
    assert len(spread.compared(table, again, 5, ["-"]).off) == 1
    assert spread.compared(table, again, 5, ["-"], draws) == spread.Checked(1, 0, [])
    far = [{"m": [4e-2, 5e-2, 4e-2, 3e-2, 4e-2]}]
    assert len(spread.compared(table, again, 5, ["any"], (draws[0], far)).off) == 1
    below_zero = [{"m": [-4e-3, 6e-3, 8e-3, 9e-3, 1.3e-2]}]
    assert len(spread.compared(table, again, 5, ["-"], (below_zero, draws[1])).off) == 1
    rounding = [{"m": [1e-14] * 5}], [{"m": [1e-16, 1e-15, 2e-13, 1e-14, 3e-15]}]
    assert not spread.compared(table, again, 5, ["-"], rounding).off


def test_a_record_keeps_the_numbers_behind_its_means(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path)

    def experiment(opts):
        drawn = np.array([10.0 ** -(seed + 1.23456) for seed in opts.each()])
        return report.Found("A table", [["of", "mean", "p"], ["all", mean_std(drawn), "1"], ["none", "-", "2"]])

    made = record.made("room/a", experiment, options())
    assert made.draws == [{"mean": [5.83e-2, 5.83e-3, 5.83e-4, 5.83e-5, 5.83e-6]}, {}]
    record.write(made)
    assert record.read("room/a") == made
    single = record.made("room/a", experiment, replace(options(), seeds=1))
    assert (single.draws, single.rows[1]) == (None, ["all", "5.8e-02", "1"])


def test_a_record_keeps_the_numbers_behind_medians_and_tells_their_swing():
    numbers = [2e-3, 1e-3, 8e-3]

    def experiment(opts):
        found = [numbers[seed] for seed in opts.each()]
        rows = [["of", "error", "most"], ["all", report.drawn(found), report.drawn(found, "{:.3f}".format, np.max)]]
        return report.Found("A table", rows, stated=opts.seeds > 1)

    made = record.made("room/a", experiment, replace(options(), seeds=3))
    assert made.rows[1] == ["all", "2.0e-03", "0.008"]
    assert made.draws == [{"error": numbers, "most": numbers}]
    assert made.swings == ["8"]
    assert not record.of_spans(made)
    single = record.made("room/a", experiment, replace(options(), seeds=1))
    assert (single.draws, single.swings, single.rows[1]) == (None, None, ["all", "2.0e-03", "0.002"])
