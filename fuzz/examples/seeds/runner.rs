//! What a host keeps of networks, containers and their past.

use std::io;

use serde_json::json;

use crate::archives::archives;
use crate::output::{Failure, LAYER, put, put_texts};
use xebec_testkit::tar::TarBuilder;

/// The files that a host keeps of networks, containers and their past.
pub(crate) fn runner() -> Result<(), Failure> {
    let definition = json!({"cniVersion": "1.0.0", "name": "web", "plugins": [
        {"type": "bridge", "bridge": "xebec0", "isGateway": true, "ipMasq": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.4.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "firewall", "ingressPolicy": "same-bridge"},
        {"type": "portmap", "capabilities": {"portMappings": true}}]});
    put("network_definition", "bridge", definition.to_string().as_bytes())?;
    let record = json!({"id": "web-0123456789ab", "container": "web", "network": "web", "definition": definition,
        "namespace": 4_026_532_281_u64, "names": ["web", "alias"], "hosts": "/run/hosts",
        "ports": [], "addresses": {"addresses": ["10.4.0.2/24"], "gateway": "10.4.0.1", "mac": "1e:62:c6:39:90:d5"},
        "result": {"cniVersion": "1.0.0", "ips": [{"interface": 1, "address": "10.4.0.2/24"}]}});
    put("network_record", "attached", record.to_string().as_bytes())?;
    put_texts(
        "network_option",
        &[
            "127.0.0.1:8080-8083:80-83/udp",
            "10.4.0.0/24",
            "db=[2001:db8::1]",
            "host:host-gateway",
        ],
    )?;
    put_texts(
        "container_log",
        &[
            "2016-10-06T00:17:09.669794202Z stdout F one\n2016-10-06T00:17:10Z stderr P two \n2016-10-06T00:17:10.5Z stderr F three\n",
        ],
    )?;
    put_texts(
        "history",
        &[
            r#"{"kind":"wait","began_ms":1,"waited_ms":2.5,"state":"served","pid":7,"comm":"nginx","container":"web","layer":null,"file":"/etc/nginx.conf","offset":0,"count":4096,"spans":1,"joined":0,"retries":0,"waited_for_ms":{"transfer":2.5},"phase":"transfer","sources":["cache"],"problem":null}"#,
        ],
    )?;
    confinement()?;
    containers()?;
    put_texts(
        "network_result",
        &[
            r#"{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"1e:62:c6:39:90:d5","sandbox":"/run/netns/a"}],"ips":[{"interface":1,"address":"10.4.0.2/24","gateway":"10.4.0.1"}]}"#,
            r#"{"code":999,"msg":"failed to open netns","details":"more"}"#,
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\nnameserver 10.6.0.2\neth0\t0001A8C0\t0101A8C0\t0001\t0\t0\t0\t00FFFFFF\n",
        ],
    )?;
    for (name, archive) in archives() {
        put("copy_tar", name, &archive)?;
    }
    let mut tar = TarBuilder::new();
    tar.file("a/out", b"through a link");
    put("copy_tar", "through-a-link", &tar.into_bytes())?;
    Ok(())
}

/// The options that confine a container, and files of variables.
fn confinement() -> io::Result<()> {
    put_texts(
        "container_option",
        &[
            "1.5\n0-3,8\n100\non-failure:3\nnet.core.somaxconn=1024\nlabel=type:svirt_t\n/run:size=64m,mode=1777,uid=5,exec\n",
            "NET_ADMIN\n/dev/fuse:/dev/x:rwm\n-1\n64m\nnofile=1024:-1\n/run:size=10%,nr_inodes=5k\nunless-stopped\n",
            "\u{feff}A=1\n# no\n\n  B=x \nC=\"quoted\"\nOWN\nD=a=b\r\n",
        ],
    )?;
    // As the fuzzer divides bytes into two files: both, and the length of the first at the end.
    let (users, groups) = (
        "root:x:0:0:root:/root:/bin/sh\nwww:x:33:33::/var/www:/bin/sh\n",
        "data:x:50:www,root\nwww:x:33:\n",
    );
    let mut files = [users, groups].concat().into_bytes();
    files.push(users.len() as u8);
    put("image_users", "two-lists", &files)
}

/// The record of a container, and the messages between a command and the daemon.
fn containers() -> io::Result<()> {
    let saved = json!({"version": 1, "id": "0123456789ab", "image": "web:1", "manifest": LAYER, "command": ["nginx"],
        "created_ms": 1, "started_ms": 2, "finished_ms": null, "status": "running", "exit_code": null, "reason": null,
        "oom_killed": false, "restart": "on-failure:3", "restarts": 1, "pause_ms": 100,
        "supervisor": {"pid": 7, "started": 9, "boot": "a"}, "labels": {"a": "b"}, "detached": true, "stop_signal": 3,
        "stop_timeout_ms": 10_000, "caller": {"arguments": ["run", "web:1"]}});
    put("container_record", "saved", saved.to_string().as_bytes())?;
    let record = json!({"id": "web", "image": "web:1", "pid": 7, "pid_started": 9, "has_begun": true, "supervisor": 8,
        "supervisor_started": 9, "namespace": 4_026_531_836_u64, "boot": "a", "control_group": "/xebec-web-0123456789ab",
        "runtime": "/usr/bin/runc", "view": "/run/view", "state": "/var/lib/xebec/containers/web", "rm": false,
        "is_kept": false, "created": 1, "command": ["nginx"]});
    put("container_record", "record", record.to_string().as_bytes())?;
    put_texts(
        "container_record",
        &[
            r#"[{"name":"data","anonymous":true,"target":"/srv"}]"#,
            r#"{"created":1,"anonymous":false,"labels":{"a":"b"}}"#,
        ],
    )?;
    put_texts(
        "request",
        &[
            r#"{"op":"explain","name":"web"}"#,
            r#"{"op":"collect","target":5,"dry_run":true}"#,
            r#"{"op":"start_over","holder":{"kind":"process","name":"web","pid":7,"start_time":9},"container":"web","ready_ms":5}"#,
            r#"{"reply":"progress","what":"pull","done":1,"total":2,"unit":"bytes"}"#,
            r#"{"reply":"notice","text":"read whole"}"#,
        ],
    )
}
