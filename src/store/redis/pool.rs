//! Connections for scripts, shared by all operations of a process.

use std::{
    fmt, slice,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bb8_redis::{
    RedisConnectionManager, bb8,
    redis::{Cmd, Pipeline, PushKind, Value, aio::MultiplexedConnection},
};

use tokio::sync::Notify;

use super::{connect::Connector, error, script::Call, suspect::Suspect, term::Term};
use crate::store::{StoreError, StoreErrorKind};

/// A fixed number of connections, opened when first used.
pub(super) struct Pool {
    source: Source,
    manager: Manager,
    size: u32,
    limit: Duration,
}

enum Source {
    Own(OnceLock<bb8::Pool<Manager>>),
    /// The application's.
    Given(bb8::Pool<RedisConnectionManager>),
}

/// What is asked of a connection.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) what: What<'a>,
    /// It may be sent twice, so that a connection that broke while it was idle costs
    /// nobody an error.
    pub(super) again: bool,
    /// Of a node that a slot is on its way to.
    pub(super) asking: bool,
}

/// The command or the script itself.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    /// A command.
    Command(&'a Cmd),
    /// A script, in one write with a command before it.
    Script {
        /// What goes before it.
        before: Option<&'a Before>,
        /// The script.
        call: &'a Call,
    },
}

/// A command that goes before a script, which is done whatever comes of that.
#[derive(Debug)]
pub(super) struct Before {
    command: Cmd,
    refused: Mutex<Option<StoreError>>,
}

impl Before {
    pub(super) fn new(command: Cmd) -> Self {
        Self { command, refused: Mutex::default() }
    }

    /// What the server had against it, the last time that it was sent.
    pub(super) fn refusal(self) -> Option<StoreError> {
        self.refused.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, answer: Option<&Value>) {
        // Another server is asked then.
        let refused = answer.filter(|answer| !error::is_redirection(answer));
        let refused = refused.and_then(|answer| error::answered(answer.clone()).err());
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }
}

impl<'a> Request<'a> {
    pub(super) fn script(call: &'a Call) -> Self {
        Self { what: What::Script { before: None, call }, again: true, asking: false }
    }

    pub(super) fn command(command: &'a Cmd) -> Self {
        Self { what: What::Command(command), again: true, asking: false }
    }

    /// The same, with a command before it.
    pub(super) fn after(self, before: &'a Before) -> Self {
        match self.what {
            What::Script { call, .. } => {
                Self { what: What::Script { before: Some(before), call }, ..self }
            }
            What::Command(_) => self,
        }
    }

    /// The same, sent once.
    pub(super) fn once(self) -> Self {
        Self { again: false, ..self }
    }

    /// The same, for a node that a slot is on its way to.
    pub(super) fn asking(self) -> Self {
        Self { asking: true, ..self }
    }
}

/// A connection, and whether it is known to be of no more use.
#[derive(Clone)]
pub(super) struct Connection {
    handle: MultiplexedConnection,
    broken: Arc<AtomicBool>,
    /// None where the application says where its connections go.
    term: Option<Term>,
}

#[derive(Clone)]
struct Manager {
    connector: Connector,
    // Why the last connection could not be made: a waiting checkout only hears
    // that its time is up.
    last_error: Arc<Mutex<Option<StoreError>>>,
    failed: Arc<Notify>,
}

impl Pool {
    pub(super) fn new(connector: Connector, size: u32, limit: Duration) -> Self {
        let (last_error, failed) = (Arc::default(), Arc::default());
        let manager = Manager { connector, last_error, failed };
        Self { source: Source::Own(OnceLock::new()), manager, size, limit }
    }

    /// Shares a pool that the application has; its health is the application's.
    pub(super) fn given(
        pool: bb8::Pool<RedisConnectionManager>,
        connector: Connector,
        limit: Duration,
    ) -> Self {
        Self { source: Source::Given(pool), ..Self::new(connector, 0, limit) }
    }

    /// Sends a request; the server's errors are values. One that may be sent again is, so
    /// that connections that broke while they were idle cost nobody an error.
    pub(super) async fn send(&self, request: Request<'_>) -> Result<Value, StoreError> {
        // A server that went away and came back broke them all, and none tells of it
        // before it is used, or a moment later.
        let tries = if request.again { self.size.max(1) + 1 } else { 1 };
        let mut failed = None;
        for _ in 0..tries {
            let mut connection = match self.connection().await {
                Ok(connection) => connection,
                Err(error) => return Err(failed.unwrap_or(error)),
            };
            match connection.ask(request, self.limit).await {
                Err(error) if error.kind() == StoreErrorKind::Disconnected => failed = Some(error),
                result => return result,
            }
        }
        Err(failed.unwrap_or_else(error::timed_out))
    }

    // A checkout lasts only as long as this: commands share connections.
    async fn connection(&self) -> Result<Connection, StoreError> {
        let pool = match &self.source {
            Source::Given(pool) => return self.borrow(pool).await,
            Source::Own(pool) => pool,
        };
        let pool = pool.get_or_init(|| {
            bb8::Pool::builder()
                .max_size(self.size)
                .min_idle(self.size)
                .test_on_check_out(false)
                .max_lifetime(None)
                .idle_timeout(None)
                .connection_timeout(self.limit)
                // A server that refuses is away, and known so at once.
                .retry_connection(false)
                // One does the work for as long as it goes well, so that what is asked at the
                // same time goes out, and comes back, together.
                .queue_strategy(bb8::QueueStrategy::Lifo)
                .build_unchecked(self.manager.clone())
        });
        loop {
            let failed = self.manager.failed.notified();
            let got = tokio::select! {
                biased;
                got = pool.get() => got,
                // The pool would have everybody wait for the next one, which nobody opens.
                () = failed => Err(bb8::RunError::TimedOut),
            };
            let connection = match got {
                Ok(connection) => connection.clone(),
                Err(bb8::RunError::User(error)) => return Err(error),
                Err(bb8::RunError::TimedOut) if pool.state().connections > 0 => continue,
                Err(bb8::RunError::TimedOut) => return Err(self.manager.why_late()),
            };
            if !connection.is_broken() {
                return Ok(connection);
            }
        }
    }

    async fn borrow(
        &self,
        pool: &bb8::Pool<RedisConnectionManager>,
    ) -> Result<Connection, StoreError> {
        match pool.get().await {
            Ok(handle) => {
                Ok(Connection { handle: handle.clone(), broken: Arc::default(), term: None })
            }
            Err(bb8::RunError::User(cause)) => Err(self.manager.connector.unreachable(&cause)),
            Err(bb8::RunError::TimedOut) => Err(error::timed_out()),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) async fn open(connector: &Connector) -> Result<Self, StoreError> {
        let broken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&broken);
        let (handle, term) = connector
            .open(Box::new(move |info| {
                if info.kind == PushKind::Disconnection {
                    flag.store(true, Ordering::Relaxed);
                }
            }))
            .await?;
        Ok(Self { handle, broken, term: Some(term) })
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed) || self.term.as_ref().is_some_and(Term::is_over)
    }

    async fn many(&mut self, pipe: &Pipeline, limit: Duration) -> Result<Vec<Value>, StoreError> {
        let suspect = Suspect::new(limit, || self.broken.store(true, Ordering::Relaxed));
        let result = self.handle.send_packed_commands(pipe, 0, pipe.len()).await;
        suspect.answered(result.as_ref().err());
        self.heard(result.as_deref().unwrap_or_default());
        result.map_err(|error| error::from_redis(&error))
    }

    /// Sends commands in one write; the server's errors are values. `asking`: of a node that the slots are on their way to.
    pub(super) async fn each(
        &mut self,
        commands: Vec<Cmd>,
        asking: bool,
        limit: Duration,
    ) -> Result<Vec<Value>, StoreError> {
        let mut pipe = Pipeline::with_capacity(2 * commands.len());
        for command in commands {
            if asking {
                pipe.cmd("ASKING");
            }
            pipe.add_command(command);
        }
        let answers = self.many(&pipe, limit).await?;
        // Each answer follows the one to `ASKING`.
        let step = if asking { 2 } else { 1 };
        Ok(answers.into_iter().skip(step - 1).step_by(step).collect())
    }

    async fn ask(&mut self, request: Request<'_>, limit: Duration) -> Result<Value, StoreError> {
        let asking = request.asking;
        match request.what {
            What::Command(command) => {
                let value = self.one(None, command, asking, limit).await?;
                // A value of a foreign kind under our name is none of ours.
                let foreign = matches!(&value, Value::ServerError(e) if e.code() == "WRONGTYPE");
                Ok(if foreign { Value::Nil } else { value })
            }
            What::Script { before, call } => {
                let value = self.one(before, &call.by_hash(), asking, limit).await?;
                if error::is_missing_script(&value) {
                    self.one(None, &call.whole(), asking, limit).await
                } else {
                    Ok(value)
                }
            }
        }
    }

    /// Sends a command, in one write with what goes before it.
    async fn one(
        &mut self,
        before: Option<&Before>,
        command: &Cmd,
        asking: bool,
        limit: Duration,
    ) -> Result<Value, StoreError> {
        if before.is_some() || asking {
            let first = before.map(|before| &before.command);
            let commands = first.into_iter().chain([command]).cloned().collect();
            let mut answers = Box::pin(self.each(commands, asking, limit)).await?;
            let answer = answers.pop().ok_or_else(error::bad_reply)?;
            if let Some(before) = before {
                before.hear(answers.first());
            }
            return Ok(answer);
        }
        let suspect = Suspect::new(limit, || self.broken.store(true, Ordering::Relaxed));
        let result = self.handle.send_packed_command(command).await;
        suspect.answered(result.as_ref().err());
        self.heard(result.as_ref().map(slice::from_ref).unwrap_or_default());
        result.map_err(|error| error::from_redis(&error))
    }

    fn heard(&self, answers: &[Value]) {
        if answers.iter().any(error::is_from_replica) {
            // It was the master: the next connection goes where the master is.
            self.broken.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("broken", &self.is_broken()).finish_non_exhaustive()
    }
}

impl Manager {
    fn note(&self, error: Option<StoreError>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    // Why a checkout got no connection in time.
    fn why_late(&self) -> StoreError {
        let last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone().unwrap_or_else(error::timed_out)
    }
}

impl bb8::ManageConnection for Manager {
    type Connection = Connection;
    type Error = StoreError;

    async fn connect(&self) -> Result<Connection, StoreError> {
        let result = Connection::open(&self.connector).await;
        self.note(result.as_ref().err().cloned());
        if result.is_err() {
            self.failed.notify_waiters();
        }
        result
    }

    // Never asked: see `test_on_check_out`.
    async fn is_valid(&self, _: &mut Connection) -> Result<(), StoreError> {
        Ok(())
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        connection.is_broken()
    }
}
