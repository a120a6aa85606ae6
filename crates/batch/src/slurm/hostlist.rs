//! Slurm's lists of nodes, such as `n[1-3,07],gpu1` (scontrol(1), `show hostnames`).

/// Most nodes of a list, as many as Slurm has in a cluster at most (`MAX_SLURM_NODES`).
const MOST: usize = 65_536;

/// The nodes of a list, in its order.
///
/// # Errors
/// If the list isn't one, or has more than 65,536 nodes.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut nodes = Vec::new();
    for entry in entries(list)? {
        let mut names = vec![String::new()];
        for part in parts(entry)? {
            names = match part {
                Part::Plain(text) => names.into_iter().map(|name| name + text).collect(),
                Part::Numbers(ranges) => append(&names, ranges, MOST - nodes.len())?,
            };
        }
        if names.len() > MOST - nodes.len() {
            return Err(format!("more than {MOST} nodes"));
        }
        nodes.append(&mut names);
    }
    Ok(nodes)
}

/// A part of an entry.
enum Part<'a> {
    Plain(&'a str),
    /// What is between brackets.
    Numbers(&'a str),
}

/// The entries of a list: what commas separate that aren't in brackets.
fn entries(list: &str) -> Result<Vec<&str>, String> {
    let mut inside = false;
    let split = list.split(|character| {
        match character {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        character == ',' && !inside
    });
    let entries: Vec<_> = split.collect();
    if list.is_empty() {
        Ok(Vec::new())
    } else if entries.iter().any(|entry| entry.is_empty()) {
        Err(format!("an empty name in {list:?}"))
    } else {
        Ok(entries)
    }
}

fn parts(entry: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = entry;
    while !rest.is_empty() {
        let (plain, numbers) =
            rest.split_once('[').map_or((rest, None), |(plain, numbers)| (plain, Some(numbers)));
        if plain.contains(']') {
            return Err(format!("brackets that don't match in {entry:?}"));
        }
        parts.push(Part::Plain(plain));
        let Some(numbers) = numbers else { break };
        let (inside, after) =
            numbers.split_once(']').ok_or_else(|| format!("brackets that don't match in {entry:?}"))?;
        parts.push(Part::Numbers(inside));
        rest = after;
    }
    Ok(parts)
}

/// Each name with each number of the ranges: at most `most` of them.
fn append(names: &[String], ranges: &str, most: usize) -> Result<Vec<String>, String> {
    let mut longer = Vec::new();
    for name in names {
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let digits =
                |text: &str| (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            let (Ok(low), Ok(high)) = (first.parse::<u32>(), last.parse::<u32>()) else {
                return Err(format!("a range of numbers in {ranges:?}"));
            };
            if !digits(first) || !digits(last) || low > high {
                return Err(format!("a range of numbers in {ranges:?}"));
            }
            if (high - low) as usize >= most - longer.len() {
                return Err(format!("more than {MOST} nodes"));
            }
            let width = first.len();
            longer.extend((low..=high).map(|number| format!("{name}{number:0width$}")));
        }
    }
    Ok(longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_names() {
        for (list, want) in [
            ("", ""),
            ("n1", "n1"),
            ("n[1-3]", "n1 n2 n3"),
            ("n[08-10,2],gpu1", "n08 n09 n10 n2 gpu1"),
            ("r[1-2]n[3-4]x", "r1n3x r1n4x r2n3x r2n4x"),
            ("a,b-c.example", "a b-c.example"),
        ] {
            assert_eq!(expand(list).unwrap().join(" "), want, "{list}");
        }
    }

    #[test]
    fn what_is_no_list_or_too_long_is_refused() {
        for list in [
            "n[",
            "n]",
            "n[]",
            "n[1",
            "n[a]",
            "n[2-1]",
            "n[1-]",
            "n[-1]",
            "n[+1]",
            "n[1-2-3]",
            ",",
            "a,,b",
            "n[1]]",
            "n[[1]]",
            "n[0-65536]",
            "n[1-999999999]",
            "n[1-300]m[1-300]",
            "n[99999999999]",
        ] {
            assert!(expand(list).is_err(), "{list}");
        }
        assert_eq!(expand("n[0-65535]").unwrap().len(), MOST);
    }
}
