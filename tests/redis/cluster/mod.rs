//! The Redis store in a cluster whose slots move, whose nodes fail, and whose users
//! may do less than they should.

use crate::support;

mod faults;
mod keys;
mod liars;
mod look;
mod mixed;
mod moves;
mod rig;
mod setting_up;
mod tokens;
