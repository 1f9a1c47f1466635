//! Docker Hub, a registry with several names. Logins, mirrors, caches and policies of one of them count for all.

/// The name that stands for all of them in references and policies.
pub const DOCKER_HUB: &str = "docker.io";

/// The one that answers requests.
pub const DOCKER_HUB_SERVER: &str = "registry-1.docker.io";

/// All names, the one for all of them first.
pub const DOCKER_HUB_NAMES: [&str; 4] = [
    DOCKER_HUB,
    // Older references have this name, and docker keeps the login under it.
    "index.docker.io",
    DOCKER_HUB_SERVER,
    "registry.hub.docker.com",
];

/// The name of a registry (`host[:port]`) under which it is known: [`DOCKER_HUB`] for each of Docker Hub's names, in upper or lower
/// case, and any other as it is.
pub fn registry_name(registry: &str) -> &str {
    let mut names = DOCKER_HUB_NAMES.iter();
    match names.any(|name| name.eq_ignore_ascii_case(registry)) {
        true => DOCKER_HUB,
        false => registry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_hub_has_one_name_and_others_keep_theirs() {
        for name in DOCKER_HUB_NAMES {
            assert_eq!(registry_name(name), DOCKER_HUB);
            assert_eq!(registry_name(&name.to_ascii_uppercase()), DOCKER_HUB);
        }
        for other in [
            "",
            "docker.com",
            "docker.io.example",
            "docker.io:5000",
            "Registry.example.com",
        ] {
            assert_eq!(registry_name(other), other);
        }
    }
}
