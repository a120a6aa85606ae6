//! Reading what the scripts on hosts write. Pure functions.

use std::collections::BTreeMap;

use crate::state::End;

/// Most pilots that a host is believed to have.
const MOST_PILOTS: usize = 10_000;

/// What a host says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// Processors that are online.
    pub cores: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The pilots that are there, by number.
    pub pilots: BTreeMap<u64, OnHost>,
}

/// A pilot on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnHost {
    /// It runs.
    Running,
    /// It has ended.
    Ended(End),
    /// It no longer runs, and has not written how it ended: the host was started anew, or something
    /// has killed what watched it.
    Lost,
}

/// What a host wrote when it was looked at: a line `isthmus-host CORES MEMORY_KIB`, and then one for
/// each pilot: `pilot NUMBER running`, `pilot NUMBER ended STATUS`, `pilot NUMBER late`,
/// `pilot NUMBER lost`. What a login script of the user's writes before these lines doesn't count.
///
/// # Errors
/// If a line is missing, or isn't of that form.
pub fn looked(out: &str) -> Result<Looked, String> {
    let mut lines = out.lines().skip_while(|line| !line.starts_with("isthmus-host "));
    let wrong = |line: &str| format!("not understood: {:?}", line.chars().take(200).collect::<String>());
    let first = lines.next().ok_or_else(|| wrong(out))?;
    let [_, cores, memory] = first.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
        return Err(wrong(first));
    };
    let (Ok(cores), Ok(memory)) = (cores.parse::<u32>(), memory.parse::<u64>()) else {
        return Err(wrong(first));
    };
    let mut pilots = BTreeMap::new();
    for line in lines.take(MOST_PILOTS) {
        let (number, state) = pilot(line).ok_or_else(|| wrong(line))?;
        pilots.insert(number, state);
    }
    Ok(Looked { cores, memory_bytes: memory.saturating_mul(1024), pilots })
}

fn pilot(line: &str) -> Option<(u64, OnHost)> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let (number, state) = match words[..] {
        ["pilot", number, "running"] => (number, OnHost::Running),
        ["pilot", number, "late"] => (number, OnHost::Ended(End::TimeLimit)),
        ["pilot", number, "lost"] => (number, OnHost::Lost),
        ["pilot", number, "ended", status] => (number, OnHost::Ended(ended(status.parse().ok()?))),
        _ => return None,
    };
    Some((number.parse().ok()?, state))
}

/// How a script ended by the status that a shell gives it: 128 and a number stands for a signal.
fn ended(status: u8) -> End {
    match status {
        0 => End::Completed,
        129..=192 => End::Failed { status: 0, signal: status - 128 },
        _ => End::Failed { status, signal: 0 },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_says_what_it_is_and_what_it_runs() {
        let out = "Welcome!\nisthmus-host 8 16384000\npilot 1 running\npilot 2 ended 0\npilot 3 ended 3\npilot 4 ended 137\n\
                   pilot 5 late\npilot 6 lost\n";
        let looked = looked(out).unwrap();
        assert_eq!((looked.cores, looked.memory_bytes), (8, 16_384_000 * 1024));
        let failed = |status, signal| OnHost::Ended(End::Failed { status, signal });
        let want = [
            OnHost::Running,
            OnHost::Ended(End::Completed),
            failed(3, 0),
            failed(0, 9),
            OnHost::Ended(End::TimeLimit),
            OnHost::Lost,
        ];
        assert_eq!(looked.pilots.into_values().collect::<Vec<_>>(), want);
    }

    #[test]
    fn what_a_host_did_not_say_is_refused() {
        for out in [
            "",
            "Welcome!",
            "isthmus-host 8",
            "isthmus-host x 1",
            "isthmus-host 8 1\npilot 1",
            "isthmus-host 8 1\npilot 1 ended 300",
        ] {
            assert!(looked(out).is_err(), "{out}");
        }
    }

    proptest! {
        #[test]
        fn no_output_makes_the_parser_panic(text in "\\PC*|isthmus-host [0-9]{0,30} [0-9]{0,30}\n(pilot [0-9]{0,22} (running|ended [0-9]{0,5}|x)\n){0,4}") {
            let _ = looked(&text);
        }
    }
}
