"""The five papers' pages: the claims of each, quoted, and what each paper does not say."""

from __future__ import annotations

from typing import Final

from sims.cards import Card, Dots, Paper, Reading, Series, beside, by_row, by_set, value
from sims.common import record
from sims.common.record import Record

ALONE: Final = "-"


def _messages(kept: Record) -> Dots:
    """FAPS: messages of the starts that are like the paper's, or of all where none is."""
    rows = kept.table
    like = "of starts like the paper's"
    cells = [row[like] if row[like] != ALONE else row["messages"] for row in rows]
    series = [Series("ours", [value(row["paper"]) for row in rows], [value(cell) for cell in cells])]
    return Dots([row["algorithm"] for row in rows], series, "messages", log=False)


def _sampled(kept: Record) -> Dots:
    """FAPS's KKT violations at the end, the paper's means beside ours."""
    groups = list(dict.fromkeys(row["varied"] for row in kept.table))
    names = ("SSI", "LocalPower", "FAPS")
    series = []
    for name in names:
        column = f"KKT: {name}"
        paper = [
            next(r[column] for r in kept.table if r["varied"] == g and r["problem"][:5] == "paper") for g in groups
        ]
        ours = [
            [value(r[column]) for r in kept.table if r["varied"] == g and r["problem"][:5] != "paper"] for g in groups
        ]
        means = [value(f"{sum(v.at for v in found if v) / len(found):.2e}") for found in ours]
        series.append(Series(name, [value(cell) for cell in paper], means))
    return Dots([f"{g} varied" for g in groups], series, "mean KKT violation at the end")


def _test_errors(kept: Record) -> Dots:
    """PerPCA's Table 2: clients of few rows and of many."""
    rows = kept.table
    series = [
        Series(name, [value(row[f"{name}, paper"]) for row in rows], [value(row[name]) for row in rows])
        for name in ("sparse", "rich")
    ]
    return Dots([row["method"] for row in rows], series, "test error", log=False)


def _thetas(kept: Record) -> Dots:
    rows = kept.table
    names = [name for name in ("theta, as printed", "theta, random") if name in rows[0]]
    paper = [value(row["paper"].replace(".", "0.", 1) if row["paper"][0] == "." else row["paper"]) for row in rows]
    none = [None] * len(rows)
    series = [
        Series(name, paper if j == 0 else none, [value(row[name]) for row in rows]) for j, name in enumerate(names)
    ]
    return Dots([row["own ranks"] for row in rows], series, "theta", log=False)


def _noise(kept: Record) -> Dots:
    """Over-air Fig. 2a: the error of the 25th batch beside the noise, which is what the paper's words say."""
    rows = kept.table
    sigma = [row["method"].partition("=")[2].partition(",")[0] for row in rows]
    series = [Series("error of batch 25", [value(s) for s in sigma], [value(row["b25"]) for row in rows])]
    return Dots([f"sigma={s}" for s in sigma], series, "sine")


def _of(program: str, kept: Record) -> Record:
    """Another record, which has the numbers of this card."""
    return record.read(program) or kept


PAGES: Final = {
    "local_power": Paper(
        "local-power",
        "Yes. With the readings of the authors' public program, the errors of Tables 1, 2, 6 and 7 come out within a "
        "few per cent on most sets, and vanilla LocalPower is unstable as the paper says. By the paper's words alone "
        "the errors are two to ten times larger.",
        (
            Card(
                "Out of the 15 datasets, LocalPower has the smallest error mean and std on 12 datasets.",
                "Section 5.1, Table 6",
                "local_power/table6",
                "LocalPower with OPT and sign-fixing has the paper's errors on the ten sets at hand.",
                by_set("OPT", "sign"),
            ),
            Card(
                "[…] one-shot methods do not find high-precision solutions unless the local data size is sufficiently "
                "large.",
                "Section 5.1, Table 6",
                "local_power/fig4",
                "The errors of UDA, WDA and DR-SVD are the paper's. On mnist DR-SVD is better than LocalPower, in the "
                "paper and here.",
                lambda kept: by_set("UDA", "WDA", "DR-SVD")(_of("local_power/table6", kept)),
            ),
            Card(
                "The vanilla LocalPower sometimes fluctuates and even diverges […]. We can stabilize it in two ways: "
                "(i) use [OPT or sign-fixing] instead or (ii) use the decay strategy.",
                "Fig. 2b; numbers of Table 1",
                "local_power/fig2b",
                "Vanilla is ten times worse than OPT on a9a and poker, as in the paper. The cause is the signs of "
                "LAPACK's QR: with a positive diagonal of R, vanilla is as good as sign-fixing without any alignment.",
                lambda kept: by_set("OPT", "vanilla")(_of("local_power/table1", kept)),
            ),
            Card(
                "The decay strategy not only makes convergence faster but also improves the final precision well.",
                "Section 5.2, Tables 2 and 7",
                "local_power/table7",
                "The final errors span twelve powers of ten between sets, and ours follow them.",
                by_set("OPT", "sign", "vanilla"),
            ),
            Card(
                "It can be seen that for a fixed n, the larger m, the larger eta.",
                "Table 5",
                "local_power/table5",
                "Eta is the paper's on nine sets, once columns are scaled to 0 .. 1.",
                by_set("m=20", "m=60", "m=100", what="eta"),
            ),
            Card(
                "In all the experiments, large p leads to fast convergence in the beginning but has a nonvanishing "
                "error in the end.",
                "Section 5.2, Fig. 2a",
                "local_power/fig2a",
                "On covtype p=8 is ahead after five messages and ends highest.",
            ),
        ),
        (
            Reading(
                "How are columns scaled?",
                '"between -1 and 1"',
                "To 0 .. 1 by minimum and maximum, as the program does.",
                "poker, OPT: 5.5e-3 by minimum and maximum, 1.0e-1 by the largest value (paper 6.45e-3). ijcnn1, eta "
                "at 20 clients: .016, and .06 before (paper .016)",
            ),
            Reading(
                "Which columns does the error measure?",
                '"sin theta(Z, U_5)", which has all five',
                "The first four of five columns against the true five, as the program does.",
                "covtype, OPT: 7.5e-3 by four columns, 1.8e-2 by five (paper 7.38e-3)",
            ),
            Reading(
                "Which norm has the error of UDA, WDA and DR-SVD?",
                "the same symbol",
                "The Frobenius norm with all five columns, as the program does. It can be more than 1.",
                "poker, DR-SVD: 1.2 by Frobenius, .91 as a sine (paper 1.25)",
            ),
            Reading(
                "Which signs has QR?",
                "nothing",
                "LAPACK's, as they come.",
                "a9a, vanilla: 7.7e-2 with LAPACK's signs, 5.3e-3 with a positive diagonal (paper 8.13e-2)",
            ),
            Reading(
                "How many messages are sent?",
                '"sufficiently large"',
                "The program's list: 15 to 70 by data set.",
                "Table 7, space-ga: 5e-14 after 15 messages (paper 3.5e-14)",
            ),
            Reading(
                "Which rows of abalone and connect-4?",
                "n = 2,114 and 7,990",
                "The first of the files, of which these numbers are a half and an eighth.",
                "connect-4, UDA: .17 on the first rows, .07 on a random part (paper .165). In the first rows the last "
                "one-hot column is empty, which gives the paper's d = 125.",
            ),
            Reading(
                "Which set is splice?",
                "1000 x 24",
                "None: LIBSVM's splice has 60 columns. 1000 x 24 is the size of german.numer. It is left out here.",
                "all of splice",
            ),
        ),
    ),
    "faps": Paper(
        "faps",
        "Yes, for clients that are alike. If all clients have the same covariance up to a factor, messages, KKT "
        "violations and the order of the methods are the paper's. With clients that differ by sampling, FAPS takes two "
        "and a half times as many messages. On Fashion-MNIST FAPS is not the fastest.",
        (
            Card(
                "[Iterations:] SSI 207, FAPS 42.",
                "Table 1",
                "faps_alike/table1",
                "In the one start of ten in which SSI takes the paper's number of messages, FAPS takes 33 to 56.",
                _messages,
            ),
            Card(
                "[…] the number of iterations (i.e., the rounds of communications) required by FAPS is about one-third "
                "of that by LocalPower […]",
                "Section 5.7, Table 4",
                "faps_alike/table4",
                "With alike clients LocalPower takes 163 to 167 messages if SSI takes the paper's 337, and FAPS 58 to "
                "78.",
                _messages,
            ),
            Card(
                "[…] FAPS clearly outperforms SSI and LocalPower in terms of iteration numbers.",
                "Section 5.4, Fig. 2 and Table 2",
                "faps_alike/table2",
                "The KKT violations at the end are the paper's. FAPS takes fewest messages, except for fast spectra "
                "(xi=1.1) and many components.",
                _sampled,
            ),
            Card(
                "[…] all three algorithms appear to converge at linear rates where the rate of FAPS is the fastest, "
                "followed by that of LocalPower.",
                "Section 5.6, Fig. 4",
                "faps_alike/fig4",
                "So it is with alike clients, for each of the three condition numbers.",
            ),
            Card(
                "[…] the local data can be restored to certain accuracy, say 1e-5, much faster than solving the PCA "
                "problem.",
                "Section 1.2, Fig. 1a",
                "leak/fig1a",
                "A client's covariance is known to 1e-5 after 11 messages of SSI, when PCA has not converged after 41.",
            ),
            Card(
                "[…] in terms of the number of iterations taken, FAPS always dominates SSI and LocalPower.",
                "Section 5.5, Fig. 3 and Table 3",
                "faps/table3",
                "Not on Fashion-MNIST, the one of the four sets at hand.",
            ),
        ),
        (
            Reading(
                "Are the clients' covariances alike?",
                "A = U S V', columns dealt to 128 clients",
                "Alike up to a factor, as if V_i were orthonormalised on each client. How it came about is a guess.",
                "Table 1, FAPS: 42 in the paper, 33 to 56 alike, 103 to 110 if clients differ by sampling",
            ),
            Reading(
                "Which is LocalPower's last number of steps?",
                '"until it reaches 1"',
                "2: (337 - 12) / 2 + 2 = 164.5 messages for SSI's 337.",
                "Table 4, LocalPower: 164 in the paper; with steps that fall to 1 it would be 326",
            ),
            Reading(
                "How many inner steps has FAPS?",
                "rule (26) with 1e-2",
                "20. With 10 it is a little slower, with 40 a little faster.",
                "Table 4, FAPS: 55 in the paper",
            ),
            Reading(
                "Where does a run stop?",
                "rule (27), a relative change of 1e-10",
                "At the printed error of 1.1e-7: where rule (27) stops SSI the error is thirty times smaller.",
                "all counts of messages, by 52 to 84 messages of SSI",
            ),
            Reading(
                "Are pictures centred?",
                "nothing",
                "Both ways are shown.",
                "Table 3, FAPS on Fashion-MNIST: 74 to 111 messages centred, more than 3000 not centred",
            ),
        ),
    ),
    "personal": Paper(
        "per-pca",
        "Mostly. Test errors, linear rates and consistency come out. Two things do not: with too many own components "
        "the paper's Table 3 and Fig. 7 do not come out even from its Algorithm 1 as printed, and distPCA is better "
        "than printed in Table 2.",
        (
            Card(
                "[…] PerPCA achieves the smallest testing error in both the data-sparse and the data-rich group […]",
                "Section 7.1.5, Table 2",
                "personal/table2",
                "All methods but distPCA come within 8 per cent. distPCA is as good as PerPCA here.",
                _test_errors,
            ),
            Card(
                "PerPCA indeed enjoys linear convergence. […] A larger theta leads to faster convergence.",
                "Section 7.1.1, Fig. 3",
                "personal/fig3",
                "The slope over theta is the same for every theta, -.088, where the theory says -.087.",
                beside(
                    "theta",
                    ("slope / theta",),
                    what="slope / theta",
                    paper=("-0.0869",) * 6,
                    log=False,
                    only=lambda row: row["method"].startswith("choice 1"),
                ),
            ),
            Card(
                "PerPCA is consistent while distPCA is not.",
                "Section 7.1.2, Fig. 4",
                "personal/fig4",
                "So it is if distPCA weights components by their deviations, or sends r1 of them. With r1 + r2 "
                "components that weigh alike, distPCA is consistent too.",
                beside("method", ("n=300", "n=10000", "n=100000"), what="subspace error"),
            ),
            Card(
                "With slightly overparametrized V_i, one can still recover the global features and the local ones.",
                "Section 7.1.6, Fig. 7 and Table 3",
                "personal/table3",
                "No. With one own component too many, theta falls to between 0 and .3 by Algorithm 1 as printed, and "
                "to 0 by this package.",
                _thetas,
            ),
            Card(
                "After 30 communication rounds, clients can be effectively clustered based on their learned local PCs.",
                "Section 7.1.7, Fig. 9",
                "personal/fig9",
                "After 30 rounds the ten groups are found. After one round only the exact method has them.",
                beside("method", ("1 round", "30 rounds"), what="adjusted Rand index", log=False),
            ),
        ),
        (
            Reading(
                "Which components does distPCA send?",
                "the top r1 + r2 of each client, concatenated",
                "Weighted by their deviations, as Qu et al. (2002). Of unit length they are shown beside.",
                "Fig. 4 at n=100,000: 7.3 weighted (the paper: not consistent), 2e-4 of unit length",
            ),
            Reading(
                "Which variances has Table 2?",
                "nothing",
                "Noise .15, shared .10, own .62, fitted to the eight printed numbers.",
                "all of Table 2",
            ),
            Reading(
                "Which step has Table 3?",
                "nothing",
                "0.1, as in Fig. 3, for 300 rounds.",
                "theta: .9 with the right rank, as printed; 0 to .3 instead of .69 with one component more",
            ),
            Reading(
                "Which pictures has Table 4, and which film Table 6?",
                "not published",
                "Drawn pictures, and a film from a hall with escalators.",
                "all of Tables 4 and 6",
            ),
        ),
    ),
    "robust": Paper(
        "dcf-pca",
        "Mostly. Rounds, error floors and the recoverable region come out, and Table 1 within 12 per cent up to "
        "n = 1000. At n = 5000 our error is 1.7 times the paper's. The paper's fixed threshold leaves 2 to 6 per cent "
        "of L, which its measure of error hides.",
        (
            Card(
                "The relative singular value errors are 0.0286, 0.0326, 0.0398 and 0.1127.",
                "Table 1",
                "robust/table1",
                "Within 12 per cent up to n=1000, 1.7 times at n=5000 by one draw in single precision.",
                by_row("n", "DCF-PCA, lambda=0.3", "paper", what="error of singular values"),
            ),
            Card(
                "It only takes 8 iterations for DCF-PCA with K=10 to converge; while K=1 converges much slower.",
                "Fig. 4",
                "robust/fig4",
                "K=10 takes 8 to 14 rounds to 1e-5 and K=1 takes 53 to 72, and the floor grows a little with K.",
                beside("K", ("err<1e-5",), what="rounds to 1e-5", paper=("-", "-", "-", "8")),
            ),
            Card(
                "Any target matrix with larger ground truth rank r and larger sparsity s than the limit [r = 0.15 n, "
                "s = 0.2] cannot be recovered correctly.",
                "Section 4.2, Fig. 2",
                "robust/fig2",
                "DCF-PCA stops at that limit. consensus_rpca recovers all twenty cells.",
                beside(
                    "r/n",
                    ("s=0.05", "s=0.15", "s=0.2", "s=0.3"),
                    what="error of L",
                    only=lambda row: row["method"] == "DCF-PCA",
                ),
            ),
            Card(
                "The recovered matrix with p = 2r successfully approximates the ground truth matrix of rank r.",
                "Section 4.2, Fig. 3",
                "robust/fig3",
                "The singular values fall to 3 per cent after r.",
            ),
            Card(
                "Comparison on the convergence of different algorithms for the synthetic RPCA problems of different "
                "scales.",
                "Fig. 1",
                "robust/fig1",
                "DCF-PCA reaches 1e-5 first in rounds; then its floor stays above those of APGM, ALM and IALM.",
            ),
        ),
        (
            Reading(
                "Which lambda?",
                "nothing",
                "0.3 of the largest entry, fitted to Table 1; 0.2 beside it.",
                "Table 1 at n=500: .034 with 0.3, .022 with 0.2 (paper .0326)",
            ),
            Reading(
                "What does err measure?",
                "(30), squared norms of L and S together",
                "The same, and the error of L alone beside it.",
                "n=500: err 6e-6 is an error of 2 per cent in L",
            ),
        ),
    ),
    "over_air": Paper(
        "over-air",
        "Yes. Every figure shows what the paper says of it, except that NORST does not stop early in Fig. 1b at the "
        "paper's size. The paper's figures are curves without numbers.",
        (
            Card(
                "In all the cases, the subspace error saturates at roughly [the noise level] as predicted.",
                "Section 5.2, Fig. 2a",
                "over_air/fig2a",
                "The error ends at a third of sigma, for each sigma.",
                _noise,
            ),
            Card(
                "[…] the simple PCA algorithm does not improve […] PETRELS is the fastest to converge, followed by "
                "NORST and STMiss-nodet, and finally GROUSE.",
                "Section 5.1.1, Fig. 1a",
                "over_air/fig1a",
                "PETRELS is first and then loses ground. NoDet ends lowest, at .04. Simple PCA stays at .25.",
            ),
            Card(
                "After a certain time, NORST stops improving the subspace estimates, but STMiss-nodet improves it and "
                "gets a better result.",
                "Section 5.1.2, Fig. 1b",
                "over_air/fig1b",
                "Both are at rounding before NORST's updates end. With a longer interval NORST stops at 3.5e-5, and "
                "NoDet goes on to 6e-10.",
            ),
            Card(
                "The error of Fed-OA-RSTMiss-nodet in Fig. 3 does not improve beyond the iteration noise level.",
                "Section 5.2, Fig. 3b",
                "over_air/fig3b",
                "It stays at 3e-7 for noise of 1e-6, where NORST without noise falls on.",
            ),
            Card(
                "Increasing eta has a similar effect as that of reducing sigma.",
                "Appendix D, Fig. 4a",
                "over_air/fig4a",
                "A larger eta divides the floor by the gap's power, as the theory says, to 53 per cent.",
                by_row("case", "end", "floor", what="error at the end"),
            ),
        ),
        (
            Reading(
                "What do the theorems say?",
                "The text at hand has lost its formulas.",
                "What the sentences around the formulas say.",
                "Lemmas 4.1 and 4.2, Theorems 3.6, 3.9 and 4.4",
            ),
            Reading(
                "Which rank has Fig. 3?",
                "the same data as Fig. 1",
                "30 for the federated tracker and 10 for the central one.",
                "Fig. 3a, NORST's curve",
            ),
        ),
    ),
}
