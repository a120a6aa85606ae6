//! Which gathers are measured, and how slow: a table. Pure.
//!
//! All sizes from all numbers of senders over all links would take a night. By default what lies
//! between two others, or tells nothing that a smaller size doesn't, is left out.

use isthmus_lab::grid::Slow;

use super::{
    BDP, FAR, FAR_LINK, FAR_SIZE, Gather, LOSSES, Loss, MeasuredLink, NEAR, QUEUES, SENDERS, SHORT, SIZES,
    SMALL,
};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// What is needed to judge.
    Needed,
    /// Each queue without loss and each loss with a queue of the bandwidth-delay product, with every
    /// size and number of senders.
    All,
    /// Every queue with every loss as well.
    Every,
}

/// The size at which all is measured: that of the and the papers' bars.
const MAIN_SIZE: u64 = 1_000_000;
/// A size that takes long, and differs little from the main one.
const LARGEST: u64 = 10_000_000;

/// Whether a gather is needed to judge.
fn is_needed(gather: &Gather) -> bool {
    let Gather { link: MeasuredLink { queue, loss, .. }, senders, size, pings } = *gather;
    // A number of senders between two others.
    let is_end = senders == SENDERS[0] || senders == SENDERS[2];
    if pings {
        // Loss makes queues shorter, and a ping's answer sooner.
        return loss == Loss::NONE || loss == Loss("0.1 %");
    }
    match size {
        MAIN_SIZE => true,
        // As many bytes as 20 of the main size, from few senders.
        LARGEST => senders == SENDERS[2] && queue == BDP && [Loss::NONE, Loss("0.1 %")].contains(&loss),
        // What crossings decide: no packet waits in a queue but the shortest.
        size if size <= SMALL => {
            is_end && [(BDP, Loss::NONE), (SHORT, Loss::NONE), (BDP, Loss("1 %"))].contains(&(queue, loss))
        }
        // A loss between two others.
        _ => is_end && loss != Loss("0.01 %"),
    }
}

/// All gathers that are measured, in parts. Each part has its share of the time.
pub(super) fn parts(extent: Extent) -> Vec<Vec<Gather>> {
    let links = || {
        let all = QUEUES
            .iter()
            .flat_map(|queue| LOSSES.map(|loss| MeasuredLink { path: NEAR, queue: *queue, loss }));
        all.filter(move |link| extent == Extent::Every || link.queue == BDP || link.loss == Loss::NONE)
    };
    let gathers = |size: u64, pings: bool, senders: &[u64]| -> Vec<Gather> {
        let each = senders.iter().flat_map(|senders| links().map(|link| (*senders, link)));
        let each = each.map(|(senders, link)| Gather { link, senders, size, pings });
        each.filter(|gather| extent != Extent::Needed || is_needed(gather)).collect()
    };
    let mut parts = vec![gathers(SIZES[0], false, &SENDERS), gathers(1_000_000, true, &SENDERS[..1])];
    parts.push(vec![Gather { link: FAR_LINK, senders: 1, size: FAR_SIZE, pings: false }]);
    parts.extend(SIZES[1..].iter().map(|size| gathers(*size, false, &SENDERS)));
    parts
}

/// Slowest motion of a way over an ocean, whose round trip takes 100 ms.
const MOST_FAR: u32 = 9;

/// The slow motion of a gather. The rate decides large ones, and processors do little beside it: less
/// will do. A way over an ocean is slow enough that with more TCP would take its round trip for a
/// loss.
pub(super) fn slow_motion(gather: &Gather, slow: Slow) -> Slow {
    match gather {
        Gather { link, .. } if link.path == FAR => slow.less(8).at_most(MOST_FAR),
        Gather { size, .. } if *size <= SMALL => slow.less(2),
        _ => slow.less(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_loss_has_the_long_queue() {
        let count = |extent| parts(extent).iter().map(Vec::len).sum::<usize>();
        assert_eq!(
            [Extent::Needed, Extent::All, Extent::Every].map(count),
            [18 + 4 + 1 + 10 + 6 + 6 + 2, 6 * 16 + 1, 12 * 16 + 1]
        );
    }

    #[test]
    fn what_is_needed() {
        for (senders, size, name, loss, pings, want) in [
            (10, 1_000_000, "256 KiB", "0 %", false, true),
            (10, 1_000_000, "BDP", "0.01 %", false, true),
            (19, 100_000, "BDP", "0.1 %", false, true),
            (19, 100_000, "BDP", "0.01 %", false, false),
            (10, 100_000, "BDP", "0.1 %", false, false),
            (2, 1_000, "64 KiB", "0 %", false, true),
            (2, 1_000, "256 KiB", "0 %", false, false),
            (2, 10_000, "BDP", "0.1 %", false, false),
            (2, 10_000_000, "BDP", "0.1 %", false, true),
            (19, 10_000_000, "BDP", "0 %", false, false),
            (19, 1_000_000, "64 KiB", "0 %", true, true),
            (19, 1_000_000, "BDP", "1 %", true, false),
        ] {
            let queue = QUEUES.into_iter().find(|queue| queue.1 == name).unwrap();
            let link = MeasuredLink { path: NEAR, queue, loss: Loss(loss) };
            let gather = Gather { link, senders, size, pings };
            assert_eq!(is_needed(&gather), want, "{gather}");
        }
    }

    #[test]
    fn large_gathers_need_less_slow_motion() {
        let far = Gather { link: FAR_LINK, senders: 1, size: FAR_SIZE, pings: false };
        let near =
            |size| Gather { link: MeasuredLink { path: NEAR, queue: BDP, loss: Loss::NONE }, size, ..far };
        for (gather, slow, want) in
            [(near(1_000), 20, 10), (near(1_000_000), 20, 5), (far, 20, 3), (near(1_000), 1, 1), (far, 90, 9)]
        {
            assert_eq!(slow_motion(&gather, Slow::try_from(slow).unwrap()).factor(), want, "{gather}");
        }
    }
}
