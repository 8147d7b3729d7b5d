//! What a node says of who has which slots.

use std::collections::HashMap;

use bb8_redis::redis::Value;

use super::slot::SLOTS;
use crate::store::{
    StoreError,
    redis::{address::Place, error},
};

/// A cluster has no more nodes; what claims to is none.
pub(in super::super) const MOST_NODES: usize = 1000;

/// Slots from one to another, both among them.
pub(super) type Range = (u16, u16);

/// Who has which slots, and who else there is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) masters: Vec<(Place, Vec<Range>)>,
    pub(super) replicas: Vec<Place>,
}

impl Map {
    /// Reads the answer to `CLUSTER SLOTS` of a node at this host.
    pub(super) fn read(answer: Value, host: &str) -> Result<Self, StoreError> {
        let Value::Array(entries) = answer else { return Err(error::bad_reply()) };
        if entries.len() > usize::from(SLOTS) {
            return Err(error::bad_reply());
        }
        let mut masters: HashMap<Place, Vec<Range>> = HashMap::new();
        let mut replicas = Vec::new();
        for entry in entries {
            let Value::Array(entry) = entry else { return Err(error::bad_reply()) };
            let mut entry = entry.into_iter();
            let mut slot = || match entry.next() {
                Some(Value::Int(slot)) => u16::try_from(slot).ok().filter(|slot| *slot < SLOTS),
                _ => None,
            };
            let (Some(first), Some(last)) = (slot(), slot()) else {
                return Err(error::bad_reply());
            };
            if first > last {
                return Err(error::bad_reply());
            }
            let master = entry.next().ok_or_else(error::bad_reply)?;
            masters.entry(node(master, host)?).or_default().push((first, last));
            for replica in entry {
                let replica = node(replica, host)?;
                if !replicas.contains(&replica) && replicas.len() < MOST_NODES {
                    replicas.push(replica);
                }
            }
            if masters.len() > MOST_NODES {
                return Err(error::bad_reply());
            }
        }
        let mut masters: Vec<_> = masters.into_iter().collect();
        masters.sort_unstable();
        Ok(Self { masters, replicas })
    }

    /// How many slots somebody has.
    pub(super) fn covered(&self) -> usize {
        let ranges = self.masters.iter().flat_map(|(_, ranges)| ranges);
        ranges.map(|(first, last)| usize::from(last - first) + 1).sum()
    }
}

fn node(node: Value, host: &str) -> Result<Place, StoreError> {
    let Value::Array(node) = node else { return Err(error::bad_reply()) };
    let mut node = node.into_iter();
    let name = match node.next() {
        Some(Value::BulkString(name)) => String::from_utf8(name).map_err(|_| error::bad_reply())?,
        Some(Value::Nil) => String::new(),
        _ => return Err(error::bad_reply()),
    };
    let port = match node.next() {
        Some(Value::Int(port)) => u16::try_from(port).ok().filter(|port| *port > 0),
        _ => None,
    };
    Ok((known(&name, host), port.ok_or_else(error::bad_reply)?))
}

/// A node that does not know how it is reached is reached as whoever spoke of it.
pub(super) fn known(name: &str, host: &str) -> String {
    if matches!(name, "" | "?") { host.to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::parse_redis_value;

    use super::*;

    fn read(answer: &str) -> Result<Map, StoreError> {
        let answer = answer.replace(' ', "\r\n");
        Map::read(parse_redis_value(answer.as_bytes()).expect("an answer"), "seed")
    }

    #[test]
    fn slots_are_read() {
        let map = read(
            "*3 *4 :0 :5460 *4 $1 a :7000 $2 id *0 *2 $1 b :7001 \
             *3 :5461 :9999 *3 $0  :7002 $2 id \
             *3 :10000 :16383 *3 $1 a :7000 $2 id ",
        )
        .unwrap();
        let place = |host: &str, port| (host.to_owned(), port);
        assert_eq!(
            map.masters,
            [
                (place("a", 7000), vec![(0, 5460), (10000, 16383)]),
                (place("seed", 7002), vec![(5461, 9999)]),
            ]
        );
        assert_eq!(map.replicas, [place("b", 7001)]);
        assert_eq!(map.covered(), 16384);
        assert_eq!(read("*1 *3 :7 :7 *2 $-1 :7000 ").unwrap().masters[0].0, place("seed", 7000));
        assert_eq!(read("*1 *3 :7 :7 *2 $1 ? :7000 ").unwrap().masters[0].0, place("seed", 7000));
        assert_eq!(read("*0 ").unwrap(), Map::default());
    }

    #[test]
    fn hostile_maps_are_errors() {
        for answer in [
            "+OK ",
            ":1 ",
            "$-1 ",
            "*1 :1 ",
            "*1 *0 ",
            "*1 *1 :1 ",
            "*1 *2 :1 :2 ",
            "*1 *3 :2 :1 *2 $1 a :7000 ",
            "*1 *3 :0 :16384 *2 $1 a :7000 ",
            "*1 *3 :-1 :1 *2 $1 a :7000 ",
            "*1 *3 $1 0 :1 *2 $1 a :7000 ",
            "*1 *3 :0 :1 *2 $1 a :0 ",
            "*1 *3 :0 :1 *2 $1 a :65536 ",
            "*1 *3 :0 :1 *2 $1 a $4 7000 ",
            "*1 *3 :0 :1 *2 :1 :7000 ",
            "*1 *3 :0 :1 *1 $1 a ",
            "*1 *3 :0 :1 *0 ",
            "*1 *3 :0 :1 $1 a ",
            "*1 *4 :0 :1 *2 $1 a :7000 *1 $1 b ",
        ] {
            let error = read(answer).expect_err(answer);
            assert_eq!(error.kind(), crate::store::StoreErrorKind::Reply, "{answer}");
        }
        let entry = Value::Array(vec![
            Value::Int(0),
            Value::Int(1),
            Value::Array(vec![Value::BulkString(vec![0xff]), Value::Int(7000)]),
        ]);
        assert!(Map::read(Value::Array(vec![entry.clone()]), "seed").is_err());
        assert!(Map::read(Value::Array(vec![entry; 20_000]), "seed").is_err());
        // More nodes than a cluster can have.
        let entry = |n: i64| {
            let node = vec![Value::BulkString(b"a".to_vec()), Value::Int(n)];
            Value::Array(vec![Value::Int(n), Value::Int(n), Value::Array(node)])
        };
        assert!(Map::read(Value::Array((1..1500).map(entry).collect()), "seed").is_err());
        assert!(Map::read(Value::Array((1..1000).map(entry).collect()), "seed").is_ok());
    }
}
