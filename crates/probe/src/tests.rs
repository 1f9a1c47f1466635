use std::net::TcpListener;
use std::thread;

use super::*;

#[test]
fn probes_are_written_as_they_are_read() {
    for (text, shown) in [
        ("port:80", "port:80"),
        ("http://localhost", "http://localhost:80/"),
        ("http://127.0.0.1:8080/a/b?c=d#e", "http://127.0.0.1:8080/a/b?c=d"),
        ("http://[::1]:81/x", "http://[::1]:81/x"),
        ("http://[::1]", "http://[::1]:80/"),
        ("http://h?q", "http://h:80/?q"),
        ("log:ready: .* (accept|serve)", "log:ready: .* (accept|serve)"),
        ("file:/run/a b", "file:/run/a b"),
        ("exec:pg_isready -q | cat", "exec:pg_isready -q | cat"),
        (r#"exec:["/probe", "a b"]"#, r#"exec:["/probe","a b"]"#),
        ("exit", "exit"),
    ] {
        let probe: Probe = text.parse().unwrap();
        assert_eq!(probe.to_string(), shown);
        let again: Probe = shown.parse().unwrap();
        assert_eq!(again.to_string(), shown, "what is shown can be given");
    }
}

#[test]
fn parse_errors_have_reasons() {
    for (text, why) in [
        ("", "no such probe"),
        ("ready", "no such probe"),
        ("ports:80", "no such probe"),
        ("port:", "from 1 to 65535"),
        ("port:0", "from 1 to 65535"),
        ("port:65536", "from 1 to 65535"),
        ("port:http", "from 1 to 65535"),
        ("http:80", "http://HOST"),
        ("http://", "no host"),
        ("http://:80/", "no host"),
        ("http://h:0/", "from 1 to 65535"),
        ("http://h:99999/", "from 1 to 65535"),
        ("http://u:p@h/", "user name"),
        ("http://h/a b", "spaces"),
        ("http://h/\r\nEvil: 1", "spaces"),
        ("https://h/", "plain http"),
        ("log:", "empty pattern"),
        ("log:(", "not a regular expression"),
        ("log:(a{1000}){1000}", "not a regular expression"),
        ("file:relative", "absolute"),
        ("file:", "absolute"),
        ("exec:", "empty"),
        ("exec:[]", "empty"),
        ("exec:[1]", "JSON array"),
        ("exec:[\"a\"", "JSON array"),
    ] {
        let error = text.parse::<Probe>().unwrap_err().to_string();
        assert!(
            error.contains(why) && error.contains("probes are port:N"),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn only_a_status_line_is_a_status() {
    assert_eq!(status_of(b"HTTP/1.1 200 OK\r\nA: b\r\n"), Some(200));
    assert_eq!(status_of(b"HTTP/1.0 302\r\n"), Some(302));
    for wrong in [
        &b""[..],
        b"\n",
        b"HTTP/1.1",
        b"HTTP/1.1 20",
        b"HTTP/2 200 OK",
        b"SSH-2.0-x 200 y",
        b"HTTP/1.1 2000",
    ] {
        assert_eq!(status_of(wrong), None);
    }
}

/// Answers each connection with one of `answers`, then ends.
fn serve(answers: Vec<&'static [u8]>) -> (u16, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let asked = answers.into_iter().map(|answer| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            // In two pieces: an answer need not come in one.
            let (start, end) = answer.split_at(answer.len() / 2);
            let _ = stream.write_all(start).and_then(|()| stream.flush());
            thread::sleep(Duration::from_millis(5));
            let _ = stream.write_all(end);
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        asked.collect()
    });
    (port, server)
}

#[test]
fn an_http_probe_wants_a_good_status() {
    let answers: Vec<&[u8]> = vec![
        b"HTTP/1.1 503 Not yet\r\n\r\n",
        b"garbage\r\n",
        b"",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 301 Moved\r\n\r\n",
    ];
    let (port, server) = serve(answers);
    let Probe::Http(url) = format!("http://127.0.0.1:{port}/health?deep=1").parse().unwrap() else {
        panic!()
    };
    let seen: Vec<bool> = (0..6).map(|_| url.is_ready()).collect();
    assert_eq!(seen, [false, false, false, false, true, true]);
    let asked = server.join().unwrap();
    assert!(
        asked[0].starts_with("GET /health?deep=1 HTTP/1.1\r\n"),
        "{}",
        asked[0]
    );
    assert!(
        asked[0].contains(&format!("Host: 127.0.0.1:{port}\r\n")),
        "{}",
        asked[0]
    );
}

#[test]
fn an_answer_with_a_bad_status_is_told() {
    let (port, server) = serve(vec![b"HTTP/1.1 404 Not Found\r\n\r\n"]);
    let probes: Vec<Probe> = [
        format!("http://127.0.0.1:{port}/x"),
        "port:1".to_owned(),
        "exit".to_owned(),
    ]
    .map(|text| text.parse().unwrap())
    .into();
    assert_eq!(
        unsuccessful(probes.iter()),
        format!("http://127.0.0.1:{port}/x, port:1, exit not seen")
    );
    // A thread of its own tries a copy.
    let Probe::Http(url) = probes[0].clone() else {
        panic!()
    };
    assert!(!url.is_ready());
    server.join().unwrap();
    assert_eq!(
        unsuccessful(probes.iter()),
        format!("port:1, exit not seen; http://127.0.0.1:{port}/x answered with status 404")
    );
}

#[test]
fn a_port_probe_wants_a_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(port_accepts(port));
    drop(listener);
    assert!(!port_accepts(port));
}

#[test]
fn a_connection_with_itself_is_no_listener() {
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket};
    let end = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&end, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let own: SocketAddr = getsockname(&end).unwrap().try_into().unwrap();
    connect(&end, &own).unwrap();
    assert!(
        is_to_itself(&TcpStream::from(end)),
        "TCP established it without a listener"
    );

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(!is_to_itself(
        &TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    ));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(port:|http://|log:|file:|exec:|)\\PC{0,40}") {
        if let Ok(probe) = text.parse::<Probe>() {
            let shown = probe.to_string();
            proptest::prop_assert_eq!(shown.parse::<Probe>().map(|probe| probe.to_string()), Ok(shown));
        }
    }

    #[test]
    fn no_answer_panics(answer in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
        let _ = status_of(&answer);
    }
}
