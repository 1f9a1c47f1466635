//! Readiness probes: how to tell that a service is ready.
//!
//! A user writes a probe as one word: `port:80`, `http://127.0.0.1/health`, `log:ready to accept`,
//! `file:/run/app.sock`, `exec:pg_isready`, `exit`.
//!
//! This crate tries ports and URLs. Other probes need the container, so the caller tries them: files and commands in the container, lines
//! that it writes, its end.
//!
//! # Promises
//!
//! * A probe that is printed and read again is the same probe.
//! * Each call tries a port or a URL once, and ends within the time that it is given.
//!
//! # Crates that it may use
//!
//! No other crate of Xebec.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use regex::bytes::Regex;

/// How long one attempt waits for a connection. On the loopback interface it is made or refused at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long one attempt waits for an HTTP answer: a service that is still loading may be slow with its first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest part of an HTTP answer that is read. Only the status line counts.
const STATUS_LINE_LIMIT: usize = 1024;

/// Largest compiled pattern of a `log:` probe. Patterns that a person writes are far smaller.
const PATTERN_LIMIT: usize = 1 << 20;

/// An observation that shows that a service is ready.
#[derive(Clone, Debug)]
pub enum Probe {
    /// A TCP connection to this port of the container's loopback interface is accepted.
    Port(u16),
    /// A GET of this URL is answered with a status from 200 to 399.
    Http(HttpUrl),
    /// A line that the container writes, to standard output or standard error, matches.
    Log(LogPattern),
    /// The path exists in the container. Symbolic links are resolved as the container does.
    File(PathBuf),
    /// The command, run in the container, exits with 0.
    Exec(Vec<String>),
    /// The container exits with 0.
    Exit,
}

/// An `http` URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    host: String,
    port: u16,
    path: String,
    last: LastStatus,
}

/// The status with which a server answered last, 0 if none did. All copies of a probe share it; two probes are the same whatever
/// came of them.
#[derive(Clone, Debug, Default)]
struct LastStatus(Arc<AtomicU16>);

impl PartialEq for LastStatus {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LastStatus {}

/// A regular expression (syntax of the `regex` crate) that is searched for in each line.
#[derive(Clone, Debug)]
pub struct LogPattern(Regex);

impl LogPattern {
    /// Whether a line, without its end, matches.
    pub fn is_in(&self, line: &[u8]) -> bool {
        self.0.is_match(line)
    }
}

/// Not a probe.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "probe {probe:?}: {reason} (probes are port:N, http://HOST:PORT/PATH, log:REGEX, file:/PATH, exec:COMMAND, exit)"
)]
pub struct ProbeParseError {
    probe: String,
    reason: String,
}

impl FromStr for Probe {
    type Err = ProbeParseError;

    fn from_str(text: &str) -> Result<Self, ProbeParseError> {
        parse(text).map_err(|reason| ProbeParseError {
            probe: text.to_owned(),
            reason,
        })
    }
}

fn parse(text: &str) -> Result<Probe, String> {
    if text == "exit" {
        return Ok(Probe::Exit);
    }
    let (kind, rest) = text.split_once(':').ok_or("there is no such probe")?;
    match kind {
        "port" => match rest.parse() {
            Ok(port) if port > 0 => Ok(Probe::Port(port)),
            _ => Err("a port is a number from 1 to 65535".into()),
        },
        "http" => rest
            .strip_prefix("//")
            .ok_or_else(|| "write it as http://HOST:PORT/PATH".into())
            .and_then(http),
        "https" => {
            Err("only plain http is supported; use exec: with a program of the image, or port:".into())
        }
        "log" if rest.is_empty() => Err("an empty pattern matches everything".into()),
        "log" => match regex::bytes::RegexBuilder::new(rest)
            .size_limit(PATTERN_LIMIT)
            .build()
        {
            Ok(pattern) => Ok(Probe::Log(LogPattern(pattern))),
            Err(error) => Err(format!("the pattern is not a regular expression: {error}")),
        },
        "file" if rest.starts_with('/') && !rest.contains('\0') => Ok(Probe::File(rest.into())),
        "file" => Err("the path must be absolute".into()),
        "exec" => exec(rest),
        _ => Err("there is no such probe".into()),
    }
}

/// A JSON array is the command itself. Other text is a script for the image's shell, as in a Dockerfile.
fn exec(text: &str) -> Result<Probe, String> {
    let args = if text.trim_start().starts_with('[') {
        serde_json::from_str(text)
            .map_err(|error| format!("the command is not a JSON array of strings: {error}"))?
    } else if text.trim().is_empty() {
        Vec::new()
    } else {
        vec!["/bin/sh".to_owned(), "-c".to_owned(), text.to_owned()]
    };
    match args.iter().any(|arg| arg.contains('\0')) {
        true => Err("the command holds a NUL byte".into()),
        false if args.is_empty() => Err("the command is empty".into()),
        false => Ok(Probe::Exec(args)),
    }
}

fn http(rest: &str) -> Result<Probe, String> {
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    if rest.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
        return Err("a URL holds neither spaces nor control characters".into());
    }
    if authority.contains('@') {
        return Err("a user name in the URL is not supported; use exec:".into());
    }
    let (host, port) = match authority.rsplit_once(':') {
        // A colon inside brackets belongs to the address.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port = match port {
        None => 80,
        Some(port) => port
            .parse()
            .ok()
            .filter(|&port| port > 0)
            .ok_or("the port is a number from 1 to 65535")?,
    };
    if host.is_empty() {
        return Err("the URL names no host".into());
    }
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    Ok(Probe::Http(HttpUrl {
        host: host.to_owned(),
        port,
        path,
        last: LastStatus::default(),
    }))
}

/// In the form that [`Probe::from_str`] reads.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::Port(port) => write!(f, "port:{port}"),
            Probe::Http(HttpUrl { host, port, path, .. }) => write!(f, "http://{host}:{port}{path}"),
            Probe::Log(LogPattern(pattern)) => write!(f, "log:{pattern}"),
            Probe::File(path) => write!(f, "file:{}", path.display()),
            Probe::Exec(args) => match args.as_slice() {
                [shell, dash_c, script] if shell == "/bin/sh" && dash_c == "-c" => write!(f, "exec:{script}"),
                args => write!(f, "exec:{}", serde_json::json!(args)),
            },
            Probe::Exit => write!(f, "exit"),
        }
    }
}

/// The results of probes that have not succeeded, in words.
pub fn unsuccessful<'a>(probes: impl Iterator<Item = &'a Probe>) -> String {
    let (mut unseen, mut answered) = (Vec::new(), Vec::new());
    for probe in probes {
        match probe {
            Probe::Http(url) if url.last.0.load(Ordering::Relaxed) != 0 => {
                let status = url.last.0.load(Ordering::Relaxed);
                answered.push(format!("{probe} answered with status {status}"));
            }
            probe => unseen.push(probe.to_string()),
        }
    }
    let unseen = (!unseen.is_empty()).then(|| format!("{} not seen", unseen.join(", ")));
    let parts: Vec<String> = unseen.into_iter().chain(answered).collect();
    parts.join("; ")
}

/// Whether a server accepts connections at this port of the loopback interface.
pub fn port_accepts(port: u16) -> bool {
    port_accepts_within(port, CONNECT_TIMEOUT)
}

/// The same with a timeout for each address.
pub fn port_accepts_within(port: u16, timeout: Duration) -> bool {
    let loopback = [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::from(Ipv6Addr::LOCALHOST),
    ];
    loopback
        .iter()
        .any(|&address| connect(SocketAddr::new(address, port), timeout).is_some())
}

fn connect(address: SocketAddr, timeout: Duration) -> Option<TcpStream> {
    TcpStream::connect_timeout(&address, timeout)
        .ok()
        .filter(|stream| !is_to_itself(stream))
}

/// A port without a listener can still "accept": the kernel may choose the same port for this end, and TCP
/// then establishes a connection of the port with itself (RFC 9293, simultaneous open).
fn is_to_itself(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) => local == peer,
        // The other end has closed the connection already. A service that does so is not ready.
        _ => true,
    }
}

impl HttpUrl {
    /// Whether the service answers with a status from 200 to 399.
    pub fn is_ready(&self) -> bool {
        self.is_ready_within(ANSWER_TIMEOUT)
    }

    /// The same with a timeout for each address.
    pub fn is_ready_within(&self, timeout: Duration) -> bool {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        let addresses = (bare, self.port).to_socket_addrs().into_iter().flatten();
        addresses.into_iter().any(|address| {
            let status = connect(address, timeout.min(CONNECT_TIMEOUT))
                .and_then(|stream| self.status(stream, timeout).ok().flatten());
            if let Some(status) = status {
                self.last.0.store(status, Ordering::Relaxed);
            }
            matches!(status, Some(200..=399))
        })
    }

    fn status(&self, mut stream: TcpStream, timeout: Duration) -> io::Result<Option<u16>> {
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        let Self { host, port, path, .. } = self;
        let port = if *port == 80 {
            String::new()
        } else {
            format!(":{port}")
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}{port}\r\nUser-Agent: xebec-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut line = Vec::new();
        let mut buffer = [0_u8; STATUS_LINE_LIMIT];
        while !line.contains(&b'\n') && line.len() < STATUS_LINE_LIMIT {
            match stream.read(&mut buffer)? {
                0 => break,
                length => line.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            }
        }
        Ok(status_of(&line))
    }
}

/// `HTTP/1.1 200 OK` (RFC 9112, section 4).
fn status_of(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|&byte| byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    let status = words.next()?.trim();
    if status.len() == 3 {
        status.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
