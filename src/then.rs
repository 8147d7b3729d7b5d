//! One future after another, in the room of the larger one.

use std::{
    any::Any,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

pin_project! {
    /// What [`then`] makes.
    #[project = ThenProj]
    pub(crate) enum Then<A, F, B> {
        First { #[pin] first: A, next: Option<F> },
        Second { #[pin] second: B },
    }
}

/// Drives `first`, asks `next` what its output comes to, drops `first`, and drives that; or
/// ends with what `next` breaks off with, and then `first` goes with the whole.
///
/// An `async` block that does the same has room for both of them, and once more for
/// what it was given.
pub(crate) fn then<A, F, B>(first: A, next: F) -> Then<A, F, B>
where
    A: Future,
    F: FnOnce(A::Output) -> ControlFlow<B::Output, B>,
    B: Future,
{
    Then::First { first, next: Some(next) }
}

impl<A, F, B> Future for Then<A, F, B>
where
    A: Future,
    F: FnOnce(A::Output) -> ControlFlow<B::Output, B>,
    B: Future,
{
    type Output = B::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<B::Output> {
        loop {
            match self.as_mut().project() {
                ThenProj::First { first, next } => {
                    let output = ready!(first.poll(cx));
                    // As every future: it is not polled again.
                    let Some(next) = next.take() else { return Poll::Pending };
                    match next(output) {
                        ControlFlow::Break(output) => return Poll::Ready(output),
                        ControlFlow::Continue(second) => self.set(Then::Second { second }),
                    }
                }
                ThenProj::Second { second } => return second.poll(cx),
            }
        }
    }
}

pin_project! {
    /// Gives a panic of the future in it as a value.
    pub(crate) struct Unwinding<F> {
        #[pin]
        future: F,
    }
}

/// Drives a future, and gives a panic of it as a value.
pub(crate) fn unwinding<F: Future>(future: F) -> Unwinding<F> {
    Unwinding { future }
}

impl<F: Future> Future for Unwinding<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.project().future;
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn the_second_gets_what_the_first_gave() {
        for (given, wanted) in [(2, 3), (0, 9)] {
            let both = then(async move { given }, |given| match given {
                0 => ControlFlow::Break(9),
                _ => ControlFlow::Continue(async move {
                    tokio::task::yield_now().await;
                    given + 1
                }),
            });
            assert_eq!(both.await, wanted);
        }
    }

    #[test]
    fn they_share_their_room() {
        let large = || {
            let room = [0_u8; 1000];
            std::future::poll_fn(move |_| Poll::Ready(room[0]))
        };
        let both = then(large(), |_| ControlFlow::Continue(large()));
        assert!(size_of_val(&both) <= size_of_val(&large()) + 16);
    }

    #[tokio::test]
    async fn a_panic_is_a_value() {
        let panic = unwinding(async { panic!("on purpose") }).await;
        assert_eq!(panic.map(|()| 0).unwrap_err().downcast_ref(), Some(&"on purpose"));
        assert_eq!(unwinding(ready(1)).await.ok(), Some(1));
    }
}
