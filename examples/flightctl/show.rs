//! What it says: tables for people, JSON for programs.

use std::{
    io::{self, Write, stdout},
    time::Duration,
};

use serde_json::{Value, json};
use tower_singleflight::{KeyDigest, store::KeyView};

/// How it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Table,
    Json,
}

impl Form {
    /// Many keys.
    pub(crate) fn list(self, views: &[KeyView]) -> io::Result<()> {
        let mut out = stdout().lock();
        if self == Self::Json {
            let all: Value = views.iter().map(object).collect();
            return writeln!(out, "{all}");
        }
        writeln!(out, "{:64}  {HEADS}", "KEY")?;
        views.iter().try_for_each(|view| writeln!(out, "{}  {}", view.key, columns(view)))
    }

    /// One key.
    pub(crate) fn one(self, view: &KeyView) -> io::Result<()> {
        let mut out = stdout().lock();
        let object = object(view);
        if self == Self::Json {
            return writeln!(out, "{object}");
        }
        let fields = object.as_object().into_iter().flatten();
        for (name, value) in fields.filter(|(_, value)| !value.is_null()) {
            let name = name.replace('_', " ");
            match value {
                Value::String(text) => writeln!(out, "{name:18} {text}")?,
                value => writeln!(out, "{name:18} {value}")?,
            }
        }
        Ok(())
    }

    /// Something that has changed.
    pub(crate) fn change(self, view: &KeyView) -> io::Result<()> {
        match self {
            Self::Json => writeln!(stdout(), "{}", object(view)),
            Self::Table => writeln!(stdout(), "{}  {}", view.key, columns(view)),
        }
    }

    /// What was done about a key.
    pub(crate) fn done(self, what: &str, key: KeyDigest) -> io::Result<()> {
        match self {
            Self::Json => writeln!(stdout(), "{}", json!({ "key": key.to_string(), "done": what })),
            Self::Table => writeln!(stdout(), "{key}  {what}"),
        }
    }
}

const HEADS: &str = "STATUS       AGE       LEASE     HEARTBEAT  WAITERS  PIECES  OWNER";

fn columns(view: &KeyView) -> String {
    let or_none = |of: Option<Duration>| of.map_or_else(|| "-".to_owned(), time);
    let (lease, heartbeat) = (or_none(view.lease_left), or_none(view.heartbeat));
    let (status, age, waiters) = (view.status, time(view.age), view.waiters);
    let owner = if view.owner.is_empty() { "-" } else { &view.owner };
    let pieces = view.pieces;
    format!("{status:11}  {age:8}  {lease:8}  {heartbeat:9}  {waiters:7}  {pieces:6}  {owner}")
}

fn time(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn object(view: &KeyView) -> Value {
    let ms = |time: Duration| time.as_millis() as u64;
    json!({
        "key": view.key.to_string(),
        "status": view.status.name(),
        "in_air": view.is_in_air(),
        "owner": &*view.owner,
        "token": view.flight.token,
        "flight": view.flight.id.to_string(),
        "age_ms": ms(view.age),
        "lease_left_ms": view.lease_left.map(ms),
        "heartbeat_ms": view.heartbeat.map(ms),
        "ended_ms": view.ended.map(ms),
        "mark_left_ms": view.mark_left.map(ms),
        "waiters": view.waiters,
        "stored_bytes": view.stored_bytes,
        "pieces": view.pieces,
    })
}
