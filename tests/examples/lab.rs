//! `examples/lab`: its command line. What it does is the fleet tests' matter.

use std::process::{Command, Stdio};

use crate::program::binary;

#[test]
fn lab_names_the_setting_that_cannot_work() {
    for (flag, value, says) in [
        ("--heartbeat-ms", "3000", "heartbeat (3s) must be under half of lease (3s)"),
        ("--idle-timeout-ms", "0", "idle_timeout (0ns) must be at least 1ms"),
        ("--delivery", "late", "--delivery (late) must be auto or buffered or streaming"),
        ("--lease-ms", "-1", "--lease-ms (-1) must be a number of milliseconds"),
        ("--workers", "0", "--workers (0) must be at least 1"),
        ("--store", "ftp://host", "--store (ftp://host): "),
        ("--fast", "1", "--fast (1) is not a setting of the lab"),
    ] {
        let ended = Command::new(binary("lab"))
            .args(["--listen", "127.0.0.1:0", flag, value])
            .stdin(Stdio::null())
            .output()
            .expect("the lab starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{flag} {value}: {said}");
        assert!(said.starts_with(says) && said.lines().count() == 1, "{flag} {value}: {said}");
        assert!(ended.stdout.is_empty());
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn lab_meets_others_over_tls() {
    use crate::{
        program::Server,
        support::{certificates::Certificates, redis_server::RedisServer},
    };

    let certificates = Certificates::new();
    let args = certificates.server_args("no");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let redis = RedisServer::start_with(&args);
    let root = certificates.file("root.pem").display().to_string();
    let trust = [("SSL_CERT_FILE", root.as_str())];
    let lab = Server::start_with("lab", &["--store", &redis.tls_url()], &trust);
    let (status, text) = lab.get("/work/tls?ms=0").await;
    assert_eq!(status, 200);
    assert!(text.contains("token=") && !text.contains("token=0"), "{text}");
}
