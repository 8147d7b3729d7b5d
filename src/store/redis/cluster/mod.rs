//! Redis Cluster: each of its masters is a server of its own, with a share of the keys.
//!
//! | part | |
//! |---|---|
//! | [`slot`] | which of 16384 slots a key lies in |
//! | [`map`], [`redirect`] | what nodes say of who has which |
//! | [`members`], [`atlas`] | the servers, by slot |
//! | [`survey`] | asks nodes anew when something says that the atlas is old |
//! | [`ask`] | sends to the server that has the key, wherever that is by now |
//! | [`tokens`] | the number that tokens begin at, which lies in a slot of its own |

mod ask;
mod atlas;
mod departed;
mod heartbeat;
mod map;
mod members;
mod moving;
mod redirect;
mod slot;
mod survey;
mod territory;
mod tokens;

#[cfg(test)]
pub(super) use self::slot::slot_of;
pub(super) use self::{
    heartbeat::ClusterHeartbeat, members::Cluster, slot::slot_of_flight, survey::Doubt,
    territory::Territory,
};
