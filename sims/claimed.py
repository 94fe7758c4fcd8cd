"""The five papers' pages: the claims of each, quoted, and what each paper does not say."""

from __future__ import annotations

from dataclasses import replace
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
    return Dots([f"{g} varied" for g in groups], series, "mean KKT violation at the end", hollow="Table 2 of the paper")


def _test_errors(kept: Record) -> Dots:
    """PerPCA's Table 2: clients of few rows and of many."""
    rows = kept.table
    series = [
        Series(name, [value(row[f"{name}, paper"]) for row in rows], [value(row[name]) for row in rows])
        for name in ("sparse", "rich")
    ]
    return Dots([row["method"] for row in rows], series, "test error", log=False)


def _noise(kept: Record) -> Dots:
    """Over-air Fig. 2a: the error of the 25th batch beside the noise, which is what the paper's words say."""
    rows = kept.table
    sigma = [row["method"].partition("=")[2].partition(",")[0] for row in rows]
    series = [Series("error of batch 25", [value(s) for s in sigma], [value(row["b25"]) for row in rows])]
    return Dots([f"sigma={s}" for s in sigma], series, "sine", hollow="sigma")


def _of(program: str, kept: Record) -> Record:
    """Another record, which has the numbers of this card."""
    return record.read(program) or kept


PAGES: Final = {
    "local_power": Paper(
        "local-power",
        "**Yes, with the settings of the authors' public program.** Half of the errors in Table 6 are then within 8 "
        "percent of the paper's, and 59 of 60 within a factor of 1.6. Vanilla LocalPower is worse, as in the paper, "
        "but it hardly fluctuates.",
        "With the error as the paper's words define it, the errors of LocalPower with OPT are 1.1 to 86 times the "
        "printed ones, 2.3 times in the median, and decay makes them larger on seven of ten sets. Ten of the paper's "
        "fifteen data sets are available. The program is github.com/lx10077/LocalPower, commit ec3b99e.",
        (
            Card(
                "Out of the 15 datasets, LocalPower has the smallest error mean and std on 12 datasets.",
                "Section 5, Final precision, Table 6",
                "local_power/table6",
                "The best of LocalPower's three variants has the smallest mean on nine of the ten available sets, in "
                "the paper and here; on mnist it is DR-SVD's. One of the three has the smallest deviation on all nine "
                "here, and on seven of them in the paper. With the error of all five columns, the best variant has the "
                "smallest mean on seven sets.",
                by_set("OPT", "sign"),
            ),
            Card(
                "[…] one-shot methods do not find high-precision solutions unless the local data size is sufficiently "
                "large.",
                "Section 5, Final precision, Table 6",
                "local_power/fig4",
                "The errors of UDA, WDA and DR-SVD agree with the paper's to a factor of 1.3. They are larger than "
                "those of LocalPower with OPT, except that DR-SVD is better on mnist, in the paper and here. With the "
                "error of all five columns it is better on connect4 and w8a, too.",
                lambda kept: by_set("UDA", "WDA", "DR-SVD")(_of("local_power/table6", kept)),
            ),
            Card(
                "The vanilla LocalPower sometimes fluctuates and even diverges […]. We can stabilize it in two ways: "
                "(i) use [OPT or sign-fixing] instead or (ii) use the decay strategy.",
                "Fig. 2b; numbers of Table 1",
                "local_power/fig2b",
                "On a9a vanilla's error is 18 times OPT's (20 times in the paper), but it rests there; with decay it "
                "falls below OPT's. The cause is the signs of LAPACK's QR: if R has a positive diagonal, vanilla is as "
                "good as sign-fixing without any alignment. On abalone our vanilla has no outlier. By its deviation, "
                "the paper's must have one or two in ten runs.",
                lambda kept: by_set("OPT", "vanilla")(_of("local_power/table1", kept)),
            ),
            Card(
                "The decay strategy not only makes convergence faster but also improves the final precision well.",
                "Section 5, The decay strategy, Tables 2 and 7",
                "local_power/table7",
                "As the program measures it, decay reduces OPT's error on nine of ten sets, not on ijcnn1 (the paper: "
                "on eight, not on ijcnn1 and a9a). With the error of all five columns, as the paper defines it, decay "
                "reduces it on three sets and multiplies it by 1.8 to 12 on seven. Our errors follow the paper's over "
                "twelve powers of ten. Single ratios are far from 1 because single runs differ by more than the mean.",
                by_set("OPT", "sign", "vanilla"),
                agreement="in part",
                reason="a reading",
            ),
            Card(
                "It can be seen that for a fixed n, the larger m, the larger eta.",
                "Table 5",
                "local_power/table5",
                "Eta grows with m on each of the ten available sets. Half of our means are within 8 percent of the "
                "paper's.",
                by_set("m=20", "m=60", "m=100", what="eta"),
            ),
            Card(
                "In all the experiments, large p leads to fast convergence in the beginning but has a nonvanishing "
                "error in the end.",
                "Section 5, Effect of local power iterations, Fig. 2a",
                "local_power/fig2a",
                "On covtype p=8 has the smallest error after five messages and the largest of p=2, 4 and 8 at the end. "
                "On the other sets a p above 1 leads after five messages, except on space-ga, where p=1 has caught up "
                "by then with sign-fixing and vanilla (Figs. 6 and 7).",
            ),
        ),
        (
            Reading(
                "How are columns scaled?",
                '"dividing it by the maximum value of each coordinate, so that each feature locates between [-1, 1]"',
                "To 0 .. 1 by minimum and maximum, as in the program.",
                "poker, OPT: 5.8e-3 by minimum and maximum, .11 if columns are divided by their largest |x| (paper "
                "6.45e-3)",
            ),
            Reading(
                "Which columns does the error measure?",
                '"sin theta(Z, U_5)", which has all five',
                "The first four of the five iterated columns against the true five, as in the program.",
                "covtype, OPT: 7.7e-3 with four columns, 1.8e-2 with five (paper 7.38e-3)",
            ),
            Reading(
                "In which norm are the errors of UDA, WDA and DR-SVD?",
                "the same symbol",
                "The Frobenius norm with all five columns, as in the program. It can be more than 1.",
                "poker, DR-SVD: 1.3 in the Frobenius norm, .94 as a sine (paper 1.25)",
            ),
            Reading(
                "Which signs does QR choose?",
                "nothing",
                "The signs that LAPACK returns.",
                "a9a, vanilla: 5.8e-2 with LAPACK's signs, 5.4e-3 if R has a positive diagonal (paper 8.13e-2). poker: "
                "7.4e-2 and 1.0e-2 (paper 5.33e-2)",
            ),
            Reading(
                "How many messages are sent?",
                '"sufficiently large"',
                "The program's list: 15 to 70 by data set.",
                "Table 6: with twice as many messages, OPT's errors change by at most 2 percent. Table 7, a9a: 3e-4 "
                "after 30 messages, 2e-14 after 500 (this package)",
            ),
            Reading(
                "Which rows of abalone and connect-4 are used?",
                "n = 2,114 and 7,990",
                "The first of each file. These numbers are a half and an eighth of its rows.",
                "connect-4, d: 125 columns that are not empty in the first rows (paper 125), 126 in the file; UDA: .17 "
                "on the first rows (paper .165)",
            ),
            Reading(
                "Which data set is splice?",
                "1000 x 24",
                "None. LIBSVM's splice has 60 columns, and 1000 x 24 is the size of its german.numer.",
                "All numbers of splice, which is left out here",
            ),
        ),
    ),
    "faps": Paper(
        "faps",
        "**Partly.** Tables 1 and 4 and Fig. 4 agree if all clients have the same covariance up to a factor, which the "
        "paper does not say. In Fig. 2 FAPS then is first from every start on six of twelve problems.",
        "If clients differ by sampling, FAPS takes two and a half times as many messages as in the paper's Table 1. On "
        "centered images of MNIST it takes the fewest messages of the three methods in nine of ten draws. On "
        "Fashion-MNIST it takes the most: in nine of ten draws if images are centered, and in all if not. (This page: "
        "n rows, d columns, k components, in Fig. 1 p components. The paper: m, n, p, and d clients.)",
        (
            Card(
                "[Iterations:] SSI 207, FAPS 42.",
                "Table 1",
                "faps_alike/table1",
                "The paper has one start. From one of our ten starts, SSI takes 213 messages, nearly the paper's "
                "number. From this start, FAPS takes 33 to 56 messages, depending on its inner steps. From all ten, it "
                "takes 33 to 255.",
                _messages,
            ),
            Card(
                "[…] the number of iterations (i.e., the rounds of communications) required by FAPS is about one-third "
                "of that by LocalPower […]",
                "Section 5.7, Table 4",
                "faps_alike/table4",
                "From the starts for which SSI takes about the paper's 337 messages (within 5 percent), LocalPower "
                "takes 163 to 167 messages, and FAPS with 20 inner steps takes 58 to 78, which is .35 to .48 of that. "
                "The paper has 164 and 55.",
                _messages,
            ),
            Card(
                "[…] FAPS clearly outperforms SSI and LocalPower in terms of iteration numbers.",
                "Section 5.4, Fig. 2 and Table 2",
                "faps_alike/table2",
                "With 20 inner steps, FAPS takes the fewest messages from all of ten starts on six of twelve problems; "
                "with 10 it does from all of five starts on three more. For a fast spectrum (xi=1.1) it takes more "
                "than LocalPower from every start, with 10, 20 and 40. Fig. 2 has no numbers, so the picture shows "
                "the KKT violations of Table 2, which are 1 to 1.6 times the paper's.",
                _sampled,
            ),
            Card(
                "[…] all three algorithms appear to converge at linear rates where the rate of FAPS is the fastest, "
                "followed by that of LocalPower.",
                "Section 5.6, Fig. 4",
                "faps_alike/fig4",
                "This holds for each of the three condition numbers: to a KKT violation of 1e-2 SSI takes 117 to 141 "
                "messages, LocalPower 55 to 67, and FAPS 18 to 22.",
            ),
            Card(
                "[…] the local data can be restored to certain accuracy, say 1e-5, much faster than solving the PCA "
                "problem.",
                "Section 1.2, Fig. 1a",
                "leak/fig1a",
                "The server knows a client's covariance to 1e-5 after 11 messages of SSI. PCA itself has not converged "
                "after 41. With 3000 columns or more (Fig. 1b) the server does not come to know it to 1e-5, and if the "
                "spectrum falls to 2.3e-4 at best.",
                agreement="in part",
                reason="the paper",
            ),
            Card(
                "[…] in terms of the number of iterations taken, FAPS always dominates SSI and LocalPower.",
                "Section 5.5, Fig. 3 and Table 3",
                "faps/table3",
                "Two of the four data sets are available. If the images are centered, this holds on MNIST, where FAPS "
                "takes 10 to 24 messages, SSI 19 to 71 and LocalPower 9 to 60 (in one draw of ten, one fewer than "
                "FAPS), but "
                "not on Fashion-MNIST, where FAPS takes 52 to 129 and SSI 39 to 82. By theory FAPS cannot be faster "
                "than SSI there near the end of a run.",
            ),
        ),
        (
            Reading(
                "Do the clients have the same covariance?",
                "A = U S V', columns dealt to 128 clients",
                "Yes, up to a factor. This is so if each client's part V_i of V has orthonormal columns. The paper "
                "does not say so: it is our guess.",
                "Table 1, FAPS: 42 in the paper; 33 to 255 if all have the same covariance (33 to 56 from the start "
                "like the paper's), 103 to 110 if clients differ by sampling",
            ),
            Reading(
                "What is LocalPower's last number of steps?",
                '"until it reaches 1"',
                "2. With steps 8, 4, 2, 2, ... the 337 power steps of SSI are (337 - 12) / 2 + 2 = 164.5 messages.",
                "Table 4, LocalPower: 164 in the paper, 163 to 167 here. If the steps fell to 1, the same count would "
                "give 326.",
            ),
            Reading(
                "How many inner steps does FAPS take?",
                "rule (26) with 1e-2",
                "20. Runs with 10 and 40 are shown next to them.",
                "Table 4, FAPS: 55 in the paper; 72 to 78 with 10 inner steps, 58 to 78 with 20, 52 to 128 with 40. "
                "Fig. 2, xi=1.0032: 130 to 222 with 10; with 20 one run of ten did not end",
            ),
            Reading(
                "Where does a run stop?",
                "rule (27), a relative change of 1e-10",
                "At the printed error of 1.1e-7. When rule (27) stops SSI, the error is 1.7e-9 to 3.9e-9.",
                "All counts of messages: rule (27) stops SSI 52 to 84 messages later",
            ),
            Reading(
                "Are the images centered?",
                "nothing",
                "Both ways are shown.",
                "Table 3, FAPS on MNIST: 10 to 24 messages if centered, 41 to 99 if not (SSI: 19 to 71 and 18 to 43)",
            ),
        ),
    ),
    "personal": Paper(
        "per-pca",
        "**Partly.** We reproduce PerPCA's linear rates, its consistency and most test errors (Table 2). For the test "
        "errors, we had to fit the variances of the data, because the paper does not state them. We do not reproduce "
        "that distPCA is worse, nor the runs with too many local components (Table 3, Fig. 7).",
        "With one local component too many, the paper's Algorithm 1 finds the shared component from half of the "
        "starts. With two or more too many, it finds it from none. (The pages call the paper's global components "
        "shared. ExactPerPCA is this package's own method for the paper's problem and not in the paper.)",
        (
            Card(
                "[…] PerPCA achieves the smallest testing error in both the data-sparse and the data-rich group […]",
                "Section 7.1.5, Table 2",
                "personal/table2",
                "The paper states no variances, so we fitted three of them to its eight numbers. With these "
                "variances, the errors of all methods except distPCA are within 9 percent of the paper's. Here, "
                "distPCA is as good as PerPCA. In the paper, it is worse. It is worse here, too, if it weights "
                "components by their variances: 2.01 and 1.84 (1.91 and 1.88 in the paper).",
                _test_errors,
            ),
            Card(
                "[…] PerPCA indeed enjoys linear convergence. […] a larger theta leads to faster convergence.",
                "Section 7.1.1, Fig. 3",
                "personal/fig3",
                "The error falls linearly on a logarithmic scale, and its slope is -.088 theta for every theta. The "
                "paper's theory gives -.087 theta.",
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
                "From n=300 to n=100,000 PerPCA's error falls from 0.14 to 4.8e-4. By the paper's words (clients send "
                "r1 + r2 components, and all weigh alike), distPCA's falls, too, to 2.0e-4. It stays at 7.3 if "
                "components are weighted by their deviations, and at 7.1 if clients send r1.",
                beside("method", ("n=300", "n=10000", "n=100000"), what="subspace error"),
            ),
            Card(
                "[…] with slightly overparametrized V_i, one can still recover the global features and the local ones.",
                "Section 7.1.6, Fig. 7 and Table 3",
                "personal/fig7",
                "With one local component too many, Algorithm 1 as printed finds both parts in three of five draws, "
                "and with two or more in none. In Table 3 it finds the shared component from five of ten starts with "
                "one too many, with a theta of at most .53 (.69 in the paper), and from none with two. This package's "
                "per_pca keeps local components in the span of a client's rows, and finds them with the right number "
                "only.",
            ),
            Card(
                "[…] after only one communication round, the true structure emerges […]. After 30 communication "
                "rounds, clients can be effectively clustered based on their learned local PCs.",
                "Section 7.1.7, Fig. 9",
                "personal/fig9",
                "After 30 rounds, the ten groups are found: the adjusted Rand index is .94 in the mean of ten draws "
                "with "
                "eta=0.1 (.86 at least), and 1 with larger steps. After one round, PerPCA finds a part of the groups "
                "with larger steps (.20 and .26) and nothing with eta=0.1. Only ExactPerPCA finds all of them then.",
                beside("method", ("1 round", "30 rounds"), what="adjusted Rand index", log=False),
            ),
        ),
        (
            Reading(
                "Which components does distPCA send?",
                "the top r1 + r2 of each client, concatenated",
                "Weighted by their deviations, as in Qu et al. (2002). Components of equal weight are shown next to "
                "them.",
                "Fig. 4 at n=100,000: 7.3 weighted (the paper: not consistent), 2e-4 with equal weights. Table 2, rich "
                "clients: 1.53 with equal weights, 1.57 weighted, 1.84 weighted by variances (paper 1.88)",
            ),
            Reading(
                "How large are the local deviations in Figs. 5 and 6?",
                '"Other settings are the same as Section 7.1.2", in which local variances are 100 times the shared '
                "ones",
                "100 times as large. Equal variances are shown next to them.",
                "Fig. 6, slope of the total error: -1.0 with 100 times, -.3 if equal (the paper: decreases slowly). "
                "Fig. 5: 1.0 and 1.6 (the paper: almost quadratically)",
            ),
            Reading(
                "Which variances do the data of Table 2 have?",
                "nothing",
                "Noise .15, shared .10, local .62, fitted to the eight printed numbers.",
                "All of Table 2",
            ),
            Reading(
                "From which start does Table 3 run?",
                '"random initializations"',
                "Ten random starts, with a step of 0.1 for 300 rounds.",
                "Table 3, theta with one local component too many: 0 to .53 by start (paper .69)",
            ),
            Reading(
                "Which step does Fig. 9 take?",
                "nothing",
                "0.1 and 1 by choice 1, 10 by choice 2.",
                "Fig. 9, adjusted Rand index after one round: .01 with 0.1, .20 with 1, .26 by choice 2",
            ),
            Reading(
                "Which images does Table 4 use, and which video Table 6?",
                "not published",
                "Images that we drew, and a video of a hall with escalators.",
                "All of Tables 4 and 6",
            ),
        ),
    ),
    "robust": Paper(
        "dcf-pca",
        "**Mostly.** We reproduce the numbers of rounds, that the floor of the error grows with K, the spectrum and, "
        "if "
        "a third of the drawn entries are 0, the limit of what can be recovered. Up to n = 1000, we also reproduce "
        "Table 1 to within 9 percent, with a lambda that we fitted to "
        "it.",
        "At n = 5000 our error is 1.7 times the paper's. Because the paper's lambda is fixed, an error of 2 to 6 "
        "percent stays in L, which the paper's measure of the error hides.",
        (
            Card(
                "[Relative singular value errors for n = 200, 500, 1000, 5000:] 0.0286, 0.0326, 0.0398, 0.1127.",
                "Table 1",
                "robust/table1",
                "Our errors are within 9 percent of the paper's up to n=1000, and 1.7 times the paper's at n=5000 "
                "(one draw, in single precision).",
                by_row("n", "DCF-PCA, lambda=0.3", "paper", what="error of singular values"),
            ),
            Card(
                "It only takes 8 iterations for DCF-PCA with K=10 to converge; while K=1 converges much slower.",
                "Fig. 4",
                "robust/fig4",
                "K=10 takes 8 to 13 rounds to an error of 1e-5, and K=1 takes 53 to 69. The floor grows a little with "
                "K.",
                beside("K", ("err<1e-5",), what="rounds to 1e-5", paper=("-", "-", "-", "8")),
            ),
            Card(
                "Any target matrix with larger ground truth rank r and larger sparsity s than the limit [r = 0.15 n, "
                "s = 0.2] cannot be recovered correctly.",
                "Section 4.2, Fig. 2",
                "robust/zeros",
                "If a third of the drawn entries are 0, as the paper writes, DCF-PCA recovers L at this limit, with "
                "an error of .10. With r = 0.2 n and s = 0.3 its error is 6.5 to 7.1. This package's consensus_rpca "
                "recovers L in all twenty cells of the figure if no entry is 0, so this is a limit of the method "
                "and not of the problem. We call L recovered if its error is at most .16, which the paper does not "
                "say; with r = 0.2 n and s = 0.2 it is .16 to .17. If no drawn entry is 0, as in all other figures "
                "here, the error at the limit is 1.3.",
                beside("r/n", ("s=0.05", "s=0.15", "s=0.2", "s=0.3"), what="error of L"),
                agreement="in part",
                reason="a reading",
            ),
            Card(
                "[…] the recovered matrix with p=2r successfully approximate[s] the ground truth matrix of rank r […]",
                "Section 4.2, Fig. 3",
                "robust/fig3",
                "Singular value r + 1 is 2.8 to 3.4 percent of singular value r in ten draws.",
            ),
            Card(
                "As a result, DCF-PCA costs much less computation time than its centralized counterpart CF-PCA.",
                "Section 4.2, Fig. 1",
                "robust/fig1",
                "The ten clients of DCF-PCA together take 1.1 to 1.25 times the time of CF-PCA. If the clients worked "
                "at the same time, DCF-PCA would take a tenth of its time. To an error of 1e-5, DCF-PCA takes 7 to 14 "
                "rounds. Three methods of robust PCA on pooled data take 7 or 8 iterations (IALM), 16 (ALM) and 53 "
                "(APGM). With more iterations, these three reach smaller errors, and DCF-PCA does not.",
            ),
        ),
        (
            Reading(
                "Which lambda?",
                "nothing",
                "0.3 of the largest entry, fitted to Table 1. Runs with 0.2 are shown next to it.",
                "Table 1 at n=500: .034 with 0.3, .022 with 0.2 (paper .0326)",
            ),
            Reading(
                "Can a drawn entry of S be 0?",
                '"random nonzero entries", each "sampled from {-sqrt(mn), 0, sqrt(mn)}"',
                "In Fig. 2 a third of the drawn entries are 0. In all others none is.",
                "Fig. 2 at r = 0.15 n, s = 0.2: an error of L of .10 with zeros, 1.3 without",
            ),
            Reading(
                "What does err measure?",
                "(30), squared norms of L and S together",
                "The same. The error of L alone is shown next to it.",
                "n=500: an err of 6e-6 corresponds to an error of 2 percent in L",
            ),
        ),
    ),
    "over_air": Paper(
        "over-air",
        "**Yes, as far as figures go.** All eight show what the paper says about them, with one exception: NORST does "
        "not stop improving early in Fig. 1b.",
        "With more entries missing, a higher rank and longer intervals, it does. The paper's figures are curves "
        "without "
        "numbers. Five theorems lack their formulas in our copy of the paper.",
        (
            Card(
                "[…] in all the cases, the subspace error saturates at roughly [the noise level] as predicted.",
                "Section 5.2, Fig. 2a",
                "over_air/fig2a",
                "The error ends at a third of the noise sigma, for each sigma from 1 to 1e-6. The paper prints no "
                "numbers; the hollow marks are sigma.",
                _noise,
            ),
            Card(
                "[…] the simple PCA algorithm does not improve […] PETRELS is the fastest to converge, followed by "
                "NORST and STMiss-nodet, and finally GROUSE.",
                "Section 5.1.1, Fig. 1a",
                "over_air/fig1a",
                "(NoDet is the paper's STMiss-nodet. All others are the methods that the paper compares it with.) "
                "PETRELS has the smallest error after one batch, .02, and then rises to .09. NORST and NoDet end at "
                ".04, GROUSE at .07. Simple PCA stays at .25.",
            ),
            Card(
                "[…] after a certain time, NORST stops improving the subspace estimates, but STMiss-nodet improves it "
                "and gets a better result.",
                "Section 5.1.2, Fig. 1b",
                "over_air/fig1b",
                "In Fig. 1b both errors are at rounding before NORST's updates end. With 40 percent of the entries "
                "missing in place of 10, rank 30 in place of 10 and a longer interval, NORST stops at 2.9e-5, and "
                "NoDet goes on to 6e-10.",
            ),
            Card(
                "[…] the error of Fed-OA-RSTMiss-nodet in Fig. 3 does not improve beyond the iteration noise level […]",
                "Section 5.2, Fig. 3b",
                "over_air/fig3b",
                "The federated error stays at 3e-7 for noise of 1e-6. NORST, which has no noise, continues to 2e-12.",
            ),
            Card(
                "[…] increasing [eta] has a similar effect as that of reducing [sigma].",
                "Appendix D.4, Fig. 4a",
                "over_air/fig4a",
                "eta=50 at sigma=1e-4 ends at 4.1e-7, and eta=1 at sigma=1e-8 at 3.1e-7: the two overlap, as the paper "
                "says. All ends are 1 to 1.5 times our floor, sigma (sqrt(n - r) + sqrt(r)) over the gap to the power "
                "of "
                "2 eta. The hollow marks are this floor, because the paper prints no numbers.",
                lambda kept: replace(by_row("case", "end", "floor", what="error at the end")(kept), hollow="our floor"),
            ),
        ),
        (
            Reading(
                "What do the theorems say?",
                "Our copy of the paper lacks its formulas.",
                "What the sentences around the formulas say.",
                "Lemmas 4.1 and 4.2, Theorems 3.6, 3.9 and 4.4",
            ),
            Reading(
                "Which sizes, noise levels and shares of missing entries do the figures have?",
                "Our copy of the paper lacks these numbers.",
                "Those of the authors' public scripts, with 10 repetitions, or 5, in place of 50.",
                "All figures",
            ),
            Reading(
                "What is the rank of the data?",
                "the same data in all figures; our copy of the paper lacks the number",
                "10 in Fig. 1, 30 in Figs. 2 and 3.",
                "NORST after the first batch: .25 with rank 10 (Fig. 1a), .66 with rank 30 (Fig. 3a)",
            ),
        ),
    ),
}
