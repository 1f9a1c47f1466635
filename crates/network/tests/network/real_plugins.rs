//! The plugins of the distribution, and the kernel's opinion of what they did.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use xebec_network::{Attaching, NetworkError, Networks, NewNetwork, PortRequest, Wish};

use crate::isolation::{Case, isolated};

/// Why the plugins cannot be tried here.
fn skip_reason() -> Option<&'static str> {
    let has = |path: &str| Path::new(path).exists();
    match () {
        () if !has("/usr/lib/cni/bridge") => {
            Some("there are no plugins (apt install containernetworking-plugins)")
        }
        () if !has("/usr/sbin/iptables") => Some("there is no iptables (apt install iptables)"),
        () => None,
    }
}

fn real(name: &str, body: impl FnOnce(&Case)) {
    match skip_reason() {
        Some(reason) => println!("SKIPPED: {reason}"),
        None => isolated(name, &[], body),
    }
}

/// Does something in a network namespace.
fn inside<T: Send + 'static>(namespace: PathBuf, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(move || {
        let namespace = File::open(namespace).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    })
}

/// A server in a namespace that greets each client.
fn serve(namespace: PathBuf, port: u16) {
    let (sender, listens) = std::sync::mpsc::channel();
    inside(namespace, move || {
        let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
        sender.send(()).unwrap();
        for client in listener.incoming() {
            let _ = client.unwrap().write_all(b"hello");
        }
    });
    listens.recv().unwrap();
}

fn greeting(address: SocketAddr) -> std::io::Result<String> {
    let mut server = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    server.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut text = String::new();
    server.read_to_string(&mut text)?;
    Ok(text)
}

fn attach(case: &Case, wish: Wish) -> Attaching {
    let mut attaching = Attaching::begin(&case.places(), wish).unwrap();
    attaching.finish().unwrap();
    attaching
}

fn address(attaching: &Attaching, port: u16) -> SocketAddr {
    let addresses = attaching.attachment().addresses.as_ref().unwrap();
    (addresses.ips().next().unwrap(), port).into()
}

/// The rules of the firewall.
fn rules() -> String {
    String::from_utf8(Command::new("iptables-save").output().unwrap().stdout).unwrap()
}

/// The interfaces of the host.
fn links() -> String {
    let links = Command::new("ip")
        .args(["-brief", "link"])
        .output()
        .unwrap()
        .stdout;
    String::from_utf8(links).unwrap()
}

#[test]
fn containers_reach_each_other_and_the_host_reaches_published_ports() {
    real(
        "real_plugins::containers_reach_each_other_and_the_host_reaches_published_ports",
        |case| {
            let networks = Networks::new(&case.places());
            let network = networks.find("bridge").unwrap();
            let bridge = network.bridge().unwrap().to_owned();
            let publishing = Wish {
                ports: PortRequest::parse("8080:80").unwrap(),
                ..case.wish("web", "bridge")
            };
            let web = attach(case, publishing);
            let other = attach(case, case.wish("other", "bridge"));
            assert_ne!(address(&web, 0), address(&other, 0));
            for (container, name) in [("web", "other"), ("other", "web")] {
                assert!(
                    case.hosts(container).contains(&format!("\t{name}\n")),
                    "{}",
                    case.hosts(container)
                );
            }
            serve(web.namespace(), 80);
            let target = address(&web, 80);
            let seen = inside(other.namespace(), move || greeting(target))
                .join()
                .unwrap();
            assert_eq!(seen.unwrap(), "hello", "from the other container");
            assert_eq!(
                greeting(([127, 0, 0, 1], 8080).into()).unwrap(),
                "hello",
                "from the host"
            );
            let taken = Wish {
                ports: PortRequest::parse("8080:81").unwrap(),
                ..case.wish("third", "bridge")
            };
            let error = Attaching::begin(&case.places(), taken).unwrap_err().to_string();
            assert!(
                error.contains("8080") && error.contains("container web"),
                "{error}"
            );
            assert!(matches!(
                networks.remove("bridge"),
                Err(NetworkError::Used { .. })
            ));
            let gateway = network.gateway().unwrap();
            let id = web.attachment().id.clone();
            web.close().unwrap();
            assert!(!case.hosts("other").contains("web"), "{}", case.hosts("other"));
            other.close().unwrap();
            let left = rules();
            assert!(!left.contains(&id) && !left.contains("8080"), "{left}");
            assert!(
                !links().contains("veth") && links().contains(&bridge),
                "{}",
                links()
            );
            case.assert_clean();
            // An address of the same network is free again.
            let asked = Wish {
                ip: Some(target.ip().to_string().parse().unwrap()),
                ..case.wish("again", "bridge")
            };
            let again = attach(case, asked);
            assert_eq!(address(&again, 80), target);
            let asked = Wish {
                ip: Some(gateway),
                ..case.wish("more", "bridge")
            };
            let mut refused = Attaching::begin(&case.places(), asked).unwrap();
            let error = refused.finish().unwrap_err().to_string();
            assert!(
                error.contains("bridge") && error.contains(&gateway.to_string()),
                "{error}"
            );
            refused.close().unwrap();
            again.close().unwrap();
            networks.remove("bridge").unwrap();
            assert!(!links().contains(&bridge), "the bridge goes with its network");
            case.assert_clean();
        },
    );
}

#[test]
fn networks_are_apart_and_an_internal_one_leads_nowhere() {
    real(
        "real_plugins::networks_are_apart_and_an_internal_one_leads_nowhere",
        |case| {
            let networks = Networks::new(&case.places());
            networks.create("front", &NewNetwork::default()).unwrap();
            let inner = NewNetwork {
                internal: true,
                ..NewNetwork::default()
            };
            let back = networks.create("back", &inner).unwrap();
            let front = attach(case, case.wish("front", "front"));
            let (one, two) = (
                attach(case, case.wish("one", "back")),
                attach(case, case.wish("two", "back")),
            );
            serve(front.namespace(), 80);
            serve(one.namespace(), 80);
            let (of_front, of_one) = (address(&front, 80), address(&one, 80));
            let from = |from: &Attaching, to: SocketAddr| {
                inside(from.namespace(), move || greeting(to)).join().unwrap()
            };
            assert_eq!(greeting(of_front).unwrap(), "hello");
            assert_eq!(from(&two, of_one).unwrap(), "hello");
            assert!(from(&two, of_front).is_err(), "out of an internal network");
            assert!(from(&front, of_one).is_err(), "into an internal network");
            assert!(greeting(of_one).is_err(), "from the host");
            let publishing = Wish {
                ports: PortRequest::parse("80").unwrap(),
                ..case.wish("three", "back")
            };
            let error = Attaching::begin(&case.places(), publishing)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("internal") && error.contains("--publish"),
                "{error}"
            );
            // Another bridge of its own: the firewall keeps it out.
            networks.create("side", &NewNetwork::default()).unwrap();
            let side = attach(case, case.wish("side", "side"));
            assert!(from(&side, of_front).is_err(), "from another network");
            for attached in [front, one, two, side] {
                attached.close().unwrap();
            }
            let (removed, failed) = networks.prune().unwrap();
            assert_eq!(
                (removed, failed.len()),
                (vec!["back".into(), "front".into(), "side".into()], 0)
            );
            assert!(!links().contains("xebec"), "{}: {}", back.name(), links());
            case.assert_clean();
        },
    );
}
