//! `[storage]`: where things are kept, and from where clients read them.

use std::time::Duration;

use hyper::Uri;
use toml::Spanned;
use xebec_store::{DatabaseConfig, ObjectsConfig, PostgresTls, StoreConfig, TlsWanted, database_protection};

use super::file;
use super::problem::{Environment, Problem};

/// An address that lasts less long may be over before a client with a slow connection, or another clock, comes to it.
const SHORTEST_REDIRECT: Duration = Duration::from_secs(60);
/// S3 takes no signature that counts longer.
const LONGEST_REDIRECT: Duration = Duration::from_secs(7 * 86_400);

/// Where things are kept.
pub(super) fn store(
    storage: file::Storage,
    max_manifest: u64,
    environment: Environment<'_>,
) -> Result<StoreConfig, Problem> {
    let redirect = redirect(&storage)?;
    let database = match storage.postgres {
        None => DatabaseConfig::Embedded,
        Some(postgres) => database(postgres, environment)?,
    };
    let objects = match storage.s3 {
        None => ObjectsConfig::Directory,
        Some(s3) => bucket(s3, redirect.is_some(), environment)?,
    };
    Ok(StoreConfig {
        database,
        objects,
        upload_timeout: storage.upload_timeout.0,
        grace: storage.grace.0,
        max_manifest,
        max_blob: storage.max_blob.0,
        addresses_last: redirect.unwrap_or_default(),
        reserve: storage.reserve.0,
        ..StoreConfig::new(storage.root)
    })
}

/// A bucket, to which clients are sent for blobs or not.
pub(super) fn bucket(
    s3: file::S3,
    redirects: bool,
    environment: Environment<'_>,
) -> Result<ObjectsConfig, Problem> {
    let secret = |name: Option<Spanned<String>>| name.map(|name| secret(&name, environment)).transpose();
    Ok(ObjectsConfig::S3 {
        endpoint: s3.endpoint,
        public_endpoint: s3
            .public_endpoint
            .map(|address| public(&address, redirects))
            .transpose()?,
        bucket: s3.bucket,
        prefix: s3.prefix.trim_matches('/').to_owned(),
        region: s3.region,
        access_key: secret(s3.access_key_env)?,
        secret_key: secret(s3.secret_key_env)?,
    })
}

fn database(postgres: file::Postgres, environment: Environment<'_>) -> Result<DatabaseConfig, Problem> {
    let url = match (postgres.url_env, postgres.url) {
        (Some(name), _) => Spanned::new(name.span(), secret(&name, environment)?),
        (None, Some(url)) => url,
        (None, None) => {
            return Err(Problem {
                at: None,
                text: "[storage.postgres] has neither url nor url_env; name the variable that has the address and password".to_owned(),
            });
        }
    };
    let at = postgres.tls.as_ref().map_or_else(|| url.span(), Spanned::span);
    let wanted = postgres.tls.map(|tls| match tls.into_inner() {
        file::PostgresTls::Verify => TlsWanted::Verify,
        file::PostgresTls::Off => TlsWanted::Off,
    });
    let config = DatabaseConfig::Postgres {
        url: url.into_inner(),
        tls: PostgresTls {
            wanted,
            ca_file: postgres.ca_file,
        },
    };
    match database_protection(&config) {
        Ok(_) => Ok(config),
        Err(error) => Err(Problem {
            at: Some(at),
            text: format!("PostgreSQL cannot be reached so: {error}"),
        }),
    }
}

/// How long the addresses last by which clients read blobs from the bucket; nothing if they read them here.
pub(super) fn redirect(storage: &file::Storage) -> Result<Option<Duration>, Problem> {
    let Some(wanted) = &storage.redirect else {
        return Ok(None);
    };
    let lasting = wanted.get_ref().0;
    let problem = match () {
        () if lasting.is_zero() => return Ok(None),
        () if storage.s3.is_none() => {
            "clients can be sent to a bucket only, and blobs are in files here; leave redirect out, or name a bucket in [storage.s3]"
        }
        () if (SHORTEST_REDIRECT..=LONGEST_REDIRECT).contains(&lasting) => return Ok(Some(lasting)),
        () if lasting < SHORTEST_REDIRECT => {
            "an address must last long enough to be asked for; write 1m at least, or \"0s\" for no redirects"
        }
        () => "S3 lets a signed address last for 7d at most; write that or less, as \"15m\"",
    };
    Err(Problem {
        at: Some(wanted.span()),
        text: problem.to_owned(),
    })
}

/// The address of the bucket's server that clients are sent to, if they are sent at all.
fn public(address: &Spanned<String>, redirects: bool) -> Result<String, Problem> {
    let problem = match () {
        () if !is_server(address.get_ref()) => {
            "it is where clients reach the server of the bucket: http://HOST or https://HOST, with a port if need be, and nothing after it"
        }
        () if !redirects => {
            "it is where clients are sent for blobs, and they are not sent anywhere; set redirect in [storage], as \"15m\", or leave it out"
        }
        () => return Ok(address.get_ref().trim_end_matches('/').to_owned()),
    };
    Err(Problem {
        at: Some(address.span()),
        text: format!("public_endpoint {:?}: {problem}", address.get_ref()),
    })
}

fn is_server(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else {
        return false;
    };
    let Some(authority) = uri.authority() else {
        return false;
    };
    // No user, and no port that is none.
    let host = match authority.port_u16() {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    };
    let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
    let is_alone = uri.path() == "/" && uri.query().is_none() && !address.contains('#');
    is_known && is_alone && !authority.host().is_empty() && authority.as_str() == host
}

/// The value of the variable that a key names.
fn secret(name: &Spanned<String>, environment: Environment<'_>) -> Result<String, Problem> {
    let value = environment(name.get_ref()).filter(|value| !value.is_empty());
    value.ok_or_else(|| Problem {
        at: Some(name.span()),
        text: format!(
            "the environment has no variable {}; set it to the value that this key is for",
            name.get_ref()
        ),
    })
}
