"""Test PLINK files: decoding, the names of variants, and refusals."""

import json

import numpy as np
import pytest
from genotypes import populations, write_bed

from flower_pca import DataError, PCAResult, cli, simulate
from flower_pca.base.errors import ConfigError
from flower_pca.blocks import adapters
from flower_pca.blocks import bed as blocks_of_bed
from flower_pca.data import sources
from flower_pca.names import variants
from flower_pca.names.table import Table, with_variants_of_all_sites
from flower_pca.rows import by_columns, measured
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData

PAIRS = [("A", "G"), ("C", "T"), ("A", "T"), ("C", "G")]


def write_genotypes(path, *, gaps=0.1, people=13, seed=0, **options):
    counts, _ = populations(people=people, variants=12, gaps=gaps, seed=seed)
    write_bed(path, counts, alleles=PAIRS * 3, swapped=(1, 2, 7), **options)
    return counts


@pytest.fixture
def in_small_blocks(monkeypatch):
    monkeypatch.setattr(blocks_of_bed, "_ENTRIES", 32)
    monkeypatch.setattr(blocks_of_bed, "_PEOPLE", 8)
    monkeypatch.setattr(blocks_of_bed, "_LOOKED_UP", 5)
    monkeypatch.setattr(blocks_of_bed, "_PIECE", 20)
    monkeypatch.setattr(blocks_of_bed, "rows_of_a_block", lambda d, dtype: 5)


def assert_decoded(rows, expected):
    """By rows, by columns, and in the tallies of columns."""
    np.testing.assert_array_equal(np.asarray(rows), expected)
    found = np.full(expected.shape, -1.0)
    for (own, people_of, entries), (_, _, gone) in zip(
        rows.column_blocks(), rows.column_blocks(gaps=True), strict=True
    ):
        assert not entries[gone == 1].any()
        found[people_of, own] = np.where(gone == 1, np.nan, entries).T
    np.testing.assert_array_equal(found, expected)
    gone = np.isnan(expected)
    matrix = by_columns.gap_matrix(rows, gone.sum(axis=0))
    np.testing.assert_array_equal(matrix.toarray().T, gone)
    # However many blocks the people are in, each missing value takes five bytes, and each column four.
    kept = sum(part.nbytes for part in (matrix.data, matrix.indices, matrix.indptr))
    assert kept == 5 * gone.sum() + 4 * (expected.shape[1] + 1)
    seen, sums, squares = rows.tallies()
    np.testing.assert_array_equal(seen, (~np.isnan(expected)).sum(axis=0))
    np.testing.assert_array_equal(sums, np.nansum(expected, axis=0))
    np.testing.assert_array_equal(squares, np.nansum(expected**2, axis=0))


@pytest.mark.parametrize("people", [1, 4, 13, 30])
def test_all_entries_are_decoded_by_rows_and_by_columns(tmp_path, in_small_blocks, people):
    counts = write_genotypes(tmp_path / "a.bed", people=people)
    table = sources.table(str(tmp_path / "a.bed"))
    assert table.ids == tuple(f"p{i}" for i in range(people))
    rows, columns = table.values, np.array([7, 0, 2])
    for source, expected in (
        (rows, counts),
        (rows.select_columns(columns), counts[:, columns]),
        (rows.rows_between(people // 3, people), counts[people // 3 :]),
        (rows.rows_between(people // 2, people // 2 + 1), counts[people // 2 : people // 2 + 1]),
    ):
        assert_decoded(source, expected)


def test_variants_of_a_run_are_selected_in_the_file(tmp_path):
    """The file holds variants one after another, so other variants need not be decoded."""
    counts = write_genotypes(tmp_path / "a.bed")
    rows = sources.table(str(tmp_path / "a.bed")).values
    picked = adapters.with_columns(rows, np.array([7, 0, 2]))
    assert isinstance(picked, type(rows))
    np.testing.assert_array_equal(np.asarray(picked), counts[:, [7, 0, 2]])


@pytest.mark.parametrize("gaps", [0.0, 0.1])
def test_the_moments_of_selected_variants_need_no_pass_over_the_file(tmp_path, monkeypatch, gaps):
    counts = write_genotypes(tmp_path / "a.bed", gaps=gaps)
    counts[:, :2] = np.nan_to_num(counts[:, :2])
    write_bed(tmp_path / "a.bed", counts)
    client = LocalData(sources.table(str(tmp_path / "a.bed")), missing=True)
    chosen = tuple(client.names[j] for j in (7, 0, 2))
    some = LocalData(sources.table(str(tmp_path / "a.bed")).pick(chosen), missing=True).arrange(chosen)
    with monkeypatch.context() as patch:
        patch.setattr(blocks_of_bed.Bed, "tallies", lambda self: pytest.fail("the file is read again"))
        for names in (chosen, chosen[1:2]):
            view, own = client.arrange(names).moments(), some.moments()
            places = [chosen.index(name) for name in names]
            np.testing.assert_array_equal(view.mean, own.mean[places])
            np.testing.assert_array_equal(view.m2, own.m2[places])
            expected = np.broadcast_to(own.value_counts, 3)[places]
            np.testing.assert_array_equal(np.broadcast_to(view.value_counts, len(names)), expected)
    assert client.arrange(chosen[1:2]).moments().count is None


def test_a_variant_has_one_name_and_counts_one_allele_whichever_the_file_counts(tmp_path):
    counts, _ = populations(people=9, variants=2)
    one = sources.table(str(write_bed(tmp_path / "a.bed", counts)))
    other = sources.table(str(write_bed(tmp_path / "b.bed", counts, swapped=(0,), chromosomes=["chr1", "1"])))
    assert one.names == other.names == ("1:1000:A:G", "1:1001:A:G")
    np.testing.assert_array_equal(np.asarray(one.values), np.asarray(other.values))
    assert variants.canonical_name("chr1:1000:g:a") == "1:1000:A:G"


def test_long_alleles_have_short_names_that_still_differ():
    insertions = ["A" * 300, "A" * 299 + "C"]
    names = {variants.name_of_variant("7", "5", long, "A")[0] for long in insertions}
    assert len(names) == 2
    assert max(map(len, names)) < 100


def test_variants_of_a_list_come_in_its_order(tmp_path):
    counts = write_genotypes(tmp_path / "a.bed")
    panel = tmp_path / "panel.txt"
    panel.write_text("chr1:1003:G:C\n1:1000:A:G\n")
    table = sources.table(f"bed(path={str(tmp_path / 'a.bed')!r}, variants={str(panel)!r})")
    np.testing.assert_array_equal(np.asarray(table.values), counts[:, [3, 0]])
    bim = f"bed(path={str(tmp_path / 'a.bed')!r}, variants={str(tmp_path / 'a.bim')!r})"
    assert sources.table(bim).shape == counts.shape


def test_variants_whose_strand_cannot_be_told_are_left_out_on_request(tmp_path):
    counts = write_genotypes(tmp_path / "a.bed")
    table = sources.table(f"bed(path={str(tmp_path / 'a.bed')!r}, ambiguous=False)")
    np.testing.assert_array_equal(np.asarray(table.values), counts[:, [0, 1, 4, 5, 8, 9]])


@pytest.mark.parametrize("gaps", [0.0, 0.1])
@pytest.mark.parametrize("taken", [[0], [29], [3, 4, 5, 6], [1, 8, 9, 22, 29], [*range(0, 30, 3)]], ids=str)
def test_people_of_a_list_are_the_rows(tmp_path, in_small_blocks, taken, gaps):
    counts = write_genotypes(tmp_path / "a.bed", people=30, gaps=gaps)
    listed = tmp_path / "people.txt"
    listed.write_text("#FID IID\n" + "".join(f"0\tp{i}\n" for i in reversed(taken)) + f"\np{taken[0]}\n")
    table = sources.table(f"bed(path={str(tmp_path / 'a.bed')!r}, people={str(listed)!r}, precision='double')")
    expected = counts[taken]
    assert table.ids == tuple(f"p{i}" for i in taken)
    assert table.beside["IID"].tolist() == list(table.ids)
    rows = table.values
    assert_decoded(rows, expected)
    np.testing.assert_array_equal(
        np.asarray(rows.rows_between(len(taken) // 2, len(taken))), expected[len(taken) // 2 :]
    )
    found = np.full(expected.shape, -1.0)
    for own, people_of, entries, gone in rows.count_blocks():
        assert np.isfinite(entries).all()
        entries[gone] = np.nan
        found[people_of, own] = entries.T
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (
            "0 p1\np2\n0 nobody\n\nothers p3\n",
            r"2 of the 4 lines of .*people.txt name nobody in a.fam. The first is line 3\. ",
        ),
        ("FID IID\n\n", r"people.txt lists no people\. Write family and person in each line, as in a.fam"),
    ],
)
def test_lists_of_people_that_fit_no_file_are_refused(tmp_path, listed, said):
    write_genotypes(tmp_path / "a.bed")
    (tmp_path / "people.txt").write_text(listed)
    with pytest.raises(DataError, match=said):
        sources.make(f"bed(path={str(tmp_path / 'a.bed')!r}, people={str(tmp_path / 'people.txt')!r})")


@pytest.mark.usefixtures("unillustrated")
def test_scores_of_some_people_are_written_from_the_command_line(tmp_path, capsys):
    plink_sites(tmp_path / "sites", gaps=0.0)
    assert cli.main(["run", str(tmp_path / "sites"), "--out", str(tmp_path / "out")]) == 0
    site = str(tmp_path / "sites" / "site1.bed")
    (tmp_path / "people.txt").write_text("".join(f"0 p{100 + i}\n" for i in range(0, 33, 2)))
    spec = f"bed(path={site!r}, people={str(tmp_path / 'people.txt')!r})"
    saved = str(tmp_path / "out" / "result.npz")
    for source, name in ((site, "all.csv"), (spec, "some.csv")):
        assert cli.main(["transform", saved, source, "-o", str(tmp_path / name)]) == 0
    capsys.readouterr()
    every, some = (np.loadtxt(tmp_path / name, dtype=str, delimiter=",") for name in ("all.csv", "some.csv"))
    np.testing.assert_array_equal(some[:, 0], np.append("id", every[1::2, 0]))
    np.testing.assert_allclose(some[1:, 2:].astype(float), every[1::2, 2:].astype(float), rtol=0, atol=1e-5)


def plink_sites(folder, *, gaps):
    """Three sites, of which one counts other alleles; and all rows together, as LAPACK takes them."""
    folder.mkdir(exist_ok=True)
    counts, _ = populations(people=90, variants=40, gaps=gaps, seed=3)
    parts = np.split(counts, [20, 53])
    for i, part in enumerate(parts):
        write_bed(folder / f"site{i}.bed", part, swapped=range(0, 40, 3) if i == 1 else (), first=100 * i)
    names = np.argsort([f"1:{1000 + j}:A:G" for j in range(40)])
    return counts[:, names]


def lapacks(counts, k=3):
    """LAPACK's components of the pooled table, standardized, with the mean of all sites in its gaps."""
    mean = np.nanmean(counts, axis=0)
    deviation = np.nanstd(counts, axis=0)
    rows = (np.where(np.isnan(counts), mean, counts) - mean) / deviation
    _, s, Vt = np.linalg.svd(rows, full_matrices=False)
    return Vt[:k], s[:k] ** 2 / len(rows)


@pytest.mark.parametrize("gaps", [0.0, 0.05])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_sites_with_swapped_alleles_give_the_components_of_the_pooled_table(tmp_path, gaps, precision):
    counts = plink_sites(tmp_path / "sites", gaps=gaps)
    spec = "bed(path={!r}, precision={!r})"
    tables = [sources.make(spec.format(str(tmp_path / "sites" / f"site{i}.bed"), precision)) for i in range(3)]
    result = simulate("krylov", tables, n_components=3, scale="std", missing="mean", tol=1e-12, seed=1)
    components, variances = lapacks(counts)
    near = 1e-10 if precision == "double" else 2e-6
    np.testing.assert_allclose(abs(np.sum(result.components_ * components, axis=1)), 1.0, atol=near)
    np.testing.assert_allclose(result.explained_variance_ * (len(counts) - 1) / len(counts), variances, rtol=near)


@pytest.mark.usefixtures("unillustrated")
def test_a_folder_of_sites_runs_from_the_command_line(tmp_path, capsys):
    counts = plink_sites(tmp_path / "sites", gaps=0.02)
    out = tmp_path / "out"
    words = ["run", str(tmp_path / "sites"), "--scale", "std", "--missing", "mean", "--out", str(out)]
    assert cli.main(words) == 0
    capsys.readouterr()
    result = PCAResult.load(out / "result.npz")
    assert result.n_samples_ == 90
    assert len(result.feature_names_in_) == 40
    components, _ = lapacks(counts, 2)
    np.testing.assert_allclose(abs(np.sum(result.components_ * components, axis=1)), 1.0, atol=1e-5)


def test_a_folder_passes_lists_of_people_and_variants_on_to_its_bed_files(tmp_path):
    folder, listed, panel = tmp_path / "sites", tmp_path / "some.txt", tmp_path / "panel.txt"
    plink_sites(folder, gaps=0.0)
    listed.write_text("".join(f"0 p{100 + i}\n" for i in range(0, 33, 3)))
    panel.write_text("".join(f"1:{1000 + j}:A:G\n" for j in range(0, 40, 2)))
    lists = {"site1": str(listed)}
    table = sources.table(f"folder(path={str(folder)!r}, people={lists}, variants={str(panel)!r}, ambiguous=False)")
    assert [len(part) for part in table.parts] == [20, 11, 37]
    alone = sources.table(f"bed(path={str(folder / 'site1.bed')!r}, people={str(listed)!r}, variants={str(panel)!r})")
    np.testing.assert_array_equal(np.asarray(table.parts[1].values), np.asarray(alone.pick(table.names).values))
    with pytest.raises(ConfigError, match=r"has no file 'site9', for which people has a value\. Did you mean 'site"):
        sources.table(f"folder(path={str(folder)!r}, people={{'site9': {str(listed)!r}}})")
    with pytest.raises(ConfigError, match=r"people is '.*some.txt', but each file of a folder has its own people"):
        sources.table(f"folder(path={str(folder)!r}, people={str(listed)!r})")
    np.savetxt(folder / "site4.csv", np.ones((4, 40)), delimiter=",")
    with pytest.raises(ConfigError, match=r"site4.csv cannot be read with variants=.*Leave variants out, or use .bed"):
        sources.table(f"folder(path={str(folder)!r}, variants={str(panel)!r})")


def test_new_people_are_projected_from_a_file(tmp_path):
    counts = plink_sites(tmp_path / "sites", gaps=0.0)
    tables = [sources.make(str(tmp_path / "sites" / f"site{i}.bed")) for i in range(3)]
    result = simulate("covariance", tables, n_components=2)
    expected = (counts[20:53] - counts.mean(axis=0)) @ result.components_.T
    np.testing.assert_allclose(result.transform(tables[1]), expected, atol=1e-4)


def test_products_are_those_of_the_decoded_rows(tmp_path, in_small_blocks):
    counts = write_genotypes(tmp_path / "a.bed", people=30)
    table = sources.make(f"bed(path={str(tmp_path / 'a.bed')!r}, precision='double')")
    Z = np.random.default_rng(2).standard_normal((12, 3))
    order = np.argsort(table.names)
    moments, product = LocalData(table, missing=True).local_product(Z[order])
    mean = np.nanmean(counts, axis=0)
    about = np.where(np.isnan(counts), 0.0, counts - mean)
    np.testing.assert_allclose(moments.mean, mean[order], rtol=1e-13)
    np.testing.assert_allclose(moments.m2, np.sum(about**2, axis=0)[order], rtol=1e-12)
    np.testing.assert_allclose(product, (about.T @ (about @ Z))[order], rtol=1e-12, atol=1e-12)


def product_in_frame(counts, Z, frame):
    """The product of the rows of counts in a frame, from numpy."""
    rows = np.where(np.isnan(counts), 0.0 if frame.fill is None else frame.fill, counts)
    rows = (rows - frame.column_centers) / frame.column_divisors
    return rows.T @ (rows @ Z)


@pytest.mark.parametrize("kept", [True, False], ids=["gaps kept", "gaps decoded"])
@pytest.mark.parametrize("gaps", [0.0, 0.1])
@pytest.mark.parametrize("given", ["mean", "fill", "no mean", "all"])
def test_a_frame_is_applied_to_products_of_genotypes(tmp_path, in_small_blocks, monkeypatch, kept, gaps, given):
    if not kept:
        monkeypatch.setattr(measured, "_GAPS", 0)
    monkeypatch.setattr(by_columns, "_STRIPE", 5)
    counts = write_genotypes(tmp_path / "a.bed", people=30, gaps=gaps)
    table = sources.make(f"bed(path={str(tmp_path / 'a.bed')!r}, precision='double')")
    counts = counts[:, np.argsort(table.names)]
    rng = np.random.default_rng(3)
    Z, mean, other = rng.standard_normal((12, 3)), np.nanmean(counts, axis=0), rng.uniform(-1.0, 3.0, 12)
    frame = {
        "mean": Frame(mean, fill=mean),
        "fill": Frame(mean, fill=other),
        "no mean": Frame(scale=rng.uniform(0.5, 2.0, 12), fill=mean),
        "all": Frame(other, rng.uniform(0.5, 2.0, 12), rng.uniform(0.0, 2.0, 12)),
    }[given]
    found = LocalData(table, missing=True).in_frame(frame, once=True).matmat(Z)
    np.testing.assert_allclose(found, product_in_frame(counts, Z, frame), rtol=1e-11, atol=1e-11)


def test_products_of_rare_and_common_alleles_are_precise_in_single_precision(tmp_path):
    rng = np.random.default_rng(5)
    counts = rng.binomial(2, np.repeat([0.01, 0.3, 0.7, 0.99], 200), (400, 800)).astype(float)
    counts[rng.random(counts.shape) < 0.01] = np.nan
    table = sources.make(str(write_bed(tmp_path / "a.bed", counts)))
    counts = counts[:, np.argsort(table.names)]
    mean, scale = np.nanmean(counts, axis=0), np.maximum(np.nanstd(counts, axis=0), 0.05)
    frame, Z = Frame(mean, scale, mean), rng.standard_normal((800, 4))
    found, expected = LocalData(table, missing=True).in_frame(frame).matmat(Z), product_in_frame(counts, Z, frame)
    assert np.linalg.norm(found - expected) < 3e-7 * np.linalg.norm(expected)


def damage(path, *, head=None, cut=0, bim=None, fam=None):
    raw = bytearray(path.read_bytes())
    if head is not None:
        raw[: len(head)] = head
    path.write_bytes(bytes(raw[: len(raw) - cut]))
    for suffix, change in ((".bim", bim), (".fam", fam)):
        beside = path.with_suffix(suffix)
        if change == "gone":
            beside.unlink()
        elif change is not None:
            lines = beside.read_text().splitlines(keepends=True)
            beside.write_text("".join(change(lines)))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"cut": 5}, r"has 46 bytes, but 12 variants of 13 people in a.fam take 51 bytes. Copy the file again if"),
        (
            {"head": b"\x6c\x1b\x00"},
            r"person by person \(individual-major order\), which flower_pca cannot read. Write the files again",
        ),
        ({"head": b"chr1"}, r"is not a .bed file of PLINK, because it does not begin with the bytes 6c 1b 01"),
        ({"bim": lambda lines: lines[:-2]}, r"holds 12 variants for the 13 people in a.fam, but a.bim lists 10"),
        ({"fam": lambda lines: lines[:-2]}, r"holds 16 variants for the 11 people in a.fam, but a.bim lists 12"),
        ({"bim": "gone"}, r"a.bim, which lists the variants of a.bed, is missing. Copy it into the"),
        ({"fam": "gone"}, r"a.fam, which lists the people of a.bed, is missing. Copy it into the"),
        ({"bim": lambda lines: [*lines[:-1], lines[4]]}, r"Lines 5 and 12 of .*a.bim are the same variant, 1:1004:A:G"),
        ({"fam": lambda lines: [*lines[:-1], lines[0]]}, r"Lines 1 and 13 of .*a.fam name the same person"),
        ({"bim": lambda lines: ["1 rs0 0 1000\n", *lines[1:]]}, r"Line 1 of .*a.bim has 4 fields instead of 6"),
        ({"bim": lambda lines: []}, r"a.bim lists no variants"),
        (
            {"bim": lambda lines: ["CHR SNP CM BP A1 A2\n", *lines[1:]]},
            r"Line 1 of .*a.bim has the position 'BP', but a position must be a whole number. Write the files again",
        ),
        # The ids of the two variants are equal, or different, or the variants have no position.
        ({"bim": lambda lines: [*lines[:-1], lines[4]]}, r"Keep one of them, for example with plink2 --rm-dup"),
        (
            {"bim": lambda lines: [*lines[:-1], lines[4].replace("rs4", "rs-other")]},
            r"with plink --list-duplicate-vars ids-only suppress-first, and then plink --exclude plink.dupvar",
        ),
        (
            {"bim": lambda lines: ["0 rs0 0 0 A G\n", "0 rs1 0 0 A G\n", *lines[2:]]},
            r"Lines 1 and 2 of .*a.bim are the same variant, 0:0:A:G. Leave out .* with plink2 --not-chr 0",
        ),
    ],
)
def test_bad_files_are_refused_in_a_sentence(tmp_path, how, said):
    write_genotypes(tmp_path / "a.bed")
    damage(tmp_path / "a.bed", **how)
    with pytest.raises(DataError, match=said):
        sources.make(str(tmp_path / "a.bed"))


def test_other_files_of_genotypes_say_how_to_convert_them(tmp_path):
    (tmp_path / "a.pgen").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"Write it as .bed first: plink2 --make-bed"):
        sources.make(str(tmp_path / "a.pgen"))


def test_a_list_names_variants_that_the_file_has(tmp_path):
    write_genotypes(tmp_path / "a.bed")
    panel = tmp_path / "panel.txt"
    panel.write_text("1:1000:A:G\n5:1:A:G\n")
    with pytest.raises(DataError, match=r"lacks 1 of the 2 variants that .* lists, for example 5:1:A:G\. "):
        sources.make(f"bed(path={str(tmp_path / 'a.bed')!r}, variants={str(panel)!r})")


def test_a_check_of_genotypes_has_no_false_hints(tmp_path, capsys):
    plink_sites(tmp_path / "sites", gaps=0.02)
    assert cli.main(["check", str(tmp_path / "sites"), "--missing", "mean", "--json"]) == 0
    json.loads(capsys.readouterr().out)


def three_biobanks_with_a_fixed_variant(tmp_path, *, present="A", absent="0"):
    """Write three sites. In two of them, everybody has two copies of one allele of variant 2."""
    counts, _ = populations(people=30, variants=12)
    sites = [counts[:10].copy(), counts[10:20].copy(), counts[20:].copy()]
    for X in sites[:2]:
        X[:, 2] = 2.0 if present == "A" else 0.0
    expected = [X.copy() for X in sites]
    folder = tmp_path / "sites"
    folder.mkdir()
    for i, X in enumerate(sites):
        alleles = [("A", "G")] * 12
        if i == 0:  # plink 1.9 writes the absent allele first.
            alleles[2] = (absent, present)
            X[:, 2] = 0.0
        if i == 1:
            alleles[2] = (present, absent)
            X[:, 2] = 2.0
        write_bed(folder / f"s{i}.bed", X, alleles=alleles, first=100 * i)
    return folder, np.concatenate(expected)


@pytest.mark.parametrize("present", ["A", "G"])
@pytest.mark.parametrize("absent", ["0", "."])
def test_a_variant_of_which_a_site_knows_one_allele_matches_the_other_sites(tmp_path, present, absent):
    folder, expected = three_biobanks_with_a_fixed_variant(tmp_path, present=present, absent=absent)
    whole = sources.table(str(folder))
    assert whole.names[2] == "1:1002:A:G"
    np.testing.assert_array_equal(np.asarray(whole.values), expected)
    shards = [sources.table(str(folder / f"s{i}.bed")) for i in range(3)]
    found = simulate("covariance", shards, n_components=2)
    np.testing.assert_allclose(found.mean_, expected.mean(axis=0), atol=1e-12)
    assert list(found.feature_names_in_) == sorted(whole.names)


@pytest.mark.parametrize("present", ["A", "G"])
@pytest.mark.parametrize("by", ["s0.bim", "s2.bim"])
def test_a_list_names_variants_of_which_a_site_knows_one_allele(tmp_path, present, by):
    folder, expected = three_biobanks_with_a_fixed_variant(tmp_path, present=present)
    panel = folder / by
    tables = [sources.table(f"bed(path={str(folder / f's{i}.bed')!r}, variants={str(panel)!r})") for i in range(3)]
    assert len({table.names for table in tables}) == 1
    rows = np.concatenate([np.asarray(table.values) for table in tables])
    if by == "s0.bim" and present == "A":  # The first allele of the name 1:1002:0:A is G.
        expected[:, 2] = 2.0 - expected[:, 2]
    np.testing.assert_array_equal(rows, expected)


def test_two_sites_that_know_one_allele_each_have_one_variant(tmp_path):
    counts = np.zeros((4, 2))
    counts[:, 1] = [0, 1, 2, 1]
    for name, allele in (("a", "A"), ("b", "G")):
        write_bed(tmp_path / f"{name}.bed", counts, alleles=[("0", allele), ("C", "T")])
    whole = sources.table(str(tmp_path))
    assert whole.names == ("1:1000:A:G", "1:1001:C:T")
    assert np.asarray(whole.values)[:, 0].tolist() == [2.0] * 4 + [0.0] * 4


@pytest.mark.parametrize("alleles", [("A", "T"), ("G", "C")])
def test_alleles_of_two_sites_that_may_be_one_allele_on_two_strands_are_not_combined(tmp_path, alleles):
    counts = np.zeros((4, 2))
    counts[:, 1] = [0, 1, 2, 1]
    for name, allele in zip("ab", alleles, strict=True):
        write_bed(tmp_path / f"{name}.bed", counts, alleles=[("0", allele), ("C", "T")])
    with pytest.raises(DataError, match=r"Give all sites the same list of variants: bed\(path="):
        sources.table(str(tmp_path))
    with pytest.raises(DataError, match=r"lacks 1 of the 2 variants"):
        sources.table(f"bed(path={str(tmp_path / 'a.bed')!r}, variants={str(tmp_path / 'b.bim')!r})")


@pytest.mark.parametrize(
    "column", [np.array([0, -9, 0, 0]), np.array([0, 0, 255, 0], dtype=np.uint8), np.array([7.5, 3.0, 7.5, 0.0])]
)
def test_entries_that_count_no_absent_allele_are_left_alone(column):
    """Such entries are codes for missing values, or numbers that are no counts."""
    named = ("1:1000:0:A", "1:1001:C:T")
    tables = [
        Table(np.column_stack([column, [1, 0, 2, 1]]), named, site="a"),
        Table(np.array([[0.0, 1.0], [2.0, 1.0], [1.0, 0.0]]), ("1:1000:A:G", named[1]), site="b"),
    ]
    first, _ = with_variants_of_all_sites(tables)
    assert first.names == named
    assert np.array_equal(first.values[:, 0], column)
    with pytest.raises(DataError, match=r"writes 0 for an allele that nobody at the site has"):
        simulate("covariance", tables, n_components=1)


@pytest.mark.parametrize("column", [np.zeros(4, dtype=np.uint8), np.array([0.0, np.nan, 0.0, 0.0])])
def test_tables_in_memory_get_the_names_of_variants_of_other_sites(column):
    tables = [
        Table(np.column_stack([column, [1, 0, 2, 1]]), ("1:1000:0:A", "1:1001:C:T")),
        Table(np.array([[0.0, 1.0], [2.0, 1.0]]), ("1:1000:A:G", "1:1001:C:T")),
    ]
    first, second = with_variants_of_all_sites(tables)
    assert first.names == second.names
    np.testing.assert_array_equal(first.values[:, 0], 2 - column)


@pytest.mark.parametrize("by", ["site", "list"])
def test_a_variant_without_alleles_gets_no_name_of_other_sites(tmp_path, by):
    """It is unknown which allele its entries count."""
    counts, _ = populations(people=8, variants=2)
    write_bed(tmp_path / "a.bed", counts, alleles=[("0", "0"), ("C", "T")])
    write_bed(tmp_path / "b.bed", counts, alleles=[("A", "G"), ("C", "T")])
    if by == "site":
        with pytest.raises(DataError, match=r"writes 0 for an allele that nobody at the site has"):
            sources.table(str(tmp_path))
    else:
        with pytest.raises(DataError, match=r"lacks 1 of the 2 variants"):
            sources.table(f"bed(path={str(tmp_path / 'a.bed')!r}, variants={str(tmp_path / 'b.bim')!r})")


def test_a_list_with_one_allele_does_not_hide_that_a_strand_is_unknown(tmp_path):
    counts, _ = populations(people=8, variants=2)
    write_bed(tmp_path / "a.bed", counts, alleles=[("0", "A"), ("C", "T")])
    write_bed(tmp_path / "b.bed", counts, alleles=[("A", "T"), ("C", "T")])
    table = f"bed(path={str(tmp_path / 'b.bed')!r}, variants={str(tmp_path / 'a.bim')!r}, ambiguous={{}})"
    assert sources.table(table.format(True)).names[0] == "1:1000:0:A"
    with pytest.raises(DataError, match=r"lacks 1 of the 2 variants that \S+a\.bim lists, for example 1:1000:0:A\."):
        sources.table(table.format(False))


def test_a_variant_that_fits_two_names_is_not_guessed(tmp_path):
    counts, _ = populations(people=8, variants=3)
    still = counts.copy()
    still[:, 0] = 0.0
    lines = {"a": [("A", "G"), ("C", "T"), ("A", "T")], "b": [("0", "A"), ("C", "T"), ("A", "T")]}
    write_bed(tmp_path / "a.bed", counts, alleles=lines["a"])
    write_bed(tmp_path / "b.bed", still, alleles=lines["b"])
    text = (tmp_path / "a.bim").read_text().replace("1\trs2\t0\t1002", "1\trs2\t0\t1000")
    (tmp_path / "a.bim").write_text(text)
    with pytest.raises(
        DataError, match=r"writes 0 for an allele that nobody at the site has\. Give all sites the same"
    ):
        sources.table(str(tmp_path))
