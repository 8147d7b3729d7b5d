//! The service, and the layer over it.

use std::{
    pin::Pin,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use tokio_stream::{Stream, StreamExt};
use tonic::{
    Request, Response, Status,
    body::Body,
    transport::{Server, server::TcpIncoming},
};
use tower::BoxError;
use tower_singleflight::{GrpcKey, RedisStore, SingleFlightLayer};

use crate::{
    reports::{
        Line, Question, Report,
        reports_server::{Reports, ReportsServer},
    },
    shared::{Args, listen, told_to_end},
};

/// What a line takes.
const WORK: Duration = Duration::from_millis(500);

pub(crate) async fn serve(args: Args) -> Result<(), BoxError> {
    let key = GrpcKey::new(Body::new)
        // These two are shared, and nothing else that the server may have.
        .methods(["/reports.Reports/Get", "/reports.Reports/Watch"])
        // Several of these servers are one service, on several ports: with the port
        // in the key, two of them would never meet. A service behind one name needs
        // no such line.
        .authority("reports");
    let mut layer = SingleFlightLayer::grpc(key);
    if let Some(url) = &args.store {
        layer = layer.store(RedisStore::connect(url).await?);
    }

    let listener = listen(&args.listen).await?;
    let address = listener.local_addr()?;
    println!("listening on {address}");
    println!("  five callers of each method at once, and one run for them all:");
    println!("  cargo run --example tonic -- client {address}");
    println!("  or watch one being made, from the repository's root:");
    println!(
        "  grpcurl -plaintext -proto examples/tonic/reports.proto -d '{{\"topic\":\"rivers\"}}' \
         {address} reports.Reports/Watch"
    );
    match args.store.is_some() {
        true => println!("  other servers with the same --store share its runs"),
        false => println!("  with --store redis://... several servers share their runs"),
    }
    let served = layer.clone();
    let leaving = async move {
        told_to_end().await;
        // Another server takes over what is still running here after five seconds.
        layer.drain(Duration::from_secs(5)).await;
    };
    Server::builder()
        .layer(served)
        .add_service(ReportsServer::new(SlowReports::default()))
        .serve_with_incoming_shutdown(TcpIncoming::from(listener), leaving)
        .await?;
    Ok(())
}

/// Counts what it is asked to do.
#[derive(Default)]
struct SlowReports {
    runs: AtomicU32,
}

#[tonic::async_trait]
impl Reports for SlowReports {
    async fn get(&self, question: Request<Question>) -> Result<Response<Report>, Status> {
        let lines = lines(&question.into_inner().topic)?;
        let run = self.run();
        tokio::time::sleep(WORK * 3).await;
        // In the metadata, which all callers get, and not in the report: so the reports
        // of two runs are the same.
        run.of(Report { text: lines.join("; ") })
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<Line, Status>> + Send>>;

    async fn watch(
        &self,
        question: Request<Question>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let lines = lines(&question.into_inner().topic)?;
        // Should this server be lost in the middle, another one of the fleet begins
        // anew; who has some of the lines goes on behind them, since they are the same, and
        // so are the heads: this one does not say of which run it is.
        let lines = tokio_stream::iter(lines).map(|text| Ok(Line { text })).throttle(WORK);
        Ok(Response::new(Box::pin(lines)))
    }
}

impl SlowReports {
    fn run(&self) -> Run {
        Run(self.runs.fetch_add(1, Relaxed) + 1)
    }
}

struct Run(u32);

impl Run {
    /// An answer that says of which run it is.
    fn of<T>(self, answer: T) -> Result<Response<T>, Status> {
        let run = format!("run {} of process {}", self.0, std::process::id());
        let run = run.parse().map_err(|_| Status::internal("no metadata"))?;
        let mut response = Response::new(answer);
        response.metadata_mut().insert("made-by", run);
        Ok(response)
    }
}

/// The lines of a report.
fn lines(topic: &str) -> Result<Vec<String>, Status> {
    if topic.is_empty() {
        // Errors are shared like all answers.
        return Err(Status::invalid_argument("a report needs a topic"));
    }
    Ok((1..=6).map(|line| format!("line {line} on {topic}")).collect())
}
