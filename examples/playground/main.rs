//! A fleet to play with: three nodes, a Redis of their own, and a page that shows what
//! they do while they are asked, frozen, cut off and killed.
//!
//! ```text
//! cargo run --example playground
//! ```
//!
//! Nodes are processes of this same executable. Each reaches Redis through a proxy here
//! that can be cut. Where there is no `redis-server` on the path they are three layers in
//! one process, on the store in memory, and the page says so.

use std::{error::Error, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use serde_json::json;
use tokio::{net::TcpListener, sync::Mutex};
use tower_singleflight::{Fleet as Flights, RedisStore};

mod args;
mod callers;
mod fleet;
mod lanes;
mod node;
mod proxy;
mod redis;
mod report;
mod rounds;
mod scene;
mod story;
mod view;
mod warden;
mod web;
mod work;

use self::{
    args::{Options, Role},
    callers::Callers,
    fleet::{Fleet, Ground},
    redis::Redis,
    scene::Watched,
    warden::Warden,
    web::Playground,
};

/// Between two looks at what is written in Redis.
const LOOK: Duration = Duration::from_millis(100);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Role::parse(std::env::args().skip(1)) {
        Ok(Role::Playground(options)) => play(options).await,
        Ok(Role::Node { name, redis, pace }) => {
            tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("error").init();
            node::process(name, &redis, pace).await
        }
        Ok(Role::Warden { folder }) => return warden::watch(&folder).await,
        Ok(Role::Help) => {
            print!("{}\n{}", args::USAGE, args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn play(options: Options) -> Result<()> {
    // First of all: where the port is taken, nothing has been started.
    let listener = listen(&options).await?;
    let folder = tempfile::tempdir()?;
    let warden = Warden::start(folder.path())?;
    let mut serving = std::pin::pin!(serve(&options, listener, folder.path(), &warden));
    let result = tokio::select! {
        result = &mut serving => result,
        () = told_to_end() => Ok(()),
    };
    warden.end().await;
    result
}

async fn serve(
    options: &Options,
    listener: TcpListener,
    folder: &std::path::Path,
    warden: &Warden,
) -> Result<()> {
    let mut server = match options.memory {
        true => None,
        false => Redis::start(folder)?,
    };
    let (mut scripts, mut flights) = (None, None);
    if let Some(server) = &mut server {
        warden.started(server.pid()).await?;
        scripts = Some(Mutex::new(server.scripts().await?));
        flights = Some(Flights::new(RedisStore::connect(&server.url()).await?));
    }
    let setting = json!({
        "session": std::process::id(),
        "folder": folder,
        "redis": server.as_ref().map(|server| &server.name),
        "redis_pid": server.as_ref().and_then(Redis::pid),
        "lease_ms": options.pace.lease.as_millis() as u64,
        "beat_ms": options.pace.lease.as_millis() as u64 / 3,
        "run_ms": options.pace.takes.as_millis() as u64,
    });
    let scene = Watched::new();
    let warden = warden.clone();
    let ground = server.as_ref().map(|server| Ground { socket: server.socket(), warden });
    let fleet = Fleet::new(scene.clone(), options.pace, ground);
    fleet.start_all().await?;
    let callers = Callers::new(scene.clone());
    if let Some(flights) = flights {
        tokio::spawn(look(scene.clone(), flights));
    }
    let playground = Arc::new(Playground { scene, fleet, callers, scripts, setting });

    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("  open it in a browser: three nodes to ask, freeze, cut off and kill");
    match &server {
        Some(server) => println!("  they meet on a {} of their own; Ctrl-C ends all", server.name),
        None => println!("  they are three layers in this process, for want of a redis-server"),
    }
    Ok(axum::serve(listener, web::app(playground)).await?)
}

async fn listen(options: &Options) -> Result<TcpListener> {
    match TcpListener::bind(options.listen).await {
        Err(error) if options.any_port && error.kind() == std::io::ErrorKind::AddrInUse => {
            let any = SocketAddr::new(options.listen.ip(), 0);
            Ok(TcpListener::bind(any).await?)
        }
        result => result.map_err(|error| {
            let hint = "`--listen 127.0.0.1:0` takes a port that is free";
            format!("--listen ({}): {error}; {hint}", options.listen).into()
        }),
    }
}

/// Looks at what is written of the flights that are in the air, or were a moment ago.
async fn look(scene: Watched, flights: Flights) {
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        ticks.tick().await;
        let kinds: Vec<_> = {
            let scene = scene.look();
            let known = scene.kinds.iter();
            known.filter_map(|(digest, &kind)| Some((digest.parse().ok()?, kind))).collect()
        };
        for (key, kind) in kinds {
            let view = flights.inspect(key).await.unwrap_or_default();
            scene.change(|scene| scene.recorded(kind, view));
        }
    }
}

async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let signals = kinds.map(|kind| {
        Box::pin(async move {
            match signal(kind) {
                Ok(mut signal) => {
                    signal.recv().await;
                }
                Err(_) => std::future::pending().await,
            }
        })
    });
    futures_util::future::select_all(signals).await;
}
