//! The rights of callers by rules.

use proptest::prelude::*;
use xebec_access::action::{Action, Actions};
use xebec_access::identity::{Identity, Recognized};
use xebec_access::rights::{Rights, Rule, Who};
use xebec_access::settings::AuthSettings;
use xebec_settings::pattern::RepositoryPattern;

pub(super) fn user(name: &str, groups: &[&str]) -> Identity {
    Identity {
        name: name.to_owned(),
        recognized: Recognized::Password,
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
    }
}

fn rule(pattern: &str, who: &[&str], actions: Actions) -> Rule {
    Rule {
        repositories: RepositoryPattern::parse(pattern).unwrap(),
        who: who
            .iter()
            .map(|&who| Who::try_from(who.to_owned()).unwrap())
            .collect(),
        actions,
    }
}

fn rights(rules: Vec<Rule>) -> Rights {
    Rights::new(
        rules,
        Some(vec![Who::Authenticated]),
        vec![Who::Group("operators".to_owned())],
    )
}

#[test]
fn the_most_specific_pattern_decides_alone() {
    let rights = rights(vec![
        rule("**", &["anyone"], Actions::PULL),
        rule("team/**", &["authenticated"], Actions::PULL_AND_PUSH),
        rule("team/secret", &["user:anna"], Actions::ALL),
        rule("team/secret", &["group:auditors"], Actions::PULL),
        rule("team/closed", &["anyone"], Actions::NONE),
    ]);
    let (anna, bob, nobody) = (
        user("anna", &[]),
        user("bob", &["auditors"]),
        Identity::anonymous(),
    );
    assert_eq!(rights.on("public", &nobody), Actions::PULL);
    assert_eq!(rights.on("team/app", &nobody), Actions::NONE);
    assert_eq!(rights.on("team/app", &bob), Actions::PULL_AND_PUSH);
    assert_eq!(rights.on("team/secret", &anna), Actions::ALL);
    assert_eq!(rights.on("team/secret", &bob), Actions::PULL);
    assert_eq!(rights.on("team/secret", &user("carl", &[])), Actions::NONE);
    assert_eq!(rights.on("team/secret", &nobody), Actions::NONE);
    assert_eq!(rights.on("team/closed", &anna), Actions::NONE);
    let operator = user("olga", &["operators"]);
    assert_eq!(rights.on("team/closed", &operator), Actions::ALL);
    assert!(rights.administers(&operator) && !rights.administers(&anna));
    assert!(rights.may_list(&anna) && !rights.may_list(&nobody));
    assert!(rights.anybody_may_read());
}

#[test]
fn without_a_name_nobody_is_a_user_or_in_a_group() {
    let rights = rights(vec![rule(
        "a",
        &["user:x", "group:g", "authenticated"],
        Actions::ALL,
    )]);
    assert_eq!(rights.on("a", &Identity::anonymous()), Actions::NONE);
    assert_eq!(rights.on("b", &user("x", &["g"])), Actions::NONE);
    let mut odd = Identity::anonymous();
    odd.name = "x".to_owned();
    odd.groups = vec!["g".to_owned()];
    assert_eq!(rights.on("a", &odd), Actions::NONE);
}

#[test]
fn without_rules_users_may_do_everything_and_others_what_is_said() {
    let closed: AuthSettings = toml::from_str("htpasswd = '/x'").unwrap();
    assert_eq!(closed.rights().on("a", &user("x", &[])), Actions::ALL);
    assert_eq!(closed.rights().on("a", &Identity::anonymous()), Actions::NONE);
    let open: AuthSettings = toml::from_str("htpasswd = '/x'\nanonymous_pull = true").unwrap();
    assert_eq!(open.rights().on("a", &user("x", &[])), Actions::ALL);
    assert_eq!(open.rights().on("a", &Identity::anonymous()), Actions::PULL);
    assert_eq!(Rights::open().on("a", &Identity::anonymous()), Actions::ALL);
}

/// As the page for people is open to everybody where there is anything for them to see.
#[test]
fn who_may_read_anything_may_list_unless_it_is_said_who_may() {
    let may_list = |text: &str| {
        let settings: AuthSettings = toml::from_str(text).unwrap();
        let rights = settings.rights();
        let olga = user("olga", &["operators"]);
        [Identity::anonymous(), user("x", &[]), olga].map(|who| rights.may_list(&who))
    };
    let somebody = "[[rule]]\nrepositories = 'a'\nwho = ['user:x']\nactions = ['pull']\n";
    let anyone = "[[rule]]\nrepositories = 'a'\nwho = ['anyone']\nactions = ['pull']\n";
    let said = |who: &str| format!("catalog = ['{who}']\n{anyone}");
    assert_eq!(may_list("htpasswd = '/x'"), [false, true, true]);
    assert_eq!(may_list("anonymous_pull = true"), [true; 3]);
    assert_eq!(may_list(somebody), [false, true, true]);
    assert_eq!(may_list(anyone), [true; 3]);
    assert_eq!(may_list(&said("authenticated")), [false, true, true]);
    assert_eq!(may_list(&said("group:operators")), [false, false, true]);
    let nobody = format!("catalog = []\nadministrators = ['user:x']\n{anyone}");
    assert_eq!(may_list(&nobody), [false, true, false]);
}

#[test]
fn who_may_push_may_read() {
    let settings: AuthSettings =
        toml::from_str("[[rule]]\nrepositories = 'a'\nwho = ['anyone']\nactions = ['push']").unwrap();
    assert_eq!(
        settings.rights().on("a", &Identity::anonymous()),
        Actions::PULL_AND_PUSH
    );
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let pattern = prop::sample::select(vec!["**", "*", "a", "a/**", "a/*", "a/b", "**/b", "b"]);
    let who = prop::sample::select(vec!["anyone", "anonymous", "authenticated", "user:x", "group:g"]);
    let actions = prop::sample::select(vec![
        Actions::NONE,
        Actions::PULL,
        Actions::PULL_AND_PUSH,
        Actions::ALL,
    ]);
    (pattern, who, actions).prop_map(|(pattern, who, actions)| rule(pattern, &[who], actions))
}

proptest! {
    #[test]
    fn the_order_of_rules_means_nothing(rules in prop::collection::vec(any_rule(), 0..6), name in "[ab](/[ab]){0,2}") {
        let mut turned = rules.clone();
        turned.reverse();
        for identity in [Identity::anonymous(), user("x", &["g"]), user("y", &[])] {
            prop_assert_eq!(rights(rules.clone()).on(&name, &identity), rights(turned.clone()).on(&name, &identity));
        }
    }

    #[test]
    fn no_right_comes_from_a_rule_that_does_not_cover_or_name(rules in prop::collection::vec(any_rule(), 0..6), name in "[ab](/[ab]){0,2}") {
        let identity = user("x", &["g"]);
        let given = rights(rules.clone()).on(&name, &identity);
        for action in [Action::Pull, Action::Push, Action::Delete] {
            let named = rules.iter().any(|rule| {
                rule.repositories.covers(&name) && rule.actions.contain(action.into()) && rule.who.iter().any(|who| who.means(&identity))
            });
            prop_assert!(named || !given.contain(action.into()));
        }
    }
}
