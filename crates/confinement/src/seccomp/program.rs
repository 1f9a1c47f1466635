//! The allow list as a program of the kernel's filter machine (classic BPF, `linux/filter.h`).
//!
//! The program looks at the kind of the call, finds its number by binary search, and returns an action. For
//! calls that are allowed with all arguments the kernel finds that out in advance and does not run the
//! program (`seccomp_cache_prepare`, `kernel/seccomp.c`).

use xebec_kernel::process::Instruction;

use super::policy::{ENOSYS, EPERM, FAMILIES, PERSONALITIES, SOCKET_MAKERS};
use super::syscalls::{Action, SYSCALLS, Syscall};
use crate::capabilities::Capabilities;

/// `BPF_LD | BPF_W | BPF_ABS`: loads 32 bits of `struct seccomp_data`.
const LOAD: u16 = 0x20;
/// `BPF_JMP | BPF_JA`.
const JUMP: u16 = 0x05;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const IF_EQUAL: u16 = 0x15;
/// `BPF_JMP | BPF_JGE | BPF_K`.
const IF_AT_LEAST: u16 = 0x35;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

/// `SECCOMP_RET_ALLOW` and `SECCOMP_RET_ERRNO` (`linux/seccomp.h`).
const ALLOW: u32 = 0x7fff_0000;
const ERROR: u32 = 0x0005_0000;

/// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_I386` (`linux/audit.h`).
pub(super) const X86_64: u32 = 0xc000_003e;
pub(super) const I386: u32 = 0x4000_0003;

/// The offsets in `struct seccomp_data` of the number, the kind and the low half of the first argument, on a
/// little-endian machine. The kernel takes 32 bits of families and personalities, and ignores the high half.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// The program for the runtime of a container with these capabilities, and for all that it starts. Calls that
/// are not in the table fail with `ENOSYS`.
pub(super) fn allow_list(capabilities: Capabilities, socketcall: bool) -> Vec<Instruction> {
    let answer = |call: &Syscall| match call.for_runtime {
        true => Action::Allow,
        false => call.action(capabilities, socketcall),
    };
    let tree = |number: fn(&Syscall) -> Option<u32>| {
        let mut numbered: Vec<(u32, Action)> = SYSCALLS
            .iter()
            .filter_map(|call| Some((number(call)?, answer(call))))
            .collect();
        numbered.sort_unstable_by_key(|(number, _)| *number);
        search(&ranges(&numbered))
    };
    let (wide, narrow) = (tree(|call| call.x86_64), tree(|call| call.i386));
    // x32 is of the same kind as x86-64. Its numbers are not in the table.
    let mut program = vec![load(KIND)];
    program.extend(unless(IF_EQUAL, X86_64, 1 + wide.len()));
    program.push(load(NUMBER));
    program.extend(wide);
    program.extend(unless(IF_EQUAL, I386, 1 + narrow.len()));
    program.push(load(NUMBER));
    program.extend(narrow);
    program.push(leaf(ERROR | ENOSYS));
    program
}

/// Ranges of numbers with one action, each by its first number.
fn ranges(numbered: &[(u32, Action)]) -> Vec<(u32, Action)> {
    let mut ranges = vec![(0, Action::Missing)];
    let mut next = 0;
    let mut from = |number: u32, answer: Action| {
        if ranges.last().is_none_or(|(_, last)| *last != answer) {
            ranges.push((number, answer));
        }
    };
    for (number, answer) in numbered {
        if *number > next {
            from(next, Action::Missing);
        }
        from(*number, *answer);
        next = number.saturating_add(1);
    }
    from(next, Action::Missing);
    // If a call has the number 0, the first range is empty.
    if matches!(ranges.get(1), Some((0, _))) {
        ranges.remove(0);
    }
    ranges
}

/// A binary search for the number, and the action of its range.
fn search(ranges: &[(u32, Action)]) -> Vec<Instruction> {
    if let [(_, answer)] = ranges {
        return answered(*answer);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let Some((from, _)) = high.first() else {
        return Vec::new();
    };
    let below = search(low);
    // Numbers from `from` on jump over the instructions for lower ones.
    let mut program = Vec::new();
    match u8::try_from(below.len()) {
        Ok(distance) => program.push(instruction(IF_AT_LEAST, distance, 0, *from)),
        Err(_) => {
            program.push(instruction(IF_AT_LEAST, 0, 1, *from));
            program.push(jump(below.len()));
        }
    }
    program.extend(below);
    program.extend(search(high));
    program
}

fn answered(answer: Action) -> Vec<Instruction> {
    match answer {
        // The runtime makes namespaces. The inner filter refuses that to its container.
        Action::Allow | Action::Clone => vec![leaf(ALLOW)],
        Action::Refuse => vec![leaf(ERROR | EPERM)],
        Action::Missing => vec![leaf(ERROR | ENOSYS)],
        Action::Socket => one_of(&FAMILIES, ALLOW, ERROR | EPERM),
        Action::Personality => one_of(&PERSONALITIES, ALLOW, ERROR | EPERM),
        // With this error a libc uses the calls of their own instead.
        Action::Socketcall => one_of(&SOCKET_MAKERS, ERROR | ENOSYS, ALLOW),
    }
}

/// Returns `answer` if the first argument is one of `values`, and `otherwise` if not.
fn one_of(values: &[u32], answer: u32, otherwise: u32) -> Vec<Instruction> {
    let mut program = vec![load(FIRST_ARGUMENT)];
    for value in values {
        program.push(instruction(IF_EQUAL, 0, 1, *value));
        program.push(leaf(answer));
    }
    program.push(leaf(otherwise));
    program
}

/// Skips so many instructions if the condition does not hold.
fn unless(condition: u16, value: u32, count: usize) -> [Instruction; 2] {
    [instruction(condition, 1, 0, value), jump(count)]
}

fn load(offset: u32) -> Instruction {
    instruction(LOAD, 0, 0, offset)
}

fn leaf(value: u32) -> Instruction {
    instruction(RETURN, 0, 0, value)
}

fn jump(count: usize) -> Instruction {
    // The kernel refuses programs of more than 4,096 instructions.
    instruction(JUMP, 0, 0, u32::try_from(count).unwrap_or(u32::MAX))
}

fn instruction(code: u16, jump_true: u8, jump_false: u8, operand: u32) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false,
        operand,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does.
    fn answer(program: &[Instruction], kind: u32, number: u32, argument: u64) -> Option<u32> {
        let mut accumulator = 0;
        let mut at = 0;
        for _ in 0..program.len() {
            let one = program.get(at)?;
            at += 1;
            let branch = |holds: bool| usize::from(if holds { one.jump_true } else { one.jump_false });
            match one.code {
                LOAD => {
                    accumulator = match one.operand {
                        NUMBER => number,
                        KIND => kind,
                        FIRST_ARGUMENT => (argument & 0xffff_ffff) as u32,
                        _ => return None,
                    }
                }
                JUMP => at += one.operand as usize,
                IF_EQUAL => at += branch(accumulator == one.operand),
                IF_AT_LEAST => at += branch(accumulator >= one.operand),
                RETURN => return Some(one.operand),
                _ => return None,
            }
        }
        None
    }

    const REFUSED: Option<u32> = Some(ERROR | EPERM);
    const MISSING: Option<u32> = Some(ERROR | ENOSYS);

    /// Each number that there is, by the table, for a container without any capability and for one with all.
    #[test]
    fn every_number_has_the_action_of_its_call() {
        for capabilities in [Capabilities::default(), Capabilities::ALL] {
            let program = allow_list(capabilities, false);
            assert!(program.len() < 1000, "{}", program.len());
            for (kind, number) in [
                (X86_64, (|call| call.x86_64) as fn(&Syscall) -> Option<u32>),
                (I386, |call| call.i386),
            ] {
                for tried in (0..2000).chain([0x4000_0000, 0x4000_0001, 0x4000_0200, u32::MAX]) {
                    let call = SYSCALLS.iter().find(|call| number(call) == Some(tried));
                    let wanted = match call.map(|call| (call, call.action(capabilities, false))) {
                        None => MISSING,
                        Some((call, _)) if call.for_runtime => Some(ALLOW),
                        Some((_, Action::Allow)) => Some(ALLOW),
                        Some((_, Action::Refuse)) => REFUSED,
                        // See the next test.
                        Some(_) => continue,
                    };
                    assert_eq!(
                        answer(&program, kind, tried, 7),
                        wanted,
                        "{kind:x} {tried} {call:?}"
                    );
                }
            }
            assert_eq!(answer(&program, 0xc000_00b7, 0, 0), MISSING, "another machine's");
        }
    }

    #[test]
    fn arguments_are_compared_as_the_kernel_does() {
        let program = allow_list(Capabilities::default(), false);
        let number = |name: &str| {
            SYSCALLS
                .iter()
                .find(|call| call.name == name)
                .and_then(|call| call.x86_64)
        };
        let asked =
            |name: &str, argument| answer(&program, X86_64, number(name).unwrap_or(u32::MAX), argument);
        for family in [1, 2, 10, 16, 17] {
            assert_eq!(asked("socket", family), Some(ALLOW), "{family}");
            assert_eq!(asked("socketpair", family), Some(ALLOW), "{family}");
        }
        // AF_ALG, AF_VSOCK, and the same with bits in the half that the kernel ignores.
        for family in [
            0,
            3,
            9,
            21,
            29,
            31,
            38,
            39,
            40,
            44,
            45,
            38 | 1 << 32,
            40 | 1 << 63,
        ] {
            assert_eq!(asked("socket", family), REFUSED, "{family}");
            assert_eq!(asked("socketpair", family), REFUSED, "{family}");
        }
        assert_eq!(
            asked("socket", 2 | 1 << 32),
            Some(ALLOW),
            "an Internet socket to the kernel"
        );
        for persona in [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff, u64::MAX] {
            assert_eq!(asked("personality", persona), Some(ALLOW), "{persona:x}");
        }
        for persona in [4, 0x4_0000, 0x10_0000, 0x40_0000, 0x40_0000 | 1 << 40] {
            assert_eq!(asked("personality", persona), REFUSED, "{persona:x}");
        }
        assert_eq!(
            answer(&program, I386, 102, 1),
            MISSING,
            "socketcall makes a socket"
        );
        assert_eq!(answer(&program, I386, 102, 8), MISSING, "and two");
        for other in [2, 3, 7, 9, 20] {
            assert_eq!(
                answer(&program, I386, 102, other),
                Some(ALLOW),
                "socketcall connects one: {other}"
            );
        }
        let narrow = allow_list(Capabilities::default(), true);
        assert_eq!(answer(&narrow, I386, 102, 1), Some(ALLOW));
    }
}
