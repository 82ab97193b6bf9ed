"""Every entry of the lists of bad input has tests that show its answer: here stands which, or why there are none.

A to E, G and I are chapters of the threat model: keys, tenants, bodies, files, places, logs, abuse; an entry that
begins with a route is bad input of it. Each names tests as `file::function`, or says in words what the platform has
not that the entry attacks.
"""

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
KEYS, BODIES, PLACES = "contract/test_bad_requests", "contract/test_bad_bodies", "contract/test_bad_places"
SOCKETS, FOREIGN, INPUT = "contract/test_over_sockets", "contract/test_foreign_ids", "integration/http/test_bad_input"
COMPARE = "integration/api/test_comparing"
EVALUATIONS, COMPARED = "integration/api/test_evaluations", "integration/api/test_comparing_evaluations"
MATRIX, JOBS, STREAMS = "integration/http/test_contract", "integration/api/test_jobs", "integration/http/test_streams"
LIMITS, AUDIT, WEB = "integration/http/test_rate_limits", "integration/api/test_audit", "fetching/test_web"
RESULTS, HOSTILE, WHERE = (
    "integration/api/test_results",
    "integration/workers/test_hostile_ranks",
    "unit/domain/spec/test_locations",
)

COVERED: dict[str, list[str]] = {
    "A1": [
        f"{MATRIX}::test_every_route_refuses_callers_without_a_good_key",
        f"{MATRIX}::test_open_routes_are_these_alone",
    ],
    "A2": [f"{KEYS}::test_what_is_no_key_is_refused", f"{SOCKETS}::test_odd_headers_are_refused"],
    "A3": [f"{KEYS}::test_every_kind_of_wrong_key_gets_the_same_answer"],
    "A4": [
        f"{KEYS}::test_a_key_in_the_query_opens_nothing_and_is_not_logged",
        f"{SOCKETS}::test_the_log_holds_no_key_and_no_fault",
    ],
    "A5": [
        f"{MATRIX}::test_revoked_and_expired_keys_are_refused_at_once",
        f"{STREAMS}::test_stream_ends_when_its_key_is_revoked",
        "integration/api/test_projects::test_a_project_without_jobs_is_deleted_with_its_keys",
    ],
    "A6": [
        "integration/api/test_keys::test_both_keys_are_good_until_the_grace_ends",
        "integration/api/test_keys::test_without_grace_the_old_key_ends_at_once",
    ],
    "A7": [f"{KEYS}::test_a_key_of_a_viewer_writes_nowhere"],
    "A8": [f"{LIMITS}::test_wrong_keys_of_an_address_are_limited_and_good_ones_go_on"],
    "A9": [
        "no tokens of sandboxes: what a rank says comes over a private socket, and its supervisor writes under a fence"
    ],
    "A10": [f"{KEYS}::test_nothing_sets_a_cookie_and_no_cookie_opens_anything"],
    "A11": [f"{KEYS}::test_a_form_of_another_site_can_send_nothing", f"{KEYS}::test_no_other_origin_is_let_in"],
    "A12": [
        f"{KEYS}::test_host_and_forwarding_headers_are_reflected_nowhere",
        f"{SOCKETS}::test_odd_targets_reach_nothing",
        f"{LIMITS}::test_without_a_configured_proxy_no_client_chooses_its_address",
    ],
    "A13": [f"{KEYS}::test_no_other_origin_is_let_in"],
    "A14": ["no default password: the first start makes a random key, Flower does not start without a password"],
    "B1-B4": [f"{FOREIGN}::test_objects_of_other_projects_look_missing"],
    "B5-B6": [f"{MATRIX}::test_every_role_may_do_exactly_what_the_table_says"],
    "B7": [f"{KEYS}::test_no_key_raises_its_own_role"],
    "B8": [f"{KEYS}::test_no_header_changes_the_method", f"{KEYS}::test_no_trick_with_the_path_reaches_another_rule"],
    "B9": [f"{BODIES}::test_what_is_not_the_callers_to_say_is_refused"],
    "B10": [f"{BODIES}::test_a_query_that_means_nothing_is_refused_and_named"],
    "B11": [
        f"{FOREIGN}::test_lists_show_the_own_project_alone",
        f"{JOBS}::test_page_token_belongs_to_its_list_and_cannot_be_forged",
    ],
    "B12": [
        f"{JOBS}::test_checkpoint_of_another_project_does_not_exist",
        f"{JOBS}::test_results_of_another_project_cannot_be_named_as_a_model",
    ],
    "B13": [
        f"{FOREIGN}::test_objects_of_other_projects_look_missing",
        f"{STREAMS}::test_stream_ends_when_its_key_is_revoked",
    ],
    "B14": [
        f"{FOREIGN}::test_a_validator_tells_nothing_to_others",
        f"{MATRIX}::test_answers_are_neither_cached_nor_guessed",
    ],
    "B15": [
        "integration/api/test_job_deletion::test_checkpoint_that_a_living_job_starts_from_is_not_taken_away",
        "integration/api/test_projects::test_a_new_project_of_the_same_name_has_none_of_the_old_keys",
    ],
    "B16": [f"{FOREIGN}::test_an_idempotency_key_is_of_its_project"],
    **{f"C{n}": [f"{INPUT}::test_raw_bodies_get_their_status"] for n in range(1, 8)},
    "C8": [
        f"{SOCKETS}::test_a_body_over_the_limit_is_refused_by_its_length",
        f"{SOCKETS}::test_a_body_over_the_limit_is_refused_without_a_length",
        f"{SOCKETS}::test_a_body_shorter_than_it_says_makes_nothing",
        f"{INPUT}::test_only_json_is_taken",
    ],
    "C9": [f"{BODIES}::test_thousands_of_parts_cost_nothing"],
    "C10": [f"{INPUT}::test_only_json_is_taken"],
    "C11": [f"{SOCKETS}::test_odd_headers_are_refused", f"{SOCKETS}::test_a_path_without_end_is_refused"],
    "C12": [f"{KEYS}::test_what_is_no_id_is_not_found", f"{INPUT}::test_odd_paths_and_queries_get_their_status"],
    **{
        f"C{n}": ["integration/http/test_bad_documents::test_changed_documents_get_their_status_and_name_the_field"]
        for n in (13, 14, 15, 16)
    },
    "C17": ["unit/cli/test_client_commands::test_submit_says_what_is_wrong_with_a_file"],
    "C18": [f"{BODIES}::test_templates_are_text_and_stay_as_they_are"],
    "C19": [
        f"{BODIES}::test_unknown_fields_are_refused_at_every_depth",
        f"{PLACES}::test_no_other_field_accepts_a_bad_place",
    ],
    "C20": [f"{BODIES}::test_unknown_fields_are_refused_at_every_depth"],
    "C21": ["integration/api/test_job_changes::test_bad_changes_are_refused_whole"],
    "C22": [f"{JOBS}::test_ended_job_cannot_be_cancelled", f"{JOBS}::test_waiting_job_is_cancelled_at_once_and_again"],
    "C23": [f"{BODIES}::test_a_query_that_means_nothing_is_refused_and_named"],
    "C24": [f"{KEYS}::test_methods_are_taken_or_named"],
    "C25": [
        f"{SOCKETS}::test_what_two_readers_would_read_differently_is_refused",
        f"{SOCKETS}::test_lines_without_a_carriage_return_carry_no_second_request",
    ],
    "D1": [
        f"{PLACES}::test_no_other_field_accepts_a_bad_place",
        "integration/http/test_bad_documents::test_changed_documents_get_their_status_and_name_the_field",
    ],
    "D2": [
        f"{PLACES}::test_only_the_recorded_file_itself_is_downloaded",
        f"{PLACES}::test_no_other_path_is_an_artifact",
    ],
    "D3": ["unit/storage/test_storage::test_link_placed_in_the_storage_by_hand_is_not_followed_out_of_it"],
    "D4": [f"{HOSTILE}::test_link_in_place_of_the_output_is_not_exported"],
    **{f"D{n}": [f"{PLACES}::test_nothing_is_uploaded"] for n in (5, 6, 8, 9)},
    "D7": [f"{WEB}::test_compressed_on_the_way_counts_as_what_it_is"],
    "D10": [f"{PLACES}::test_a_page_that_was_trained_is_downloaded_and_not_shown"],
    "D11": [f"{PLACES}::test_odd_ranges_cost_nothing", f"{RESULTS}::test_range_of_an_artifact"],
    "D12": ["integration/api/test_job_deletion::test_files_stay_unless_they_are_to_go"],
    **{
        f"E{n}": [
            f"{PLACES}::test_no_source_is_accepted_at_a_bad_place",
            f"{WHERE}::test_private_addresses_are_refused_however_they_are_written",
        ]
        for n in (1, 2, 3)
    },
    "E4": [
        f"{WEB}::test_name_of_a_private_address_is_refused",
        f"{WEB}::test_name_that_changes_its_address_after_a_look_is_refused",
    ],
    "E5": [
        f"{WEB}::test_redirect_to_a_private_address_is_refused",
        f"{WEB}::test_redirect_to_another_scheme_is_refused",
        f"{WEB}::test_redirects_in_a_circle_end",
    ],
    "E6": [f"{PLACES}::test_no_source_is_accepted_at_a_bad_place", f"{WHERE}::test_malformed_uris_are_refused"],
    "E7": [f"{PLACES}::test_no_source_is_accepted_at_a_bad_place"],
    "E8": [
        f"{PLACES}::test_no_source_is_accepted_at_a_bad_place",
        f"{WHERE}::test_places_elsewhere_and_the_platforms_own_may_not",
    ],
    "E9": [
        f"{WEB}::test_endless_body_is_cut_at_the_limit",
        f"{WEB}::test_slow_drip_ends_with_the_time_limit",
        f"{WEB}::test_body_shorter_than_announced_is_trouble",
    ],
    "E10": [
        f"{PLACES}::test_secrets_of_a_place_are_shown_nowhere",
        f"{WEB}::test_credentials_stay_with_their_host",
        "fetching/test_http_files::test_signatures_stand_in_no_message_and_no_file_name",
    ],
    "E11": [
        "unit/services/test_webhook_posts::test_self_signed_certificate_is_refused",
        "unit/services/test_webhook_posts::test_certificate_of_another_host_is_refused",
    ],
    "E12": [
        f"{PLACES}::test_no_source_is_accepted_at_a_bad_place",
        "fetching/test_object_stores::test_names_that_climb_out_are_refused",
    ],
    "E13": ["oci:// names a bucket of an object store here, not an image: there are no tags, layers or manifests"],
    "E14": [f"{PLACES}::test_no_source_is_accepted_at_a_bad_place"],
    "E15": [f"{PLACES}::test_no_source_is_accepted_at_a_bad_place"],
    "E16": [f"{PLACES}::test_no_source_is_accepted_at_a_bad_place"],
    "E17": [
        "fetching/test_hub::test_what_the_hub_does_not_give_is_said",
        "fetching/test_hub::test_revision_is_that_of_the_time",
        "fetching/test_hub::test_bytes_that_are_not_the_listed_ones_are_refused",
    ],
    "E18": ["fetching/test_object_stores::test_unchanged_object_is_used_again_and_a_changed_one_is_not"],
    "E19": [
        "fetching/test_faults::test_killed_in_the_middle_of_a_download_leaves_nothing_half",
        "fetching/test_faults::test_full_disk_is_trouble_and_leaves_nothing",
    ],
    "E20": [f"{PLACES}::test_no_webhook_is_accepted_to_a_bad_place"],
    "E21": [f"{PLACES}::test_refusals_do_not_reveal_what_exists"],
    "G1": ["unit/workers/supervisor/test_log_lines::test_bytes_become_lines"],
    "G2": [
        "unit/workers/supervisor/test_log_lines::test_long_line_is_cut_and_the_next_one_is_whole",
        "unit/workers/supervisor/test_log_lines::test_burst_passes_and_a_flood_does_not",
    ],
    "G3": [
        f"{KEYS}::test_errors_show_the_path_as_text_alone",
        "contract/test_description::test_the_page_writes_text_alone",
    ],
    "G4": ["integration/cli/test_access::test_an_export_for_spreadsheets_holds_no_formulas"],
    "G5": ["integration/services/telemetry/test_metrics::test_numbers_that_the_database_cannot_store_are_refused"],
    "G6": ["unit/services/test_bounds::test_names_beyond_the_limit_are_left_out"],
    "G7": ["secrets/test_rank_output"],
    "G8": [f"{STREAMS}::test_unknown_last_event_id_is_refused"],
    "G9": [f"{STREAMS}::test_streams_are_limited_and_given_back"],
    "G10": [f"{MATRIX}::test_answers_are_neither_cached_nor_guessed"],
    "G11": [f"{KEYS}::test_errors_show_the_path_as_text_alone"],
    "G12": [f"{AUDIT}::test_texts_from_outside_are_stored_without_what_harms"],
    "I1": [f"{LIMITS}::test_rate_limited_key_gets_the_time_to_retry_after"],
    "I2": [
        f"{SOCKETS}::test_many_silent_connections_delay_no_other_request",
        f"{SOCKETS}::test_unfinished_request_head_is_closed",
    ],
    "I3": [
        f"{BODIES}::test_a_query_that_means_nothing_is_refused_and_named",
        f"{BODIES}::test_many_filters_are_answered_in_time",
    ],
    "I4": ["integration/services/queues/test_queue_limits::test_planners_at_once_never_exceed_a_limit"],
    "I5": ["integration/http/test_bad_documents::test_changed_documents_get_their_status_and_name_the_field"],
    "I6": ["integration/services/queues/test_queue_limits::test_a_full_queue_takes_no_more_jobs"],
    "I7": ["idle devices are not detected; max_runtime_seconds bounds what a job may hold"],
    "I8": [f"{HOSTILE}::test_floods_neither_fill_the_history_nor_the_log_nor_fail_the_job"],
    "I9": [f"{LIMITS}::test_rate_limited_key_gets_the_time_to_retry_after"],
    "I10": ["integration/services/webhooks/test_delivery_queue::test_pauses_follow_the_documented_schedule"],
    "I11": ["no sweeps yet: they answer 501"],
    "I12": [f"{BODIES}::test_no_text_keeps_a_rule_busy"],
    "I13": [
        "fetching/test_hub::test_gated_files_that_another_fetched_are_not_handed_to_those_without_access",
        "fetching/test_shares::test_what_was_fetched_for_one_user_is_not_given_to_another",
    ],
    "I14": [f"{LIMITS}::test_tokens_come_back_with_the_servers_time"],
    "POST /v1/compare: jobs": [f"{COMPARE}::test_bad_lists_of_jobs_are_refused_and_named"],
    "POST /v1/compare: metrics, by, max_points": [f"{COMPARE}::test_bad_options_are_refused_and_named"],
    "POST /v1/compare: jobs of others": [f"{COMPARE}::test_jobs_of_other_projects_are_missing_like_unknown_ones"],
    "POST /v1/compare: secrets": [f"{COMPARE}::test_secrets_stay_masked"],
    "POST /v1/compare: writing": [f"{COMPARE}::test_a_comparison_changes_nothing_and_its_idempotency_key_stays_free"],
    "POST /v1/evaluations: benchmarks, datasets, model": [f"{EVALUATIONS}::test_bad_requests_name_field_and_way_out"],
    "POST /v1/evaluations: no result": [f"{EVALUATIONS}::test_job_without_result_or_checkpoint_is_a_conflict"],
    "POST /v1/evaluations: a reward model": [f"{EVALUATIONS}::test_reward_model_answers_nothing"],
    "POST /v1/evaluations: require": [
        "integration/api/test_required_results::test_bad_requirements_name_field_and_way_out",
        "integration/api/test_required_results::test_baseline_of_another_project_is_as_unknown_as_any",
    ],
    "POST /v1/evaluations: models of others": [
        f"{EVALUATIONS}::test_another_project_finds_neither_evaluations_nor_models"
    ],
    "POST /v1/evaluations/compare: ids, baseline": [f"{COMPARED}::test_bad_comparisons_name_the_rule"],
    "evaluations in POST /v1/jobs": [
        "unit/domain/spec/test_planned_evaluations::test_plans_that_cannot_be_measured_are_refused"
    ],
}
ENTRIES = [
    *(f"A{n}" for n in range(1, 15)),
    "B1-B4",
    "B5-B6",
    *(f"B{n}" for n in range(7, 17)),
    *(f"C{n}" for n in range(1, 26)),
    *(f"D{n}" for n in range(1, 13)),
    *(f"E{n}" for n in range(1, 22)),
    *(f"G{n}" for n in range(1, 13)),
    *(f"I{n}" for n in range(1, 15)),
    *(
        f"POST /v1/compare: {what}"
        for what in ("jobs", "metrics, by, max_points", "jobs of others", "secrets", "writing")
    ),
    *(
        f"POST /v1/evaluations: {what}"
        for what in ("benchmarks, datasets, model", "no result", "a reward model", "require", "models of others")
    ),
    "POST /v1/evaluations/compare: ids, baseline",
    "evaluations in POST /v1/jobs",
]


def test_every_entry_is_here():
    assert set(COVERED) == set(ENTRIES)


def test_the_tests_of_each_entry_exist():
    named = [(entry, test) for entry in ENTRIES for test in COVERED[entry] if " " not in test]

    assert [(entry, test) for entry, test in named if not exists(test)] == []


def exists(named: str) -> bool:
    file, _, function = named.partition("::")
    return (TESTS / f"{file}.py").exists() if not function else function in functions_of(file)


@cache
def functions_of(file: str) -> frozenset[str]:
    path = TESTS / f"{file}.py"
    tree = ast.parse(path.read_text()) if path.exists() else ast.Module([], [])
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
