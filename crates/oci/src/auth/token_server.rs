//! Asks token servers for tokens. A token server is a host that the registry names: a password goes only where TLS protects it, or
//! where the user allows it.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use tokio::time::Instant;

use super::tokens::Token;
use super::{Authenticator, Renewal};
use crate::config::is_loopback;
use crate::credentials::{Credential, basic_header};
use crate::error::Fault;
use crate::transport::authority::authority;
use crate::transport::http::execute;
use crate::transport::reach::{Reach, Way};

/// Largest answer of an authorization server.
const MAX_TOKEN_ANSWER: u64 = 256 << 10;

impl Authenticator {
    /// The request for a token: POST with a refresh token, GET otherwise (distribution's "token" and "oauth").
    pub(super) fn token_request(
        &self,
        renewal: &Renewal,
        realm: &str,
        service: Option<&str>,
        asked_scope: Option<&str>,
        credential: Option<Credential>,
    ) -> Result<reqwest::Request, Fault> {
        let mut url: Url = realm
            .parse()
            .map_err(|_| Fault::Protocol(format!("the registry names {realm:?} as its token server")))?;
        self.check_realm(&url, renewal)?;
        let mut scopes = renewal.scope.texts();
        if scopes.is_empty() {
            scopes.extend(asked_scope.map(str::to_owned));
        }
        if let Some(Credential::IdentityToken(refresh_token)) = credential {
            let joined = scopes.join(" ");
            let form = [
                ("grant_type", "refresh_token"),
                ("service", service.unwrap_or_default()),
                ("client_id", "xebec"),
                ("scope", &joined),
                ("refresh_token", &refresh_token),
            ];
            let mut request = reqwest::Request::new(reqwest::Method::POST, url.clone());
            // The query part of a URL is encoded exactly as a form is.
            let encoded = url
                .query_pairs_mut()
                .clear()
                .extend_pairs(form)
                .finish()
                .query()
                .unwrap_or_default()
                .to_owned();
            *request.body_mut() = Some(encoded.into());
            let form_type = reqwest::header::HeaderValue::from_static("application/x-www-form-urlencoded");
            request.headers_mut().insert(CONTENT_TYPE, form_type);
            return Ok(request);
        }
        {
            let mut query = url.query_pairs_mut();
            query.extend_pairs(service.map(|service| ("service", service)));
            query.extend_pairs(scopes.iter().map(|scope| ("scope", scope)));
        }
        let mut request = reqwest::Request::new(reqwest::Method::GET, url);
        if let Some(Credential::Basic { username, password }) = credential {
            let header = basic_header(&username, &password).parse();
            let header =
                header.map_err(|_| Fault::Credentials("they cannot be sent in a header".to_owned()))?;
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        Ok(request)
    }

    /// A registry with TLS must not make Xebec send a password in the clear; on the same host nobody listens.
    fn check_realm(&self, realm: &Url, renewal: &Renewal) -> Result<(), Fault> {
        let host = authority(realm);
        let is_within_host = renewal.reach == Reach::Host && is_loopback(&host);
        let mut listed = self.0.plain_http.iter();
        let is_listed = listed.any(|listed| listed.eq_ignore_ascii_case(&host));
        match realm.scheme() {
            "https" => Ok(()),
            "http" if renewal.registry_is_plain || is_within_host || is_listed => Ok(()),
            _ => Err(Fault::Protocol(format!(
                "the registry names the token server {host} without TLS; to allow that, list it under plain_http in {}",
                self.0.settings_file.display()
            ))),
        }
    }

    pub(super) async fn fetch_token(
        &self,
        request: reqwest::Request,
        renewal: &Renewal,
    ) -> Result<Token, Fault> {
        let (host, counters) = (authority(request.url()), &renewal.counters);
        let asked = Instant::now();
        let way = match host == renewal.registry {
            true => Way::Named,
            false => Way::Told(renewal.reach),
        };
        let answer = execute(&self.0.pools, request, way, &self.0.budget, counters).await?;
        if !answer.status().is_success() {
            // A refusal of the token server is a matter of credentials, with each of these codes.
            return Err(match answer.into_fault().await {
                Fault::Status { code, message, .. } if matches!(code, 400 | 401 | 403) => Fault::Credentials(
                    format!("token server {host} refused with status {code} {message}"),
                ),
                fault => fault,
            });
        }
        let body = answer.body(MAX_TOKEN_ANSWER).await?;
        counters.token();
        Token::parse(&body, asked).map_err(|reason| Fault::Protocol(format!("token server {host}: {reason}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::authenticator;
    use super::super::{Challenge, Scope};
    use super::*;
    use crate::client::stats::Counters;

    const REGISTRY: &str = "registry.example";

    fn renewal(registry_is_plain: bool, reach: Reach) -> Renewal {
        Renewal {
            registry: REGISTRY.to_owned(),
            registry_is_plain,
            reach,
            challenge: Challenge::Basic,
            scope: Scope::pull("team/app"),
            counters: Counters::default(),
        }
    }

    /// The realm comes from the registry, and the password goes where it leads.
    #[test]
    fn a_password_goes_to_token_servers_with_tls_or_such_as_the_user_allows() {
        use Reach::{Host, Internet, Link, Private};
        let authenticator = authenticator();
        for (realm, is_plain, reach, host) in [
            // With TLS, wherever it is: registries have their token servers on other hosts.
            ("https://registry.example/token", false, Internet, Some(REGISTRY)),
            (
                "https://auth.example/token",
                false,
                Internet,
                Some("auth.example"),
            ),
            (
                "HTTPS://auth.example:444/token",
                false,
                Private,
                Some("auth.example:444"),
            ),
            // Without TLS, only for a registry that is spoken to without it ...
            ("http://registry.example/token", false, Internet, None),
            ("http://auth.example/token", false, Private, None),
            ("http://auth.example/token", false, Host, None),
            ("http://auth.example/token", true, Internet, Some("auth.example")),
            // ... or to a host on the list, named as it is there ...
            (
                "http://plain.example/token",
                false,
                Internet,
                Some("plain.example"),
            ),
            (
                "http://plain.example:5000/token",
                false,
                Internet,
                Some("plain.example:5000"),
            ),
            ("http://plain.example:5001/token", false, Internet, None),
            ("http://not-plain.example/token", false, Internet, None),
            ("http://plain.example.evil.example/token", false, Internet, None),
            // ... or within this host, if the registry is there, too.
            ("http://127.0.0.1:5000/token", false, Host, Some("127.0.0.1:5000")),
            ("http://localhost:5000/token", false, Host, Some("localhost:5000")),
            ("http://[::1]:5000/token", false, Host, Some("[::1]:5000")),
            ("http://127.0.0.1:5000/token", false, Link, None),
            ("http://127.0.0.1:5000/token", false, Private, None),
            ("http://localhost:5000/token", false, Internet, None),
            ("http://localhost.example/token", false, Host, None),
            // A user name, a path or a fragment that looks like a host is no host.
            ("http://plain.example@evil.example/token", false, Internet, None),
            (
                "http://plain.example:5000@evil.example/token",
                false,
                Internet,
                None,
            ),
            ("http://evil.example/plain.example", false, Internet, None),
            ("http://evil.example#@plain.example/token", false, Internet, None),
            ("http://127.0.0.1@evil.example/token", false, Host, None),
            (
                "https://registry.example@auth.example/token",
                false,
                Internet,
                Some("auth.example"),
            ),
            // Texts that are no URLs of the web.
            ("ftp://registry.example/token", true, Host, None),
            ("file:///etc/passwd", true, Host, None),
            ("//registry.example/token", true, Host, None),
            ("registry.example/token", true, Host, None),
            ("", true, Host, None),
        ] {
            let credential = || Credential::Basic {
                username: "user".to_owned(),
                password: "pass".to_owned(),
            };
            let renewal = renewal(is_plain, reach);
            for credential in [credential(), Credential::IdentityToken("refresh".to_owned())] {
                let request =
                    authenticator.token_request(&renewal, realm, Some("service"), None, Some(credential));
                let said = request.as_ref().err().map(ToString::to_string);
                let asked = request.ok().map(|request| authority(request.url()));
                assert_eq!(asked.as_deref(), host, "{realm} {is_plain} {reach}: {said:?}");
            }
        }
        let refused =
            authenticator.check_realm(&"http://auth.example/".parse().unwrap(), &renewal(false, Host));
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("auth.example") && said.contains("plain_http"),
            "{said}"
        );
    }
}
