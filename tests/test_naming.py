"""Test that names of columns are compared in normal form, and that messages show the remaining differences."""

import itertools
import json
import unicodedata
import zlib

import numpy as np
import pytest
from builders import peak_memory

from flower_pca import PCAResult, simulate
from flower_pca.base.errors import ProtocolError
from flower_pca.base.labels import clean_name, describe_difference
from flower_pca.data.sources import make
from flower_pca.names.columns import Heading, digest_of_names, read_names, write_names
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((40, 3)) * [3.0, 2.0, 1.0]
NAMES = ("größe", "café au lait", "puls")
ODD = tuple(unicodedata.normalize("NFD", name) for name in (" größe", "café\nau  lait ", "\tpuls\u00a0"))


STRANGE = ("Ölstand", "age\n", "blood  pressure", "a\x1b[2J\u202eb", "", "\ta", "\ud800", "x\u200b")


@pytest.mark.parametrize("name", [*NAMES, *ODD, *STRANGE], ids=ascii)
def test_a_clean_name_is_not_changed_and_any_other_is_brought_into_one_form(name):
    line = " ".join(unicodedata.normalize("NFC", name).split())
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    assert clean_name(name) == printable
    assert clean_name(printable) == printable
    assert tuple(map(clean_name, ODD)) == NAMES


def test_sites_with_names_of_other_forms_are_one_table(tmp_path):
    pd = pytest.importorskip("pandas")
    a, b = pd.DataFrame(ROWS[:20], columns=NAMES), pd.DataFrame(ROWS[20:][:, ::-1], columns=ODD[::-1])
    result = simulate("krylov", {"a": a, "b": b}, n_components=2)
    assert set(result.feature_names_in_) == set(NAMES)
    columns = result.feature_names_in_.tolist()  # Sites with columns in different orders get them sorted.
    reference = simulate("krylov", [Table(ROWS, NAMES)], n_components=2, columns=columns)
    np.testing.assert_allclose(result.components_, reference.components_, atol=1e-12)
    plain = pd.DataFrame(ROWS[20:], columns=NAMES)
    assert np.array_equal(result.transform(b), result.transform(plain))
    picked = simulate("krylov", {"a": a, "b": b}, n_components=1, columns=[ODD[2], NAMES[0]])
    assert picked.feature_names_in_.tolist() == ["puls", "größe"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_files_are_read_in_that_form(kind, tmp_path):
    pd = pytest.importorskip("pandas")
    path = str(tmp_path / f"x.{kind}")
    if kind == "npz":
        np.savez(path, X=ROWS, columns=np.array(ODD))
    else:
        pytest.importorskip("pyarrow")
        frame = pd.DataFrame(ROWS, columns=ODD)
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    assert make(path).names == NAMES
    if kind != "npz":
        assert make(f"{kind}(path={path!r}, columns=[{ODD[0]!r}], beside=[{ODD[2]!r}])").names == NAMES[:1]


def test_names_that_are_others_are_no_pair():
    assert describe_difference(["age", "bmi"], ["pulse", "_"]) == ""
    assert describe_difference(["a_b"], ["a|b", "a b"]) == ""


def test_names_from_another_machine_have_that_form_or_are_none():
    for names in (["a\x1b[2J"], [" a"], ["a\u202eb"], [unicodedata.normalize("NFD", "é")]):
        with pytest.raises(ProtocolError, match=r"need different names of at most 200 characters, in normal form"):
            read_names("An answer", {"columns": json.dumps(names)})
        with pytest.raises(ProtocolError, match="in normal form"):
            Heading.from_plain(Heading(1, digest_of_names(names), tuple(names)).to_plain())


def test_long_lists_of_names_travel_compressed():
    names = tuple(f"{i % 22 + 1}:{7919 * i}:A:G" for i in range(60_000))
    sent = write_names(names)
    assert isinstance(sent, bytes)
    assert len(sent) < len(json.dumps(names)) / 3
    assert read_names("A message", {"columns": sent}) == names
    assert Heading.from_plain(Heading.of_names(names, len(names)).to_plain()).names == tuple(sorted(names))
    assert Frame(np.zeros(len(names)), names=names).bytes_of_names == len(sent)


def test_a_few_names_travel_as_they_are():
    assert write_names(("age", "bmi")) == '["age", "bmi"]'


@pytest.mark.parametrize("sent", [b"", b"no zlib", zlib.compress(b"[" * 10**5), zlib.compress(b'["a"]')[:-7]])
def test_damaged_lists_of_names_are_refused(sent):
    with pytest.raises(ProtocolError, match="need different names"):
        read_names("A message", {"columns": sent})


@pytest.mark.parametrize(
    "text",
    [json.dumps(["a" * 100] * 10**6), json.dumps(["a", *[""] * 10**7]), "[" + "1.5," * 10**7 + "1]", "[]," * 10**7],
    ids=["long names", "empty names", "numbers", "lists"],
)
def test_a_short_message_with_names_cannot_fill_the_memory(text):
    """What is unpacked is refused before it is much longer than the message, and so before it is read."""
    packed = zlib.compress(text.encode(), 9)
    assert len(text) > 250 * len(packed)
    with peak_memory() as peak, pytest.raises(ProtocolError, match="need different names"):
        read_names("A message", {"columns": packed})
    assert peak() < 200 * len(packed)


def test_a_heading_with_the_most_names_is_not_misread():
    """Two letters for each name take the most memory for what they are long."""
    names = ["".join(letters) for letters in itertools.product(map(chr, range(97, 97 + 17)), repeat=4)]
    packed = zlib.compress(json.dumps(names).encode(), 9)
    with peak_memory() as peak:
        assert read_names("A message", {"columns": packed}) == tuple(names)
    assert peak() < 500 * len(packed)


def test_names_that_compress_too_well_travel_as_they_are():
    names = tuple(f"{'concentration of the protein in the plasma ' * 3}{i}" for i in range(1000))
    sent = write_names(names)
    assert isinstance(sent, str)
    assert read_names("A message", {"columns": sent}) == names


def test_an_older_result_with_other_forms_is_matched(tmp_path):
    result = simulate("krylov", [Table(ROWS, NAMES)], n_components=1)
    object.__setattr__(result, "feature_names_in_", np.array(ODD, dtype=object))
    result.save(tmp_path / "x.npz")
    again = PCAResult.load(tmp_path / "x.npz")
    assert np.array_equal(again.transform(Table(ROWS, NAMES)), again.transform(Table(ROWS, ODD)))
