//! What is no profile, with the place and the words that its author gets.

use crate::Profile;
use crate::limits::{BETWEEN_MAX, COMMAND_WORDS_MAX, GROUPS_MAX, TAGS_MAX};

fn refused(text: &str) -> String {
    Profile::parse(text, "job.toml").unwrap_err().to_string()
}

/// A profile whose first group has these further lines.
fn with(lines: &str) -> String {
    format!("[[group]]\nname = 'a'\nranks = 4\n{lines}\n[[group]]\nname = 'b'\nranks = 4\n")
}

#[test]
fn faults_of_the_file() {
    for (text, want) in [
        ("", "job.toml:1:1: no [[group]] and no `reorder`"),
        ("time = '2h'\nreorder = true", "job.toml:1:1: no [[group]]"),
        ("groups = 3", "job.toml:1:1: unknown field `groups`, expected one of `group`"),
        ("reorder = 'yes'", "job.toml:1:11: invalid type: string \"yes\", expected a boolean"),
        ("[[group]]\nname = 'a'\n", "missing field `ranks`"),
        ("[[group]]\nname = 'a'\nranks = 4\nname = 'b'\n", "job.toml:4:1: duplicate key"),
        ("[[group]\n", "job.toml:1:"),
        ("a = \"\u{1b}\"", "job.toml:1:"),
        (&"[".repeat(100_000), "job.toml:1:"),
    ] {
        let error = refused(text);
        assert!(error.contains(want), "{}: {error}", text.chars().take(80).collect::<String>());
    }
}

#[test]
fn faults_of_a_group() {
    for (lines, want) in [
        ("site = 'b'", "job.toml:4:1: unknown field `site`"),
        ("core = 2", "job.toml:4:1: unknown field `core`, expected one of"),
        ("core = 2", "did you mean `cores`?"),
        ("cores = 0", "job.toml:4:9: a rank needs 1 to 10000 cores"),
        ("cores = -1", "job.toml:4:9: invalid value: integer `-1`"),
        (
            "memory = '2 gig'",
            "job.toml:4:10: \"2 gig\" is not a size: expected a number and a unit, such as \"256 KiB\"",
        ),
        ("memory = '0 B'", "job.toml:4:10: a rank needs some memory: leave `memory` out"),
        ("memory = 4", "job.toml:4:10: invalid type: integer `4`, expected a string"),
        (
            "architecture = 'pdp11'",
            "job.toml:4:16: \"pdp11\" is no architecture that isthmus knows: write it as `uname -m`",
        ),
        ("tags = ['gpu', 'two words']", "job.toml:4:16: \"two words\" can't be a tag"),
        ("rtt = '0 ms'", "job.toml:4:7: no network has so short a round trip"),
        ("rtt = '999 ns'", "job.toml:4:7: no network has so short a round trip"),
        ("rtt = '2'", "job.toml:4:7: \"2\" is not a delay"),
        ("rate = '0 bit/s'", "job.toml:4:8: this asks for nothing: leave `rate` out"),
        ("rate = '1 gigabit'", "job.toml:4:8: \"1 gigabit\" is not a rate"),
        ("split = 'yes'", "job.toml:4:9: invalid type"),
        (
            "command = './a -x'",
            "job.toml:4:11: invalid type: string \"./a -x\", expected a list of words, such as [\"./worker\"",
        ),
        ("command = []", "job.toml:4:11: no program: give it with its arguments"),
        ("command = ['']", "job.toml:4:12: this is no program"),
        ("command = ['-n', '4']", "job.toml:4:12: this is no program"),
        ("command = ['a', ':', 'b']", "job.toml:4:17: launchers take the word \":\" for the end"),
        ("command = ['a', \"\\u0000\"]", "job.toml:4:17: no word of a command can have the character U+0000"),
        ("command = ['a', 1]", "job.toml:4:17: invalid type: integer `1`, expected a string"),
    ] {
        let error = refused(&with(lines));
        assert!(error.contains(want), "{lines}: {error}");
    }
}

#[test]
fn faults_of_names_and_ranks() {
    for (text, want) in [
        (
            "[[group]]\nname = 'a b'\nranks = 1",
            "job.toml:2:8: \"a b\" is not a valid name: use 1 to 63 letters",
        ),
        ("[[group]]\nname = ''\nranks = 1", "job.toml:2:8: \"\" is not a valid name"),
        ("[[group]]\nname = 'a'\nranks = 0", "job.toml:3:9: a group has at least 1 rank"),
        ("[[group]]\nname = 'a'\nranks = '0-4'", "job.toml:3:9: a group has at least 1 rank"),
        ("[[group]]\nname = 'a'\nranks = -1", "job.toml:3:9: -1 is no number of ranks"),
        (
            "[[group]]\nname = 'a'\nranks = '4..16'",
            "job.toml:3:9: \"4..16\" is no number of ranks: write a number, such as 4, or",
        ),
        (
            "[[group]]\nname = 'a'\nranks = '16-4'",
            "job.toml:3:9: \"16-4\" goes from more ranks to fewer: write \"4-16\"",
        ),
        (
            "[[group]]\nname = 'a'\nranks = 1.5",
            "expected a number of ranks such as 4, or a range such as \"4-16\"",
        ),
        ("[[group]]\nname = 'a'\nranks = 4294967296", "job.toml:3:9: 4294967296 is no number of ranks"),
        (
            "[[group]]\nname = 'a'\nranks = 1000001",
            "job.toml:3:9: with this group there are 1000001 ranks, at most 1000000",
        ),
        (
            "[[group]]\nname = 'a'\nranks = 1\n[[group]]\nname = 'A'\nranks = 1",
            "job.toml:5:8: there are two groups \"a\": give this one another name",
        ),
        (
            "[[group]]\nname = 'a'\nranks = 1\n[[group]]\nname = 'b'\nranks = '1-1000000'",
            "job.toml:6:9: with this group there are 1000001 ranks",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(want), "{text}: {error}");
    }
}

#[test]
fn faults_between_groups_and_of_the_time() {
    for (lines, want) in [
        (
            "[[between]]\ngroups = ['a', 'c']\nrtt = '1 ms'",
            "job.toml:5:16: \"c\" is no group of this profile, which has a, b",
        ),
        (
            "[[between]]\ngroups = ['a', 'A']\nrtt = '1 ms'",
            "job.toml:5:10: a group and itself: write `rtt` and `rate`",
        ),
        ("[[between]]\ngroups = ['a', 'b']", "job.toml:5:10: this asks for nothing: add `rtt` or `rate`"),
        ("[[between]]\ngroups = ['a']\nrtt = '1 ms'", "job.toml:5:10: name two groups, such as"),
        ("[[between]]\ngroups = ['a', 'b', 'b']\nrtt = '1 ms'", "job.toml:5:10: name two groups"),
        ("[[between]]\ngroups = ['a', 'b']\nrtt = '61 s'", "job.toml:6:7: \"61 s\" is not a delay"),
        (
            "[[between]]\ngroups = ['a', 'b']\nrtt = '1 ms'\n[[between]]\ngroups = ['b', 'a']\nrate = '1 Mbit/s'",
            "job.toml:8:10: there is a [[between]] for b and a already: write all into one",
        ),
    ] {
        let error = refused(&with(lines));
        assert!(error.contains(want), "{lines}: {error}");
    }
    for (time, want) in [
        ("2", "\"2\" is no time: time unit needed"),
        ("soon", "\"soon\" is no time: give a time, such as 90s or 15m"),
        ("1500ms", "give whole seconds"),
        ("0s", "a job needs some time"),
        ("366d", "a job has a year at most"),
    ] {
        let error = refused(&format!("time = '{time}'\n{}", with("")));
        assert!(error.contains("job.toml:1:8: ") && error.contains(want), "{time}: {error}");
    }
    assert!(
        refused("[[between]]\ngroups = ['a', 'b']\n[[group]]\nname = 'c'\nranks = 1").contains("which has c")
    );
}

fn groups(count: usize) -> String {
    let group = |place: usize| format!("[[group]]\nname = 'g{place}'\nranks = 1\n");
    (0..count).map(group).collect()
}

/// As many groups as can be, with something between so many pairs of them.
fn pairs(count: usize) -> String {
    let pairs = (0..GROUPS_MAX).flat_map(|one| (0..one).map(move |other| (one, other))).take(count);
    let pair = |(one, other)| format!("[[between]]\ngroups = ['g{one}', 'g{other}']\nrtt = '1 ms'\n");
    groups(GROUPS_MAX) + &pairs.map(pair).collect::<String>()
}

fn words(key: &str, count: usize) -> String {
    with(&format!("{key} = [{}]", (0..count).map(|place| format!("'w{place}',")).collect::<String>()))
}

#[test]
fn counts_are_bounded() {
    let bounded = |what: &str, most: usize, text: &dyn Fn(usize) -> String| {
        assert!(Profile::parse(&text(most), "job.toml").is_ok(), "{what}");
        let error = refused(&text(most + 1));
        assert!(error.contains(&format!("{} {what} are too many, at most {most}", most + 1)), "{error}");
    };
    bounded("groups", GROUPS_MAX, &groups);
    bounded("[[between]]", BETWEEN_MAX, &pairs);
    bounded("words", COMMAND_WORDS_MAX, &|count| words("command", count));
    bounded("tags", TAGS_MAX, &|count| words("tags", count));
}

#[test]
fn the_value_is_shown() {
    let want = "job.toml:4:9: a rank needs 1 to 10000 cores\n  |\n4 | cores = 0\n  |         ^";
    assert_eq!(refused(&with("cores = 0")), want);
}
