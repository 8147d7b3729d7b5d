//! The command line of a server.

/// What the command line says.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) listen: String,
    /// The Redis that several servers meet on, if there is to be one.
    pub(crate) store: Option<String>,
}

impl Args {
    /// Reads it, and the environment's REDIS_URL; who asks for help gets it, and no more.
    pub(crate) fn read(usage: &str, listen: &str) -> Result<Self, String> {
        let mut this = Self { listen: listen.to_owned(), store: None };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value; {usage}"));
            match arg.as_str() {
                "--listen" => this.listen = value()?,
                "--store" => this.store = Some(value()?),
                "--help" | "-h" => {
                    println!("{usage}");
                    println!("  --listen  default: {listen}; port 0 is one that is free");
                    println!("  --store   a Redis on which several servers share their runs;");
                    println!("            default: the environment's REDIS_URL, or none");
                    std::process::exit(0);
                }
                _ => return Err(format!("{arg} is not known; {usage}")),
            }
        }
        let environment = || std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
        this.store = this.store.or_else(environment);
        Ok(this)
    }
}
