//! What programs other than MPI's are told of their group: variables of their environment, named
//! like those of `isthmus run --each`. MPI programs ask their library.

/// The name of the process's group.
pub const GROUP: &str = "ISTHMUS_GROUP";
/// The process's number within its group, from 0 on.
pub const GROUP_RANK: &str = "ISTHMUS_GROUP_RANK";
/// How many processes its group has.
pub const GROUP_RANKS: &str = "ISTHMUS_GROUP_RANKS";
/// All groups in the order of ranks, each with its number of processes: `masters:1,workers:7`.
pub const GROUP_LIST: &str = "ISTHMUS_GROUP_LIST";

/// The variables of the process with this number in its job. `groups` are the job's groups, in the
/// order of ranks, with the numbers of ranks that they got. A process after the last group has none
/// but the list.
pub fn environment(groups: &[(&str, u32)], rank: u32) -> Vec<(&'static str, String)> {
    if groups.is_empty() {
        return Vec::new();
    }
    let list: Vec<_> = groups.iter().map(|(name, ranks)| format!("{name}:{ranks}")).collect();
    let mut variables = vec![(GROUP_LIST, list.join(","))];
    let mut left = rank;
    for (name, ranks) in groups {
        if left < *ranks {
            variables.push((GROUP, (*name).to_owned()));
            variables.push((GROUP_RANK, left.to_string()));
            variables.push((GROUP_RANKS, ranks.to_string()));
            break;
        }
        left -= ranks;
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_its_group() {
        let groups = [("masters", 1), ("spares", 0), ("workers", 7)];
        let told = |groups, rank| {
            let variables: Vec<_> = environment(groups, rank)
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            variables.join(" ")
        };
        let list = "ISTHMUS_GROUP_LIST=masters:1,spares:0,workers:7";
        for (rank, want) in [
            (0, " ISTHMUS_GROUP=masters ISTHMUS_GROUP_RANK=0 ISTHMUS_GROUP_RANKS=1"),
            (1, " ISTHMUS_GROUP=workers ISTHMUS_GROUP_RANK=0 ISTHMUS_GROUP_RANKS=7"),
            (7, " ISTHMUS_GROUP=workers ISTHMUS_GROUP_RANK=6 ISTHMUS_GROUP_RANKS=7"),
            (8, ""),
            (u32::MAX, ""),
        ] {
            assert_eq!(told(&groups, rank), format!("{list}{want}"), "{rank}");
        }
        assert_eq!(told(&[], 0), "");
    }
}
