//! Holding an engine to the rules.

use std::{any::Any, fmt::Write, sync::Arc};

use tokio::task::JoinSet;

use super::{
    Engine, Place, beat, chain, end, follow, held, listen, look, own, seal, stream, whole,
};
use crate::{conformance_tests, store::BoxFuture};

/// A rule of the store protocol.
///
/// See the [module docs](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    name: &'static str,
    needs: Needs,
}

/// What a store must be able to, beside what all must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Pushes,
    Views,
    Holds,
}

impl Needs {
    const fn of(word: &str) -> Self {
        match word.as_bytes() {
            b"pushed" => Self::Pushes,
            b"told" => Self::Views,
            b"held" => Self::Holds,
            _ => Self::Nothing,
        }
    }
}

macro_rules! all_rules {
    (@each () $($group:ident ($needs:ident) { $($rule:ident)* })*) => {
        impl Rule {
            /// All rules:
            $(
                #[doc = concat!("\n* of `", stringify!($group), "`:")]
                $(#[doc = concat!("`", stringify!($rule), "`,")])*
            )*
            ///
            /// and no others.
            pub const ALL: &[Self] = &[$($(
                Self { name: stringify!($rule), needs: Needs::of(stringify!($needs)) },
            )*)*];
        }

        fn checked<'a>(rule: &str, engine: &'a dyn Place) -> BoxFuture<'a, ()> {
            $($(
                if rule == stringify!($rule) {
                    return Box::pin($group::$rule(engine));
                }
            )*)*
            unreachable!("no rule is called {rule}")
        }
    };
}
conformance_tests!(@rules [all_rules] ());

impl Rule {
    /// The rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|rule| rule.name == name).copied()
    }

    /// What it is called: a short sentence in lower case, with `_` for spaces.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether an engine that can no more than this one can is held to it.
    #[must_use]
    pub fn applies_to(&self, engine: &impl Engine) -> bool {
        match self.needs {
            Needs::Nothing => true,
            Needs::Pushes => engine.pushes(),
            Needs::Views => engine.tells(),
            Needs::Holds => engine.pushes() && engine.holds(),
        }
    }

    /// Holds an engine to the rule, where that [applies](Self::applies_to).
    ///
    /// # Panics
    ///
    /// Where it breaks the rule.
    pub async fn check(&self, engine: &impl Engine) {
        if self.applies_to(engine) {
            checked(self.name, engine).await;
        }
    }
}

/// Holds an engine to all [rules](Rule::ALL), one after the other.
///
/// # Panics
///
/// Where it breaks any, when all were tried: with the name of each, and what it said.
pub async fn run(engine: impl Engine + 'static) {
    run_at_a_time(engine, 1).await;
}

/// As [`run`], with so many rules at a time: few enough that none of them comes late. Not
/// for a paused clock, under which they would pass each other's time.
///
/// # Panics
///
/// As `run` does, and where `at_a_time` is 0.
pub async fn run_at_a_time(engine: impl Engine + 'static, at_a_time: usize) {
    assert!(at_a_time > 0, "no rule at a time");
    let engine = Arc::new(engine);
    let mut rules = Rule::ALL.iter();
    let (mut running, mut broken) = (JoinSet::new(), String::new());
    loop {
        for rule in rules.by_ref().take(at_a_time - running.len()) {
            let engine = Arc::clone(&engine);
            running.spawn(async move {
                // In a task of its own, so that a panic is its own too.
                let held = tokio::spawn(async move { rule.check(&*engine).await });
                (rule, held.await)
            });
        }
        let Some(held) = running.join_next().await else { break };
        let (rule, held) = held.expect("it only waits");
        if let Err(error) = held {
            let said = error.try_into_panic().map(|panic| text(&*panic)).unwrap_or_default();
            let _ = write!(broken, "\n{}: {said}", rule.name);
        }
    }
    assert!(broken.is_empty(), "broken rules:{broken}");
}

/// What a panic says.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
