//! Looks at the flights of a fleet, and ends them.
//!
//! ```text
//! export REDIS_URL=redis://127.0.0.1/
//! cargo run --example flightctl -- list
//! cargo run --example flightctl -- inspect KEY
//! ```
//!
//! KEY is a digest, as `list` prints it. That of a request is what
//! `SingleFlightLayer::digest` gives for it, and the field `key` of the layer's spans.

use std::{
    collections::{HashMap, HashSet},
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use tower_singleflight::{
    Fleet, KeyDigest, RedisStore,
    store::{KeyStatus, KeyView, StoreError, StoreErrorKind},
};

mod args;
mod show;

use self::{
    args::{Args, Asked, Command, Key},
    show::Form,
};

/// Why it ends without having done what it was asked for.
#[derive(Debug)]
enum Failure {
    /// The store does not answer, or not to this user.
    Store(StoreError),
    /// No key begins so, or several do.
    Key(u8, String),
    /// There is nothing of that key.
    Nothing(KeyDigest, &'static str),
    /// Nobody reads what it says.
    Output(io::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1), std::env::var("REDIS_URL").ok()) {
        Ok(Asked::Run(args)) => args,
        Ok(Asked::Help) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("flightctl: {message}\nflightctl --help says more");
            return ExitCode::from(2);
        }
    };
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Store(error)) => {
            let (code, setting) = match error.kind() {
                StoreErrorKind::Address => (2, format!("--store ({}): ", args.place())),
                StoreErrorKind::Setting => (2, "--".to_owned()),
                _ => (1, String::new()),
            };
            eprintln!("flightctl: {setting}{error}");
            ExitCode::from(code)
        }
        Err(Failure::Key(code, message)) => {
            eprintln!("flightctl: {message}");
            ExitCode::from(code)
        }
        Err(Failure::Nothing(key, what)) => {
            eprintln!("flightctl: {what} {key}");
            ExitCode::from(3)
        }
        // As `list | head` ends it.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(Failure::Output(error)) => {
            eprintln!("flightctl: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), Failure> {
    let store = RedisStore::builder(args.store.as_str()).prefix(args.prefix.as_str());
    let fleet = Fleet::new(store.connect().await?);
    let form = if args.json { Form::Json } else { Form::Table };
    match &args.command {
        Command::List => form.list(&list(args, &fleet).await?)?,
        Command::Watch => watch(args, &fleet, form).await?,
        Command::Inspect(key) => {
            let key = whole(args, &fleet, key).await?;
            let view = fleet.inspect(key).await?;
            form.one(&view.ok_or(Failure::Nothing(key, "there is nothing of"))?)?;
        }
        Command::Forget(key) => {
            let key = whole(args, &fleet, key).await?;
            let kept = |view: &KeyView| view.is_in_air() || view.stored_bytes.is_some();
            let had = fleet.inspect(key).await?.is_some_and(|view| kept(&view));
            fleet.forget(key).await?;
            if !had {
                return Err(Failure::Nothing(key, "nothing was in the air, or kept, of"));
            }
            form.done("forgotten", key)?;
        }
        Command::Stop(key) => {
            let key = whole(args, &fleet, key).await?;
            let had = fleet.inspect(key).await?.is_some_and(|view| view.is_in_air());
            fleet.stop(key).await?;
            if !had {
                return Err(Failure::Nothing(key, "nothing was in the air of"));
            }
            form.done("stopped", key)?;
        }
    }
    Ok(())
}

/// What is there, the oldest first.
async fn list(args: &Args, fleet: &Fleet) -> Result<Vec<KeyView>, Failure> {
    let (mut scan, mut found) = (fleet.scan(), HashMap::new());
    let mut steps = 0;
    while found.len() < args.limit {
        let Some(page) = scan.next().await? else { break };
        steps += 1;
        let shown = page.keys.into_iter().filter(|view| args.shows(view));
        found.extend(shown.map(|view| (view.key, view)));
        if !args.quiet {
            eprint!("\rsteps of the scan: {steps}, found: {} ", found.len());
        }
    }
    if !args.quiet {
        eprintln!();
        if found.len() >= args.limit {
            eprintln!("--limit ({}) is reached: there may be more", args.limit);
        }
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by_key(|view| (std::cmp::Reverse(view.age), view.key));
    found.truncate(args.limit);
    Ok(found)
}

/// The one key that begins so, of those that are shown.
async fn whole(args: &Args, fleet: &Fleet, key: &Key) -> Result<KeyDigest, Failure> {
    let text = match key {
        Key::Whole(key) => return Ok(*key),
        Key::Begins(text) => text,
    };
    let (mut scan, mut found) = (fleet.scan(), HashSet::new());
    while let Some(page) = scan.next().await? {
        let shown = page.keys.into_iter().filter(|view| args.shows(view));
        found.extend(shown.map(|view| view.key).filter(|key| key.to_string().starts_with(text)));
    }
    let mut found = found.into_iter();
    match (found.next(), found.len()) {
        (Some(key), 0) => Ok(key),
        (Some(_), more) => {
            let message =
                format!("KEY ({text}) begins the keys of {} flights: write more of it", more + 1);
            Err(Failure::Key(2, message))
        }
        (None, _) => {
            let of = if args.all { "" } else { " in the air (--all: also of those that ended)" };
            Err(Failure::Key(3, format!("KEY ({text}) begins no key of a flight{of}")))
        }
    }
}

/// Says what changes, until it is ended.
async fn watch(args: &Args, fleet: &Fleet, form: Form) -> Result<(), Failure> {
    let mut last: HashMap<KeyDigest, (u64, KeyStatus)> = HashMap::new();
    loop {
        let now = list(&Args { quiet: true, ..args.clone() }, fleet).await?;
        for view in &now {
            let state = (view.flight.token, view.status);
            if last.insert(view.key, state) != Some(state) {
                form.change(view)?;
            }
        }
        let gone: Vec<_> =
            last.keys().filter(|key| now.iter().all(|view| view.key != **key)).copied().collect();
        for key in gone {
            last.remove(&key);
            // What is kept of it says how it ended.
            match fleet.inspect(key).await? {
                Some(view) => form.change(&view)?,
                None => form.done("gone", key)?,
            }
        }
        io::stdout().flush()?;
        tokio::time::sleep(args.every.max(Duration::from_millis(10))).await;
    }
}
