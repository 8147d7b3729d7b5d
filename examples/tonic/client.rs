//! A client that asks the same five times at once, by each method.

use std::{collections::BTreeSet, time::Duration};

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
            let made_by = made_by(caller, response.metadata());
            println!("caller {caller}: {}", response.into_inner().text);
            Ok(made_by)
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
            let made_by = made_by(caller, response.metadata());
            let mut lines = response.into_inner();
            // What ends in a status other than OK, or without one, is an error here.
            while let Some(line) = lines.message().await? {
                println!("caller {caller}: {}", line.text);
            }
            Ok(made_by)
        });
    }
    count(callers).await
}

/// Which run answered, and whether it was run for this call or for another.
fn made_by(caller: u32, metadata: &MetadataMap) -> String {
    let text = |name| metadata.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let run = text("made-by");
    // The layer marks the answers that were made for another call.
    let shared = text("cache-status").ends_with("collapsed");
    println!("caller {caller}: {} {run}", if shared { "shares" } else { "has its own," });
    run.to_owned()
}

/// Says how many runs there were for so many answers.
async fn count(mut callers: JoinSet<Result<String, Status>>) -> Result<(), BoxError> {
    let (mut answers, mut runs) = (0, BTreeSet::new());
    while let Some(answer) = callers.join_next().await {
        runs.insert(answer??);
        answers += 1;
    }
    println!("{answers} answers, runs: {}", runs.len());
    Ok(())
}
