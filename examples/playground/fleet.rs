//! The nodes: how they are started, frozen, cut off and killed.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::mpsc::unbounded_channel,
};
use tower_singleflight::MemoryStore;

use crate::{
    args::Pace,
    node,
    proxy::Proxy,
    report::Report,
    scene::{Health, NAMES, Watched},
    story::Tone,
    warden::Warden,
};

/// What can be done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Kill,
    Start,
    Freeze,
    Thaw,
    Cut,
    Heal,
}

impl Deed {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "kill" => Self::Kill,
            "start" => Self::Start,
            "freeze" => Self::Freeze,
            "thaw" => Self::Thaw,
            "cut" => Self::Cut,
            "heal" => Self::Heal,
            _ => return None,
        })
    }
}

/// How nodes that are processes are started.
#[derive(Debug)]
pub(crate) struct Ground {
    /// Where the private Redis listens.
    pub(crate) socket: PathBuf,
    /// Ends them in the end.
    pub(crate) warden: Warden,
}

#[derive(Debug)]
pub(crate) struct Fleet {
    scene: Watched,
    pace: Pace,
    /// None where all nodes are in this process.
    ground: Option<Ground>,
    slots: [tokio::sync::Mutex<Slot>; 3],
    addresses: Arc<[Mutex<Option<SocketAddr>>; 3]>,
}

#[derive(Debug, Default)]
struct Slot {
    proxy: Option<Proxy>,
    child: Option<Child>,
}

impl Fleet {
    pub(crate) fn new(scene: Watched, pace: Pace, ground: Option<Ground>) -> Self {
        Self { scene, pace, ground, slots: Default::default(), addresses: Arc::default() }
    }

    pub(crate) async fn start_all(&self) -> io::Result<()> {
        let store = MemoryStore::new();
        for (at, name) in NAMES.into_iter().enumerate() {
            let Some(ground) = &self.ground else {
                self.start_inside(at, name, store.clone());
                continue;
            };
            let mut slot = self.slots[at].lock().await;
            slot.proxy = Some(Proxy::start(ground.socket.clone()).await?);
            self.start(at, &mut slot, ground).await?;
        }
        Ok(())
    }

    /// The nodes that a load balancer would send callers to.
    pub(crate) fn open(&self) -> Vec<(usize, SocketAddr)> {
        let scene = self.scene.look();
        let up = |at: &usize| scene.nodes[*at].health == Health::Up;
        let address = |at: usize| {
            let address = self.addresses[at].lock().unwrap_or_else(PoisonError::into_inner);
            Some((at, (*address)?))
        };
        (0..NAMES.len()).filter(up).filter_map(address).collect()
    }

    /// Does it, or says why it can't be done.
    pub(crate) async fn act(&self, at: usize, deed: Deed) -> Result<(), String> {
        let Some(ground) = &self.ground else {
            return Err("the nodes are in one process, for there is no redis-server".to_owned());
        };
        let mut slot = self.slots[at].lock().await;
        let (health, cut) = {
            let scene = self.scene.look();
            (scene.nodes[at].health, scene.nodes[at].cut)
        };
        let name = NAMES[at];
        let lives = matches!(health, Health::Up | Health::Frozen);
        let fits = match deed {
            Deed::Kill => lives,
            Deed::Start => health == Health::Dead,
            Deed::Freeze => health == Health::Up,
            Deed::Thaw => health == Health::Frozen,
            Deed::Cut => !cut,
            Deed::Heal => cut,
        };
        if !fits {
            return Err(format!("node {name} is not in a state for that"));
        }
        let tell = |text: String| self.scene.change(|scene| scene.tell(Tone::You, text));
        let health = |health| self.scene.change(|scene| scene.set_health(at, health));
        match deed {
            Deed::Kill => {
                tell(format!(
                    "You killed node {name}, and the connections of its callers with it."
                ));
                health(Health::Dead);
                slot.kill(ground).await.map_err(|error| error.to_string())?;
            }
            Deed::Start => {
                tell(format!("You started node {name} again."));
                let started = self.start(at, &mut slot, ground).await;
                started.map_err(|error| error.to_string())?;
            }
            Deed::Freeze => {
                tell(format!("You froze node {name}: it stands still, and knows nothing of it."));
                health(Health::Frozen);
                slot.signal("-STOP").await?;
            }
            Deed::Thaw => {
                tell(format!("You thawed node {name}: it goes on where it was."));
                health(Health::Up);
                slot.signal("-CONT").await?;
            }
            Deed::Cut | Deed::Heal => {
                let cut = deed == Deed::Cut;
                tell(match cut {
                    true => format!("You cut node {name} off from Redis."),
                    false => format!("You healed node {name}'s way to Redis."),
                });
                self.scene.change(|scene| scene.set_cut(at, cut));
                if let Some(proxy) = &slot.proxy {
                    proxy.set_whole(!cut);
                }
            }
        }
        Ok(())
    }

    async fn start(&self, at: usize, slot: &mut Slot, ground: &Ground) -> io::Result<()> {
        slot.forget(ground).await?;
        let url = slot.proxy.as_ref().map(Proxy::url).unwrap_or_default();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["node", "--name", NAMES[at], "--redis", &url])
            .args(["--lease-ms", &self.pace.lease.as_millis().to_string()])
            .args(["--run-ms", &self.pace.takes.as_millis().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C is for the playground alone.
            .process_group(0)
            .spawn()?;
        let out = child.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?;
        let pid = child.id();
        self.scene.change(|scene| {
            scene.nodes[at].pid = pid;
            scene.set_health(at, Health::Starting);
        });
        slot.child = Some(child);
        ground.warden.started(pid).await?;
        let (scene, addresses) = (self.scene.clone(), Arc::clone(&self.addresses));
        tokio::spawn(async move {
            let mut lines = BufReader::new(out).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(report) = serde_json::from_str(&line) {
                    heard(&scene, &addresses, at, report);
                }
            }
            scene.change(|scene| {
                // Another may have taken its place.
                if scene.nodes[at].pid == pid {
                    scene.tell(Tone::Fault, format!("Node {} has ended.", NAMES[at]));
                    scene.set_health(at, Health::Dead);
                }
            });
        });
        Ok(())
    }

    fn start_inside(&self, at: usize, name: &'static str, store: MemoryStore) {
        let (tell, mut reports) = unbounded_channel();
        let (scene, addresses) = (self.scene.clone(), Arc::clone(&self.addresses));
        tokio::spawn(node::inside(name.to_owned(), store, self.pace, tell));
        tokio::spawn(async move {
            while let Some(report) = reports.recv().await {
                heard(&scene, &addresses, at, report);
            }
        });
    }
}

fn heard(scene: &Watched, addresses: &[Mutex<Option<SocketAddr>>; 3], at: usize, report: Report) {
    scene.change(|scene| match report {
        Report::Listening(address) => {
            *addresses[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
            scene.set_health(at, Health::Up);
        }
        Report::State(state) => scene.heard(at, state),
        Report::Began(run) => scene.run_began(at, &run),
        Report::Ended { run, whole } => scene.run_ended(at, &run, whole),
    });
}

impl Slot {
    async fn kill(&mut self, ground: &Ground) -> io::Result<()> {
        if let Some(child) = &mut self.child {
            child.start_kill()?;
        }
        self.forget(ground).await
    }

    /// Of a process that has ended, or is about to.
    async fn forget(&mut self, ground: &Ground) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            ground.warden.ended(child.id()).await?;
            child.wait().await?;
        }
        Ok(())
    }

    async fn signal(&self, signal: &str) -> Result<(), String> {
        let pid = self.child.as_ref().and_then(Child::id).map(|pid| pid.to_string());
        let pid = pid.ok_or("the process has ended")?;
        match Command::new("kill").args([signal, &pid]).status().await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("kill {signal}: {status}")),
            Err(error) => Err(format!("kill {signal}: {error}")),
        }
    }
}
