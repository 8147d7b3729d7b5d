//! A client that asks the same five times at once, by each method.

use std::time::Duration;

use tokio::task::JoinSet;
use tonic::{Status, metadata::MetadataMap, transport::Endpoint};
use tower::BoxError;

use crate::reports::{Question, reports_client::ReportsClient};

pub(crate) async fn ask(address: &str) -> Result<(), BoxError> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
    let reports = ReportsClient::new(channel);
    let question = Question { topic: "rivers".into() };

    println!("five ask for a report at once");
    let mut callers = JoinSet::new();
    for caller in 1..=5 {
        let (mut reports, question) = (reports.clone(), question.clone());
        callers.spawn(async move {
            let response = reports.get(question).await?;
            let own = is_own(caller, response.metadata());
            println!("caller {caller}: {}", response.into_inner().text);
            Ok(own)
        });
    }
    count(callers).await?;

    println!("five watch it being made, one after the other");
    let mut callers = JoinSet::new();
    for caller in 1..=5 {
        let (mut reports, question) = (reports.clone(), question.clone());
        callers.spawn(async move {
            // Who comes late gets all lines from the start.
            tokio::time::sleep(Duration::from_millis(100) * caller).await;
            let response = reports.watch(question).await?;
            let own = is_own(caller, response.metadata());
            let mut lines = response.into_inner();
            // What ends in a status other than OK, or without one, is an error here.
            while let Some(line) = lines.message().await? {
                println!("caller {caller}: {}", line.text);
            }
            Ok(own)
        });
    }
    count(callers).await
}

/// Whether its answer was made for this call, and not for another.
fn is_own(caller: u32, metadata: &MetadataMap) -> bool {
    let text = |name| metadata.get(name).and_then(|value| value.to_str().ok());
    // The layer marks the answers that were made for another call.
    let own = !text("cache-status").unwrap_or_default().ends_with("collapsed");
    let whose = if own { "its own" } else { "another's" };
    // An answer that comes whole says more of it.
    let run = text("made-by").map(|run| format!(", {run}")).unwrap_or_default();
    println!("caller {caller}: has {whose} run{run}");
    own
}

/// Says how many runs there were for so many answers.
async fn count(mut callers: JoinSet<Result<bool, Status>>) -> Result<(), BoxError> {
    let (mut answers, mut runs) = (0, 0);
    while let Some(own) = callers.join_next().await {
        runs += u32::from(own??);
        answers += 1;
    }
    println!("{answers} answers, runs: {runs}");
    Ok(())
}
