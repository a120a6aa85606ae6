//! Sets of dials or routes.

use std::marker::PhantomData;

/// A type with a few alternatives, of which a [`Set`] holds some.
pub trait Choice: Copy + Eq + 'static {
    /// All alternatives, eight at most.
    const ALL: &'static [Self];
}

/// A set of alternatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Set<T>(u8, PhantomData<T>);

impl<T: Choice> Set<T> {
    /// The set without members.
    pub const NONE: Self = Self(0, PhantomData);

    /// The set that has these members.
    pub fn of(members: &[T]) -> Self {
        Self::of_all(|choice| members.contains(&choice))
    }

    /// The set of all alternatives but these.
    pub fn all_but(members: &[T]) -> Self {
        Self::of_all(|choice| !members.contains(&choice))
    }

    fn of_all(is_member: impl Fn(T) -> bool) -> Self {
        let bits = T::ALL.iter().enumerate().map(|(bit, choice)| u8::from(is_member(*choice)) << bit);
        Self(bits.sum(), PhantomData)
    }

    /// The union: every member of either set.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0, PhantomData)
    }

    /// Whether a choice is in the set.
    pub fn contains(self, choice: T) -> bool {
        self.each().any(|member| member == choice)
    }

    /// The members, in the order of [`Choice::ALL`].
    pub fn each(self) -> impl Iterator<Item = T> {
        let set = move |bit: &usize| self.0 & (1 << bit) != 0;
        T::ALL.iter().enumerate().filter(move |(bit, _)| set(bit)).map(|(_, choice)| *choice)
    }
}
