//! Replays the inputs that are kept: seeds, and inputs that once broke a rule.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use isthmus_fuzz_cases::CASES;

/// Names of the entries of a directory, without their extensions.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let stem = |entry: std::fs::DirEntry| entry.path().file_stem().unwrap().to_str().unwrap().to_owned();
    entries.map(|entry| stem(entry.unwrap())).collect()
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

#[test]
fn every_kept_input_keeps_the_rules() {
    for case in CASES {
        let mut inputs = 0;
        for kept in ["corpus", "crashes"] {
            let Ok(entries) = std::fs::read_dir(fuzz().join(kept).join(case.name)) else { continue };
            for entry in entries {
                let path = entry.unwrap().path();
                println!("{}", path.display());
                (case.run)(&std::fs::read(path).unwrap());
                inputs += 1;
            }
        }
        assert!(inputs > 0, "{}: no seed in fuzz/corpus/{}", case.name, case.name);
    }
}

#[test]
fn every_case_is_a_target() {
    let cases: BTreeSet<_> = CASES.iter().map(|case| case.name.to_owned()).collect();
    assert_eq!(names(&fuzz().join("fuzz_targets")), cases);
    assert!(names(&fuzz().join("corpus")).is_subset(&cases));
}
