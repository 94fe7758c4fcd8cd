"""`flower-pca transform` writes the scores of new rows, and `flower-pca score` finds unusual rows."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.analysis.monitor import LEVEL, SOURCES, Anomaly, Limits, Monitor, RowScores
from flower_pca.base import checks, files, labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.commands import common, output
from flower_pca.names.identifiers import is_called_identifier
from flower_pca.results import plink
from flower_pca.results.pca import PCAResult
from flower_pca.results.projection import Projection


def add_transform(commands: Any) -> None:
    """Add the command `flower-pca transform` to the parser."""
    parser = common.add_command(
        commands, "transform", "write the coordinates of rows along the components of a run", run_transform
    )
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run, or a party's own file")
    parser.add_argument("data", metavar="DATA", help="a path or a spec, as for run")
    own = add_local_options(
        parser,
        "use the local results in this file, which a run with --save-local or a node has written: local components, "
        "or the means, location and scale of the site",
        "estimate local components, or the location and scale of the site, from these rows: for a client that took no "
        "part in the run",
    )
    own.add_argument(
        "--among-own",
        action="store_true",
        help="make scores of new rows comparable with the rows of the run, by undoing their shrinkage",
    )
    common.add_missing_options(parser)
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FILE", help="a .npy, a .csv or, for PLINK, an .eigenvec file"
    )


def add_local_options(parser: argparse.ArgumentParser, local: str, fit_local: str) -> Any:
    """Add --local and --fit-local, which exclude each other, and return their group."""
    own = parser.add_mutually_exclusive_group()
    own.add_argument("--local", metavar="FILE", help=local)
    own.add_argument("--fit-local", action="store_true", help=fit_local)
    return own


def run_transform(args: argparse.Namespace) -> int:
    """Write the scores of new rows, and print where they are."""
    from flower_pca.data import sources

    path = args.out.expanduser().absolute()
    checks.parent_exists("the scores", path)
    kind = path.suffix.lower()
    if kind not in (".npy", ".csv", ".eigenvec"):
        raise ConfigError(
            f"Scores are written to .npy, .csv or .eigenvec, not to {path.name}. For example, write -o scores.npy."
        )
    result: PCAResult | Projection = _projection_of_party(args) or common.result_of(args.result, missing=args.missing)
    if isinstance(result, PCAResult):
        require_whole_rows(args.data, result)
    wanted = labels.tuple_of(result.feature_names_in_)
    if isinstance(result, PCAResult):
        wanted = result.columns_needed_
    gaps = common.gaps_by_column(args)
    scores, site = _scores(args, result, sources.make(args.data, wanted, gaps=gaps))
    n, k = scores.shape
    if kind == ".npy":
        with files.replacing_file(path, private=True) as file:
            np.save(file, scores)
    elif kind == ".eigenvec":
        plink.write_covariates(path, sources.table_for_columns(args.data, wanted, gaps=gaps), scores)
    else:
        names = [f"component_{j + 1}" for j in range(result.n_components_)]
        names += [f"own_{j + 1}" for j in range(k - len(names))]
        beside = output.row_labels(args.data, wanted, gaps)
        numbers = ([f"{value:.17g}" for value in row] for row in scores.tolist())
        lines = ([*texts, *row] for *texts, row in zip(*beside.values(), numbers, strict=True))
        output.write_table(path, [*beside, *names], lines)
    if args.json:
        common.print_json({"rows": n, "components": k, "local_components": k - result.n_components_, "out": str(path)})
    else:
        sys.stdout.write(f"Wrote {n:,} x {k} scores to {path}{_components_in_words(result, args, site)}\n")
        if isinstance(result, PCAResult) and result.shrinkage_hint and not args.among_own:
            sys.stdout.write(f"{result.shrinkage_hint}\n")
    return 0


def _scores(args: argparse.Namespace, result: PCAResult | Projection, rows: Any) -> tuple[Array, str]:
    """Return the scores of the rows, and the name of the site whose local components are used, or ""."""
    if isinstance(result, PCAResult) and (result.is_by_site or result.harmonized_by_):
        at_site = result_for_site(result, args, {getattr(rows, "site", "") or Path(args.data).stem: rows})
        return at_site.project(rows) if args.among_own else at_site.transform(rows), ""
    if args.local is not None:
        personal = output.require_personal(result, "--local")
        own, site = output.local_components_of(args.local, personal)
        return personal.transform(rows, client=own), site
    if args.fit_local:
        personal = output.require_personal(result, "--fit-local")
        return personal.transform(rows, client=personal.fit_local(rows)), ""
    if args.among_own:
        return result.project(rows), ""
    return result.transform(rows), ""


def result_for_site(result: PCAResult, args: argparse.Namespace, tables: Mapping[Any, Any]) -> PCAResult:
    """Return the result for rows of one site, after a run with --adjust site or --harmonize.

    Parameters
    ----------
    result : PCAResult
        The result. If it scores rows of all sites alike, it is returned unchanged.
    args : Namespace
        The options of the command, with `local` and `fit_local`.
    tables : mapping
        The rows of each site by its name. There must be only one site.

    Raises
    ------
    ConfigError
        If the options or the rows do not fit the run, or if there are several sites.
    DataError
        If the site's own file does not exist.
    """
    if not result.is_by_site:
        return result
    if args.local is None and not args.fit_local:
        done = "harmonized sites" if result.harmonized_by_ else "subtracted the means of each site"
        more = ", or --fit-local for a site that took no part in the run" if result.harmonized_by_ else ""
        raise ConfigError(
            f"The run has {done}, so rows can be scored only with their site's own file. Add --local FILE with the "
            f"file that flower-pca run --save-local or the site's node has written{more}."
        )
    if len(tables) > 1:
        raise ConfigError(
            f"--local and --fit-local are for rows of one site, but {args.data} has rows of {len(tables)} sites. Give "
            "the file of one site."
        )
    ((site, rows),) = tables.items()
    if args.local is None:
        if not result.harmonized_by_:
            raise ConfigError(
                "This run subtracted the means of each site, so --fit-local cannot be used. Replace it with --local "
                "FILE: the file that flower-pca run --save-local or the site's node has written."
            )
        return result.harmonize(rows)
    try:
        header, own = files.read(args.local, "own result", private=True)
    except FileNotFoundError as error:
        raise DataError(
            f"No file named {shown(args.local)}. Give a file that flower-pca run --save-local or a node has written."
        ) from error
    named = str(header.get("site") or "")
    if named and site in result.site_names.values() and named != site:
        raise ConfigError(
            f"{args.local} belongs to the site {named}, but the rows are from {site}. Give the file and the rows of "
            "the same site."
        )
    return result.at_site(own)


def _projection_of_party(args: argparse.Namespace) -> Projection | None:
    """Return the projection of a party in a run over columns if RESULT is the party's own file, else None."""
    from flower_pca.vertical.result import ColumnsResult

    with suppress(FileNotFoundError):  # `result_of` reports a missing file.
        if files.kind_of(args.result) == "own result":
            return ColumnsResult.projection_of_party(args.result)
    return None


def _components_in_words(result: PCAResult | Projection, args: argparse.Namespace, site: str) -> str:
    """Return a phrase that names the shared and local components of the scores, or "" for other runs."""
    from flower_pca.results.personal import PersonalResult

    if not isinstance(result, PersonalResult):
        return ""
    components = labels.count(result.n_components_, "shared component").removeprefix("1 ")
    shared = f": scores on the {components}"
    if args.fit_local:
        return f"{shared} and on local components computed from these rows"
    if args.local is None:
        return f"{shared}; add local components with --local FILE or --fit-local"
    if site:
        return f"{shared} and on the local components of {site} ({args.local})"
    return f"{shared} and on the local components in {args.local}"


_SHOWN: Final = 40  # maximum number of anomalies that are printed; the output file has all
_EPILOG: Final = """\
exit codes: 0 all rows are scored, even if some are beyond a limit; 1 a larger share than --fail-above is beyond a
limit; 2 bad usage or input

examples:
  flower-pca score patients/result.npz today.csv
  flower-pca score patients/result.npz today.csv --level 99.9% -o scores.csv --picture scores.svg
  flower-pca score patients/result.npz sites/ --fail-above 5% || mail -s "look at today's rows" analyst
"""


def add_score(commands: Any) -> None:
    """Add the command `flower-pca score` to the parser."""
    parser = common.add_command(
        commands,
        "score",
        "score rows by T2 and SPE, and list the rows beyond the limits with the columns that contribute most",
        run_score,
    )
    parser.epilog, parser.formatter_class = _EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("result", metavar="RESULT", help="the result.npz of a run")
    parser.add_argument("data", metavar="DATA", help="a path or a spec, as for run; a folder must have a file per site")
    add_partition_option(parser)
    add_local_options(
        parser,
        "after a run with --adjust site or --harmonize, the site's own file, which run --save-local or a node has "
        "written",
        "after a run with --harmonize, estimate the location and scale of a new site from these rows, at least 20",
    )
    _add_limit_options(parser)
    parser.add_argument("--components", type=int, metavar="K", help="use the first K components (default: all)")
    parser.add_argument("--top", type=int, default=3, metavar="N", help="columns to name for each row (default: 3)")
    common.add_missing_options(parser)
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="a .csv file for the scores of all rows")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="an .svg or .png file for a picture of all rows")
    parser.add_argument(
        "--fail-above",
        type=common.parse_share,
        metavar="SHARE",
        help="exit with code 1 if a larger share of the rows than this, such as 0.05 or 5%%, is beyond a limit",
    )


def add_partition_option(parser: argparse.ArgumentParser) -> None:
    """Add --partition, which assigns rows to sites."""
    parser.add_argument(
        "--partition",
        metavar="SPEC",
        help="how to assign rows to sites: \"by_column('site')\" (default: a folder's files, or a column of sites)",
    )


def _add_limit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the limits of T2 and SPE."""
    parser.add_argument(
        "--level",
        type=common.parse_share,
        default=LEVEL,
        metavar="P",
        help=f"the share of ordinary rows that stay within a limit, such as 0.99 or 99%% (default: {LEVEL:g})",
    )
    parser.add_argument(
        "--limits",
        choices=SOURCES,
        help=(
            "take limits from the rows of all clients, after a run with --monitor, or from theory (default: clients "
            "if available)"
        ),
    )
    parser.add_argument(
        "--trained",
        action="store_true",
        help="DATA has the rows of the run instead of new rows (limits from theory are then a little lower)",
    )


def run_score(args: argparse.Namespace) -> int:
    """Score rows, write the files, and print anomalies. Return 1 if the share of anomalies exceeds --fail-above."""
    out = args.out and _output_file(args.out, (".csv",))
    picture = args.picture and _output_file(args.picture, (".svg", ".png"))
    if args.fail_above is not None:
        checks.number("--fail-above", args.fail_above, least=0.0, most=1.0, remedy="Give a share, such as 0.05.")
    result = common.result_of(args.result, missing=args.missing)
    sites, column = sites_of(args, result)
    if args.local is not None or args.fit_local:
        _require_by_site(result)
    result = result_for_site(result, args, sites)
    monitor = Monitor(result, n_components=args.components)
    limits = monitor.limits(
        args.level, source=args.limits, trained=args.trained, sites=() if args.trained or args.fit_local else sites
    )
    scored = {site: monitor.score(X) for site, X in sites.items()}
    found = monitor.anomalies(sites, limits, top=args.top)
    places = {site: _ids_and_files(X, len(scored[site].t2)) for site, X in sites.items()}
    rows = sum(len(s.t2) for s in scored.values())
    beyond = sum(int(s.beyond(limits).sum()) for s in scored.values())
    if out is not None:
        _write_scores(out, places, scored, found)
    if picture is not None:
        from flower_pca.plots import monitored

        monitored.spe_against_t2(scored, limits, picture)
        picture.chmod(0o600)  # The picture shows each row.
    if args.json:
        placed = [(a, places[a.site][a.row]) for a in found]
        plain = [{**asdict(a), **dict(zip(_PLACE, place, strict=True))} for a, place in placed]
        common.print_json({"rows": rows, "beyond": beyond, "limits": limits.as_json(), "anomalies": plain})
    else:
        _print_anomalies(found, places, limits, rows, beyond, hint=result.shrinkage_hint)
        sys.stdout.write(f"Sites are by the column {column}.\n" if column else "")
        wrote = [str(file) for file in (out, picture) if file is not None]
        sys.stdout.write(f"Wrote {' and '.join(wrote)}\n" if wrote else "")
    return int(args.fail_above is not None and beyond > args.fail_above * rows)


def _require_by_site(result: PCAResult) -> None:
    """Raise a ConfigError about --local and --fit-local if the result scores rows of all sites alike."""
    if not result.is_by_site:
        raise ConfigError(
            "--local and --fit-local are only for runs with --adjust site or --harmonize, but this run used neither. "
            "Leave --local and --fit-local out."
        )


def sites_of(args: argparse.Namespace, result: PCAResult) -> tuple[dict[Any, Any], str]:
    """Return the rows of each site by name, and the column of names that was found without --partition, or ""."""
    from flower_pca.data import partition

    require_whole_rows(args.data, result)
    needed, found = None if args.partition is None else partition.label_column(args.partition), ""
    beside = () if needed is None else (needed,)
    table = _rows_with_ids(args, result, beside)
    if args.partition is None and len(table.parts) < 2:
        found = _column_of_sites(args.data, table, result)
        if not found:
            (part,) = partition.deal(table, "contiguous", 1)
            return {Path(table.source).stem or common.title_of(args.data): part}, ""
        table = _rows_with_ids(args, result, (found,))
    parts = partition.deal(table, f"by_column({found!r})" if found else args.partition)
    sites = common.by_site(parts)
    common.name_sites_without_rows(sites)
    return {site: rows for site, rows in sites.items() if rows.shape[0]} or sites, found


def require_whole_rows(data: str, result: PCAResult) -> None:
    """Raise a ConfigError about a folder after a run over columns, because no table in the folder has all columns."""
    if result.config.get("partitioned_by") == "columns" and Path(data).expanduser().is_dir():
        raise ConfigError(
            f"{data} is a folder, but the result of a run over columns needs one table with all columns. To project "
            "the file of a single party, use: flower-pca transform flower_pca-local-0.npz FILE"
        )


def _rows_with_ids(args: argparse.Namespace, result: PCAResult, additional_columns: Sequence[str]) -> Any:
    """Return the rows with these additional columns, and with ids if a column has the name of an identifier."""
    from flower_pca.data import sources

    data, features, gaps = args.data, None, common.gaps_by_column(args)
    if result.columns_needed_ is not None:
        features = [*result.columns_needed_]
    table = sources.table_for_columns(data, features, beside=additional_columns, gaps=gaps)
    called = [name for name in output.additional_columns(data, features, gaps) if is_called_identifier(name)]
    with suppress(ConfigError):  # Some file formats cannot keep columns that are not features.
        for name in called[:1]:
            return sources.table_for_columns(data, features, beside=(*additional_columns, name), gaps=gaps).with_ids(
                name
            )
    return table


def _column_of_sites(data: str, table: Any, result: PCAResult) -> str:
    """Return the additional column that is called site, or that contains only names of the run's sites, or ""."""
    from flower_pca.data import sources

    features = set[str]()
    if result.feature_names_in_ is not None:
        features = {labels.clean_name(str(name)) for name in result.feature_names_in_}
    beside = [name for name in (*table.words, *(table.names or ())) if features and name and name not in features]
    if called := [name for name in beside if name.casefold() == "site"]:
        return str(called[0])
    known = set(result.site_names.values())
    texts = [name for name in beside if name in table.words]
    if not known or not texts:
        return ""
    values = sources.table(data, beside=texts).beside
    return next((name for name in texts if set(map(str, values[name].tolist())) <= known), "")


def _output_file(path: Path, endings: Sequence[str]) -> Path:
    """Return the path of the file to write, or raise an error before any work if the file cannot be written."""
    place = path.expanduser().absolute()
    checks.parent_exists(place.name, place)
    if place.suffix.lower() not in endings:
        raise ConfigError(
            f"The file for the scores must end in {' or '.join(endings)}, but {place.name} does not. Name "
            f"it scores{endings[0]}, for example."
        )
    return place


_PLACE: Final = ("id", "file")
_Places = Mapping[Any, Sequence[tuple[str, str]]]  # for each site, the id and the file of each row


def _write_scores(
    path: Path, ids_and_files: _Places, scored: Mapping[Any, RowScores], found: Sequence[Anomaly]
) -> None:
    """Write a line for each row, with its site, id and file. For rows beyond a limit, add which limit and why."""
    why: dict[tuple[Any, int], list[Anomaly]] = {}
    for anomaly in found:
        why.setdefault((anomaly.site, anomaly.row), []).append(anomaly)
    lines: list[list[str]] = []
    for site, scores in scored.items():
        for row, (t2, spe) in enumerate(zip(scores.t2, scores.spe, strict=True)):
            here = why.get((site, row), [])
            beyond = " ".join(anomaly.statistic for anomaly in here)
            because = "; ".join(f"{anomaly.statistic}: {anomaly.because}" for anomaly in here)
            lines.append(
                [str(site), str(row), repr(float(t2)), repr(float(spe)), beyond, because, *ids_and_files[site][row]]
            )
    output.write_table(path, ["site", "row", "T2", "SPE", "beyond", "because", *_PLACE], lines)


def _ids_and_files(rows: Any, n: int) -> list[tuple[str, str]]:
    """Return the id and the file of each row, with "" if they are not known."""
    ids, origin = getattr(rows, "ids", None), getattr(rows, "origin", None)
    files = [""] * n
    if origin is not None:
        parts = [origin.of_rows(slice(row, row + 1)) for row in range(n)]
        files = [Path(part.file).name for part in parts]
    return [*zip(map(str, ids or [""] * n), files, strict=True)]


def _print_anomalies(
    found: Sequence[Anomaly], ids_and_files: _Places, limits: Limits, rows: int, beyond: int, *, hint: str
) -> None:
    """Print the rows that are farthest beyond a limit, the number of rows beyond a limit, and the limits."""
    worst = sorted(found, key=lambda anomaly: -anomaly.value / anomaly.limit)
    order = worst[:_SHOWN]
    if order:
        placed = [ids_and_files[a.site][a.row] for a in order]
        numbered = enumerate(_PLACE)
        whose = {name: [place[i] for place in placed] for i, name in numbered}
        known = {name: texts for name, texts in whose.items() if any(texts)}
        head = ["site", "row", *known, "statistic", "value", "limit", "largest contributions"]
        cells = [
            [f"{a.site}", f"{a.row}", *of_row, a.statistic, f"{a.value:.4g}", f"{a.limit:.4g}", a.because]
            for a, *of_row in zip(order, *known.values(), strict=True)
        ]
        common.print_table(head, cells, text=(0, *range(2, len(known) + 3), len(head) - 1))
    if len(found) > len(order):
        sys.stdout.write(f"and {len(found) - len(order):,} more; use -o FILE.csv to write all\n")
    are = "is" if beyond == 1 else "are"
    counted = labels.count(rows, "row")
    sys.stdout.write(f"{beyond:,} of {counted} ({beyond / rows:.2%}) {are} beyond a limit; ")
    values = {"T2": limits.t2, "SPE": limits.spe}
    exceeded = [f"exceed the limit of {name}" for name in values if math.isfinite(values[name])]
    ordinary = ", and as many ".join(exceeded) or "exceed a limit"
    sys.stdout.write(f"of ordinary rows, {1.0 - limits.level:.3g} {ordinary}.\n")
    told = [f"{name} {limit:.4g}" if math.isfinite(limit) else f"{name} none" for name, limit in values.items()]
    sys.stdout.write(f"Limits: {', '.join(told)}, from {limits.words}.\n")
    if hint:
        sys.stdout.write(f"{hint} The limits allow for this.\n")
