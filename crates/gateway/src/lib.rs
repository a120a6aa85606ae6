//! isthmus gateway.
