//! The allow list as a program that the kernel runs (classic BPF, `linux/filter.h`), put together here.
//!
//! A program looks at the kind of call, finds its number by halving, and answers. Where the answer is the same for all arguments,
//! the kernel knows that from the beginning and runs nothing (`seccomp_cache_prepare`, `kernel/seccomp.c`).

use xebec_kernel::process::Instruction;

use super::super::capabilities::Capabilities;
use super::syscalls::{Answer, CALLS, Call};
use super::{ENOSYS, EPERM, FAMILIES, PERSONALITIES, SOCKET_MAKERS};

/// `BPF_LD | BPF_W | BPF_ABS`: takes 32 bits of what is known of the call.
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

/// Where in `struct seccomp_data` the number, the kind and the low half of the first argument are, on a machine that has the low
/// half first. Families and personalities are 32 bits to the kernel, whatever is in the high half.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// The program for the runtime of a container with these capabilities, and all that it starts: what neither may do is refused, and
/// what nobody has heard of does not exist.
pub(super) fn allow_list(capabilities: Capabilities, socketcall: bool) -> Vec<Instruction> {
    let answer = |call: &Call| match call.for_runtime {
        true => Answer::Allow,
        false => call.answer(capabilities, socketcall),
    };
    let tree = |number: fn(&Call) -> Option<u32>| {
        let mut numbered: Vec<(u32, Answer)> = CALLS
            .iter()
            .filter_map(|call| Some((number(call)?, answer(call))))
            .collect();
        numbered.sort_unstable_by_key(|(number, _)| *number);
        search(&ranges(&numbered))
    };
    let (wide, narrow) = (tree(|call| call.x86_64), tree(|call| call.i386));
    // The third kind, x32, has the first one's name and numbers of its own, none of which is in the table.
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

/// From which number on which answer is right.
fn ranges(numbered: &[(u32, Answer)]) -> Vec<(u32, Answer)> {
    let mut ranges = vec![(0, Answer::Missing)];
    let mut next = 0;
    let mut from = |number: u32, answer: Answer| {
        if ranges.last().is_none_or(|(_, last)| *last != answer) {
            ranges.push((number, answer));
        }
    };
    for (number, answer) in numbered {
        if *number > next {
            from(next, Answer::Missing);
        }
        from(*number, *answer);
        next = number.saturating_add(1);
    }
    from(next, Answer::Missing);
    // The first is there twice if a call has the number 0.
    if matches!(ranges.get(1), Some((0, _))) {
        ranges.remove(0);
    }
    ranges
}

fn search(ranges: &[(u32, Answer)]) -> Vec<Instruction> {
    if let [(_, answer)] = ranges {
        return answered(*answer);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let Some((from, _)) = high.first() else {
        return Vec::new();
    };
    let below = search(low);
    // What is at least that number is after what is below.
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

fn answered(answer: Answer) -> Vec<Instruction> {
    match answer {
        // The runtime makes namespaces; what its container may, it is told.
        Answer::Allow | Answer::Clone => vec![leaf(ALLOW)],
        Answer::Refuse => vec![leaf(ERROR | EPERM)],
        Answer::Missing => vec![leaf(ERROR | ENOSYS)],
        Answer::Socket => one_of(&FAMILIES, ALLOW, ERROR | EPERM),
        Answer::Personality => one_of(&PERSONALITIES, ALLOW, ERROR | EPERM),
        // The error with which a libc that knows both ways goes the other one.
        Answer::Socketcall => one_of(&SOCKET_MAKERS, ERROR | ENOSYS, ALLOW),
    }
}

/// Answers so to those whose first argument is one of these, and otherwise to others.
fn one_of(values: &[u32], answer: u32, otherwise: u32) -> Vec<Instruction> {
    let mut program = vec![load(FIRST_ARGUMENT)];
    for value in values {
        program.push(instruction(IF_EQUAL, 0, 1, *value));
        program.push(leaf(answer));
    }
    program.push(leaf(otherwise));
    program
}

/// Passes over so many instructions if the condition does not hold.
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
    // Programs have at most 4,096 instructions, or the kernel refuses them.
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
    fn every_number_has_the_answer_of_its_call() {
        for capabilities in [Capabilities::default(), Capabilities::ALL] {
            let program = allow_list(capabilities, false);
            assert!(program.len() < 1000, "{}", program.len());
            for (kind, number) in [
                (X86_64, (|call| call.x86_64) as fn(&Call) -> Option<u32>),
                (I386, |call| call.i386),
            ] {
                for tried in (0..2000).chain([0x4000_0000, 0x4000_0001, 0x4000_0200, u32::MAX]) {
                    let call = CALLS.iter().find(|call| number(call) == Some(tried));
                    let wanted = match call.map(|call| (call, call.answer(capabilities, false))) {
                        None => MISSING,
                        Some((call, _)) if call.for_runtime => Some(ALLOW),
                        Some((_, Answer::Allow)) => Some(ALLOW),
                        Some((_, Answer::Refuse)) => REFUSED,
                        // Looked at below.
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
    fn arguments_are_looked_at_as_the_kernel_does() {
        let program = allow_list(Capabilities::default(), false);
        let number = |name: &str| {
            CALLS
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
        // AF_ALG, AF_VSOCK, and the same with something in the half that the kernel does not look at.
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
