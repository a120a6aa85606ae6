//! The integer program: how many nodes of which class each group takes, once it is clear which
//! groups are at which sites.
//!
//! For each group `g` there is its number of ranks `x(g)`, from its least to its most, and for each
//! class `c` at a site of the group the number of nodes `n(g, c)`, whole. With `r(g, c)` ranks for
//! which a node has room, `x(g) <= sum over c of r(g, c) n(g, c)`; and for each class, the sum of
//! `n(g, c)` over `g` is at most the number of its nodes.
//!
//! Whole nodes have room for at least the group's least only if, for each number of ranks `d`, the
//! sum over `c` of `r(g, c) / d`, rounded up, times `n(g, c)` is at least the group's least divided
//! by `d`, rounded up (Chvatal and Gomory). With these for each `d = r(g, c)` the program tells far
//! sooner that there is no room.

use std::collections::BTreeMap;

use microlp::{
    ComparisonOp, Error, LinearExpr, OptimizationDirection, SolveOptions, TerminationReason, Variable,
};

use crate::deadline::Deadline;
use crate::problem::{Problem, members};

/// Groups at a site, as bits.
pub(crate) type Cell = (usize, u64);

/// What is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Whether there is room at all.
    Room,
    /// The most ranks.
    MostRanks,
    /// The fewest nodes that have room for so many ranks.
    FewestNodes { ranks: u64 },
}

/// Nodes of one class for one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) group: usize,
    pub(crate) site: usize,
    /// Its place among the site's classes of the problem.
    pub(crate) class: usize,
    pub(crate) nodes: u32,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Solved {
    /// These nodes; and whether nothing better exists.
    Found { uses: Vec<Use>, best: bool },
    /// There is no room.
    NoRoom,
    /// Time ran out, or numbers were too far apart for the solver.
    Unknown,
}

/// How much a program may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// As one of many: what isn't known soon would take long.
    Little,
    /// Until the deadline.
    All,
}

impl Effort {
    /// So many branches may be looked at. Each takes longer with more variables, and fewer of large
    /// programs end by that.
    fn branches(self, aim: Aim, variables: usize) -> Option<u64> {
        let variables = (variables as u64).max(1);
        match (self, aim) {
            (Self::All, _) => None,
            (Self::Little, Aim::Room) => Some(100_000 / (variables * variables) + 5),
            (Self::Little, Aim::MostRanks | Aim::FewestNodes { .. }) => Some(30_000 / variables + 100),
        }
    }
}

/// Solves the program for these cells.
pub(crate) fn solve(
    problem: &Problem,
    cells: &[Cell],
    aim: Aim,
    effort: Effort,
    deadline: &Deadline,
) -> Solved {
    let model = Model::new(problem, cells, aim);
    if model.hopeless {
        return Solved::NoRoom;
    }
    let mut options = SolveOptions::default();
    options.time_limit = deadline.left();
    options.node_limit = effort.branches(aim, model.nodes.len());
    // Ranks and nodes are whole: what differs by less than one is the same.
    options.mip_gap = 0.9 / model.largest.max(1.0);
    let outcome = match model.program.solve_with(options) {
        Ok(outcome) => outcome,
        Err(Error::Infeasible) => return Solved::NoRoom,
        Err(_) => return Solved::Unknown,
    };
    let best =
        matches!(outcome.termination_reason(), TerminationReason::ProvenOptimal | TerminationReason::MipGap);
    let Ok(solution) = outcome.into_solution() else { return Solved::Unknown };
    let uses: Vec<Use> = model
        .nodes
        .iter()
        .filter_map(|(variable, of)| {
            let nodes = solution.var_value(*variable).round();
            // Its bounds are those of an i32.
            let nodes = if (1.0..=f64::from(i32::MAX)).contains(&nodes) { nodes as u32 } else { 0 };
            (nodes > 0).then_some(Use { nodes, ..*of })
        })
        .collect();
    // The solver computes with floating point: what it says is counted again.
    if holds(problem, cells, &uses) { Solved::Found { uses, best } } else { Solved::Unknown }
}

/// How many ranks each group has on these nodes: as many as there is room for, up to its most.
pub(crate) fn ranks(problem: &Problem, uses: &[Use]) -> Vec<u64> {
    let mut ranks = vec![0_u64; problem.groups.len()];
    for of in uses {
        let class = &problem.sites[of.site].classes[of.class];
        let room = class.ranks[of.group].saturating_mul(u64::from(of.nodes));
        ranks[of.group] = ranks[of.group].saturating_add(room);
    }
    ranks.iter().zip(&problem.groups).map(|(ranks, group)| *ranks.min(&group.most)).collect()
}

/// Whether each group of the cells has its least, and no class more nodes than there are.
fn holds(problem: &Problem, cells: &[Cell], uses: &[Use]) -> bool {
    let mut taken: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for of in uses {
        *taken.entry((of.site, of.class)).or_default() += u64::from(of.nodes);
    }
    let groups = cells.iter().fold(0, |all, (_, groups)| all | groups);
    let ranks = ranks(problem, uses);
    members(groups).all(|group| ranks[group] >= problem.groups[group].least)
        && taken
            .iter()
            .all(|((site, class), nodes)| *nodes <= u64::from(problem.sites[*site].classes[*class].nodes))
}

struct Model {
    program: microlp::Problem,
    nodes: Vec<(Variable, Use)>,
    hopeless: bool,
    /// What is sought is no more than this.
    largest: f64,
}

impl Model {
    fn new(problem: &Problem, cells: &[Cell], aim: Aim) -> Self {
        let direction = match aim {
            Aim::Room | Aim::FewestNodes { .. } => OptimizationDirection::Minimize,
            Aim::MostRanks => OptimizationDirection::Maximize,
        };
        let mut program = microlp::Problem::new(direction);
        let groups = cells.iter().fold(0, |all, (_, groups)| all | groups);
        let node_cost = if matches!(aim, Aim::FewestNodes { .. }) { 1.0 } else { 0.0 };
        let mut nodes: Vec<(Variable, Use)> = Vec::new();
        for (site, at) in cells {
            for (index, class) in problem.sites[*site].classes.iter().enumerate() {
                let mut together = LinearExpr::empty();
                for group in members(*at).filter(|group| class.ranks[*group] > 0) {
                    let of_use = problem.groups[group].most.div_ceil(class.ranks[group]);
                    let bound = i32::try_from(of_use.min(u64::from(class.nodes)));
                    let variable = program.add_integer_var(node_cost, (0, bound.unwrap_or(i32::MAX)));
                    together.add(variable, 1.0);
                    nodes.push((variable, Use { group, site: *site, class: index, nodes: 0 }));
                }
                program.add_constraint(together, ComparisonOp::Le, f64::from(class.nodes));
            }
        }
        let gain = if aim == Aim::MostRanks { 1.0 } else { 0.0 };
        let mut all = LinearExpr::empty();
        let mut hopeless = false;
        for group in members(groups) {
            let of = &problem.groups[group];
            let ranks = program.add_var(gain, (of.least as f64, of.most as f64));
            all.add(ranks, 1.0);
            let mine: Vec<(Variable, u64)> = nodes
                .iter()
                .filter(|(_, of)| of.group == group)
                .map(|(variable, of)| (*variable, problem.sites[of.site].classes[of.class].ranks[group]))
                .collect();
            hopeless |= mine.is_empty();
            let mut room = sum(mine.iter().map(|(variable, each)| (*variable, *each)));
            room.add(ranks, -1.0);
            program.add_constraint(room, ComparisonOp::Ge, 0.0);
            for divisor in divisors(&mine) {
                let divided = |(variable, each): &(Variable, u64)| (*variable, each.div_ceil(divisor));
                let least = of.least.div_ceil(divisor) as f64;
                program.add_constraint(sum(mine.iter().map(divided)), ComparisonOp::Ge, least);
            }
        }
        if let Aim::FewestNodes { ranks } = aim {
            program.add_constraint(all, ComparisonOp::Ge, ranks as f64);
        }
        let most = members(groups).map(|group| problem.groups[group].most).sum::<u64>();
        let sites = cells.iter().map(|(site, _)| problem.sites[*site].nodes()).sum::<u64>();
        let largest = if aim == Aim::MostRanks { most } else { sites } as f64;
        Self { program, nodes, hopeless, largest }
    }
}

/// The sum of variables, each so many times.
fn sum(terms: impl Iterator<Item = (Variable, u64)>) -> LinearExpr {
    let mut sum = LinearExpr::empty();
    for (variable, times) in terms {
        sum.add(variable, times as f64);
    }
    sum
}

/// The numbers of ranks for which nodes have room, each once, and few of them.
fn divisors(nodes: &[(Variable, u64)]) -> Vec<u64> {
    /// Beyond so many, further rows cost more time than they save.
    const MOST_DIVISORS: usize = 8;
    let mut divisors: Vec<u64> = nodes.iter().map(|(_, each)| *each).collect();
    divisors.sort_unstable_by(|a, b| b.cmp(a));
    divisors.dedup();
    divisors.truncate(MOST_DIVISORS);
    divisors
}
