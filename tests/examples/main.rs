//! The examples do what they say: each is started as its reader would start it.

#[cfg(feature = "redis")]
mod demo;
mod function;
mod pages;
mod program;
