//! What the kernel tells, and probes.

use crate::output::{Failure, put, put_texts};

pub(crate) fn kernel() -> Result<(), Failure> {
    let mut events = Vec::new();
    for number in [7i32, -1] {
        // struct fanotify_event_metadata, a record of a kind that is passed over, and a range.
        events.extend([56, 0, 0, 0, 3, 0, 24, 0]);
        events.extend(0x0010_0000u64.to_le_bytes());
        events.extend(number.to_le_bytes());
        events.extend(99i32.to_le_bytes());
        events.extend([4, 0, 8, 0, 1, 2, 3, 4]);
        events.extend([6, 0, 24, 0, 0, 0, 0, 0]);
        events.extend(4096u64.to_le_bytes());
        events.extend(8192u64.to_le_bytes());
    }
    put("fanotify_events", "two", &events)?;
    put(
        "mountinfo",
        "two",
        b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
          37 36 0:5 / /proc rw - proc proc rw\n",
    )?;
    put_texts(
        "probe",
        &[
            "port:80",
            "http://[::1]:8080/health?a#b",
            "log:ready (to|for) accept.*$",
            "file:/run/app.sock",
            "exec:[\"pg_isready\",\"-q\"]",
            "exec:test -e /x",
            "exit",
            "SIGRTMIN+3",
            "/a:/b:ro",
        ],
    )?;
    Ok(())
}
