//! The protocol by which layers of removed images leave the host, in every order of its steps.
//!
//! Pulls, removals, commands and a restart are taken apart into steps between which others can come. All orders of them are
//! played, with the plan that the daemon makes. Whatever the order, an image that containerd has or a command uses keeps its
//! record and its layers; in the end nothing else is left. That the model can fail is shown by leaving out one precaution
//! after the other.
mod layer_release;
mod world;

use std::collections::{BTreeSet, HashSet};

use layer_release::LayerRelease;
pub(super) use layer_release::record;
use world::{Actor, Commanding, Pulling, World};

/// Layers by image. The second has the first one's lowest layer, the third all of its layers and another configuration.
const IMAGES: [&[u8]; 3] = [&[1, 2], &[1, 3], &[1, 2]];
const ONE: u8 = 0;
const OTHER: u8 = 1;
const ALIKE: u8 = 2;

/// A precaution that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    /// Images of which a layer is just offered are left alone.
    Pulls,
    /// No layer is offered while others go.
    Waiting,
    /// The facts about an image that goes are forgotten.
    Forgetting,
    /// Facts that are found out while layers go are forgotten.
    ForgettingMore,
    /// A snapshot is one of every image with its chain.
    Chains,
    /// Records are read again for those that rely on a layer, when none can begin to.
    AskingAgain,
    /// A pull looks whether the layers that it found are still there.
    Looking,
    /// A record goes only if it is as it was.
    Comparing,
}

/// The faults that may occur.
#[derive(Debug)]
#[allow(dead_code, reason = "a panic tells it")]
enum Wrong {
    /// An actor lacks what it needs.
    Missing(String),
    /// Something stays that no actor needs.
    Left(String),
}

/// Plays all orders. Gives how many states there are, or the fault.
fn play(begun: &World, without: Without) -> Result<usize, Wrong> {
    let (mut seen, mut open) = (HashSet::from([begun.clone()]), vec![begun.clone()]);
    while let Some(world) = open.pop() {
        world.check()?;
        let steps = (0..world.actors.len()).filter_map(|actor| world.step(actor, without));
        let next: Vec<World> = steps.filter(|next| *next != world).collect();
        if next.is_empty() {
            world.check_rest()?;
            continue;
        }
        open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
    }
    Ok(seen.len())
}

fn pull(image: u8) -> Actor {
    Actor::Pull {
        image,
        depth: 1,
        at: Pulling::Begin,
    }
}

fn remove(image: u8) -> Actor {
    Actor::Remove {
        image,
        depth: IMAGES[usize::from(image)].len(),
    }
}

fn ask(image: u8) -> Actor {
    Actor::Ask {
        image,
        at: Pulling::Find,
    }
}

fn run(image: u8) -> Actor {
    Actor::Command {
        image,
        is_recorded: false,
        at: Commanding::Choose,
    }
}

/// A host that has pulled these images, a moment ago.
fn host(images: &[u8], actors: Vec<Actor>) -> World {
    let mut world = World {
        gone: Some(BTreeSet::new()),
        ..World::default()
    };
    for image in images {
        world.actors = vec![pull(*image)];
        while let Some(next) = world.step(0, Without::Nothing) {
            world = next;
        }
    }
    World { actors, ..world }
}

fn worlds() -> Vec<World> {
    let look = || Actor::LetGo(LayerRelease::default());
    vec![
        host(&[], vec![pull(ONE), look(), Actor::Age, Actor::Restart]),
        host(&[ONE], vec![remove(ONE), pull(ONE), Actor::Age]),
        host(&[ONE], vec![remove(ONE), pull(OTHER), Actor::Age]),
        host(&[ONE], vec![remove(ONE), pull(ALIKE), Actor::Age]),
        host(
            &[ONE, ALIKE],
            vec![remove(ONE), look(), Actor::Age, Actor::Restart],
        ),
        host(
            &[ONE, OTHER],
            vec![remove(ONE), remove(OTHER), Actor::Age, Actor::Restart],
        ),
        host(&[ONE], vec![remove(ONE), ask(ONE), pull(ONE), Actor::Age]),
        host(&[ONE], vec![remove(ONE), run(ONE), Actor::Age]),
        host(&[ONE], vec![remove(ONE), run(OTHER), Actor::Age]),
        host(&[ONE], vec![remove(ONE), pull(ONE), run(ALIKE), Actor::Restart]),
    ]
}

#[test]
fn nothing_goes_that_somebody_needs() {
    let mut states = 0;
    for (number, world) in worlds().iter().enumerate() {
        let played = play(world, Without::Nothing);
        states += played.unwrap_or_else(|wrong| panic!("world {number}: {wrong:?}"));
    }
    assert!(states > 1000, "{states} states are too few to show anything");
}

#[test]
fn each_precaution_is_needed() {
    for without in [
        Without::Pulls,
        Without::Waiting,
        Without::Forgetting,
        Without::ForgettingMore,
        Without::Chains,
        Without::AskingAgain,
        Without::Looking,
        Without::Comparing,
    ] {
        let goes_wrong = worlds()
            .iter()
            .any(|world| matches!(play(world, without), Err(Wrong::Missing(_))));
        assert!(goes_wrong, "without {without:?} all goes well");
    }
}
