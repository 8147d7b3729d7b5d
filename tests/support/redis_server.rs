//! A redis-server of a test's own, on a unix socket and a free TCP port.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

const MISSING: &str =
    "redis-server is not on the path: install it (Debian, Ubuntu: apt-get install redis-server)";

/// A running server; killed and forgotten when dropped.
pub(crate) struct RedisServer {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
    binary: String,
    args: Vec<String>,
    /// Killed or frozen.
    away: AtomicBool,
}

impl RedisServer {
    /// Starts one and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with more arguments.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::start_binary("redis-server", args)
    }

    /// Starts this one, which need not be on the path, with more arguments.
    pub(crate) fn start_binary(binary: &str, args: &[&str]) -> Self {
        Self::start_on(binary, args, false)
    }

    /// Starts one that may be a node of a cluster, with more arguments.
    pub(crate) fn start_node(args: &[&str]) -> Self {
        Self::start_on("redis-server", args, true)
    }

    fn start_on(binary: &str, args: &[&str], node: bool) -> Self {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        // A port that was free a moment ago may be taken by now: then another.
        for _ in 0..10 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let port = free_port();
            let mut args = args.clone();
            if node {
                let bus = ["--cluster-port".to_owned(), free_port().to_string()];
                args.extend(
                    ["--cluster-enabled".to_owned(), "yes".to_owned()].into_iter().chain(bus),
                );
            }
            let child = spawn(binary, &folder, port, &args);
            let (binary, away) = (binary.to_owned(), AtomicBool::new(false));
            let mut server = Self { child, folder, port, binary, args, away };
            if server.wait() {
                return server;
            }
        }
        panic!("redis-server found no free port in ten attempts");
    }

    /// The address over TCP.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The address over TLS, where the server has a certificate.
    pub(crate) fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port)
    }

    /// The address over the unix socket.
    pub(crate) fn unix_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The address over TCP, for this user, and this database.
    pub(crate) fn url_for(&self, user: &str, password: &str, database: u8) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where the other nodes of its cluster reach it.
    pub(crate) fn bus_port(&self) -> &str {
        self.args.last().expect("a node's last argument")
    }

    /// Whether it is neither killed nor frozen.
    pub(crate) fn is_there(&self) -> bool {
        !self.away.load(Ordering::Relaxed)
    }

    /// Kills the server as a crash would.
    pub(crate) fn kill(&mut self) {
        self.away.store(true, Ordering::Relaxed);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it without a word, as a machine that hangs.
    pub(crate) fn freeze(&self) {
        self.away.store(true, Ordering::Relaxed);
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
        self.away.store(false, Ordering::Relaxed);
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    }

    /// Starts it again on the same port, with nothing in it.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.binary, &self.folder, self.port, &self.args);
        assert!(self.wait(), "redis-server came back on its port");
        self.away.store(false, Ordering::Relaxed);
    }

    /// Makes a user with these rights.
    pub(crate) fn set_user(&self, user: &str, rights: &[String]) {
        let mut command = vec!["ACL", "SETUSER", user];
        command.extend(rights.iter().map(String::as_str));
        assert_eq!(self.command(&command), "+OK\r\n", "{command:?}");
    }

    /// Sends one command over a connection of its own; the raw answer.
    pub(crate) fn command(&self, parts: &[&str]) -> String {
        ask(&mut self.connect(), parts)
    }

    /// A connection over the unix socket.
    pub(crate) fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).expect("the server's socket")
    }

    /// The answer to a command as lines, without the lengths of RESP2.
    pub(crate) fn lines(&self, parts: &[&str]) -> Vec<String> {
        let answer = self.command(parts);
        let lines = answer.split("\r\n").filter(|line| !line.starts_with(['$', '*']));
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Scripts that it ran so far, by either way of calling them.
    pub(crate) fn scripts(&self) -> u64 {
        self.calls("evalsha") + self.calls("eval")
    }

    /// How often it did this command so far, scripts' calls among them.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let begins = format!("cmdstat_{command}:calls=");
        let stats = self.lines(&["INFO", "commandstats"]);
        let calls = stats.iter().find_map(|line| line.strip_prefix(&begins)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a count"))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    fn wait(&mut self) -> bool {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return false;
            }
            if let Ok(mut stream) = UnixStream::connect(self.socket()) {
                let answer = ask(&mut stream, &["PING"]);
                if answer.contains("PONG") || answer.contains("NOAUTH") {
                    return true;
                }
            }
            assert!(Instant::now() < end, "redis-server did not answer in ten seconds");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(binary: &str, folder: &tempfile::TempDir, port: u16, args: &[String]) -> Child {
    let port = port.to_string();
    let over_tls = args.iter().any(|arg| arg == "--tls-cert-file");
    let (plain, tls) = if over_tls { ("0", port.as_str()) } else { (port.as_str(), "0") };
    let mut command = Command::new(binary);
    if over_tls {
        // A server that knows no TLS knows no such port either.
        command.args(["--tls-port", tls]);
    }
    command
        .args(["--port", plain, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .arg("--unixsocket")
        .arg(folder.path().join("redis.sock"))
        .arg("--dir")
        .arg(folder.path())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect(MISSING)
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn ask(stream: &mut UnixStream, parts: &[&str]) -> String {
    let mut request = format!("*{}\r\n", parts.len());
    for part in parts {
        request.push_str(&format!("${}\r\n{part}\r\n", part.len()));
    }
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    stream.write_all(request.as_bytes()).expect("the request is written");
    // The server closes after QUIT, so that the answer ends.
    stream.write_all(b"*1\r\n$4\r\nQUIT\r\n").expect("the farewell is written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer is read");
    let answer = String::from_utf8_lossy(&answer);
    answer.strip_suffix("+OK\r\n").unwrap_or(&answer).to_owned()
}

/// Accepts connections and never says a word.
pub(crate) fn silent_server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    (listener, format!("redis://user:hunter2@{address}/"))
}

/// A port on which nobody listens.
pub(crate) fn closed_port() -> String {
    format!("redis://user:hunter2@127.0.0.1:{}/", free_port())
}

/// Whether the port answers.
pub(crate) fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}
