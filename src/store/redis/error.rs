//! Redis's errors as the store's.

use std::fmt;

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

/// Why no connection could be made to this database at a place, without the password.
pub(super) fn unreachable(
    place: &dyn fmt::Display,
    database: i64,
    cause: &RedisError,
) -> StoreError {
    let inner = from_redis(cause);
    let text = match inner.kind() {
        StoreErrorKind::Server if is_without_database(cause) => {
            format!("{place} has no database {database}")
        }
        StoreErrorKind::Reply => {
            let text = format!("{place} answers, but not as Redis does");
            return StoreError::new(StoreErrorKind::Connect, text);
        }
        StoreErrorKind::Denied => format!("{place}: user name or password were refused"),
        StoreErrorKind::TimedOut => format!("{place} did not answer in time"),
        StoreErrorKind::Server | StoreErrorKind::Loading => format!("{place}: {inner}"),
        _ => {
            // What the system says, or what is wrong with a certificate.
            let why = std::error::Error::source(cause).filter(|_| cause.is_io_error());
            let why = why.map_or_else(|| cause.category().to_owned(), ToString::to_string);
            let text = format!("could not connect to {place}: {why}");
            return StoreError::new(StoreErrorKind::Connect, text);
        }
    };
    StoreError::new(inner.kind(), text)
}

// Servers have 16 databases, or as many as they are told to; nodes of clusters one.
fn is_without_database(cause: &RedisError) -> bool {
    let said = |detail: &str| {
        detail.contains("DB index") || detail.contains("SELECT is not allowed in cluster mode")
    };
    cause.detail().is_some_and(said)
}

/// Whether the server does not know what it was asked to do.
pub(super) fn is_unknown_command(error: &ServerError) -> bool {
    error.code() == "ERR"
        && error.details().is_some_and(|detail| detail.contains("unknown command"))
}

pub(super) fn from_server(error: &ServerError) -> StoreError {
    from_code(code(error))
}

/// A value that is no error of the server's.
pub(super) fn answered(value: Value) -> Result<Value, StoreError> {
    match value {
        Value::ServerError(error) => Err(from_server(&error)),
        value => Ok(value),
    }
}

/// Whether a node of a cluster answered that another one has the key.
pub(super) fn is_redirection(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if matches!(error.code(), "MOVED" | "ASK"))
}

/// Whether a replica answered that it takes no writes, or has lost its master.
pub(super) fn is_from_replica(value: &Value) -> bool {
    matches!(value, Value::ServerError(error)
        if matches!(code(error), "READONLY" | "MASTERDOWN"))
}

// Redis before 7 wraps what a command inside of a script is refused with; later ones say
// in their own words that the user may not.
fn code(error: &ServerError) -> &str {
    let inner = match (error.code(), error.details()) {
        ("ERR", Some(detail))
            if detail.starts_with("The user executing the script can't")
                || detail.starts_with("ACL failure in script") =>
        {
            Some("NOPERM")
        }
        ("ERR", Some(detail)) if detail.starts_with("Error running script") => {
            detail.rsplit_once(": -").and_then(|(_, inner)| inner.split(' ').next())
        }
        _ => None,
    };
    inner.unwrap_or_else(|| error.code())
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
        "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" => StoreErrorKind::Cluster,
        "MOVED" | "ASK" | "CROSSSLOT" => {
            let why = "the server is part of a cluster: use redis-cluster:// in its address";
            return StoreError::new(StoreErrorKind::Cluster, why);
        }
        _ => StoreErrorKind::Server,
    };
    StoreError::new(kind, format!("the server answered with the error {code}"))
}

pub(super) fn timed_out() -> StoreError {
    StoreError::new(StoreErrorKind::TimedOut, "the store did not answer in time")
}

pub(super) fn over_the_bound() -> StoreError {
    let why = "the store holds as many bytes of this process as it may";
    StoreError::new(StoreErrorKind::Limit, why)
}

pub(super) fn bad_reply() -> StoreError {
    StoreError::new(StoreErrorKind::Reply, "the server's answer could not be understood")
}

pub(super) fn is_missing_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error)
        if error.kind() == Some(ServerErrorKind::NoScript))
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::parse_redis_value;

    use super::*;

    #[test]
    fn errors_inside_of_scripts_are_told_apart() {
        let wrapped = "-ERR Error running script (call to f_0123): @user_script:96: \
            @user_script: 96: -READONLY You can't write against a read only replica.\r\n";
        let full = "-ERR Error running script (call to f_0123): @user_script:9: \
            @user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.\r\n";
        let refused = "-ERR The user executing the script can't run this command or subcommand \
            script: 0123, on @user_script:96.\r\n";
        for (answer, kind, replica) in [
            (wrapped, StoreErrorKind::ReadOnly, true),
            ("-READONLY You can't write.\r\n", StoreErrorKind::ReadOnly, true),
            ("-MASTERDOWN Link with MASTER is down\r\n", StoreErrorKind::Cluster, true),
            (full, StoreErrorKind::OutOfMemory, false),
            (refused, StoreErrorKind::Denied, false),
            ("-ERR ACL failure in script: x\r\n", StoreErrorKind::Denied, false),
            ("-ERR Error running script\r\n", StoreErrorKind::Server, false),
            ("-ERR other: -READONLY x\r\n", StoreErrorKind::Server, false),
        ] {
            let value = parse_redis_value(answer.as_bytes()).expect("an answer");
            assert_eq!(is_from_replica(&value), replica, "{answer}");
            let Value::ServerError(error) = value else { panic!("{answer}") };
            assert_eq!(from_server(&error).kind(), kind, "{answer}");
        }
    }
}
