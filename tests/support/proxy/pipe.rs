//! One connection, and both its directions.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use super::{Kind, Shared, Step, Way, wire};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let way = *shared.way.borrow();
        if way.cut {
            continue;
        }
        tokio::spawn(connect(client, way, Arc::clone(&shared)));
    }
}

async fn connect(client: TcpStream, way: Way, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", way.server)).await else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("a socket");
    }
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let asked = Asked::default();
    let [mut ends, mut forgets] = [(); 2].map(|()| shared.way.subscribe());
    let requests = requests(from_client, to_server, &shared, &asked);
    let answers = answers(from_server, to_client, &shared, &asked);
    let ended = until(&mut ends, |now| now.term != way.term);
    let forgotten = until(&mut forgets, |now| now.forgotten != way.forgotten);
    tokio::pin!(requests, answers, ended);
    // With all halves gone, the connections are closed.
    tokio::select! {
        () = requests => {}
        () = answers => {}
        () = &mut ended => {}
        // Neither moved nor closed.
        () = forgotten => ended.await,
    }
}

/// What was asked and not answered, in order, and what becomes of the answer.
#[derive(Default)]
struct Asked(Mutex<VecDeque<(Step, Option<Kind>)>>);

impl Asked {
    fn push(&self, step: Step, fate: Option<Kind>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back((step, fate));
    }

    fn pop(&self) -> (Step, Option<Kind>) {
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        first.unwrap_or((Step::Other, None))
    }
}

/// Reads what comes next; false where nothing does.
async fn fill(from: &mut OwnedReadHalf, buffer: &mut Vec<u8>) -> bool {
    buffer.reserve(16 << 10);
    matches!(from.read_buf(buffer).await, Ok(1..))
}

async fn until(ways: &mut watch::Receiver<Way>, so: impl FnMut(&Way) -> bool) {
    // The sender lives as long as this connection.
    let _ = ways.wait_for(so).await;
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, asked: &Asked) {
    let (mut buffer, mut ways) = (Vec::new(), shared.way.subscribe());
    while fill(&mut from, &mut buffer).await {
        while let Some(length) = wire::whole(&buffer) {
            let mut request: Vec<u8> = buffer.drain(..length).collect();
            let step = shared.scripts.step(&request);
            let fate = shared.strike(step);
            match fate {
                Some(Kind::CutBefore) => return,
                Some(Kind::Late(time)) => tokio::time::sleep(time).await,
                // Something in its place, for the answer to come in its turn.
                Some(Kind::Refuse(_)) => request = PING.to_vec(),
                _ => {}
            }
            until(&mut ways, |way| way.up).await;
            asked.push(step, fate);
            if to.write_all(&request).await.is_err() {
                return;
            }
        }
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, asked: &Asked) {
    let (mut buffer, mut ways) = (Vec::new(), shared.way.subscribe());
    while fill(&mut from, &mut buffer).await {
        while let Some(length) = wire::whole(&buffer) {
            let mut said: Vec<u8> = buffer.drain(..length).collect();
            let step = match wire::message(&said) {
                Some(message) if shared.swallows(message) => continue,
                Some(_) => None,
                None => {
                    let (step, fate) = asked.pop();
                    match fate {
                        Some(Kind::CutAfter) => return shared.hit(),
                        Some(Kind::SwallowReply) => {
                            shared.hit();
                            continue;
                        }
                        Some(Kind::Delay(time)) => {
                            shared.hit();
                            tokio::time::sleep(time).await;
                        }
                        Some(Kind::Refuse(error)) => {
                            shared.hit();
                            said = format!("-{error}\r\n").into_bytes();
                        }
                        _ => {}
                    }
                    Some(step)
                }
            };
            let held = shared.way.borrow().held;
            tokio::time::sleep_until(held.into()).await;
            until(&mut ways, |way| way.down).await;
            if to.write_all(&said).await.is_err() {
                return;
            }
            if let Some(step) = step {
                shared.passed.send_modify(|passed| *passed.entry(step).or_default() += 1);
            }
        }
    }
}
