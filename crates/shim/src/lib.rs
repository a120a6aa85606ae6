//! isthmus shim.
