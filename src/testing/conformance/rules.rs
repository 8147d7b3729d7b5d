/// Writes a test for each [rule](crate::testing::conformance::Rule::ALL) of the store
/// protocol: see [`testing::conformance`](crate::testing::conformance).
///
/// What goes in is the attributes of each test, and an expression that makes the
/// [engine](crate::testing::conformance::Engine) of one; it may await. A test is called
/// what its rule is called.
///
/// ```
/// use tower_singleflight::MemoryStore;
///
/// tower_singleflight::conformance_tests! {
///     #[tokio::test(start_paused = true)]
///     {
///         let store = MemoryStore::new();
///         move || std::future::ready(store.clone())
///     }
/// }
/// ```
#[macro_export]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
macro_rules! conformance_tests {
    // All rules, for a macro; in brackets what a store must be able to, beside all else.
    (@rules [$($then:tt)*] $given:tt) => {
        $($then)*! { @each $given
            own (any) {
                fresh_caller_is_granted
                of_many_at_once_one_owns
                join_asked_again_is_owned_again
                late_duplicate_never_owns
                late_duplicate_of_the_flight_before_never_owns
                tokens_grow
                token_is_above_what_the_caller_knows
                lease_lasts_as_long_as_it_is_renewed
                lease_that_ran_out_is_not_own
                renew_never_creates
                superseded_owner_publishes_nothing
                superseded_owner_releases_nothing
                other_flight_id_with_the_same_token_changes_nothing
                release_hands_over_at_once
                release_frees_a_lease_that_ran_out_too
                release_of_an_ended_flight_changes_nothing
                keys_are_apart
            }
            end (any) {
                finish_twice_is_accepted
                finish_is_accepted_again_after_the_next_grant
                outcome_stands_against_a_second_one
                kept_back_record_is_wanted_when_somebody_waits
                kept_back_record_is_let_go_when_nobody_waits
                abandon_is_refused_while_a_waiter_is_live
                abandon_hands_over_at_once
                private_mark_frees_all_and_ends
                one_probe_at_a_time_clears_a_private_mark
                reuse_ends_with_its_window
                unmarked_answer_is_not_reused
                answer_is_reused_while_it_is_fresh
                answer_is_kept_for_its_time
                fetch_reads_the_last_record
                too_large_answer_is_nobodys
                forgotten_flight_publishes_nothing
                forgotten_answer_is_not_reused
                stopped_flight_is_over_for_all
                stop_touches_nothing_that_has_ended
            }
            follow (any) {
                rank_counts_those_who_joined_before
                waiter_mark_runs_out
                watch_keeps_the_mark
                watch_mark_is_as_long_as_asked
                leave_ends_one_wait
                waiters_outlive_a_takeover
                look_never_grants
                follower_gets_the_outcome_whose_push_it_missed
                follower_gets_the_outcome_under_the_next_owner
                follower_never_gets_older_outcome
                owner_of_lost_data_is_told_so
            }
            chain (any) {
                two_failed_runs_end_the_chain
                timeouts_count_as_failed_runs
                release_of_a_timed_out_run_counts_as_failed
                fresh_caller_begins_a_new_chain
                answer_ends_the_chain
                three_lost_owners_quarantine_the_key
                released_owners_are_not_lost_ones
                losses_and_failures_are_counted_apart
            }
            stream (any) {
                pieces_are_read_in_order
                pieces_are_read_in_goes
                pieces_sent_again_are_there_once
                pieces_past_the_next_are_refused
                ended_flight_takes_no_pieces
                only_the_owner_adds_pieces
                forgotten_flight_takes_no_pieces
                missing_flight_takes_no_pieces
                trimmed_pieces_are_not_read
                trimmed_stream_is_for_those_who_know_it
                next_flight_begins_without_pieces
                followers_hear_how_many_pieces_there_are
                stream_lasts_as_long_as_its_lease
                pieces_stay_for_their_time
                stream_that_is_gone_is_sent_again
            }
            seal (any) {
                sealed_end_wants_all_pieces
                failed_stream_is_sealed_too
                end_without_a_seal_ends_the_stream
                streamed_answer_is_found_late
                streamed_answer_is_reused_inside_its_window
                streamed_answer_is_found_under_the_next_owner
                record_and_stream_do_not_mix
                stream_is_kept_for_its_time
            }
            listen (any) {
                listening_counts_those_who_came_before
                listening_for_what_is_not_owned
            }
            beat (any) {
                beat_answers_each_in_order
            }
            whole (any) {
                record_comes_back_byte_for_byte
                pieces_come_back_byte_for_byte
            }
            look (told) {
                view_of_a_running_flight
                followers_hear_where_the_owner_is_in_its_trace
                view_of_what_has_ended
                look_from_outside_changes_nothing
                scan_finds_all_keys
            }
            follow (pushed) {
                follower_gets_push_with_record
                push_between_join_and_wait_is_kept
                push_outlives_a_wait_that_was_dropped
                look_for_a_push_loses_none
                pushes_begin_with_the_first_follow
                release_is_pushed
                failure_is_pushed
            }
            stream (pushed) {
                pieces_are_pushed
                pieces_are_pushed_in_order_and_before_the_end
            }
            listen (pushed) {
                owner_hears_who_comes_to_wait
                nobody_comes_unheard
                deafened_owner_hears_nothing
            }
            held (held) {
                answer_is_held_as_old_as_it_is
                what_no_fresh_caller_gets_is_not_held
                forgotten_answer_is_held_no_longer
                answer_is_held_until_the_next_flight
                stop_leaves_what_is_held
            }
        }
    };
    (@each $given:tt $($group:ident ($needs:ident) { $($rule:ident)* })*) => {
        $($($crate::conformance_tests! { @one $given $rule })*)*
    };
    (@one ([$($attributes:tt)*] $engine:expr) $rule:ident) => {
        $($attributes)*
        async fn $rule() {
            let engine = $engine;
            let rule = $crate::testing::conformance::Rule::named(stringify!($rule));
            rule.expect("a rule").check(&engine).await;
        }
    };
    ($(#[$attribute:meta])+ $engine:expr $(,)?) => {
        $crate::conformance_tests! {
            @rules [$crate::conformance_tests] ([$(#[$attribute])+] $engine)
        }
    };
}
