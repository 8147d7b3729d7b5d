//! What may lie under a key's names.

use std::time::{SystemTime, UNIX_EPOCH};

use bb8_redis::redis::{self, aio::MultiplexedConnection};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};
use tower_singleflight::{FlightId, FlightRef, WaiterId};

/// What may lie under a name.
#[derive(Clone, Debug)]
pub(crate) struct Plant {
    pub(crate) what: Lies,
    /// When it goes, in milliseconds; it may also stay.
    pub(crate) ttl: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Lies {
    Nothing,
    Text(Vec<u8>),
    List,
    Set,
    Hash(Vec<(String, Vec<u8>)>),
    Scores(Vec<(Vec<u8>, String)>),
    Entries(Vec<(String, Vec<Vec<u8>>)>),
}

/// All that may lie there when the steps come.
#[derive(Clone, Debug)]
pub(crate) struct Garbage {
    pub(crate) meta: Plant,
    pub(crate) waiters: Plant,
    pub(crate) result: Plant,
    pub(crate) stream: Plant,
    pub(crate) seq: Plant,
    pub(crate) staged: Plant,
    pub(crate) steps: Vec<(u8, u8)>,
}

fn now_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// The flights that steps and records speak of.
pub(crate) fn flight(n: u8) -> FlightRef {
    let token = [1, 5, 1_500_000_000_000_000, 8_999_999_999_999_998][usize::from(n % 4)];
    FlightRef { token, id: FlightId::from_u128(u128::from(n % 4) << 120 | 7) }
}

pub(crate) fn waiter() -> WaiterId {
    WaiterId::from_u128(3)
}

fn odd() -> impl Strategy<Value = Vec<u8>> {
    let known = select(vec![
        "",
        "-1",
        "1e5",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "0x10",
        " 1",
        "1 ",
        "007",
        "+1",
        "1",
        "9007199254740993",
        "8999999999999999",
        "9000000000000000",
        "99999999999999999999",
        "18446744073709551615",
        "\0",
        "running",
        "done",
        "lost",
        "v2",
    ]);
    prop_oneof![known.prop_map(|text| text.as_bytes().to_vec()), vec(any::<u8>(), 0..40),]
}

/// A value that a script might have written.
fn fit(field: &'static str) -> BoxedStrategy<Vec<u8>> {
    let text = |text: &str| text.as_bytes().to_vec();
    let flights = (0..4_u8).prop_map(|n| flight(n).id.to_string().into_bytes());
    match field {
        "format" => {
            prop_oneof![8 => Just(text("1")), 1 => select(vec![text("0"), text("2"), text("255")])]
                .boxed()
        }
        "ownerToken" | "prevToken" => {
            (0..4_u8).prop_map(|n| flight(n).token.to_string().into_bytes()).boxed()
        }
        "flight" => flights.boxed(),
        "prevFlight" => prop_oneof![Just(vec![]), flights].boxed(),
        "status" => select(vec![
            "running",
            "running",
            "done",
            "failed",
            "timedout",
            "private",
            "toolarge",
            "abandoned",
            "forgotten",
            "lost",
        ])
        .prop_map(|word| word.as_bytes().to_vec())
        .boxed(),
        "prevStatus" => select(vec!["", "done", "failed", "abandoned"])
            .prop_map(|word| word.as_bytes().to_vec())
            .boxed(),
        // In microseconds from now; only the test knows the time.
        "lease" => select(vec![text("0"), text("3000"), text("9000000")]).boxed(),
        "heartbeatAt" | "markEnd" | "endedAt" => {
            select(vec![text("0"), text("@-1000000"), text("@2000000"), text("@9000000000")])
                .boxed()
        }
        _ => (0..4_u8).prop_map(|n| n.to_string().into_bytes()).boxed(),
    }
}

const FIELDS: [&str; 18] = [
    "format",
    "ownerToken",
    "flight",
    "status",
    "heartbeatAt",
    "lease",
    "prevToken",
    "prevFlight",
    "prevStatus",
    "prevSealed",
    "failures",
    "losses",
    "joins",
    "next",
    "trimmed",
    "sealed",
    "endedAt",
    "markEnd",
];

fn record() -> impl Strategy<Value = Lies> {
    let fields: Vec<BoxedStrategy<Vec<u8>>> = FIELDS.iter().map(|field| fit(field)).collect();
    let wrong = btree_map(select(FIELDS.to_vec()), option::of(odd()), 0..3);
    let extra = vec(("[a-z]{1,8}", odd()), 0..3);
    let many = prop_oneof![9 => Just(0_usize), 1 => Just(100)];
    (fields, wrong, extra, many).prop_map(|(fields, wrong, extra, many)| {
        let named = FIELDS.iter().zip(fields).filter_map(|(name, value)| match wrong.get(name) {
            Some(wrong) => Some(((*name).to_owned(), wrong.clone()?)),
            None => Some(((*name).to_owned(), value)),
        });
        let more = (0..many).map(|n| (format!("more {n}"), vec![]));
        Lies::Hash(named.chain(extra).chain(more).collect())
    })
}

fn plant(own: impl Strategy<Value = Lies> + 'static) -> impl Strategy<Value = Plant> {
    let what = prop_oneof![
        2 => Just(Lies::Nothing),
        8 => own,
        1 => odd().prop_map(Lies::Text),
        1 => Just(Lies::List),
        1 => Just(Lies::Set),
        1 => vec(("[a-z]{1,4}", odd()), 1..3).prop_map(Lies::Hash),
    ];
    let ttl = prop_oneof![1 => Just(None), 4 => (500_u64..100_000).prop_map(Some)];
    (what, ttl).prop_map(|(what, ttl)| Plant { what, ttl })
}

fn marks() -> impl Strategy<Value = Lies> {
    let score = select(vec!["inf", "-inf", "0", "1e300", "-5.5", "1e15", "1795968540019.5", "@"]);
    let member = prop_oneof![Just(waiter().to_string().into_bytes()), odd()];
    vec((member, score.prop_map(str::to_owned)), 1..6).prop_map(Lies::Scores)
}

fn entries() -> impl Strategy<Value = Lies> {
    let place = prop_oneof![
        (0..4_u8, 0..4_u64).prop_map(|(n, at)| format!("{}-{at}", flight(n).token)),
        Just(format!("{0}-{0}", u64::MAX)),
    ];
    let fields = prop_oneof![
        odd().prop_map(|piece| vec![b"p".to_vec(), piece]),
        (0..4_u8).prop_map(|n| {
            let id = flight(n).id.to_string();
            ["end", "done", "flight", &id].map(|text| text.as_bytes().to_vec()).to_vec()
        }),
        (odd(), odd()).prop_map(|(a, b)| vec![a, b]),
    ];
    vec((place, fields), 1..5).prop_map(Lies::Entries)
}

pub(crate) fn garbage() -> impl Strategy<Value = Garbage> {
    let bytes =
        || prop_oneof![odd(), any::<u8>().prop_map(|byte| vec![byte; 5000])].prop_map(Lies::Text);
    let plants = (
        plant(record()),
        plant(marks()),
        plant(bytes()),
        plant(entries()),
        plant(odd().prop_map(Lies::Text)),
        plant(bytes()),
    );
    (plants, vec((0..14_u8, 0..4_u8), 0..8)).prop_map(|(plants, steps)| {
        let (meta, waiters, result, stream, seq, staged) = plants;
        Garbage { meta, waiters, result, stream, seq, staged, steps }
    })
}

/// Puts it there. Entries that a stream refuses are left out.
pub(crate) async fn put(redis: &mut MultiplexedConnection, name: &str, plant: &Plant) {
    let from_now = |value: &[u8]| {
        let offset = value.strip_prefix(b"@").and_then(|text| std::str::from_utf8(text).ok());
        match offset.and_then(|text| text.parse().ok()) {
            Some(offset) => now_us().saturating_add_signed(offset).to_string().into_bytes(),
            None => value.to_vec(),
        }
    };
    let mut pipe = redis::pipe();
    match &plant.what {
        Lies::Nothing => return,
        Lies::Text(text) => drop(pipe.cmd("SET").arg(name).arg(&text[..])),
        Lies::List => drop(pipe.cmd("RPUSH").arg(name).arg("x")),
        Lies::Set => drop(pipe.cmd("SADD").arg(name).arg("x")),
        Lies::Hash(fields) => {
            for (field, value) in fields {
                pipe.cmd("HSET").arg(name).arg(field).arg(from_now(value));
            }
        }
        Lies::Scores(marks) => {
            for (member, score) in marks {
                let soon = (now_us() / 1000 + 700).to_string();
                let score = if score == "@" { &soon } else { score };
                pipe.cmd("ZADD").arg(name).arg(score).arg(&member[..]);
            }
        }
        Lies::Entries(entries) => {
            for (place, fields) in entries {
                let entry = pipe.cmd("XADD").arg(name).arg(place);
                for field in fields {
                    entry.arg(&field[..]);
                }
            }
        }
    }
    if let Some(ttl) = plant.ttl {
        pipe.cmd("PEXPIRE").arg(name).arg(ttl);
    }
    pipe.ignore_errors();
    let _: Vec<Result<redis::Value, redis::RedisError>> = pipe.query_async(redis).await.unwrap();
}
