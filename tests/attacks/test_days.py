"""Test a node with `min_change` on ordinary days: whatever happens to its file, nobody's row can be computed.

Every day draws what happens: people come, go, come back, have birthdays, are corrected; the file is exported in another
order, precision, unit or spelling. A server that has the sums of every version looks for a person: for a combination of
versions in which one person is left. That is linear algebra over the people who are in each version.
"""

from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from dishonest import Node

from flower_pca.base import files
from flower_pca.data import sources

pytestmark = pytest.mark.usefixtures("home")

NAMES = ["age", "bp", "chol", "hb"]
LOT = {"min_change": 20, "min_rows": 20, "allow_sparse_columns": True}
DAYS = 25  # days per node; forty nodes give a thousand


class Hospital:
    """A table of people, and what becomes of it."""

    def __init__(self, rng):
        self.rng, self.count = rng, 0
        self.people, self.left = {}, {}
        self.come(60)

    def come(self, how_many):
        """People whom nobody has seen before; their weight, in the column hb, is drawn once and tells who they are."""
        for _ in range(how_many):
            self.people[self.count] = self.rng.standard_normal(4) * [15, 15, 40, 1.5] + [55, 130, 200, 14]
            self.count += 1

    def go(self, how_many):
        for who in self.rng.permutation([*self.people])[: min(how_many, len(self.people) - 30)]:
            self.left[int(who)] = self.people.pop(int(who))

    def come_back(self, how_many):
        for who in self.rng.permutation([*self.left])[:how_many]:
            self.people[int(who)] = self.left.pop(int(who))

    def change(self, how_many):
        """Birthdays, and corrections in another column."""
        for who in self.rng.permutation([*self.people])[:how_many]:
            self.people[int(who)] = self.people[int(who)] + np.eye(4)[self.rng.integers(3)]

    def day(self):
        """What happens on a day: mostly little of several things."""
        for happens, most in ((self.come, 30), (self.go, 6), (self.come_back, 6), (self.change, 25)):
            if self.rng.random() < 0.5:
                happens(int(self.rng.integers(1, most)))

    def file(self, ids):
        """The table as it is exported on that day."""
        rng, who = self.rng, [*self.people]
        rows = np.array([self.people[one] for one in who])
        if rng.random() < 0.2:
            rows = rows.round(int(rng.integers(1, 5)))
        if rng.random() < 0.1:
            rows = rows * rng.choice([0.1, 10.0, 2.54])
        names = [name.upper() for name in NAMES] if rng.random() < 0.1 else NAMES
        table = pd.DataFrame(rows, columns=names)
        if ids:
            table["patient"] = [f"p{one}" for one in who]
        order = rng.permutation(len(table)) if rng.random() < 0.5 else np.arange(len(table))
        return table.iloc[order].reset_index(drop=True)


def sums_and_products(rows):
    return np.concatenate([[len(rows)], rows.sum(axis=0), (rows.T @ rows).ravel()])


def told(node):
    """All that a server can learn of a version: the number of rows, their sums and products."""
    node.start()
    asked = {"peaks": False, "seed": 1, "width": 4}
    answer = node.ask("opening", asked, algorithm="krylov", run=f"day {node.asked}")
    n, mean = float(answer["n"]), answer["mean"]
    block = node.ask("ssi", {"Z": np.eye(4)}, algorithm="ssi", run=f"products {node.asked}")["Y"]
    return np.concatenate([[n], n * mean, block.ravel()])


def copied(folder):
    """The people in the copy that the node answers from, and their rows."""
    header, arrays = files.read(folder / "flower_pca-rows-0.npz", "released rows of a node", private=True)
    return header["ids"], arrays["values"]


def is_one_person(found):
    """Whether moments are those of one row: one, its cells, and their products."""
    n, sums, products = found[0], found[1:5], found[5:].reshape(4, 4)
    return abs(n - 1.0) < 0.5 and np.linalg.norm(products - np.outer(sums, sums)) < 0.01 * np.linalg.norm(products)


@pytest.mark.slow
@pytest.mark.parametrize("ids", [False, True], ids=["nobody is known", "people are known"])
@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_told_by_all_versions_of_a_month(seed, ids, tmp_path):
    hospital = Hospital(np.random.default_rng([seed, ids]))
    rules = {**LOT, **({"id_column": "patient"} if ids else {})}
    node = Node(0, hospital.file(ids), memory_dir=tmp_path, **rules)
    seen, versions = [told(node)], [copied(tmp_path)]
    for _ in range(DAYS):
        hospital.day()
        node.X = hospital.file(ids)
        answer = told(node)
        if not np.array_equal(answer, seen[-1]):
            seen.append(answer)
            versions.append(copied(tmp_path))
    if not ids:
        assert len(seen) == 1
        return
    for answer, (who, rows) in zip(seen, versions, strict=True):
        assert len(set(who)) == len(who)
        np.testing.assert_allclose(answer, sums_and_products(rows), rtol=1e-9)
    for (had, before), (who, rows) in pairwise(versions):
        assert who[: len(had)] == had
        assert np.array_equal(rows[: len(had)], before)
        assert len(who) - len(had) >= 20
    # A person is told exactly if a combination of versions has this person alone.
    everybody = versions[-1][0]
    members = np.array([[one in set(who) for one in everybody] for who, _ in versions], dtype=float)
    alone = np.eye(len(everybody))
    fits = members.T @ np.linalg.lstsq(members.T, alone, rcond=None)[0]
    assert np.linalg.norm(fits - alone, axis=0).min() > 0.9
    # And told nearly, as people may be alike, if one looks like that.
    for chosen in product((-1, 0, 1), repeat=min(len(seen), 6)):
        assert not is_one_person(np.array(chosen) @ np.array(seen[: len(chosen)]))


def test_the_attack_finds_a_person_who_comes_alone(tmp_path):
    """Without min_change one more person is told by two days, whatever the order of the file."""
    hospital = Hospital(np.random.default_rng(0))
    rows = np.array([*hospital.people.values()])
    node = Node(0, rows[1:], memory_dir=tmp_path)
    before = told(node)
    node.X = rows[::-1].copy()
    assert is_one_person(told(node) - before)


class Clinic(Hospital):
    """A hospital whose table is a file, with dates, and which gives ids of people who have left to others."""

    def __init__(self, rng):
        self.ids, self.free, self.born = {}, [], {}
        super().__init__(rng)

    def come(self, how_many):
        first = self.count
        super().come(how_many)
        for who in range(first, self.count):
            again = self.free and self.rng.random() < 0.3
            self.ids[who] = self.free.pop() if again else f"p{who}"
            self.born[who] = int(self.rng.integers(10_000, 40_000))

    def go(self, how_many):
        before = {*self.left}
        super().go(how_many)
        self.free += [self.ids[who] for who in self.left if who not in before]

    def come_back(self, how_many):
        """With a new id if somebody else has theirs."""
        before = {*self.people}
        super().come_back(how_many)
        for who in {*self.people} - before:
            if self.ids[who] in self.free:
                self.free.remove(self.ids[who])
            else:
                self.ids[who] = f"again{who}"

    def write(self, path):
        """Write the file as it is exported on that day: with other dates, hours of midnight, separators and commas."""
        rng, table = self.rng, self.file(ids=True)
        who = table.pop("patient").str[1:].astype(int).tolist()
        day = np.array([self.born[one] for one in who]) + (rng.random() < 0.1)  # as if exported in another time zone
        dates = pd.to_datetime(day, unit="D", origin="1899-12-30")
        forms = ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%y", "%Y-%m-%dT00:00:00+02:00")
        table["born"] = dates.strftime(forms[rng.integers(4)]) if self.count > 60 and rng.random() < 0.5 else day
        table["patient"] = [self.ids[one] for one in who]
        sep, decimal = ((",", "."), (";", ","))[int(rng.random() < 0.2)]
        table.to_csv(path, index=False, sep=sep, decimal=decimal)
        return {self.ids[one]: one for one in who}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_nobody_is_told_by_all_files_of_a_month(seed, tmp_path):
    """Whoever has which id on the day that an id is added: no combination of versions has one person alone."""
    clinic, path = Clinic(np.random.default_rng([seed, 2])), tmp_path / "rows.csv"
    members, had = [], []
    for day in range(DAYS + 1):
        if day:
            clinic.day()
        who = clinic.write(path)
        rows = sources.make(str(path), ids="patient")
        node = Node(0, rows, memory_dir=tmp_path / "memory", id_column="patient", **LOT)
        asked = {"peaks": False, "seed": 1, "width": 2}
        answer = node.ask("opening", asked, algorithm="krylov", run=f"day {day}")
        ids, values = copied(tmp_path / "memory")
        np.testing.assert_allclose(answer["n"] * answer["mean"], values.sum(axis=0), rtol=1e-9)
        assert ids[: len(had)] == had
        if len(ids) > len(had):
            assert len(ids) - len(had) >= 20
            members.append([who[one] for one in ids[len(had) :]])
            had = ids
    everybody = sorted({one for lot in members for one in lot})
    counts = np.cumsum([[lot.count(one) for one in everybody] for lot in members], axis=0).astype(float)
    alone = np.eye(len(everybody))
    fits = counts.T @ np.linalg.lstsq(counts.T, alone, rcond=None)[0]
    assert np.linalg.norm(fits - alone, axis=0).min() > 0.9
