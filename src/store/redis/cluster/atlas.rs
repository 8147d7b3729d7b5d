//! The servers of a cluster, by slot.

use std::{sync::Arc, time::Instant};

use super::{
    departed::Departed,
    map::{MOST_NODES, Map, Range},
    slot::SLOTS,
    survey::Doubt,
    territory::Territory,
};
use crate::store::redis::{
    address::{Address, Place},
    connect::Membership,
    shard::{Plan, Shard},
};

/// One master.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) shard: Arc<Shard>,
    territory: Arc<Territory>,
}

/// Who has which slots, as far as is known.
#[derive(Debug)]
pub(super) struct Atlas {
    /// For each slot, the place in `nodes` of who has it.
    slots: Box<[u16]>,
    nodes: Vec<Node>,
    /// Who else may know.
    replicas: Vec<Place>,
}

const NOBODY: u16 = u16::MAX;

/// Makes servers of nodes.
pub(super) struct Maker {
    pub(super) plan: Plan,
    pub(super) address: Address,
    pub(super) doubt: Doubt,
    pub(super) departed: Departed,
}

impl Maker {
    fn node(&self, place: Place) -> Node {
        let territory = Arc::new(Territory::default());
        let membership =
            Membership { territory: Arc::clone(&territory), doubt: self.doubt.clone() };
        let gate = self.departed.take(&place, Instant::now());
        let shard = self.plan.node(self.address.of_node(place.clone()), membership, gate);
        Node { place, shard: Arc::new(shard), territory }
    }
}

impl Atlas {
    pub(super) fn new() -> Self {
        let slots = vec![NOBODY; usize::from(SLOTS)].into_boxed_slice();
        Self { slots, nodes: Vec::new(), replicas: Vec::new() }
    }

    pub(super) fn is_blank(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn replicas(&self) -> &[Place] {
        &self.replicas
    }

    /// Who has a slot.
    pub(super) fn node(&self, slot: u16) -> Option<&Node> {
        self.nodes.get(usize::from(*self.slots.get(usize::from(slot))?))
    }

    fn find(&self, place: &Place) -> Option<usize> {
        self.nodes.iter().position(|node| node.place == *place)
    }

    /// The node at a place, which is a new one if need be; none where there are too many.
    pub(super) fn at(&mut self, place: &Place, maker: &Maker) -> Option<Node> {
        let found = self.find(place).or_else(|| {
            // A survey tells later whether it belongs here.
            let room = self.nodes.len() < MOST_NODES;
            room.then(|| self.nodes.push(maker.node(place.clone())))?;
            Some(self.nodes.len() - 1)
        })?;
        Some(self.nodes[found].clone())
    }

    /// Puts a slot where a node said it has gone.
    pub(super) fn put(&mut self, slot: u16, place: &Place, maker: &Maker) {
        if self.at(place, maker).is_none() {
            return;
        }
        if let (Some(found), Some(entry)) =
            (self.find(place), self.slots.get_mut(usize::from(slot)))
        {
            *entry = found as u16;
        }
    }

    /// Takes over what a map says. Nodes that it does not have are dropped, with their
    /// connections; whether they answer is remembered for a while.
    pub(super) fn redraw(&self, map: Map, maker: &Maker) -> Self {
        let mut drawn = Self::new();
        for (place, ranges) in map.masters {
            let known = self.nodes.iter().find(|node| node.place == place).cloned();
            let node = known.unwrap_or_else(|| maker.node(place));
            drawn.give(&ranges);
            node.territory.set(ranges);
            drawn.nodes.push(node);
        }
        drawn.replicas = map.replicas;
        let left = self.nodes.iter().filter(|node| drawn.find(&node.place).is_none());
        let left = left.map(|node| (node.place.clone(), Arc::clone(&node.shard.gate)));
        maker.departed.keep(left, Instant::now());
        drawn
    }

    /// Whether the same nodes have the same slots.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let shards = |atlas: &Self, slot: u16| atlas.node(slot).map(|node| Arc::clone(&node.shard));
        self.nodes.len() == other.nodes.len()
            && (0..SLOTS).all(|slot| match (shards(self, slot), shards(other, slot)) {
                (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
                (None, None) => true,
                _ => false,
            })
    }

    fn give(&mut self, ranges: &[Range]) {
        let owner = self.nodes.len() as u16;
        for (first, last) in ranges {
            self.slots[usize::from(*first)..=usize::from(*last)].fill(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bb8_redis::redis::IntoConnectionInfo;

    use super::*;
    use crate::store::redis::{breaker::Admission, keys::Names};

    fn maker() -> Maker {
        let plan = Plan {
            names: Names::new("ai:flight", 0).sharded(),
            operation_limit: Duration::from_millis(250),
            connect_limit: Duration::from_secs(1),
            pool_size: 1,
            errors: Arc::default(),
        };
        let address = Address::at("redis://seed:1/".into_connection_info().expect("an address"));
        Maker { plan, address, doubt: Doubt::default(), departed: Departed::default() }
    }

    fn map(ports: &[u16]) -> Map {
        let master = |port: &u16| (("h".to_owned(), *port), vec![(*port, *port)]);
        Map { masters: ports.iter().map(master).collect(), replicas: Vec::new() }
    }

    async fn fail(node: &Node) {
        for _ in 0..3 {
            let error = crate::store::redis::error::timed_out();
            let failed = async { Err::<(), _>(error) };
            drop(node.shard.gate.run(false, Duration::from_secs(1), failed).await);
        }
    }

    #[tokio::test]
    async fn a_node_that_comes_back_is_known_to_be_away() {
        let maker = maker();
        let first = Atlas::new().redraw(map(&[1, 2]), &maker);
        fail(&first.nodes()[0]).await;
        let shards = first.nodes().iter().map(|node| Arc::downgrade(&node.shard));
        let shards: Vec<_> = shards.collect();
        let second = first.redraw(map(&[2, 3]), &maker);
        drop(first);
        // All ways to it go with it.
        assert!(shards[0].upgrade().is_none());
        assert!(second.nodes().iter().all(|node| !node.shard.gate.is_open()));
        let third = second.redraw(map(&[1, 3]), &maker);
        let gate = &third.nodes()[0].shard.gate;
        assert_eq!((gate.is_open(), gate.admit()), (true, Admission::Refused));
        assert!(!third.nodes()[1].shard.gate.is_open());
        // A server that a node names before a map does.
        let mut fourth = third.redraw(map(&[3]), &maker);
        let back = fourth.at(&("h".to_owned(), 1), &maker).expect("room");
        assert!(back.shard.gate.is_open());
    }
}
