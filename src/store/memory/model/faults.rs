//! What goes wrong.

use super::{
    node::{Health, Node},
    rules::Rules,
    shop::Shop,
    wire::{Call, Lane, Push},
    world::{Action, World},
};

impl World {
    pub(super) fn fault(&mut self, fault: Action, rules: &Rules) {
        match fault {
            Action::Silence(at) => self.silence(at, rules),
            Action::Twice(at) => self.serve(at, rules, true),
            Action::LosePush(n) => {
                if let Some(driver) = &mut self.nodes[n].driver {
                    driver.inbox.remove(0);
                }
            }
            Action::Pause(n) => self.nodes[n].health = Health::Paused(0),
            Action::Cut(n) => self.nodes[n].cut = rules.pause,
            Action::Crash(n) => {
                let node = &mut self.nodes[n];
                *node = Node { health: Health::Down, ids: node.ids, ..Node::new(0) };
                self.forget_calls(n, |_| true);
            }
            Action::Loss => self.replace(Shop::default(), rules),
            Action::Lag => {
                let ended = self.granted.iter().map(|granted| granted.ended).collect();
                self.replica = Some((self.shop.clone(), ended));
            }
            Action::Forget => {
                let now = self.instant(rules);
                let pushed = self.shop.record.forget(now);
                self.shake();
                self.publish(pushed.as_ref());
            }
            _ => {}
        }
    }

    pub(super) fn fail_over(&mut self, rules: &Rules) {
        let Some((mut shop, ended)) = self.replica.take() else { return };
        self.note("failed over");
        shop.record.purge(self.instant(rules));
        self.replace(shop, rules);
        // What it has not heard of may be said again.
        for (granted, ended) in self.granted.iter_mut().zip(ended) {
            granted.ended = ended;
        }
    }

    /// The store has other data from now on; who listens is told to look.
    pub(super) fn replace(&mut self, shop: Shop, rules: &Rules) {
        let tokens = if rules.forgets_tokens { shop.tokens } else { self.shop.tokens };
        self.shop = Shop { tokens, ..shop };
        self.shake();
        for driver in self.nodes.iter_mut().filter_map(|node| node.driver.as_mut()) {
            if driver.subscribed {
                driver.inbox.push(Push::Gap);
            }
        }
    }

    /// Owners may not know of each other any more.
    pub(super) fn shake(&mut self) {
        self.granted.iter_mut().for_each(|granted| granted.shaken = true);
    }

    /// Pushes may have been missed.
    pub(super) fn heal(&mut self, n: usize) {
        self.nodes[n].cut = 0;
        if let Some(driver) = self.nodes[n].driver.as_mut().filter(|driver| driver.subscribed) {
            driver.inbox.push(Push::Gap);
        }
    }

    /// A request or its answer was lost, or is late.
    pub(super) fn silence(&mut self, at: usize, rules: &Rules) {
        let call = &mut self.calls[at];
        let Call { node, lane, ask, .. } = *call;
        let n = usize::from(node);
        call.orphan = true;
        call.late = true;
        if call.said.is_some() {
            self.calls.remove(at);
        }
        match lane {
            // Tried again, while it makes sense.
            Lane::Errand => self.send(n, Lane::Errand, ask),
            lane => self.take(n, lane, ask, None, 0, rules),
        }
    }
}
