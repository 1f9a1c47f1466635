//! Registries that are not there: a name that no name server knows, a name server that is busy, an address where nobody listens.
//!
//! Each test with names runs in a network of its own, in which it is the name server.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use xebec_oci::{Client, ClientConfig, ClientError, Platform, Reference};

use crate::support::config;
use crate::support::own_network::OwnNetwork;

/// Set in the process that has its own network.
const APART: &str = "XEBEC_TEST_WRONG_HOST";
const SETUP: &str = "ip link set lo up && mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
/// Answers of name servers: no such name, and a passing failure.
const NXDOMAIN: u8 = 3;
const SERVFAIL: u8 = 2;
/// How soon a user is told that a name is wrong.
const SOON: Duration = Duration::from_secs(2);

/// Runs `test` in a network of its own.
fn apart(name: &str, test: impl Future<Output = ()>) {
    let own = OwnNetwork {
        marker: APART,
        setup: SETUP,
        contents: "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        environment: &[],
    };
    own.run(&format!("wrong_host::{name}"), test);
}

/// Answers every question with this code.
fn name_server(code: u8) {
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            // RFC 1035: an answer, recursion available, no records but the question.
            packet[2] |= 0x80;
            packet[3] = 0x80 | code;
            packet[6..12].fill(0);
            // The bytes after the question (EDNS) are left out: header, name, type and class remain.
            let name = packet[12..length].iter().position(|byte| *byte == 0).unwrap();
            let _ = socket.send_to(&packet[..12 + name + 5], from);
        }
    });
}

/// A client with the budget that users have, and no login.
fn client() -> Client {
    Client::new(ClientConfig {
        docker_config: Some("/nonexistent".into()),
        ..ClientConfig::default()
    })
    .unwrap()
}

async fn resolve(client: &Client, name: &str) -> (ClientError, Duration) {
    let reference: Reference = name.parse().unwrap();
    let begin = Instant::now();
    let error = client.resolve(&reference, &Platform::linux("amd64")).await;
    (error.unwrap_err(), begin.elapsed())
}

#[test]
fn a_name_that_does_not_exist_is_told_at_once() {
    apart("a_name_that_does_not_exist_is_told_at_once", async {
        name_server(NXDOMAIN);
        let client = client();
        for client in [client.for_first_contact(), client.clone()] {
            let (error, took) = resolve(&client, "registry.exmaple.com/team/app:v1").await;
            assert!(matches!(error, ClientError::UnknownHost { .. }), "{error}");
            assert!(
                error
                    .to_string()
                    .contains("there is no host named registry.exmaple.com;"),
                "{error}"
            );
            assert!(took < SOON, "{took:?}");
            assert_eq!(client.stats().retries, 0);
        }
        // Readers of an image that runs outlast a name server that knows nothing for a while.
        let until = tokio::time::Instant::now() + Duration::from_secs(2);
        let (error, took) = resolve(&client.patient_until(until), "registry.exmaple.com/team/app:v1").await;
        assert!(
            error.may_heal() && took >= Duration::from_secs(2),
            "{error} {took:?}"
        );
    });
}

#[test]
fn a_name_server_that_is_busy_is_asked_again() {
    apart("a_name_server_that_is_busy_is_asked_again", async {
        name_server(SERVFAIL);
        let client = Client::new(config()).unwrap();
        let (error, _) = resolve(&client, "registry.example/team/app:v1").await;
        assert!(
            matches!(error, ClientError::Unreachable { attempts: 4, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("look up registry.example"), "{error}");
    });
}

/// The port of a socket that is closed again.
fn nobody_listens() -> u16 {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_given_up_soon_when_nothing_is_known() {
    let name = format!("127.0.0.1:{}/team/app:v1", nobody_listens());
    let client = client().for_first_contact();
    let (error, took) = resolve(&client, &name).await;
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(
        client.stats().retries >= 1,
        "one that is just being started is found"
    );
}
