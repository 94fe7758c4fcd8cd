"""The answers of docs/data-protection.md to an impact assessment: each sentence about the software has its tests."""

import inspect
import re
import socket
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import falling
from dishonest import Node, Sums, signed
from fake_grid import Context, FakeGrid, in_a_run
from flwr.app.metadata import Metadata
from pages import text
from test_columns_nodes import fitted_by_columns, frames, rows_of_sites

from flower_pca import DP, PCAResult, assembly, report, simulate, strategies
from flower_pca.base.files import read
from flower_pca.clients import Rules, client_app
from flower_pca.clients.policy import small_cells
from flower_pca.clients.storage import folders, record
from flower_pca.dp.gaussian import noise_of
from flower_pca.rows.frame import Frame

D = 6
SHARDS = np.split(falling(210, D, seed=19) + 3.0, [60, 130])
BUDGET = {"dp.clip": 1.0, "dp.noise": 8.0, "dp.budget": noise_of(1.0, 1e-6) ** 2}

# How each sentence begins that says something about the software, and the tests that fail if it is not true.
HELD = {
    "The program computes one PCA over sites": (
        "test_data_protection.py::test_a_masked_run_finds_what_one_table_would_give",
        "masking/test_masked_equals_unmasked.py::test_masked_equals_unmasked",
    ),
    "A run that names its `columns` gets no others": (
        "test_named_nodes.py::test_the_columns_of_a_run_are_picked_by_nodes",
    ),
    "A node opens no connection of its own": ("test_impact_assessment.py::test_a_node_opens_no_connection_of_its_own",),
    "The result is written on the SuperLink's machine": (
        "deployment/test_reach.py::test_the_result_is_written_where_the_superlink_runs_for_whoever_starts_a_run",
    ),
    "Flower itself reports when its programs start": (
        "test_what_flower_reports.py::test_programs_report_that_they_start_and_ask_for_a_newer_version",
        "test_what_flower_reports.py::test_a_node_reports_that_it_ends",
        "test_what_flower_reports.py::test_a_report_has_facts_about_the_machine_and_no_rows",
        "test_what_flower_reports.py::test_with_the_variable_nothing_is_reported",
    ),
    "The unit and the containers set both": (
        "test_what_flower_reports.py::test_the_unit_and_the_images_have_both_variables",
    ),
    "Flower also asks `api.flower.ai`": (
        "test_what_flower_reports.py::test_flower_asks_for_a_newer_version_unless_another_variable_is_set",
    ),
    "At a node with default rules, two tables": (
        "privacy/test_fixed_answers.py::test_whatever_is_asked_the_same_statistics_give_the_same_answer",
        "privacy/test_fixed_answers.py::test_answers_from_measured_statistics_read_no_rows",
    ),
    "The page that `flower-pca rules` prints for a profile": (
        "attacks/test_pages_of_profiles.py::test_what_is_left_open_is_open",
    ),
    "The page that `flower-pca rules` prints for each site": (
        "attacks/test_pages_of_profiles.py::test_every_sentence_of_the_page_is_played",
        "attacks/test_profiles.py::test_a_sentence_of_a_profile_holds",
    ),
    "`result.config` has the masks": (
        "test_impact_assessment.py::test_a_result_says_which_masks_and_noise_it_was_computed_with",
    ),
    "The last two parts of that page": ("attacks/test_pages_of_profiles.py::test_what_is_left_open_is_open",),
    "The audit measures": (
        "privacy/test_audit.py::test_the_command_writes_what_the_library_finds",
        "privacy/test_audit.py::test_every_algorithm_can_be_audited_and_runs_as_ever",
    ),
    "Yes, with the certificates": (
        "test_keys.py::test_the_certificate_holds_for_every_name",
        "test_keys.py::test_the_certificate_holds_for_no_other_name_and_no_other_authority",
    ),
    "TLS hides nothing from the server": (
        "privacy/test_audit.py::test_products_tell_everything_once_their_blocks_span_everything",
    ),
    "`result.config` has the options": (
        "test_impact_assessment.py::test_a_result_says_which_masks_and_noise_it_was_computed_with",
        "test_impact_assessment.py::test_options_and_messages_are_saved_with_the_result",
    ),
    "`report.html` has the algorithm": (
        "test_impact_assessment.py::test_a_report_says_how_rows_were_protected_and_not_every_option",
        "test_report.py::test_long_tables_are_cut_in_the_middle",
    ),
    "Sites that were left out are named": (
        "test_sites_left_out.py::test_nodes_that_refuse_are_left_out_with_their_reason",
        "test_sites_left_out.py::test_table_report_json_and_show_say_who_was_left_out",
    ),
    "A site without rows that took part": ("masking/test_empty_sites.py::test_nodes_may_have_files_without_rows",),
    "`result.privacy` says it": (
        "test_private_runs.py::test_the_noise_on_all_messages_together_is_the_budget",
        "test_private_runs.py::test_what_was_spent_is_saved_with_the_result",
    ),
    "With `max-epsilon`, the node adds up": (
        "attacks/test_ledger.py::test_noise_is_not_averaged_away_under_changing_names_of_runs",
        "attacks/test_federations.py::test_a_budget_is_spent_once_whatever_partition_id_asks",
    ),
    "At the node, `flower-pca spent` prints": ("test_spent.py::test_spent_prints_the_epsilon_of_all_answers_together",),
    "With masks it is the same as without": ("masking/test_masked_equals_unmasked.py::test_masked_equals_unmasked",),
    "The status says whether": ("test_report.py::test_how_the_run_ended_is_said_in_words_and_color",),
    "A result of a run over rows has nothing": (
        "test_data_protection.py::"
        "test_neither_a_result_nor_the_folder_of_a_node_without_a_copy_has_anything_as_long_as_the_rows",
    ),
    "A run over columns has scores of people": (
        "test_columns_nodes.py::test_each_node_writes_its_loadings_with_the_names_of_its_columns_and_people",
    ),
    "A node with `min-change` or `max-epsilon` continues": (
        "test_data_protection.py::"
        "test_a_corrected_value_waits_until_the_copy_is_erased_and_is_then_told_by_the_difference",
        "test_impact_assessment.py::test_a_node_with_min_change_or_a_budget_keeps_a_copy_of_its_rows_in_clear_text",
    ),
    "After that, the difference of two runs": (
        "test_data_protection.py::"
        "test_a_corrected_value_waits_until_the_copy_is_erased_and_is_then_told_by_the_difference",
    ),
    "The command first says what it erases": ("test_forget.py::test_forget_lists_what_it_would_erase",),
    "Yes, if the node has a `memory-dir`": (
        "test_record_of_runs.py::test_a_run_is_one_line_however_many_messages_it_has",
        "test_record_of_runs.py::test_a_refusal_is_written_down_with_its_reason",
        "test_record_of_runs.py::test_the_operator_chooses_whether_and_where_runs_are_recorded",
        "test_record_of_runs.py::test_a_node_with_a_ledger_in_its_home_has_its_record_there",
    ),
    "It says when the run took place": (
        "test_record_of_runs.py::test_a_run_is_one_line_however_many_messages_it_has",
        "test_record_of_runs.py::test_a_refusal_is_written_down_with_its_reason",
        "test_record_of_runs.py::test_nothing_is_run_as_a_formula_by_a_spreadsheet",
    ),
    "It is kept for three years": (
        "test_impact_assessment.py::test_a_record_is_kept_for_three_years",
        "test_record_of_runs.py::test_a_month_goes_when_it_is_older_than_the_days_that_are_kept",
    ),
    "Flower does not tell a node who": (
        "test_impact_assessment.py::test_flower_tells_a_node_the_number_of_a_run_and_nobody_s_name",
        "test_record_of_runs.py::test_a_run_is_one_line_however_many_messages_it_has",
    ),
    "The copy of the rows, the statistics and the ledger": (
        "test_impact_assessment.py::test_a_node_with_min_change_or_a_budget_keeps_a_copy_of_its_rows_in_clear_text",
        "attacks/test_versions.py::test_what_is_released_is_its_owners",
        "attacks/test_ledger.py::test_what_a_node_keeps_is_its_own",
        "privacy/test_fixed_answers.py::test_statistics_outlive_a_restart_and_are_the_owners_alone",
    ),
    "With `min-change` or `max-epsilon`, the folder contains all rows": (
        "test_impact_assessment.py::test_a_node_with_min_change_or_a_budget_keeps_a_copy_of_its_rows_in_clear_text",
    ),
    "After runs of `dcf_pca`": (
        "test_data_protection.py::"
        "test_neither_a_result_nor_the_folder_of_a_node_without_a_copy_has_anything_as_long_as_the_rows",
    ),
    "If there are no more rows than columns": (
        "test_impact_assessment.py::test_the_folder_of_a_node_with_few_rows_reveals_them_up_to_a_rotation",
    ),
    "After runs over columns, it also contains scores": (
        "test_impact_assessment.py::test_the_folder_of_a_node_with_few_rows_reveals_them_up_to_a_rotation",
    ),
    "Otherwise it contains the number of rows": (
        "test_impact_assessment.py::test_a_node_keeps_statistics_and_the_largest_values_and_nothing_else_of_its_rows",
    ),
    'With the rule `missing="mean"`, C also says': (
        "test_impact_assessment.py::test_a_node_keeps_statistics_and_the_largest_values_and_nothing_else_of_its_rows",
    ),
    "During a masked run, it contains the secrets": (
        "test_impact_assessment.py::test_during_a_masked_run_a_node_keeps_secrets_and_no_answer",
    ),
    "Without masks they see the answers": (
        "privacy/test_audit.py::test_products_tell_everything_once_their_blocks_span_everything",
    ),
    "With masks they see only sums": (
        "masking/test_protocol.py::test_nothing_but_sums_is_told_in_the_clear",
        "masking/test_protocol.py::test_an_upload_is_indistinguishable_from_uniform_and_its_content_is_not",
        "privacy/test_audit.py::test_under_masks_the_attack_knows_the_sum_and_no_more",
    ),
    "Without masks and noise, a hint": (
        "test_outlying_sites.py::test_bad_sites_below_half_are_all_named_and_nobody_else_is",
        "test_outlying_sites.py::test_outlying_sites_are_named_over_flower",
    ),
    "A site that makes a small change": (
        "test_impact_assessment.py::test_a_site_that_makes_a_small_change_is_not_named",
    ),
    "With masks, no hint names a site": (
        "test_outlying_sites.py::test_the_server_does_not_name_them_under_masks_where_it_sees_no_site",
    ),
    "Not by itself: with all components": ("test_impact_assessment.py::test_a_result_with_all_components_tells_c",),
    "A result with noise is as private": (
        "core/test_noise.py::test_one_row_more_or_less_changes_an_answer_by_at_most_the_clip_squared",
        "test_private_runs.py::test_the_noise_on_all_messages_together_is_the_budget",
    ),
    "The program does not know what a column means": (
        "test_impact_assessment.py::test_the_same_numbers_under_other_names_give_the_same_result",
    ),
    "Not by a run: components are statistics": (
        "test_data_protection.py::"
        "test_neither_a_result_nor_the_folder_of_a_node_without_a_copy_has_anything_as_long_as_the_rows",
    ),
    "`flower-pca score` and monitoring list": (
        "test_score.py::test_the_rows_beyond_a_limit_are_listed_with_the_columns_that_are_why",
    ),
    "Rows stay at the site": ("privacy/test_fixed_answers.py::test_answers_from_measured_statistics_read_no_rows",),
    "A date that is written as text": (
        "test_data_protection.py::test_dates_are_text_unless_they_are_written_as_numbers_as_ages_and_zip_codes_are",
        "test_categorical_nodes.py::test_a_node_tells_the_levels_that_its_operator_has_named_and_no_others",
        "test_explain.py::test_a_node_lets_runs_use_the_covariates_that_its_rule_names",
    ),
    "A date that is written as a number": (
        "test_data_protection.py::test_dates_are_text_unless_they_are_written_as_numbers_as_ages_and_zip_codes_are",
    ),
    "Of ages, years, zip codes": (
        "test_data_protection.py::test_dates_are_text_unless_they_are_written_as_numbers_as_ages_and_zip_codes_are",
    ),
    "Yes, at any time: stop the node": (
        "test_sites_left_out.py::test_a_node_that_leaves_in_mid_run_is_left_out",
        "test_private_runs.py::test_a_client_that_leaves_ends_krylov_and_not_ssi",
    ),
    "With masks, the sums of the other sites": (
        "attacks/test_leaving.py::test_a_site_that_leaves_is_told_by_the_sums_of_the_others_as_the_command_says",
    ),
    "For this reason, sites with the profile": (
        "attacks/test_federations.py::test_without_ids_a_site_that_leaves_ends_the_sums",
        "attacks/test_leaving.py::test_one_site_that_has_not_agreed_is_enough_to_refuse_the_sum",
        "attacks/test_leaving.py::test_nobody_is_made_to_leave",
    ),
}

# How the sentences begin that say what the reader has to do or find out, or where something is said.
ADVICE = (
    "You must name the purpose",
    "The program cannot answer this",
    "What leaves is personal data unless",
    "So a SuperLink, or a recipient",
    "See ",
    "The program cannot decide",
    "The site has the person's row",
    "In the site's file",
    "So correct several values",
    "The SuperLink knows this",
    "No.",
    "Put `memory-dir`",
    "Report the breach",
    "What was sent before cannot",
    "What was sent cannot",
    "Whether this is anonymous",
    "Use noise for such data",
    "Whoever bases a decision on them",
    "Before the node reads the file",
    "Have an expert determine",
)


def sentences_by_question():
    """The sentences of each answer, by its question, without links."""
    page = text("docs/data-protection.md")
    part = page[page.index("## For an impact assessment") : page.index("## A text to sign")]
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", part)
    rows = re.findall(r"^\| (.+\?) \| (.+) \|$", plain, flags=re.MULTILINE)
    return {question: re.split(r"(?<=\.) (?=[A-Z`])", answer) for question, answer in rows}


ANSWERS = sentences_by_question()


@pytest.mark.parametrize("question", ANSWERS)
def test_each_sentence_of_an_answer_is_advice_or_has_its_tests(question):
    for sentence in ANSWERS[question]:
        begins = [start for start in (*HELD, *ADVICE) if sentence.startswith(start)]
        assert len(begins) == 1, sentence


def test_every_listed_sentence_is_in_an_answer():
    sentences = [sentence for answer in ANSWERS.values() for sentence in answer]
    for start in (*HELD, *ADVICE):
        assert any(sentence.startswith(start) for sentence in sentences), start


@pytest.mark.parametrize("start", HELD)
def test_the_named_tests_of_a_sentence_exist(start):
    assert HELD[start]
    for test in HELD[start]:
        file, name = test.split("::")
        assert f"\ndef {name}(" in (Path(__file__).parent / file).read_text(encoding="utf-8"), test


def test_what_is_kept_is_bounded_by_the_numbers_of_the_table():
    page = text("docs/data-protection.md")
    assert (folders.MOST_RUNS, "sixteen newer runs" in page) == (16, True)
    assert f"there are {small_cells._RUNS} other versions of the rows or rules" in page
    assert f"A month has lines for at most {record._MOST:,} runs" in text("docs/node-rules.md")


def test_a_node_opens_no_connection_of_its_own(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise AssertionError("A node has opened a connection.")

    app = client_app(lambda context: SHARDS[context.node_config["partition-id"]], rules=Rules(memory_dir=tmp_path))
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    with in_a_run():
        assert strategies.Krylov(n_components=2, mask=True).fit(FakeGrid(app, 3)).n_samples_ == 210


def test_a_result_says_which_masks_and_noise_it_was_computed_with():
    dp = DP(epsilon=5.0, delta=1e-6, clip=2.0, noise_seed=1)
    plain = simulate("covariance", SHARDS, n_components=2)
    hidden = simulate("covariance", SHARDS, n_components=2, mask="masks(threshold=0.7)", dp=dp)
    assert (plain.config["mask"], plain.config["dp"]) == (None, None)
    again = assembly.config(**hidden.config)
    assert again.mask.threshold == 0.7
    assert (again.dp.epsilon, again.dp.delta, again.dp.clip) == (5.0, 1e-6, 2.0)


def test_options_and_messages_are_saved_with_the_result(tmp_path):
    result = simulate("krylov", SHARDS, n_components=2, mask="masks(threshold=0.7)", scale="std")
    again = PCAResult.load(result.save(tmp_path / "result.npz"))
    assert again.config == result.config
    assert [message.stage for message in again.history] == [message.stage for message in result.history]


def words_of_a_report(result, folder):
    """What a reader sees of it, in one line."""
    page = report.write(result, folder / "report.html", title="Sites").read_text(encoding="utf-8")
    return " ".join(re.sub(r"<[^>]*>", " ", page[page.index("<body") :]).split())


def test_a_report_says_how_rows_were_protected_and_not_every_option(tmp_path):
    dp = DP(epsilon=5.0, delta=1e-6, clip=2.0, noise_seed=1)
    noised = simulate("covariance", SHARDS, n_components=2, dp=dp)
    assert "privacy: epsilon, delta 5, 1e-06" in words_of_a_report(noised, tmp_path)
    masked = simulate("ssi(max_rounds=70)", SHARDS, n_components=2, mask=True, tol=0.0, seed=7)
    names = {i: f"clinic {i}" for i in range(20)}
    told = words_of_a_report(replace(masked, site_names=names), tmp_path)
    assert "answers of a client seen in sums only" in told
    assert "ssi(tol=0.0, max_rounds=70) &middot; seed 7" in told
    assert "clinic 11, and 8 more" in told
    assert "clinic 12" not in told
    other = {**masked.config, "min_nodes": 9, "missing": "own_mean", "wire": "float32", "columns": ["age", "bmi"]}
    assert words_of_a_report(replace(masked, config=other, site_names=names), tmp_path) == told


def test_flower_tells_a_node_the_number_of_a_run_and_nobody_s_name():
    told = {*inspect.signature(Context).parameters} | {name for name in dir(Metadata) if not name.startswith("_")}
    assert "run_id" in told
    assert not [name for name in told if re.search("user|account|owner|flwr_aid|name", name)]


def test_a_record_is_kept_for_three_years(tmp_path):
    now = datetime.now(UTC)
    ages = {1050: True, 1200: False}
    files = {days: tmp_path / f"flower_pca-record-0-{now - timedelta(days=days):%Y-%m}.csv" for days in ages}
    for file in files.values():
        file.write_text("began\n")
    Node(0, SHARDS[0], memory_dir=tmp_path).ask("ssi", {"Z": np.eye(D)})
    assert {days: file.exists() for days, file in files.items()} == ages


def arrays_in_file(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize(
    ("rules", "asked"), [({"min_change": 20}, {}), ({"max_epsilon": 1.0, "max_delta": 1e-6}, BUDGET)]
)
def test_a_node_with_min_change_or_a_budget_keeps_a_copy_of_its_rows_in_clear_text(rules, asked, tmp_path):
    """The copy is a file of numpy's that needs no key."""
    Node(0, SHARDS[0], memory_dir=tmp_path, **rules).ask("ssi", {"Z": np.eye(D)[:, :1], **asked})
    (path,) = tmp_path.glob("flower_pca-rows-*.npz")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert any(
        array.shape == SHARDS[0].shape and np.array_equal(np.sort(array, axis=0), np.sort(SHARDS[0], axis=0))
        for array in arrays_in_file(path).values()
    )


@pytest.mark.parametrize(("missing", "columns_of_gaps"), [("local_mean", 0), ("mean", 1)])
def test_a_node_keeps_statistics_and_the_largest_values_and_nothing_else_of_its_rows(
    missing, columns_of_gaps, tmp_path
):
    rows = SHARDS[0].copy()
    rows[::7, 2] = np.nan
    Node(0, rows, memory_dir=tmp_path, missing=missing).ask("ssi", {"Z": np.eye(D)}, Frame(own=True))
    assert {path.name for path in tmp_path.glob("*.npz")} == {"flower_pca-began-0.npz", "flower_pca-fixed-0.npz"}
    kept = arrays_in_file(tmp_path / "flower_pca-fixed-0.npz")
    np.testing.assert_array_equal(kept["peak"], np.nanmax(np.abs(rows), axis=0))
    np.testing.assert_array_equal(kept["seen"], np.sum(~np.isnan(rows), axis=0))
    width = D + columns_of_gaps
    assert {kept[name].shape for name in kept if name != "header.json"} <= {(D,), (columns_of_gaps,), (width, width)}
    assert [*arrays_in_file(tmp_path / "flower_pca-began-0.npz")] == ["header.json"]


def test_during_a_masked_run_a_node_keeps_secrets_and_no_answer(tmp_path):
    nodes = signed(tmp_path, SHARDS)
    found = Sums(nodes).product(np.eye(D))
    for i in range(3):
        (path,) = (tmp_path / "memory").glob(f"flower_pca-{i}-run-*.npz")
        kept = arrays_in_file(path)
        assert len(kept["after.mask.common"]) == 2  # There is one secret for each peer.
        assert all(name == "header.json" or name.startswith("after.mask.") for name in kept)
        assert not [array for array in kept.values() if array.size == found.size and array.dtype.kind == "f"]


@pytest.mark.slow
def test_the_folder_of_a_node_with_few_rows_reveals_them_up_to_a_rotation(tmp_path):
    few = SHARDS[0][:5]
    Node(0, few, memory_dir=tmp_path / "few").ask("ssi", {"Z": np.eye(D)})
    (path,) = (tmp_path / "few").glob("*fixed*.npz")
    factor, centered = arrays_in_file(path)["factor"], few - few.mean(axis=0)
    np.testing.assert_allclose(factor.T @ factor, centered.T @ centered, atol=1e-9)
    tables = frames()
    rules = {"memory_dir": tmp_path / "columns", "split_columns": "std", "answers": "fixed"}
    with in_a_run():
        fitted_by_columns(rows_of_sites(tables), rules=rules, scale="std")
    for i, table in enumerate(tables.values()):
        factor = arrays_in_file(tmp_path / "columns" / f"flower_pca-fixed-{i}-columns.npz")["factor"]
        assert factor.shape == table.shape[::-1]
        (memory,) = (tmp_path / "columns").glob(f"flower_pca-{i}-run-*.npz")
        assert len(read(memory, "memory")[1]["after.U"]) == len(table)


def test_a_site_that_makes_a_small_change_is_not_named():
    changed = [SHARDS[0] + 0.05 * SHARDS[0].std(axis=0), *SHARDS[1:]]
    plain, found = (simulate("krylov", shards, n_components=2) for shards in (SHARDS, changed))
    assert not np.array_equal(found.components_, plain.components_)
    assert not [hint for hint in found.hints if "most other sites" in hint or "other units" in hint]


def test_a_result_with_all_components_tells_c():
    result = simulate("covariance", SHARDS, n_components=D)
    told = result.components_.T * result.explained_variance_ @ result.components_
    np.testing.assert_allclose(told, np.cov(np.vstack(SHARDS).T), atol=1e-9)


def test_the_same_numbers_under_other_names_give_the_same_result():
    named, plain = (
        simulate("krylov", [pd.DataFrame(rows, columns=list(names)) for rows in SHARDS], n_components=2)
        for names in (("age", "child", "diabetes", "gene", "hiv", "sex"), "abcdef")
    )
    np.testing.assert_array_equal(named.components_, plain.components_)
