//! The file `trust.toml`: its shape, its limits, and its text for a fresh installation.
//!
//! Parsing here is pure and strict: an unknown field is an error with its line, because a misspelt rule that
//! is silently ignored is a rule that the user relies on.

use serde::Deserialize;

/// Largest `trust.toml` that is read, in bytes; hundreds of rules fit in a tenth of it.
pub const MAX_TRUST_FILE: usize = 1024 * 1024;
/// Most keys. Each may be tried on each signature, at about 0.2 ms, before a container starts.
const MAX_KEYS: usize = 64;
/// Most rules for registries.
const MAX_REGISTRIES: usize = 4096;

/// The contents of `trust.toml`, not yet with the keys that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrustFile {
    /// The rule for registries that no entry covers.
    #[serde(default)]
    pub registry_root: RegistryRoot,
    /// Trusted keys.
    #[serde(default, rename = "key")]
    pub keys: Vec<KeyEntry>,
    /// Rules per registry or repository.
    #[serde(default, rename = "registry")]
    pub registries: Vec<RegistryEntry>,
}

/// One `[[key]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KeyEntry {
    /// The key's name in messages.
    pub name: String,
    /// A PEM file with an ECDSA P-256 public key; relative to the directory of `trust.toml`.
    pub file: String,
    /// Patterns over `host/repository` for which the key counts.
    pub repositories: Vec<String>,
    /// Which repository the signature must have been made for.
    #[serde(default)]
    pub identity: Identity,
}

/// Which repository a signature must have been made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// The one that the image is pulled from.
    #[default]
    SameRepository,
    /// Any: for images that are copied together with their signatures.
    Any,
}

/// One `[[registry]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RegistryEntry {
    /// A host, or a host and a leading part of a repository's name; the longest that fits decides.
    pub prefix: String,
    /// The rule.
    pub registry_root: RegistryRoot,
}

/// Whether the root *registry* suffices. There is no value that would let it suffice for a digest: then a
/// digest would promise less than it says, and signing, binding and proving are each one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum RegistryRoot {
    /// For images named by tag.
    #[default]
    Tag,
    /// For none.
    Never,
}

impl TryFrom<String> for RegistryRoot {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "tag" => Ok(Self::Tag),
            "never" => Ok(Self::Never),
            "digest" | "always" => Err(format!(
                "registry-root = {text:?} does not exist: an image named by digest is never read through an index \
                 that only the registry vouches for; prove, sign or bind the index instead"
            )),
            _ => Err(format!("registry-root is \"tag\" or \"never\", not {text:?}")),
        }
    }
}

/// Why a text is no usable `trust.toml`.
#[derive(Debug, thiserror::Error)]
pub enum TrustFileError {
    /// Larger than [`MAX_TRUST_FILE`].
    #[error("{0} bytes are more than the {MAX_TRUST_FILE} allowed")]
    TooLarge(usize),
    /// Not UTF-8.
    #[error("the text is not UTF-8")]
    Utf8,
    /// Not TOML, or not of the expected shape; the message shows the line.
    #[error("{0}")]
    Syntax(#[from] Box<toml::de::Error>),
    /// More entries than allowed.
    #[error("more than {limit} [[{table}]] entries")]
    TooMany {
        /// The name of the table.
        table: &'static str,
        /// How many are allowed.
        limit: usize,
    },
}

impl TrustFile {
    /// Reads the text of a `trust.toml`.
    ///
    /// # Errors
    /// Unknown fields, wrong values and anything beyond the limits are errors.
    pub fn parse(bytes: &[u8]) -> Result<Self, TrustFileError> {
        if bytes.len() > MAX_TRUST_FILE {
            return Err(TrustFileError::TooLarge(bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| TrustFileError::Utf8)?;
        let file: Self = toml::from_str(text).map_err(Box::new)?;
        for (table, count, limit) in [
            ("key", file.keys.len(), MAX_KEYS),
            ("registry", file.registries.len(), MAX_REGISTRIES),
        ] {
            if count > limit {
                return Err(TrustFileError::TooMany { table, limit });
            }
        }
        Ok(file)
    }
}

/// The text of a `trust.toml` that changes nothing and explains everything.
pub(super) const TEMPLATE: &str = r#"# Which indexes Xebec may use. See docs/trust.md.
#
# An index tells Xebec what is where inside a layer. The image's digest does not cover it, so something else must
# vouch for it:
#
#   bound     the image's name covers the index too (`xebec index --bind`, eStargz, zstd:chunked)
#   signed    a key below signed it (`xebec index --sign KEY`)
#   proven    this host read the whole layer and compared (`xebec check --prove`, or in the background)
#   registry  it was found beside the image in the registry, nothing more
#
# The first three suffice for every image. "registry" never suffices for an image named by digest; for an image
# named by tag this file decides.

# For registries that no [[registry]] below covers: "tag" (enough for an image named by tag) or "never".
registry-root = "tag"

# A rule for one registry, or for one part of it. The longest prefix that fits decides.
# Say "never" where tags cannot be moved, so that a tag means as much as a digest, and for mirrors that others run.
#
# [[registry]]
# prefix = "mirror.example.com"
# registry-root = "never"

# A key whose signatures count. Make one with `cosign generate-key-pair`, or with
#   openssl ecparam -name prime256v1 -genkey -noout -out xebec.key && openssl ec -in xebec.key -pubout -out xebec.pub
#
# [[key]]
# name = "ci"                                       # what messages call it
# file = "ci.pub"                                   # PEM, ECDSA P-256; relative to this file
# repositories = ["registry.example.com/team/**"]   # "*" within one component, "**" across components
# identity = "same-repository"                      # or "any": count signatures made for another repository too
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        TrustFile::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn template_is_valid_and_changes_nothing() {
        assert_eq!(
            TrustFile::parse(TEMPLATE.as_bytes()).unwrap(),
            TrustFile::default()
        );
        assert_eq!(crate::Policy::template(), TEMPLATE);
        // The entries that the template shows in comments must be valid, too.
        let shown: String = TEMPLATE
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.starts_with("[[") || line.contains(" = \"") || line.contains(" = ["))
            .map(|line| format!("{line}\n"))
            .collect();
        let file = TrustFile::parse(shown.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{shown}"));
        assert_eq!((file.keys.len(), file.registries.len()), (1, 1));
        assert_eq!(file.registries[0].registry_root, RegistryRoot::Never);
        assert_eq!(file.keys[0].identity, Identity::SameRepository);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let text =
            error("registry-root = \"tag\"\n\n[[registry]]\nprefix = \"a\"\nregistry-rot = \"never\"\n");
        assert!(text.contains("line 5") && text.contains("registry-rot"), "{text}");
        let text = error("[[registry]]\nprefix = \"a\"\nregistry-root = \"digest\"\n");
        assert!(
            text.contains("line 3") && text.contains("never read through"),
            "{text}"
        );
        let text = error("registry-root = \"Never\"\n");
        assert!(text.contains("\"tag\" or \"never\""), "{text}");
        let text = error("[[key]]\nname = \"ci\"\nfile = \"ci.pub\"\n");
        assert!(text.contains("repositories"), "{text}");
        assert!(error("keys = 1").contains("line 1"));
    }

    #[test]
    fn limits_hold() {
        let many = "[[registry]]\nprefix = \"a\"\nregistry-root = \"tag\"\n".repeat(MAX_REGISTRIES + 1);
        assert!(error(&many).contains("4096"));
        assert!(matches!(
            TrustFile::parse(&vec![b'#'; MAX_TRUST_FILE + 1]),
            Err(TrustFileError::TooLarge(_))
        ));
        assert!(matches!(TrustFile::parse(b"\xff"), Err(TrustFileError::Utf8)));
    }
}
