//! What of a source file can change a figure: all but comments, white space, and what only tests
//! have compiled. Pure.

/// A file's text without what can't change a figure. Files of an unknown kind stay as they are.
pub(super) fn essence(path: &str, text: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit('.').next().unwrap_or_default() {
        "rs" => joined(&without_tests(&tokens(text, Language::Rust))),
        "c" | "cpp" | "h" | "proto" => joined(&tokens(text, Language::C)),
        "toml" | "py" | "sh" | "Makefile" | "in" => without_comment_lines(text),
        _ => text.to_owned(),
    }
}

/// Whether a file of a package is compiled for tests alone, or for nobody but who reads it.
pub(super) fn is_for_tests(path: &str) -> bool {
    let mut directories: Vec<&str> = path.split('/').collect();
    let name = directories.pop().unwrap_or_default();
    directories.iter().any(|one| ["tests", "examples", "benches"].contains(one))
        || name == "tests.rs"
        || name.ends_with("_tests.rs")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Rust,
    C,
}

fn joined(tokens: &[&str]) -> String {
    tokens.join(" ")
}

fn without_comment_lines(text: &str) -> String {
    let lines = text.lines().map(str::trim_end);
    lines
        .filter(|line| !line.is_empty() && !line.trim_start().starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The tokens of a text without comments. Marks such as `==` are several tokens.
fn tokens(text: &str, language: Language) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            comment(rest, language)
        } else {
            let length = token(rest, first, language);
            found.push(&rest[..length]);
            length
        };
        rest = &rest[length..];
    }
    found
}

/// Length of the comment between `/*` and `*/` at the beginning of a text. Those of Rust nest.
fn comment(text: &str, language: Language) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") && (depth == 0 || language == Language::Rust) {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of the token at the beginning of a text.
fn token(text: &str, first: char, language: Language) -> usize {
    let is_word = |one: char| one.is_alphanumeric() || one == '_';
    if first == '"' {
        return quoted(text, '"');
    }
    if first == '\'' {
        let mut next = text.chars().skip(1);
        let is_lifetime =
            language == Language::Rust && next.next() != Some('\\') && next.next() != Some('\'');
        return if is_lifetime { 1 } else { quoted(text, '\'') };
    }
    if !is_word(first) {
        return first.len_utf8();
    }
    let word = text.find(|one| !is_word(one)).unwrap_or(text.len());
    let prefixes = ["r", "br", "cr"];
    let raw = (language == Language::Rust && prefixes.contains(&&text[..word])).then(|| raw(&text[word..]));
    word + raw.flatten().unwrap_or(0)
}

/// Length of what is between two quotes, both included.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = true;
    for (at, one) in text.char_indices() {
        if !is_escaped && one == quote {
            return at + one.len_utf8();
        }
        is_escaped = at > 0 && !is_escaped && one == '\\';
    }
    text.len()
}

/// Length of a raw string such as `#"..."#`, after its letter. `None` if there is none.
fn raw(text: &str) -> Option<usize> {
    let hashes = text.len() - text.trim_start_matches('#').len();
    let body = text[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(hashes + 1 + body.find(&end).map_or(body.len(), |at| at + end.len()))
}

/// The tokens without the items that only tests have compiled. An item ends with a brace, a
/// semicolon or a comma, or where what it is in ends.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(token) = tokens.get(at) {
        if !tokens[at..].starts_with(&TEST) {
            found.push(*token);
            at += 1;
            continue;
        }
        at += TEST.len();
        while tokens[at..].starts_with(&["#", "["]) {
            at += 1 + group(&tokens[at + 1..]);
        }
        at += item(&tokens[at..]);
    }
    found
}

/// How many tokens the group at the beginning has, its brackets included.
fn group(tokens: &[&str]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn item(tokens: &[&str]) -> usize {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match *token {
            "{" => return at + group(&tokens[at..]),
            "(" | "[" => at += group(&tokens[at..]),
            ";" | "," => return at + 1,
            ")" | "]" | "}" => return at,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_change_a_figure() {
        let rust = |text: &str| essence("a.rs", text);
        for (name, one, other, is_same) in [
            ("comments", "/// A.\nfn a() {} // b", "fn a() {}", true),
            ("a block", "fn a() { /* b /* c */ d */ }", "fn a() {}", true),
            ("layout", "fn a( )\n{}", "fn a() {}", true),
            ("words", "fn ab() {}", "fn a b() {}", false),
            ("a value", "const A: u8 = 1;", "const A: u8 = 2;", false),
            ("no comment", "\"// a\"", "\"// b\"", false),
            ("nor this", "r#\"\"// a\"#", "r#\"\"// b\"#", false),
            ("nor this one", "b\"\\\"// a\"", "b\"\\\"// b\"", false),
            ("a quote", "'\"'; // a", "'\"'; // b", true),
            ("an escaped quote", "'\\''; // a", "'\\''; // b", true),
            ("a lifetime", "fn a<'a>() {} // 'b", "fn a<'a>() {}", true),
            ("tests", "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c[0] } }", "fn a() {}", true),
            ("tests elsewhere", "#[cfg(test)]\n#[path = \"b.rs\"]\nmod tests;\nfn a() {}", "fn a() {}", true),
            ("a test's function", "#[cfg(test)] fn b(c: [u8; 2]) -> D { e }\nfn a() {}", "fn a() {}", true),
            ("a test's field", "struct A { #[cfg(test)] b: u8, c: u8 }", "struct A { c: u8 }", true),
            ("a test's last field", "struct A { c: u8, #[cfg(test)] b: u8 }", "struct A { c: u8, }", true),
            ("what follows", "#[cfg(test)] use b;\nfn a() {}", "fn a() { c }", false),
            ("not for tests", "#[cfg(not(test))] fn a() {}", "fn a() {}", false),
        ] {
            assert_eq!(rust(one) == rust(other), is_same, "{name}: {} | {}", rust(one), rust(other));
        }
        assert_eq!(essence("a.c", "a(); /* /* b */ c('\\''); // d"), "a ( ) ; c ( '\\'' ) ;");
        assert_eq!(essence("Makefile", "# a\n\nb: c # d\n"), "b: c # d");
        assert_eq!(essence("a.py", "#!/b\n  # a\nc\n"), "c");
    }

    #[test]
    fn unfinished_texts_end() {
        for text in [
            "\"a",
            "'",
            "'\\",
            "/*",
            "r#\"a",
            "#[cfg(test)]",
            "#[cfg(test)] #[a",
            "#[cfg(test)] fn a() {",
            "é'é'",
        ] {
            essence("a.rs", text);
            essence("a.c", text);
        }
    }

    #[test]
    fn files_of_tests() {
        for (path, want) in [
            ("crates/carry/src/tests.rs", true),
            ("crates/carry/src/a/tests/b.rs", true),
            ("crates/splice/src/matcher_tests.rs", true),
            ("crates/carry/tests/it/main.rs", true),
            ("crates/carry/src/contests.rs", false),
            ("crates/carry/src/lib.rs", false),
        ] {
            assert_eq!(is_for_tests(path), want, "{path}");
        }
    }
}
