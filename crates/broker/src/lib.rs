//! isthmus broker.
