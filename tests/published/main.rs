//! What goes out with a release: what is public, and what is in the package.
#![cfg(unix)]

mod api;
mod package;

use std::{env, path::Path, process::Command};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What cargo says; panics with its complaint where it has one.
fn cargo(asked: impl FnOnce(&mut Command) -> &mut Command) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    // What tests are told by cargo: build scripts look at it, and would run anew.
    let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "OUT_DIR"];
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| told.iter().any(|told| name.starts_with(told))) {
            cargo.env_remove(name);
        }
    }
    let output = asked(&mut cargo).current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
