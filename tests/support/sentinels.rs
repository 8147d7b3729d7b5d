//! A master, two replicas and three sentinels, in processes of a test's own.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::redis_server::{RedisServer, free_port};

/// The master's name.
const MASTER: &str = "main";
/// The sentinels that must agree, of three.
const QUORUM: &str = "2";
const PATIENCE: Duration = Duration::from_secs(30);

/// All of them; killed when dropped.
pub(crate) struct Fleet {
    /// The first one is the master to begin with.
    pub(crate) servers: [RedisServer; 3],
    sentinels: Vec<Sentinel>,
}

struct Sentinel {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Fleet {
    /// Starts them, and waits until all know each other.
    pub(crate) fn start() -> Self {
        let quick = ["--repl-diskless-sync-delay", "0"];
        let master = RedisServer::start_with(&quick);
        let port = master.port().to_string();
        let of = format!("127.0.0.1 {port}");
        let replica = || RedisServer::start_with(&[&quick[..], &["--replicaof", &of]].concat());
        let servers = [master, replica(), replica()];
        for replica in &servers[1..] {
            until("the replicas are there", || {
                let lines = replica.lines(&["INFO", "replication"]);
                lines.iter().any(|line| line == "master_link_status:up")
            });
        }
        let sentinels = (0..3).map(|_| Sentinel::start(&port)).collect();
        let fleet = Self { servers, sentinels };
        for sentinel in &fleet.sentinels {
            until("the sentinels know each other", || {
                let lines = sentinel.ask(&["SENTINEL", "MASTER", MASTER]);
                let has = |name: &str, value: &str| {
                    lines.windows(2).any(|pair| pair[0] == name && pair[1] == value)
                };
                has("num-slaves", "2") && has("num-other-sentinels", "2") && has("flags", "master")
            });
        }
        fleet
    }

    /// The address; `login` is `user:password@`, or nothing.
    pub(crate) fn url(&self, login: &str) -> String {
        let places: Vec<String> =
            self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        format!("redis-sentinel://{login}{}/{MASTER}", places.join(","))
    }

    /// The port that most sentinels say is the master's.
    pub(crate) fn master(&self) -> Option<u16> {
        let says = |sentinel: &Sentinel| {
            let lines = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
            lines.last().and_then(|port| port.parse::<u16>().ok())
        };
        let mut said: Vec<u16> = self.sentinels.iter().filter_map(says).collect();
        said.sort_unstable();
        said.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// Has the sentinels choose another master, while the old one lives.
    pub(crate) fn fail_over(&self) {
        let lines = self.sentinels[0].ask(&["SENTINEL", "FAILOVER", MASTER]);
        assert_eq!(lines, ["+OK"]);
    }

    /// The sentinels ask for a password from now on.
    pub(crate) fn require_password(&self, password: &str) {
        for sentinel in &self.sentinels {
            let rule = format!(">{password}");
            assert_eq!(sentinel.ask(&["ACL", "SETUSER", "default", "resetpass", &rule]), ["+OK"]);
        }
    }

    /// Cuts the replicas off: what the master is told from now on it alone knows.
    pub(crate) fn pause_replication(&self) {
        let [master, replicas @ ..] = &self.servers;
        for replica in replicas {
            for (setting, value) in [("masteruser", "nobody"), ("masterauth", "wrong")] {
                assert_eq!(replica.command(&["CONFIG", "SET", setting, value]), "+OK\r\n");
            }
        }
        master.command(&["CLIENT", "KILL", "TYPE", "replica"]);
        until("the replicas are cut off", || {
            master.lines(&["INFO", "replication"]).iter().any(|line| line == "connected_slaves:0")
        });
    }

    /// Connections that each sentinel has, but for those of the others.
    pub(crate) fn at_sentinels(&self) -> Vec<usize> {
        let ours = |client: &&str| {
            client.contains("addr=")
                && !client.contains("name=sentinel-")
                && !client.contains("cmd=client")
        };
        let clients = self.sentinels.iter().map(|one| one.ask(&["CLIENT", "LIST"]).join("\n"));
        clients.map(|clients| clients.lines().filter(ours).count()).collect()
    }

    /// Kills a sentinel as a crash would.
    pub(crate) fn kill_sentinel(&mut self, n: usize) {
        self.sentinels[n].kill();
    }
}

impl Sentinel {
    fn start(master: &str) -> Self {
        for _ in 0..10 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let port = free_port();
            let config = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\n\
                 sentinel monitor {MASTER} 127.0.0.1 {master} {QUORUM}\n\
                 sentinel down-after-milliseconds {MASTER} 500\n\
                 sentinel failover-timeout {MASTER} 3000\n",
                folder.path().display(),
            );
            let file = folder.path().join("sentinel.conf");
            std::fs::write(&file, config).expect("a file is written");
            let child = Command::new("redis-server")
                .arg(&file)
                .arg("--sentinel")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-server is on the path");
            let mut sentinel = Self { child, port, _folder: folder };
            if sentinel.wait() {
                // Where it can be told to, it is quicker to find the others.
                sentinel.ask(&["SENTINEL", "DEBUG", "publish-period", "100"]);
                sentinel.ask(&["SENTINEL", "DEBUG", "info-period", "200"]);
                return sentinel;
            }
        }
        panic!("a sentinel found no free port in ten attempts");
    }

    fn wait(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return false;
            }
            assert!(Instant::now() < end, "the sentinel did not answer in {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// The answer's lines, without their lengths; none where there is no answer.
    fn ask(&self, parts: &[&str]) -> Vec<String> {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return Vec::new();
        };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut request = format!("*{}\r\n", parts.len());
        for part in parts {
            request.push_str(&format!("${}\r\n{part}\r\n", part.len()));
        }
        // What comes before this is the whole answer.
        const END: &str = "$7\r\nthe-end\r\n";
        request.push_str(&format!("*2\r\n$4\r\nPING\r\n{END}"));
        if stream.write_all(request.as_bytes()).is_err() {
            return Vec::new();
        }
        let (mut answer, mut bytes) = (String::new(), [0; 4096]);
        while !answer.ends_with(END) {
            match stream.read(&mut bytes) {
                Ok(read @ 1..) => answer.push_str(&String::from_utf8_lossy(&bytes[..read])),
                _ => return Vec::new(),
            }
        }
        let answer = answer.strip_suffix(END).unwrap_or(&answer);
        let lines = answer.split("\r\n").filter(|line| !line.starts_with(['$', '*']));
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
