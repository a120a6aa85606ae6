//! In which slow motion a case is measured, by what earlier rounds show. Pure.
//!
//! Rounds of different factors never come together in a row. So a case with rounds goes on in
//! theirs, or begins anew. To begin anew where rounds leave a bar undecided, and not where they meet
//! it, would be a second test. So what the rounds' figures are has no part in it: only their number
//! and the factors have.

use isthmus_lab::grid::Slow;

/// What is known of a case's rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Earlier {
    /// Their slow motion.
    pub slow: Slow,
    pub counted: usize,
}

/// The slow motion of a case, given what was asked for and the least in which its rounds aren't void
/// again and again. Nothing can be decided before `needed` rounds count.
///
/// - A case that was measured without slow motion and is asked for in it begins anew, decided or not,
///   as nobody looked how busy the machine was with it.
/// - So does a case with fewer than `needed` rounds if these were void again and again, or if anew
///   takes less time.
/// - Otherwise it goes on. A case with `needed` rounds may be decided, so it waits for a machine that
///   is quiet enough.
pub(super) fn of(asked: Slow, least: Option<Slow>, needed: usize, earlier: Option<Earlier>) -> Slow {
    let anew = least.map_or(asked, |least| asked.max(least));
    let Some(Earlier { slow, counted }) = earlier else { return anew };
    if asked.is_none() {
        return slow;
    }
    if slow.is_none() {
        return anew;
    }
    let Some(left) = needed.checked_sub(counted).filter(|left| *left > 0) else { return slow };
    let time = |rounds: usize, slow: Slow| rounds as u64 * u64::from(slow.factor());
    let is_too_fast = least.is_some_and(|least| slow < least);
    if is_too_fast || time(needed, anew) < time(left, slow) { anew } else { slow }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_case_goes_on_in() {
        let factor = |factor| Slow::try_from(factor).unwrap();
        let rounds = |slow, counted| Some((slow, counted));
        for (name, asked, least, earlier, want) in [
            ("no rounds", 10, None, None, 10),
            ("no rounds, void before", 10, Some(16), None, 16),
            ("no rounds, asked for more than was void", 40, Some(16), None, 40),
            ("goes on", 10, None, rounds(10, 2), 10),
            ("may be decided, in faster motion", 20, None, rounds(10, 5), 10),
            ("may be decided, in faster motion that was void later", 20, Some(15), rounds(10, 5), 10),
            ("many rounds in faster motion that was void later", 10, Some(15), rounds(10, 30), 10),
            ("may be decided, in slower motion", 10, None, rounds(40, 5), 40),
            ("begun in faster motion", 20, None, rounds(10, 2), 10),
            ("too fast", 10, Some(16), rounds(10, 2), 16),
            ("too fast, the last round before a verdict", 10, Some(16), rounds(10, 4), 16),
            ("too fast, asked for more", 20, Some(16), rounds(10, 2), 20),
            ("begun without", 20, None, rounds(1, 2), 20),
            ("may be decided, without", 20, None, rounds(1, 5), 20),
            ("many rounds without", 20, None, rounds(1, 30), 20),
            ("without, as asked for", 1, None, rounds(1, 5), 1),
            ("nothing asked for", 1, None, rounds(10, 2), 10),
            // 4 rounds at 40 take 160, 5 at 10 take 50.
            ("much too slow", 10, None, rounds(40, 1), 10),
            ("much too slow, but void in faster motion", 10, Some(40), rounds(40, 1), 40),
            // 1 round at 40 takes 40, 5 at 10 take 50.
            ("too slow, nearly done", 10, None, rounds(40, 4), 40),
        ] {
            let earlier = earlier.map(|(slow, counted)| Earlier { slow: factor(slow), counted });
            assert_eq!(of(factor(asked), least.map(factor), 5, earlier), factor(want), "{name}");
        }
    }
}
