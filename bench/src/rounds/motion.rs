//! In which slow motion a case is measured, by what earlier rounds show. Pure.
//!
//! Rounds of different factors never come together in a row. So a case with rounds goes on in
//! theirs, or begins anew.

use isthmus_lab::grid::Slow;

/// What is known of a case's rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Earlier {
    /// Their slow motion.
    pub slow: Slow,
    pub counted: usize,
    /// How many more the case needs. `None` if it is too near to its bar.
    pub left: Option<usize>,
}

/// The slow motion of a case, given what was asked for and the least in which rounds aren't void
/// again and again.
///
/// - A case that is decided stays.
/// - A case whose rounds were void again and again begins anew.
/// - So does one that was measured without slow motion and is asked for in it, as nobody looked how
///   busy the machine was with it.
/// - Otherwise it goes on, unless it is so slow that anew takes less time.
pub(super) fn of(asked: Slow, least: Option<Slow>, earlier: Option<Earlier>) -> Slow {
    let anew = least.map_or(asked, |least| asked.max(least));
    let Some(Earlier { slow, counted, left }) = earlier else { return anew };
    if left == Some(0) || asked.is_none() {
        return slow;
    }
    if least.is_some_and(|least| slow < least) || slow.is_none() {
        return anew;
    }
    let Some(left) = left else { return slow };
    let time = |rounds: usize, slow: Slow| rounds as u64 * u64::from(slow.factor());
    if time(left + counted, anew) < time(left, slow) { anew } else { slow }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_case_goes_on_in() {
        let factor = |factor| Slow::try_from(factor).unwrap();
        let rounds = |slow, counted, left| Some((slow, counted, left));
        for (name, asked, least, earlier, want) in [
            ("no rounds", 10, None, None, 10),
            ("no rounds, void before", 10, Some(16), None, 16),
            ("no rounds, asked for more than was void", 40, Some(16), None, 40),
            ("goes on", 10, None, rounds(10, 2, Some(3)), 10),
            ("decided in faster motion", 20, None, rounds(10, 5, Some(0)), 10),
            ("decided in faster motion that was void later", 20, Some(15), rounds(10, 5, Some(0)), 10),
            ("decided without", 20, None, rounds(1, 5, Some(0)), 1),
            ("begun in faster motion", 20, None, rounds(10, 2, Some(3)), 10),
            ("too fast", 10, Some(16), rounds(10, 2, Some(3)), 16),
            ("too fast, asked for more", 20, Some(16), rounds(10, 2, Some(3)), 20),
            ("begun without", 20, None, rounds(1, 2, Some(3)), 20),
            ("nothing asked for", 1, None, rounds(10, 2, Some(3)), 10),
            // 4 rounds at 40 take 160, 5 at 10 take 50.
            ("much too slow", 10, None, rounds(40, 1, Some(4)), 10),
            ("much too slow, but void in faster motion", 10, Some(40), rounds(40, 1, Some(4)), 40),
            // 1 round at 40 takes 40, 5 at 10 take 50.
            ("too slow, nearly done", 10, None, rounds(40, 4, Some(1)), 40),
            ("too near to its bar", 10, None, rounds(40, 30, None), 40),
        ] {
            let earlier = earlier.map(|(slow, counted, left)| Earlier { slow: factor(slow), counted, left });
            assert_eq!(of(factor(asked), least.map(factor), earlier), factor(want), "{name}");
        }
    }
}
