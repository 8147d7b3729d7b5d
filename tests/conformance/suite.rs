//! The rules, and the two ways to hold an engine to them.

use std::panic::AssertUnwindSafe;

use futures_util::{FutureExt, StreamExt, future::BoxFuture};

use super::{Engine, chain, end, follow, held, listen, look, own, seal, stream};

/// All rules. Those that are `pushed` are about pushes alone.
macro_rules! rules {
    ($then:ident $args:tt) => {
        $crate::conformance::$then! { $args
            own {
                fresh_caller_is_granted
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
            end {
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
            follow {
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
            chain {
                two_failed_runs_end_the_chain
                timeouts_count_as_failed_runs
                release_of_a_timed_out_run_counts_as_failed
                fresh_caller_begins_a_new_chain
                answer_ends_the_chain
                three_lost_owners_quarantine_the_key
                released_owners_are_not_lost_ones
                losses_and_failures_are_counted_apart
            }
            stream {
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
                stream_that_is_gone_is_sent_again
            }
            seal {
                sealed_end_wants_all_pieces
                failed_stream_is_sealed_too
                end_without_a_seal_ends_the_stream
                streamed_answer_is_found_late
                streamed_answer_is_reused_inside_its_window
                streamed_answer_is_found_under_the_next_owner
                record_and_stream_do_not_mix
                stream_is_kept_for_its_time
            }
            listen {
                listening_counts_those_who_came_before
                listening_for_what_is_not_owned
            }
            look {
                view_of_a_running_flight
                followers_hear_where_the_owner_is_in_its_trace
                view_of_what_has_ended
                look_from_outside_changes_nothing
                scan_finds_all_keys
            }
            follow pushed {
                follower_gets_push_with_record
                push_between_join_and_wait_is_kept
                push_outlives_a_wait_that_was_dropped
                pushes_begin_with_the_first_follow
                release_is_pushed
                failure_is_pushed
            }
            stream pushed {
                pieces_are_pushed
                pieces_are_pushed_in_order_and_before_the_end
            }
            listen pushed {
                owner_hears_who_comes_to_wait
                nobody_comes_unheard
                deafened_owner_hears_nothing
            }
            held pushed {
                answer_is_held_as_old_as_it_is
                what_no_fresh_caller_gets_is_not_held
                forgotten_answer_is_held_no_longer
                answer_is_held_until_the_next_flight
                stop_leaves_what_is_held
            }
        }
    };
}

/// Makes a `#[tokio::test]` of each rule for one engine.
macro_rules! conformance {
    ($args:tt, $engine:expr) => {
        $crate::conformance::rules! { each_a_test ($args $engine) }
    };
}

macro_rules! each_a_test {
    ($given:tt $($group:ident $($kind:ident)? { $($rule:ident)* })*) => {
        $($($crate::conformance::each_a_test! { @ $given $group $rule })*)*
    };
    (@ (($($args:tt)*) $engine:expr) $group:ident $rule:ident) => {
        #[tokio::test($($args)*)]
        async fn $rule() {
            let engine = $engine;
            $crate::conformance::$group::$rule(&engine).await;
        }
    };
}

macro_rules! in_a_row {
    (($engine:ident) $($group:ident $($kind:ident)? { $($rule:ident)* })*) => {{
        let mut all: Vec<(&str, bool, BoxFuture<'_, ()>)> = Vec::new();
        $(
            let pushed = !concat!($(stringify!($kind))?).is_empty();
            $(all.push((stringify!($rule), pushed, $group::$rule($engine).boxed()));)*
        )*
        all
    }};
}
pub(crate) use {conformance, each_a_test, in_a_row, rules};

/// Holds one engine to all rules, so many at a time, which are few enough that none of
/// them is late; panics with the names of those that it broke.
#[allow(dead_code, reason = "the memory store has a test for each")]
pub(crate) async fn all(engine: &impl Engine, at_a_time: usize) {
    let rules = rules!(in_a_row(engine)).into_iter();
    let apply = rules.filter(|(_, pushed, _)| engine.pushes() || !pushed);
    let held =
        apply.map(async |(name, _, rule)| (name, AssertUnwindSafe(rule).catch_unwind().await));
    let held: Vec<_> = futures_util::stream::iter(held).buffer_unordered(at_a_time).collect().await;
    let broken: Vec<&str> =
        held.iter().filter(|(_, held)| held.is_err()).map(|(name, _)| *name).collect();
    assert!(broken.is_empty(), "broken: {broken:?}");
}
