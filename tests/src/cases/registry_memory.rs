//! Clients that begin to push large manifests, and do not go on.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::registry::missing;
use crate::http::Client;
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::World;

const CLIENTS: usize = 60;
/// Of each client's manifest, so much comes.
const SENT: usize = 4_000_000;
/// All of that at once is 240 MB.
const MOST_MEMORY_MIB: u64 = 100;
const TYPE: &str = "Content-Type: application/vnd.oci.image.manifest.v1+json\r\n";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("registry/{name}"),
        limit: Duration::from_secs(180),
        run: Box::new(run),
    };
    vec![case("slow-manifests", slow_manifests)]
}

fn slow_manifests(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "slow-manifests", "")?;
    let mut slow = Vec::new();
    let mut taken = 0;
    let part = vec![b' '; SENT];
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(&registry.address)?;
        // The registry does not read what it has no room for.
        stream.set_write_timeout(Some(Duration::from_millis(300)))?;
        let length = SENT + 1;
        write!(
            stream,
            "PUT /v2/a/manifests/slow HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        )?;
        taken += usize::from(stream.write_all(&part).is_ok());
        slow.push(stream);
    }
    let mut client = Client::new(&registry.address);
    // More than what is left of this client's room.
    let large = vec![b' '; 1_000_000];
    let push = |client: &mut Client| client.ask("PUT", "/v2/a/manifests/none", TYPE, &large);
    let answer = push(&mut client)?;
    ensure!(
        answer.status == 503,
        "a manifest for which no room is: {answer:?}"
    );
    // Those that go out have room of their own.
    let pulled = client.ask("GET", "/v2/a/manifests/none", "", b"")?;
    ensure!(pulled.status == 404, "{pulled:?}");
    ensure!(answer.header("retry-after").is_some(), "{answer:?}");
    let memory = registry.peak_memory()?;
    ensure!(memory <= MOST_MEMORY_MIB, "{memory} MiB with {CLIENTS} manifests");
    drop(slow);
    let answer = push(&mut client)?;
    ensure!(answer.status == 400, "there is room again: {answer:?}");
    ensure!(registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(format!(
        "{memory} MiB at most with {CLIENTS} manifests that do not go on, {taken} of which were sent whole but for a byte"
    )))
}
