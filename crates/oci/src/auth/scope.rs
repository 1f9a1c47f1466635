//! Names the rights that a request needs, as token servers are asked for them.

/// The rights that a request needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// The repository, or empty for the registry as a whole.
    pub(crate) repository: String,
    /// Whether it writes.
    pub(crate) push: bool,
    /// Another repository of the same registry that it reads.
    pub(crate) mount_from: Option<String>,
}

/// Stands for the list of all repositories where a repository's name stands.
const CATALOG: &str = "*";

impl Scope {
    pub(crate) fn pull(repository: &str) -> Self {
        Self {
            repository: repository.to_owned(),
            push: false,
            mount_from: None,
        }
    }

    pub(crate) fn push(repository: &str) -> Self {
        Self {
            repository: repository.to_owned(),
            push: true,
            mount_from: None,
        }
    }

    /// The list of all repositories. No repository has this name.
    pub(crate) fn catalog() -> Self {
        Self::pull(CATALOG)
    }

    /// As distribution's token specification writes them.
    pub(super) fn texts(&self) -> Vec<String> {
        if self.repository == CATALOG {
            return vec!["registry:catalog:*".to_owned()];
        }
        let actions = if self.push { "pull,push" } else { "pull" };
        let own = (!self.repository.is_empty()).then(|| format!("repository:{}:{actions}", self.repository));
        let other = self
            .mount_from
            .as_ref()
            .map(|from| format!("repository:{from}:pull"));
        own.into_iter().chain(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        assert_eq!(Scope::pull("a/b").texts(), ["repository:a/b:pull"]);
        let push = Scope {
            mount_from: Some("c".to_owned()),
            ..Scope::push("a/b")
        };
        assert_eq!(push.texts(), ["repository:a/b:pull,push", "repository:c:pull"]);
        assert!(Scope::pull("").texts().is_empty());
    }
}
