//! Callers, and what they got.

use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::{sync::watch, task::JoinHandle};
use tower::ServiceExt;
use tower_singleflight::{HttpKey, ResponseBody, SingleFlight};

use crate::{
    PATIENCE,
    inner::{Body, Reply, Service, Shape},
};

/// A caller; dropped, it hangs up.
pub(crate) struct Call {
    task: JoinHandle<Answer>,
    begun: watch::Receiver<bool>,
}

/// What a caller got.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) bytes: Vec<u8>,
    /// Whether the body broke off.
    pub(crate) broken: bool,
    /// When the last of it came.
    pub(crate) at: Instant,
}

impl Call {
    pub(crate) fn new(service: SingleFlight<Service, HttpKey>, path: &str) -> Self {
        let request = Request::get(format!("http://a.test{path}")).body(Body::default()).unwrap();
        let (begin, begun) = watch::channel(false);
        let task = tokio::spawn(async move {
            let response = service.oneshot(request).await.unwrap();
            Answer::read(response, &begin).await
        });
        Self { task, begun }
    }

    /// Waits until something of the body is there.
    pub(crate) async fn begun(&self) {
        let mut begun = self.begun.clone();
        let begun = tokio::time::timeout(PATIENCE, begun.wait_for(|begun| *begun)).await;
        begun.expect("a body in time").expect("a body");
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    pub(crate) async fn answer(mut self) -> Answer {
        let answer = tokio::time::timeout(PATIENCE, &mut self.task).await;
        answer.expect("an answer in time").expect("an answer")
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Answer {
    async fn read(response: Response<ResponseBody<Reply>>, begin: &watch::Sender<bool>) -> Self {
        let status = response.status().as_u16();
        let (mut body, mut bytes, mut broken) = (response.into_body(), Vec::new(), false);
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    let data: Bytes = frame.into_data().unwrap_or_default();
                    bytes.extend_from_slice(&data);
                    begin.send_replace(true);
                }
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        Self { status, bytes, broken, at: Instant::now() }
    }

    /// Whose answer it is: of one run, and whole unless it broke off.
    pub(crate) fn run(&self, shape: Shape) -> u64 {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.bytes));
        let run = shape.run_of(&self.bytes);
        assert!(self.broken || shape.is_whole(&self.bytes), "a short body with a clean end");
        run
    }
}
