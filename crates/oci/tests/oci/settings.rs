//! The registry settings, as a file has them.

use std::time::Duration;

use xebec_oci::config::{SETTINGS, is_loopback};
use xebec_oci::{Budget, ClientConfig, RegistrySettings, parse_duration};

#[test]
fn reads_toml() {
    let config: ClientConfig = toml::from_str(
        r#"
        plain_http = ["registry.lan:5000"]
        ca_files = ["/etc/xebec/ca.pem"]
        docker_config = "/root/.docker"
        [budget]
        attempts = 3
        base_delay = "50ms"
        total_deadline = "5m"
        [[mirrors."docker.io"]]
        url = "https://mirror.lan/hub"
        resolve_tags = true
        [registries."Registry.lan:5000"]
        tell_held = true
        [registries."index.docker.io"]
        native = false
        "#,
    )
    .unwrap();
    assert_eq!(config.budget.attempts, 3);
    assert_eq!(config.budget.base_delay, Duration::from_millis(50));
    assert_eq!(config.budget.total_deadline, Duration::from_secs(300));
    assert_eq!(config.budget.connect_timeout, Budget::default().connect_timeout);
    assert!(config.mirrors["docker.io"][0].resolve_tags);
    let of = |name: &str| {
        let settings = config.of_registry(name);
        (settings.native, settings.tell_held)
    };
    assert_eq!(of("registry.lan:5000"), (true, true));
    assert_eq!(of("docker.io"), (false, false));
    assert_eq!(of("registry.lan"), (true, false));
    assert_eq!(
        toml::from_str::<ClientConfig>("").unwrap(),
        ClientConfig::default()
    );
    assert!(toml::from_str::<ClientConfig>("plain_htp = []").is_err());
}

#[test]
fn of_several_spellings_of_a_registry_the_strictest_counts() {
    let config: ClientConfig = toml::from_str(
        r#"
        [registries."r.lan"]
        tell_held = true
        [registries."R.lan"]
        native = false
        [registries."R.LAN"]
        tell_held = true
        [registries."index.docker.io"]
        tell_held = true
        [registries."docker.io"]
        tell_held = true
        "#,
    )
    .unwrap();
    let settings = |native, tell_held| RegistrySettings { native, tell_held };
    assert_eq!(config.of_registry("r.lan"), settings(false, false));
    assert_eq!(config.of_registry("docker.io"), settings(true, true));
}

#[test]
fn every_setting_is_listed() {
    let error = toml::from_str::<ClientConfig>("no_such = 1")
        .unwrap_err()
        .to_string();
    let listed = |name: &str| error.contains(&format!("`{name}`"));
    assert!(SETTINGS.iter().all(|name| listed(name)), "{error}");
    // The program's own name is none for people.
    let expected = error.split("expected").nth(1).unwrap().matches('`').count() / 2;
    assert_eq!(expected, SETTINGS.len() + 1, "{error}");
}

#[test]
fn durations() {
    assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
    for text in [
        "",
        "5",
        "s",
        "1.5s",
        "-1s",
        "99999999999999999999s",
        "18446744073709551615h",
        "5 s",
    ] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn loopback() {
    for host in [
        "localhost",
        "localhost:5000",
        "LOCALHOST:5000",
        "127.0.0.1",
        "127.8.8.8:80",
        "[::1]:5000",
        "[::1]",
    ] {
        assert!(is_loopback(host), "{host}");
    }
    for host in [
        "docker.io",
        "localhost.example",
        "10.0.0.1:5000",
        "[2001:db8::1]",
        "[::1",
    ] {
        assert!(!is_loopback(host), "{host}");
    }
}
