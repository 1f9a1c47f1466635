//! Answers of plugins (CNI specification, section 5).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The addresses of a container in its network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// Its addresses with the lengths of their subnets, as `10.4.0.2/24`.
    pub addresses: Vec<String>,
    /// The host's address in the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The hardware address of its interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// Most addresses that are noted: a container of one network has one or two.
const MOST: usize = 16;

/// Longest hardware address: 20 bytes.
const MOST_OF_MAC: usize = 59;

impl Addresses {
    /// The addresses in the last plugin's result. Members that have another form are left out: these texts are shown on terminals.
    pub(crate) fn of(result: &Value) -> Self {
        let list = |key: &str| result.get(key).and_then(Value::as_array).into_iter().flatten();
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let addresses = list("ips").filter_map(|ip| text(ip, "address"));
        let addresses = addresses.filter(|address| read(address).is_some());
        let mut gateways = list("ips").filter_map(|ip| text(ip, "gateway"));
        // Interfaces of the container are those in a sandbox; the others are the host's.
        let mut own =
            list("interfaces").filter(|one| text(one, "sandbox").is_some_and(|path| !path.is_empty()));
        Addresses {
            addresses: addresses.take(MOST).collect(),
            gateway: gateways.find(|gateway| gateway.parse::<IpAddr>().is_ok()),
            mac: own.find_map(|one| text(one, "mac").filter(|mac| is_hardware_address(mac))),
        }
    }

    /// The addresses alone.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().filter_map(|address| read(address))
    }
}

/// The address of `10.4.0.2/24`. Some plugins leave the length of the subnet out.
fn read(address: &str) -> Option<IpAddr> {
    let (address, length) = match address.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (address, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let fits = |length: &str| length.parse::<u8>().is_ok_and(|length| length <= longest);
    length.is_none_or(fits).then_some(address)
}

/// Whether this is hexadecimal digits and colons, as `1e:62:c6:39:90:d5`. InfiniBand's have 20 bytes.
fn is_hardware_address(text: &str) -> bool {
    (1..=MOST_OF_MAC).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
}

/// The error message of a plugin that failed. If its output has none, this is what it wrote to standard error, and how it ended.
pub(crate) fn failure(output: &[u8], errors: &[u8], ended: &str) -> String {
    let said: Option<Value> = serde_json::from_slice(output).ok();
    let text = |key: &str| {
        said.as_ref()?
            .get(key)?
            .as_str()
            .map(one_line)
            .filter(|text| !text.is_empty())
    };
    match (text("msg"), text("details")) {
        (Some(message), Some(details)) => format!("{message} ({details})"),
        (Some(message), None) => message,
        _ => match one_line(&String::from_utf8_lossy(errors)) {
            written if written.is_empty() => format!("it ended with {ended}"),
            written => format!("{written} (it ended with {ended})"),
        },
    }
}

/// How much of a message is shown: the plugins' own have a line.
const MOST_SHOWN: usize = 1000;

/// A text in one line, without characters that a terminal would act on.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let line = words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    match line.char_indices().nth(MOST_SHOWN) {
        None => line,
        Some((end, _)) => line.get(..end).unwrap_or_default().to_owned() + "…",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_read_from_results_of_each_version() {
        let result = json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                { "name": "xebec0", "mac": "5a:a3:c3:f7:8e:8e" },
                { "name": "eth0", "mac": "1e:62:c6:39:90:d5", "sandbox": "/run/netns/a" }
            ],
            "ips": [{ "version": "4", "interface": 1, "address": "10.4.0.2/24", "gateway": "10.4.0.1" }]
        });
        let found = Addresses::of(&result);
        assert_eq!(found.addresses, ["10.4.0.2/24"]);
        assert_eq!(found.gateway.as_deref(), Some("10.4.0.1"));
        assert_eq!(found.mac.as_deref(), Some("1e:62:c6:39:90:d5"));
        assert_eq!(found.ips().collect::<Vec<_>>(), [IpAddr::from([10, 4, 0, 2])]);
        for odd in [
            json!(null),
            json!([]),
            json!({ "ips": 1 }),
            json!({ "ips": [1, { "address": "x" }] }),
        ] {
            assert_eq!(Addresses::of(&odd), Addresses::default());
        }
    }

    #[test]
    fn what_is_no_address_is_left_out() {
        let result = json!({
            "interfaces": [
                { "mac": "\u{1b}[2J", "sandbox": "/a" },
                { "mac": "1e:62:c6:39:90:d5", "sandbox": "/a" }
            ],
            "ips": [{ "address": "10.4.0.2/\u{1b}[2J" }, { "address": "10.4.0.3/33" }, { "address": "10.4.0.4/24/x" },
                { "address": "fd00::2/64", "gateway": "10.4.0.1\n" }, { "address": "10.4.0.5" }]
        });
        let found = Addresses::of(&result);
        assert_eq!(found.addresses, ["fd00::2/64", "10.4.0.5"]);
        assert_eq!(found.gateway, None);
        assert_eq!(found.mac.as_deref(), Some("1e:62:c6:39:90:d5"));
    }

    #[test]
    fn a_failure_is_a_line_of_what_the_plugin_said() {
        let said = br#"{"code":999,"msg":"failed to\nopen netns \u001b[31m","details":"more"}"#;
        assert_eq!(
            failure(said, b"", "exit status 1"),
            "failed to open netns [31m (more)"
        );
        assert_eq!(
            failure(b"", b" oh\nno ", "exit status 2"),
            "oh no (it ended with exit status 2)"
        );
        assert_eq!(failure(b"{}", b"", "signal 9"), "it ended with signal 9");
        let long = format!("{{\"msg\":\"{}\"}}", "é".repeat(5000));
        assert_eq!(failure(long.as_bytes(), b"", "").chars().count(), MOST_SHOWN + 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!failure(&bytes, &bytes, "exit status 1").contains('\n'));
            if let Ok(value) = serde_json::from_slice::<Value>(&bytes) {
                let _ = Addresses::of(&value);
            }
        }
    }
}
