//! Filters of system calls (seccomp(2)), run on calls that may yet be made. Classic BPF, as
//! far as the kernel takes it there.

use libc::sock_filter;

/// `AUDIT_ARCH_X86_64` and the like: machine, 64 bits, little endian.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Length of `struct seccomp_data` in bytes.
const DATA: usize = 64;
/// How many words of memory a filter has.
const MEMORY: usize = 16;

/// What a filter does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    /// The call fails with an error.
    Refused,
    /// The call ends the process, or sends it a signal.
    Fatal,
}

/// A system call, with its first arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) number: libc::c_long,
    pub(crate) arguments: [u64; 4],
}

impl Call {
    fn data(self) -> [u8; DATA] {
        let mut data = [0; DATA];
        let number = u32::try_from(self.number).unwrap_or(u32::MAX);
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(room) = data.get_mut(at..at + bytes.len()) {
                room.copy_from_slice(bytes);
            }
        };
        put(0, &number.to_ne_bytes());
        put(4, &ARCHITECTURE.to_ne_bytes());
        for (index, argument) in self.arguments.into_iter().enumerate() {
            put(16 + 8 * index, &argument.to_ne_bytes());
        }
        data
    }
}

/// What a filter does with a call. A program that the kernel wouldn't take for a filter counts as
/// fatal.
pub(crate) fn judge(filter: &[sock_filter], call: Call) -> Verdict {
    const ACTION: u32 = 0xffff_0000;
    match run(filter, &call.data()).map(|value| value & ACTION) {
        Some(libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG) => Verdict::Allowed,
        Some(libc::SECCOMP_RET_ERRNO) => Verdict::Refused,
        // Another process may do anything.
        Some(_) | None => Verdict::Fatal,
    }
}

/// The value that a filter returns; `None` if the kernel wouldn't take the filter.
fn run(filter: &[sock_filter], data: &[u8; DATA]) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY]);
    let mut at = 0;
    // Jumps go forward only, so this ends.
    loop {
        let sock_filter { code, jt, jf, k } = *filter.get(at)?;
        at += 1;
        let code = u32::from(code);
        let place = usize::try_from(k).ok()?;
        let operand = if code & libc::BPF_X == 0 { k } else { x };
        match (code & 0x07, code & 0xf8) {
            (libc::BPF_LD, LOAD_WORD) => a = u32::from_ne_bytes(*data.get(place..)?.first_chunk()?),
            (libc::BPF_LD, libc::BPF_IMM) => a = k,
            (libc::BPF_LD, libc::BPF_MEM) => a = *memory.get(place)?,
            (libc::BPF_LD, libc::BPF_LEN) => a = DATA as u32,
            (libc::BPF_LDX, libc::BPF_IMM) => x = k,
            (libc::BPF_LDX, libc::BPF_MEM) => x = *memory.get(place)?,
            (libc::BPF_LDX, libc::BPF_LEN) => x = DATA as u32,
            (libc::BPF_ST, _) => *memory.get_mut(place)? = a,
            (libc::BPF_STX, _) => *memory.get_mut(place)? = x,
            (libc::BPF_ALU, _) => a = compute(code & 0xf0, a, operand)?,
            (libc::BPF_JMP, _) => {
                let further = match code & 0xf0 {
                    libc::BPF_JA => place,
                    test => usize::from(if holds(test, a, operand)? { jt } else { jf }),
                };
                at = at.checked_add(further)?;
            }
            (libc::BPF_RET, libc::BPF_K) => return Some(k),
            (libc::BPF_RET, libc::BPF_A) => return Some(a),
            (libc::BPF_MISC, libc::BPF_TAX) => x = a,
            (libc::BPF_MISC, libc::BPF_TXA) => a = x,
            _ => return None,
        }
    }
}

/// The size and the place of what a filter loads. The kernel takes no others.
const LOAD_WORD: u32 = libc::BPF_W | libc::BPF_ABS;

fn compute(operation: u32, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        libc::BPF_ADD => a.wrapping_add(operand),
        libc::BPF_SUB => a.wrapping_sub(operand),
        libc::BPF_MUL => a.wrapping_mul(operand),
        libc::BPF_DIV => a.checked_div(operand)?,
        libc::BPF_OR => a | operand,
        libc::BPF_AND => a & operand,
        libc::BPF_LSH => a.checked_shl(operand)?,
        libc::BPF_RSH => a.checked_shr(operand)?,
        libc::BPF_XOR => a ^ operand,
        libc::BPF_NEG => a.wrapping_neg(),
        _ => return None,
    })
}

fn holds(test: u32, a: u32, operand: u32) -> Option<bool> {
    Some(match test {
        libc::BPF_JEQ => a == operand,
        libc::BPF_JGT => a > operand,
        libc::BPF_JGE => a >= operand,
        libc::BPF_JSET => a & operand != 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const JEQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RET: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const LOAD: u16 = (libc::BPF_LD | LOAD_WORD) as u16;

    fn filter(parts: &[(u16, u8, u8, u32)]) -> Vec<sock_filter> {
        parts.iter().map(|(code, jt, jf, k)| sock_filter { code: *code, jt: *jt, jf: *jf, k: *k }).collect()
    }

    fn call(number: libc::c_long, first: u64) -> Call {
        Call { number, arguments: [first, 0, 0, 0] }
    }

    #[test]
    fn a_filter_is_run_as_the_kernel_runs_it() {
        // As libseccomp makes them: architecture, number, an argument.
        let close = u32::try_from(libc::SYS_close).unwrap();
        let socket = u32::try_from(libc::SYS_socket).unwrap();
        let usual = filter(&[
            (LOAD, 0, 0, 4),
            (JEQ, 1, 0, ARCHITECTURE),
            (RET, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
            (LOAD, 0, 0, 0),
            (JEQ, 3, 0, close),
            (JEQ, 0, 3, socket),
            (LOAD, 0, 0, 16),
            (JEQ, 0, 1, libc::AF_UNIX as u32),
            (RET, 0, 0, libc::SECCOMP_RET_ALLOW),
            (RET, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        ]);
        for (what, call, want) in [
            ("allowed", call(libc::SYS_close, 7), Verdict::Allowed),
            ("allowed by its argument", call(libc::SYS_socket, libc::AF_UNIX as u64), Verdict::Allowed),
            ("refused by its argument", call(libc::SYS_socket, libc::AF_INET as u64), Verdict::Refused),
            ("refused", call(libc::SYS_connect, 0), Verdict::Refused),
        ] {
            assert_eq!(judge(&usual, call), want, "{what}");
        }
        for (value, want) in [
            (libc::SECCOMP_RET_LOG, Verdict::Allowed),
            (libc::SECCOMP_RET_TRAP, Verdict::Fatal),
            (libc::SECCOMP_RET_KILL_THREAD, Verdict::Fatal),
            (libc::SECCOMP_RET_TRACE, Verdict::Fatal),
        ] {
            assert_eq!(judge(&filter(&[(RET, 0, 0, value)]), call(1, 0)), want, "{value:x}");
        }
        assert_eq!(judge(&[], call(1, 0)), Verdict::Fatal);
    }

    #[test]
    fn each_operation_computes() {
        let code = |parts: u32| parts as u16;
        let alu = |operation| code(libc::BPF_ALU | operation | libc::BPF_K);
        for (what, parts, want) in [
            ("add", (alu(libc::BPF_ADD), 5), 17),
            ("sub", (alu(libc::BPF_SUB), 13), u32::MAX),
            ("mul", (alu(libc::BPF_MUL), 3), 36),
            ("div", (alu(libc::BPF_DIV), 5), 2),
            ("and", (alu(libc::BPF_AND), 6), 4),
            ("or", (alu(libc::BPF_OR), 3), 15),
            ("xor", (alu(libc::BPF_XOR), 4), 8),
            ("shift left", (alu(libc::BPF_LSH), 2), 48),
            ("shift right", (alu(libc::BPF_RSH), 2), 3),
            ("negate", (alu(libc::BPF_NEG), 0), 12_u32.wrapping_neg()),
        ] {
            let program = filter(&[
                (code(libc::BPF_LD | libc::BPF_IMM), 0, 0, 12),
                (parts.0, 0, 0, parts.1),
                (code(libc::BPF_ST), 0, 0, 3),
                (code(libc::BPF_LDX | libc::BPF_MEM), 0, 0, 3),
                (code(libc::BPF_MISC | libc::BPF_TXA), 0, 0, 0),
                (code(libc::BPF_RET | libc::BPF_A), 0, 0, 0),
            ]);
            assert_eq!(run(&program, &[0; DATA]), Some(want), "{what}");
        }
        let by_zero = filter(&[(alu(libc::BPF_DIV), 0, 0, 0), (RET, 0, 0, 1)]);
        assert_eq!(run(&by_zero, &[0; DATA]), None);
    }

    proptest! {
        #[test]
        fn any_filter_ends_without_panic(
            parts in prop::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), any::<u32>()), 0..40),
            number in 0_i64..500,
        ) {
            // Codes that mean something are rare among all.
            let parts: Vec<_> = parts.into_iter().map(|(code, jt, jf, k)| (code & 0xff, jt % 8, jf % 8, k % 80)).collect();
            judge(&filter(&parts), call(number, 1));
        }
    }
}
