//! The part `[auth]` of the configuration. A value that is wrong by itself is an error at its place, which the reader of the file turns
//! into a line. Values that do not fit together are found by [`AuthSettings::problems`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use xebec_settings::pattern::RepositoryPattern;
use xebec_settings::period::Period;

use crate::action::Actions;
use crate::outgoing;
use crate::rights::{Rights, Rule, Who};
use crate::token::MAX_LEEWAY;

/// `[auth]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthSettings {
    /// Users and hashes of their passwords.
    pub htpasswd: Option<PathBuf>,
    /// Whether everybody may pull everything. With rules, a rule says so instead.
    pub anonymous_pull: bool,
    /// How clients are told to log in where the built-in token endpoint could be used.
    pub challenge: ChallengeSettings,
    /// The name of this registry in tokens. By default the host that the client asked.
    pub service: Option<String>,
    /// `https://HOST` as clients reach it. By default what the client asked.
    pub public_url: Option<String>,
    /// Tokens of the built-in endpoint.
    pub token: OwnTokenSettings,
    /// A token service of somebody else.
    pub token_service: Option<TokenServiceSettings>,
    /// Issuers of identities.
    pub oidc: Vec<OidcSettings>,
    /// Groups of users, by name.
    pub groups: BTreeMap<String, Vec<String>>,
    /// The rights of callers.
    #[serde(rename = "rule")]
    pub rules: Vec<RuleSettings>,
    /// Callers that may ask for the list of repositories, which shows them what they may pull. By default every user, and everybody else
    /// where they may pull anything.
    pub catalog: Option<Vec<Who>>,
    /// Callers that may do everything, and so see all repositories.
    pub administrators: Vec<Who>,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            htpasswd: None,
            anonymous_pull: false,
            challenge: ChallengeSettings::Bearer,
            service: None,
            public_url: None,
            token: OwnTokenSettings::default(),
            token_service: None,
            oidc: Vec::new(),
            groups: BTreeMap::new(),
            rules: Vec::new(),
            catalog: None,
            administrators: Vec::new(),
        }
    }
}

/// How clients are told to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChallengeSettings {
    /// By tokens of the built-in endpoint.
    Bearer,
    /// By name and password at each request.
    Basic,
}

/// `[auth.token]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnTokenSettings {
    /// How long a token counts.
    pub lifetime: Period,
    /// How long a refresh token counts.
    pub refresh_lifetime: Period,
    /// The key that signs, which all nodes of one registry share. By default `token-key.pem` in the root directory.
    pub key_file: Option<PathBuf>,
}

impl Default for OwnTokenSettings {
    fn default() -> Self {
        Self {
            lifetime: Period::seconds(300),
            refresh_lifetime: Period::seconds(30 * 86_400),
            key_file: None,
        }
    }
}

/// Where the keys of an issuer are.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeysSettings {
    /// A JSON Web Key Set or PEM.
    pub file: Option<PathBuf>,
    /// The address of a JSON Web Key Set.
    pub url: Option<String>,
    /// Certificate authorities beside the system's.
    pub ca_file: Option<PathBuf>,
    /// A token for the issuer's own host.
    pub token_file: Option<PathBuf>,
    /// How long the last good keys count while no new ones come.
    #[serde(default = "one_day")]
    pub keep: Period,
}

impl Default for KeysSettings {
    fn default() -> Self {
        Self {
            file: None,
            url: None,
            ca_file: None,
            token_file: None,
            keep: one_day(),
        }
    }
}

fn one_day() -> Period {
    Period::seconds(86_400)
}

fn one_minute() -> Period {
    Period::seconds(60)
}

/// `[auth.token_service]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenServiceSettings {
    /// Where clients get tokens.
    pub realm: String,
    /// The name of this registry there, and the audience of its tokens.
    pub service: String,
    /// The issuer of its tokens.
    pub issuer: String,
    /// Its keys: `file` or `url`.
    pub keys: KeysSettings,
    /// How much clocks may differ.
    #[serde(default = "one_minute")]
    pub leeway: Period,
}

/// `[[auth.oidc]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcSettings {
    /// A short name, by which its subjects are called here: `NAME:SUBJECT`.
    pub name: String,
    /// The issuer's address, as its tokens write it.
    pub issuer: String,
    /// Tokens are for one of these.
    pub audiences: Vec<String>,
    /// Its keys. By default from its discovery document.
    #[serde(default)]
    pub keys: KeysSettings,
    /// How much clocks may differ.
    #[serde(default = "one_minute")]
    pub leeway: Period,
    /// Which tokens belong to which groups. A token that none of them fits is refused.
    #[serde(rename = "grant")]
    pub grants: Vec<GrantSettings>,
}

/// `[[auth.oidc.grant]]`: tokens with these claims belong to these groups.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantSettings {
    /// All of these. A name that begins with `/` leads into a claim (RFC 6901).
    pub claims: BTreeMap<String, Values>,
    /// The groups.
    pub groups: Vec<String>,
}

/// The values that a claim may have; `*` stands for any characters.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// This.
    One(String),
    /// One of these.
    AnyOf(Vec<String>),
}

impl Values {
    /// All that are allowed.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::AnyOf(values) => values,
        }
    }
}

/// `[[auth.rule]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// Which repositories.
    pub repositories: RepositoryPattern,
    /// The callers.
    pub who: Vec<Who>,
    /// The actions: `pull`, `push`, `delete`. A push reads too, so `push` has `pull` with it.
    pub actions: Actions,
}

impl AuthSettings {
    /// The rights that they give.
    pub fn rights(&self) -> Rights {
        let everywhere = |who, actions| {
            let repositories = RepositoryPattern::parse("**").ok()?;
            Some(Rule {
                repositories,
                who: vec![who],
                actions,
            })
        };
        let mut rules: Vec<Rule> = self.rules.iter().map(RuleSettings::rule).collect();
        if rules.is_empty() {
            rules.extend(everywhere(Who::Authenticated, Actions::ALL));
            if self.anonymous_pull {
                rules.extend(everywhere(Who::Anyone, Actions::PULL));
            }
        }
        Rights::new(rules, self.catalog.clone(), self.administrators.clone())
    }

    /// The groups of a user of the htpasswd file.
    pub fn groups_of(&self, user: &str) -> Vec<String> {
        let has = |(_, users): &(&String, &Vec<String>)| users.iter().any(|name| name == user);
        self.groups
            .iter()
            .filter(has)
            .map(|(group, _)| group.clone())
            .collect()
    }

    /// Whether anybody can be recognized.
    pub fn recognizes_anybody(&self) -> bool {
        self.htpasswd.is_some() || self.token_service.is_some() || !self.oidc.is_empty()
    }

    /// The settings that do not fit together, each with advice. Nothing outside is asked.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.rules.is_empty() && self.anonymous_pull {
            problems.push(
                "auth.anonymous_pull does not count beside rules; write a rule with who = [\"anyone\"]"
                    .to_owned(),
            );
        }
        if !self.recognizes_anybody() && !self.anonymous_pull && self.rules.is_empty() {
            problems.push(
                "auth has no htpasswd, token_service or oidc, so that nobody could do anything; add one, or remove [auth]"
                    .to_owned(),
            );
        }
        if let Some(url) = &self.public_url
            && !reqwest::Url::parse(url)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        {
            problems.push(format!(
                "auth.public_url {url:?} is not like https://registry.example.org"
            ));
        }
        self.check_groups(&mut problems);
        self.check_issuers(&mut problems);
        problems
    }

    /// A rule for a group that nobody can be in would be one that does nothing.
    fn check_groups(&self, problems: &mut Vec<String>) {
        let of_tokens = self
            .oidc
            .iter()
            .flat_map(|issuer| &issuer.grants)
            .flat_map(|grant| &grant.groups);
        let known: BTreeSet<&String> = self.groups.keys().chain(of_tokens).collect();
        let of_rules = self.rules.iter().flat_map(|rule| &rule.who);
        for who in of_rules
            .chain(self.catalog.iter().flatten())
            .chain(&self.administrators)
        {
            if let Who::Group(group) = who
                && !known.contains(group)
            {
                problems.push(format!(
                    "nobody is in the group {group:?}; add it to auth.groups, or to a grant of auth.oidc"
                ));
            }
        }
        for user in self.groups.values().flatten() {
            if let Err(cause) = super::htpasswd::check_name(user) {
                problems.push(format!("auth.groups names the user {user:?}: {cause}"));
            }
        }
        for rule in &self.rules {
            if rule.who.is_empty() {
                problems.push(format!(
                    "the rule for {} names nobody; write who = [\"authenticated\"]",
                    rule.repositories
                ));
            }
        }
    }

    fn check_issuers(&self, problems: &mut Vec<String>) {
        let mut leeways = Vec::new();
        if let Some(service) = &self.token_service {
            leeways.push(("auth.token_service", service.leeway));
            check_keys("auth.token_service", &service.keys, true, problems);
        }
        let mut names = BTreeSet::new();
        let mut issuers = BTreeSet::new();
        for issuer in &self.oidc {
            let at = format!("auth.oidc {:?}", issuer.name);
            leeways.push(("auth.oidc", issuer.leeway));
            if super::htpasswd::check_name(&issuer.name).is_err() {
                problems.push(format!(
                    "{at}: the name is to be a short word without blanks and colons"
                ));
            }
            if !names.insert(&issuer.name) || !issuers.insert(&issuer.issuer) {
                problems.push(format!(
                    "{at}: another issuer has the same name or address; each needs its own"
                ));
            }
            if issuer.audiences.is_empty() {
                problems.push(format!(
                    "{at}: name the audiences of its tokens, usually this registry's host"
                ));
            }
            if issuer.grants.iter().any(|grant| grant.claims.is_empty()) {
                problems.push(format!(
                    "{at}: a grant without claims would let in everybody whom the issuer knows; name some"
                ));
            }
            check_keys(&at, &issuer.keys, false, problems);
            if issuer.keys.file.is_none()
                && issuer.keys.url.is_none()
                && outgoing::address(&issuer.issuer).is_err()
            {
                problems.push(format!(
                    "{at}: keys cannot be had from {:?}; use an https:// address, or keys.file",
                    issuer.issuer
                ));
            }
        }
        for (at, leeway) in leeways {
            if leeway.0.as_secs() > MAX_LEEWAY {
                problems.push(format!(
                    "{at}: a leeway of {leeway} is more than {MAX_LEEWAY}s; set the clocks instead"
                ));
            }
        }
    }
}

fn check_keys(at: &str, keys: &KeysSettings, needed: bool, problems: &mut Vec<String>) {
    match (&keys.file, &keys.url) {
        (Some(_), Some(_)) => problems.push(format!("{at}: keys.file and keys.url are both given; keep one")),
        (None, None) if needed => problems.push(format!("{at}: give keys.file or keys.url")),
        (None, Some(url)) => {
            if let Err(error) = outgoing::address(url) {
                problems.push(format!("{at}: keys.url: {error}"));
            }
        }
        _ => {}
    }
}

impl RuleSettings {
    fn rule(&self) -> Rule {
        let push = Actions::from(super::action::Action::Push);
        let reads_too = if self.actions.contain(push) {
            Actions::PULL
        } else {
            Actions::NONE
        };
        Rule {
            repositories: self.repositories.clone(),
            who: self.who.clone(),
            actions: self.actions.and(reads_too),
        }
    }
}
