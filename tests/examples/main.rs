//! The examples do what they say: each is started as its reader would start it.

#[cfg(feature = "redis")]
mod demo;
#[cfg(feature = "redis")]
mod ends;
#[cfg(feature = "redis")]
mod fleet;
mod function;
#[cfg(feature = "redis")]
mod grpc;
#[cfg(feature = "redis")]
mod lab;
#[cfg(feature = "redis")]
mod llm;
mod pages;
#[cfg(feature = "redis")]
mod playground;
mod program;
#[cfg(feature = "redis")]
#[path = "../support/mod.rs"]
mod support;
