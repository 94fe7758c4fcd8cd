"""What the pages on privacy, masked sums and noise, and that for administrators, promise, and the tests that play it.

docs/data-protection.md and the page of `flower-pca rules` have tests of their own: test_impact_assessment.py and
attacks/test_pages_of_profiles.py.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from pages import text

from flower_pca.masking import coverage

# How each sentence begins, without links and without bold, and the tests that fail if it is not true.
PRIVACY = {
    "These numbers are exact": "core/test_opening.py::test_frame_trace_and_product_are_those_of_all_rows_together",
    "the largest absolute value of every column": "attacks/test_pages_of_profiles.py::one_true_entry",
    "Whatever the server asks, it sees a function of": (
        "privacy/test_fixed_answers.py::test_whatever_is_asked_the_same_statistics_give_the_same_answer"
    ),
    "Two tables with the same statistics give the same answers": (
        "privacy/test_fixed_answers.py::test_two_tables_with_the_same_statistics_give_the_same_run"
    ),
    "With `memory_dir`, the statistics are kept over a restart": (
        "privacy/test_fixed_answers.py::test_statistics_outlive_a_restart_and_are_the_owners_alone"
    ),
    "The server can learn all of": "attacks/test_pages_of_profiles.py::all_of_C_and_rows_up_to_a_rotation",
    "If rows change, the difference between two answers": "attacks/test_pages_of_profiles.py::what_changes",
    "A node refuses a run whose noise does not": (
        "privacy/test_attacks_on_rows.py::test_nor_does_noise_that_is_none_open_a_way_to_rows"
    ),
    "So a node runs them only if its operator has named them": (
        "privacy/test_fixed_answers.py::test_they_are_served_by_name_only"
    ),
    "If a server chooses the value that replaces": (
        "privacy/test_gaps_at_nodes.py::test_two_fills_tell_the_rows_with_gaps_where_a_server_chooses_them"
    ),
    "A node with missing values refuses a run with": (
        "privacy/test_gaps_at_nodes.py::test_own_means_are_not_the_servers_to_choose"
    ),
    "It also refuses the run if a column has missing values": (
        "privacy/test_gaps_at_nodes.py::test_a_column_with_few_gaps_is_never_filled_by_others"
    ),
    "A node with this rule also looks for small cells": (
        "attacks/test_rare_columns.py::test_a_person_in_whom_the_gaps_of_two_columns_differ_is_not_told"
    ),
    "With `share_names=False`, it sends only": "test_named_nodes.py::test_a_node_may_keep_names_to_itself",
    "If a node refuses a message, the error may name": (
        "attacks/test_said_of_the_machine.py::test_no_path_and_no_cell_leaves_a_node"
    ),
    "So a node reveals levels only for the columns": (
        "test_categorical_nodes.py::test_a_node_tells_the_levels_that_its_operator_has_named_and_no_others"
    ),
    "Nodes that require noise refuse this message": (
        "test_categorical_nodes.py::test_nodes_that_insist_on_noise_tell_no_levels"
    ),
    "A node never reveals a level that fewer": (
        "test_categorical_nodes.py::test_a_level_of_few_rows_is_not_told_and_counts_as_other"
    ),
    "If all rows with rare levels are together": (
        "test_categorical_nodes.py::test_too_few_rows_for_an_other_go_with_the_commonest_level"
    ),
    "A run can list levels, but no list separates": (
        "test_categorical_nodes.py::test_a_run_may_list_the_levels_and_no_list_parts_what_a_node_has_put_together"
    ),
    "A server that sees the answers of single nodes can still compute": (
        "test_personal_nodes.py::test_what_a_server_that_computes_still_finds_of_own_components"
    ),
    "So a node takes part only if it has the rule `split_columns`": (
        "test_columns_nodes.py::test_a_node_takes_part_by_its_own_rule_only"
    ),
    "A node with this rule takes part in no runs over rows": (
        "attacks/test_by_columns.py::test_two_scales_are_refused_and_rows_beside"
    ),
    "Parties compare their ids by a digest": (
        "test_columns_nodes.py::test_ids_are_told_by_a_digest_of_the_run_and_never_themselves"
    ),
    "In such runs, the rule `min_rows` counts people": "test_columns_nodes.py::test_min_rows_counts_people",
    "If you misspell a rule, the node answers nothing": (
        "test_app.py::test_a_node_refuses_under_its_own_rules_and_the_others_go_on"
    ),
    "When the node starts, its log says which promises": (
        "attacks/test_profiles.py::test_a_node_says_at_start_what_it_runs_and_what_its_own_rules_give_up"
    ),
    "The node answers nothing if it has fewer rows": "attacks/test_profiles.py::zeros_of_no_rows",
    "Messages of the masking protocol count": ("test_policy.py::test_a_node_that_answers_so_many_messages_in_a_run"),
    "Refused messages count": "attacks/test_ledger.py::test_messages_that_are_refused_count_too",
    "the error says only which rule refuses": (
        "attacks/test_discreet_words.py::test_words_about_rows_are_the_same_whichever_rows_are_spoilt"
    ),
    "a column has missing values, if the run asks": "attacks/test_profiles.py::where_values_are_missing",
    "the file differs from the copy, with": (
        "attacks/test_versions.py::test_the_rows_of_a_node_stay_as_they_were_first_answered_from"
    ),
    "With `max_epsilon`, the error reveals none of these": (
        "attacks/test_one_row_more.py::test_one_row_more_changes_no_word_and_no_number_by_more_than_the_clip"
    ),
    "The node writes each answer down before": "attacks/test_ledger.py::test_a_full_disk_is_no_permission",
    "A ledger outlives runs, restarts, the names": (
        "attacks/test_ledger.py::test_neither_a_new_node_id_nor_another_transport_is_a_new_budget"
    ),
    "A node counts in every ledger of its folder": (
        "attacks/test_federations.py::test_messages_and_columns_are_counted_in_all_ledgers_of_the_rows"
    ),
    "the same rows in another folder": "attacks/test_pages_of_profiles.py::again_in_another_folder",
    "the same rows in another file that has other units": (
        "attacks/test_federations.py::"
        "test_what_is_not_known_again_in_another_file_has_a_ledger_of_its_own_but_for_data_name"
    ),
    "If the same rows have two names": (
        "attacks/test_federations.py::test_two_names_for_the_same_rows_are_said_to_the_operator"
    ),
    "It also warns you of another folder": (
        "attacks/test_federations.py::test_a_node_warns_of_a_ledger_in_another_folder_that_knows_its_rows"
    ),
    "The command prints, for example, `epsilon": "test_spent.py::test_it_prints_the_epsilon_of_all_answers_together",
    "Only the user of the node can read the file": "attacks/test_ledger.py::test_what_a_node_keeps_is_its_own",
    "A node refuses a folder to which others may write": (
        "attacks/test_planted_links.py::test_a_folder_from_which_others_may_take_a_ledger_away_is_refused"
    ),
    "On systems without file locks": "attacks/test_ledger.py::test_a_system_that_cannot_lock_files_is_said_so",
    "A damaged ledger stops the node": "attacks/test_ledger.py::test_a_ledger_that_cannot_be_read_is_no_permission",
    "A missing ledger stops the node if": (
        "attacks/test_federations.py::test_a_ledger_that_is_gone_beside_released_rows_is_damage"
    ),
    "The node also stops if `flower_pca-marks.npz`": (
        "attacks/test_federations.py::test_a_key_of_marks_that_is_gone_beside_ledgers_is_damage"
    ),
    "It refuses a run with a larger budget": (
        "attacks/test_ledger.py::test_a_run_cannot_name_a_budget_beyond_that_of_the_node"
    ),
    "It has one line for each run": "test_record_of_runs.py::test_a_run_is_one_line_however_many_messages_it_has",
    "If it cannot write the line, it does not answer": (
        "test_record_of_runs.py::test_an_answer_that_cannot_be_written_down_does_not_leave"
    ),
    "Of more than 5,000 runs in a month": "test_record_of_runs.py::test_names_of_runs_without_end_share_a_line",
    "The node removes months that are older": (
        "test_record_of_runs.py::test_a_month_goes_when_it_is_older_than_the_days_that_are_kept"
    ),
    "The difference between the two honest sums is the row": (
        "attacks/test_versions.py::test_one_patient_more_is_not_told_by_two_honest_masked_sums"
    ),
    "The node then answers from a copy of its rows": (
        "attacks/test_versions.py::test_the_rows_of_a_node_stay_as_they_were_first_answered_from"
    ),
    "these people could be a table of their own": (
        "attacks/test_versions.py::test_a_lot_has_to_be_what_a_table_has_to_be"
    ),
    "no column with up to 12 different values has missing": (
        "attacks/test_versions.py::test_the_mean_that_fills_a_gap_and_moves_with_a_lot_tells_nobody"
    ),
    "Columns that reveal few people stay excluded": (
        "attacks/test_versions.py::test_a_column_that_told_of_few_people_is_in_no_run_after_a_lot"
    ),
    "Nobody leaves the copy, nobody's row in it changes": (
        "attacks/test_versions.py::test_people_are_added_in_lots_and_nobody_who_is_there_changes"
    ),
    "It learns nothing about one person among them": (
        "attacks/test_days.py::test_nobody_is_told_by_all_files_of_a_month"
    ),
    "Masks do not hide these statistics": "attacks/test_profiles.py::people_are_added_in_lots",
    "Such people together with one new person": (
        "attacks/test_versions.py::"
        "test_people_who_are_there_under_second_ids_and_in_other_units_are_a_lot_with_whoever_is_new"
    ),
    "Batches of a stream are exempt from these rules": (
        "attacks/test_versions.py::test_batches_of_a_stream_are_no_versions_and_the_node_says_so"
    ),
    "So with `max_epsilon`, nothing that the node reads": (
        "attacks/test_one_row_more.py::test_no_other_message_is_answered_or_refused_otherwise_for_one_row_more"
    ),
    "the second of two columns of codes": "attacks/test_rare_columns.py::test_pairs_are_found_as_by_hand",
    "the last of several columns of codes": (
        "attacks/test_rare_columns.py::test_of_drawn_columns_of_codes_no_run_gets_a_sum_that_tells_few_people"
    ),
    "No run can use insulin, because": (
        "attacks/test_rare_columns.py::test_two_runs_with_a_column_of_a_combination_each_tell_no_person"
    ),
    "a value far beyond all others in its column": (
        "attacks/test_pages_of_profiles.py::a_person_with_a_value_far_beyond_all_others"
    ),
    "combinations of columns of measurements": (
        "attacks/test_pages_of_profiles.py::a_person_in_a_combination_of_columns"
    ),
    "combinations of codes with other coefficients": (
        "attacks/test_pages_of_profiles.py::a_person_in_codes_by_fractions"
    ),
    "combinations of columns of codes, if": (
        "attacks/test_rare_columns.py::test_a_table_of_very_many_codes_says_that_combinations_are_not_looked_at"
    ),
    "entries of the cross table": "attacks/test_pages_of_profiles.py::products_of_two_columns",
    "An answer counts as the number of its entries": (
        "test_policy.py::test_columns_that_leave_are_counted_as_they_leave"
    ),
    "If two sums are over groups that differ": (
        "attacks/test_groups.py::test_one_left_out_tells_it_alone_unless_there_is_a_rule"
    ),
    "It also limits how often the node may say": "attacks/test_bounds.py::test_where_losses_are_counted_it_ends",
    "With `min_change`, the node accepts another group": (
        "attacks/test_federations.py::test_a_site_that_leaves_is_not_told_by_the_sum_of_those_that_are_left"
    ),
    "if a site leaves with its signature": (
        "attacks/test_leaving.py::test_a_site_that_leaves_is_told_by_the_sums_of_the_others_as_the_command_says"
    ),
}
MASKED_SUMS = {
    "A client gives away only one of the two shares": (
        "masking/test_protocol.py::test_a_client_gives_away_one_share_of_a_peer_and_only_if_enough_survive"
    ),
    "So if a server asks one client something else, it gets noise": (
        "masking/test_what_is_asked.py::test_clients_that_are_asked_different_things_do_not_cancel"
    ),
    "If fewer are left, the run ends with": "masking/test_masked_runs.py::test_below_the_threshold_the_run_ends",
    "With two clients, the first drop-out ends the run": (
        "masking/test_masked_runs.py::test_of_two_clients_none_may_drop"
    ),
    "Its row count, and the mean and squares of each column": (
        "attacks/test_sums_without_a_member.py::test_by_default_a_loss_tells_the_rows_mean_and_squares_of_the_one_that_left"
    ),
    "The run then ends if a member is lost": (
        "attacks/test_sums_without_a_member.py::test_by_its_rules_no_sum_is_told_without_a_member"
    ),
    "a server that lies about drop-outs can unmask": (
        "masking/test_single_masks.py::"
        "test_a_server_that_lies_about_drop_outs_opens_an_upload_unless_there_are_self_masks"
    ),
    "So nodes refuse such sums unless": "masking/test_single_masks.py::test_nodes_refuse_unless_their_own_rule_agrees",
    "By halving the bound again and again": (
        "attacks/test_bounds.py::test_by_default_halving_finds_the_size_of_an_entry"
    ),
    "With `dp`, the server cannot choose bounds": (
        "masking/test_what_is_asked.py::test_under_noise_a_client_keeps_to_its_own_bounds_and_draws_nothing_for_others"
    ),
    "If only one client has measured a column": (
        "attacks/test_measured_columns.py::test_a_column_of_too_few_sites_ends_an_honest_run_before_anything_is_told"
    ),
    "The column has the same value in all rows": (
        "attacks/test_measured_columns.py::test_a_column_that_is_the_same_at_all_sites_is_answered"
    ),
    "All nodes of a sum give the same error": (
        "attacks/test_measured_columns.py::test_every_node_refuses_in_the_same_words_whether_or_not_it_has_measured"
    ),
    "If it keeps a letter back, the column counts": (
        "attacks/test_measured_columns.py::test_a_server_that_keeps_letters_back_gets_no_sum"
    ),
    "About one in 254 pairs of different values": "test_promises_of_pages.py::test_few_values_have_the_same_digest",
    "Nodes with `max_epsilon` send none either": (
        "attacks/test_measured_columns.py::test_a_node_with_a_budget_tells_its_peers_nothing_of_its_columns"
    ),
    "The site adds zeros to every sum": "masking/test_empty_sites.py::test_nodes_may_have_files_without_rows",
    "The node refuses, and the result says so": (
        "masking/test_empty_sites.py::test_min_rows_keeps_no_site_without_rows_out_and_min_change_does"
    ),
    "The run ends, because every site needs rows": (
        "masking/test_empty_sites.py::test_sites_cannot_be_harmonized_with_none"
    ),
    "If fewer than `min_peers` other sites have rows": "masking/test_empty_sites.py::test_an_empty_site_hides_nobody",
    "nodes with `max_epsilon` count the site": (
        "masking/test_empty_sites.py::test_nodes_with_a_budget_count_it_among_their_peers"
    ),
    "With signed keys, a server that replaces a key": (
        "masking/test_signed_keys.py::test_a_server_that_meddles_with_the_keys_is_refused"
    ),
    "If a signature is missing in a group": (
        "masking/test_signed_keys.py::test_a_node_that_asks_for_signatures_leaves_a_group_in_which_one_is_missing"
    ),
    "S sums take 2 + 2 S messages": ("masking/test_protocol.py::test_two_messages_of_set_up_and_two_for_each_sum"),
}
ADMINISTRATOR = {
    "It then refuses all other apps": (
        "deployment/test_signed_apps_live.py::"
        "test_an_app_that_the_reviewer_has_not_signed_is_refused_before_any_of_it_runs"
    ),
    "Without signed apps, the firewall": (
        "deployment/test_signed_apps_live.py::test_a_node_without_trusted_entities_runs_whatever_comes"
    ),
    "The SuperLink turns away nodes": (
        "deployment/test_deployment.py::test_a_node_with_a_key_that_is_not_registered_is_refused"
    ),
    "Only here do you find paths": "attacks/test_said_of_the_machine.py::test_no_path_and_no_cell_leaves_a_node",
    "A missing site was left out": "test_sites_left_out.py::test_nodes_that_refuse_are_left_out_with_their_reason",
    "To leave out a site that claims more": (
        "attacks/test_claimed_rows.py::test_a_node_that_claims_more_rows_than_one_may_have_is_left_out"
    ),
    "With masks or noise the run then ends": (
        "attacks/test_claimed_rows.py::test_a_sum_of_too_many_rows_ends_the_run_where_nobody_can_say_whose_they_are"
    ),
    "They last one year": "test_keys.py::test_valid_since_yesterday_for_a_year",
}
DIFFERENTIAL_PRIVACY = {
    "One row then changes": (
        "core/test_noise.py::test_one_row_more_or_less_changes_an_answer_by_at_most_the_clip_squared"
    ),
    "Instead of its number of rows, it sends 1": "test_private_runs.py::test_a_node_never_tells_its_number_of_rows",
    "The run takes all of these rounds": "test_private_runs.py::test_the_run_takes_exactly_its_rounds_and_says_so",
    "Without masks, every client adds the full noise": (
        "masking/test_shared_noise.py::test_without_masks_a_client_adds_the_noise_in_full"
    ),
    "Any m honest clients together": (
        "masking/test_shared_noise.py::test_the_fewest_survivors_alone_have_the_stated_noise"
    ),
    "The budget counts an upload that is lost": (
        "masking/test_shared_noise.py::test_whatever_the_server_asks_again_a_client_tells_no_more_than_the_budget"
    ),
    "the node answers nothing beyond the budget": (
        "core/test_noise.py::test_a_client_answers_up_to_the_budget_and_no_more"
    ),
    "`max_epsilon` and `max_delta` limit": (
        "attacks/test_ledger.py::test_noise_is_not_averaged_away_under_changing_names_of_runs"
    ),
    "`flower-pca spent` prints": "test_spent.py::test_it_prints_the_epsilon_of_all_answers_together",
    "Without this rule, the node adds the full noise": (
        "attacks/test_noise_of_one_row.py::test_peers_that_a_server_invents_take_no_noise_away"
    ),
    "`max_colluders` is the number": (
        "attacks/test_ledger.py::test_colluders_that_the_server_does_not_name_weaken_no_noise"
    ),
    "Without them, a node with missing values refuses noise": (
        "attacks/test_noise_of_one_row.py::test_a_node_with_missing_values_refuses_noise"
    ),
    "A row with a missing value then counts": (
        "attacks/test_noise_of_one_row.py::test_with_a_budget_over_all_runs_a_row_with_a_gap_counts_as_zeros"
    ),
    "The last digits of a number with noise": (
        "attacks/test_last_digits.py::test_no_message_proves_that_a_row_is_missing"
    ),
}
PAGES = {
    "privacy": PRIVACY,
    "masked-sums": MASKED_SUMS,
    "administrator": ADMINISTRATOR,
    "differential-privacy": DIFFERENTIAL_PRIVACY,
}


def words_printed_of(page):
    """The text of a page in one line, without links and bold."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text(f"docs/{page}.md"))
    return " ".join(words.replace("**", "").split())


@pytest.mark.parametrize("page", PAGES)
def test_each_sentence_is_on_its_page_and_its_test_is_there(page):
    said = words_printed_of(page)
    for start, test in PAGES[page].items():
        assert start in said, start
        file, _, name = test.partition("::")
        assert f"\ndef {name}(" in (Path(__file__).parent / file).read_text(encoding="utf-8"), test


def test_few_values_have_the_same_digest():
    digests = np.array([coverage._digest(value) for value in np.linspace(-1.0, 1.0, 2000)])
    same = np.mean(digests[:, None] == digests) - 1.0 / 2000
    assert 1 / 300 < same < 1 / 200
