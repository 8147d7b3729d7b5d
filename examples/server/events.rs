use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, Sse},
};
use futures_util::{Stream, stream};

use super::{Model, Run};

const EVENTS: u32 = 10;

/// What stands for a run that tells how far it is: an event now and then, and `end` as
/// the last. Each of its callers gets all of them, as they come; who comes late gets
/// those that were before at once.
pub(super) async fn events(
    State(model): State<Arc<Model>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let first = (Run::begin(model), 1);
    Sse::new(stream::unfold(first, async |(run, place)| {
        let event = match place {
            1..=EVENTS => Event::default().data(format!(
                "event {place} of run {} in process {}",
                run.number,
                std::process::id()
            )),
            // Clients ask again where a stream just ends.
            n if n == EVENTS + 1 => Event::default().event("end").data("that is all"),
            _ => return None,
        };
        if place > 1 {
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        Some((Ok(event.id(place.to_string())), (run, place + 1)))
    }))
}
