//! What clients send, for servers that are made up.

use tokio::io::{AsyncBufReadExt, AsyncReadExt};

/// One command: an array of bulk strings.
pub(crate) async fn command(read: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Vec<String>> {
    let count = number(read, '*').await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; number(read, '$').await? + 2];
        read.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}

async fn number(read: &mut (impl AsyncBufReadExt + Unpin), mark: char) -> Option<usize> {
    let mut line = String::new();
    read.read_line(&mut line).await.ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}
