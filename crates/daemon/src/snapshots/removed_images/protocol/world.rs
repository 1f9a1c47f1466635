//! A host, and the steps of all actors but the one that lets layers go.

use std::collections::{BTreeMap, BTreeSet};

use super::layer_release::LayerRelease;
use super::{IMAGES, Without, Wrong};

/// Where somebody is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Actor {
    Pull {
        image: u8,
        depth: usize,
        at: Pulling,
    },
    /// Finds out about an image, of which a container is started, and pulls nothing.
    Ask {
        image: u8,
        at: Pulling,
    },
    Remove {
        image: u8,
        depth: usize,
    },
    Command {
        image: u8,
        is_recorded: bool,
        at: Commanding,
    },
    LetGo(LayerRelease),
    /// The facts that were found out become too old to be believed.
    Age,
    Restart,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Pulling {
    Begin,
    Find,
    Record,
    Look,
    Stand,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Commanding {
    Choose,
    Reserve,
    Mount,
    Mounted,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct World {
    /// Recorded images, and whether they are kept for commands.
    pub(super) records: BTreeMap<u8, bool>,
    pub(super) layers: BTreeSet<u8>,
    /// For which image each chain of layers was admitted.
    pub(super) snapshots: BTreeMap<Vec<u8>, u8>,
    pub(super) admissions: BTreeSet<u8>,
    pub(super) gone: Option<BTreeSet<u8>>,
    pub(super) is_held: bool,
    /// A process may have left layers that are in no record: it died before that, or only asked about an image that went meanwhile.
    pub(super) has_left_some: bool,
    pub(super) going: Option<u8>,
    /// The images that containerd has.
    pub(super) pulled: BTreeSet<u8>,
    pub(super) actors: Vec<Actor>,
}

impl World {
    pub(super) fn offered(&self) -> BTreeSet<u8> {
        let offered = self.actors.iter().filter_map(|actor| match actor {
            Actor::Pull {
                at: Pulling::Begin, ..
            } => None,
            Actor::Pull { image, .. } => Some(*image),
            _ => None,
        });
        offered.collect()
    }

    /// Images that commands use, or rely on as far as requests know.
    pub(super) fn used(&self, is_reserved: bool) -> BTreeSet<u8> {
        let used = self.actors.iter().filter_map(|actor| match actor {
            Actor::Command {
                image,
                at: Commanding::Mounted,
                ..
            } => Some(*image),
            Actor::Command {
                image,
                at: Commanding::Mount,
                ..
            } if is_reserved => Some(*image),
            _ => None,
        });
        used.collect()
    }

    pub(super) fn fetch(&mut self, image: u8) {
        self.layers.extend(IMAGES[usize::from(image)]);
    }

    pub(super) fn has_all(&self, image: u8) -> bool {
        IMAGES[usize::from(image)]
            .iter()
            .all(|layer| self.layers.contains(layer))
    }

    /// One step of an actor; `None` if it has to wait.
    pub(super) fn step(&self, actor: usize, without: Without) -> Option<World> {
        let mut world = self.clone();
        let next = match self.actors[actor].clone() {
            Actor::Pull { image, depth, at } => world.pull(image, depth, at, without)?,
            Actor::Ask { image, at } => world.ask(image, at)?,
            Actor::Remove { image, depth } => world.remove(image, depth),
            Actor::Command {
                image,
                is_recorded,
                at,
            } => world.command(image, is_recorded, at)?,
            Actor::LetGo(seen) => world.let_go(seen, without),
            Actor::Age => {
                world.admissions.clear();
                Actor::Done
            }
            Actor::Restart => {
                world.restart();
                Actor::Done
            }
            Actor::Done => return None,
        };
        world.actors[actor] = next;
        Some(world)
    }

    pub(super) fn pull(&mut self, image: u8, depth: usize, at: Pulling, without: Without) -> Option<Actor> {
        let layers = &IMAGES[usize::from(image)][..depth];
        let next = |depth, at| Actor::Pull { image, depth, at };
        Some(match at {
            Pulling::Begin if self.is_held && without != Without::Waiting => return None,
            Pulling::Begin if self.snapshots.get(layers) == Some(&image) => self.pulled_up_to(image, depth),
            Pulling::Begin => next(depth, Pulling::Find),
            Pulling::Find if self.admissions.contains(&image) => next(depth, Pulling::Stand),
            Pulling::Find => {
                self.fetch(image);
                next(depth, Pulling::Record)
            }
            Pulling::Record => {
                self.records.entry(image).or_insert(false);
                next(depth, Pulling::Look)
            }
            Pulling::Look if self.going.is_some_and(|layer| layers.contains(&layer)) => return None,
            Pulling::Look if !self.has_all(image) && without != Without::Looking => {
                next(depth, Pulling::Find)
            }
            Pulling::Look => {
                self.admissions.insert(image);
                next(depth, Pulling::Stand)
            }
            Pulling::Stand if depth > 1 && !self.snapshots.contains_key(&layers[..depth - 1]) => Actor::Done,
            Pulling::Stand => {
                self.snapshots.entry(layers.to_vec()).or_insert(image);
                self.pulled_up_to(image, depth)
            }
        })
    }

    pub(super) fn ask(&mut self, image: u8, at: Pulling) -> Option<Actor> {
        self.has_left_some = true;
        // As a pull does, for all layers.
        let depth = IMAGES[usize::from(image)].len();
        match self.pull(image, depth, at, Without::Nothing)? {
            Actor::Pull {
                at: Pulling::Stand, ..
            } => Some(Actor::Done),
            Actor::Pull { image, at, .. } => Some(Actor::Ask { image, at }),
            _ => None,
        }
    }

    pub(super) fn pulled_up_to(&mut self, image: u8, depth: usize) -> Actor {
        if depth < IMAGES[usize::from(image)].len() {
            let depth = depth + 1;
            return Actor::Pull {
                image,
                depth,
                at: Pulling::Begin,
            };
        }
        self.pulled.insert(image);
        Actor::Done
    }

    /// containerd removes each snapshot that no image needs which it has or is pulling.
    pub(super) fn remove(&mut self, image: u8, depth: usize) -> Actor {
        self.pulled.remove(&image);
        if depth == 0 {
            return Actor::LetGo(LayerRelease::default());
        }
        let layers = &IMAGES[usize::from(image)][..depth];
        let is_leased = self.actors.iter().any(|actor| match actor {
            Actor::Pull { image, depth, .. } => IMAGES[usize::from(*image)][..*depth].starts_with(layers),
            _ => false,
        });
        let mut others = self.pulled.iter();
        if !is_leased && !others.any(|other| IMAGES[usize::from(*other)].starts_with(layers)) {
            let shown = self.snapshots.remove(layers);
            shown.into_iter().for_each(|shown| {
                self.gone.get_or_insert_default().insert(shown);
            });
        }
        Actor::Remove {
            image,
            depth: depth - 1,
        }
    }

    pub(super) fn command(&mut self, image: u8, is_recorded: bool, at: Commanding) -> Option<Actor> {
        let layers = IMAGES[usize::from(image)];
        let next = |is_recorded, at| Actor::Command {
            image,
            is_recorded,
            at,
        };
        Some(match at {
            Commanding::Choose => {
                self.fetch(image);
                next(false, Commanding::Reserve)
            }
            Commanding::Reserve if self.going.is_some_and(|layer| layers.contains(&layer)) => return None,
            Commanding::Reserve if !self.has_all(image) => next(false, Commanding::Choose),
            Commanding::Reserve => next(is_recorded, Commanding::Mount),
            // Beside all this, and before anybody sees it.
            Commanding::Mount if !is_recorded => {
                self.records.insert(image, true);
                next(true, Commanding::Mount)
            }
            Commanding::Mount => next(true, Commanding::Mounted),
            Commanding::Mounted => return None,
        })
    }

    /// State that is in no file is lost.
    pub(super) fn restart(&mut self) {
        self.has_left_some = true;
        self.admissions.clear();
        (self.is_held, self.going, self.gone) = (false, None, Some(BTreeSet::new()));
        for actor in &mut self.actors {
            *actor = match actor.clone() {
                Actor::LetGo(_) => Actor::LetGo(LayerRelease::default()),
                Actor::Pull { .. } | Actor::Ask { .. } => Actor::Done,
                Actor::Command { at, .. } if at != Commanding::Mounted => Actor::Done,
                other => other,
            };
        }
    }

    /// Fails if an image that is used lacks its record or a layer.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let snapshots = self
            .snapshots
            .iter()
            .map(|(layers, image)| (*image, layers.len()));
        let pulled = self
            .pulled
            .iter()
            .chain(&self.used(false))
            .copied()
            .collect::<Vec<u8>>();
        let pulled = pulled
            .into_iter()
            .map(|image| (image, IMAGES[usize::from(image)].len()));
        for (image, depth) in snapshots.chain(pulled) {
            if !self.records.contains_key(&image) {
                return Err(Wrong::Missing(format!("image {image} is known no more")));
            }
            let missing = IMAGES[usize::from(image)][..depth]
                .iter()
                .find(|layer| !self.layers.contains(layer));
            if let Some(layer) = missing {
                return Err(Wrong::Missing(format!("image {image} needs layer {layer}")));
            }
        }
        Ok(())
    }

    /// Fails if something needless is left when nobody does anything any more.
    pub(super) fn check_rest(mut self) -> Result<(), Wrong> {
        self.admissions.clear();
        self.gone.get_or_insert_default();
        self.actors.push(Actor::LetGo(LayerRelease::default()));
        let last = self.actors.len() - 1;
        while let Some(next) = self.step(last, Without::Nothing) {
            self = next;
        }
        self.check()?;
        let kept = self
            .records
            .iter()
            .filter(|(_, is_for_commands)| **is_for_commands);
        let kept = kept.flat_map(|(image, _)| IMAGES[usize::from(*image)].iter().copied());
        let needed: BTreeSet<u8> = kept.chain(self.snapshots.keys().flatten().copied()).collect();
        let mut left = self.layers;
        if self.has_left_some {
            // Only the cache's limit takes that.
            let recorded = self.records.keys();
            let recorded: BTreeSet<u8> = recorded
                .flat_map(|image| IMAGES[usize::from(*image)].iter().copied())
                .collect();
            left.retain(|layer| recorded.contains(layer));
        }
        match left == needed {
            true => Ok(()),
            false => Err(Wrong::Left(format!(
                "{left:?} are left, and {needed:?} are needed"
            ))),
        }
    }
}
