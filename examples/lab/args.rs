//! The command line.

use std::{net::SocketAddr, str::FromStr, time::Duration};

use tower_singleflight::{Abandon, Config, Delivery, LeaseLoss, RedisStore, StoreDown};

/// What the command line says.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) listen: SocketAddr,
    /// None: the layer's own, in memory.
    pub(crate) store: Option<RedisStore>,
    pub(crate) namespace: String,
    pub(crate) config: Config,
    pub(crate) workers: usize,
    pub(crate) inner_limit: Option<usize>,
    pub(crate) grace: Duration,
}

impl Args {
    /// Reads flags, each followed by its value.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let (mut store, mut namespace) = (None, "lab".to_owned());
        let (mut workers, mut inner_limit, mut grace) = (2, None, Duration::from_secs(1));
        let mut config = Config::builder();
        while let Some(flag) = args.next() {
            let Some(value) = args.next() else { return Err(format!("{flag} needs a value")) };
            let value = Value { flag: &flag, text: &value };
            match flag.as_str() {
                "--listen" => listen = value.parse("an address such as 127.0.0.1:0")?,
                "--store" if value.text == "memory:" => store = None,
                "--store" => store = Some(value.store()?),
                "--namespace" => namespace = value.text.to_owned(),
                "--lease-ms" => config = config.lease(value.ms()?),
                "--heartbeat-ms" => config = config.heartbeat(value.ms()?),
                "--hard-timeout-ms" => config = config.hard_timeout(value.ms()?),
                "--retention-ms" => config = config.retention(value.ms()?),
                "--reuse-ms" => config = config.reuse(value.ms()?),
                "--pass-ms" => config = config.private_mark(value.ms()?),
                "--wait-timeout-ms" => config = config.wait_limit(value.ms()?),
                "--max-share-bytes" => config = config.max_share_bytes(value.parse("a number")?),
                "--idle-timeout-ms" => config = config.idle_timeout(value.ms()?),
                "--delivery" => {
                    config = config.delivery(value.one_of([
                        ("auto", Delivery::Auto),
                        ("buffered", Delivery::Buffered),
                        ("streaming", Delivery::Streaming),
                    ])?);
                }
                "--abandon" => {
                    config = config.abandon(
                        value.one_of([("abort", Abandon::Abort), ("finish", Abandon::Finish)])?,
                    );
                }
                "--lease-loss" => {
                    config = config.lease_loss(value.one_of([
                        ("abort", LeaseLoss::Abort),
                        ("finish-locally", LeaseLoss::FinishLocally),
                    ])?);
                }
                "--store-down" => {
                    config = config.store_down(
                        value.one_of([("open", StoreDown::Open), ("reject", StoreDown::Reject)])?,
                    );
                }
                "--workers" => workers = value.at_least_one()?,
                "--inner-limit" => inner_limit = Some(value.at_least_one()?),
                "--grace-ms" => grace = value.ms()?,
                _ => return Err(format!("{flag} ({}) is not a setting of the lab", value.text)),
            }
        }
        let config = config.build().map_err(|error| error.to_string())?;
        Ok(Self { listen, store, namespace, config, workers, inner_limit, grace })
    }
}

struct Value<'a> {
    flag: &'a str,
    text: &'a str,
}

impl Value<'_> {
    fn parse<T: FromStr>(&self, what: &str) -> Result<T, String> {
        self.text.parse().map_err(|_| format!("{} ({}) must be {what}", self.flag, self.text))
    }

    fn ms(&self) -> Result<Duration, String> {
        self.parse("a number of milliseconds").map(Duration::from_millis)
    }

    /// Lazily: the lab also shows what happens without the store.
    fn store(&self) -> Result<RedisStore, String> {
        RedisStore::builder(self.text).connect_lazy().map_err(|error| {
            // Without what may be a password.
            let place = match self.text.split_once("://") {
                Some((scheme, rest)) => {
                    format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default())
                }
                None => self.text.rsplit('@').next().unwrap_or_default().to_owned(),
            };
            format!("{} ({place}): {error}", self.flag)
        })
    }

    fn at_least_one(&self) -> Result<usize, String> {
        match self.parse("a number")? {
            0 => Err(format!("{} (0) must be at least 1", self.flag)),
            number => Ok(number),
        }
    }

    fn one_of<T, const N: usize>(&self, choices: [(&str, T); N]) -> Result<T, String> {
        let names = choices.each_ref().map(|(name, _)| *name).join(" or ");
        choices
            .into_iter()
            .find_map(|(name, choice)| (name == self.text).then_some(choice))
            .ok_or_else(|| format!("{} ({}) must be {names}", self.flag, self.text))
    }
}
