//! Counts of a job's nodes as Slurm writes them, `2(x3),1` (sbatch(1), "SLURM_TASKS_PER_NODE").

/// Most nodes that counts are for, as a list of hosts has.
const NODES: u64 = 65_536;
/// Most ranks of a node that are believed.
const MOST: u32 = 1 << 20;

/// The text is no list of counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no list of counts such as 2(x3),1")]
pub struct CountsError(String);

/// A count for each node.
///
/// # Errors
/// [`CountsError`].
pub(crate) fn expand(text: &str) -> Result<Vec<u32>, CountsError> {
    let wrong = || CountsError(text.chars().take(80).collect());
    let mut counts: Vec<u32> = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')').ok_or_else(wrong)?),
            None => (part, "1"),
        };
        let number =
            |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('+')).ok_or_else(wrong);
        let count = u32::try_from(number(count)?).ok().filter(|count| *count <= MOST).ok_or_else(wrong)?;
        let times = number(times)?;
        if times == 0 || times > NODES - (counts.len() as u64).min(NODES) {
            return Err(wrong());
        }
        counts.extend((0..times).map(|_| count));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_repeated() {
        for (text, want) in
            [("4", &[4][..]), ("2(x3),1", &[2, 2, 2, 1]), ("1,2(x2)", &[1, 2, 2]), ("0", &[0])]
        {
            assert_eq!(expand(text).unwrap(), want, "{text}");
        }
        for text in [
            "",
            "x",
            "2(x",
            "2(x0)",
            "2(xa)",
            "-1",
            "+1",
            "2(x99999999999)",
            "4294967296",
            "1,",
            "2(x65536),1",
        ] {
            assert!(expand(text).is_err(), "{text}");
        }
        assert_eq!(expand("2(x65536)").unwrap().len(), 65_536);
    }
}
