//! Containers in networks of their own: they find each other by name, the host reaches what they publish, and nothing is left of
//! them, however they end.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use crate::lab::{self, Lab, Names, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// How soon a server answers or a process ends, on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// The contents of the server's page.
const PAGE: &str = "hello from web";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("networks/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![case("names-and-ports", names_and_ports), case("killed", killed)]
}

/// Busybox with a page to serve, and a client.
fn image(lab: &Lab<'_>) -> Result<Names> {
    let mut layer = TarBuilder::new();
    layer.directory("bin");
    lab::put_programs(&mut layer, &["/bin/busybox"], 0o755)?;
    let client = fs::read(World::go_tool("reach")?)?;
    layer.file_with(&Header::new("bin/reach", Kind::File).mode(0o755), &client);
    layer.directory("www");
    layer.file("www/index.html", PAGE.as_bytes());
    let image = ImageBuilder::new().layer(&layer.into_bytes(), Compression::Gzip(1))?;
    lab.push_indexed(&image.build(), "busybox")
}

/// Why there can be no networks here.
pub(super) fn missing() -> Option<Outcome> {
    let needed = ["/usr/lib/cni/bridge", "/usr/sbin/iptables"];
    let missing = needed.into_iter().find(|path| !Path::new(path).exists())?;
    Some(Outcome::Skipped(format!(
        "{missing} is missing (make setup-test)"
    )))
}

/// Starts a server in the background, in the network `shop`, with more options.
fn serve(lab: &Lab<'_>, names: &Names, options: &[&str]) -> Result<Child> {
    let server = [
        &names.tag,
        "/bin/busybox",
        "httpd",
        "-f",
        "-p",
        "80",
        "-h",
        "/www",
    ];
    lab.spawn(
        "root",
        &[&["run", "--rm", "--network", "shop"], options, &server].concat(),
    )
}

/// Has a client in a container read the page of a server.
fn is_read_inside(lab: &Lab<'_>, names: &Names, network: &str, host: &str) -> Result<()> {
    let address = format!("{host}:80");
    let client = ["/bin/reach", &address, "/index.html"];
    let arguments = [&["run", "--rm", "--network", network, &names.tag][..], &client].concat();
    let ended = lab.xebec("root", &arguments)?;
    let is_read = ended.code == 0 && ended.out.ends_with(PAGE);
    ensure!(is_read, "{host} from {network}: {ended:?}");
    Ok(())
}

/// The page of a server, as the host reads it.
fn read_outside(port: u16) -> Result<String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut server = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    server.set_read_timeout(Some(Duration::from_secs(5)))?;
    server.write_all(b"GET /index.html HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    server.read_to_string(&mut text)?;
    Ok(text)
}

/// Waits for the page of a server that was started in the background; the error has what the server's port says and what runs.
fn answers(lab: &Lab<'_>, server: &mut Child, port: u16) -> Result<()> {
    let answered = wait_until(SOON, "a server behind a published port", || {
        if let Some(status) = server.try_wait()? {
            bail!("the command of the server ended with {status}");
        }
        Ok(read_outside(port).is_ok_and(|text| text.contains(PAGE)))
    });
    answered.with_context(|| {
        let rules = run(&mut Command::new("iptables-save")).map(|ended| ended.stdout);
        format!(
            "port {port}: {:?}; containers: {:?}; rules:\n{}",
            read_outside(port),
            lab.xebec("root", &["ps", "--all", "--json"]),
            String::from_utf8_lossy(&rules.unwrap_or_default())
        )
    })
}

/// No namespace, no attachment, and no rule of the firewall for this port.
fn nothing_is_left(lab: &Lab<'_>, port: u16) -> Result<()> {
    for directory in ["root-run/netns", "root-run/networks/attachments"] {
        let left: Vec<_> = fs::read_dir(lab.path(directory))?.flatten().collect();
        ensure!(left.is_empty(), "{directory}: {left:?}");
    }
    let rules = run(&mut Command::new("iptables-save"))?;
    let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
    ensure!(!rules.contains(&port.to_string()), "{rules}");
    ensure!(read_outside(port).is_err(), "port {port} is still taken");
    Ok(())
}

fn names_and_ports(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing() {
        return Ok(skipped);
    }
    let lab = Lab::new(world)?;
    let names = image(&lab)?;
    lab.xebec("root", &["run", "--network", "shop", &names.tag])?
        .expect(125, &["no network named shop", "xebec network create shop"])?;
    lab.xebec("root", &["network", "create", "shop"])?
        .expect(0, &["shop"])?;
    let mut web = serve(
        &lab,
        &names,
        &["--name", "web", "--network-alias", "front", "-p", "8080:80"],
    )?;
    answers(&lab, &mut web, 8080)?;
    for host in ["web", "front"] {
        is_read_inside(&lab, &names, "shop", host)?;
    }
    // The network of another container is that container's own loopback.
    is_read_inside(&lab, &names, "container:web", "127.0.0.1")?;
    let listed: Value = serde_json::from_str(&lab.xebec("root", &["ps", "--json"])?.out)?;
    ensure!(
        listed.pointer("/0/ports/0") == Some(&"0.0.0.0:8080->80/tcp".into()),
        "{listed}"
    );
    let address = listed.pointer("/0/network/addresses/addresses/0");
    ensure!(address.is_some_and(Value::is_string), "{listed}");
    let taken = ["run", "--rm", "-p", "8080:80", &names.tag, "/bin/busybox", "true"];
    lab.xebec("root", &taken)?
        .expect(125, &["8080", "container web"])?;
    lab.xebec("root", &["network", "rm", "shop"])?
        .expect(2, &["shop", "web"])?;
    let inside = [
        "run",
        "--rm",
        "-p",
        "80",
        &names.tag,
        "/bin/busybox",
        "ip",
        "addr",
    ];
    lab.xebec("root", &inside)?.expect(0, &["eth0", "127.0.0.1"])?;
    let alone = [
        "run",
        "--rm",
        "--network",
        "none",
        &names.tag,
        "/bin/busybox",
        "ip",
        "addr",
    ];
    let alone = lab.xebec("root", &alone)?;
    alone.expect(0, &["127.0.0.1"])?;
    ensure!(!alone.out.contains("eth0"), "{alone:?}");
    // Busybox does not heed SIGTERM as the first process of a container.
    lab.xebec("root", &["stop", "--time", "1", "web"])?
        .expect(0, &["web"])?;
    web.wait()?;
    nothing_is_left(&lab, 8080)?;
    lab.xebec("root", &["network", "rm", "shop", "bridge"])?
        .expect(0, &["shop", "bridge"])?;
    Ok(Outcome::Passed(
        "a server by two names, by a port, and by its own network".to_owned(),
    ))
}

/// The command of a container is killed, and later the container.
fn killed(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing() {
        return Ok(skipped);
    }
    let lab = Lab::new(world)?;
    let names = image(&lab)?;
    lab.xebec("root", &["network", "create", "shop"])?
        .expect(0, &[])?;
    let mut web = serve(&lab, &names, &["--name", "web", "-p", "8081:80"])?;
    answers(&lab, &mut web, 8081)?;
    web.kill()?;
    web.wait()?;
    ensure!(
        read_outside(8081)?.contains(PAGE),
        "it serves on without its command"
    );
    // No socket holds the port any more.
    let taken = ["run", "--rm", "-p", "8081:80", &names.tag, "/bin/busybox", "true"];
    lab.xebec("root", &taken)?
        .expect(125, &["8081", "container web"])?;
    let listed: Value = serde_json::from_str(&lab.xebec("root", &["ps", "--json"])?.out)?;
    let pid = listed
        .pointer("/0/pid")
        .and_then(Value::as_i64)
        .context("web is not listed")?;
    let pid = Pid::from_raw(i32::try_from(pid)?).context("no process")?;
    kill_process(pid, Signal::KILL)?;
    wait_until(SOON, "the end of a container", || {
        Ok(lab.xebec("root", &["ps", "--json"])?.out.trim() == "[]")
    })?;
    lab.xebec("root", &["network", "prune"])?.expect(0, &["shop"])?;
    nothing_is_left(&lab, 8081)?;
    Ok(Outcome::Passed(
        "its port was taken until it ended, and was free then".to_owned(),
    ))
}
