//! Things that others give: upstreams, and the keys of those who issue tokens.

use xebec_access::jwks::{KeySource, Location};
use xebec_access::outgoing::{self, Redirects};
use xebec_access::settings::KeysSettings;
use xebec_oci::Client;
use xebec_registry_server::config::Config;
use xebec_upstream::UpstreamSettings;

use super::found::Found;

/// Whether each upstream answers, and takes the login that it has here.
pub(super) async fn upstreams(config: &Config) -> Vec<Found> {
    let mut found = Vec::new();
    for upstream in &config.upstreams {
        let what = format!("upstream {}", upstream.registry);
        found.push(match ask(upstream).await {
            Ok(said) => Found::well(what, said),
            Err(cause) => Found::broken(
                what,
                format!(
                    "{cause}; until it works, only what is here already of {:?} is answered",
                    upstream.prefix
                ),
            ),
        });
    }
    found
}

async fn ask(upstream: &UpstreamSettings) -> Result<&'static str, String> {
    let environment = |name: &str| std::env::var(name).ok();
    let settings = upstream.client(environment).map_err(|error| error.to_string())?;
    let has_login = settings.login.is_some();
    let client = Client::new(settings).map_err(|error| error.to_string())?;
    let asks = client
        .check_login(&upstream.registry)
        .await
        .map_err(|error| error.to_string())?;
    Ok(match (has_login, asks) {
        (true, true) => "it answers, and takes the login",
        (true, false) => "it answers, and asks for no login",
        (false, _) => "it answers",
    })
}

/// Whether the keys of each issuer of tokens can be fetched.
pub(super) async fn keys(config: &Config) -> Vec<Found> {
    let Some(auth) = &config.auth else {
        return Vec::new();
    };
    let service = auth
        .token_service
        .iter()
        .map(|service| (&service.issuer, &service.keys));
    let issuers = service.chain(auth.oidc.iter().map(|oidc| (&oidc.issuer, &oidc.keys)));
    let mut found = Vec::new();
    for (issuer, settings) in issuers {
        let what = format!("keys of {issuer}");
        found.push(match fetch(issuer, settings).await {
            Ok(()) => Found::well(what, "they can be had"),
            Err(cause) => Found::broken(
                what,
                format!("{cause}; until it works, tokens of this issuer are refused"),
            ),
        });
    }
    found
}

async fn fetch(issuer: &str, settings: &KeysSettings) -> Result<(), String> {
    let location = match (&settings.file, &settings.url) {
        (Some(file), _) => Location::File(file.clone()),
        (None, Some(url)) => Location::Address(outgoing::address(url).map_err(|error| error.to_string())?),
        (None, None) => Location::Issuer(issuer.to_owned()),
    };
    let client = outgoing::client(settings.ca_file.as_deref(), Redirects::SameHost)
        .map_err(|error| error.to_string())?;
    let source = KeySource::new(location, client, settings.token_file.clone(), settings.keep.0);
    source
        .keys(None)
        .await
        .map(|_| ())
        .map_err(|error| error.to_string())
}
