//! The layer among those of tower, which box errors.

use std::{io, time::Duration};

use tower::{
    BoxError, Layer, Service, ServiceBuilder, ServiceExt, buffer::Buffer, timeout::error::Elapsed,
    util::BoxCloneSyncService,
};
use tower_singleflight::{
    FailureKind, FlightError, ResponseFuture, SingleFlight, SingleFlightLayer, ValueCodec, key_fn,
};

use crate::support::{
    ByCity, Inner, Question, Report, Runs, ask, crowd, inner, layer, ms, reports,
};

/// What any stack of tower's wants of a service.
fn boxed<S>(service: S) -> BoxCloneSyncService<Question, S::Response, BoxError>
where
    S: Service<Question, Future: Send, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
{
    BoxCloneSyncService::new(service.map_err(Into::into))
}

fn failing<E: Send + 'static>(runs: &Runs, error: fn() -> E) -> Inner<Report, E> {
    inner(runs, ms(100), move |_, _| Err(error()))
}

#[tokio::test(start_paused = true)]
async fn between_layers_of_tower() {
    let runs = Runs::default();
    let service = ServiceBuilder::new()
        .buffer(16)
        .timeout(ms(5000))
        .layer(layer())
        .buffer(16)
        .timeout(ms(3000))
        .concurrency_limit(2)
        .service(reports::<io::Error>(&runs, ms(100)));
    let answers = crowd(&[&boxed(service)], 10, "Rome").await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().run == 0));
    assert_eq!(runs.total(), 1);
}

#[tokio::test(start_paused = true)]
async fn errors_go_through_layers_that_box_them() {
    let runs = Runs::default();
    let typed = layer().layer(failing(&runs, || io::Error::other("typed")));
    let boxes = layer().layer(failing(&runs, || BoxError::from("boxed")));
    let typed = Buffer::new(ServiceBuilder::new().timeout(ms(5000)).service(typed), 16);
    let boxes = Buffer::new(ServiceBuilder::new().timeout(ms(5000)).service(boxes), 16);
    let typed = crowd(&[&typed], 5, "Rome").await;
    let boxes = crowd(&[&boxes], 5, "Rome").await;
    for (errors, text) in [(typed, "typed"), (boxes, "boxed")] {
        let mut own = 0;
        for error in errors {
            let error = error.unwrap_err();
            let failure = match error.downcast_ref::<FlightError<io::Error>>() {
                Some(error) => error.failure(),
                None => error.downcast_ref::<FlightError<BoxError>>().unwrap().failure(),
            };
            own += usize::from(failure.is_none());
            assert!(failure.is_none_or(|failure| failure.kind() == FailureKind::OwnerFailed));
            assert!(failure.is_none_or(|failure| failure.report() == Some(text)));
            assert!(error.to_string().ends_with(text), "{error}");
        }
        assert_eq!(own, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_below_is_an_error_of_inner() {
    let runs = Runs::default();
    let service = ServiceBuilder::new()
        .layer(layer())
        .timeout(Duration::from_secs(1))
        .service(reports::<io::Error>(&runs, ms(60_000)));
    let error = service.oneshot(ask("Rome", 0)).await.unwrap_err();
    assert!(error.into_inner().unwrap().is::<Elapsed>());
}

#[test]
fn auto_traits() {
    fn is_send_and_sync<T: Send + Sync + Unpin + Clone>() {}
    fn is_send<T: Send>() {}
    // Whatever the value and the question are.
    type Value = std::cell::Cell<u8>;
    is_send_and_sync::<ValueCodec<Value>>();
    is_send_and_sync::<SingleFlightLayer<ByCity, ValueCodec<Value>>>();
    is_send_and_sync::<SingleFlight<Inner<Value, Value>, ByCity, ValueCodec<Value>>>();
    is_send::<ResponseFuture<Inner<Report, BoxError>, Question, ByCity, ValueCodec<Report>>>();
    is_send::<FlightError<Value>>();
}

/// A closure for a key, a function for a service, and no type is named.
#[tokio::test(start_paused = true)]
async fn types_are_inferred() {
    let mut service = ServiceBuilder::new()
        .layer(SingleFlightLayer::values(key_fn(|question: &Question| Some(question.city.clone()))))
        .service_fn(async |question: Question| Ok::<_, BoxError>(question.city.len()));
    let length = service.ready().await.unwrap().call(ask("Rome", 0)).await.unwrap();
    assert_eq!(length, 4);
}
