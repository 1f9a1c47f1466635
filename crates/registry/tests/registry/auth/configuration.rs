//! The part `[auth]` of the configuration: what is wrong is said with its line, or with what to do.

use proptest::prelude::*;
use xebec_access::settings::AuthSettings;

fn error(text: &str) -> String {
    match toml::from_str::<AuthSettings>(text) {
        Ok(settings) => settings.problems().join("\n"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn mistakes_are_told() {
    for (text, expected) in [
        (
            "[[rule]]\nrepositories = 'Team/*'\nwho = ['anyone']\nactions = ['pull']",
            "line 2",
        ),
        (
            "[[rule]]\nrepositories = 'Team/*'\nwho = ['anyone']\nactions = ['pull']",
            "fits no name",
        ),
        (
            "[[rule]]\nrepositories = 'a'\nwho = ['everyone']\nactions = ['pull']",
            "line 3",
        ),
        (
            "[[rule]]\nrepositories = 'a'\nwho = ['anyone']\nactions = ['read']",
            "\"read\" is no action",
        ),
        (
            "[[rule]]\nrepositories = 'a'\nwho = []\nactions = ['pull']",
            "names nobody",
        ),
        (
            "[[rule]]\nrepositories = 'a'\nwho = ['group:g']\nactions = ['pull']",
            "nobody is in the group \"g\"",
        ),
        (
            "administrators = ['group:g']\nhtpasswd = 'x'",
            "nobody is in the group \"g\"",
        ),
        ("htpaswd = 'x'", "htpaswd"),
        ("", "nobody could do anything"),
        (
            "htpasswd = 'x'\npublic_url = 'registry.example'",
            "is not like https://",
        ),
        (
            "htpasswd = 'x'\nanonymous_pull = true\n[[rule]]\nrepositories = 'a'\nwho = ['anyone']\nactions = []",
            "does not count beside rules",
        ),
        ("htpasswd = 'x'\n[groups]\ng = ['a b']", "names the user \"a b\""),
        (
            "[token_service]\nrealm = 'r'\nservice = 's'\nissuer = 'i'\nkeys = {}",
            "give keys.file or keys.url",
        ),
        (
            "[token_service]\nrealm = 'r'\nservice = 's'\nissuer = 'i'\nkeys = { url = 'http://x.example/' }",
            "http:// is for this host",
        ),
        (
            "[token_service]\nrealm = 'r'\nservice = 's'\nissuer = 'i'\nkeys = { file = 'a', url = 'https://b/' }",
            "both given",
        ),
        (
            "[token_service]\nrealm = 'r'\nservice = 's'\nissuer = 'i'\nleeway = '10m'\nkeys = { file = 'a' }",
            "set the clocks",
        ),
        (
            "[[oidc]]\nname = 'a'\nissuer = 'https://i/'\naudiences = []\ngrant = []",
            "name the audiences",
        ),
        (
            "[[oidc]]\nname = 'a'\nissuer = 'http://i/'\naudiences = ['r']\ngrant = []",
            "keys cannot be had",
        ),
        (
            "[[oidc]]\nname = 'a:b'\nissuer = 'https://i/'\naudiences = ['r']\ngrant = []",
            "a short word",
        ),
        (
            "[[oidc]]\nname = 'a'\nissuer = 'https://i/'\naudiences = ['r']\n[[oidc.grant]]\nclaims = {}\ngroups = ['g']",
            "without claims",
        ),
        ("[token]\nlifetime = '5 minutes'", "is not a length of time"),
    ] {
        let told = error(text);
        assert!(told.contains(expected), "{text:?} tells {told:?}");
    }
}

#[test]
fn a_sound_configuration_has_no_problems() {
    let text = r#"
        htpasswd = "/etc/xebec-registry/htpasswd"
        challenge = "basic"
        catalog = ["group:operators"]
        administrators = ["user:root"]
        [groups]
        operators = ["anna"]
        [[rule]]
        repositories = "**"
        who = ["anyone"]
        actions = ["pull"]
        [[oidc]]
        name = "gitlab"
        issuer = "https://gitlab.example"
        audiences = ["registry.example"]
        [[oidc.grant]]
        claims = { project_path = ["team/*"], ref_protected = "true" }
        groups = ["builders"]
        [[rule]]
        repositories = "team/**"
        who = ["group:builders"]
        actions = ["push"]
    "#;
    assert_eq!(error(text), "");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}", key in "(htpasswd|rule|oidc|token|groups|catalog)", value in "\\PC{0,40}") {
        let _ = error(&text);
        let _ = error(&format!("{key} = {value}"));
        let _ = error(&format!("[{key}]\n{value}"));
    }
}
