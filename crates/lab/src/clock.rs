//! Machines whose clock is wrong, by libfaketime (faketime(1)). The kernel has one clock for all, so it is
//! the programs that are deceived.

/// The variables with which a program's clock is ahead by so many seconds; none for a clock that is right.
/// What programs measure times with stays as it is, since the kernel's timers do.
pub(crate) fn variables(ahead_seconds: i32) -> Vec<(&'static str, String)> {
    if ahead_seconds == 0 {
        return Vec::new();
    }
    vec![
        ("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1".to_owned()),
        ("FAKETIME", format!("{ahead_seconds:+}")),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}

/// A script that gives Slurm's jobs the variables (`TaskProlog` in slurm.conf(5)). They don't have those of
/// slurmd.
pub(crate) fn task_prolog(ahead_seconds: i32) -> String {
    let export = |(name, value): (&str, String)| format!("echo 'export {name}={value}'\n");
    let exports: String = variables(ahead_seconds).into_iter().map(export).collect();
    format!("#!/bin/sh\n{exports}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_ahead_or_behind() {
        assert!(variables(0).is_empty());
        for (ahead, want) in [(3600, "+3600"), (-3600, "-3600")] {
            assert!(variables(ahead).contains(&("FAKETIME", want.to_owned())), "{ahead}");
            assert!(task_prolog(ahead).contains(&format!("\necho 'export FAKETIME={want}'\n")), "{ahead}");
        }
    }
}
