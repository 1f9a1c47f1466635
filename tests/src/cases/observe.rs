//! The daemon's figures about readers who wait: the process, the file, the reason, the time. They are in `explain`, `status`, the log and
//! the metrics, which must agree with each other and with what the registry saw.

mod support;
mod terminal;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::registry::{Access, Fault, Options, When};

use self::support::{FILE, content, settings};
use crate::lab::{self, Lab, Names, expect_contents, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("observe/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("slow-registry", slow_registry),
        case("reasons", reasons),
        case("metrics", metrics),
        case("metrics-address-taken", metrics_address_taken),
        case("container", container),
        case("history", history),
        case("journal", journal),
        case("reader-on-a-terminal", terminal::run_case),
    ]
}

/// An image of files in layers of their own, pushed with its indexes.
fn files(lab: &Lab<'_>, names: &[&str]) -> Result<Names> {
    let contents: Vec<Vec<u8>> = (0..names.len()).map(content).collect();
    let files: Vec<_> = names
        .iter()
        .zip(&contents)
        .map(|(name, bytes)| [(*name, bytes.as_slice())])
        .collect();
    let layers: Vec<&[(&str, &[u8])]> = files.iter().map(|file| file.as_slice()).collect();
    lab.push_indexed(&lab::image(&layers, Compression::Gzip(1))?, "app")
}

/// A process of its own that reads a file.
fn cat(path: &Path) -> Result<Child> {
    Command::new("cat")
        .arg(path)
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start cat")
}

/// `xebec explain --json`.
fn explain(lab: &Lab<'_>, root: &str, name: &str, options: &[&str]) -> Result<Vec<Value>> {
    let ended = lab.xebec(root, &[&["explain", "--json"], options, &[name]].concat())?;
    ended.expect(0, &[])?;
    let explanation: Value = serde_json::from_str(&ended.out)?;
    let waits = explanation.get("waits").and_then(Value::as_array);
    waits.cloned().context("no waits")
}

/// The longest wait for a file.
fn wait_for<'a>(waits: &'a [Value], file: &str) -> Result<&'a Value> {
    let waits_for_it = waits.iter().filter(|wait| text(wait, "/file") == file);
    let longest =
        waits_for_it.max_by(|one, other| number(one, "/waited_ms").total_cmp(&number(other, "/waited_ms")));
    longest.with_context(|| format!("no wait for {file} in {waits:?}"))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_default()
}

/// A registry that takes three seconds to answer: status names the reader while it waits, the log warns of it, and
/// afterwards it is explained.
fn slow_registry(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = files(&lab, &["one", "two"])?;
    settings(&lab, "root", "slow_reader = \"1s\"\n")?;
    settings(&lab, "json", "slow_reader = \"1s\"\nlog = \"json\"\n")?;
    // The settings of other cases give up an answer after two seconds.
    for root in ["root", "json"] {
        fs::write(lab.path(root).join("registries.toml"), "")?;
    }
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let in_json = lab.mount("json", &names.tag, &["--require-lazy"])?;
    lab.registry
        .inject(When::blob().range(true), Fault::Delay(Duration::from_secs(3)));
    let (mut reader, mut other) = (cat(&mnt.join("one"))?, cat(&in_json.join("two"))?);
    let pid = reader.id();
    wait_until(Duration::from_secs(3), "the log warns", || {
        Ok(lab.logged("root", &["a slow reader"]).is_ok())
    })?;
    let oldest = lab.status("root")?;
    let seen = (
        number(&oldest, "/oldest_reader/pid") as u32,
        text(&oldest, "/oldest_reader/comm").to_owned(),
        text(&oldest, "/oldest_reader/file").to_owned(),
        text(&oldest, "/oldest_reader/phase").to_owned(),
    );
    let wanted = (pid, "cat".to_owned(), "/one".to_owned(), "registry".to_owned());
    ensure!(seen == wanted, "{seen:?} instead of {wanted:?}");
    let status = lab.xebec("root", &["daemon", "status"])?;
    status.expect(0, &["waiting longest", &format!("cat[{pid}]"), "/one"])?;
    ensure!(reader.wait()?.success() && other.wait()?.success(), "cat failed");
    let warned = lab.logged(
        "root",
        &["a slow reader", &format!("cat[{pid}]"), "/one", "registry"],
    )?;

    let waits = explain(&lab, "root", &names.tag, &[])?;
    let wait = wait_for(&waits, "/one")?;
    let (waited, registry) = (
        number(wait, "/waited_ms"),
        number(wait, "/waited_for_ms/registry"),
    );
    ensure!(
        text(wait, "/comm") == "cat" && number(wait, "/pid") as u32 == pid,
        "{wait}"
    );
    ensure!(text(wait, "/state") == "served", "{wait}");
    ensure!(
        waited >= 3000.0 && registry >= 2900.0 && registry <= waited,
        "waited {waited} ms, {registry} of them for the registry"
    );
    let sum: f64 = wait
        .get("waited_for_ms")
        .and_then(Value::as_object)
        .context("no reasons")?
        .values()
        .filter_map(Value::as_f64)
        .sum();
    ensure!((sum - waited).abs() < 5.0, "{sum} ms of {waited} are explained");
    let slow = explain(&lab, "root", &mnt.to_string_lossy(), &["--slow"])?;
    ensure!(
        !slow.is_empty() && slow.iter().all(|wait| number(wait, "/waited_ms") >= 1000.0),
        "{slow:?}"
    );
    let shown = lab.xebec("root", &["explain", "--slow", &names.tag])?;
    shown.expect(0, &["cat[", "/one", "registry (to answer)"])?;
    lab.xebec("root", &["explain", "nothing-of-the-kind"])?
        .expect(3, &["xebec images"])?;

    // The same warning for programs.
    let line = lab.logged("json", &["a slow reader"])?;
    let event: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
    let fields = event.get("fields").context("no fields")?;
    ensure!(
        text(fields, "/comm") == "cat" && text(fields, "/file") == "/two",
        "{line}"
    );
    ensure!(number(fields, "/waited_ms") >= 1000.0, "{line}");
    Ok(Outcome::Passed(format!(
        "{}\n{}",
        warned.trim(),
        shown.out.trim()
    )))
}

/// Every reason is told from the others.
fn reasons(world: &World) -> Result<Outcome> {
    let options = Options {
        access: Access::anonymous_tokens(Duration::from_secs(600)),
        ..Options::default()
    };
    let lab = Lab::with(world, options)?;
    let names = files(&lab, &["token", "body", "away"])?;
    settings(&lab, "root", "")?;
    fs::write(lab.path("root").join("registries.toml"), "")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let read = |number: usize, name: &str| expect_contents(&mnt.join(name), &content(number));

    lab.registry.expire_tokens();
    let token = When::any().path("/token");
    lab.registry
        .inject(token, Fault::Delay(Duration::from_millis(1500)));
    read(0, "token")?;
    lab.registry.clear_faults();
    let rate = Fault::Trickle {
        bytes_per_second: 300_000,
    };
    lab.registry.inject(When::blob().range(true), rate);
    read(1, "body")?;
    lab.registry.clear_faults();
    lab.registry.set_down(true);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(2, "away"));
        std::thread::sleep(Duration::from_secs(3));
        lab.registry.set_down(false);
        reader
            .join()
            .map_err(|_| anyhow::anyhow!("the reader panicked"))?
    })?;

    let waits = explain(&lab, "root", &names.tag, &[])?;
    let mut figures = Vec::new();
    for (file, reason, least) in [
        ("/token", "token", 1400.0),
        ("/body", "body", 1000.0),
        ("/away", "pause", 1500.0),
    ] {
        let wait = wait_for(&waits, file)?;
        let (waited, spent) = (
            number(wait, "/waited_ms"),
            number(wait, &format!("/waited_for_ms/{reason}")),
        );
        ensure!(spent >= least && spent * 2.0 > waited, "{file}: {wait}");
        figures.push(format!("{file}: {spent:.0} of {waited:.0} ms for {reason}"));
    }
    let away = wait_for(&waits, "/away")?;
    ensure!(number(away, "/retries") >= 2.0, "{away}");
    Ok(Outcome::Passed(figures.join("; ")))
}

/// A port that nobody listens at.
fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Asks over HTTP as Prometheus does; the body.
fn scrape(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    ensure!(head.contains("application/openmetrics-text"), "{head}");
    Ok(body.to_owned())
}

/// Reads the OpenMetrics text format: values by name and labels. Every sample must belong to a metric that was declared
/// with type and help, and the text must be complete.
fn parse(text: &str) -> Result<BTreeMap<String, f64>> {
    let (mut samples, mut types, mut helps) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let body = text
        .strip_suffix("# EOF\n")
        .context("the text does not end with # EOF")?;
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name) = (words.next().unwrap_or_default(), words.next().context("no name")?);
            let rest = words.next().unwrap_or_default();
            match what {
                "TYPE" => drop(types.insert(name.to_owned(), rest.to_owned())),
                "HELP" => helps.push(name.to_owned()),
                "UNIT" => ensure!(name.ends_with(rest), "{line}"),
                _ => anyhow::bail!("not OpenMetrics: {line:?}"),
            }
            continue;
        }
        let (series, value) = line
            .rsplit_once(' ')
            .with_context(|| format!("no sample: {line:?}"))?;
        let name = series.split('{').next().unwrap_or_default();
        let family = ["_total", "_bucket", "_sum", "_count", "_info"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix).filter(|name| types.contains_key(*name)))
            .unwrap_or(name);
        let kind = types
            .get(family)
            .with_context(|| format!("{family} has no type"))?;
        ensure!(helps.iter().any(|help| help == family), "{family} has no help");
        ensure!((kind == "counter") == name.ends_with("_total"), "{line}");
        samples.insert(
            series.to_owned(),
            value.parse::<f64>().with_context(|| line.to_owned())?,
        );
    }
    Ok(samples)
}

/// Metrics are well formed, and agree with the status and with the registry's own log.
fn metrics(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = files(&lab, &["one", "two"])?;
    let address = free_address()?;
    settings(&lab, "root", &format!("metrics = \"{address}\"\n"))?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    lab.registry.clear_log();
    expect_contents(&mnt.join("one"), &content(0))?;
    expect_contents(&mnt.join("two"), &content(1))?;
    // Bytes that were read ahead have arrived, too.
    wait_until(Duration::from_secs(60), "both layers are complete", || {
        Ok(number(&lab.status("root")?, "/views/0/complete_layers") as u64 == 2)
    })?;
    let samples = parse(&scrape(&address)?)?;
    let status = lab.status("root")?;
    let sample = |name: &str| {
        samples
            .get(name)
            .copied()
            .with_context(|| format!("no {name} in {samples:?}"))
    };
    for (name, pointer) in [
        ("xebec_events_total", "/counters/events"),
        ("xebec_event_hits_total", "/counters/hits"),
        ("xebec_fill_spans_total", "/counters/spans"),
        ("xebec_fill_joins_total", "/counters/joins"),
        ("xebec_fill_failures_total", "/counters/failures"),
        ("xebec_fill_written_bytes_total", "/counters/bytes_written"),
        ("xebec_registry_requests_total", "/counters/network_requests"),
        ("xebec_registry_received_bytes_total", "/counters/network_bytes"),
        ("xebec_readers_waiting", "/queue"),
        ("xebec_worker_restarts_total", "/restarts"),
    ] {
        let (metric, wanted) = (sample(name)?, number(&status, pointer));
        ensure!(metric == wanted, "{name} is {metric}, the status says {wanted}");
    }
    let waits = sample("xebec_reader_wait_seconds_count{result=\"served\"}")?;
    let misses = sample("xebec_events_total")? - sample("xebec_event_hits_total")?;
    ensure!(waits == misses && waits > 0.0, "{waits} waits of {misses} misses");
    let sent: u64 = lab.registry.log().iter().map(|request| request.bytes_sent).sum();
    let source = format!(
        "xebec_fill_fetched_bytes_total{{source=\"{}\"}}",
        lab.registry.host()
    );
    let fetched = sample(&source)?;
    ensure!(
        fetched == sent as f64,
        "{fetched} bytes fetched, the registry sent {sent}"
    );
    let phases: f64 = samples
        .iter()
        .filter(|(name, _)| name.starts_with("xebec_reader_wait_phase_seconds_total"))
        .map(|(_, value)| value)
        .sum();
    let sum = sample("xebec_reader_wait_seconds_sum{result=\"served\"}")?;
    ensure!(
        (phases - sum).abs() < 0.01 * sum + 0.001,
        "{phases} s by reason, {sum} s in all"
    );
    ensure!(
        sample("xebec_cache_bytes")? >= 2.0 * FILE as f64,
        "the cache is too small"
    );
    ensure!(
        sample("process_open_fds")? < sample("process_max_fds")?,
        "descriptors"
    );
    ensure!(sample("xebec_layers_complete")? == 2.0, "layers");
    let printed = lab.xebec("root", &["daemon", "metrics"])?;
    printed.expect(0, &[])?;
    let printed = parse(&printed.out)?;
    ensure!(
        printed.keys().eq(samples.keys()),
        "other metrics over the socket than over HTTP"
    );
    Ok(Outcome::Passed(format!(
        "{} series; {waits} waits, {sum:.3} s; {fetched} bytes from the registry, as it says itself",
        samples.len()
    )))
}

/// Somebody else has the address: readers are served all the same, and metrics once the address is free.
fn metrics_address_taken(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = files(&lab, &["one"])?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    settings(&lab, "root", &format!("metrics = \"{address}\"\n"))?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("one"), &content(0))?;
    let said = lab.logged("root", &["cannot serve metrics", &address])?;
    drop(taken);
    wait_until(Duration::from_secs(60), "metrics are served", || {
        Ok(scrape(&address).is_ok())
    })?;
    Ok(Outcome::Passed(said.trim().to_owned()))
}

/// A container's own processes are told from others: by name while it runs, and when it has ended.
fn container(world: &World) -> Result<Outcome> {
    let layout = World::built_image("debian")?;
    let reference = world.push(&layout, "test/explain")?;
    run(&mut world.xebec_at("builder", &["index", "--push", &reference]))?;
    let script = "cat /etc/debian_version; exec perl -e 'print 1'";
    let arguments = ["run", "--name", "explained", &reference, "sh", "-c", script];
    run(&mut world.xebec(&arguments))?;
    let output = run(&mut world.xebec(&["explain", "--json", "explained"]))?;
    let explanation: Value = serde_json::from_slice(&output.stdout)?;
    let waits = explanation
        .get("waits")
        .and_then(Value::as_array)
        .context("no waits")?;
    let own: Vec<_> = waits
        .iter()
        .filter(|wait| text(wait, "/container") == "explained")
        .collect();
    let programs: Vec<_> = own
        .iter()
        .map(|wait| (text(wait, "/comm"), text(wait, "/file")))
        .collect();
    let has = |comm: &str, file: &str| programs.iter().any(|(by, of)| *by == comm && of.contains(file));
    ensure!(has("sh", "/cat"), "{programs:?}");
    ensure!(has("perl", "perl"), "{programs:?}");
    let by_image = run(&mut world.xebec(&["explain", "--json", &reference]))?;
    let by_image: Value = serde_json::from_slice(&by_image.stdout)?;
    let all = by_image
        .get("waits")
        .and_then(Value::as_array)
        .context("no waits")?;
    ensure!(all.len() >= own.len(), "{} of {}", own.len(), all.len());
    let shown = run(&mut world.xebec(&["explain", "explained"]))?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    ensure!(shown.contains(" in explained"), "{shown}");
    // The same when its daemon has ended, from the history.
    run(&mut world.xebec(&["daemon", "stop", "--force"]))?;
    let later = run(&mut world.xebec(&["explain", "--json", "explained"]))?;
    let later: Value = serde_json::from_slice(&later.stdout)?;
    let later = later.get("waits").and_then(Value::as_array);
    let later = later.context("no waits without a daemon")?;
    let is_own = |wait: &&Value| text(wait, "/container") == "explained";
    ensure!(later.iter().filter(is_own).eq(own.iter().copied()), "{later:?}");
    Ok(Outcome::Passed(format!(
        "{} waits of the container, {} of the image\n{}",
        own.len(),
        all.len(),
        shown.lines().last().unwrap_or_default()
    )))
}

/// The history has all events although the daemon was killed a second later, and a read that got EIO is one wait, however often the
/// kernel asked for it.
fn history(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = files(&lab, &["one", "two"])?;
    settings(&lab, "root", "fill_wait = \"2s\"\n")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("one"), &content(0))?;
    lab.registry.set_down(true);
    ensure!(!cat(&mnt.join("two"))?.wait()?.success(), "it was read");
    let before = explain(&lab, "root", &names.tag, &[])?;
    std::thread::sleep(Duration::from_secs(1));
    let status = lab.status("root")?;
    // Stopped first, so that neither starts the other again.
    for (name, signal) in [
        ("/worker_pid", Signal::STOP),
        ("/keeper_pid", Signal::KILL),
        ("/worker_pid", Signal::KILL),
    ] {
        let pid = Pid::from_raw(number(&status, name) as i32);
        kill_process(pid.context("no process")?, signal)?;
    }
    wait_until(Duration::from_secs(60), "the daemon is gone", || {
        Ok(lab.xebec("root", &["daemon", "status"])?.code != 0)
    })?;
    let after = explain(&lab, "root", &names.tag, &[])?;
    ensure!(before == after, "{before:#?}\n{after:#?}");
    let refused = after.iter().filter(|wait| text(wait, "/state") == "refused");
    let refused: Vec<&str> = refused.map(|wait| text(wait, "/file")).collect();
    ensure!(refused == ["/two"], "refused: {refused:?} of {after:#?}");
    let shown = lab.xebec("root", &["explain", &names.tag])?;
    shown.expect(0, &["/one", "/two", "EIO"])?;
    Ok(Outcome::Passed(shown.out.trim().to_owned()))
}

/// A daemon whose standard error is the journal's leaves time and level to the journal: `<N>` instead of both.
fn journal(world: &World) -> Result<Outcome> {
    use std::os::unix::fs::MetadataExt;
    let log = world.path("journal.log");
    let stream = fs::File::create(&log)?;
    let named = format!("{}:{}", stream.metadata()?.dev(), stream.metadata()?.ino());
    let mut keeper = world
        .xebec(&["daemon", "start"])
        .env("JOURNAL_STREAM", named)
        .stderr(stream)
        .spawn()?;
    let ready = wait_until(Duration::from_secs(60), "the worker is ready", || {
        Ok(fs::read_to_string(&log)?.contains("worker ready"))
    });
    let stopped = world.xebec(&["daemon", "stop", "--force"]).output()?;
    keeper.wait()?;
    ready?;
    ensure!(stopped.status.success(), "{stopped:?}");
    let text = fs::read_to_string(&log)?;
    for line in text.lines() {
        let rest = line.strip_prefix('<').and_then(|line| line.split_once('>'));
        let (priority, rest) = rest.with_context(|| format!("no priority: {line:?}"))?;
        ensure!(matches!(priority, "3" | "4" | "6"), "{line:?}");
        let bare = !rest.contains('\u{1b}')
            && !rest.contains("INFO")
            && !rest.contains("T0")
            && !rest.contains("Z ");
        ensure!(bare, "{line:?}");
    }
    Ok(Outcome::Passed(
        text.lines().last().unwrap_or_default().to_owned(),
    ))
}
