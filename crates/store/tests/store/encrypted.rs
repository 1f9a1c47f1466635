//! Connections to PostgreSQL by TLS. The server is Debian's, its certificates are made here.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use xebec_store::*;
use xebec_testkit::servers;

use crate::common::{name, push};

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(parameters, key);
        Self { issuer, pem }
    }

    /// A certificate for a name, and its key.
    fn certificate(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A PostgreSQL at a port of this host, until this is dropped.
struct Server {
    server: servers::Server,
    port: u16,
    directory: tempfile::TempDir,
}

impl Server {
    /// Nothing, and a line that says so, if it is not installed.
    fn start(tls: Option<&(String, String)>) -> Option<Self> {
        let Some(programs) = servers::postgres_programs() else {
            use std::io::Write;
            let said = "SKIPPED: PostgreSQL by TLS: it is not here; `make setup-test` installs it";
            let _ = writeln!(std::io::stderr(), "{said}");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let tls = tls.map(|(certificate, key)| (certificate.as_str(), key.as_str()));
        let made = servers::postgres_by_tcp(&programs, &directory.path().join("server"), tls);
        let (server, port) = made.unwrap();
        Some(Self {
            server,
            port,
            directory,
        })
    }

    /// A file that a store may be told of.
    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Opens a store whose records are there, by the rest of an address.
    async fn open(
        &self,
        address: &str,
        wanted: Option<TlsWanted>,
        ca_file: Option<&Path>,
    ) -> Result<Store, String> {
        let mut config = StoreConfig::new(self.directory.path().join("root"));
        config.database = DatabaseConfig::Postgres {
            url: format!("port={} dbname=postgres {address}", self.port),
            tls: PostgresTls {
                wanted,
                ca_file: ca_file.map(Path::to_owned),
            },
        };
        let opened = Store::open(&config).await;
        opened.map_err(|error| error.to_string())
    }

    /// Asks the server itself, at its socket.
    async fn ask(&self, sql: &'static str) -> Vec<String> {
        let url = format!("{} dbname=postgres", self.server.address);
        // The client waits, which a task must not.
        let asking = tokio::task::spawn_blocking(move || {
            let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
            let rows = client.simple_query(sql).unwrap();
            let values = rows.into_iter().filter_map(|row| match row {
                postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
            values.collect()
        });
        asking.await.unwrap()
    }

    /// How stores are connected to it, as it sees it.
    async fn connections(&self) -> Vec<String> {
        self.ask(
            "SELECT concat(ssl, ' ', version) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
             WHERE application_name = 'xebec-registry'",
        )
        .await
    }
}

const VERIFY: Option<TlsWanted> = Some(TlsWanted::Verify);
const BY_NAME: &str = "host=localhost hostaddr=127.0.0.1 user=xebec";

#[tokio::test]
async fn a_server_with_the_right_certificate_is_spoken_to_by_tls() {
    let authority = Authority::new("ours");
    let Some(server) = Server::start(Some(&authority.certificate("localhost"))) else {
        return;
    };
    let ca_file = server.file("ca.pem", &authority.pem);
    let store = server.open(BY_NAME, VERIFY, Some(&ca_file)).await.unwrap();
    let blob = push(&store, &name("a"), b"bytes").await.unwrap();
    assert_eq!(store.blob(&name("a"), &blob.digest).await.unwrap(), Some(blob));
    assert_eq!(server.connections().await, ["t TLSv1.3"]);
    drop(store);
    // On this host, a file of authorities says enough.
    let by_file = server.open(BY_NAME, None, Some(&ca_file)).await.unwrap();
    assert!(server.connections().await.contains(&"t TLSv1.3".to_owned()));
    drop(by_file);
}

#[tokio::test]
async fn on_this_host_nothing_is_encrypted_unless_that_is_wanted() {
    let authority = Authority::new("ours");
    let Some(server) = Server::start(Some(&authority.certificate("localhost"))) else {
        return;
    };
    for wanted in [None, Some(TlsWanted::Off)] {
        let store = server.open(BY_NAME, wanted, None).await.unwrap();
        assert!(!server.connections().await.is_empty());
        for connection in server.connections().await {
            assert_eq!(connection, "f ");
        }
        drop(store);
    }
}

#[tokio::test]
async fn a_server_that_is_not_the_right_one_is_refused_with_the_next_step() {
    let authority = Authority::new("ours");
    let Some(server) = Server::start(Some(&authority.certificate("localhost"))) else {
        return;
    };
    let right = server.file("ca.pem", &authority.pem);
    let wrong = server.file("wrong.pem", &Authority::new("another").pem);
    let refused =
        async |address: &str, ca_file: Option<&Path>| match server.open(address, VERIFY, ca_file).await {
            Ok(_) => panic!("{address} with {ca_file:?} is connected to"),
            Err(error) => error,
        };
    for ca_file in [None, Some(wrong.as_path())] {
        let error = refused(BY_NAME, ca_file).await;
        assert!(
            error.contains("UnknownIssuer") && error.contains("ca_file"),
            "{error}"
        );
    }
    for other in ["host=127.0.0.1", "host=db.example hostaddr=127.0.0.1"] {
        let error = refused(&format!("{other} user=xebec"), Some(&right)).await;
        assert!(error.contains("not valid for name"), "{error}");
        assert!(
            error.contains("localhost") && error.contains("name it as"),
            "{error}"
        );
    }
    let absent = server.directory.path().join("absent.pem");
    let error = refused(BY_NAME, Some(&absent)).await;
    assert!(error.contains("absent.pem"), "{error}");
    assert_eq!(server.connections().await, [""; 0]);
}

#[tokio::test]
async fn a_server_without_tls_is_refused_and_not_spoken_to_in_plain_text() {
    let Some(server) = Server::start(None) else { return };
    let ca_file = server.file("ca.pem", &Authority::new("another").pem);
    let Err(error) = server.open(BY_NAME, VERIFY, Some(&ca_file)).await else {
        panic!("a server without TLS is connected to");
    };
    assert!(error.contains("does not support TLS"), "{error}");
    assert!(
        error.contains("ssl = on") && error.contains("tls = \"off\""),
        "{error}"
    );
    server.open(BY_NAME, None, None).await.unwrap();
}

#[tokio::test]
async fn a_password_is_bound_to_the_connection() {
    let authority = Authority::new("ours");
    let Some(server) = Server::start(Some(&authority.certificate("localhost"))) else {
        return;
    };
    let ca_file = server.file("ca.pem", &authority.pem);
    server.ask("CREATE USER bound SUPERUSER PASSWORD 'secret'").await;
    let address = |more: &str| format!("host=localhost hostaddr=127.0.0.1 user=bound {more}");
    let required = address("password=secret channel_binding=require");
    server.open(&required, VERIFY, Some(&ca_file)).await.unwrap();
    // It is not that any password is taken.
    let wrong = address("password=wrong channel_binding=require");
    let Err(error) = server.open(&wrong, VERIFY, Some(&ca_file)).await else {
        panic!("a wrong password is taken");
    };
    assert!(error.contains("password authentication failed"), "{error}");
    // A login without a password has none to bind to the channel.
    let trusted = format!("{BY_NAME} channel_binding=require");
    assert!(server.open(&trusted, VERIFY, Some(&ca_file)).await.is_err());
}

#[tokio::test]
async fn a_server_that_is_silent_after_its_yes_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 8];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(b"S").await.unwrap();
            held.push(stream);
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let mut config = StoreConfig::new(directory.path());
    config.database = DatabaseConfig::Postgres {
        url: format!("postgres://xebec@127.0.0.1:{port}/x"),
        tls: PostgresTls {
            wanted: VERIFY,
            ca_file: None,
        },
    };
    let begun = Instant::now();
    assert!(Store::open(&config).await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(60));
}
