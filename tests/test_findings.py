"""The findings of a hard week of use, by number: which tests hold each of them. A test that is renamed fails here."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

# A title, and the tests as MODULE: NAMES; a module without names stands for all of its tests.
FINDINGS: dict[int, tuple[str, dict[str, str]]] = {
    1: ("stars with GROUP BY", {"sql_stars": "random_stars_equal_duckdb_at_every_version single_queries"}),
    2: ("stars over several joins", {"sql_stars": "a_star_has_postgresql_s_order_of_columns"}),
    3: ("CSV that ends inside of a quote", {
        "csvrows": "a_file_that_ends_inside_of_a_quote_is_refused quotes_of_any_bytes_are_found_as_byte_by_byte",
    }),
    4: ("other columns of an output", {
        "changed_programs": "other_columns_are_there_at_once_at_every_version a_change_of_columns_that_was_killed "
        "a_log_of_before_is_in_earlier_versions_of_its_table dry_run_tells_what_becomes_of_each_output",
        "given_up_runs": "that_gave_an_output_other_columns "
        "that_gave_an_output_other_columns_and_the_program_changes_back",
    }),
    5: ("labels of restated versions", {
        "version_names": "a_restated_version_keeps_its_label_unless_it_gets_another "
        "a_restated_version_keeps_its_date_when_only_others_bring_theirs",
    }),
    6: ("a day that never came", {
        "version_names": "a_day_that_never_came_is_not_answered_by_another "
        "what_never_came_is_not_answered_by_what_did who_asks_for_it_gets_the_newest_version_before "
        "in_python_too_a_day_that_never_came_is_an_error a_day_that_never_came_is_not_restated_over_the_next",
    }),
    7: ("a new column that nothing uses", {
        "plan": "a_column_that_nothing_needs_is_no_part_of_the_program a_column_that_is_needed_is_a_part_of_it",
        "changed_schema": "an_added_column_that_nothing_uses_leaves_state_and_what_was_true_before",
    }),
    8: ("one clock for all inputs", {"clocks": ""}),
    9: ("restored backups", {"restored_backups": ""}),
    10: ("unreadable is not missing", {"unreadable": "", "source_files": ""}),
    11: ("nested operands", {
        "shared_parts": "nested_operands_cost_as_much_as_their_text the_cost_of_nested_shared_parts_is_linear",
    }),
    12: ("a thousand terms", {
        "shared_parts": "a_thousand_terms_in_sql a_thousand_terms_are_what_polars_makes_of_them "
        "the_cost_of_a_chain_is_linear",
    }),
    13: ("settings and answers of stores", {"store_answers": "", "stores": "urls_that_name_no_warehouse"}),
    14: ("limits, memory and words", {
        "csvrows": "a_json_line_of_the_limit_is_read_and_one_more_byte_is_not "
        "a_csv_row_of_the_limit_is_read_and_one_more_byte_is_not",
        "jsonlines": "a_line_that_is_cut_at_any_byte_is_called_so",
        "memory_limits": "",
        "left_behind": "",
        "sql_stars": "the_error_of_a_subquery_with_several_rows_shows_what_was_written",
    }),
    15: ("a collection as a condition, columns left out", {
        "mistakes": "a_collection_as_a_value_of_python an_aggregate_as_a_condition",
        "left_out": "",
        "feed": "only_columns_of_the_table_are_told_as_left_out",
    }),
    16: ("compiling", {
        "kernel_cache": "a_command_without_a_bar_shows_one_while_it_compiles the_time_of_compiling_is_no_operators",
    }),
    17: ("a ledger after an undo", {
        "ledger": "after_an_undo_of_a_restatement_each_ingest_waits_once",
        "histories": "every_read_agrees_after_each_of_many_commands",
        "compaction": "no_run_ends_before_the_history_that_is_kept",
    }),
    18: ("a comma before JOIN", {"sql_stars": "random_stars_equal_duckdb_at_every_version single_queries"}),
    19: ("corrections and new rows", {"changed_programs": "a_correction_and_new_rows_of_one_version_are_added_up"}),
    20: ("rewrite or append", {"changed_programs": "a_changed_program_and_a_late_row_in_one_run"}),
    21: ("null literals, casts, ties", {
        "null_literals": "", "operators": "nulls_come_last_in_ties_too null_comes_after_the_greatest_number",
    }),
    22: ("constants and counts of nothing", {"constants": ""}),
    23: ("what a small run costs", {
        "benchmarks": "a_banks_day_is_compared_with_duckdb", "heads": "", "imports": "",
    }),
    24: ("the number of files", {"growth": ""}),
    25: ("status, explain, report, progress", {
        "cli_commands": "status_sums_state_up_in_one_line",
        "cli_explain": "many_input_rows_are_counted_and_some_are_shown",
        "browser": "a_page_looks_right tables_and_the_dataflow_fit_the_screen",
        "profile": "progress_says_which_operator_and_how_much_is_done",
    }),
    26: ("ignored signals", {
        "cli_main": "these_tests_pass_where_a_signal_is_ignored "
        "a_command_goes_on_where_its_caller_ignores_a_signal",
    }),
    27: ("first steps", {
        "guessing": "", "readme": "the_first_page_says_what_to_install_and_which_engine_runs",
        "clocks": "examples_that_follow_a_table_say_its_version",
    }),
}  # fmt: skip


@cache
def names_in(module: str) -> frozenset[str]:
    tree = ast.parse(Path(__file__).with_name(f"test_{module}.py").read_text())
    return frozenset(item.name for item in tree.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("number", FINDINGS)
def test_each_finding_has_its_tests(number: int) -> None:
    for module, names in FINDINGS[number][1].items():
        assert any(name.startswith("test_") for name in names_in(module))
        assert {f"test_{name}" for name in names.split()} <= names_in(module), (number, module)


def test_none_is_left_out() -> None:
    assert [*FINDINGS] == list(range(1, 28))
