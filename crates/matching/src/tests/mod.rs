//! Tests of the whole: tables, and comparison with brute force.

mod brute;
mod conflicts;
mod random;
mod table;
