//! What every client of a fleet gets, whatever its part in a flight, is what it would have
//! got alone: answers of all kinds, methods, versions of HTTP, frameworks, and parts
//! (rows B3, C14, J3, L1, L5, M1, M3, M5, M6, M7).

mod answers;
mod asked;
mod compare;
mod fleet;

use futures_util::future::join_all;
use http::{Method, Version};
use tokio::task::JoinHandle;

use self::{
    answers::{Goes, ROWS},
    compare::{Differences, Said},
    fleet::{Fleet, Stack, VERSIONS, again, request},
};
use crate::{
    net::Raw,
    support::{Answer, read, until},
};

/// A client in the background: one row's answer, over a connection that must be good for
/// another one afterwards.
struct Asked {
    row: usize,
    version: Version,
    what: String,
    answer: JoinHandle<Answer>,
}

struct Table<'a> {
    fleet: &'a Fleet,
    method: Method,
    stack: Stack,
}

impl Table<'_> {
    fn path(row: usize) -> String {
        format!("/row/{row}")
    }

    /// `server` none: the one without the layer.
    async fn ask(&self, server: Option<usize>, row: usize, version: Version, part: &str) -> Asked {
        let address = server.map_or(self.fleet.alone, |server| self.fleet.servers[server]);
        let request = request(version, &self.method, &Self::path(row));
        let mut client = self.fleet.connect(address, version).await;
        let Self { method, stack, .. } = self;
        let what = format!("{part} on {stack:?}: {method} of row {row} over {version:?}");
        let asked = what.clone();
        let answer = tokio::spawn(async move {
            let answer = match client.send(request).await {
                Ok(answer) => read(answer).await,
                Err(error) => Err(error.into()),
            };
            let answer = answer.unwrap_or_else(|error| panic!("{asked}: {error}"));
            // Else the server hangs up.
            let stays = version == Version::HTTP_11 && !answer.headers.contains_key("connection");
            if server.is_some() && stays {
                assert_eq!(client.ask(again(version)).await.text(), "again");
            }
            answer
        });
        Asked { row, version, what, answer }
    }

    /// All rows, all at once: owners of every version, then followers here and there, then
    /// those who come later.
    async fn check(&self) {
        let fleet = self.fleet;
        let rows = || 0..ROWS.len();
        let runs = fleet.runs.total();
        let mut alone = Vec::new();
        for row in rows() {
            for version in VERSIONS {
                alone.push(self.ask(None, row, version, "alone").await.answer);
            }
        }
        let alone: Vec<Answer> = join_all(alone).await.into_iter().map(Result::unwrap).collect();

        fleet.gate.close();
        let mut asked = Vec::new();
        for row in rows() {
            let version = VERSIONS[(row + self.method.as_str().len()) % 3];
            asked.push(self.ask(Some(0), row, version, "owner").await);
        }
        until("all runs", || fleet.runs.total() == runs + ROWS.len()).await;
        for row in rows() {
            for version in VERSIONS {
                asked.push(self.ask(Some(0), row, version, "local").await);
                asked.push(self.ask(Some(1), row, version, "remote").await);
            }
        }
        fleet.until_waiting(asked.len()).await;
        fleet.gate.open();
        let alone = |row: usize, version| {
            &alone[3 * row + VERSIONS.iter().position(|one| *one == version).unwrap()]
        };
        let (mut ran, mut found) = (ROWS.len(), Vec::new());
        for (n, mut asked) in asked.into_iter().enumerate() {
            let got = (&mut asked.answer).await.unwrap();
            let row = &ROWS[asked.row];
            let expected = match row.goes {
                _ if n < ROWS.len() => Said::Owner,
                Goes::Nowhere => Said::Bypass,
                Goes::On | Goes::ToWaiting => Said::Collapsed,
            };
            ran += usize::from(expected == Said::Bypass);
            assert_eq!(Said::of(&got), expected, "{}", asked.what);
            found.extend(self.compare(&asked, alone(asked.row, asked.version), &got));
        }
        assert_eq!(fleet.runs.total(), runs + ran);

        until("the store knows", || fleet.waiting() == 0).await;
        let mut later = Vec::new();
        for row in rows() {
            for (at, version) in VERSIONS.into_iter().enumerate() {
                later.push(self.ask(Some((row + at) % 2), row, version, "later").await);
            }
        }
        for mut asked in later {
            let got = (&mut asked.answer).await.unwrap();
            let row = &ROWS[asked.row];
            assert_eq!(Said::of(&got) == Said::Hit, row.goes == Goes::On, "{}", asked.what);
            found.extend(self.compare(&asked, alone(asked.row, asked.version), &got));
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    fn compare(&self, asked: &Asked, alone: &Answer, got: &Answer) -> Vec<String> {
        let (row, found) = (&ROWS[asked.row], Vec::new());
        let found = Differences { row, method: &self.method, alone, got, found }.find();
        let said = Said::of(got);
        found.into_iter().map(|found| format!("{}, {said:?}: {found}", asked.what)).collect()
    }
}

async fn check(stack: Stack) {
    let fleet = Fleet::start(stack).await;
    // Of answers to POST a server makes what it makes of those to GET.
    let methods = match stack {
        Stack::Hyper => &[Method::GET, Method::HEAD, Method::POST][..],
        Stack::Axum => &[Method::GET, Method::HEAD],
    };
    for method in methods.iter().cloned() {
        Table { fleet: &fleet, method, stack }.check().await;
    }
}

#[tokio::test]
async fn m_every_client_of_hyper_gets_what_it_would_have_got_alone() {
    check(Stack::Hyper).await;
}

#[tokio::test]
async fn m_every_client_of_axum_gets_what_it_would_have_got_alone() {
    check(Stack::Axum).await;
}

/// A client that asks before it sends its body is told to go on, wherever it asks, before
/// its request is in a flight.
#[tokio::test]
async fn k5_clients_that_ask_before_they_send_share_across_a_fleet() {
    let fleet = Fleet::start(Stack::Axum).await;
    let mut asking = Vec::new();
    for server in [0, 0, 1, 1] {
        let mut raw = Raw::connect(fleet.servers[server]).await;
        let head = "POST /row/1 HTTP/1.1\r\nhost: a.test\r\nexpect: 100-continue\r\n";
        raw.send(&format!("{head}content-length: 3\r\n\r\n")).await;
        assert_eq!(raw.answer(true).await.status, 100);
        asking.push(raw);
    }
    assert_eq!(fleet.waiting(), 0);
    for raw in &mut asking {
        raw.send("abc").await;
    }
    fleet.until_waiting(4).await;
    fleet.gate.open();
    for raw in &mut asking {
        assert_eq!(raw.answer(false).await.body, b"hello world");
    }
    assert_eq!(fleet.runs.total(), 1);
}
