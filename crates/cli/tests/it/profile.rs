//! `isthmus profile`.

use crate::playground::Playground;

#[test]
fn a_profile_is_checked_and_explained() {
    let playground = Playground::new();
    let file = playground.path("job.toml");
    std::fs::write(&file, "[[group]]\nname = 'workers'\nranks = '4-16'\nmemory = '2 GiB'\n").unwrap();
    assert_eq!(playground.good("profile check job.toml"), "job.toml: 4 to 16 ranks in 1 group\n");
    let text = playground.good("profile explain job.toml");
    assert!(text.starts_with("4 to 16 ranks in 1 group\n") && text.contains("2 GiB of memory"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&playground.good("profile explain job.toml --json")).unwrap();
    assert_eq!((&json["groups"][0]["name"], &json["least_ranks"]), (&"workers".into(), &4.into()));

    std::fs::write(&file, "[[group]]\nname = 'workers'\nranks = 0 # \u{1b}[2J\n").unwrap();
    playground.bad("profile check missing.toml", "isthmus profile: cannot read missing.toml: No such file");
    for verb in ["check", "explain"] {
        let output = playground.isthmus(&format!("profile {verb} job.toml"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{said}");
        assert!(said.starts_with("isthmus profile: job.toml:3:"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
}
