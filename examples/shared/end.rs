//! How a server hears that it is to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Until it is told so: by Ctrl-C, or by SIGTERM, as a deploy does it. Who is told twice
/// ends at once.
pub(crate) async fn told_to_end() {
    let kinds = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = kinds else {
        return std::future::pending().await;
    };
    either(&mut interrupt, &mut terminate).await;
    eprintln!("ending, as soon as all are answered; told again, at once");
    tokio::spawn(async move {
        either(&mut interrupt, &mut terminate).await;
        std::process::exit(130);
    });
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
