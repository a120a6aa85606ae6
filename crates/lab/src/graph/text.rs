//! How wide text is, without a font at hand: in DejaVu Sans, about the widest
//! of those that stand for "sans-serif". Narrower ones leave some room.

/// Width of a text in pixels at a font size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// Width of a character at font size 1.
fn advance(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' => 0.28,
        'I' | '.' | ',' | ':' | ' ' | '·' => 0.32,
        'f' | 't' | 'r' | '-' | '(' | ')' | '/' => 0.42,
        'm' | 'M' | 'W' | '%' => 0.98,
        'w' | '±' | '→' | '←' | '✕' => 0.84,
        'A'..='Z' => 0.74,
        _ => 0.64,
    }
}
