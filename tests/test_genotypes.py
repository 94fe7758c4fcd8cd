"""Test runs on genotypes: scaling, filters of variants, and hints."""

import re

import numpy as np
import pytest
from builders import gone_on
from fake_grid import grid_of
from genotypes import populations, write_bed

from flower_pca import ConfigError, DataError, PCAResult, cli, make, simulate, strategies
from flower_pca.base.errors import FlowerPCAError
from flower_pca.data import sources
from flower_pca.names.table import Table

NAMES = [f"{1 + j % 5}:{1000 + j}:A:G" for j in range(60)]


def people_at_sites(gaps=0.0, people=100, seed=4):
    counts, _ = populations(people=people, gaps=gaps, seed=seed)
    return counts, [Table(part, tuple(NAMES)) for part in np.split(counts, [30, 55])]


def patterson(counts):
    """The rows as Patterson, Price and Reich scale them, with the mean of all in a gap."""
    mean = np.nanmean(counts, axis=0)
    p = mean / 2
    divisor = np.sqrt(2 * p * (1 - p))
    divisor[(p == 0) | (p == 1)] = 1.0
    return (np.where(np.isnan(counts), mean, counts) - mean) / divisor, divisor


def in_order_of_names(result, names=NAMES):
    """The components, by the columns as they were drawn."""
    place = {name: j for j, name in enumerate(result.feature_names_in_)}
    return result.components_[:, [place[name] for name in names]]


def agree(result, counts, *, near, k=3, names=NAMES):
    rows, _ = patterson(counts)
    _, s, Vt = np.linalg.svd(rows, full_matrices=False)
    found = in_order_of_names(result, names)
    np.testing.assert_allclose(abs(np.sum(found * Vt[:k], axis=1)), 1.0, atol=near)
    np.testing.assert_allclose(result.explained_variance_, s[:k] ** 2 / (len(rows) - 1), rtol=near)


@pytest.mark.parametrize("algorithm", ["krylov", "covariance", "ssi"])
@pytest.mark.parametrize("options", [{}, {"mask": True}], ids=["plain", "masked"])
def test_the_scale_of_genotypes_gives_the_components_of_all_people_together(algorithm, options):
    counts, sites = people_at_sites(gaps=0.05)
    if algorithm != "covariance":
        options = {"tol": 1e-11, **options}
    result = simulate(algorithm, sites, n_components=3, scale="genotype", missing="mean", **options)
    agree(result, counts, near=1e-6 if "mask" in options else 1e-10)
    assert result.scale_ is not None


def test_the_scale_takes_no_message_more_than_that_of_deviations():
    _, sites = people_at_sites()
    rounds = {scale: simulate("covariance", sites, scale=scale).rounds for scale in ("std", "genotype")}
    assert rounds["std"] == rounds["genotype"]


def test_variants_that_are_the_same_in_everybody_take_no_part_and_are_named():
    counts, _ = people_at_sites()
    counts[:, [3, 8]] = [0.0, 2.0]
    sites = [Table(part, tuple(NAMES)) for part in np.split(counts, [30, 55])]
    for options in ({}, {"mask": True}):
        result = simulate("covariance", sites, n_components=3, scale="genotype", **options)
        agree(result, counts, near=1e-6)
        np.testing.assert_allclose(in_order_of_names(result)[:, [3, 8]], 0.0, atol=1e-7)
        assert any(f"2 columns without variation, {NAMES[3]}, {NAMES[8]}, took" in hint for hint in result.hints)


@pytest.mark.parametrize("value", [-1.0, 3.0])
def test_columns_that_count_no_alleles_are_refused(value):
    counts, _ = people_at_sites()
    counts[:, 7] = value
    with pytest.raises(DataError, match=r"counts an allele, and the mean of column 7 is not between 0 and 2"):
        simulate("covariance", np.split(counts, 2), scale="genotype")


def test_parties_with_different_variants_of_the_same_people_scale_their_own():
    counts, _ = people_at_sites()
    options = {"n_components": 2, "partitioned_by": "columns", "tol": 1e-10}
    result = simulate("krylov", [counts[:, :25], counts[:, 25:]], scale="genotype", **options)
    rows, _ = patterson(counts)
    values = np.linalg.eigvalsh(rows @ rows.T)[::-1][:2] / (len(rows) - 1)
    np.testing.assert_allclose(result.explained_variance_, values, rtol=1e-8)
    with pytest.raises(
        DataError, match=r"scale=\"genotype\" counts .* columns 0, .* of client 1 is not between 0 and 2. Drop them"
    ):
        simulate("krylov", [counts[:, :25], counts[:, 25:] + 2.0], scale="genotype", **options)


def test_variants_of_one_chromosome_that_make_a_component_are_named_with_the_first_suspect():
    counts, _ = people_at_sites()
    rng = np.random.default_rng(0)
    linked = rng.integers(0, 3, size=(100, 1)) + np.zeros((1, 9))
    counts[:, [j for j in range(60) if NAMES[j].startswith("2:")][:9]] = linked
    sites = [Table(part, tuple(NAMES)) for part in np.split(counts, [30, 55])]
    said = [hint for hint in simulate("covariance", sites, scale="genotype").hints if "linkage" in hint]
    assert len(said) == 1
    assert "lie on chromosome 2, which has 20% of the variants. The likely cause is linkage disequilibrium" in said[0]
    clean = simulate("covariance", people_at_sites()[1], scale="genotype").hints
    assert not any("linkage" in hint for hint in clean)


def test_variants_whose_strand_cannot_be_told_are_counted():
    counts, _ = people_at_sites()
    names = [name.replace("A:G", "A:T") if j in (2, 5) else name for j, name in enumerate(NAMES)]
    sites = [Table(part, tuple(names)) for part in np.split(counts, [30, 55])]
    hints = simulate("covariance", sites, scale="genotype").hints
    assert any("2 of 60 variants are A/T or C/G, so their strand cannot be determined" in hint for hint in hints)


@pytest.mark.usefixtures("unillustrated")
def test_genotypes_run_from_the_command_line(tmp_path, capsys):
    counts, _ = people_at_sites(gaps=0.02)
    for i, part in enumerate(np.split(counts, [30, 55])):
        write_bed(tmp_path / f"site{i}.bed", part, swapped=range(i, 60, 7), first=100 * i)
    words = ["run", str(tmp_path), "--scale", "genotype", "--missing", "mean", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "100 rows x 60 columns at 3 clients" in said
    table = sources.table(str(tmp_path))
    assert table.shape == (100, 60)


def rare_and_lacking(seed=4):
    """Counts in which some variants are rare, some lack values and some are of either strand; and those without."""
    counts, _ = populations(people=100, gaps=0.01, seed=seed)
    rng = np.random.default_rng(seed)
    for j in (0, 7, 20):
        counts[:, j] = rng.random(100) < 0.02
    for j in (20, 31):
        counts[rng.random(100) < 0.4, j] = np.nan
    names = [name.replace("A:G", "C:G") if j in (40, 41) else name for j, name in enumerate(NAMES)]
    p = np.nanmean(counts, axis=0) / 2
    keep = (np.minimum(p, 1 - p) >= 0.05) & (np.isfinite(counts).mean(axis=0) >= 0.9)
    keep[[40, 41]] = False
    return counts, names, keep


LIMITS = "variants(maf=0.05, call=0.9, ambiguous=False)"


@pytest.mark.parametrize("options", [{}, {"mask": True}], ids=["plain", "masked"])
@pytest.mark.parametrize("kept", [False, True], ids=["", "checkpoint"])
def test_variants_are_chosen_by_the_sums_of_all_people(tmp_path, options, kept):
    counts, names, keep = rare_and_lacking()
    sites = [Table(part, tuple(names)) for part in np.split(counts, [30, 55])]
    asked = {"scale": "genotype", "missing": "mean", "n_components": 3, **options}
    if kept:
        asked["checkpoint"] = tmp_path / "run.npz"
    result = simulate("covariance", sites, variants=LIMITS, **asked)
    left = [name for name, good in zip(names, keep, strict=True) if good]
    assert set(result.feature_names_in_) == set(left)
    agree(result, counts[:, keep], near=1e-6, names=left)
    few = [f"{n} " for n in (3, 2, 2)]
    said = next(words for words in result.decisions if "left out" in words)
    assert said.startswith(f"{(~keep).sum()} of 60 variants were left out: ")
    for count, words in zip(
        few, ("with a minor allele frequency below 0.05", "with values for fewer", "A/T or C/G"), strict=True
    ):
        assert f"{count}{words}" in said
    if not options:
        alone = simulate("covariance", [site.pick(left) for site in sites], **{**asked, "checkpoint": None})
        assert result.history.count == alone.history.count + 1
        np.testing.assert_array_equal(result.components_, alone.components_)


def test_what_sites_keep_of_their_own_is_about_the_variants_that_were_chosen():
    counts, names, _ = rare_and_lacking()
    counts = np.nan_to_num(counts)
    sites = [Table(part, tuple(names)) for part in np.split(counts, [30, 55])]
    asked = {"n_components": 2, "scale": "std", "seed": 1}
    algorithm = make("dcf_pca", tol=2e-3, max_rounds=20)
    chosen = simulate(algorithm, sites, variants="variants(maf=0.05, call=0, ambiguous=False)", **asked)
    alone = simulate(algorithm, [site.pick(chosen.feature_names_in_.tolist()) for site in sites], **asked)
    assert chosen.n_features_in_ < len(names)
    assert set(alone.local) == {0, 1, 2}
    for i, own in alone.local.items():
        for name, known in own.items():
            np.testing.assert_array_equal(chosen.local[i][name], known)


def test_a_run_goes_on_after_its_variants_were_chosen(tmp_path):
    counts, names, _ = rare_and_lacking()
    sites = [Table(part, tuple(names)) for part in np.split(counts, [30, 55])]
    asked = {"scale": "genotype", "missing": "mean", "variants": LIMITS, "tol": 1e-10}
    again = gone_on(simulate, "ssi", sites, path=tmp_path / "run.npz", stop=[3], **asked)
    whole = simulate("ssi", sites, **asked)
    np.testing.assert_array_equal(again.components_, whole.components_)
    assert again.history.count == whole.history.count
    assert again.decisions == whole.decisions


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("rules", [{}, {"answers": "fixed"}], ids=str)
def test_variants_are_chosen_over_flower(rules):
    counts, names, keep = rare_and_lacking()
    sites = [Table(part, tuple(names)) for part in np.split(counts, [30, 55])]
    asked = {"scale": "genotype", "missing": "mean", "n_components": 2, "variants": LIMITS, "tol": 1e-10}
    result = strategies.Krylov(**asked).fit(grid_of(sites, **rules))
    left = [name for name, good in zip(names, keep, strict=True) if good]
    agree(result, counts[:, keep], near=1e-8, k=2, names=left)


@pytest.mark.usefixtures("lines")
def test_nodes_that_name_no_columns_say_so():
    counts, names, _ = rare_and_lacking()
    sites = [Table(part, tuple(names)) for part in np.split(counts, [30, 55])]
    with pytest.raises(ConfigError, match="selects columns by name, but the sites send no names"):
        strategies.Krylov(missing="mean", variants=LIMITS).fit(grid_of(sites, share_names=False))


@pytest.mark.usefixtures("unillustrated")
def test_variants_are_chosen_from_the_command_line(tmp_path, capsys):
    counts, names, keep = rare_and_lacking()
    pairs = [tuple(name.split(":")[2:]) for name in names]
    chromosomes = [name.split(":")[0] for name in names]
    for i, part in enumerate(np.split(counts, [30, 55])):
        write_bed(tmp_path / f"s{i}.bed", part, alleles=pairs, chromosomes=chromosomes)
    words = ["run", str(tmp_path), "--scale", "genotype", "--missing", "mean", "--variants", LIMITS]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert f"100 rows x {keep.sum()} columns" in said
    assert any("variants were left out" in words for words in PCAResult.load(tmp_path / "out" / "result.npz").decisions)
    assert "variants were left out" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"variants": "variants(maf=0.9)"}, "maf of variants must be"),
        ({"variants": LIMITS, "missing": "local_mean"}, "no site sends how many values a variant has"),
        ({"variants": "variants(hwe=0)"}, "hwe of variants must be"),
        ({"variants": "variants()", "partitioned_by": "columns"}, "variants cannot be combined with partitioned_by"),
        (
            {"variants": "variants()", "dp": "dp(epsilon=1.0, delta=1e-6, clip=9.0)"},
            "variants cannot be combined with dp",
        ),
        ({"variants": "variants()", "adjust": "age"}, "variants cannot be combined with adjust"),
        ({"variants": "variants(maf=0.5)"}, "leaves none of 60 variants: 60 with a minor allele frequency below 0.5"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options, said):
    _, sites = people_at_sites()
    with pytest.raises(FlowerPCAError, match=re.escape(said)):
        simulate("krylov", sites, **options)


def test_limits_need_counts_and_names():
    counts, sites = people_at_sites()
    with pytest.raises(ConfigError, match="selects columns by name"):
        simulate("krylov", np.split(counts, 2), variants="variants()")
    with pytest.raises(DataError, match="needs counts of alleles from 0 to 2, but"):
        simulate("krylov", [Table(site.values + 5.0, site.names) for site in sites], variants="variants()")


def plink_scores(counts, frequencies, weights):
    """What plink2 --score ... variance-standardize adds up: counts about 2 p over sqrt(2 p (1 - p)), 0 in gaps."""
    p = frequencies
    standard = (np.where(np.isnan(counts), 2 * p, counts) - 2 * p) / np.sqrt(2 * p * (1 - p))
    return standard @ weights


def test_scores_and_loadings_are_written_as_plink_reads_them(tmp_path):
    counts, _ = people_at_sites(gaps=0.02)
    chromosomes = [name.split(":")[0] for name in NAMES]
    for i, part in enumerate(np.split(counts, [30, 55])):
        write_bed(tmp_path / f"s{i}.bed", part, swapped=range(i, 60, 7), chromosomes=chromosomes, first=100 * i)
    specs = [f"bed(path={str(tmp_path / f's{i}.bed')!r}, precision='double')" for i in range(3)]
    tables = [sources.make(spec) for spec in specs]
    result = simulate("covariance", tables, n_components=2, scale="genotype", missing="mean")
    written = result.to_plink(tmp_path / "out", sources.table(specs[1]))
    assert [path.name for path in written] == ["pca.eigenval", "pca.eigenvec.allele", "pca.afreq", "pca.eigenvec"]
    weights, afreq, scores = (np.loadtxt(path, dtype=str, comments=None) for path in written[1:])
    assert weights[0].tolist() == ["#CHROM", "ID", "A1", "PC1", "PC2"]
    assert scores[0].tolist() == ["FID", "IID", "PC1", "PC2"]
    assert scores[1, :2].tolist() == ["0", "p100"]
    columns = [NAMES.index(name) for name in weights[1:, 1]]
    expected = plink_scores(counts[30:55][:, columns], afreq[1:, 4].astype(float), weights[1:, 3:].astype(float))
    np.testing.assert_allclose(scores[1:, 2:].astype(float), expected, atol=1e-10)
    np.testing.assert_allclose(np.loadtxt(written[0]), result.explained_variance_)
    saved = result.save(tmp_path / "result.npz")
    words = ["transform", str(saved), specs[1], "-o", str(tmp_path / "new.eigenvec")]
    assert cli.main(words) == 0
    assert (tmp_path / "new.eigenvec").read_text() == written[3].read_text()


def test_files_of_plink_need_genotypes_and_people(tmp_path):
    _, sites = people_at_sites()
    with pytest.raises(ConfigError, match=r'Run on .bed files with scale="genotype"'):
        simulate("covariance", sites).to_plink(tmp_path / "out")
    result = simulate("covariance", sites, scale="genotype")
    with pytest.raises(ConfigError, match="The rows have no ids"):
        result.to_plink(tmp_path / "out", sites[0])
