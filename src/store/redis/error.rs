//! Redis's errors as the store's.

use bb8_redis::redis::{ErrorKind, RedisError, ServerError, ServerErrorKind, Value};

use crate::store::{StoreError, StoreErrorKind};

pub(super) fn from_redis(error: &RedisError) -> StoreError {
    let kind = match error.kind() {
        ErrorKind::AuthenticationFailed => StoreErrorKind::Denied,
        ErrorKind::InvalidClientConfig => StoreErrorKind::Address,
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreErrorKind::Reply,
        _ if error.is_timeout() => StoreErrorKind::TimedOut,
        ErrorKind::Io => StoreErrorKind::Disconnected,
        _ if error.is_unrecoverable_error() => StoreErrorKind::Disconnected,
        _ => match error.code() {
            Some(code) => return from_code(code),
            None => StoreErrorKind::Server,
        },
    };
    StoreError::new(kind, format!("redis: {}", error.category()))
}

pub(super) fn from_server(error: &ServerError) -> StoreError {
    from_code(error.code())
}

// The code alone: an error's detail may quote what was sent.
fn from_code(code: &str) -> StoreError {
    let kind = match code {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => StoreErrorKind::Denied,
        "LOADING" => StoreErrorKind::Loading,
        "BUSY" => StoreErrorKind::Busy,
        "READONLY" => StoreErrorKind::ReadOnly,
        "OOM" => StoreErrorKind::OutOfMemory,
        "MISCONF" => StoreErrorKind::Misconfigured,
        "NOREPLICAS" => StoreErrorKind::NoReplicas,
        "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "CROSSSLOT" => {
            StoreErrorKind::Cluster
        }
        _ => StoreErrorKind::Server,
    };
    StoreError::new(kind, format!("the server answered with the error {code}"))
}

pub(super) fn timed_out() -> StoreError {
    StoreError::new(StoreErrorKind::TimedOut, "the store did not answer in time")
}

pub(super) fn bad_reply() -> StoreError {
    StoreError::new(StoreErrorKind::Reply, "the server's answer could not be understood")
}

pub(super) fn is_missing_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error)
        if error.kind() == Some(ServerErrorKind::NoScript))
}
