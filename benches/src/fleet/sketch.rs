//! The least that works over Redis while nothing goes wrong: one script takes a key,
//! one gives its answer to all. No renewal, no takeover, no streams, no fence but the
//! holder's name.

use bb8_redis::redis::Cmd;

use super::raw::{Raw, cmd};

const ACQUIRE: &str = "
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 1
end
return 0";

const COMPLETE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], ARGV[2])
return 1";

#[derive(Debug)]
pub struct Sketch {
    pub raw: Raw,
    acquire: String,
    complete: String,
}

impl Sketch {
    pub async fn connect(url: &str) -> Self {
        let raw = Raw::connect(url).await;
        let (acquire, complete) = (raw.load(ACQUIRE).await, raw.load(COMPLETE).await);
        Self { raw, acquire, complete }
    }

    /// Whether the key is this caller's now.
    pub async fn acquire(&self, key: &str) -> bool {
        let script = self.script(&self.acquire, key);
        self.raw.ask(&script.keys(1).arg("me").arg(3000).0).await
    }

    /// Gives the answer to all.
    pub async fn complete(&self, key: &str, answer: &[u8]) {
        let script = self.script(&self.complete, key).keys(2);
        let accepted: bool = self.raw.ask(&script.arg("me").arg(answer).arg(30_000).0).await;
        assert!(accepted);
    }

    /// The channel on which the answer comes.
    pub fn channel(key: &str) -> String {
        format!("result:{{{key}}}")
    }

    fn script(&self, name: &str, key: &str) -> Call {
        let mut command = cmd("EVALSHA");
        command.arg(name);
        Call(command, key.to_owned())
    }
}

struct Call(Cmd, String);

struct Args(Cmd);

impl Call {
    fn keys(mut self, count: usize) -> Args {
        let keys = [format!("lock:{{{}}}", self.1), Sketch::channel(&self.1)];
        self.0.arg(count).arg(&keys[..count]);
        Args(self.0)
    }
}

impl Args {
    fn arg(mut self, arg: impl bb8_redis::redis::ToRedisArgs) -> Self {
        self.0.arg(arg);
        self
    }
}
