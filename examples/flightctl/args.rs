//! The command line.

use std::time::Duration;

use tower_singleflight::{KeyDigest, store::KeyView};

pub(crate) const HELP: &str = "\
Looks at the flights of a fleet, and ends them.

flightctl [OPTIONS] COMMAND

  list          what is in the air in the whole fleet
  watch         what begins, changes hands and ends, line by line
  inspect KEY   what the store has of a key
  forget KEY    who comes from now on begins a new flight; an answer that is kept is not
                used again
  stop KEY      ends the flight for all its callers, in every process

KEY is the digest of 64 digits that `list` prints, `SingleFlightLayer::digest` gives for a
request, and the layer's spans have in their field `key`. Its first 8 digits or more will do
where they begin one key alone of those that `list` shows; to find it needs SCAN.

  --store URL       the store; default: the environment's REDIS_URL
  --prefix TEXT     the prefix of the store's names; default: ai:flight
  --all             also keys whose flights have ended: in list and watch, and where KEY is
                    not whole
  --limit N         list and watch: no more than so many keys; default: 10000
  --every MS        watch: milliseconds from one look to the next; default: 1000
  --json            JSON instead of a table: a list for `list`, one object a line for `watch`
  --quiet           no progress on stderr
  --help            this text

Exit status: 0 done, 1 the store does not answer or its user lacks a right (list and watch
need SCAN), 2 the command line is wrong, 3 there is nothing of that key.
";

/// The fewest digits that stand for a whole digest: who mistypes some is not to stop
/// another flight.
const FEWEST: usize = 8;

/// What to do.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    List,
    Watch,
    Inspect(Key),
    Forget(Key),
    Stop(Key),
}

#[derive(Clone, Debug)]
pub(crate) enum Key {
    Whole(KeyDigest),
    /// Its first digits.
    Begins(String),
}

/// What the command line says.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) command: Command,
    pub(crate) store: String,
    pub(crate) prefix: String,
    pub(crate) all: bool,
    pub(crate) limit: usize,
    pub(crate) every: Duration,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

#[derive(Debug)]
pub(crate) enum Asked {
    Help,
    Run(Args),
}

impl Args {
    /// Reads the command and its options, in any order.
    pub(crate) fn parse(
        mut args: impl Iterator<Item = String>,
        mut store: Option<String>,
    ) -> Result<Asked, String> {
        let (mut words, mut prefix) = (Vec::new(), "ai:flight".to_owned());
        let (mut all, mut json, mut quiet) = (false, false, false);
        let (mut limit, mut every) = (10_000, 1000);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--help" | "-h" => return Ok(Asked::Help),
                "--all" => all = true,
                "--json" => json = true,
                "--quiet" => quiet = true,
                "--store" => store = Some(value()?),
                "--prefix" => prefix = value()?,
                "--limit" => limit = number(&arg, &value()?)?,
                "--every" => every = number(&arg, &value()?)?,
                flag if flag.starts_with('-') => return Err(format!("there is no option {flag}")),
                _ => words.push(arg),
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let command = match words[..] {
            ["list"] => Command::List,
            ["watch"] => Command::Watch,
            ["inspect", key] => Command::Inspect(Key::parse(key)?),
            ["forget", key] => Command::Forget(Key::parse(key)?),
            ["stop", key] => Command::Stop(Key::parse(key)?),
            [command @ ("inspect" | "forget" | "stop")] => {
                return Err(format!("{command} needs a KEY"));
            }
            [] => return Err("a command is missing".to_owned()),
            [command, ..] => return Err(format!("{command} is no command, or has too many words")),
        };
        let store = store.ok_or("--store is missing, and REDIS_URL is not set")?;
        let every = Duration::from_millis(every as u64);
        Ok(Asked::Run(Self { command, store, prefix, all, limit, every, json, quiet }))
    }
}

impl Args {
    /// Whether it is about this key where none is named.
    pub(crate) fn shows(&self, view: &KeyView) -> bool {
        self.all || view.is_in_air()
    }

    /// The store, without what may be a password.
    pub(crate) fn place(&self) -> String {
        match self.store.split_once("://") {
            Some((scheme, rest)) => {
                format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default())
            }
            None => self.store.rsplit('@').next().unwrap_or_default().to_owned(),
        }
    }
}

impl Key {
    fn parse(text: &str) -> Result<Self, String> {
        let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        match text.parse() {
            Ok(digest) => Ok(Self::Whole(digest)),
            Err(_) if (FEWEST..64).contains(&text.len()) && text.chars().all(is_digit) => {
                Ok(Self::Begins(text.to_owned()))
            }
            Err(error) => Err(format!("KEY ({text}): {error}; its first {FEWEST} or more may do")),
        }
    }
}

fn number(flag: &str, text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{flag} ({text}) must be a number above 0"))
}
