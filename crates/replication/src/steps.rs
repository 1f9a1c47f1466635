//! The steps that are missing until a blob is kept as it is wanted. Pure: the same for the one who carries them out and for a plan.

use std::collections::BTreeSet;

use xebec_placement::{Form, PlaceName, Placement, Wanted};
use xebec_policy::copies::CopyRules;
use xebec_store::Standing;

/// Why a blob stays intact whose rules ask for no other form. The store has it as the blob's reason.
pub(crate) const BY_RULE: &str = "the rules of [[copies]] keep it intact";

/// A step. They come in an order in which each may be the last one for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The bytes that were pushed are restored to the main place.
    MakeIntact,
    /// The blob waits to be taken apart, in this form.
    TakeApart(Form),
    /// The recipe goes, and the blob stays intact.
    StayIntact,
    /// The bytes that were pushed go.
    DropIntact,
    /// These bytes are to be there.
    PlaceIntact(BTreeSet<Placement>),
    /// The recipe is to be there. Its packs are looked at by themselves.
    PlaceRecipe(BTreeSet<Placement>),
}

impl Step {
    /// Whether nothing goes by it that another copy would have to stand for, but for copies of the same bytes.
    pub(crate) fn only_makes(&self) -> bool {
        matches!(
            self,
            Self::MakeIntact | Self::PlaceIntact(_) | Self::PlaceRecipe(_)
        )
    }
}

/// All that is wanted of a blob, by the rules of the repositories that have it. Nothing if none has it.
pub(crate) fn wanted(standing: &Standing, rules: &CopyRules, now: u64) -> Wanted {
    let is_popular = standing.popular_until > now;
    let mut all = Wanted::default();
    for repository in &standing.repositories {
        let repository = repository.as_str();
        let popular = rules.popular(repository).filter(|_| is_popular);
        let wanted = popular.map_or_else(|| rules.of(repository), |popular| &popular.wanted);
        all = all.union(wanted);
    }
    match standing.has_all_repositories {
        true => all,
        // Others may want what they wanted before.
        false => all.union(&standing.wanted),
    }
}

/// What is missing of that. After [`Step::MakeIntact`] and [`Step::TakeApart`] the blob is looked at again, once that has come about.
pub(crate) fn steps(standing: &Standing, wanted: &Wanted) -> Vec<Step> {
    let is_intact = standing.blob.object.is_some();
    match (&standing.recipe, wanted.form()) {
        _ if wanted.is_empty() => Vec::new(),
        (Some((_, Some(found))), Some(form)) if *found != form => match is_intact {
            true => vec![
                Step::PlaceIntact(until_taken_apart(wanted)),
                Step::TakeApart(form),
            ],
            false => vec![Step::MakeIntact],
        },
        (Some(_), Some(_)) => with_recipe(is_intact, wanted),
        (Some(_), None) => match is_intact {
            true => vec![Step::PlaceIntact(wanted.intact().clone()), Step::StayIntact],
            false => vec![Step::MakeIntact],
        },
        (None, Some(form)) if standing.problem == BY_RULE => vec![Step::TakeApart(form)],
        (None, Some(_)) if standing.waits => intact(until_taken_apart(wanted)),
        // It cannot be taken apart: the copies of that form are intact ones.
        (None, _) => intact(wanted.intact().union(wanted.apart()).cloned().collect()),
    }
}

/// Until a blob is taken apart, its bytes are where its recipe will be: as many places may be lost as afterwards. It is taken apart on the main place.
fn until_taken_apart(wanted: &Wanted) -> BTreeSet<Placement> {
    let places = wanted.intact().union(wanted.apart()).cloned();
    places.chain([Placement::At(PlaceName::main())]).collect()
}

fn with_recipe(is_intact: bool, wanted: &Wanted) -> Vec<Step> {
    let recipe = Step::PlaceRecipe(wanted.apart().clone());
    match (is_intact, wanted.intact().is_empty()) {
        (true, true) => vec![recipe, Step::DropIntact],
        (true, false) => vec![recipe, Step::PlaceIntact(wanted.intact().clone())],
        (false, true) => vec![recipe],
        (false, false) => vec![recipe, Step::MakeIntact],
    }
}

fn intact(places: BTreeSet<Placement>) -> Vec<Step> {
    match places.is_empty() {
        true => Vec::new(),
        false => vec![Step::PlaceIntact(places)],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xebec_store::{Algorithm, Blob, Digest, RecipeRecord};

    use super::*;

    /// A blob as the store has it, without its bytes.
    #[derive(Clone, Debug)]
    struct Model {
        standing: Standing,
        /// Whether it can be taken apart.
        can_be_taken_apart: bool,
        intact: BTreeSet<Placement>,
        apart: BTreeSet<Placement>,
    }

    fn main_place() -> BTreeSet<Placement> {
        BTreeSet::from([Placement::At(PlaceName::main())])
    }

    impl Model {
        fn pushed(can_be_taken_apart: bool) -> Self {
            let digest = Digest::of(Algorithm::Sha256, b"a blob");
            let blob = Blob {
                digest,
                size: 6,
                object: Some("an object".to_owned()),
            };
            let standing = Standing {
                blob,
                seen: 1,
                repositories: Vec::new(),
                has_all_repositories: true,
                proven: 0,
                wanted: Wanted::default(),
                recipe: None,
                waits: true,
                problem: String::new(),
                popular_until: 0,
            };
            Self {
                standing,
                can_be_taken_apart,
                intact: main_place(),
                apart: BTreeSet::new(),
            }
        }

        fn carry_out(&mut self, step: Step) {
            let standing = &mut self.standing;
            match step {
                Step::MakeIntact => {
                    assert!(standing.blob.object.is_none() && standing.recipe.is_some());
                    standing.blob.object = Some("another object".to_owned());
                    self.intact = main_place();
                }
                Step::TakeApart(_) | Step::StayIntact => {
                    assert!(standing.blob.object.is_some(), "its only form would go");
                    standing.recipe = None;
                    self.apart.clear();
                    standing.waits = matches!(step, Step::TakeApart(_));
                    standing.problem = match step {
                        Step::StayIntact => BY_RULE.to_owned(),
                        _ => String::new(),
                    };
                }
                Step::DropIntact => {
                    assert!(standing.recipe.is_some(), "its only form would go");
                    standing.blob.object = None;
                    self.intact.clear();
                }
                Step::PlaceIntact(places) => {
                    assert!(standing.blob.object.is_some() && !places.is_empty());
                    self.intact = places;
                }
                Step::PlaceRecipe(places) => {
                    assert!(standing.recipe.is_some() && !places.is_empty());
                    self.apart = places;
                }
            }
        }

        /// What the deduplicator does, by the same rules.
        fn take_apart(&mut self, wanted: &Wanted) {
            let standing = &mut self.standing;
            if !standing.waits {
                return;
            }
            standing.waits = false;
            match wanted.form() {
                None => standing.problem = BY_RULE.to_owned(),
                Some(_) if !self.can_be_taken_apart => standing.problem = "it cannot be".to_owned(),
                Some(form) => {
                    let recipe = RecipeRecord {
                        blob: standing.blob.digest.clone(),
                        object: "a recipe".to_owned(),
                        size: 1,
                        checksum: standing.blob.digest.clone(),
                        plain: 6,
                        is_damaged: false,
                        packs: Vec::new(),
                    };
                    standing.recipe = Some((recipe, Some(form)));
                    self.apart = main_place();
                }
            }
        }

        fn settle(&mut self, wanted: &Wanted) {
            for _ in 0..10 {
                let before = format!("{self:?}");
                for step in steps(&self.standing, wanted) {
                    self.carry_out(step);
                    assert!(!self.intact.is_empty() || !self.apart.is_empty());
                }
                self.take_apart(wanted);
                if format!("{self:?}") == before {
                    return;
                }
            }
            panic!("it never ends: {self:?} {wanted}");
        }
    }

    fn any_wanted() -> impl Strategy<Value = Wanted> {
        let texts = [
            "intact@main",
            "files@main",
            "chunks@a",
            "intact@a files@b",
            "intact@b intact@main",
            "files@a,b,c(2+1)",
            "intact@main,a,b(2+1) chunks@a",
        ];
        proptest::sample::select(texts.to_vec()).prop_map(|text| text.parse().unwrap())
    }

    proptest! {
        #[test]
        fn a_blob_ends_as_it_is_wanted_whatever_was_wanted_before(
            all in proptest::collection::vec(any_wanted(), 1..8),
            can_be_taken_apart: bool,
        ) {
            let mut model = Model::pushed(can_be_taken_apart);
            for wanted in &all {
                model.settle(wanted);
                let (intact, apart) = match can_be_taken_apart {
                    true => (wanted.intact().clone(), wanted.apart().clone()),
                    false => (wanted.intact().union(wanted.apart()).cloned().collect(), BTreeSet::new()),
                };
                prop_assert_eq!(&model.intact, &intact, "{}", wanted);
                prop_assert_eq!(&model.apart, &apart, "{}", wanted);
                prop_assert_eq!(model.standing.blob.object.is_some(), !intact.is_empty());
                let form = model.standing.recipe.as_ref().and_then(|(_, form)| *form);
                prop_assert_eq!(form, wanted.form().filter(|_| can_be_taken_apart));
            }
        }

        #[test]
        fn a_process_may_end_after_any_step(
            first in any_wanted(),
            second in any_wanted(),
            done in 0_usize..3,
        ) {
            let mut model = Model::pushed(true);
            model.settle(&first);
            for step in steps(&model.standing, &second).into_iter().take(done) {
                model.carry_out(step);
            }
            model.settle(&second);
            prop_assert_eq!(&model.intact, second.intact());
            prop_assert_eq!(&model.apart, second.apart());
        }
    }
}
