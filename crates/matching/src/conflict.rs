//! The smallest set of requirements that can't be met together.

use crate::impossible::Oracle;
use crate::requirement::Requirement;

/// So many steps a search for the next set to try may take.
const MOST_STEPS: u32 = 1_000_000;

/// The smallest set of these, which can't all be met together, that can't be either; and whether it
/// is sure that there is no smaller one.
///
/// First a minimal set is found by halving (Junker, "QuickXplain", AAAI 2004). Then smaller ones are
/// tried by implicit hitting sets (Ignatiev et al., "Smallest MUS extraction with minimal hitting
/// set dualization", CP 2015): a set that can't be met has one requirement at least of each set
/// without which all others can be met.
pub(crate) fn smallest(oracle: &mut Oracle<'_, '_>, all: &[Requirement]) -> (Vec<Requirement>, bool) {
    let indices: Vec<usize> = (0..all.len()).collect();
    let mut search = Conflicts { oracle, all };
    let mut best = search.minimal(&[], false, &indices);
    best.sort_unstable();
    let mut corrections: Vec<Vec<usize>> = Vec::new();
    let sure = loop {
        let mut steps = MOST_STEPS;
        let Some(tried) = hitting(&corrections, best.len().saturating_sub(1), &mut steps) else {
            break steps > 0;
        };
        if !search.possible(&tried) {
            best = tried;
            break true;
        }
        if search.oracle.unsure {
            break false;
        }
        let correction = search.correction(&tried);
        if correction.is_empty() {
            // Only if time ran out: all together are known to be impossible.
            break false;
        }
        corrections.push(correction);
    };
    best.sort_unstable();
    (best.into_iter().map(|index| all[index].clone()).collect(), sure)
}

struct Conflicts<'s, 'a, 'm> {
    oracle: &'s mut Oracle<'a, 'm>,
    all: &'s [Requirement],
}

impl Conflicts<'_, '_, '_> {
    fn possible(&mut self, indices: &[usize]) -> bool {
        let requirements: Vec<&Requirement> = indices.iter().map(|index| &self.all[*index]).collect();
        self.oracle.possible(requirements.iter().copied())
    }

    /// A minimal set of `from` that can't be met with `given`, which can be met if nothing was
    /// `added` to it.
    fn minimal(&mut self, given: &[usize], added: bool, from: &[usize]) -> Vec<usize> {
        if added && !self.possible(given) {
            return Vec::new();
        }
        if from.len() < 2 {
            return from.to_vec();
        }
        let (first, second) = from.split_at(from.len() / 2);
        let with = |more: &[usize]| [given, more].concat();
        let of_second = self.minimal(&with(first), true, second);
        let of_first = self.minimal(&with(&of_second), !of_second.is_empty(), first);
        [of_first, of_second].concat()
    }

    /// The requirements that are left when as many as possible are met beside the `tried` ones.
    fn correction(&mut self, tried: &[usize]) -> Vec<usize> {
        let mut met = tried.to_vec();
        let mut left = Vec::new();
        let rest: Vec<usize> = (0..self.all.len()).filter(|index| !tried.contains(index)).collect();
        self.extend(&mut met, &rest, &mut left);
        left
    }

    /// Adds all of `more` to what is met that can be, in large steps where that goes.
    fn extend(&mut self, met: &mut Vec<usize>, more: &[usize], left: &mut Vec<usize>) {
        if more.is_empty() {
            return;
        }
        let with = [met.as_slice(), more].concat();
        if self.possible(&with) {
            *met = with;
        } else if let [one] = more {
            left.push(*one);
        } else {
            let (first, second) = more.split_at(more.len() / 2);
            self.extend(met, first, left);
            self.extend(met, second, left);
        }
    }
}

/// The smallest set with an element of each of these, of at most so many elements; `None` if there
/// is none or the steps are used up.
fn hitting(sets: &[Vec<usize>], most: usize, steps: &mut u32) -> Option<Vec<usize>> {
    (0..=most).find_map(|size| {
        let mut chosen = Vec::new();
        hit(sets, size, &mut chosen, steps).then_some(chosen)
    })
}

fn hit(sets: &[Vec<usize>], left: usize, chosen: &mut Vec<usize>, steps: &mut u32) -> bool {
    let Some(next) = steps.checked_sub(1) else { return false };
    *steps = next;
    let Some(missed) = sets.iter().find(|set| !set.iter().any(|one| chosen.contains(one))) else {
        return true;
    };
    if left == 0 {
        return false;
    }
    for one in missed {
        chosen.push(*one);
        if hit(sets, left - 1, chosen, steps) {
            return true;
        }
        chosen.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hitting_sets_are_smallest() {
        for (sets, most, want) in [
            (vec![], 3, Some(vec![])),
            (vec![vec![4]], 0, None),
            (vec![vec![1, 2], vec![2, 3], vec![3, 1]], 1, None),
            (vec![vec![1, 2], vec![2, 3], vec![3, 1]], 2, Some(vec![1, 2])),
            (vec![vec![1, 5], vec![2, 5], vec![3, 5]], 3, Some(vec![5])),
        ] {
            let mut steps = 1000;
            assert_eq!(hitting(&sets, most, &mut steps), want, "{sets:?}");
        }
        let mut steps = 2;
        assert_eq!(hitting(&[vec![1], vec![2], vec![3]], 3, &mut steps), None);
        assert_eq!(steps, 0);
    }
}
