//! HTTP/1.1 as clients of a registry speak it, over one connection that is kept while it works.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a registry may say nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one address.
pub(crate) struct Client {
    address: String,
    stream: Option<BufReader<TcpStream>>,
}

/// The answer of a registry.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find_map(|(own, value)| (own == name).then_some(value.as_str()))
    }
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            stream: None,
        }
    }

    /// Sends a request and reads its answer. After an error the next request has a new connection.
    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> io::Result<Answer> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let (stream, answer) = self.exchange(stream, (method, path, headers), body)?;
        if answer.header("connection") != Some("close") {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(BufReader::new(stream))
    }

    fn exchange(
        &self,
        mut stream: BufReader<TcpStream>,
        (method, path, headers): (&str, &str, &str),
        body: &[u8],
    ) -> io::Result<(BufReader<TcpStream>, Answer)> {
        let (address, length) = (&self.address, body.len());
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{headers}\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        stream.get_mut().write_all(&request)?;
        let mut answer = read_head(&mut stream)?;
        let length = answer.header("content-length").and_then(|text| text.parse().ok());
        if method != "HEAD" {
            let mut body = vec![0; length.unwrap_or(0)];
            stream.read_exact(&mut body)?;
            answer.body = body;
        }
        Ok((stream, answer))
    }
}

fn read_head(stream: &mut impl BufRead) -> io::Result<Answer> {
    let first = read_line(stream)?;
    let status = first.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("{first:?} begins no answer")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    Ok(Answer {
        status,
        headers,
        body: Vec::new(),
    })
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}
