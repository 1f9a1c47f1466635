//! The rights of a container, tried from inside it, and the effect of each option.

use std::path::Path;

use crate::support::{Case, Run, case};

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

/// Makes system calls of x86-64 by their numbers and says how each ended: `name error`.
const TRY: &str = r#"for (@ARGV) { my ($name, $number, @a) = split /,/; $_ += 0 for @a; push @a, 0 while @a < 4; $! = 0;
    my $result = syscall($number + 0, @a); print "$name ", ($result == -1 ? $! + 0 : 0), "\n"; }"#;

/// Makes these system calls in a container (`name,number,arguments`), and returns the error of each.
fn tried(case: &mut Case, calls: &[&str]) -> Vec<(String, i32)> {
    // The host's perl: busybox makes no calls by number.
    for (from, to) in [
        ("/usr/bin", "/usr/bin"),
        ("/usr/lib", "/lib"),
        ("/usr/lib", "/usr/lib"),
        ("/usr/lib64", "/lib64"),
    ] {
        case.add("volume", &format!("{from}:{to}:ro"));
    }
    let command: Vec<&str> = ["/usr/bin/perl", "-e", TRY]
        .iter()
        .chain(calls)
        .copied()
        .collect();
    let run = case.command(&command).run();
    assert_eq!(run.code, 0, "{run:?}");
    let lines = run.stdout.lines().filter_map(|line| line.split_once(' '));
    let answers: Vec<(String, i32)> = lines
        .map(|(name, error)| (name.to_owned(), error.parse().unwrap()))
        .collect();
    assert_eq!(answers.len(), calls.len(), "{run:?}");
    answers
}

fn can_try() -> bool {
    let is_there = cfg!(target_arch = "x86_64") && Path::new("/usr/bin/perl").exists();
    if !is_there {
        println!("SKIPPED: there is no perl for x86-64 here");
    }
    is_there
}

/// With its error. A number with something in its upper half is the same one to the kernel where it takes 32
/// bits.
const REFUSED: [(&str, i32); 29] = [
    ("af_alg,41,38,5,0", EPERM),
    ("af_alg-upper-half,41,4294967334,5,0", EPERM),
    ("af_vsock,41,40,1,0", EPERM),
    ("af_vsock-upper-half,41,4294967336,1,0", EPERM),
    ("af_can,41,29,3,1", EPERM),
    ("af_tipc-pair,53,30,1,0", EPERM),
    ("af_vsock-pair,53,40,1,0", EPERM),
    ("af_alg-pair,53,38,5,0", EPERM),
    ("af_bluetooth,41,31,3,1", EPERM),
    ("af_packet,41,17,3,0", EPERM),
    ("raw,41,2,3,1", EPERM),
    ("personality-no-randomization,135,262144", EPERM),
    ("unshare-user,272,268435456", EPERM),
    ("unshare-mount,272,131072", EPERM),
    ("clone-user,56,268435473", EPERM),
    ("clone3,435,0,0", ENOSYS),
    ("setns,308,0,0", EPERM),
    ("mount,165,0,0,0,0", EPERM),
    ("fsopen,430,0,0", EPERM),
    ("open_tree,428,-100,0,0", EPERM),
    ("pivot_root,155,0,0", EPERM),
    ("keyctl,250,0,-3,0", EPERM),
    ("bpf,321,0,0,0", EPERM),
    ("userfaultfd,323,1", EPERM),
    ("io_uring_setup,425,1,0", EPERM),
    ("perf_event_open,298,0,0,0", EPERM),
    ("open_by_handle_at,304,-100,0,0", EPERM),
    ("unknown,999,0", ENOSYS),
    ("x32,1073741863,0", ENOSYS),
];

#[test]
fn system_calls_that_leave_the_container_are_refused() {
    let mut case = case!();
    if !can_try() {
        return;
    }
    let calls: Vec<&str> = REFUSED.iter().map(|(call, _)| *call).collect();
    let answers = tried(&mut case, &calls);
    let wrong: Vec<_> = answers
        .iter()
        .zip(REFUSED)
        .filter(|((_, error), (_, wanted))| error != wanted)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let usual = [
        "inet,41,2,1,0",
        "unix,41,1,1,0",
        "netlink,41,16,3,0",
        "personality-asked,135,4294967295",
        "getpid,39",
    ];
    let answers = tried(&mut case!(), &usual);
    assert!(answers.iter().all(|(_, error)| *error == 0), "{answers:?}");
}

#[test]
fn capabilities_bring_their_calls() {
    let mut case = case!();
    if !can_try() {
        return;
    }
    case.set("cap_add", "SYS_ADMIN").add("cap_add", "net_raw");
    let answers = tried(
        &mut case,
        &[
            "unshare,272,131072",
            "raw,41,2,3,1",
            "af_alg,41,38,5,0",
            "keyctl,250,0,-3,0",
        ],
    );
    let errors: Vec<i32> = answers.iter().map(|(_, error)| *error).collect();
    assert_eq!(errors, [0, 0, EPERM, EPERM], "{answers:?}");
    let mut unconfined = case!();
    unconfined.set("security", "seccomp=unconfined");
    let answers = tried(&mut unconfined, &["personality,135,262144", "unknown,999,0"]);
    assert_eq!(
        answers.iter().map(|(_, error)| *error).collect::<Vec<_>>(),
        [0, ENOSYS]
    );
}

fn shell(case: &mut Case, script: &str) -> Run {
    let run = case.shell(script).run();
    assert_eq!(run.code, 0, "{run:?}");
    run
}

#[test]
fn each_option_has_its_effect() {
    let mut case = case!();
    case.flag("read_only")
        .set("tmpfs", "/mnt:size=1m,mode=1770")
        .set("shm_size", "2m")
        .set("ulimit", "nofile=77:88")
        .set("cap_drop", "ALL")
        .set("security", "no-new-privileges");
    let run = shell(
        &mut case,
        "touch /tmp/x 2>/dev/null && echo wrote; touch /mnt/x && stat -c %a /mnt; grep -E 'CapBnd|NoNewPrivs|Seccomp_filters' \
         /proc/self/status; grep 'Max open files' /proc/self/limits; grep -oE ' /(mnt|dev/shm) .*' /proc/self/mountinfo",
    );
    assert!(!run.stdout.contains("wrote"), "{run:?}");
    let words: Vec<&str> = run.stdout.split_whitespace().collect();
    for word in ["1770", "0000000000000000", "77", "88", "size=1024k", "size=2048k"] {
        assert!(words.iter().any(|one| one.contains(word)), "{word}: {run:?}");
    }
    assert!(run.stdout.contains("NoNewPrivs:\t1"), "{run:?}");
}

#[test]
fn limits_are_set_in_the_kernel() {
    let mut case = case!();
    case.set("memory", "64m").set("cpus", "0.5").set("pids", "12");
    let run = shell(
        &mut case,
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; \
         cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null; \
         cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null; \
         (for i in $(seq 40); do sleep 1 & done) || true",
    );
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines.contains(&"67108864") && lines.contains(&"12"), "{run:?}");
    assert!(run.stdout.contains("50000"), "{run:?}");
    assert!(
        run.stderr.contains("fork"),
        "the processes are not limited: {run:?}"
    );
}

#[test]
fn impossible_options_are_refused() {
    for (key, value, word) in [
        ("cpus", "5000", "this host has"),
        ("memory", "1m", "at least 6m"),
        ("security", "apparmor=no-such-profile", "apparmor"),
        ("security", "seccomp=/nonexistent", "seccomp profile"),
        ("cap_add", "NOTHING", "NOTHING"),
    ] {
        let mut case = case!();
        case.set(key, value);
        let run = case.shell("true").run();
        assert_eq!(run.code, 125, "{run:?}");
        assert!(run.error.contains(word), "{run:?}");
    }
}

/// Names everything of the host that can be changed, opened or seen.
const LOOK: &str = r#"for place in /proc/sys /proc/bus /proc/fs /proc/irq /proc/sysrq-trigger /sys; do
    busybox find $place -type f -perm /222 2>/dev/null | while read -r file; do { true >> "$file"; } 2>/dev/null && echo "can be written: $file"; done
done
busybox find /dev -type b | while read -r file; do echo "a disk: $file"; done
busybox find /dev -type c | busybox grep -vE '^/dev/(null|zero|full|random|urandom|tty|ptmx|pts/.*|console)$'
for file in /proc/kcore /proc/keys /proc/timer_list /proc/interrupts; do
    [ -n "$(busybox head -c 1 $file 2>/dev/null | busybox tr '\0' x)" ] && echo "can be read: $file"
done
[ -n "$(ls /sys/firmware 2>/dev/null)" ] && echo "can be listed: /sys/firmware"
busybox grep -vE ' / (overlay|/proc|/dev|/sys)' /proc/self/mountinfo | busybox awk '$5 !~ /^\/(proc|dev|sys)/ && $5 != "/" {print $5}' |
    busybox grep -vxE '/etc/(resolv.conf|hosts|hostname)'
for process in /proc/[0-9]*; do [ "$(busybox readlink $process/root 2>/dev/null)" = / ] || [ ! -d $process ] || echo "another's: $process"; done
busybox find / -xdev -type s 2>/dev/null
for number in 8:0 254:0 1:1; do
    busybox mknod /tmp/node b ${number%:*} ${number#*:} && (: < /tmp/node) 2>/dev/null && echo "opened $number"; rm -f /tmp/node
done
busybox mknod /tmp/mem c 1 1 && (: < /tmp/mem) 2>/dev/null && echo "opened /dev/mem"
true"#;

#[test]
fn nothing_of_the_host_can_be_changed_or_seen() {
    let mut case = case!();
    let run = shell(&mut case, LOOK);
    assert_eq!(run.stdout, "", "{run:?}");
    // The same script finds these things if they are shown.
    let mut open = case!();
    open.set("security", "systempaths=unconfined")
        .set("volume", "/tmp:/mnt");
    let run = shell(&mut open, LOOK);
    assert!(
        run.stdout.contains("can be written: /proc/sys/") && run.stdout.contains("/mnt"),
        "{run:?}"
    );
}
