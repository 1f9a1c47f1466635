//! The user's policy: `trust.toml` with its keys, and the judgement whether an index may be used.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use xebec_kernel::file::read_limited;

use super::file::{Identity, MAX_TRUST_FILE, RegistryRoot, TEMPLATE, TrustFile, TrustFileError};
use super::key::{KeyId, MAX_KEY_FILE, PublicKey};
use super::key_error::KeyError;
use super::refusal::{Details, Refusal, Rule, Subject};
use super::roots::{Roots, Signing};
use super::scope::{Pattern, PatternError, RepositoryName, parse_prefix};
use super::{Naming, Root};

/// A policy as it is applied: names normalized, keys read.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    default_rule: RegistryRoot,
    /// Prefixes, normalized, each once.
    registries: Vec<(String, RegistryRoot)>,
    keys: Vec<TrustedKey>,
}

/// A key and the repositories for which it counts.
#[derive(Clone, Debug)]
pub(super) struct TrustedKey {
    pub(super) name: String,
    pub(super) public: PublicKey,
    repositories: Vec<Pattern>,
    identity: Identity,
}

impl TrustedKey {
    /// Whether signatures of this key count for images in `name`.
    pub(super) fn is_valid_for(&self, name: &RepositoryName) -> bool {
        self.repositories.iter().any(|pattern| pattern.covers(name))
    }

    /// Whether a signature made for `identity` counts for images in `name`.
    pub(super) fn accepts_identity(&self, identity: &str, name: &RepositoryName) -> bool {
        match self.identity {
            Identity::Any => true,
            Identity::SameRepository => identity == name.as_str(),
        }
    }
}

/// Why there is no policy. Nothing may be used then: a guess at the user's wishes could admit an index that the user
/// forbids.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Every user could change a file, and so the policy.
    #[error("{path} may be changed by every user, so nothing in it can be relied on; run: chmod o-w {path}",
            path = path.display())]
    WritableByAll {
        /// The file.
        path: PathBuf,
    },
    /// A file that is too large or is no file.
    #[error("{path} is not a file of at most {limit} bytes", path = path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: usize,
    },
    /// The text is not usable.
    #[error("{path}: {source}", path = path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TrustFileError,
    },
    /// A key file is not usable.
    #[error("key {name:?} in trust.toml: {path}: {source}", path = path.display())]
    Key {
        /// The key's name.
        name: String,
        /// Its file.
        path: PathBuf,
        /// Why.
        source: KeyError,
    },
    /// A pattern or prefix is not usable.
    #[error("trust.toml: {place}: {source}")]
    Pattern {
        /// Which entry.
        place: String,
        /// Why.
        source: PatternError,
    },
    /// Something that must be there once is missing or there twice.
    #[error("trust.toml: {0}")]
    Entry(String),
}

impl Policy {
    /// The policy in the file `path`; the default one (*registry* suffices for tags, no keys) if there is no
    /// file.
    ///
    /// # Errors
    /// Anything wrong in the file or in a key that it names; see [`PolicyError`].
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let Some(file) = Self::read_file(path)? else {
            return Ok(Self::default());
        };
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::build(&file, |name| {
            let path = directory.join(name);
            let bytes = read_protected(&path, MAX_KEY_FILE)?;
            Ok((path, bytes))
        })
    }

    /// The keys that the policy in the file `path` names, and the files that they are read from; none if there is no file.
    ///
    /// # Errors
    /// When the file cannot be read or has mistakes.
    pub fn key_files(path: &Path) -> Result<Vec<(String, PathBuf)>, PolicyError> {
        let Some(file) = Self::read_file(path)? else {
            return Ok(Vec::new());
        };
        let directory = path.parent().unwrap_or(Path::new(""));
        let keys = file.keys.into_iter();
        Ok(keys.map(|key| (key.name, directory.join(key.file))).collect())
    }

    fn read_file(path: &Path) -> Result<Option<TrustFile>, PolicyError> {
        let bytes = match read_protected(path, MAX_TRUST_FILE) {
            Err(PolicyError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            other => other?,
        };
        let file = TrustFile::parse(&bytes).map_err(|source| PolicyError::Text {
            path: path.to_owned(),
            source,
        })?;
        Ok(Some(file))
    }

    /// The policy that `file` describes, with key files read by `read_key`, which gets the `file` of an entry
    /// and gives back the path that it read and the contents.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn build(
        file: &TrustFile,
        mut read_key: impl FnMut(&str) -> Result<(PathBuf, Vec<u8>), PolicyError>,
    ) -> Result<Self, PolicyError> {
        let mut policy = Self {
            default_rule: file.registry_root,
            ..Self::default()
        };
        for entry in &file.registries {
            let prefix = parse_prefix(&entry.prefix).map_err(|source| PolicyError::Pattern {
                place: "[[registry]] prefix".to_owned(),
                source,
            })?;
            if policy.registries.iter().any(|(other, _)| *other == prefix) {
                return Err(PolicyError::Entry(format!(
                    "two [[registry]] entries for {prefix:?}; keep one"
                )));
            }
            policy.registries.push((prefix, entry.registry_root));
        }
        for entry in &file.keys {
            if entry.name.is_empty() || entry.name.chars().any(char::is_control) {
                return Err(PolicyError::Entry(format!(
                    "a [[key]] needs a printable name, not {:?}",
                    entry.name
                )));
            }
            let (path, pem) = read_key(&entry.file)?;
            let public = PublicKey::from_pem(&pem).map_err(|source| PolicyError::Key {
                name: entry.name.clone(),
                path,
                source,
            })?;
            policy.add_key(&entry.name, public, &entry.repositories, entry.identity)?;
        }
        Ok(policy)
    }

    fn add_key(
        &mut self,
        name: &str,
        public: PublicKey,
        repositories: &[String],
        identity: Identity,
    ) -> Result<(), PolicyError> {
        if let Some(other) = self
            .keys
            .iter()
            .find(|k| k.name == name || k.public.id() == public.id())
        {
            return Err(PolicyError::Entry(format!(
                "the [[key]] entries {:?} and {name:?} have the same name or the same key; keep one, with all its \
                 repositories",
                other.name
            )));
        }
        if repositories.is_empty() {
            return Err(PolicyError::Entry(format!(
                "the [[key]] {name:?} counts for no repository; add patterns, [\"**\"] for all"
            )));
        }
        let repositories = repositories
            .iter()
            .map(|text| Pattern::parse(text))
            .collect::<Result<_, _>>();
        let repositories = repositories.map_err(|source| PolicyError::Pattern {
            place: format!("[[key]] {name:?} repositories"),
            source,
        })?;
        self.keys.push(TrustedKey {
            name: name.to_owned(),
            public,
            repositories,
            identity,
        });
        Ok(())
    }

    /// The text of a `trust.toml` that changes nothing and explains all there is.
    pub const fn template() -> &'static str {
        TEMPLATE
    }

    /// Judges an index for an image in `repository`: the strongest root that it rests on.
    ///
    /// # Errors
    /// No root suffices, or the index was disproved: [`Refusal`] says which root is missing and how to get
    /// it.
    pub fn admits(
        &self,
        repository: &RepositoryName,
        naming: Naming,
        roots: &Roots,
    ) -> Result<Root, Refusal> {
        let rule = self.rule_for(repository);
        if roots.why_disproved().is_none() {
            if roots.is_bound() {
                return Ok(Root::Bound);
            }
            if roots.signings().any(|signing| self.counts(signing, repository)) {
                return Ok(Root::Signed);
            }
            if roots.is_proven() {
                return Ok(Root::Proven);
            }
            if roots.is_in_registry() && naming == Naming::Tag && rule.registry_root == RegistryRoot::Tag {
                return Ok(Root::Registry);
            }
        }
        Err(self.refusal(repository, naming, rule, roots))
    }

    /// Of several indexes of one layer, the admitted one with the strongest root; of equals, the first.
    ///
    /// The first admitted one would not do: a user who attaches an index in the registry could displace one
    /// that is bound, signed or proven, for images named by tag.
    ///
    /// # Errors
    /// None is admitted: a refusal, an alarm before others; `None` if there are no indexes.
    pub fn choose<K>(
        &self,
        repository: &RepositoryName,
        naming: Naming,
        indexes: impl IntoIterator<Item = (K, Roots)>,
    ) -> Result<(K, Root), Option<Refusal>> {
        let mut best: Option<(K, Root)> = None;
        let mut refused: Option<Refusal> = None;
        for (index, roots) in indexes {
            match self.admits(repository, naming, &roots) {
                Ok(root) if best.as_ref().is_none_or(|(_, other)| root > *other) => {
                    best = Some((index, root))
                }
                Ok(_) => {}
                Err(refusal) if refused.is_none() || refusal.is_alarm() => refused = Some(refusal),
                Err(_) => {}
            }
        }
        best.ok_or(refused)
    }

    /// Judges a chain of layers that is shared as a whole: it rests on its weakest member.
    ///
    /// # Errors
    /// The refusal of the first member that may not be used; an empty chain is admitted as [`Root::Bound`],
    /// for it claims nothing that needs trust.
    pub fn admits_chain(
        &self,
        repository: &RepositoryName,
        naming: Naming,
        members: &[Roots],
    ) -> Result<Root, Refusal> {
        let members = members.iter().map(|roots| self.admits(repository, naming, roots));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        Ok(Root::weakest(members).unwrap_or(Root::Bound))
    }

    /// The name in `trust.toml` of the key with this identity.
    pub fn key_name(&self, key: KeyId) -> Option<&str> {
        self.keys
            .iter()
            .find(|trusted| trusted.public.id() == key)
            .map(|trusted| trusted.name.as_str())
    }

    /// The keys whose signatures count for images in `name`.
    pub(super) fn keys_for(&self, name: &RepositoryName) -> impl Iterator<Item = &TrustedKey> {
        self.keys.iter().filter(move |key| key.is_valid_for(name))
    }

    /// Whether any key counts for images in a repository, so that looking for signatures is worth a request.
    pub fn has_keys_for(&self, repository: &RepositoryName) -> bool {
        self.keys_for(repository).next().is_some()
    }

    fn counts(&self, signing: &Signing, name: &RepositoryName) -> bool {
        self.keys_for(name)
            .any(|key| key.public.id() == signing.key && key.accepts_identity(&signing.identity, name))
    }

    fn rule_for(&self, name: &RepositoryName) -> Rule {
        let fitting = self.registries.iter().filter(|(prefix, _)| name.is_under(prefix));
        match fitting.max_by_key(|(prefix, _)| prefix.len()) {
            Some((prefix, rule)) => Rule {
                registry_root: *rule,
                prefix: Some(prefix.clone()),
            },
            None => Rule {
                registry_root: self.default_rule,
                prefix: None,
            },
        }
    }

    fn refusal(&self, name: &RepositoryName, naming: Naming, rule: Rule, roots: &Roots) -> Refusal {
        let ignored = roots.signings().map(|signing| match self.key_name(signing.key) {
            None => format!("the key {} is not in trust.toml", signing.key),
            Some(key) if !self.keys_for(name).any(|k| k.public.id() == signing.key) => {
                format!("the key {key:?} is not valid for {name} in trust.toml")
            }
            Some(key) => format!(
                "the key {key:?} signed for {}, not for {name}, and has identity = \"same-repository\"",
                signing.identity
            ),
        });
        Refusal(Box::new(Details {
            subject: Subject::Index,
            ignored_signatures: ignored.collect(),
            trusted_keys: self.keys_for(name).map(|key| key.name.clone()).collect(),
            in_registry: roots.is_in_registry(),
            disproved: roots.why_disproved().map(str::to_owned),
            image: name.to_string(),
            naming,
            rule,
        }))
    }
}

/// Reads a file of at most `limit` bytes that not everybody may write to.
fn read_protected(path: &Path, limit: usize) -> Result<Vec<u8>, PolicyError> {
    let read_error = |source| PolicyError::Read {
        path: path.to_owned(),
        source,
    };
    // Asked before opening, because opening a FIFO would wait for ever.
    let metadata = fs::metadata(path).map_err(read_error)?;
    if !metadata.is_file() {
        return Err(PolicyError::NotAFile {
            path: path.to_owned(),
            limit,
        });
    }
    if metadata.mode() & 0o002 != 0 {
        return Err(PolicyError::WritableByAll {
            path: path.to_owned(),
        });
    }
    read_limited(path, limit as u64).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => PolicyError::NotAFile {
            path: path.to_owned(),
            limit,
        },
        _ => read_error(error),
    })
}
