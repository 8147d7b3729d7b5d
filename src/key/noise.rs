//! The header fields that the default key leaves out.

/// The header fields of a request that [`HttpKey`](crate::HttpKey) leaves out
/// of the key unless told otherwise: those about one connection, one client or
/// one trace. `sec-*` stands for all names that begin with `sec-`.
///
/// Credentials, cookies, `accept*` and `cache-control` are not here. Nor are
/// `forwarded`, `x-forwarded-host`, `-port`, `-prefix`, `-proto`, `-server`, `-user`
/// and the like: services choose tenants, links and users by them, and any client may
/// send them. Behind a proxy that sets `forwarded` for each client, and in front of a
/// service that does not read it, ignore it for more sharing.
///
/// [`HttpKey::ignore`](crate::HttpKey::ignore) adds a name, and
/// [`HttpKey::cover`](crate::HttpKey::cover) takes one back into the key.
pub const NOISE: &[&str] = &[
    // One connection. `proxy-authorization` is a credential and stays in.
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    // The authority is a part of its own.
    "host",
    // One client.
    "dnt",
    "priority",
    "referer",
    "sec-*",
    "user-agent",
    // What SDKs of LLM services say of themselves, and of their retries.
    "x-stainless-*",
    // The way here.
    "cdn-loop",
    "cf-connecting-ip",
    "cf-ray",
    "true-client-ip",
    "via",
    "x-forwarded-by",
    "x-forwarded-for",
    "x-real-ip",
    "x-request-start",
    // Traces and ids of one request.
    "b3",
    "baggage",
    "grpc-tags-bin",
    "grpc-trace-bin",
    "sentry-trace",
    "traceparent",
    "tracestate",
    "uber-trace-id",
    "x-amzn-trace-id",
    "x-b3-*",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-datadog-*",
    "x-request-id",
    // Time limits and attempts of one caller.
    "grpc-previous-rpc-attempts",
    "grpc-timeout",
    "x-envoy-attempt-count",
    "x-envoy-expected-rq-timeout-ms",
];
