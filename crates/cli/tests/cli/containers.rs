//! Containers as `ps` and `inspect` show them, by their records.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use xebec_kernel::process::start_time;

use crate::program::{Program, text};

/// Writes the record of a container that has ended, with ports as earlier versions kept them.
fn keep(program: &Program, name: &str, id: &str) {
    let directory = program.root().join("containers").join(name);
    fs::create_dir_all(&directory).unwrap();
    let saved = json!({
        "version": 1, "id": id, "image": "registry.lan/app:1", "manifest": format!("sha256:{}", "1".repeat(64)),
        "command": ["sh", "-c", "exit 3"], "created_ms": 1_000_000, "started_ms": 2_000_000, "finished_ms": 3_000_250,
        "status": "exited", "exit_code": 3, "reason": null, "oom_killed": false, "restart": "on-failure:4", "restarts": 2,
        "pause_ms": null, "supervisor": null, "labels": {"tier": "front"}, "detached": true, "stop_signal": 15,
        "stop_timeout_ms": 10_000, "ports": ["0.0.0.0:8080->80/tcp"], "caller": {},
    });
    fs::write(directory.join("container.json"), saved.to_string()).unwrap();
}

/// The same of one that this command made, called in the parent of the root directory.
fn keep_made_by(program: &Program, name: &str, words: &[&str], env: &[&str]) {
    keep(program, name, "ab0000000003");
    let file = program
        .root()
        .join("containers")
        .join(name)
        .join("container.json");
    let mut saved: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    saved["caller"] = json!({
        "arguments": words, "env": env, "directory": program.root().parent().unwrap(), "docker_config": null,
    });
    fs::write(file, saved.to_string()).unwrap();
}

/// Writes the record of the image that these containers are of.
fn know_image(program: &Program) {
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let config = json!({"os": "linux", "config": {
        "Env": ["LANG=C", "PORT=80"], "Entrypoint": ["/entry"], "Cmd": ["serve"], "User": "app", "WorkingDir": "/srv",
        "ExposedPorts": {"80/tcp": {}},
    }});
    let record = json!({
        "references": ["registry.lan/app:1"], "manifest_digest": digest("1"),
        "media_type": "application/vnd.oci.image.manifest.v1+json", "manifest": "{}", "config": config.to_string(),
        "layers": [], "last_used": 1,
    });
    let images = program.root().join("images");
    fs::create_dir_all(&images).unwrap();
    fs::write(
        images.join(format!("{}.json", "1".repeat(64))),
        record.to_string(),
    )
    .unwrap();
}

/// Has this process be the container's, so that it runs.
fn run(program: &Program, name: &str) {
    let pid = i32::try_from(std::process::id()).unwrap();
    let started = start_time(pid).unwrap();
    let port = |host: u16, container: u16| json!({"hostPort": host, "containerPort": container, "protocol": "tcp", "hostIP": "0.0.0.0"});
    let record = json!({
        "id": name, "image": "registry.lan/app:1", "pid": pid, "pid_started": started, "has_begun": true,
        "supervisor": pid, "supervisor_started": started, "runtime": "runc", "view": "/", "state": "/", "rm": false,
        "network": {
            "name": "shop",
            "addresses": {"addresses": ["10.4.0.2/24"], "gateway": "10.4.0.1", "mac": "0a:00:00:00:00:02"},
            "ports": [port(8000, 8000), port(8001, 8001), port(8002, 8002), port(9000, 80)],
        },
        "created": 1000, "command": ["sh", "-c", "exit 3"],
    });
    let records = program.run().join("containers");
    fs::create_dir_all(&records).unwrap();
    fs::write(records.join(format!("{name}.json")), record.to_string()).unwrap();
}

/// `web` runs, `db` has ended.
fn two() -> Program {
    let program = Program::new();
    // With the permissions that it wants.
    program.output(&["ps"]);
    keep(&program, "db", "ab0000000002");
    keep(&program, "web", "ab0000000001");
    run(&program, "web");
    program
}

fn json_of(output: &Output) -> Value {
    let parsed = serde_json::from_slice(&output.stdout);
    assert!(parsed.is_ok(), "{output:?}");
    parsed.unwrap()
}

/// The words of the line that names a container.
fn row(listed: &str, name: &str) -> String {
    let of = |line: &&str| line.contains(&format!(" {name} "));
    listed.lines().find(of).unwrap_or_default().to_owned()
}

#[test]
fn published_ports_are_those_of_containers_that_run_and_ranges_are_short() {
    let program = two();
    let listed = text(&program.output(&["ps", "-a"]).stdout);
    let web = row(&listed, "web");
    let wanted = "0.0.0.0:8000-8002->8000-8002/tcp, 0.0.0.0:9000->80/tcp";
    assert!(web.ends_with(wanted) && web.contains("Up "), "{listed}");
    let db = row(&listed, "db");
    assert!(db.contains("Exited (3)") && !db.contains("8080"), "{listed}");
    let listed = json_of(&program.output(&["ps", "-a", "--json"]));
    let of = |name: &str| {
        let mut all = listed.as_array().into_iter().flatten();
        let found = all.find(|one| one["name"] == name);
        found.map(|one| one["ports"].clone()).unwrap_or_default()
    };
    assert_eq!(of("web").as_array().map(Vec::len), Some(4), "{listed}");
    assert_eq!(of("db"), json!([]), "{listed}");
    let inspected = json_of(&program.output(&["inspect", "db"]));
    assert_eq!(inspected[0]["ports"], json!([]), "{inspected}");
}

#[test]
fn the_last_containers_are_listed_also_if_they_have_ended() {
    let program = two();
    let ids = |words: &[&str]| {
        let output = program.output(&[&["ps", "-q"], words].concat());
        assert!(output.status.success(), "{output:?}");
        let listed = text(&output.stdout);
        listed.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = ids(&["-a"]);
    assert_eq!((all.len(), ids(&[]).len()), (2, 1), "{all:?}");
    assert_eq!(ids(&["-n", "9"]), all);
    assert_eq!(ids(&["-n", "1"]), all[..1]);
    assert_eq!(ids(&["-l"]), all[..1]);
    assert_eq!(ids(&["-n", "0"]).len(), 0);
}

#[test]
fn inspect_shows_by_dockers_names_what_a_container_was_made_with() {
    let program = two();
    know_image(&program);
    let words = "run -d --name made -e PORT=90 -v ./site:/site:ro -v data:/data --tmpfs /scratch:size=1m --mount type=tmpfs,target=/memory -p 8080:80 --memory 64m --cpus 1.5 \
                 --cap-drop ALL --cap-add CHOWN --read-only --rm=false -w /work registry.lan/app:1 other";
    let words: Vec<&str> = words.split_whitespace().collect();
    keep_made_by(&program, "made", &words, &["PORT=90"]);
    fs::create_dir_all(program.root().join("volumes/data/_data")).unwrap();
    let shown = json_of(&program.output(&["inspect", "made"]));
    let one = &shown[0];
    let site = program.root().parent().unwrap().join("site");
    let (site, data) = (site.to_str().unwrap(), program.root().join("volumes/data/_data"));
    for (place, value) in [
        ("/Config/Image", json!("registry.lan/app:1")),
        ("/Config/Env", json!(["PORT=90", "LANG=C"])),
        ("/Config/Cmd", json!(["other"])),
        ("/Config/Entrypoint", json!(["/entry"])),
        ("/Config/User", json!("app")),
        ("/Config/WorkingDir", json!("/work")),
        ("/Config/Labels", json!({"tier": "front"})),
        ("/HostConfig/RestartPolicy/Name", json!("on-failure")),
        ("/HostConfig/AutoRemove", json!(false)),
        (
            "/HostConfig/Binds",
            json!([format!("{site}:/site:ro"), "data:/data"]),
        ),
        (
            "/HostConfig/PortBindings",
            json!({"80/tcp": [{"HostIp": "", "HostPort": "8080"}]}),
        ),
        ("/HostConfig/Memory", json!(64 << 20)),
        ("/HostConfig/NanoCpus", json!(1_500_000_000_u64)),
        ("/HostConfig/CapAdd", json!(["CHOWN"])),
        ("/HostConfig/CapDrop", json!(["ALL"])),
        ("/HostConfig/ReadonlyRootfs", json!(true)),
        (
            "/Mounts/0",
            json!({"Type": "bind", "Source": site, "Destination": "/site", "Mode": "ro", "RW": false, "Propagation": "rprivate"}),
        ),
        (
            "/Mounts/1",
            json!({
                "Type": "volume", "Name": "data", "Source": data, "Driver": "local", "Destination": "/data", "Mode": "z", "RW": true,
                "Propagation": "",
            }),
        ),
        ("/Mounts/2/Destination", json!("/memory")),
        ("/Mounts/2/Type", json!("tmpfs")),
        ("/HostConfig/Tmpfs", json!({"/scratch": "size=1m"})),
        ("/HostConfig/MemorySwap", json!(128 << 20)),
        ("/HostConfig/ShmSize", json!(64 << 20)),
        ("/HostConfig/PidMode", json!("")),
        ("/HostConfig/PidsLimit", Value::Null),
        ("/HostConfig/GroupAdd", Value::Null),
        ("/Config/Hostname", json!("made")),
        ("/Config/ExposedPorts", json!({"80/tcp": {}})),
    ] {
        assert_eq!(one.pointer(place), Some(&value), "{place} of {one:#}");
    }
    let output = program.output(&["inspect", "-f", "{{json .HostConfig.Memory}}", "made"]);
    assert_eq!(text(&output.stdout), "67108864\n");
    // Of an image that is gone nothing is said, and of the directory that the command was called in nothing is needed.
    fs::remove_dir_all(program.root().join("images")).unwrap();
    let file = program.root().join("containers/made/container.json");
    let moved = fs::read_to_string(&file).unwrap();
    let parent = program.root().parent().unwrap().display().to_string();
    fs::write(
        &file,
        moved.replace(&format!("\"directory\":\"{parent}\""), "\"directory\":\"/gone\""),
    )
    .unwrap();
    let shown = json_of(&program.output(&["inspect", "made"]));
    let one = &shown[0];
    assert_eq!(one["Config"]["Env"], json!(["PORT=90"]), "{one:#}");
    assert_eq!(one["Config"].get("Entrypoint"), None);
    assert_eq!(one["HostConfig"]["Binds"][0], "/gone/site:/site:ro");
    // `network rm` names each container that cannot be started without the network.
    let networks = program.root().join("networks");
    fs::create_dir_all(&networks).unwrap();
    let words = ["run", "-d", "--network", "shop", "registry.lan/app:1"];
    keep_made_by(&program, "shops", &words, &[]);
    let create = program.output(&["network", "create", "shop"]);
    assert!(create.status.success(), "{create:?}");
    let output = program.output(&["network", "rm", "shop"]);
    let said = text(&output.stderr);
    assert!(
        output.status.success() && said.contains("note: shops, which does not run,"),
        "{said}"
    );
    assert!(!said.contains("made,"), "{said}");
    // A container of an earlier version shows the facts that are known.
    let shown = json_of(&program.output(&["inspect", "db"]));
    assert_eq!(shown[0]["Mounts"], json!([]));
    assert_eq!(shown[0]["Config"]["Image"], "registry.lan/app:1");
}

#[test]
fn inspect_shows_all_that_are_there_in_the_order_asked_and_names_the_others() {
    let program = two();
    let output = program.output(&["inspect", "web", "nosuch", "ab0000000002"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("\"nosuch\"") && said.contains("xebec ps -a"),
        "{said}"
    );
    let shown = json_of(&output);
    let names: Vec<&Value> = shown.as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["web", "db"]);
    let one = program.output(&["inspect", "--type", "container", "db"]);
    assert!(one.status.success());
    assert_eq!(json_of(&one), json!([shown[1]]));
    let several = program.output(&["inspect", "--type", "container", "none", "nosuch"]);
    let said = text(&several.stderr);
    assert_eq!(
        (several.status.code(), said.lines().count()),
        (Some(3), 2),
        "{said}"
    );
    let both = program.output(&["inspect", "--format", "{{.Nosuch}}", "nosuch", "web"]);
    let said = text(&both.stderr);
    assert_eq!(both.status.code(), Some(3), "{said}");
    assert!(
        said.contains("\"nosuch\"") && said.contains("no field .Nosuch"),
        "{said}"
    );
}

#[test]
fn a_format_prints_a_line_for_each_with_dockers_names_and_xebecs() {
    let program = two();
    let digest = format!("sha256:{}", "1".repeat(64));
    for (format, web, db) in [
        ("{{.State.Status}}", "running", "exited"),
        ("{{.State.Running}} {{.State.ExitCode}}", "true 0", "false 3"),
        ("{{.Name}} {{.Id}}", "web ab0000000001", "db ab0000000002"),
        ("{{.name}} {{.reason}}", "web <no value>", "db <no value>"),
        (
            "{{.State.StartedAt}}",
            "1970-01-01T00:33:20.000Z",
            "1970-01-01T00:33:20.000Z",
        ),
        ("{{.NetworkSettings.IPAddress}}", "10.4.0.2", ""),
        (
            "{{json .NetworkSettings.Networks.shop.Gateway}}",
            "\"10.4.0.1\"",
            "-",
        ),
        (
            "{{.Path}} {{json .Args}}",
            "sh [\"-c\",\"exit 3\"]",
            "sh [\"-c\",\"exit 3\"]",
        ),
        (
            "{{.Config.Image}} {{.Config.Labels}}",
            "registry.lan/app:1 map[tier:front]",
            "registry.lan/app:1 map[tier:front]",
        ),
        ("{{.Image}}", &digest, &digest),
        (
            "{{.HostConfig.RestartPolicy.Name}}:{{.HostConfig.RestartPolicy.MaximumRetryCount}} {{.RestartCount}}",
            "on-failure:4 2",
            "on-failure:4 2",
        ),
    ] {
        let names: &[&str] = if db == "-" { &["web"] } else { &["web", "db"] };
        let output = program.output(&[&["inspect", "-f", format], names].concat());
        let wanted = if db == "-" {
            format!("{web}\n")
        } else {
            format!("{web}\n{db}\n")
        };
        assert_eq!(text(&output.stdout), wanted, "{format}: {output:?}");
        assert!(output.status.success(), "{format}");
    }
    let ports = program.output(&["inspect", "--format", "{{json .NetworkSettings.Ports}}", "web"]);
    assert_eq!(
        json_of(&ports)["80/tcp"],
        json!([{"HostIp": "0.0.0.0", "HostPort": "9000"}])
    );
    let lines = text(
        &program
            .output(&["inspect", "--format", "json", "web", "db"])
            .stdout,
    );
    assert_eq!(lines.lines().count(), 2, "{lines}");
}

#[test]
fn a_format_of_ps_has_the_names_of_its_columns() {
    let program = two();
    let format = "{{.ID}} {{.Names}} {{.State}}\\t{{.Ports}}|{{.Labels}}|{{.Networks}}|{{.Command}}";
    let output = program.output(&["ps", "-a", "--format", format]);
    let wanted = "ab0000000001 web running\t0.0.0.0:8000-8002->8000-8002/tcp, 0.0.0.0:9000->80/tcp|tier=front|shop|sh -c exit 3\n\
                  ab0000000002 db exited\t|tier=front||sh -c exit 3\n";
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.join("\n") + "\n", wanted, "{output:?}");
    let lines = text(&program.output(&["ps", "-a", "--format", "json"]).stdout);
    let parsed = lines.lines().map(serde_json::from_str::<Value>);
    let names: Vec<Value> = parsed.map(|line| line.unwrap()["Names"].clone()).collect();
    assert_eq!(names.len(), 2, "{lines}");
}

#[test]
fn formats_that_cannot_be_are_answered_with_what_can() {
    let program = two();
    let (fields, supported) = ("there is no field .Nosuch; . has ", "{{.Outer.Inner}}");
    for (words, wanted) in [
        (
            &["inspect", "--format", "{{range .Args}}{{.}}{{end}}", "web"][..],
            supported,
        ),
        (&["inspect", "--format", "{{.Nosuch}}", "web"], fields),
        (&["ps", "--format", "table {{.Names}}"], supported),
        (&["ps", "--format", "{{.Nosuch}}"], fields),
        (
            &["volume", "inspect", "--format", "{{if .Name}}x{{end}}", "data"],
            supported,
        ),
        (&["network", "inspect", "-f", "nothing", "bridge"], supported),
    ] {
        let output = program.output(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(wanted), "{words:?}: {said}");
    }
}

#[test]
fn volumes_and_networks_are_inspected_in_the_same_way() {
    let program = Program::new();
    program.output(&["volume", "create", "data"]);
    program.output(&["volume", "create", "more"]);
    let output = program.output(&["volume", "inspect", "data", "nosuch", "more"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("nosuch"), "{output:?}");
    let shown = json_of(&output);
    assert_eq!(
        (&shown[0]["Name"], &shown[1]["Name"]),
        (&json!("data"), &json!("more"))
    );
    let output = program.output(&["volume", "inspect", "-f", "{{.Name}} {{.Driver}}", "data", "more"]);
    assert_eq!(text(&output.stdout), "data local\nmore local\n");
    program.output(&["network", "create", "--subnet", "10.77.0.0/24", "shop"]);
    let output = program.output(&[
        "network",
        "inspect",
        "-f",
        "{{.name}} {{.subnet}}",
        "nosuch",
        "shop",
    ]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(text(&output.stdout), "shop 10.77.0.0/24\n", "{output:?}");
}

/// A container on a view that no daemon guarded for a time.
#[test]
fn what_may_have_read_zeros_is_shown() {
    let program = two();
    let namespace = fs::read_link("/proc/self/ns/mnt").unwrap();
    let suspects = json!([{
        "view": "v", "reference": "registry.lan/app:1", "layers": [], "mounts": [], "namespaces": [namespace],
    }]);
    fs::write(program.run().join("suspects.json"), suspects.to_string()).unwrap();
    let output = program.output(&["ps", "-a"]);
    let listed = text(&output.stdout);
    assert!(
        row(&listed, "web").contains(" (may have read zeros) "),
        "{listed}"
    );
    assert!(!row(&listed, "db").contains("zeros"), "{listed}");
    let said = text(&output.stderr);
    assert!(
        said.contains("xebec restart web") && !said.contains("db"),
        "{said}"
    );
    let listed = json_of(&program.output(&["ps", "-a", "--json"]));
    let zeros = |listed: &Value, at: usize| listed[at]["may_have_read_zeros"].clone();
    let web = usize::from(listed[0]["name"] != "web");
    assert_eq!(zeros(&listed, web), json!(true), "{listed}");
    assert_eq!(zeros(&listed, 1 - web), json!(false), "{listed}");
    let shown = json_of(&program.output(&["inspect", "web", "db"]));
    assert_eq!((zeros(&shown, 0), zeros(&shown, 1)), (json!(true), json!(false)));
}

#[test]
fn what_is_not_there_and_what_does_not_run_have_one_code_for_all_commands() {
    let program = two();
    let commands: &[&[&str]] = &[
        &["cp", "NAME:/etc", "."],
        &["cp", ".", "NAME:/etc"],
        &["top", "NAME"],
        &["stats", "--no-stream", "NAME"],
        &["pause", "NAME"],
        &["unpause", "NAME"],
        &["kill", "NAME"],
        &["exec", "NAME", "true"],
    ];
    for command in commands {
        for name in ["nosuch", "db"] {
            let words: Vec<String> = command.iter().map(|word| word.replace("NAME", name)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = program.output(&words);
            let said = text(&output.stderr);
            // Any other code of `exec` may be its command's.
            let code = if name == "nosuch" && command[0] != "exec" {
                3
            } else {
                125
            };
            assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
            assert!(said.contains(name), "{words:?}: {said}");
        }
    }
    for command in ["stop", "wait", "logs", "inspect", "rm", "start", "restart"] {
        let output = program.output(&[command, "nosuch"]);
        assert_eq!(output.status.code(), Some(3), "{command}: {output:?}");
    }
}
