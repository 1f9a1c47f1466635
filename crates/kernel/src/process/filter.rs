//! A system call filter for this thread and all that it starts.

use std::io;

/// One instruction of a filter, as the kernel takes it (`struct sock_filter`, `linux/filter.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The operation code.
    pub code: u16,
    /// The number of instructions to pass over if its condition holds.
    pub jump_true: u8,
    /// The number of instructions to pass over if it does not.
    pub jump_false: u8,
    /// Its operand.
    pub operand: u32,
}

/// Filters the system calls that the calling thread makes from now on, and those of the threads and processes that it starts, for
/// good. Other threads of this process are not touched.
///
/// # Errors
/// The error of `seccomp(2)`: `EINVAL` for a program that it does not take, `EACCES` without `CAP_SYS_ADMIN`.
pub fn filter_system_calls(program: &[Instruction]) -> io::Result<()> {
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|one| libc::sock_filter {
            code: one.code,
            jt: one.jump_true,
            jf: one.jump_false,
            k: one.operand,
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: both live until the call returns, the length is that of the instructions, and the kernel copies and checks them.
    let code = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `BPF_RET | BPF_K`.
    const RETURN: u16 = 0x06;

    fn returning(operand: u32) -> Instruction {
        Instruction {
            code: RETURN,
            jump_true: 0,
            jump_false: 0,
            operand,
        }
    }

    #[test]
    fn a_filter_is_for_one_thread_and_what_it_starts() {
        if !super::super::has_capability(rustix::thread::CapabilitySet::SYS_ADMIN) {
            println!("SKIPPED: a filter needs CAP_SYS_ADMIN");
            return;
        }
        let filters = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
            let line = status.lines().find(|line| line.starts_with("Seccomp_filters:"));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u32>().ok())
        };
        let before = filters();
        let told = std::thread::spawn(move || {
            filter_system_calls(&[returning(libc::SECCOMP_RET_ALLOW)]).map_err(|error| error.to_string())?;
            let inherited = std::process::Command::new("grep")
                .args(["Seccomp_filters", "/proc/self/status"])
                .output();
            let inherited = inherited.map_err(|error| error.to_string())?;
            Ok::<_, String>((
                filters(),
                String::from_utf8_lossy(&inherited.stdout).trim().to_owned(),
            ))
        });
        let (inside, inherited) = told.join().ok().and_then(Result::ok).unwrap_or_default();
        assert_eq!(inside, before.map(|count| count + 1));
        assert_eq!(
            inherited
                .split_whitespace()
                .nth(1)
                .and_then(|word| word.parse().ok()),
            inside
        );
        assert_eq!(filters(), before);
    }

    #[test]
    fn a_program_without_an_end_is_refused() {
        let refused = std::thread::spawn(|| filter_system_calls(&[])).join();
        assert!(matches!(refused, Ok(Err(_))));
    }
}
