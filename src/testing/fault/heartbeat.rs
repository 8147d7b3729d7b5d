//! The keeper's line, and looks from outside, over a line that fails.

use std::sync::Arc;

use super::{Step, line::Line};
use crate::store::{Beat, BeatReply, BoxFuture, Heartbeat, Page, Scan, StoreError};

pub(super) struct FaultHeartbeat {
    pub(super) line: Arc<Line>,
    pub(super) inner: Box<dyn Heartbeat>,
}

impl Heartbeat for FaultHeartbeat {
    fn beat<'a>(
        &'a mut self,
        batch: &'a [Beat],
    ) -> BoxFuture<'a, Vec<Result<BeatReply, StoreError>>> {
        Box::pin(async move {
            let whole = self.line.fate(Step::Beat);
            let fate = |beat: &Beat| match whole {
                None => self.line.fate(Step::of(beat)),
                whole => {
                    self.line.count(Step::of(beat));
                    whole
                }
            };
            let fates: Vec<_> = batch.iter().map(fate).collect();
            let ways = self.line.travel(&fates).await;
            let came = batch.iter().zip(&ways).filter(|(_, way)| way.is_ok());
            let came: Vec<_> = came.map(|(beat, _)| beat.clone()).collect();
            let mut replies = match came.is_empty() {
                true => Vec::new(),
                false => self.inner.beat(&came).await,
            }
            .into_iter();
            let ways = ways.into_iter();
            ways.filter_map(|way| match way {
                Ok(way) => replies.next().map(|reply| self.line.heard(way, reply)),
                Err(error) => Some(Err(error)),
            })
            .collect()
        })
    }
}

pub(super) struct FaultScan {
    pub(super) line: Arc<Line>,
    pub(super) inner: Box<dyn Scan>,
}

impl Scan for FaultScan {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>, StoreError>> {
        Box::pin(async move {
            let fate = self.line.fate(Step::Scan);
            let way = self.line.travel(&[fate]).await.remove(0)?;
            let page = self.inner.next().await;
            self.line.heard(way, page)
        })
    }
}
