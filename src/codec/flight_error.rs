use std::{any::Any, error::Error, fmt};

use tower::BoxError;

use crate::error::Failure;

/// The error of a layer over values: inner's own, or that of a run that was
/// another caller's. See [`ValueCodec`](crate::ValueCodec).
///
/// ```
/// use tower_singleflight::{FailureKind, FlightError};
///
/// fn tell(error: FlightError<std::io::Error>) -> String {
///     match error {
///         FlightError::Inner(error) => format!("my own run: {:?}", error.kind()),
///         FlightError::Failure(failure) => match failure.kind() {
///             FailureKind::OwnerFailed => format!("another's run: {:?}", failure.report()),
///             _ if failure.is_timeout() => "it took too long".into(),
///             kind => kind.to_string(),
///         },
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "an error is the own run's, or another's")]
pub enum FlightError<E> {
    /// This caller's own request was run, and this is inner's error. Inner's error
    /// goes to one caller only, so that it need not be `Clone`.
    Inner(E),
    /// A run that was not this caller's failed, was too slow or was lost.
    Failure(Failure),
}

impl<E> FlightError<E> {
    /// Inner's error, where this caller's own request was run.
    pub fn inner(&self) -> Option<&E> {
        match self {
            Self::Inner(error) => Some(error),
            Self::Failure(_) => None,
        }
    }

    /// Inner's error, where this caller's own request was run.
    ///
    /// # Errors
    ///
    /// What happened to the run, where it was another caller's.
    pub fn into_inner(self) -> Result<E, Failure> {
        match self {
            Self::Inner(error) => Ok(error),
            Self::Failure(failure) => Err(failure),
        }
    }

    /// What happened to the run, where it was another caller's.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Inner(_) => None,
            Self::Failure(failure) => Some(failure),
        }
    }
}

impl<E: fmt::Display> fmt::Display for FlightError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(error) => error.fmt(f),
            Self::Failure(failure) => failure.fmt(f),
        }
    }
}

/// Stands for inner's error: its text is that error's, and what is behind a
/// [`BoxError`] is behind this. An error of a type of its own is had from
/// [`inner`](FlightError::inner).
impl<E: fmt::Debug + fmt::Display + 'static> Error for FlightError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // A bound that both boxed and other errors meet says nothing of sources.
        let inner: &dyn Any = self.inner()?;
        inner.downcast_ref::<BoxError>()?.source()
    }
}
