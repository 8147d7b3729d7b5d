//! Where a server is found.

use std::io::ErrorKind;

use tokio::net::TcpListener;

/// Listens there. Where it cannot, the error says what to write instead.
pub(crate) async fn listen(address: &str) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => "`--listen 127.0.0.1:0` takes a port that is free",
            _ => "it must be a host and a port, as in `--listen 127.0.0.1:3001`",
        };
        format!("--listen ({address}): {error}; {hint}")
    })
}
