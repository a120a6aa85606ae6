//! Whether a program can be carried: whether the shim can be preloaded into it and
//! then intercepts its calls. A pure function over the program's bytes and its rights
//! in the file system.

use isthmus_wire::proto::Hindrance as Kind;
use object::elf::{self, FileHeader32, FileHeader64};
use object::endian::{Endian as _, Endianness};
use object::read::elf::{Dyn as _, FileHeader, ProgramHeader as _};
use object::{FileKind, ReadRef};

#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: u16 = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: u16 = elf::EM_AARCH64;

/// Longest first line of a script that Linux reads (`BINPRM_BUF_SIZE`).
pub(crate) const SCRIPT_LINE_MAX: usize = 256;
/// Longest loader's name, notes or dynamic section that are read.
const SEGMENT_MAX: u64 = 1 << 20;
/// Name of the note that every program built by Go has.
const GO_NOTE: &[u8] = b"Go";

/// Why a program can't be carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hindrance {
    /// The kind of reason.
    pub kind: Kind,
    /// What was found: for example the program's loader, or the machine that it is for.
    pub detail: String,
}

impl Hindrance {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

/// A program's rights in the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rights {
    /// The mode bits of the program's file, as in stat(2).
    pub mode: u32,
    /// The user id of the file's owner.
    pub user: u32,
    /// The group id of the file.
    pub group: u32,
    /// Whether the file has the attribute `security.capability`.
    pub capabilities: bool,
    /// Whether the file system is mounted `nosuid`, which makes these rights void.
    pub void: bool,
}

/// Which of these rights gives a program more rights than its caller has; `None` if none does. The
/// dynamic linker then ignores `LD_PRELOAD`. `user` and `group` are the caller's ids.
pub(crate) fn raised(rights: Rights, user: u32, group: u32) -> Option<Hindrance> {
    const SET_USER: u32 = 0o4000;
    /// Setgid counts only with the group's execute bit. Without that bit it once meant mandatory
    /// locking.
    const SET_GROUP: u32 = 0o2010;
    if rights.void {
        return None;
    }
    if rights.mode & SET_USER != 0 && rights.user != user {
        return Some(Hindrance::new(Kind::SetId, "setuid"));
    }
    if rights.mode & SET_GROUP == SET_GROUP && rights.group != group {
        return Some(Hindrance::new(Kind::SetId, "setgid"));
    }
    // Root has all capabilities, so the linker keeps LD_PRELOAD.
    (rights.capabilities && user != 0).then(|| Hindrance::new(Kind::SetId, "file capabilities"))
}

/// Why an executable can't be carried, by its bytes; `None` if it can be, or is no ELF file.
pub(crate) fn hindrance<'data, R: ReadRef<'data>>(data: R) -> Option<Hindrance> {
    match FileKind::parse(data).ok()? {
        FileKind::Elf64 => of_elf(FileHeader64::<Endianness>::parse(data).ok()?, data),
        FileKind::Elf32 => of_elf(FileHeader32::<Endianness>::parse(data).ok()?, data),
        _ => None,
    }
}

fn of_elf<'data, R: ReadRef<'data>, H: FileHeader<Endian = Endianness>>(
    header: &H,
    data: R,
) -> Option<Hindrance> {
    let endian = header.endian().ok()?;
    let machine = header.e_machine(endian);
    if machine != OWN_MACHINE || !header.is_class_64() || endian.is_big_endian() {
        let bits = if header.is_class_64() { 64 } else { 32 };
        return Some(Hindrance::new(
            Kind::OtherArchitecture,
            format!("{}, {bits} bits", machine_name(machine)),
        ));
    }
    let segments = header.program_headers(endian, data).ok()?;
    let segments = || segments.iter().filter(|segment| segment.p_filesz(endian).into() <= SEGMENT_MAX);
    let go = segments().any(|segment| {
        let Ok(Some(mut notes)) = segment.notes(endian, data) else { return false };
        std::iter::from_fn(|| notes.next().ok().flatten()).any(|note| note.name() == GO_NOTE)
    });
    let interpreter = segments().find_map(|segment| segment.interpreter(endian, data).ok().flatten());
    let Some(interpreter) = interpreter else {
        let named = |segment: &H::ProgramHeader| {
            let entries = segment.dynamic(endian, data).ok().flatten().unwrap_or_default();
            entries.iter().any(|entry| entry.tag32(endian) == Some(elf::DT_SONAME))
        };
        return match (go, segments().any(named)) {
            (true, _) => Some(Hindrance::new(Kind::Go, "static")),
            // The dynamic linker itself, as in `/lib64/ld-linux-x86-64.so.2 ./app`.
            (false, true) => None,
            (false, false) => Some(Hindrance::new(Kind::Static, "")),
        };
    };
    let interpreter = String::from_utf8_lossy(interpreter);
    if !is_glibc(&interpreter) {
        return Some(Hindrance::new(Kind::OtherLibc, interpreter));
    }
    go.then(|| Hindrance::new(Kind::Go, "dynamic"))
}

/// Whether a program's loader is that of the GNU C library.
fn is_glibc(interpreter: &str) -> bool {
    let name = interpreter.rsplit('/').next().unwrap_or_default();
    ["ld-linux", "ld-2.", "ld64.so", "ld.so"].iter().any(|known| name.starts_with(known))
}

fn machine_name(machine: u16) -> String {
    match machine {
        elf::EM_386 => "i386".to_owned(),
        elf::EM_X86_64 => "x86_64".to_owned(),
        elf::EM_AARCH64 => "aarch64".to_owned(),
        elf::EM_ARM => "ARM".to_owned(),
        elf::EM_RISCV => "RISC-V".to_owned(),
        elf::EM_PPC64 => "PowerPC 64".to_owned(),
        elf::EM_S390 => "s390".to_owned(),
        other => format!("machine {other}"),
    }
}

/// The interpreter of a script and the one argument that its first line may
/// have, as execve(2) reads them.
pub(crate) fn script(start: &[u8]) -> Option<(&str, Option<&str>)> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_matches([' ', '\t']);
    let (interpreter, argument) = match line.split_once([' ', '\t']) {
        Some((interpreter, argument)) => (interpreter, Some(argument.trim_matches([' ', '\t']))),
        None => (line, None),
    };
    (!interpreter.is_empty()).then_some((interpreter, argument))
}

/// The program that env(1) starts, given its arguments as one line.
pub(crate) fn of_env(arguments: &str) -> Option<&str> {
    arguments.split_whitespace().find(|word| !word.starts_with('-') && !word.contains('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal executable: header, one program header for each segment, and
    /// their contents.
    fn image(machine: u16, class: u8, segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut header = vec![0x7f, b'E', b'L', b'F', class, 1, 1];
        header.resize(16, 0);
        header.extend([2, 0]);
        header.extend(machine.to_le_bytes());
        header.extend(1u32.to_le_bytes());
        if class == 1 {
            header.resize(52, 0);
            return header;
        }
        header.extend(0u64.to_le_bytes());
        header.extend(64u64.to_le_bytes());
        header.extend(0u64.to_le_bytes());
        header.extend(0u32.to_le_bytes());
        for half in [64, 56, u16::try_from(segments.len()).unwrap(), 64, 0, 0u16] {
            header.extend(half.to_le_bytes());
        }
        let mut offset = 64 + 56 * segments.len() as u64;
        let mut contents = Vec::new();
        for (kind, content) in segments {
            header.extend(kind.to_le_bytes());
            header.extend(4u32.to_le_bytes());
            let size = content.len() as u64;
            for word in [offset, 0, 0, size, size, 4] {
                header.extend(word.to_le_bytes());
            }
            offset += size;
            contents.extend_from_slice(content);
        }
        header.extend(contents);
        header
    }

    const INTERP: u32 = 3;
    const NOTE: u32 = 4;
    const GLIBC: (u32, &[u8]) = (INTERP, b"/lib64/ld-linux-x86-64.so.2\0");
    /// A Go program's note: name size, description size, type, name, description.
    const GO: (u32, &[u8]) = (NOTE, b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd");
    const GNU: (u32, &[u8]) = (NOTE, b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd");

    #[test]
    fn executables() {
        let other = OWN_MACHINE ^ 0xffff;
        for (name, bytes, want) in [
            ("no executable", b"#!/bin/sh\n".to_vec(), None),
            ("empty", Vec::new(), None),
            ("dynamic", image(OWN_MACHINE, 2, &[GNU, GLIBC]), None),
            ("static", image(OWN_MACHINE, 2, &[GNU]), Some((Kind::Static, ""))),
            ("Go, static", image(OWN_MACHINE, 2, &[GO]), Some((Kind::Go, "static"))),
            ("Go, with C", image(OWN_MACHINE, 2, &[GLIBC, GNU, GO]), Some((Kind::Go, "dynamic"))),
            (
                "musl",
                image(OWN_MACHINE, 2, &[(INTERP, b"/lib/ld-musl-x86_64.so.1\0")]),
                Some((Kind::OtherLibc, "/lib/ld-musl-x86_64.so.1")),
            ),
            ("32 bits", image(elf::EM_386, 1, &[]), Some((Kind::OtherArchitecture, "i386, 32 bits"))),
            (
                "another machine",
                image(other, 2, &[GLIBC]),
                Some((Kind::OtherArchitecture, &*format!("machine {other}, 64 bits"))),
            ),
        ] {
            let got = hindrance(bytes.as_slice());
            assert_eq!(got.as_ref().map(|found| (found.kind, found.detail.as_str())), want, "{name}");
        }
    }

    #[test]
    fn damaged_executables_are_read_without_panic() {
        let whole = image(OWN_MACHINE, 2, &[GLIBC, GO]);
        for length in 0..whole.len() {
            let _ = hindrance(&whole[..length]);
        }
        for index in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[index] = 0xff;
            let _ = hindrance(damaged.as_slice());
        }
    }

    #[test]
    fn rights() {
        let file = Rights { mode: 0o100_755, ..Rights::default() };
        for (name, rights, user, want) in [
            ("plain", file, 1000, None),
            ("setuid of another", Rights { mode: 0o104_755, ..file }, 1000, Some("setuid")),
            ("setuid of the caller's own", Rights { mode: 0o104_755, user: 1000, ..file }, 1000, None),
            ("setuid root, by root", Rights { mode: 0o104_755, ..file }, 0, None),
            ("setgid", Rights { mode: 0o102_755, group: 7, ..file }, 1000, Some("setgid")),
            ("mandatory locking", Rights { mode: 0o102_745, group: 7, ..file }, 1000, None),
            ("capabilities", Rights { capabilities: true, ..file }, 1000, Some("file capabilities")),
            ("capabilities, by root", Rights { capabilities: true, ..file }, 0, None),
            ("nosuid", Rights { mode: 0o104_755, void: true, ..file }, 1000, None),
        ] {
            assert_eq!(raised(rights, user, user).map(|found| found.detail).as_deref(), want, "{name}");
        }
    }

    #[test]
    fn scripts() {
        for (line, want) in [
            ("#!/bin/sh\necho", Some(("/bin/sh", None))),
            ("#! /usr/bin/env -S python3 -u \n", Some(("/usr/bin/env", Some("-S python3 -u")))),
            ("#!\n", None),
            ("echo", None),
        ] {
            assert_eq!(script(line.as_bytes()), want, "{line}");
        }
        for (line, want) in [("python3", Some("python3")), ("-S A=b ./app x", Some("./app")), ("-i", None)] {
            assert_eq!(of_env(line), want, "{line}");
        }
    }
}
