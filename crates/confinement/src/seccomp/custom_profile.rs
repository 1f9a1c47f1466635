//! A profile of the user (`--security-opt seccomp=FILE`), in the format of docker or of the runtime's
//! configuration. The former is the latter with conditions.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::capabilities::Capabilities;

/// Largest profile that is read. Docker's own has some 20 kB, and profiles generated for one program have
/// less.
const PROFILE_LIMIT: usize = 1 << 20;

/// This machine in conditions, by Go's names.
const MACHINE: &str = if cfg!(target_arch = "x86_64") {
    "amd64"
} else if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    std::env::consts::ARCH
};

/// This machine in docker's table of architectures (`archMap`).
const KIND: &str = if cfg!(target_arch = "x86_64") {
    "SCMP_ARCH_X86_64"
} else if cfg!(target_arch = "aarch64") {
    "SCMP_ARCH_AARCH64"
} else {
    ""
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: String,
    #[serde(default)]
    arch_map: Vec<ArchMapEntry>,
    #[serde(default)]
    syscalls: Option<Vec<Rule>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchMapEntry {
    architecture: String,
    #[serde(default)]
    sub_architectures: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Rule {
    #[serde(default)]
    names: Option<Vec<String>>,
    /// In old profiles.
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    includes: Option<Condition>,
    #[serde(default)]
    excludes: Option<Condition>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    caps: Option<Vec<String>>,
    arches: Option<Vec<String>>,
    min_kernel: Option<String>,
}

/// Reads a profile for a container with these capabilities, on a kernel of this version. Returns the `linux.seccomp` object of the
/// runtime's configuration, or the fault of the profile.
pub(crate) fn read(text: &str, capabilities: Capabilities, kernel: (u32, u32)) -> Result<Value, String> {
    if text.len() > PROFILE_LIMIT {
        return Err(format!("it is larger than {PROFILE_LIMIT} bytes"));
    }
    let profile: Profile = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if !profile.default_action.starts_with("SCMP_ACT_") {
        return Err(format!("{:?} is not an action", profile.default_action));
    }
    let mut whole = profile.rest;
    whole.insert("defaultAction".into(), profile.default_action.into());
    let has_own = whole.get("architectures").is_some_and(|own| *own != json!([]));
    if has_own && !profile.arch_map.is_empty() {
        return Err("it has both architectures and archMap; leave one of them out".into());
    }
    if let Some(own) = profile.arch_map.iter().find(|one| one.architecture == KIND) {
        let subs = own.sub_architectures.iter().flatten();
        let all: Vec<&String> = std::iter::once(&own.architecture).chain(subs).collect();
        whole.insert("architectures".into(), json!(all));
    }
    let mut rules = Vec::new();
    for rule in profile.syscalls.into_iter().flatten() {
        rules.extend(rule.read(capabilities, kernel)?);
    }
    whole.insert("syscalls".into(), rules.into());
    Ok(whole.into())
}

impl Rule {
    /// The rule without its conditions. `None` if they do not hold.
    fn read(self, capabilities: Capabilities, kernel: (u32, u32)) -> Result<Option<Value>, String> {
        let names = match (self.names, self.name) {
            (Some(names), None) if !names.is_empty() => names,
            (None, Some(name)) => vec![name],
            _ => return Err("a rule needs either name or names".into()),
        };
        let counts = |condition: &Condition| condition.holds(capabilities, kernel);
        if self.includes.is_some_and(|includes| !counts(&includes)) {
            return Ok(None);
        }
        if self
            .excludes
            .is_some_and(|excludes| excludes.holds_in_part(capabilities, kernel))
        {
            return Ok(None);
        }
        let mut rule = self.rest;
        rule.remove("comment");
        rule.insert("names".into(), json!(names));
        if rule.get("args").is_some_and(Value::is_null) {
            rule.remove("args");
        }
        Ok(Some(rule.into()))
    }
}

impl Condition {
    fn has(capabilities: Capabilities, name: &str) -> bool {
        capabilities.contains(name.strip_prefix("CAP_").unwrap_or(name))
    }

    /// Whether all parts of the condition hold.
    fn holds(&self, capabilities: Capabilities, kernel: (u32, u32)) -> bool {
        let arches = self.arches.as_deref().unwrap_or_default();
        let mut caps = self.caps.iter().flatten();
        (arches.is_empty() || arches.iter().any(|one| one == MACHINE))
            && caps.all(|name| Self::has(capabilities, name))
            && self
                .min_kernel
                .as_deref()
                .is_none_or(|least| kernel >= version(least))
    }

    /// Whether any part of the condition holds.
    fn holds_in_part(&self, capabilities: Capabilities, kernel: (u32, u32)) -> bool {
        let mut arches = self.arches.iter().flatten();
        let mut caps = self.caps.iter().flatten();
        arches.any(|one| one == MACHINE)
            || caps.any(|name| Self::has(capabilities, name))
            || self
                .min_kernel
                .as_deref()
                .is_some_and(|least| kernel >= version(least))
    }
}

/// The first two numbers of a kernel's version.
pub(crate) fn version(text: &str) -> (u32, u32) {
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|word| word.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
