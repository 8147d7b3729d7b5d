//! Settings, checked when they are made.

mod builder;
mod choices;
mod error;
mod settings;

pub use self::{
    builder::ConfigBuilder,
    choices::{Abandon, Crowded, Delivery, LeaseLoss, StoreDown},
    error::ConfigError,
    settings::Config,
};
