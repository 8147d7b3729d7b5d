//! What is written by hand most often: `SET NX`, and whoever did not get it looks again
//! and again for the answer.

use std::time::Duration;

use super::raw::{Raw, cmd};

/// As quick as one finds it in the field.
const EVERY: Duration = Duration::from_millis(50);

const RELEASE: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0";

#[derive(Debug)]
pub struct Poll {
    raw: Raw,
    release: String,
}

impl Poll {
    pub async fn connect(url: &str) -> Self {
        let raw = Raw::connect(url).await;
        let release = raw.load(RELEASE).await;
        Self { raw, release }
    }

    /// The whole of a call: owned, or waited for.
    pub async fn call(&self, key: &str, run: impl Future<Output = Vec<u8>>) -> Vec<u8> {
        let (lock, result) = (format!("poll:lock:{key}"), format!("poll:result:{key}"));
        loop {
            let mut take = cmd("SET");
            let take = take.arg(&lock).arg("me").arg("NX").arg("PX").arg(3000);
            if self.raw.ask::<Option<String>>(take).await.is_some() {
                let answer = run.await;
                self.raw.set(&result, &answer).await;
                let mut release = cmd("EVALSHA");
                let release = release.arg(&self.release).arg(1).arg(&lock).arg("me");
                let _: u64 = self.raw.ask(release).await;
                return answer;
            }
            tokio::time::sleep(EVERY).await;
            if let Some(answer) = self.raw.get(&result).await {
                return answer.into();
            }
        }
    }
}
