//! Lists of hosts as Slurm writes them, `n[1-3,7],login` (scontrol(1), "hostnames" and "hostlist").

/// Most hosts of a list. Slurm's own bound on the nodes of a cluster is 65,536 (slurm.conf(5),
/// "NodeName").
const HOSTS: usize = 65_536;
/// Longest list that is read, in bytes.
const TEXT: usize = 1 << 20;
/// Longest name of a host, in bytes (RFC 1123).
const NAME: usize = 255;
/// Most brackets in one name.
const BRACKETS: usize = 8;
/// Most digits of a number in brackets.
const DIGITS: usize = 18;

/// Why a text is no list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// The text is longer than any list.
    #[error("a list of hosts has {0} bytes, more than {TEXT}")]
    Long(usize),
    /// The list has too many hosts.
    #[error("{0:?} has more than {HOSTS} hosts")]
    Many(String),
    /// A part of the list isn't as Slurm writes it.
    #[error("{text:?} is no list of hosts: {what}")]
    Form {
        /// The part of the list.
        text: String,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// The hosts of a list, in its order. Of a name with several brackets, the last one changes first.
///
/// # Errors
/// [`HostlistError`].
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    if list.len() > TEXT {
        return Err(HostlistError::Long(list.len()));
    }
    let mut hosts = Vec::new();
    for part in parts(list)? {
        let mut names = vec![String::new()];
        for piece in pieces(part)? {
            names = joined(&names, &piece, part)?;
        }
        if hosts.len() + names.len() > HOSTS {
            return Err(HostlistError::Many(shown(list)));
        }
        if names.iter().any(|name| name.is_empty() || name.len() > NAME) {
            return Err(form(part, "a host has 1 to 255 characters"));
        }
        hosts.extend(names);
    }
    Ok(hosts)
}

/// A piece of a name.
enum Piece<'a> {
    Text(&'a str),
    /// What is between brackets: numbers and ranges.
    Numbers(Vec<Range>),
}

/// Numbers from `first` to `last`, of at least `width` digits.
struct Range {
    first: u64,
    last: u64,
    width: usize,
}

/// Each name followed by each text of the piece.
fn joined(names: &[String], piece: &Piece<'_>, part: &str) -> Result<Vec<String>, HostlistError> {
    let ends: Vec<String> = match piece {
        Piece::Text(text) => vec![(*text).to_owned()],
        Piece::Numbers(ranges) => {
            let count: u64 =
                ranges.iter().map(|range| range.last - range.first + 1).fold(0, u64::saturating_add);
            if count.saturating_mul(names.len() as u64) > HOSTS as u64 {
                return Err(HostlistError::Many(shown(part)));
            }
            let text = |range: &Range, number| format!("{number:0width$}", width = range.width);
            ranges.iter().flat_map(|range| (range.first..=range.last).map(move |n| text(range, n))).collect()
        }
    };
    Ok(names.iter().flat_map(|name| ends.iter().map(move |end| format!("{name}{end}"))).collect())
}

/// The parts of a list between the commas that are in no brackets.
fn parts(list: &str) -> Result<Vec<&str>, HostlistError> {
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' if inside => return Err(form(list, "a bracket within brackets")),
            b']' if !inside => return Err(form(list, "a bracket that wasn't opened")),
            b'[' => inside = true,
            b']' => inside = false,
            b',' if !inside => {
                parts.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(form(list, "a bracket that isn't closed"));
    }
    parts.push(&list[begin..]);
    Ok(parts)
}

/// The pieces of one name, whose brackets match.
fn pieces(part: &str) -> Result<Vec<Piece<'_>>, HostlistError> {
    let mut pieces = Vec::new();
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('[') {
        let (numbers, after) =
            after.split_once(']').ok_or_else(|| form(part, "a bracket that isn't closed"))?;
        pieces.push(Piece::Text(plain(before, part)?));
        pieces.push(Piece::Numbers(
            numbers
                .split(',')
                .map(|text| range(text).ok_or_else(|| form(part, "no number or range in brackets")))
                .collect::<Result<_, _>>()?,
        ));
        if pieces.len() > 2 * BRACKETS {
            return Err(form(part, "too many brackets"));
        }
        rest = after;
    }
    pieces.push(Piece::Text(plain(rest, part)?));
    Ok(pieces)
}

/// A text of characters that names of hosts have.
fn plain<'a>(text: &'a str, part: &str) -> Result<&'a str, HostlistError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.bytes().all(allowed) { Ok(text) } else { Err(form(part, "a character that no host has")) }
}

/// A number or a range, `3` or `01-16`; `None` if the text is neither.
fn range(text: &str) -> Option<Range> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |digits: &str| {
        let fits = (1..=DIGITS).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u64>().ok().filter(|_| fits)
    };
    let range = Range { first: number(first)?, last: number(last)?, width: first.len() };
    (range.first <= range.last).then_some(range)
}

fn form(text: &str, what: &'static str) -> HostlistError {
    HostlistError::Form { text: shown(text), what }
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_as_scontrol_does() {
        for (list, want) in [
            ("n1", "n1"),
            ("n[1-3,7]", "n1 n2 n3 n7"),
            ("n[2-3],login,gpu[01-02]", "n2 n3 login gpu01 gpu02"),
            ("node[008-011]", "node008 node009 node010 node011"),
            ("n[9-11]", "n9 n10 n11"),
            ("n[098-101]x", "n098x n099x n100x n101x"),
            ("rack[0-1]n[1-2]", "rack0n1 rack0n2 rack1n1 rack1n2"),
            ("a[1-2]b[1,3].site-x", "a1b1.site-x a1b3.site-x a2b1.site-x a2b3.site-x"),
            ("[1-3]", "1 2 3"),
            ("n[0-0]", "n0"),
        ] {
            assert_eq!(expand(list).unwrap().join(" "), want, "{list}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (list, want) in [
            ("", "1 to 255"),
            ("n1,", "1 to 255"),
            ("n[1-3", "isn't closed"),
            ("n1]", "wasn't opened"),
            ("n[1-[2-3]]", "within brackets"),
            ("n[]", "no number"),
            ("n[3-1]", "no number"),
            ("n[1-2-3]", "no number"),
            ("n[+1]", "no number"),
            ("n[1-x]", "no number"),
            ("n 1", "a character"),
            ("n1;reboot", "a character"),
            ("(null)", "a character"),
            ("n[0000000000000000001]", "no number"),
            ("n[0-99999999999]", "more than 65536 hosts"),
            ("a[0-999]b[0-999]", "more than 65536 hosts"),
            ("a[0-65535],b", "more than 65536 hosts"),
            ("a[1][1][1][1][1][1][1][1][1]", "too many brackets"),
        ] {
            let error = expand(list).unwrap_err().to_string();
            assert!(error.contains(want), "{list}: {error}");
        }
        assert_eq!(expand(&"n".repeat(TEXT + 1)), Err(HostlistError::Long(TEXT + 1)));
        assert!(expand(&"n".repeat(256)).is_err());
        assert_eq!(expand("a[0-65535]").unwrap().len(), 65_536);
    }
}
