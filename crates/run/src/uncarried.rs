//! Programs that can't be carried: the message, and whether the job can start.
//! Pure decisions.

use isthmus_wire::proto::{Hindrance, UncarriedProgram};

/// The part of a program in the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// An MPI's launcher: it must reach the other nodes itself.
    Launcher,
    /// A program that a launcher starts as ranks.
    Rank,
    /// The user's own command: it may only start others, which are carried.
    Command,
}

/// The reasons why programs can't be carried, each once with its nodes; `None`
/// without programs.
pub(super) fn describe(programs: &[UncarriedProgram]) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, program) in programs.iter().enumerate() {
        let same = |other: &UncarriedProgram| reason(other) == reason(program);
        if programs[..index].iter().any(same) {
            continue;
        }
        let nodes: Vec<&str> =
            programs.iter().filter(|other| same(other)).map(|other| other.node.as_str()).collect();
        lines.push(format!("on {}: {}", nodes.join(", "), reason(program)));
    }
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Splits programs into those that make the job pointless and those of which to warn the user.
pub(super) fn sort(
    part: Part,
    programs: Vec<UncarriedProgram>,
) -> (Vec<UncarriedProgram>, Vec<UncarriedProgram>) {
    programs.into_iter().partition(|program| is_fatal(part, program))
}

fn is_fatal(part: Part, program: &UncarriedProgram) -> bool {
    match (part, program.hindrance()) {
        // The program's loader fails on the preloaded library.
        (_, Hindrance::OtherLibc) => true,
        // The program's C code is carried, such as an MPI library.
        (Part::Rank, Hindrance::Go) => program.detail != "dynamic",
        (Part::Launcher | Part::Rank, _) => true,
        (Part::Command, _) => false,
    }
}

fn reason(program: &UncarriedProgram) -> String {
    let what = if program.program == program.file || program.program.is_empty() {
        program.file.clone()
    } else if program.file.ends_with(&format!("/{}", program.program.trim_start_matches("./"))) {
        program.program.clone()
    } else {
        format!("{} ({})", program.program, program.file)
    };
    let detail = &program.detail;
    match program.hindrance() {
        Hindrance::Static => format!(
            "{what} is linked statically, so its connections are not carried; link it dynamically, without -static"
        ),
        Hindrance::Go => format!(
            "{what} is written in Go, which makes system calls of its own, so the connections of its Go code are not carried"
        ),
        Hindrance::SetId => format!(
            "{what} runs with rights that its caller lacks ({detail}), so the system lets nothing be preloaded and its connections are not carried; use a copy without them"
        ),
        Hindrance::OtherLibc => format!(
            "{what} is for another C library than GNU's ({detail}), so it is not carried; use a build for GNU/Linux"
        ),
        Hindrance::OtherArchitecture => {
            format!(
                "{what} is for another machine ({detail}), so it is not carried; use a build for this one"
            )
        }
        Hindrance::PastLibc => format!(
            "{what} makes connections past the C library, as by io_uring, or has lost its agent, so those that it opens are not carried, and those that it accepts come from addresses of its own node; see \"Programs that can't be carried\" of docs/beyond-mpi.md"
        ),
        Hindrance::Filter => format!(
            "{what} has a filter of system calls (seccomp) that lets isthmus do nothing, so the connections that it opens are not carried; start it without the filter"
        ),
        Hindrance::Unknown => format!("{what} cannot be carried"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(
        node: &str,
        program: &str,
        file: &str,
        hindrance: Hindrance,
        detail: &str,
    ) -> UncarriedProgram {
        UncarriedProgram {
            node: node.to_owned(),
            program: program.to_owned(),
            file: file.to_owned(),
            hindrance: hindrance.into(),
            detail: detail.to_owned(),
        }
    }

    #[test]
    fn what_makes_a_job_pointless() {
        use Hindrance::{Go, OtherArchitecture, OtherLibc, SetId, Static};
        for (part, hindrance, detail, want) in [
            (Part::Launcher, Static, "", true),
            (Part::Rank, Static, "", true),
            (Part::Rank, SetId, "setuid", true),
            (Part::Rank, OtherArchitecture, "i386", true),
            (Part::Rank, Go, "static", true),
            (Part::Rank, Go, "dynamic", false),
            (Part::Command, Static, "", false),
            (Part::Command, Go, "static", false),
            (Part::Command, OtherLibc, "ld-musl", true),
        ] {
            let (fatal, warnings) = sort(part, vec![program("n1.a", "./app", "/app", hindrance, detail)]);
            assert_eq!(
                (fatal.len(), warnings.len()),
                (usize::from(want), usize::from(!want)),
                "{part:?} {hindrance:?}"
            );
        }
    }

    #[test]
    fn nodes_with_the_same_fault_share_a_line() {
        let programs = [
            program("n1.a", "./app", "/home/ada/./app", Hindrance::Static, ""),
            program("n1.b", "./app", "/home/ada/./app", Hindrance::Static, ""),
            program("n1.b", "./run.sh", "/opt/sh", Hindrance::OtherLibc, "/lib/ld-musl-x86_64.so.1"),
        ];
        assert_eq!(
            describe(&programs).unwrap(),
            "on n1.a, n1.b: ./app is linked statically, so its connections are not carried; link it dynamically, \
             without -static; on n1.b: ./run.sh (/opt/sh) is for another C library than GNU's \
             (/lib/ld-musl-x86_64.so.1), so it is not carried; use a build for GNU/Linux"
        );
        assert_eq!(describe(&[]), None);
    }
}
