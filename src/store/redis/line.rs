//! The connection that pushes come by: sent to in order, kept up.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bb8_redis::redis::{Pipeline, RedisError, Value, aio::MultiplexedConnection};
use tokio::sync::Notify;

use super::{hub::Hub, term::Term};
use crate::store::Pushed;

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

pub(super) type Answer = Result<Vec<Value>, RedisError>;

/// Commands that were handed to a connection, and the answers to come.
pub(super) enum Sent {
    /// Known at once.
    Answered(Option<Answer>),
    /// On the way.
    Waiting(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

impl Sent {
    /// Hands the commands over, in the order of these calls, without waiting.
    pub(super) fn new(mut connection: MultiplexedConnection, pipe: Pipeline) -> Self {
        // Outside of the runtime's budget, which would put the first poll off.
        let mut future = Box::pin(tokio::task::unconstrained(async move {
            connection.send_packed_commands(&pipe, 0, pipe.len()).await
        }));
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Self::Answered(Some(answer)),
            Poll::Pending => Self::Waiting(future),
        }
    }
}

impl Future for Sent {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        match &mut *self {
            Self::Answered(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Waiting(future) => future.as_mut().poll(cx),
        }
    }
}

/// Keeps the line up for as long as the hub lives.
pub(super) async fn keep(hub: Weak<Hub>, changed: Arc<Notify>) {
    let mut wait = FIRST_WAIT;
    loop {
        let Some(opened) = open(&hub).await else { return };
        if let Some((number, mut term)) = opened {
            wait = FIRST_WAIT;
            // Nothing is held on to meanwhile: the hub may go.
            loop {
                let gone = changed.notified();
                tokio::pin!(gone);
                gone.as_mut().enable();
                let rest = match hub.upgrade() {
                    None => return,
                    Some(hub) if !hub.has_line(number) => break,
                    Some(hub) => hub.rest(),
                };
                tokio::select! {
                    () = gone => {}
                    // Pushes come from the server that is written to.
                    () = term.over() => {
                        if let Some(hub) = hub.upgrade() {
                            hub.give_up(number);
                        }
                    }
                    () = over(rest) => {
                        if let Some(hub) = hub.upgrade() {
                            hub.take_pulse(number).await;
                        }
                    }
                }
            }
        }
        tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

async fn over(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

// Opens a line and subscribes all keys. None: no more lines are wanted.
async fn open(hub: &Weak<Hub>) -> Option<Option<(u64, Term)>> {
    let (number, connector, limit) = {
        let hub = hub.upgrade()?;
        (hub.opening(), hub.connector.clone(), hub.limit)
    };
    let heard = Weak::clone(hub);
    let on_push = Box::new(move |info| {
        if let Some(hub) = heard.upgrade() {
            hub.hear(number, info);
        }
    });
    let result = connector.open(on_push).await;
    let hub = hub.upgrade()?;
    let Ok((connection, term)) = result else {
        hub.not_opened();
        return Some(None);
    };
    if !connector.pushes() {
        hub.not_opened();
        return None;
    }
    let (sent, listeners) = hub.opened(number, connection);
    if let Some(sent) = sent {
        match tokio::time::timeout(limit.max(LONGEST_WAIT), sent).await {
            Ok(Ok(_)) => {}
            _ => {
                hub.give_up(number);
                return Some(None);
            }
        }
    }
    if number > 1 {
        tracing::debug!(address = %connector, "push connection is up again");
    }
    listeners.iter().for_each(|queue| queue.push(Pushed::Gap));
    Some(Some((number, term)))
}
