//! Walks through the model at random, for what a search of states does not see: the order
//! in which a driver asks and hears.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    conduct::{Conduct, Event, Voice},
    moves::Move,
    node::Health,
    rules::Rules,
    world::{Action, World},
};

/// Walks so many times; what drivers did after what, or a rule that one of them broke.
pub(super) fn walk(rules: &Rules, walks: u64, moves: &mut BTreeSet<Move>) -> Result<(), String> {
    let mut actions = Vec::new();
    for seed in 0..walks {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut world = World::new(rules);
        let mut conducts: Vec<_> = world.nodes.iter().map(|_| (Conduct::default(), 0)).collect();
        let mut events = Vec::new();
        let mut over = false;
        for _ in 0..400 {
            world.actions(rules, &mut actions);
            over = actions.is_empty();
            if over {
                break;
            }
            let sum = actions.iter().map(|action| weight(*action)).sum::<u32>();
            let mut left = rng.random_range(0..sum);
            let chosen = actions.drain(..).find(|action| {
                let weight = weight(*action);
                let found = left < weight;
                left = left.saturating_sub(weight);
                found
            });
            let Some(action) = chosen else { break };
            world.act(rules, action);
            for (n, event) in world.events.drain(..) {
                let (conduct, drivers) = &mut conducts[n];
                let Some(event) = event else {
                    *drivers += 1;
                    continue;
                };
                let event = numbered(event, *drivers);
                events.push((n, event.clone()));
                if let Err(rule) = conduct.take(&event) {
                    return Err(format!("{rule} (seed {seed})\n{}", told(&events)));
                }
            }
        }
        for ((mut conduct, _), node) in conducts.into_iter().zip(&world.nodes) {
            if over && node.health == Health::Up && node.driver.is_none() {
                conduct.end().map_err(|rule| format!("{rule} (seed {seed})\n{}", told(&events)))?;
            }
            moves.append(&mut conduct.moves);
        }
    }
    Ok(())
}

/// Most walks are to come far before a fault strikes.
fn weight(action: Action) -> u32 {
    match action {
        Action::Serve(_) | Action::Answer(_) | Action::Fail(_) => 24,
        Action::Push(_) | Action::Wake(_) | Action::Piece(_) => 12,
        Action::Tick | Action::TakeOver(_) | Action::Lose(_) => 8,
        Action::End(..) => 2,
        Action::Arrive(_) | Action::Resume(_) | Action::Heal(_) => 3,
        _ => 1,
    }
}

/// What was said, a line each.
pub(super) fn told(events: &[(usize, Event)]) -> String {
    events.iter().map(|(n, event)| format!("{n}: {event:?}\n")).collect()
}

fn numbered(event: Event, driver: u32) -> Event {
    let voice = |voice| if voice == Voice::Driver(0) { Voice::Driver(driver) } else { voice };
    match event {
        Event::Asked(by, ask, callers) => Event::Asked(voice(by), ask, callers),
        Event::Heard(by, ask, said) => Event::Heard(voice(by), ask, said),
        Event::Pushed(by, push) => Event::Pushed(voice(by), push),
        watched @ Event::Watched(_) => watched,
    }
}
