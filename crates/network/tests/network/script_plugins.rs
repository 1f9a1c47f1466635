//! The order of plugins, what they get, and what is done when one fails.

use std::fs;

use serde_json::{Value, json};
use xebec_network::{Attaching, Attachment, NetworkError, PortRequest};

use crate::isolation::{Case, isolated};

/// Notes each call with what it got, and answers with an address.
const GOOD: &str = r#"input=$(cat)
log=$(dirname "$0")/../calls
printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$(basename "$0")" "$CNI_COMMAND" "$CNI_CONTAINERID" "$CNI_NETNS" "$CNI_ARGS" "$input" >> "$log"
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"x"}],"ips":[{"address":"10.4.0.2/24","gateway":"10.4.0.1"}]}'
exit 0"#;

/// As a plugin fails: with an object on standard output.
const BAD: &str = r#"cat >/dev/null
echo "$(basename "$0") $CNI_COMMAND" >> "$(dirname "$0")/../calls"
[ "$CNI_COMMAND" = ADD ] || exit 0
printf '%s\n' '{"code":999,"msg":"no room\nleft"}'
exit 1"#;

/// A definition with these plugins.
fn define(case: &Case, name: &str, plugins: &[Value]) {
    let directory = case.directory.join("root/networks");
    fs::create_dir_all(&directory).unwrap();
    let list = json!({ "cniVersion": "1.0.0", "name": name, "plugins": plugins });
    fs::write(directory.join(format!("{name}.conflist")), list.to_string()).unwrap();
}

fn calls(case: &Case) -> Vec<Vec<String>> {
    let text = fs::read_to_string(case.directory.join("calls")).unwrap_or_default();
    text.lines()
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

#[test]
fn plugins_are_called_in_order_and_get_what_the_specification_says() {
    let name = "script_plugins::plugins_are_called_in_order_and_get_what_the_specification_says";
    isolated(name, &[("one", GOOD), ("two", GOOD)], |case| {
        let plugins = [
            json!({ "type": "one", "ipam": { "type": "host-local" }, "own": 1 }),
            json!({ "type": "two", "capabilities": { "portMappings": true } }),
        ];
        define(case, "web", &plugins);
        let mut wish = case.wish("box", "web");
        let id = wish.id.clone();
        wish.ports = PortRequest::parse("8080:80").unwrap();
        wish.ip = Some([10, 4, 0, 2].into());
        let mut attaching = Attaching::begin(&case.places(), wish).unwrap();
        let namespace = attaching.namespace();
        let inode = attaching.attachment().namespace.unwrap();
        attaching.finish().unwrap();
        assert_eq!(
            attaching.attachment().addresses.as_ref().unwrap().addresses,
            ["10.4.0.2/24"]
        );
        assert!(
            case.hosts("box").contains("10.4.0.2\tbox\n"),
            "{}",
            case.hosts("box")
        );
        let recorded = Attachment::read(&case.places(), &id).unwrap().unwrap();
        assert_eq!(&recorded, attaching.attachment());
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::metadata(&namespace).unwrap().ino(), inode);
        attaching.close().unwrap();
        let calls = calls(case);
        let shown: Vec<&[String]> = calls.iter().map(|call| &call[..2]).collect();
        assert_eq!(
            shown,
            [["one", "ADD"], ["two", "ADD"], ["two", "DEL"], ["one", "DEL"]]
        );
        for call in &calls {
            assert_eq!((&call[2], &call[3]), (&id, &namespace.display().to_string()));
        }
        assert_eq!(calls[0][4], "IgnoreUnknown=1;IP=10.4.0.2");
        let input = |index: usize| serde_json::from_str::<Value>(&calls[index][5]).unwrap();
        let first = input(0);
        assert_eq!(
            (&first["name"], &first["cniVersion"], &first["own"]),
            (&json!("web"), &json!("1.0.0"), &json!(1))
        );
        assert!(
            first["ipam"]["dataDir"]
                .as_str()
                .unwrap()
                .ends_with("run/networks/ipam")
        );
        assert!(first.get("prevResult").is_none() && first.get("runtimeConfig").is_none());
        let ports =
            json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "0.0.0.0" }]);
        for index in [1, 2] {
            assert_eq!(input(index)["runtimeConfig"]["portMappings"], ports);
            assert_eq!(input(index)["prevResult"]["ips"][0]["address"], "10.4.0.2/24");
        }
        case.assert_clean();
    });
}

#[test]
fn after_a_failure_all_is_taken_back() {
    let name = "script_plugins::after_a_failure_all_is_taken_back";
    isolated(name, &[("good", GOOD), ("bad", BAD)], |case| {
        define(
            case,
            "web",
            &[
                json!({ "type": "good" }),
                json!({ "type": "bad" }),
                json!({ "type": "good" }),
            ],
        );
        let mut attaching = Attaching::begin(&case.places(), case.wish("box", "web")).unwrap();
        let error = attaching.finish().unwrap_err().to_string();
        assert_eq!(
            error,
            "network web: the CNI plugin bad could not attach the container: no room left"
        );
        attaching.close().unwrap();
        let calls: Vec<String> = calls(case)
            .iter()
            .map(|call| call[..call.len().min(2)].join(" "))
            .collect();
        assert_eq!(calls, ["good ADD", "bad ADD", "good DEL", "bad DEL", "good DEL"]);
        case.assert_clean();
    });
}

#[test]
fn what_a_killed_process_left_is_found_by_its_record() {
    let name = "script_plugins::what_a_killed_process_left_is_found_by_its_record";
    isolated(name, &[("good", GOOD)], |case| {
        define(case, "web", &[json!({ "type": "good" })]);
        let places = case.places();
        let wish = case.wish("box", "web");
        let id = wish.id.clone();
        let mut attaching = Attaching::begin(&places, wish).unwrap();
        attaching.finish().unwrap();
        std::mem::forget(attaching);
        let networks = xebec_network::Networks::new(&places);
        let refused = networks.remove("web").unwrap_err();
        assert!(
            matches!(refused, NetworkError::Used { ref containers, .. } if containers == &["box"]),
            "{refused}"
        );
        // Something else in the place of the namespace is not touched.
        let at = case.directory.join("run/netns").join(&id);
        let other = std::process::Command::new("mount")
            .args(["--bind", "/proc/self/ns/uts"])
            .arg(&at)
            .status();
        assert!(other.unwrap().success());
        assert!(matches!(places.detach(&id), Err(NetworkError::NotOurs { .. })));
        assert!(
            std::process::Command::new("umount")
                .arg(&at)
                .status()
                .unwrap()
                .success()
        );
        places.detach(&id).unwrap();
        places.detach(&id).unwrap();
        case.assert_clean();
        networks.remove("web").unwrap();
    });
}

#[test]
fn a_plugin_that_is_missing_is_named_with_its_package() {
    let name = "script_plugins::a_plugin_that_is_missing_is_named_with_its_package";
    isolated(name, &[("good", GOOD)], |case| {
        for plugins in [
            [json!({ "type": "no-such-plugin" })],
            [json!({ "type": "good", "ipam": { "type": "no-such-plugin" } })],
        ] {
            define(case, "web", &plugins);
            let error = Attaching::begin(&case.places(), case.wish("box", "web"))
                .unwrap_err()
                .to_string();
            for word in [
                "no-such-plugin",
                "network web",
                "containernetworking-plugins",
                "--network host",
            ] {
                assert!(error.contains(word), "{error}");
            }
        }
        assert!(calls(case).is_empty());
        case.assert_clean();
    });
}

#[test]
fn ports_that_come_later_are_waited_for() {
    let name = "script_plugins::ports_that_come_later_are_waited_for";
    isolated(name, &[("one", GOOD), ("two", GOOD)], |case| {
        let publisher = json!({ "type": "two", "capabilities": { "portMappings": true } });
        define(case, "web", &[json!({ "type": "one" }), publisher]);
        let wish = xebec_network::Wish {
            more_ports: true,
            ..case.wish("box", "web")
        };
        let mut attaching = Attaching::begin(&case.places(), wish).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(calls(case).len(), 1, "the second plugin was not to be called yet");
        attaching
            .publish(&PortRequest::parse("127.0.0.1::80").unwrap())
            .unwrap();
        attaching.finish().unwrap();
        assert_eq!(attaching.attachment().ports[0].container_port, 80);
        assert!(calls(case)[1][5].contains("\"containerPort\":80"));
        attaching.close().unwrap();
        // Nobody tells any.
        let wish = xebec_network::Wish {
            more_ports: true,
            ..case.wish("box", "web")
        };
        Attaching::begin(&case.places(), wish).unwrap().close().unwrap();
        case.assert_clean();
    });
}

/// Takes its time to attach.
const SLOW: &str = r#"cat >/dev/null
[ "$CNI_COMMAND" = ADD ] && sleep 1
echo "slow $CNI_COMMAND" >> "$(dirname "$0")/../calls"
echo '{}'"#;

#[test]
fn a_plugin_that_a_killed_command_left_is_waited_for() {
    let name = "script_plugins::a_plugin_that_a_killed_command_left_is_waited_for";
    isolated(name, &[("slow", SLOW)], |case| {
        define(case, "web", &[json!({ "type": "slow" })]);
        let places = case.places();
        let wish = case.wish("box", "web");
        let id = wish.id.clone();
        let attaching = Attaching::begin(&places, wish).unwrap();
        let input = case
            .directory
            .join(format!("run/networks/attachments/{id}.input"));
        while !input.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        std::mem::forget(attaching);
        places.detach(&id).unwrap();
        assert_eq!(calls(case), [["slow ADD"], ["slow DEL"]]);
        case.assert_clean();
    });
}
