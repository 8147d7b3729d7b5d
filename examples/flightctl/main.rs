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
    collections::HashMap,
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
    args::{Args, Asked, Command},
    show::Form,
};

/// Why it ends without having done what it was asked for.
#[derive(Debug)]
enum Failure {
    /// The store does not answer, or not to this user.
    Store(StoreError),
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
    match args.command {
        Command::List => form.list(&list(args, &fleet).await?)?,
        Command::Watch => watch(args, &fleet, form).await?,
        Command::Inspect(key) => {
            let view = fleet.inspect(key).await?;
            form.one(&view.ok_or(Failure::Nothing(key, "there is nothing of"))?)?;
        }
        Command::Forget(key) => {
            let kept = |view: &KeyView| view.is_in_air() || view.stored_bytes.is_some();
            let had = fleet.inspect(key).await?.is_some_and(|view| kept(&view));
            fleet.forget(key).await?;
            if !had {
                return Err(Failure::Nothing(key, "nothing was in the air, or kept, of"));
            }
            form.done("forgotten", key)?;
        }
        Command::Stop(key) => {
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
    let mut looked = 0;
    while found.len() < args.limit {
        let Some(page) = scan.next().await? else { break };
        looked += page.looked;
        let shown = page.keys.into_iter().filter(|view| args.all || view.is_in_air());
        found.extend(shown.map(|view| (view.key, view)));
        if !args.quiet {
            eprint!("\rlooked at about {looked} entries, found {} ", found.len());
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
